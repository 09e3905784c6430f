"""Results that leave through memory where the ring was, behind its last turn: right, ragged, clean; faults are found."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from planted_faults import Fault, faulty_kernels, told_in_orders
from products_of_halves import judged

import dplc
from dplc.codegen.build import assemble, device_text
from dplc.codegen.compiler import find_nvrtc, find_program
from dplc.codegen.sass import disassemble, find_nvdisasm
from dplc.ir.interp import kernel as kernel_meaning
from dplc.ir.interp import tile as tile_meaning
from dplc.ir.interp.scalar import ScheduleError
from dplc.ir.node import nodes
from dplc.ir.text.programs import print_program, read_program
from dplc.ir.tile import Slab
from dplc.ir.verify.tile import problems

BF16 = torch.bfloat16
SIZES = {"blockify_launch": {"BM": 128, "BN": 128}, "chunk_matmul_k": {"BK": 32}, "double_buffer": {"N": 3}}


def made(f: Callable[..., torch.Tensor], *inputs: torch.Tensor, **settings: Any) -> dplc.Compiled:
    return dplc.compile(f, inputs, target="rtx5090", device="emulator", db=False, **settings)


def operands(*shapes: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    dice = torch.Generator().manual_seed(sum(map(sum, shapes)))
    return tuple(torch.randn(*shape, generator=dice).to(BF16) for shape in shapes)


def slabs(compiled: dplc.Compiled) -> list[Slab]:
    return [slab for kernel in compiled.compilation.tile for slab in nodes(kernel, Slab)]


@pytest.fixture(scope="module")
def ragged() -> tuple[dplc.Compiled, tuple[torch.Tensor, ...]]:
    """130 x 136 by 136 x 136: the second tile of rows and of columns is ragged, and so is the last chunk."""
    inputs = operands((130, 136), (136, 136))
    return made(product, *inputs, settings=SIZES), inputs


def test_large_products_store_16_bytes_and_share_a_multiprocessor() -> None:
    compiled = made(torch.matmul, *(torch.empty(4096, 4096, dtype=BF16) for _ in "xy"))
    (slab,), (kernel,) = slabs(compiled), compiled.compilation.cuda_kernels
    assert slab.reuse == 1
    assert 2 * kernel.smem <= 99 << 10
    assert set(re.findall(r"\bst[gs]\d+", kernel.text)) == {"sts32", "stg128"}


def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x @ y


PRODUCTS: dict[str, tuple[Callable[..., torch.Tensor], tuple[tuple[int, ...], ...]]] = {
    "whole tiles": (product, ((128, 128), (128, 128))),
    "a prime of rows": (product, ((131, 96), (96, 264))),
    "a linear with bias and gelu": (
        lambda x, w, b: torch.nn.functional.gelu(torch.nn.functional.linear(x, w, b)),
        ((130, 160), (136, 160), (136,)),
    ),
    "a residual": (lambda x, y, r: x @ y + r, ((129, 104), (104, 128), (129, 128))),
    "batches": (torch.bmm, ((2, 130, 96), (2, 96, 128))),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_results_are_right_and_clean(name: str) -> None:
    f, shapes = PRODUCTS[name]
    inputs = operands(*shapes)
    compiled = made(f, *inputs, settings=SIZES)
    assert [slab.reuse for slab in slabs(compiled)] == [1]
    judged(compiled, f, inputs)


def test_all_meanings_agree_in_every_order_of_threads(ragged: tuple[dplc.Compiled, tuple[torch.Tensor, ...]]) -> None:
    compiled, (x, y) = ragged
    want, (program,) = (x.double() @ y.double()).numpy(), compiled.compilation.tile
    arrays = {p.name: a.double().numpy() for p, a in zip(program.ins, (x, y), strict=True)}
    for seed in range(10):
        np.testing.assert_allclose(tile_meaning.run((program,), arrays, seed)[program.outs[0].name], want, atol=1e-9)
    below = kernel_meaning.run(compiled.compilation.kernels, arrays)[program.outs[0].name]
    np.testing.assert_allclose(below, want, rtol=1e-2, atol=1e-1)


def without(text: str, line: str, which: int) -> str:
    """A text without one occurrence of a line, counted from the end."""
    lines = text.splitlines()
    found = [n for n, other in enumerate(lines) if other.strip() == line]
    del lines[found[which]]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("which", [-1, -2], ids=["before it is read", "before it is stored to"])
def test_a_missing_barrier_is_an_error_of_the_schedule(
    ragged: tuple[dplc.Compiled, tuple[torch.Tensor, ...]], which: int
) -> None:
    compiled, (x, y) = ragged
    text = without(print_program(compiled.compilation.tile), "Sync()", which)
    _, (program,) = read_program(text)
    arrays = {p.name: a.double().numpy() for p, a in zip(program.ins, (x, y), strict=True)}
    for seed in range(5):
        with pytest.raises(ScheduleError, match=r"race|uninitialised"):
            tile_meaning.run((program,), arrays, seed)


FAULTS = {
    "no barrier behind the last turn": Fault("  }\n  block_sync();\n", "  }\n", "sts32|ldmatrix"),
    "no barrier before it is read": Fault("  block_sync();\n  bf16*", "  bf16*", "sts32|lds128"),
    "copies in the last turns": Fault("cp_async16_if_zfill(k_o + 2 < 5, ", "cp_async16_if_zfill(k_o + 2 < 7, ", "cp_async|sts32"),
    "results where the next rows are": Fault("h * 2176 + i", "h * 2160 + i"),
    "rows that were not stored": Fault("y2_rd + turn * 2176", "y2_rd + (turn + 1) * 2176"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_found(name: str, ragged: tuple[dplc.Compiled, tuple[torch.Tensor, ...]]) -> None:
    """In one order of threads or another, by a line of the fault's own; where only numbers tell, by them."""
    compiled, (x, y) = ragged
    (kernel,) = compiled.compilation.cuda_kernels
    broken = faulty_kernels({name: (kernel, FAULTS[name])})
    found = told_in_orders(lambda order: broken.launched(name, {"x": x, "y": y}, order), (0, 1, 7), x @ y)
    assert found
    for told in found:
        assert FAULTS[name].names(told), told


def test_beside_a_team_no_slab_may_lie_in_the_ring() -> None:
    _, (program,) = read_program("""
## level: tile
kernel f(A: bf16[32]) -> C: bf16[16]:
    Tile(t:16=THREAD):
        out = Slab(i:16, dtype=bf16, reuse=1)
        ring = Ring(depth=2)
        Team(threads=32):
            for k in 0..2 serial:
                Acquire(ring, k)
                A_smem = Stage(A, origin=(k*16), slab=(i:16@0), depth=2, slot=k % 2, via=TMA)
        for k in 0..2 serial:
            Await(ring, k)
            a = load A_smem[k % 2, t]
            acc <- add(acc, a)
            Release(ring, k)
        out[t] = acc
        C[t] = acc
""")
    assert any("beside a Team" in str(problem) for problem in problems(program))


@pytest.mark.skipif(
    not ((find_nvrtc() or find_program("nvcc")) and find_nvdisasm()), reason="needs NVRTC or nvcc, and nvdisasm"
)
def test_the_assembler_stores_16_bytes() -> None:
    compiled = made(torch.matmul, *(torch.empty(4096, 4096, dtype=BF16) for _ in "xy"))
    (kernel,) = compiled.compilation.cuda_kernels
    assembly = assemble(device_text([kernel]), "sm_120")
    widths = set(disassemble(assembly.cubin)[kernel.name].widths())
    assert {width for width in widths if width.startswith("STG")} == {"STG.128"}
    assert not {width for width in widths if width.startswith(("LDL", "STL"))}
