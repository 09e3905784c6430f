"""A dump, pasted whole, is a pattern that matches where it came from: on loop, tile and kernel."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dplc.codegen.target import target
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import compiler_with
from dplc.engine.language.check import check, errors
from dplc.engine.language.rule import load
from dplc.engine.rewrite.statements.driver import Engine
from dplc.ir.program import Kernel
from dplc.ir.text.programs import print_unit

sys.path.insert(0, str(Path(__file__).parents[2] / "endtoend"))
from expressions import EXPRESSIONS

SAMPLE = (
    "torch.randn(7, 1025).sum(-1)",  # one thread stores: `if t < 1:`
    "torch.randn(33, 70) @ torch.randn(70, 65)",
    "torch.randn(16, 2048) @ torch.randn(2048, 64)",
    "F.layer_norm(torch.randn(5, 33), (33,))",
    "torch.sub(torch.randn(5, 7), torch.randn(7), alpha=0.5)",  # a value is called as a fact is
    "F.scaled_dot_product_attention(*[torch.randn(1, 2, 33, 64)] * 3, is_causal=True)",
)
EVERY = [text for texts in EXPRESSIONS.values() for text in texts]
SLOW = [pytest.param(text, marks=pytest.mark.slow, id=f"{n}") for n, text in enumerate(EVERY)]


def pasted(level: str, unit: Kernel) -> str:
    body = "\n".join(print_unit(unit).splitlines()[1:])
    return f"rule pasted on {level}\nmatch\n{body}\nrewrite\n    Sync()\n"


@pytest.mark.parametrize("text", [*SAMPLE, *SLOW])
@pytest.mark.sampled(3)
def test_a_pasted_kernel_matches_itself(text: str, tmp_path: Path) -> None:
    found = compiler_with(target()).compile(capture_text(text))
    stages = {"loop": found.plan.kernels, "tile": found.tile, "kernel": found.kernels}
    for level, program in stages.items():
        for unit in program:
            file = tmp_path / "pasted.rw"
            file.write_text(pasted(level, unit))
            rules = load([file])
            broken = [
                one for one in errors(check(rules, {str(file)})) if "pattern" in one.what or "unbound" in one.what
            ]
            assert not broken, broken[0].render()
            engine = Engine(rules)
            match = next(engine.sites("pasted", (unit,), target()), None)
            assert match is not None, "\n".join(r.text() for r in engine.why_not("pasted", (unit,), target()))


def test_a_condition_of_an_axis_that_the_pattern_binds(tmp_path: Path) -> None:
    """`if t < 1:` in a pattern is what stands there, whatever `t` is."""
    file = tmp_path / "first.rw"
    file.write_text(
        "rule first on tile\nmatch\n    Tile(t:T=THREAD):\n        if t < 1 and t >= 0:\n            body..\n"
        "rewrite\n    Tile(t:T=THREAD):\n        body..\n"
    )
    engine = Engine(load([file]))
    for condition, fires in (("lane < 1 and lane >= 0", True), ("lane < 2 and lane >= 0", False), ("lane < 1", False)):
        program = toolchain_program(condition)
        assert (next(engine.sites("first", program, target()), None) is not None) == fires, condition


def toolchain_program(condition: str) -> tuple[Kernel, ...]:
    from dplc.ir.text.programs import read_program

    text = f"kernel f(A: f32[4]) -> y: f32[4]:\n    Tile(lane:4=THREAD):\n        if {condition}:\n            y[lane] = 1.0\n"
    return read_program(text, "test")[1]  # type: ignore[return-value]
