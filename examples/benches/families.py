"""What `dplc compile`, `bench` and `generate` make of families, from a folder with config.json and safetensors: the
table of examples/models/families.md.

    python examples/benches/families.py [--only NAME ..] [--target h200]

Tiny models of tests/models/architectures.json, made-up weights, saved to a folder; run on the emulator. error: of the
result furthest from PyTorch's, over its largest value. text: whether eight tokens after a prompt of five are those of
transformers' own greedy search. predicted: a call with seven tokens, an image or a spectrum, and one token of text, by
the model; nothing is measured.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "models"))

import architectures as families  # noqa: E402

LISTED = (
    "llama qwen2 qwen3 gemma gemma2 gemma3_text mistral mixtral phi3 gpt2 gpt_neox olmo2 smollm3 granite gpt_oss "
    "bert modernbert vit clip_vision_model clip_text_model whisper"
)
HEAD = """| family | launches | distinct kernels | predicted us | error | text | a token: launches | predicted us |
|---|---|---|---|---|---|---|---|"""


def predicted(made: Any) -> float:
    """All launches of a compiled call, in microseconds."""
    from dplc.engine.cost.instruction_counts import instruction_counts
    from dplc.engine.cost.predict import predict

    found = made.compilation
    each = [predict(instruction_counts(kernel), found.target).seconds for kernel in found.kernels]
    return 1e6 * sum(each[kernel] for kernel in found.launched)


def row(name: str, device: str) -> str:
    """A line of the table."""
    with tempfile.TemporaryDirectory() as folder:
        model = families.saved(name, Path(folder))
        made, error = families.call_of(model, Path(folder), device)
        cells = [name, str(made.figures.launches), str(made.figures.kernels), f"{predicted(made):.0f}", f"{error:.1e}"]
        if name in families.CAUSAL:
            text, got, want = families.text_of(model, Path(folder), device)
            same = "the same" if got == want else "others"
            cells += [same, str(text.token.figures.launches), f"{predicted(text.token):.0f}"]
        else:
            cells += ["-"] * 3
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=LISTED.split(), metavar="NAME")
    parser.add_argument("--target", default="h200")
    options = parser.parse_args()
    print(HEAD, flush=True)
    for name in options.only:
        with contextlib.redirect_stderr(io.StringIO()):  # transformers' bars
            line = row(name, options.target)
        print(line, flush=True)


if __name__ == "__main__":
    main()
