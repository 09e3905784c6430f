"""Products of asynchronous atoms, as Tile IR: operands along the sum and across it, one group of warps or two."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dplc.codegen.build import assemble, device_text
from dplc.codegen.compiler import find_nvrtc, find_program
from dplc.codegen.kernel import CudaKernel
from dplc.codegen.sass import disassemble

HEAD = """
kernel f(A: {dtype}[{a}], B: {dtype}[{b}]) -> C: f32[128, {n}]:
    Tile(iw:2=THREAD, p:4=THREAD, g:8=THREAD, t:4=THREAD, q:{q}=REG, s:2=REG, h:2=REG, v:2=VEC, k:4=REG, u:2=REG, w:2=VEC):
        for ko in 0..4 serial:
            As = Stage(A, origin=({ao}), box=({abox}), depth=3, slot=ko % 3, via=TMA, swizzle=128)
            Bs = Stage(B, origin=({bo}), box=({bbox}), depth=3, slot=ko % 3, via=TMA, swizzle=128)
            Wait()
            Sync()
            a = load As[ko % 3, {aidx}]
            b = load Bs[ko % 3, {bidx}]
            Mma(acc, a, b, atom=m64n{n}k16, axes=(p, g, t, q, s, h, v, u, w), over=(k))
            WaitMma(keep=1)
        WaitMma()
        C[iw*64 + p*16 + h*8 + g, q*16 + s*8 + t*2 + v] = acc
"""
K = "k*16 + u*8 + t*2 + w"
LEFT = {
    "n": {"a": "128, 256", "ao": "0, ko*64", "abox": "i:128@0, k:64@1", "aidx": f"iw*64 + p*16 + h*8 + g, {K}"},
    "t": {
        "a": "256, 128",
        "ao": "ko*64, 0",
        "abox": "io:2@1 by 64, k:64@0, i:64@1",
        "aidx": f"iw, {K}, p*16 + h*8 + g",
    },
}


def right(form: str, n: int) -> dict[str, str]:
    if form == "t":
        return {"b": f"{n}, 256", "bo": "0, ko*64", "bbox": f"j:{n}@0, k:64@1", "bidx": f"q*16 + s*8 + g, {K}"}
    box = f"jo:{n // 64}@1 by 64, k:64@0, j:64@1"
    return {
        "b": f"256, {n}",
        "bo": "ko*64, 0",
        "bbox": box,
        "bidx": f"(q*16 + s*8 + g) // 64, {K}, (q*16 + s*8 + g) % 64",
    }


def product(form: str = "nt", n: int = 64, dtype: str = "bf16") -> str:
    """C = A @ B of 128 x n, 256 steps in chunks of 64. form: which operands are transposed, as cuBLAS says it."""
    return HEAD.format(dtype=dtype, n=n, q=n // 16, **LEFT[form[0]], **right(form[1], n))


def matrices(form: str, n: int) -> dict[str, tuple[int, int]]:
    """The shapes of both inputs."""
    return {
        "A": (128, 256) if form[0] == "n" else (256, 128),
        "B": (n, 256) if form[1] == "t" else (256, n),
    }


HALVES = {"bf16": torch.bfloat16, "f16": torch.float16}
needs_device_compiler = pytest.mark.skipif(
    find_program("nvcc") is None and find_nvrtc() is None, reason="neither NVRTC nor nvcc is here"
)


def operands(form: str, n: int, dtype: str = "bf16") -> dict[str, torch.Tensor]:
    dice = torch.Generator().manual_seed(n)
    shapes = matrices(form, n)
    return {name: torch.randn(shape, generator=dice).to(HALVES[dtype]) for name, shape in shapes.items()}


def wanted(form: str, arrays: dict[str, torch.Tensor]) -> np.ndarray:
    left, right = (x.T if side == "t" else x for x, side in zip(arrays.values(), form, strict=True))
    return (left.double() @ right.double()).numpy()


def assert_queued(kernel: CudaKernel) -> None:
    """No product waits for the one before it (C7510), no register is spilled."""
    made = assemble(device_text([kernel]), "sm_90a")
    found = made.kernels[kernel.name]
    assert made.warnings == ()
    assert found.spill_stores + found.spill_loads == 0
    hot = [op.split(".")[0] for op in disassemble(made.cubin)[kernel.name].opcodes]
    assert hot.count("HGMMA") == 4
