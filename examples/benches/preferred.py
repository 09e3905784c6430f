"""Rules that seldom fire by default, fired wherever they are legal: what the model says of it.

    python examples/benches/preferred.py [--target h200]

`by default`: programs in which the default order fires the rule. `fires`: those in which it does with `--prefer`, and
with the rules taken out that leave nothing for it. time: predicted, over that of the default order, where it fires.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

from dplc.codegen.target import Target, target
from dplc.engine.bench.cases import read_suite, subject_of
from dplc.engine.capture.capture import capture_text
from dplc.engine.capture.signature import Capture
from dplc.engine.compiler import Compiler
from dplc.engine.cost.instruction_counts import instruction_counts
from dplc.engine.cost.predict import predict
from dplc.engine.rewrite.trace import Trace
from dplc.engine.ruleset import Toolchain, toolchain

SUITE = Path(__file__).resolve().parents[1] / "suites" / "kernels_84.json"
LONG = (  # long sums of which threads share one operand
    "torch.randn(8192) @ torch.randn(8192, 64)",
    "torch.randn(65536) @ torch.randn(65536, 512)",
    "torch.randn(512, 65536) @ torch.randn(65536)",
    "torch.randn(4, 16384) @ torch.randn(16384)",
)


@dataclass(frozen=True)
class Asked:
    """Rules that are to fire, which of them are looked at, and what is taken out for them."""

    number: str
    rules: tuple[str, ...]
    own: tuple[str, ...]
    without: tuple[str, ...] = ()
    long: bool = False

    def tools(self) -> Toolchain:
        """The rules, so asked."""
        settings = {rule: {"prefer": False} for rule in self.rules}
        with tempfile.NamedTemporaryFile("w", suffix=".rw") as file:
            file.write("".join(f"without {rule}\n" for rule in self.without))
            file.flush()
            return toolchain([file.name] if self.without else None, settings)


TEAMS = ("cooperative_reduce", "column_reduce", "split_fold")
ASKED = (
    Asked("006", ("chunk_reduce",), ("chunk_reduce",)),
    Asked("006", ("chunk_reduce",), ("chunk_reduce",), TEAMS, True),
    Asked("011", ("tma_copy",), ("tma_copy",)),
    Asked("012", ("tma_copy", "split_inner_for_swizzle"), ("split_inner_for_swizzle",)),
    Asked("014", ("pad_smem",), ("pad_smem",)),
    Asked("015", ("pipeline_k_outer",), ("pipeline_k_outer",)),
)


def captures(long: bool) -> list[Capture]:
    """The 84 shapes, or the long sums."""
    suite = read_suite(SUITE)
    return [capture_text(text) for text in LONG] if long else [subject_of(suite, one).capture() for one in suite.cases]


def compiled(captured: Capture, tools: Toolchain, machine: Target) -> tuple[float, set[str]]:
    """Microseconds of all launches, and the rules that fired."""
    trace = Trace()
    made = Compiler(tools, machine, trace).compile(captured)
    each = [predict(instruction_counts(kernel), machine).seconds * 1e6 for kernel in made.kernels]
    return sum(each[index] for index in made.launched), {event.rule for event in trace.firings}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="h200")
    machine = target(parser.parse_args().target)
    programs = {long: captures(long) for long in (False, True)}
    usual = {long: [compiled(one, toolchain(), machine) for one in found] for long, found in programs.items()}
    print("| | `--prefer` | taken out | programs | by default | fires | time, geometric mean | least | most |")
    print("|---|---|---|---|--:|--:|--:|--:|--:|")
    for asked in ASKED:
        tools, own, ratios = asked.tools(), set(asked.own), []
        for captured, (before, _) in zip(programs[asked.long], usual[asked.long], strict=True):
            after, fired = compiled(captured, tools, machine)
            ratios += [after / before] if own & fired else []
        by_default = sum(bool(own & fired) for _, fired in usual[asked.long])
        found = (statistics.geometric_mean(ratios), min(ratios), max(ratios)) if ratios else ()
        names, gone = (" ".join(f"`{rule}`" for rule in rules) for rules in (asked.rules, asked.without))
        about = f"{len(LONG)} long sums" if asked.long else f"the {len(programs[False])} shapes"
        cells = [asked.number, names, gone, about, by_default, len(ratios), *(f"{ratio:.3f}" for ratio in found)]
        print(f"| {' | '.join(map(str, cells + ['-'] * (9 - len(cells))))} |", flush=True)


if __name__ == "__main__":
    main()
