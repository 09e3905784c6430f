"""What choosing a candidate of fusion adds to choosing schedules, predicted by the analytic model.

    python -m dplc.examples.benches.tuned_fusion [--tries 60] [--write FILE]

Every program is searched twice, with as many tries: as the rules cut it, and with the candidates of exploration as the
first decision. Winners are run as whole programs on the emulator against float64.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from pathlib import Path

from dplc.codegen.target import target
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import compiler_with
from dplc.engine.explore.explore import Fusing
from dplc.engine.tune.evaluators import PredictingEvaluator
from dplc.engine.tune.search import DEFAULT_SEARCH, Budget, SearchOptions, micro
from dplc.engine.tune.tuning import tune_program

MACHINE = target("sm_90a")
PROGRAMS = {
    "two layers": "torch.relu(torch.randn(64, 32) @ torch.randn(32, 48)) @ torch.randn(48, 16)",
    "LayerNorm, linear": "F.linear(F.layer_norm(torch.randn(64, 512), (512,)), torch.randn(256, 512))",
    "RMSNorm, linear": "F.linear(F.rms_norm(torch.randn(64, 512), (512,)), torch.randn(1024, 512))",
    "softmax of a product": "torch.softmax(torch.randn(64, 256) @ torch.randn(256, 512), -1)",
    "attention, 4 heads of 128 x 64": "F.scaled_dot_product_attention(*(torch.randn(1, 4, 128, 64) for _ in range(3)))",
}


def row(name: str, tries: int) -> str:
    """A program: default order, tuned as the rules cut it, tuned with candidates, and which one was chosen."""
    values = compiler_with(MACHINE).values(capture_text(PROGRAMS[name], 0))
    wishes = SearchOptions(budget=Budget(tries=tries))
    alone, both = (tune_program(Fusing(values, top), PredictingEvaluator(), wishes) for top in (1, 4))
    figures = [micro(alone.default_seconds), micro(alone.seconds), micro(both.seconds)]
    line = f"| {name} | {' | '.join(figures)} | {both.label} | {both.checked or 'no'} |"
    print(line, file=sys.stderr, flush=True)
    return line


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tries", type=int, default=60)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    gc.collect()
    gc.freeze()
    began = time.process_time()
    rows = [row(name, given.tries) for name in PROGRAMS]
    command = " ".join(["python -m dplc.examples.benches.tuned_fusion", *sys.argv[1:]])
    text = "\n".join([
        "# Candidates of fusion and schedules, tuned together", "",
        f"Predicted by the analytic model for {MACHINE.name}; nothing here was measured. Made by `{command}`: search",
        f"{DEFAULT_SEARCH}, seed 0, {given.tries} tries for each kernel that the rules make, "
        f"{time.process_time() - began:.0f} CPU seconds.", "",
        "| program | default µs | tuned as the rules cut it | tuned with candidates | chosen | checked |",
        "|---|--:|--:|--:|---|---|", *rows, "",
    ])  # fmt: skip
    if given.write is not None:
        given.write.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
