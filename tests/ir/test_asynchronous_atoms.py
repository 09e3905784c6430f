"""Products of asynchronous atoms in Tile IR: their layouts, their meaning in every order, and what is wrong with a program."""

from __future__ import annotations

import numpy as np
import pytest
from altered_texts import altered
from asynchronous_texts import matrices, product

from dplc.ir.atoms import ATOMS, Atom, multiplied
from dplc.ir.facts.layout import matrix_view, stages, views_of
from dplc.ir.interp import tile
from dplc.ir.interp.scalar import ScheduleError
from dplc.ir.node import nodes
from dplc.ir.program import Kernel
from dplc.ir.text.programs import print_program, read_program
from dplc.ir.tile import Mma
from dplc.ir.verify.tile import problems

FORMS = ("nn", "nt", "tn", "tt")


def read(text: str) -> Kernel:
    return read_program(text, "test")[1][0]  # type: ignore[return-value]


def by_the_manual(atom: Atom, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What each thread of a group has of a 64 x k by k x n product: the PTX ISA's "WGMMA .m64nNk16 register fragment"."""
    whole, d = a @ b, np.zeros((128, atom.n // 2))
    for thread in range(128):
        warp, lane = divmod(thread, 32)
        for i in range(atom.n // 2):
            row = 16 * warp + lane // 4 + 8 * (i // 2 % 2)
            d[thread, i] = whole[row, 8 * (i // 4) + lane % 4 * 2 + i % 2]
    return d


@pytest.mark.parametrize("name", ["m64n32k16", "m64n64k16", "m64n240k16"])
def test_layouts_are_those_of_the_manual(name: str) -> None:
    atom, dice = ATOMS[name], np.random.default_rng(0)
    a, b = dice.normal(size=(64, 16)), dice.normal(size=(16, atom.n))
    p, g, t, q, s, h, _, u, w = np.meshgrid(*(np.arange(extent) for _, extent in atom.axes), indexing="ij", sparse=True)
    place = u * 8 + t * 2 + w
    left, right = np.broadcast_arrays(p * 16 + h * 8 + g, place), np.broadcast_arrays(q * 16 + s * 8 + g, place)
    got = multiplied(atom, a[left[0], left[1]], b[right[1], right[0]])
    np.testing.assert_allclose(got.reshape(128, -1), by_the_manual(atom, a, b), atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(3))
def test_an_asynchronous_mma_is_a_product_of_matrices(form: str, seed: int) -> None:
    kernel, dice = read(product(form, 64)), np.random.default_rng(seed)
    arrays = {name: dice.normal(size=shape) for name, shape in matrices(form, 64).items()}
    left, right = (array.T if side == "t" else array for array, side in zip(arrays.values(), form, strict=True))
    np.testing.assert_allclose(tile.run((kernel,), arrays, seed)["C"], left @ right, atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_it_verifies_and_survives_its_text(form: str) -> None:
    kernel = read(product(form, 128))
    assert problems(kernel) == ()
    assert read(print_program(kernel, "tile")) is kernel


@pytest.mark.parametrize("form", FORMS)
def test_a_descriptor_says_where_the_elements_of_an_operand_are(form: str) -> None:
    kernel = read(product(form, 128))
    (stmt,) = nodes(kernel, Mma)
    for load in views_of(kernel):
        left = load.buf == "As"
        view = matrix_view(kernel, stages(kernel)[load.buf], load, stmt, left)
        assert view is not None
        assert view.across == (form[0 if left else 1] == ("t" if left else "n"))
        assert (view.stride, view.leading) == (1024, 8192 if view.across and not left else 0)


NO_VIEWS = {
    "no swizzle": ("swizzle=128)\n            Bs", "swizzle=0)\n            Bs"),
    "rows in another order": ("h*8 + g, k*16", "(1 - h)*8 + g, k*16"),
    "half a step behind": ("k*16 + u*8", "k*16 + 8 + u*8"),
}


@pytest.mark.parametrize("name", NO_VIEWS)
def test_what_no_descriptor_says(name: str) -> None:
    kernel = read(altered(product("nt", 64), *NO_VIEWS[name]))
    (stmt,) = nodes(kernel, Mma)
    (load,) = (load for load in views_of(kernel) if load.buf == "As")
    assert matrix_view(kernel, stages(kernel)["As"], load, stmt, left=True) is None


LAWS = {
    "by threads": ("via=TMA, swizzle=128)\n            Bs", "via=SYNC)\n            Bs", "what TMA has copied"),
    "an operand that is computed": (
        "            Mma(acc, a, b,",
        "            c = bf16(b)\n            Mma(acc, a, c,",
        "TMA",
    ),
    "another reader": ("            WaitMma(keep=1)", "            d <- add(d, a)\n            WaitMma(keep=1)", "TMA"),
    "under a guard": (
        "            WaitMma(keep=1)",
        "            if g < 3:\n                WaitMma(keep=1)",
        "divergent",
    ),
    "lanes of one warp": ("axes=(p, g, t", "axes=(g, t", "has the axes p:4"),
}


@pytest.mark.parametrize("law", LAWS)
def test_laws(law: str) -> None:
    old, new, message = LAWS[law]
    found = problems(read(altered(product("nt", 64), old, new)))
    assert any(message in problem for problem in found), found


WAIT_MMA = "            WaitMma(keep=1)\n"
FAULTS = {
    "no WaitMma in an iteration": (WAIT_MMA, "", "overwritten"),
    "a WaitMma that keeps two": ("keep=1", "keep=2", "overwritten"),
    "no WaitMma at all": ("        WaitMma()\n", "", "not complete"),
    "sums that are read too early": ("        WaitMma()\n        C[", "        C[", "not complete"),
    "a scaled sum": (WAIT_MMA, f"            Scale(acc, 2.0)\n{WAIT_MMA}", "changed before the WaitMma"),
    "no wait": ("            Wait()\n", "", "no Wait"),
    "no barrier": ("            Sync()\n", "", "race"),
    "a ring of two slots": ("depth=3, slot=ko % 3", "depth=2, slot=ko % 2", "overwritten"),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("seed", range(2))
def test_faults_are_found_in_every_order(name: str, seed: int) -> None:
    old, new, message = FAULTS[name]
    text = altered(product("nt", 32), old, new)
    if name == "a ring of two slots":
        text = text.replace("[ko % 3,", "[ko % 2,")
    dice = np.random.default_rng(seed)
    arrays = {key: dice.normal(size=shape) for key, shape in matrices("nt", 32).items()}
    with pytest.raises(ScheduleError, match=message):
        tile.run((read(text),), arrays, seed)
