"""Three hand-written schedules at full size: some blocks of each against float64, the text of three, their SASS."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulated import check, run
from lowering_oracle import lower, read, same

from dplc.codegen.build import Assembly, assemble, device_text
from dplc.codegen.compiler import find_nvrtc, find_program
from dplc.codegen.cuda import print_cuda
from dplc.codegen.kernel import CudaKernel
from dplc.codegen.materialise import materialise
from dplc.codegen.sass import disassemble, find_nvdisasm
from dplc.codegen.target import target
from dplc.ir.node import replace
from dplc.ir.program import Kernel

HERE = Path(__file__).parent
Reference = Callable[..., Any]


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def matmul(x: Any, w: Any) -> Any:
    return x @ w


def linear_relu(X: Any, W: Any, bias: Any) -> Any:
    return np.maximum(X @ W + bias, 0)


# name: (meaning, blocks to run or None for all)
SCHEDULES: dict[str, tuple[Reference, int | None]] = {
    "nn_512x2048x2048": (matmul, 4),
    "nn_512x2048x2048_fill": (matmul, 4),
    "nt_512x2048x2048": (lambda x, w: x @ w.T, 4),
    "tn_512x2048x2048": (lambda x, w: x.T @ w, 4),
    "ragged_17x33x65": (linear_relu, None),
    "ragged_500x1000x2000": (linear_relu, 4),
    "ragged_501x1003x2003": (linear_relu, 4),
    "skinny_32x512x3584": (matmul, None),
    "rmsnorm_512x2048": (lambda x, w: x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-6) * w, 16),
    "softmax_4096x32": (softmax, 16),
    "softmax_4096x512": (softmax, 16),
    "softmax_256x16384": (softmax, 8),
    "silu_mul_512x8192": (lambda g, u: g / (1 + np.exp(-g)) * u, 16),
}


def units(name: str) -> tuple[Kernel, ...]:
    return read((HERE / "tiles" / f"{name}.tile").read_text())  # type: ignore[no-any-return]


def some(kernel: CudaKernel, count: int | None) -> tuple[int, ...] | None:
    """The first block, the last one, and some between."""
    if count is None or count >= kernel.blocks:
        return None
    return tuple(sorted({(kernel.blocks - 1) * i // (count - 1) for i in range(count)}))


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.sampled(3)
def test_agrees(name):
    reference, count = SCHEDULES[name]
    kernels = [lower(unit, "sm_90a") for unit in units(name)]
    rng = np.random.default_rng(1)
    made = {p.name for kernel in kernels for p in kernel.params if p.role == "out"}
    memory = {
        p.name: (rng.uniform(-1, 1, p.shape) * (8 if "softmax" in name else 1)).astype(np.float32)
        for kernel in kernels
        for p in kernel.params
        if p.name not in made
    }
    want = reference(**{key: value.astype(float) for key, value in memory.items()})
    for kernel in kernels:
        given = {p.name: memory[p.name] for p in kernel.params if p.role == "in"}
        memory |= run(kernel, given, blocks=some(kernel, count))
    got = memory[kernels[-1].params[-1].name]
    written = ~np.isnan(got)
    assert written.any() and (count is not None or written.all())
    same(got[written], want[written])


GOLDEN = ("rmsnorm_512x2048", "nn_512x2048x2048", "softmax_4096x512")


@pytest.mark.parametrize("name", GOLDEN)
def test_golden(name):
    """The text, byte for byte. DPLC_UPDATE_GOLDEN=1 writes it anew: read the diff."""
    (unit,) = units(name)
    text = print_cuda(materialise(unit, target("sm_90a")), ("tileify", "and_others")).text
    path = HERE / "golden" / f"{name}.cu"
    if os.environ.get("DPLC_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


# {arch: (registers, FFMA share of the hot loop, instructions of the kernel)}
EXPECTED: dict[str, tuple[tuple[int, float, int], ...]] = {
    "nn_512x2048x2048": ((128, 0.913, 1280), (128, 0.914, 1280), (128, 0.917, 1280)),
    "nt_512x2048x2048": ((168, 0.907, 1304), (168, 0.908, 1304), (168, 0.913, 1304)),
    "rmsnorm_512x2048": ((32, 0.0, 96), (32, 0.0, 96), (34, 0.0, 96)),
    "softmax_4096x32": ((14, 0.0, 64), (14, 0.0, 64), (14, 0.0, 64)),
    "softmax_256x16384": ((56, 0.0, 272), (56, 0.0, 272), (56, 0.0, 272)),
    "silu_mul_512x8192": ((32, 0.0, 88), (32, 0.0, 88), (32, 0.0, 88)),
}
WIDTHS = {
    "nn_512x2048x2048": ("LDGSTS.128", "LDS.128", "STG.128"),
    "nt_512x2048x2048": ("LDGSTS.128", "LDS.128", "STG.128"),
    "rmsnorm_512x2048": ("LDG.128", "LDS.128", "STG.128", "STS.32"),
    "softmax_4096x32": ("LDG.128", "STG.128"),
    "softmax_256x16384": ("LDG.128", "LDS.128", "STG.128", "STS.32"),
    "silu_mul_512x8192": ("LDG.128", "STG.128"),
}
COMPILER = pytest.mark.skipif(
    find_nvrtc() is None and find_program("nvcc") is None, reason="neither NVRTC nor nvcc on this machine"
)


@functools.cache
def assembled(arch: str) -> Assembly:
    """All of them in one run of the compiler, named after their schedules."""
    kernels = [replace(unit, name=name) for name in EXPECTED for unit in units(name)]
    return assemble(device_text([print_cuda(materialise(kernel, target(arch))) for kernel in kernels]), arch)


@COMPILER
@pytest.mark.parametrize(("number", "arch"), list(enumerate(("sm_80", "sm_90a", "sm_120"))))
@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.sampled(4)
def test_assembled(name, number, arch):
    """What the target texts reach: no spills, registers, widths, and the share of useful instructions."""
    assembly = assembled(arch)
    taken, (registers, share, instructions) = assembly.kernels[name], EXPECTED[name][number]
    assert taken.spill_stores == taken.spill_loads == taken.stack == 0
    assert taken.registers <= registers + 4
    if find_nvdisasm() is None:
        pytest.skip("no nvdisasm: pip install nvidia-cuda-nvdisasm")
    listing = disassemble(assembly.cubin)[name]
    # ptxas takes a few of the 128-bit loads of a register tile apart
    assert tuple(width for width in listing.widths() if width != "LDS.32") == WIDTHS[name]
    assert len(listing.opcodes) <= instructions * 1.02
    assert not share or listing.share("FFMA") >= share - 0.002


@pytest.mark.parametrize("name", ["nn_512x2048x2048", "nt_512x2048x2048", "skinny_32x512x3584", "rmsnorm_512x2048"])
def test_no_bank_conflicts(name):
    """The last block in checked mode: no race, and every access to shared memory as cheap as its bytes allow."""
    kernel = lower(units(name)[0], "sm_90a")
    given = {p.name: np.ones(p.shape, np.float32) for p in kernel.params if p.role == "in"}
    sites = check(kernel, given, blocks=[kernel.blocks - 1]).sites
    shared = [site for site in sites if "shared" in site.access or "async" in site.access]
    assert shared and sum(site.cost for site in shared) == sum(site.ideal for site in shared)
