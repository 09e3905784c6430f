"""The default pipeline on every nest: its meaning stays, its invariants hold, its text reads back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nests import NESTS
from scheduling import MACHINE, difference, schedule

from dplc.codegen.target import Target, target
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import compiler_with
from dplc.engine.rewrite.trace import Trace
from dplc.ir.interp import loop
from dplc.ir.text.programs import print_program, print_unit, read_program
from dplc.ir.verify import loop as verify_loop, tile as verify_tile

SMALL = replace(MACHINE, multiprocessors=1)


@pytest.mark.parametrize("name", NESTS)
@pytest.mark.sampled(4)
def test_loop_meaning_is_numpys(name: str) -> None:
    nest = NESTS[name]
    inputs = nest.inputs()
    made = loop.run(nest.kernels, inputs)
    for buffer, value in nest.meaning(**inputs).items():
        np.testing.assert_allclose(made[buffer], value, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", NESTS)
@pytest.mark.sampled(4)
def test_schedule_keeps_the_meaning(name: str) -> None:
    nest = NESTS[name]
    inputs = nest.inputs()
    program = schedule(nest.kernels)
    wanted = {buffer: np.asarray(value) for buffer, value in nest.meaning(**inputs).items()}
    assert difference(program, inputs, wanted) is None, print_program(program)


@pytest.mark.parametrize("name", NESTS)
@pytest.mark.sampled(4)
def test_schedule_verifies_and_reads_back(name: str) -> None:
    nest = NESTS[name]
    assert [verify_loop.problems(kernel) for kernel in nest.kernels] == [()] * len(nest.kernels)
    for machine in (MACHINE, target("sm_80")):
        program = schedule(nest.kernels, machine)
        assert [verify_tile.problems(kernel, machine.smem) for kernel in program] == [()] * len(program)
        assert read_program(print_program(program, "tile")) == ("tile", program)
        assert schedule(nest.kernels, machine) == program


@pytest.mark.parametrize("name", [name for name in NESTS if "matmul" in name])
@pytest.mark.sampled(3)
def test_a_busy_device_keeps_the_meaning(name: str) -> None:
    """Few multiprocessors are filled by large tiles, of several warps and with few slices of k."""
    nest = NESTS[name]
    inputs = nest.inputs()
    wanted = {buffer: np.asarray(value) for buffer, value in nest.meaning(**inputs).items()}
    program = schedule(nest.kernels, SMALL)
    assert difference(program, inputs, wanted) is None, print_program(program)


def fired(name: str, machine: Target = MACHINE) -> set[str]:
    trace: Any = Trace()
    schedule(NESTS[name].kernels, machine, trace=trace.at("tile"))
    return {event.rule for event in trace.events if hasattr(event, "parameters")}


def test_live_rules() -> None:
    """What the default order is made of, on real patterns."""
    assert {
        "tileify", "tileify_chain", "chunk_matmul_k", "blockify_launch", "stage_inputs", "register_tile",
        "double_buffer", "async_copy", "vector_reduce", "pipeline_predicated", "vector_axis",
    } <= fired("matmul 64x64x64")  # fmt: skip
    assert {"slice_matmul_k"} <= fired("matmul 64x64x64", SMALL)
    assert {"unguard_accumulate"} <= fired("relu(matmul(x + bias, w)) 17x33x65") | fired("matmul 40x72x50")
    assert {"permute_stage", "xor_smem", "permute_register_tile"} <= fired("matmul transposed 64x64x64", SMALL)
    assert {"cooperative_reduce", "register_row", "same_load", "vector_axis"} <= fired("rms_norm 4x256")
    assert {"divide_once", "rows_per_block"} <= fired("softmax 300x64")
    assert {"blockify_flat", "vector_axis"} <= fired("a large pointwise kernel")
    assert "split_matmul_k" in fired("matmul 5x24x3000")
    assert "blockify_flat" in fired("silu(g)*u 6x100")
    assert {"blockify_launch", "stage_inputs", "double_buffer"} <= fired("a contraction over two axes")
    assert {"blockify_launch", "stage_inputs"} <= fired("gather inside of a matmul")
    assert "mark_unroll" in fired("matmul of a padded operand") | fired("both operands along k")
    assert {"tileify", "collapse", "cooperative_reduce"} <= fired("everything to one number")


def test_a_share_of_chunks_that_runs_beyond_the_last_one_is_asked_for_by_the_block(tmp_path: Path) -> None:
    """256 chunks for five blocks: 52 each. Whether a chunk is there is the same for all threads that copy it."""
    (tmp_path / "five.rw").write_text("pipeline tile\n    pass chunk_matmul_k(BK=16)\n    pass split_matmul_k(S=5)\n")
    made = compiler_with(target("a100"), [tmp_path / "five.rw"]).compile(
        capture_text("torch.randn(32, 4096) @ torch.randn(4096, 512)", values=False)
    )
    copies = [line for line in made.cuda_kernels[0].text.splitlines() if "zfill" in line]
    assert "s:5=BLOCK" in print_unit(made.tile[0])
    assert copies and all("s * 52 + k_o + 3 < 256" in line for line in copies)


def test_lanes_interleave_along_both_sides_of_a_flipped_matrix() -> None:
    """It is read from its end and written from its start: the two strides of a lane axis do not add up to 0."""
    flipped = "torch.randn(8, 8).repeat(2, 2).flip((0, 1))"
    trace = Trace()
    compiler_with(target("h100"), trace=trace).compile(capture_text(f"v = {flipped}\nv @ v.T", values=False))
    assert [firing.rule for firing in trace.firings].count("permute_register_tile") == 2


@pytest.mark.parametrize("rows", [33, 40])
def test_a_few_rows_have_a_tile(rows: int) -> None:
    """A tile of 40 rows is not a tile of the rules: without one, such a product took seven times as long on an H200."""
    trace = Trace()
    text = f"F.linear(torch.randn({rows}, 4096), torch.randn(4096, 4096))"
    compiler_with(target("h200"), trace=trace).compile(capture_text(text, values=False))
    assert "blockify_launch" in {firing.rule for firing in trace.firings}
