"""Random points of the space: any legal choice of any pass, skipped or not, keeps the meaning under adversarial threads.

The prototype's 300 schedules found four wrong rules.
"""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from choices import choices, key
from drawing import draws
from nests import NESTS
from scheduling import MACHINE, Program, difference, engine

from dplc.engine.rewrite.statements.driver import RuleSite
from dplc.ir.node import nodes
from dplc.ir.text.programs import print_program, read_program
from dplc.ir.tile import Tile

# Passes in a workable order, which is not always the default one.
PASSES = (
    "tileify", "collapse", "chunk_matmul_k", "split_matmul_k", "cooperative_reduce", "blockify_launch", "chunk_reduce",
    "register_row", "reuse", "rows_per_block", "stage_inputs", "register_tile", "slice_matmul_k",
    "zero_filled", "permute_register_tile", "permute_register_tile", "double_buffer", "tma_copy",
    "split_inner_for_swizzle", "async_copy", "pad_smem", "permute_stage", "vector_reduce", "xor_smem",
    "pipeline_predicated", "pipeline_k_outer", "scalar", "mark_unroll", "vector_axis",
)  # fmt: skip
SUBJECTS = (
    "matmul 40x72x50", "matmul transposed 64x64x64", "relu(matmul(x + bias, w)) 17x33x65", "gated matmul 20x32x24",
    "rms_norm 4x256", "softmax 8x128", "silu(g)*u 6x100", "softmax and values: a contraction inside of a row",
    "matmul of a padded operand", "a contraction over two axes", "argmax: two sweeps, i64 out", "cumulative sum",
    "a reduction over two axes, then over the row", "gather inside of a matmul", "both operands along k",
)  # fmt: skip
LARGEST = 8192  # threads times registers of a block: more is for the device, not for the simulator
TRIED = 40  # choices looked at per pass; the space of all xor layouts is large


def schedule(program: Program, dice: random.Random) -> tuple[Program, list[str]]:
    """A program after random choices, and their keys."""
    skipped, log = dice.choice((0.1, 0.3, 0.5)), []
    for name in PASSES:
        step = engine().step(name)
        repeats = any("repeat" in rule.attributes for rule in step.rules)
        done: set[str] = set()
        for _ in range(3):
            found = list(itertools.islice(choices(engine(), step, program, MACHINE, without=frozenset(done)), TRIED))
            if not found or (name not in ("tileify", "blockify_launch") and dice.random() < skipped):
                break
            choice: RuleSite = dice.choice(found)
            made = choice.apply()
            if any(_size(tile) > LARGEST for tile in nodes(made, Tile)) and name not in ("tileify", "blockify_launch"):
                break
            if not repeats:
                done |= {choice.kernel} | ({k.name for k in made} - {k.name for k in program})
            program = made
            log.append(key(choice))
    return program, log


def _size(tile: Tile) -> int:
    return math.prod(axis.extent for axis in tile.axes if axis.role != "BLOCK")


def check(name: str, seed: int) -> None:
    nest = NESTS[name]
    dice = random.Random(f"{name} {seed}")
    program, log = schedule(nest.kernels, dice)
    assert read_program(print_program(program, "tile"))[1] == program
    inputs = nest.inputs(seed)
    wanted = {buffer: np.asarray(value) for buffer, value in nest.meaning(**inputs).items()}
    wrong = difference(program, inputs, wanted, (seed,))
    assert wrong is None, "\n".join([str(wrong), *log, print_program(program)])


@pytest.mark.parametrize("seed", range(draws(1)))
@pytest.mark.parametrize("name", SUBJECTS)
def test_random_schedule(name: str, seed: int) -> None:
    check(name, seed)
