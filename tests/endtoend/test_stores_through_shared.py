"""Results of tensor cores leave through shared memory, 16 bytes at once: right, ragged, free of conflicts and races."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from planted_faults import NONE, Fault, faulty_kernels
from products_of_halves import judged

import dplc
from dplc.codegen.build import assemble, device_text
from dplc.codegen.compiler import find_nvrtc, find_program
from dplc.codegen.emulator.runtime import EmulatorError
from dplc.codegen.sass import disassemble, find_nvdisasm
from dplc.codegen.target import target
from dplc.engine.cost.instruction_counts import instruction_counts
from dplc.engine.rewrite.statements.driver import Settings
from dplc.ir.interp import tile
from dplc.ir.node import nodes
from dplc.ir.tile import SharedTile

assembled = pytest.mark.skipif(
    not ((find_nvrtc() or find_program("nvcc")) and find_nvdisasm()),
    reason="needs NVRTC or nvcc, and nvdisasm (pip install nvidia-cuda-nvrtc nvidia-cuda-nvdisasm)",
)
BF16, F16 = torch.bfloat16, torch.float16


def drawn(dtype: torch.dtype, *shapes: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    dice = torch.Generator().manual_seed(sum(map(sum, shapes)))
    return tuple(torch.randn(*shape, generator=dice).to(dtype) for shape in shapes)


TILES = {"blockify_launch": {"BM": 32, "BN": 64}}  # of products so small that by default a block is one warp
SQUARES = {"blockify_launch": {"BM": 64, "BN": 64}}


def made(
    f: Callable[..., torch.Tensor], *inputs: torch.Tensor, device: str = "a100", settings: Settings | None = None
) -> dplc.Compiled:
    return dplc.compile(f, inputs, target=device, device="emulator", db=False, settings=settings)


def shared_tiles(compiled: dplc.Compiled) -> list[SharedTile]:
    return [shared_tile for kernel in compiled.compilation.tile for shared_tile in nodes(kernel, SharedTile)]


def right(f: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> dplc.Compiled:
    """Compiled, run, and within twice PyTorch's own error of float64; clean in checked mode."""
    compiled = made(f, *inputs, settings=TILES)
    judged(compiled, f, inputs)
    return compiled


PRODUCTS: dict[str, tuple[Callable[..., torch.Tensor], tuple[tuple[int, ...], ...]]] = {
    "whole tiles": (lambda x, y: x @ y, ((128, 64), (64, 128))),
    "ragged rows": (lambda x, y: x @ y, ((97, 64), (64, 128))),
    "ragged columns": (lambda x, y: x @ y, ((64, 64), (64, 136))),
    "ragged in all three": (lambda x, y: x @ y, ((130, 72), (72, 200))),
    "of a linear": (torch.nn.functional.linear, ((70, 64), (128, 64))),
    "batches": (torch.bmm, ((3, 50, 64), (3, 64, 72))),
    "bias and gelu": (lambda x, y, b: torch.nn.functional.gelu(x @ y + b), ((80, 64), (64, 72), (72,))),
    "residual": (lambda x, y, r: x @ y + r, ((96, 64), (64, 64), (96, 64))),
}


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.sampled(2)
def test_results_leave_in_whole_vectors(name: str, dtype: torch.dtype) -> None:
    f, shapes = PRODUCTS[name]
    compiled = right(f, *drawn(dtype, *shapes))
    (shared_tile,) = shared_tiles(compiled)
    assert shared_tile.dtype == str(dtype).removeprefix("torch.").replace("bfloat", "bf").replace("float", "f")
    assert set(re.findall(r"\bst[gs]\d+", compiled.compilation.cuda_kernels[0].text)) == {"sts32", "stg128"}


@pytest.mark.parametrize("device", ["a100", "rtx5090"])
@pytest.mark.parametrize("size", [512, 1024, 4096])
@pytest.mark.sampled(2)
def test_no_bank_is_waited_for(size: int, device: str) -> None:
    inputs = tuple(torch.empty(size, size, dtype=BF16) for _ in "xy")
    compiled = made(torch.matmul, *inputs, device=device, settings=SQUARES if size == 512 else None)
    assert shared_tiles(compiled)
    for kernel in compiled.compilation.kernels:
        counts = instruction_counts(kernel)
        assert counts.wavefronts == counts.ideal_wavefronts
        assert counts.sectors == counts.ideal_sectors


def test_the_schedule_means_the_same_in_every_order_of_threads() -> None:
    x, y = drawn(BF16, (70, 32), (32, 72))
    compiled = made(lambda x, y: torch.relu(x @ y), x, y, settings=TILES)
    names = [param.name for param in compiled.compilation.tile[0].ins]
    arrays = dict(zip(names, (x.double().numpy(), y.double().numpy()), strict=True))
    want = torch.relu(x.double() @ y.double())
    for seed in range(20):
        (got,) = (tile.run(compiled.compilation.tile, arrays, seed)[p.name] for p in compiled.compilation.tile[0].outs)
        assert (torch.as_tensor(got) - want).abs().max() < 1e-9


LEFT_ALONE: dict[str, tuple[Callable[..., torch.Tensor], tuple[tuple[int, ...], ...]]] = {
    "rows of no whole vectors": (lambda x, y: x @ y, ((64, 64), (64, 67))),
    "results of f32": (lambda x, y: (x @ y).float(), ((64, 64), (64, 64))),
    "attention": (torch.nn.functional.scaled_dot_product_attention, ((1, 2, 64, 64),) * 3),
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_what_gains_nothing_stays(name: str) -> None:
    f, shapes = LEFT_ALONE[name]
    assert not shared_tiles(made(f, *drawn(BF16, *shapes), settings=TILES if len(shapes) == 2 else None))


BARRIER = "  block_sync();\n"
FAULTS = {
    "no barrier": (BARRIER, "", "lds128|sts32"),
    "a barrier of half the lanes": (BARRIER, "  if (g < 4) block_sync();\n", "block_sync|lds128"),
    "rows that were not stored": ("turn * 2304", "(turn + 1) * 2304", "lds128"),
    "a column too far": ("sts32<bf16>(", "sts32<bf16>(2 + ", "sts32"),
    "results beyond the last row": ("< 70 && ", "< 128 && ", "lds128"),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.sampled(3)
def test_faults_are_found(name: str) -> None:
    x, y = drawn(BF16, (70, 32), (32, 72))
    compiled = made(lambda x, y: x @ y, x, y, settings=TILES)
    (kernel,) = compiled.compilation.cuda_kernels
    old, new, line = FAULTS[name]
    head, found, tail = kernel.text.rpartition(old)
    assert found, f"{old!r} is not in the text"
    broken = faulty_kernels({name: (replace(kernel, text=head + new + tail), NONE)})
    with pytest.raises(EmulatorError) as error:
        broken.launched(name, {"x": x, "y": y})
    assert Fault(old, new, line).names(str(error.value)), str(error.value)


@assembled
@pytest.mark.parametrize("device", ["a100", "h200", "rtx5090"])
@pytest.mark.sampled(2)
def test_the_assembler_stores_16_bytes(device: str) -> None:
    x, y = (torch.empty(1000, 1024, dtype=BF16), torch.empty(1024, 1024, dtype=BF16))
    compiled = made(lambda x, y: torch.relu(x @ y), x, y, device="a100")
    (kernel,) = compiled.compilation.cuda_kernels
    assembly = assemble(device_text([kernel]), target(device).arch)
    listing = disassemble(assembly.cubin)[kernel.name]
    assert "STG.128" in listing.widths()
    assert not {"STG.32", "STG.64", "LDL.32", "STL.32"} & set(listing.widths())
    assert assembly.kernels[kernel.name].spill_stores == 0
