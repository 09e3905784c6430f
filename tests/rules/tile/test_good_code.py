"""What the default schedules make of large kernels, as the assembler sees it; nothing here is picked by hand.

The wanted figures are those of kernels written by hand. A share is the part of the hot loop that does the arithmetic.
"""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

import emulated as emulator
import numpy as np
import pytest

from dplc.codegen.build import assemble, device_text
from dplc.codegen.compiler import find_nvrtc, find_program
from dplc.codegen.sass import Listing, disassemble, find_nvdisasm
from dplc.codegen.target import target
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import Compilation, Compiler
from dplc.engine.ruleset import toolchain

HOPPER = "h200"
ARCHITECTURES = ("a100", "h200", "rtx5090")
SINGLE_WARPS = ("a100", "rtx5090")  # on which single warps multiply

NN = "torch.randn(512, 2048) @ torch.randn(2048, 2048)"
NT = "F.linear(torch.randn(512, 2048), torch.randn(2048, 2048))"
LARGE = "torch.randn(4096, 4096) @ torch.randn(4096, 4096)"
RAGGED = "torch.relu(torch.randn(500, 2000) @ torch.randn(2000, 1000) + torch.randn(1000))"
SKINNY = "torch.randn(32, 3584) @ torch.randn(3584, 512)"
ATTENTION = "F.scaled_dot_product_attention(*(torch.randn(1, 32, 1024, 64) for _ in 'qkv'), is_causal=True)"
ROWS = {
    "F.rms_norm(torch.randn(512, 2048), (2048,), torch.randn(2048))": 88,
    "torch.softmax(torch.randn(4096, 32), -1)": 56,
    "torch.softmax(torch.randn(4096, 512), -1)": 136,
    "torch.softmax(torch.randn(256, 16384), -1)": 272,
    "F.silu(torch.randn(512, 8192)) * torch.randn(512, 8192)": 80,
}

assembled = pytest.mark.skipif(
    not ((find_nvrtc() or find_program("nvcc")) and find_nvdisasm()),
    reason="needs NVRTC or nvcc, and nvdisasm (pip install nvidia-cuda-nvrtc nvidia-cuda-nvdisasm)",
)


class Made(NamedTuple):
    """A kernel with what the assembler made of it."""

    grid: int
    threads: int
    registers: int
    spills: int
    listing: Listing


@lru_cache(maxsize=1)  # it holds its inputs, 100 MB
def compiled(text: str, device: str = HOPPER, rules: str | None = None) -> Compilation:
    return Compiler(toolchain([rules] if rules else None), target(device)).compile(capture_text(text, values=False))


@cache
def kernels(text: str, device: str = HOPPER, rules: str | None = None) -> tuple[Made, ...]:
    made = compiled(text, device, rules).cuda_kernels
    assembly = assemble(device_text(made), target(device).arch)
    listings = disassemble(assembly.cubin)
    found = []
    for kernel in made:
        resources = assembly.kernels[kernel.name]
        spills = resources.spill_stores + resources.spill_loads
        grid = int(np.prod(kernel.grid))
        found.append(Made(grid, kernel.block, resources.registers, spills, listings[kernel.name]))
    return tuple(found)


@assembled
@pytest.mark.parametrize(
    ("text", "share", "blocks"),
    [(NN, 0.88, 256), (NT, 0.88, 256), (LARGE, 0.90, 1024), (RAGGED, 0.87, 128), (SKINNY, 0.86, 128)],
    ids=["nn", "nt", "large", "ragged", "skinny"],
)
@pytest.mark.sampled(2)
def test_matmuls(text: str, share: float, blocks: int) -> None:
    made = kernels(text)[0]
    assert made.listing.share("FFMA") >= share
    assert made.grid == blocks
    assert made.spills == 0
    assert {"LDGSTS.128", "LDS.128", "STG.128"} <= set(made.listing.widths())


@assembled
@pytest.mark.parametrize("device", ARCHITECTURES)
@pytest.mark.parametrize("text", [NN, NT, SKINNY], ids=["nn", "nt", "skinny"])
@pytest.mark.sampled(1)
def test_no_spills_anywhere(text: str, device: str) -> None:
    made = kernels(text, device)
    assert not any(kernel.spills for kernel in made)
    assert "LDGSTS.128" in made[0].listing.widths()


@assembled
@pytest.mark.parametrize("text", ROWS)
@pytest.mark.sampled(2)
def test_rows_are_short(text: str) -> None:
    (made,) = kernels(text)
    assert len(made.listing.opcodes) <= ROWS[text] * 4 / 3
    assert {"LDG.128", "STG.128"} <= set(made.listing.widths())
    assert made.spills == 0


@assembled
@pytest.mark.parametrize("text", [ATTENTION, ATTENTION.replace("64)", "128)")], ids=["64", "128"])
def test_attention_multiplies_matrices(text: str) -> None:
    """The loop over keys holds two loops of products. A quarter of each is unrolled: more misses the instruction cache."""
    (made,) = kernels(text)
    assert made.listing.share("FFMA") >= 0.64
    assert made.spills == 0
    assert made.registers * made.threads * 2 <= 65536  # two blocks a multiprocessor
    assert {"LDS.128", "STS.128", "STG.128"} <= set(made.listing.widths())


def test_attention_stores_no_scores() -> None:
    """Bytes that go to global memory and back, against the three kernels that store the scores."""
    apart = toolchain(None, {"online_attention": {"SLOWER": 0}})
    three = Compiler(apart, target(HOPPER)).compile(capture_text(ATTENTION, values=False))
    one = compiled(ATTENTION)
    assert (len(one.kernels), len(three.kernels)) == (1, 3)
    stored = [sum(4 * np.prod(p.shape) for k in made.plan.kernels for p in k.outs) for made in (one, three)]
    assert stored[0] * 8 < stored[1]


def test_a_row_is_read_once() -> None:
    for text in ROWS:
        made = compiled(text)
        (kernel,) = made.tile
        loads = made.ir("tile").count("= load ")
        assert loads == len(kernel.ins)


def test_ragged_rows_are_vectors() -> None:
    for text in (
        "torch.softmax(torch.randn(512, 1000), -1)",
        "F.silu(torch.randn(512, 1100)) * torch.randn(512, 1100)",
    ):
        assert "ldg128" in compiled(text).cuda


def test_skinny_matmuls_split_k() -> None:
    for rows in (2, 16, 32, 64):
        made = compiled(f"torch.randn({rows}, 2048) @ torch.randn(2048, 2048)").cuda_kernels
        assert len(made) == 2 or rows == 2  # tiles of 8 rows have blocks enough
        assert np.prod(made[0].grid) >= 64


@pytest.mark.parametrize("text", [NN, NT], ids=["nn", "nt"])
def test_no_bank_conflicts(text: str) -> None:
    """All but the trips of the loop is as in the large one."""
    short = text.replace("(512, 2048)", "(512, 64)")
    short = short.replace("(2048, 2048)", "(64, 2048)" if "@" in text else "(2048, 64)")
    (kernel,) = compiled(short).cuda_kernels
    dice = np.random.default_rng(0)
    arrays = {p.name: dice.standard_normal(p.shape).astype(np.float32) for p in kernel.params if p.role == "in"}
    last = int(np.prod(kernel.grid)) - 1
    sites = emulator.check(kernel, arrays, blocks=[last]).sites
    shared = [site for site in sites if site.unit == "wavefronts"]
    assert shared
    assert sum(site.cost for site in shared) == sum(site.ideal for site in shared)


HALVES = "dtype=torch.bfloat16"
PRODUCTS = {
    "nn": f"torch.randn(4096, 4096, {HALVES}) @ torch.randn(4096, 4096, {HALVES})",
    "linear, relu": f"torch.relu(F.linear(torch.randn(4096, 4096, {HALVES}), torch.randn(4096, 4096, {HALVES})))",
}


@assembled
@pytest.mark.parametrize("device", SINGLE_WARPS)
@pytest.mark.parametrize("text", PRODUCTS.values(), ids=PRODUCTS.keys())
@pytest.mark.sampled(1)
def test_products_on_tensor_cores(text: str, device: str) -> None:
    (made,) = kernels(text, device)
    hot = made.listing.hot
    loads = sum(op.startswith("LDSM") for op in hot)
    # the shared memory of an RTX 5090 holds two blocks with chunks of 32, not of 64: more of its loop is counting
    assert made.listing.share("HMMA") >= (0.5 if device == "rtx5090" else 0.56)
    assert 4 * loads <= sum(op.startswith("HMMA") for op in hot)
    assert not any(op.startswith(("LDL", "STL", "STS")) for op in hot)
    assert made.registers <= 208
    assert made.spills == 0


@assembled
def test_chunks_of_64_where_shared_memory_is_small(tmp_path: Path) -> None:
    """As on the others, once asked for: by default two blocks share a multiprocessor there."""
    own = tmp_path / "chunks.rw"
    own.write_text("pipeline tile\n    pass chunk_matmul_k(BK=64)\n    pass blockify_launch(BM=128, BN=128)\n")
    (made,) = kernels(PRODUCTS["nn"], "rtx5090", str(own))
    assert made.listing.share("HMMA") >= 0.56
    assert made.spills == 0


@assembled
@pytest.mark.parametrize("device", SINGLE_WARPS)
@pytest.mark.parametrize(("size", "products", "most"), [(64, 64, 345), (128, 128, 500)])
@pytest.mark.sampled(1)
def test_attention_on_tensor_cores(size: int, products: int, most: int, device: str) -> None:
    text = f"F.scaled_dot_product_attention(*(torch.randn(1, 32, 4096, {size}, {HALVES}) for _ in 'qkv'))"
    (made,) = kernels(text, device)
    hot = made.listing.hot
    assert sum(op.startswith("HMMA") for op in hot) == products
    assert len(hot) <= most
    assert not any(op.startswith(("LDL", "STL", "STS")) for op in hot)  # weights stay in registers
    assert made.spills == 0
