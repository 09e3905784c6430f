"""Whatever pass is left out, as where its rules refuse, what comes out of the others is a launch that a device takes."""

from __future__ import annotations

import math

import pytest
from nests import NESTS
from scheduling import MACHINE, Program, engine, schedule, steps

from dplc.engine.language.pipeline import PassStep
from dplc.engine.rewrite.statements.driver import Shaped, run_pipeline
from dplc.ir.node import nodes
from dplc.ir.tile import Tile
from dplc.ir.verify import tile as verify_tile

FEW = ("gather inside of a matmul, ragged", "softmax 300x64")
DEFINING = ("tileify", "fit_block")  # without the first there is no launch; the second one is what is tested


def threads(program: Program) -> int:
    return max(
        math.prod(axis.extent for axis in tile.axes if axis.role == "THREAD")
        for kernel in program
        for tile in nodes(kernel, Tile)
    )


def check(name: str, left_out: PassStep | None, shaped: Shaped | None = None) -> None:
    kept = tuple(step for step in steps() if step is not left_out)
    program = run_pipeline(engine(), kept, NESTS[name].kernels, MACHINE, shaped=shaped)
    assert [verify_tile.problems(kernel, MACHINE.smem) for kernel in program] == [()] * len(program), left_out
    assert threads(program) <= 1024, left_out


@pytest.mark.parametrize("name", [n if n in FEW else pytest.param(n, marks=pytest.mark.slow) for n in NESTS])
def test_every_pass_may_refuse(name: str) -> None:
    shaped: Shaped = {}
    check(name, None, shaped)
    fired = {label for labels in shaped.values() for label in labels}  # without another pass the result is the same
    for step in steps():
        if step.label in fired and step.label not in DEFINING:
            check(name, step)


def test_rows_of_a_table_are_tiled_as_those_of_a_matrix() -> None:
    (kernel,) = schedule(NESTS["gather inside of a matmul, ragged"].kernels)
    (tile,) = nodes(kernel, Tile)
    assert any(axis.role == "REG" for axis in tile.axes), "no operand is used again from registers"
