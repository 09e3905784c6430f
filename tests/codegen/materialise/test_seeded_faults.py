"""Faults planted in the text of kernels on tensor cores: each is found, by checked mode with its line, or by float64.

Two kernels: a product whose operands come through a ring of cp.async and by ldmatrix, and attention in registers.
All texts are built by one call of the compiler. What the verifiers find is in tests/ir/test_fragments.py.
"""

from __future__ import annotations

import numpy as np
import pytest
from lowering_oracle import lower, read
from planted_faults import NONE, Fault, FaultyKernels, faulty_kernels, must_find

RING = """
kernel f(A: f16[64, 160], B: f16[160, 32]) -> C: f32[64, 32]:
    Tile(b:2=BLOCK, iw:2=THREAD, g:8=THREAD, t:4=THREAD, jn:4=REG, h:2=REG, v:2=VEC, u:2=REG, w:2=VEC):
        As = Stage(A, origin=(b*32, 0), box=(i:32@0, k:32@1), depth=3, via=ASYNC, xor=(1, 2))
        Bs = Stage(B, origin=(0, 0), box=(k:32@0, j:32@1), depth=3, via=ASYNC, xor=(1, 2))
        As = Stage(A, origin=(b*32, 32), box=(i:32@0, k:32@1), depth=3, slot=1, via=ASYNC, xor=(1, 2))
        Bs = Stage(B, origin=(32, 0), box=(k:32@0, j:32@1), depth=3, slot=1, via=ASYNC, xor=(1, 2))
        for ko in 0..5 serial:
            Wait(keep=2)
            Sync()
            As = Stage(A, origin=(b*32, ko*32 + 64), box=(i:32@0, k:32@1), depth=3, slot=(ko + 2) % 3, via=ASYNC, xor=(1, 2), when=ko + 2 < 5)
            Bs = Stage(B, origin=(ko*32 + 64, 0), box=(k:32@0, j:32@1), depth=3, slot=(ko + 2) % 3, via=ASYNC, xor=(1, 2), when=ko + 2 < 5)
            for k in 0..2 reduce:
                a = load As[ko % 3, iw*16 + h*8 + g, k*16 + u*8 + t*2 + w]
                z = load Bs[ko % 3, k*16 + u*8 + t*2 + w, jn*8 + g]
                Mma(acc, a, z, atom=m16n8k16, axes=(g, t, h, v, u, w))
        C[b*32 + iw*16 + h*8 + g, jn*8 + t*2 + v] = acc
"""
ATTENTION = """
kernel f(Q: f16[30, 16], K: f16[32, 16], V: f16[32, 8]) -> C: f32[30, 8]:
    Tile(i_w:2=THREAD, g:8=THREAD, t:4=THREAD, u:2=REG, h:2=REG, c:2=REG, y1:2=REG, d_u:2=REG, d_w:2=REG):
        q = load Q[i_w*16 + h*8 + g, d_u*8 + t*2 + d_w] if i_w*16 + h*8 + g < 30 else 0.0
        Carry(m1)
        for jo in 0..2 serial:
            k = load K[jo*16 + u*8 + g, d_u*8 + t*2 + d_w] if jo*16 + u*8 + g < 32 else 0.0
            Mma(x, q, k, atom=m16n8k16, axes=(g, t, h, c, d_u, d_w))
            if i_w*16 + h*8 + g < 30:
                y = multiply(x, 0.25)
                high <- maximum(high, y)
            c1 <- maximum(c1, high)
            Combine(c1, maximum, over=(t, u, c))
            higher = maximum(m1, c1)
            top = maximum(higher, -3e+38)
            gap = subtract(m1, top)
            fix = exp(gap)
            m1 <- maximum(m1, top)
            below = subtract(high, top)
            weight = exp(below)
            total <- add(total, weight)
            Combine(total, add, over=(t, u, c))
            Scale(l, fix)
            l <- add(l, total)
            Scale(o, fix)
            rounded = f16(weight)
            w = load V[jo*16 + u*8 + t*2 + c, g] if jo*16 + u*8 + t*2 + c < 32 else 0.0
            Mma(o, rounded, w, atom=m16n8k16, axes=(g, t, h, y1, u, c))
        if i_w*16 + h*8 + g < 30:
            r = divide(o, l)
            C[i_w*16 + h*8 + g, t*2 + y1] = r
"""
WAIT, SYNC, COMMIT = "    cp_async_wait<1>();\n", "    block_sync();\n", "    cp_async_commit();\n"
LEFT, RIGHT = "ldmatrix_x4(&a[0], a_rd1 ^ k * 32)", "ldmatrix_x4_trans(&z[jn_pair * 4], "
MULTIPLY = "mma_m16n8k16_f16(&acc[jn][0][0], &a[0], &z[jn * 2]);"
AHEAD = "r < 2; ++r) {\n    cp_async16("
LAST_ROW = "g < 30) {\n      #pragma unroll\n      for (int y1"


COPIED = "cp_async|ldmatrix"  # either side of the conflict
RINGS = {
    "no barrier": Fault(SYNC, "", COPIED),
    "no wait": Fault(WAIT, "", COPIED),
    "a wait that keeps one copy more": Fault("wait<1>", "wait<2>", COPIED),
    "the barrier before the wait": Fault(WAIT + SYNC, SYNC + WAIT, COPIED),
    "the barrier behind the copies": Fault(SYNC, "", COPIED, more=(COMMIT, COMMIT + SYNC)),
    "a barrier of one warp": Fault("block_sync();", "if (iw == 0) block_sync();", "block_sync|" + COPIED),
    "no commit in a turn": Fault(COMMIT, "", COPIED),
    "both first chunks in one group": Fault("  cp_async_commit();\n  int slot", "  int slot", COPIED),
    "a copy into the slot that is read": Fault("int slot = 4096", "int slot = 0", COPIED),
    "a slot that never comes around": Fault("slot = slot == 4096 ? 0", "slot = slot == 8192 ? 0", COPIED),
    "a slot that comes around too early": Fault("slot = slot == 4096 ? 0", "slot = slot == 2048 ? 0", COPIED),
    "a ring that is read one slot ahead": Fault("a_rd + slot1", "a_rd + (ko + 1) % 3 * 2048", "ldmatrix"),
    "a ring that is read beyond its end": Fault("z_rd + slot1", "z_rd + ko * 2048", "ldmatrix"),
    "a chunk that is not there": Fault("cp_async16_if(ko + 2 < 5, Bs_wr1", "cp_async16_if(true, Bs_wr1", "Bs_wr1"),
    "rows too many": Fault(
        AHEAD + "Bs_wr + r * 1024 + 2048", AHEAD.replace("2;", "6;") + "Bs_wr + r * 1024 + 2048", "Bs_wr"
    ),
    "a row too few": Fault(AHEAD + "As_wr", AHEAD.replace("2;", "1;") + "As_wr", "ldmatrix_x4(&a"),
    "a copy of half the lanes": Fault("    cp_async16(Bs_wr", "    if (t < 2) cp_async16(Bs_wr", "ldmatrix_x4_trans"),
    "a copy that is not aligned": Fault(
        "cp_async16(As_wr + r * 1024,", "cp_async16(As_wr + 8 + r * 1024,", "As_wr + 8"
    ),
    "a writer of another layout": Fault(
        "((tid >> 3) & 1) + ((tid >> 4) & 1) * 2", "((tid >> 4) & 1) + ((tid >> 3) & 1) * 2"
    ),
    "the chunk before": Fault("A_at1 += 32", "A_at1 += 16"),
}
FRAGMENTS = {
    "matrices in another order": Fault("((g >> 1) & 1) * 512 + (g & 1) * 256", "(g & 1) * 512 + ((g >> 1) & 1) * 256"),
    "matrices by rows": Fault("ldmatrix_x4_trans(", "ldmatrix_x4("),
    "half of the matrices": Fault("ldmatrix_x4(&a", "ldmatrix_x2(&a"),
    "matrices that are not aligned": Fault(LEFT, LEFT.replace("a_rd1 ^", "a_rd1 + 8 ^"), "a_rd1 + 8"),
    "matrices of another shared tile": Fault("As + iw * 1024", "As + iw * 8192", "ldmatrix_x4(&a"),
    "the xor as a sum": Fault("a_rd1 ^ k * 32", "a_rd1 + k * 32", "ldmatrix_x4(&a"),
    "an operand that was not loaded": Fault(LEFT + ";", ""),
    "an operand of its neighbour": Fault("&z[jn * 2]", "&z[jn / 2 * 2]"),
    "half of the sum": Fault("k < 2; ++k", "k < 1; ++k"),
    "sums that start with anything": Fault("float acc[4][2][2] = {};", "float acc[4][2][2];"),
    "lanes that do not multiply": Fault(MULTIPLY, "if (g < 4) " + MULTIPLY, "mma_m16"),
    "lanes that do not load": Fault(RIGHT, "if (t < 2) " + RIGHT, "ldmatrix_x4_trans"),
    "results of other columns": Fault("iw * 512 + g * 32 + t * 2;", "iw * 512 + g * 32 + t;", "stg64"),
    "results beyond the last row": Fault("C + b * 1024", "C + b * 2048", "stg64"),
}
WEIGHTS = {
    "a maximum of half the lanes": Fault("lanes = 2; lanes >= 1; lanes >>= 1) total", "lanes = 1; lanes >= 1; lanes >>= 1) total"),
    "results that are not scaled": Fault("o[h][y1] *= fix[h]", "o[h][y1] *= 1.0f"),
    "the keys of the chunk before": Fault("K_at1 += 256", "K_at1 += 0"),
    "a query beyond the last": Fault("i_w * 16 + h * 8 + g < 30 ? to_float(ldg(Q", "true ? to_float(ldg(Q", "ldg(Q_at"),
    "a result beyond the last": Fault(LAST_ROW, LAST_ROW.replace("30", "32"), "stg"),
    "keys of a neighbour": Fault("&k_words[u * 2]", "&k_words[u]"),
    "weights in another order": Fault("rounded_words[u * 2 + h]", "rounded_words[h * 2 + u]"),
}  # fmt: skip
FAULTS = {
    **{f"ring: {name}": fault for name, fault in (RINGS | FRAGMENTS).items()},
    **{f"attention: {name}": fault for name, fault in WEIGHTS.items()},
}
RIGHT_ONES = {"ring": NONE, "attention": NONE}


def uniform(*shape: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-2, 2, shape).astype(np.float16)


def attended(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    scores = 0.25 * (q @ k.T)
    weights = np.exp(scores - scores.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True) @ v


ARRAYS = {
    "ring": {"A": uniform(64, 160, seed=0), "B": uniform(160, 32, seed=1)},
    "attention": {"Q": uniform(30, 16, seed=2), "K": uniform(32, 16, seed=3), "V": uniform(32, 8, seed=4)},
}
WANTED = {
    name: (np.matmul if name == "ring" else attended)(*(array.astype(float) for array in arrays.values()))
    for name, arrays in ARRAYS.items()
}


@pytest.fixture(scope="module")
def kernels() -> FaultyKernels:
    """The kernel of every fault, and of none."""
    whole = {"ring": lower(read(RING)[0]), "attention": lower(read(ATTENTION)[0])}
    return faulty_kernels({name: (whole[name.partition(":")[0]], f) for name, f in (RIGHT_ONES | FAULTS).items()})


@pytest.mark.parametrize("name", RIGHT_ONES)
def test_without_a_fault_they_are_right(name: str, kernels: FaultyKernels) -> None:
    np.testing.assert_allclose(kernels.launched(name, ARRAYS[name.partition(":")[0]]), WANTED[name], atol=2e-3)


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.sampled(7)
def test_every_fault_is_found(name: str, kernels: FaultyKernels) -> None:
    which = name.partition(":")[0]
    must_find(kernels, name, FAULTS[name], ARRAYS[which], WANTED[which])
