"""Atoms and Mma: layouts against the manual's own formulas, the meaning against matrix products, the laws one by one."""

from __future__ import annotations

import numpy as np
import pytest
from altered_texts import altered

from dplc.ir.atoms import ATOMS, Atom, multiplied
from dplc.ir.interp import tile
from dplc.ir.program import Kernel
from dplc.ir.text.programs import print_program, read_program
from dplc.ir.verify.tile import problems

PRODUCT = """
kernel f(A: bf16[64, 32], B: bf16[32, 16]) -> C: f32[64, 16]:
    Tile(iw:2=THREAD, g:8=THREAD, t:4=THREAD, im:2=REG, jn:2=REG, h:2=REG, v:2=REG, u:2=REG, w:2=REG):
        for k in 0..2 reduce:
            a = load A[iw*32 + im*16 + h*8 + g, k*16 + u*8 + t*2 + w]
            b = load B[k*16 + u*8 + t*2 + w, jn*8 + g]
            Mma(acc, a, b, atom=m16n8k16, axes=(g, t, h, v, u, w))
        C[iw*32 + im*16 + h*8 + g, jn*8 + t*2 + v] = acc
"""
# The sum of a register axis beside the atom's: `over`.
FOLDED = """
kernel f(A: f16[16, 32], B: f16[8, 32]) -> C: f32[16, 8]:
    Tile(g:8=THREAD, t:4=THREAD, n:2=REG, h:2=REG, v:2=REG, u:2=REG, w:2=REG):
        a = load A[h*8 + g, n*16 + u*8 + t*2 + w]
        b = load B[g, n*16 + u*8 + t*2 + w]
        Mma(acc, a, b, atom=m16n8k16, axes=(g, t, h, v, u, w), over=(n))
        C[h*8 + g, t*2 + v] = acc
"""
TF32 = """
kernel f(A: f32[16, 16], B: f32[16, 8]) -> C: f32[16, 8]:
    Tile(g:8=THREAD, t:4=THREAD, h:2=REG, v:2=REG, u:2=REG):
        for k in 0..2 reduce:
            a = load A[h*8 + g, k*8 + u*4 + t]
            b = load B[k*8 + u*4 + t, g]
            Mma(acc, a, b, atom=m16n8k8, axes=(g, t, h, v, u))
        C[h*8 + g, t*2 + v] = acc
"""

BYTES = """
kernel f(A: i8[16, 64], B: i8[64, 8]) -> C: i32[16, 8]:
    Tile(g:8=THREAD, t:4=THREAD, h:2=REG, v:2=REG, u:2=REG, w:4=REG):
        for k in 0..2 reduce:
            a = load A[h*8 + g, k*32 + u*16 + t*4 + w]
            b = load B[k*32 + u*16 + t*4 + w, g]
            Mma(acc, a, b, atom=m16n8k32, axes=(g, t, h, v, u, w))
        C[h*8 + g, t*2 + v] = acc
"""


def read(text: str) -> Kernel:
    return read_program(text, "test")[1][0]  # type: ignore[return-value]


def by_the_manual(atom: Atom, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """d = a*b of one warp, with the fragments of the PTX ISA, "Matrix fragments for mma", an element at a time."""
    per, d = atom.per_word, np.zeros((32, 4))
    for lane in range(32):
        group, thread = lane >> 2, lane % 4
        for i in range(4):
            row, column = group if i < 2 else group + 8, thread * 2 + (i & 1)
            for k in range(atom.k):  # element k of a row of a: its lane, its register, its place in the register
                word, place = k // (4 * per), k % (4 * per)
                left = a[(row % 8) * 4 + place // per, row // 8, word, place % per]
                right = b[column * 4 + place // per, word, place % per]
                d[lane, i] += left * right
    return d


@pytest.mark.parametrize("atom", [atom for atom in ATOMS.values() if not atom.asynchronous], ids=lambda atom: atom.name)
def test_layouts_are_those_of_the_manual(atom: Atom) -> None:
    dice = np.random.default_rng(0)
    a, b = dice.normal(size=(32, 2, 2, atom.per_word)), dice.normal(size=(32, 2, atom.per_word))
    depth = [extent for _, extent in atom.depth]
    got = multiplied(atom, a.reshape(8, 4, 2, 1, *depth), b.reshape(8, 4, 1, 1, *depth))
    np.testing.assert_allclose(got.reshape(32, 4), by_the_manual(atom, a, b), atol=1e-12)


@pytest.mark.parametrize("text", [PRODUCT, FOLDED, TF32], ids=["product", "over", "tf32"])
@pytest.mark.parametrize("seed", range(4))
def test_mma_is_a_product_of_matrices(text: str, seed: int) -> None:
    kernel, dice = read(text), np.random.default_rng(seed)
    arrays = {param.name: dice.normal(size=param.shape) for param in kernel.ins}
    got = tile.run((kernel,), arrays, seed)["C"]
    right = arrays["B"].T if text is FOLDED else arrays["B"]
    np.testing.assert_allclose(got, arrays["A"] @ right, atol=1e-12)


def test_sums_of_bytes_are_exact() -> None:
    kernel, dice = read(BYTES), np.random.default_rng(0)
    arrays = {param.name: dice.integers(-128, 128, param.shape).astype(np.int8) for param in kernel.ins}
    got = tile.run((kernel,), arrays)["C"]
    assert got.dtype == np.int32
    assert np.array_equal(got, arrays["A"].astype(np.int64) @ arrays["B"].astype(np.int64))


@pytest.mark.parametrize("text", [PRODUCT, FOLDED, TF32, BYTES], ids=["product", "over", "tf32", "bytes"])
def test_it_verifies_and_survives_its_text(text: str) -> None:
    kernel = read(text)
    assert problems(kernel) == ()
    assert read(print_program(kernel, "tile")) is kernel


LAWS = {
    "axes (g, t, h, v, u) are too few": ("axes=(g, t, h, v, u, w)", "axes=(g, t, h, v, u)", "has the axes g:8, t:4"),
    "lanes in another order": ("g:8=THREAD, t:4=THREAD", "t:4=THREAD, g:8=THREAD", "not the innermost threads"),
    "threads within": ("t:4=THREAD,", "t:4=THREAD, z:1=THREAD,", "not the innermost threads"),
    "depth over threads": ("im:2=REG, jn:2=REG, h:2=REG", "h:2=BLOCK, im:2=REG, jn:2=REG", "no register"),
    "an axis twice": ("(g, t, h, v, u, w)", "(g, t, h, h, u, w)", "stands twice"),
    "another dtype": ("A: bf16", "A: f32", "multiplies two values of bf16 or f16"),
    "two dtypes": ("A: bf16", "A: f16", "multiplies two values of bf16 or f16"),
    "a maximum": ("        C[", "        acc <- maximum(acc, 1.0)\n        C[", "`acc` is not a sum"),
    "over a thread axis": ("u, w))", "u, w), over=(iw))", "no register"),
    "under a guard": ("for k in 0..2 reduce", "if g < 3:\n          for k in 0..2 reduce", "divergent"),
}


@pytest.mark.parametrize("law", LAWS)
def test_laws(law: str) -> None:
    old, new, message = LAWS[law]
    text = altered(PRODUCT, old, new)
    if law == "under a guard":
        text = text.replace("            a =", "              a =").replace("            b =", "              b =")
        text = text.replace("            Mma", "              Mma")
    assert any(message in problem for problem in problems(read(text))), problems(read(text))


WRONG = {
    "rows 2g": ("h*8 + g, k*16", "g*2 + h, k*16"),
    "columns of the result for b": ("jn*8 + g]\n            Mma", "jn*8 + t*2 + v]\n            Mma"),
    "places apart in both": ("u*8 + t*2 + w]", "t*4 + u*2 + w]"),  # the first only: the operands disagree
    "results by columns": ("jn*8 + t*2 + v] =", "jn*8 + v*4 + t] ="),
    "halves swapped": ("im*16 + h*8 + g, jn", "im*16 + (1 - h)*8 + g, jn"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_another_layout_is_another_program(fault: str) -> None:
    old, new = WRONG[fault]
    kernel, dice = read(PRODUCT.replace(old, new, 1)), np.random.default_rng(0)
    arrays = {param.name: dice.normal(size=param.shape) for param in kernel.ins}
    assert not np.allclose(tile.run((kernel,), arrays)["C"], arrays["A"] @ arrays["B"])


@pytest.mark.parametrize("name", ATOMS)
def test_the_rows_of_an_atom_are_counted_by_its_row_axes(name: str) -> None:
    """As many places as the axes of a row have together are as many rows as the product has."""
    sizes = dict(ATOMS[name].axes)
    assert np.prod([sizes[axis] for axis in ATOMS[name].rows]) == ATOMS[name].m
