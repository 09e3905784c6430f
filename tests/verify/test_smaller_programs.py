"""Smaller programs for a counterexample: each lacks something, and all that can be left out is tried."""

from __future__ import annotations

from dplc.engine.verify.drawing import smaller_programs
from dplc.ir.program import Kernel
from dplc.ir.text.programs import read_program

KERNELS = "## level: loop\n" + "".join(
    f"""kernel {name}({name}_x: f32[4]) -> {name}_y: f32[4]:
    for i in 0..4 free:
        v = load {name}_x[i]
        {name}_y[i] = v
"""
    for name in "abc"
)


def test_of_several_kernels_each_is_left_out_once() -> None:
    program = tuple(unit for unit in read_program(KERNELS)[1] if isinstance(unit, Kernel))
    fewer = [made for made in smaller_programs(program) if len(made) < len(program)]
    assert fewer == [program[1:], (program[0], program[2]), program[:2]]


def test_a_program_is_never_smaller_than_itself() -> None:
    program = tuple(unit for unit in read_program(KERNELS)[1] if isinstance(unit, Kernel))
    found = list(smaller_programs(program))
    assert program not in found and all(len(made) <= len(program) for made in found)
