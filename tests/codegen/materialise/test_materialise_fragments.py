"""Fragments: ldmatrix by rows and by columns, two at once, packed operands, and faults that someone must see."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from altered_texts import altered
from emulated import check as run_checked, run
from lowering_oracle import lower, read

from dplc.codegen.kernel import CudaKernel
from dplc.codegen.materialise import materialise
from dplc.codegen.target import target
from dplc.engine.cost.instruction_counts import instruction_counts

Check = Callable[..., list[CudaKernel]]

STAGED = """
kernel f(A: {dtype}[64, 32], B: {dtype}[{b}]) -> C: {dtype}[64, {n}]:
    Tile(iw:2=THREAD, g:8=THREAD, t:4=THREAD, im:2=REG, jn:{jn}=REG, h:2=REG, v:2=VEC, u:2=REG, w:2=VEC):
        As = Stage(A, origin=(0, 0), box=(i:64@0, k:32@1){layout})
        Bs = Stage(B, origin=(0, 0), box=({box}){layout})
        Sync()
        for k in 0..2 reduce:
            a = load As[iw*32 + im*16 + h*8 + g, k*16 + u*8 + t*2 + w]
            b = load Bs[{place}]
            Mma(acc, a, b, atom=m16n8k16, axes=(g, t, h, v, u, w))
        C[iw*32 + im*16 + h*8 + g, jn*8 + t*2 + v] = acc
"""
PACKED = """
kernel f(A: f16[32, 32], B: f16[32, 8]) -> C: f32[32, 8]:
    Tile(iw:2=THREAD, g:8=THREAD, t:4=THREAD, h:2=REG, v:2=REG, u:2=REG, w:2=REG):
        for k in 0..2 reduce:
            a = load A[iw*16 + h*8 + g, k*16 + u*8 + t*2 + w]
            b = load B[k*16 + u*8 + t*2 + w, g]
            Mma(acc, a, b, atom=m16n8k16, axes=(g, t, h, v, u, w))
        C[iw*16 + h*8 + g, t*2 + v] = acc
"""
TF32 = """
kernel f(A: f32[16, 32], B: f32[8, 32]) -> C: f32[16, 8]:
    Tile(g:8=THREAD, t:4=THREAD, h:2=REG, v:2=REG, u:2=REG):
        As = Stage(A, origin=(0, 0), box=(i:16@0, k:32@1))
        Sync()
        for k in 0..4 reduce:
            a = load As[h*8 + g, k*8 + u*4 + t]
            b = load B[g, k*8 + u*4 + t]
            Mma(acc, a, b, atom=m16n8k8, axes=(g, t, h, v, u))
        C[h*8 + g, t*2 + v] = acc
"""


def staged(form: str, dtype: str = "f16", jn: int = 2, layout: str = "") -> str:
    """A product whose b is k x n (columns of the shared tile are words) or n x k (rows are)."""
    n = 8 * jn
    if form == "nn":
        place, box, b = "k*16 + u*8 + t*2 + w, jn*8 + g", f"k:32@0, j:{n}@1", f"32, {n}"
    else:
        place, box, b = "jn*8 + g, k*16 + u*8 + t*2 + w", f"j:{n}@0, k:32@1", f"{n}, 32"
    return STAGED.format(dtype=dtype, b=b, n=n, jn=jn, box=box, place=place, layout=layout)


def halves(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float16)


@pytest.mark.parametrize("form", ["nn", "nt"])
@pytest.mark.parametrize("jn", [1, 2, 4])
@pytest.mark.sampled(3)
def test_staged_operands_come_by_ldmatrix(check: Check, form: str, jn: int) -> None:
    arrays = {"A": halves(64, 32), "B": halves(*((32, 8 * jn) if form == "nn" else (8 * jn, 32)), seed=1)}
    (kernel,) = check(staged(form, jn=jn), gate=2e-3, **arrays)
    wide = "ldmatrix_x2" if jn == 1 else "ldmatrix_x4"
    assert kernel.text.count("ldmatrix_x4(&a") == 1
    assert f"{wide}{'_trans' if form == 'nn' else ''}(&b" in kernel.text


@pytest.mark.parametrize("layout", [", pad=8", ", xor=(1, 2)"])
def test_layouts_of_shared_tiles(check: Check, layout: str) -> None:
    arrays = {"A": halves(64, 32), "B": halves(32, 32, seed=1)}
    (kernel,) = check(staged("nt", jn=4, layout=layout), gate=2e-3, **arrays)
    assert kernel.text.count("ldmatrix_x4(") == 2


def test_rows_of_other_sizes_are_packed(check: Check) -> None:
    arrays = {"A": halves(64, 32), "B": halves(16, 32, seed=1)}
    (kernel,) = check(staged("nt", layout=", pad=1"), gate=2e-3, **arrays)
    assert "ldmatrix" not in kernel.text
    assert "pack<f16>" in kernel.text


def test_operands_of_global_memory_are_packed(check: Check) -> None:
    (kernel,) = check(PACKED, A=halves(32, 32), B=halves(32, 8, seed=1))
    assert "pack<f16>" in kernel.text


def test_tf32(check: Check) -> None:
    dice = np.random.default_rng(0)
    arrays = {name: dice.integers(-8, 8, size).astype(np.float32) for name, size in (("A", (16, 32)), ("B", (8, 32)))}
    (kernel,) = check(TF32, **arrays)
    assert "mma_m16n8k8_f32" in kernel.text
    assert "ldmatrix_x4(&a" in kernel.text


def test_counts() -> None:
    (kernel,) = read(staged("nt", jn=4))
    counts = instruction_counts(materialise(kernel, target("sm_80")))
    assert counts.tensor == 2 * 64 * 32 * 32
    (kernel,) = read(staged("nt", jn=4, layout=", xor=(1, 2)"))
    better = instruction_counts(materialise(kernel, target("sm_80")))
    assert better.wavefronts == better.ideal_wavefronts < counts.wavefronts


FAULTS = {
    "rows of a": ("h*8 + g, k*16", "h*8 + (7 - g), k*16"),
    "places of b": ("jn*8 + g, k*16 + u*8 + t*2 + w", "jn*8 + g, k*16 + (1 - u)*8 + t*2 + w"),
    "no barrier": ("        Sync()\n", ""),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_seen(check: Check, fault: str) -> None:
    (wrong,) = read(altered(staged("nt"), *FAULTS[fault]))
    arrays = {"A": halves(64, 32), "B": halves(16, 32, seed=1)}
    want = arrays["A"].astype(np.float64) @ arrays["B"].astype(np.float64).T
    try:
        made = run(lower(wrong), arrays)["C"]
        found = run_checked(lower(wrong), arrays)
    except Exception as error:  # checked mode names what it finds
        assert "block_sync" in str(error) or "barrier" in str(error) or "written" in str(error)
        return
    assert not np.allclose(made, want, atol=1e-2) or not np.allclose(found.outputs["C"], want, atol=1e-2)
