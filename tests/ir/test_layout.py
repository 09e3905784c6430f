"""Addresses, vectors, wavefronts and cooperative copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dplc.ir.expr import Var, add, binary, floordiv, modulo, multiply
from dplc.ir.facts import layout, warp_accesses
from dplc.ir.node import replace
from dplc.ir.substitute import substitute
from dplc.ir.text.print_statements import print_expr
from dplc.ir.text.programs import read_program

TEXT = """
kernel f(x: f32[64, 48], w: f32[30]) -> y: f32[64, 48]:
    Tile(i_o:4=BLOCK, i:16=THREAD, j:8=THREAD, r:4=VEC, q:2=REG):
        s = Stage(x, origin=(i_o*16, 0), box=(a:16@0, b:32@1), depth=2, slot=1{fields})
        Sync()
        c = load s[1, i, j*4 + r]
        for n in 0..3072 free:
            d = load x[n // 48, n % 48]
        y[i_o*16 + i, q*32 + j*4 + r] = c
"""


def kernel(fields: str = "") -> Any:
    return read_program(TEXT.format(fields=fields))[1][0]


def addressed(k: Any, buf: str, *idx: Any) -> str:
    return print_expr(layout.address(k, buf, idx))


def test_addresses() -> None:
    k = kernel(", pad=1")
    i, j, r, n = (Var(name) for name in "ijrn")
    assert addressed(k, "x", i, j) == "i*48 + j"
    assert addressed(k, "s", 1, i, j) == "i*33 + j + 528"
    assert addressed(k, "x", floordiv(n, 48), modulo(n, 48)) == "n"
    inside = add(multiply(j, 4), r)
    assert addressed(k, "x", floordiv(inside, 32), modulo(inside, 32)) == "j*4 + r"


def test_rejoining_needs_the_same_stride() -> None:
    n = Var("n")
    assert "//" in addressed(kernel(), "x", floordiv(n, 47), modulo(n, 47))


def test_an_index_at_the_lanes_of_a_warp() -> None:
    """Of 8 x 8 threads the first warp holds four rows; loops stand at 0."""
    lanes = warp_accesses.lane_values((("i", 8), ("j", 8)))
    i, j = np.divmod(np.arange(32), 8)
    one, other, k = (Var(name) for name in "ijk")
    for e, want in (
        (add(add(multiply(one, 8), other), 1), i * 8 + j + 1),
        (modulo(floordiv(other, 2), 3), j // 2 % 3),
        (binary("^", one, other), i ^ j),
        (add(multiply(other, one), k), i * j),
    ):
        np.testing.assert_array_equal(warp_accesses.at_lanes(e, lanes), want)


def test_vectors() -> None:
    k = kernel()
    i, j, r = (Var(name) for name in "ijr")
    along = layout.address(k, "x", (i, add(multiply(j, 4), r)))
    assert layout.is_vector(along, "r", 4)
    assert not layout.is_vector(layout.address(k, "x", (i, add(multiply(j, 3), r))), "r", 4)
    assert not layout.is_vector(layout.address(k, "x", (r, i)), "r", 4)
    assert not layout.is_vector(add(along, 2), "r", 4)


@pytest.mark.parametrize(
    ("plane", "moved", "width", "one"),
    [(12, 0, 4, True), (12, 0, 8, False), (12, 8, 4, True), (12, 2, 4, False), (10, 0, 2, True), (9, 0, 2, False)],
)
def test_vectors_within_planes(plane: int, moved: int, width: int, one: bool) -> None:
    """From any multiple of the width on: the address of each of so many places is the next one's neighbour, and aligned."""
    i = Var("i")
    place = add(i, moved)
    address = add(multiply(binary("//", place, plane), 240), binary("%", place, plane))
    assert layout.is_vector(address, "i", width) is one
    places = np.array([substitute(address, {"i": n}) for n in range(5 * plane * width)]).reshape(-1, width)
    assert bool((places == places[:, :1] // width * width + np.arange(width)).all()) is one


def test_wavefronts() -> None:
    lanes = np.arange(32)
    assert layout.wavefronts(lanes, 1) == 1  # a row
    assert layout.wavefronts(lanes * 0, 1) == 1  # broadcast
    assert layout.wavefronts(lanes * 32, 1) == 32  # a column
    assert layout.wavefronts(lanes * 33, 1) == 1  # a padded column
    assert layout.wavefronts(lanes * 4, 4) == 4  # 16 bytes a lane: four groups of eight
    assert layout.wavefronts(lanes * 32, 4) == 32


def test_lanes_that_are_read_in_pairs() -> None:
    """What a load of more than a word gives back goes two lanes at a time, where n and n ^ 1, or n and n ^ 2, agree."""
    lanes = np.arange(32)
    assert layout.wavefronts(lanes // 8 * 4, 4) == 2  # the rows of a patch of 4 x 8 lanes
    assert layout.wavefronts(lanes % 8 * 4, 4) == 4  # its columns: no neighbours agree
    assert layout.wavefronts((lanes & 1 | lanes >> 1 & 2) * 4, 4) == 2  # n ^ 2
    assert layout.wavefronts(lanes // 2 % 2 * 4, 4) == 2 and layout.wavefronts(lanes // 4 * 4, 4) == 2
    assert (
        layout.wavefronts(lanes * 0, 4) == 2 and layout.wavefronts(lanes // 2 * 2, 2) == 1
    )  # never below a word a lane
    assert layout.wavefronts(lanes // 8 * 32, 4) == 4  # rows in the same banks: both of a group take a turn
    assert layout.wavefronts(lanes // 2, 1) == 1
    one_is_apart = np.where(lanes == 5, 64, lanes // 8 * 4)
    assert layout.wavefronts(one_is_apart, 4) == 5


@pytest.mark.parametrize(
    "fields", ["", ", pad=4", ", xor=(0, 1)", ", xor=(31, 2, 0)", ", swizzle=128", ", swizzle=32", ", lanes=2"]
)
def test_layouts_are_injective_and_every_cell_has_one_owner(fields: str) -> None:
    k = kernel(fields)
    stage = layout.stages(k)["s"]
    cells = np.indices((16, 32)).reshape(2, -1)
    words = layout.physical(stage, list(cells))
    assert len(set(words.tolist())) == 512
    assert words.max() < layout.shared_tile_cells(stage)
    owners = layout.owners(k, stage)
    assert len(owners) == 512
    assert set(owners) <= set(range(128))
    assert layout.copy_shape(k, stage) == (4, 8, 16, 128)


def test_boxes_have_five_dimensions_at_most_and_rows_of_whole_16_bytes() -> None:
    stage = layout.stages(kernel())["s"]
    for source, fits in (((64, 48), True), ((3, 3, 3, 64, 48), True), ((3, 3, 3, 3, 64, 48), False), ((64, 47), False)):
        rank = len(source)
        box = tuple(replace(axis, dim=rank - 2 + n) for n, axis in enumerate(stage.box))
        assert layout.is_box(replace(stage, box=box), source) is fits, source


def test_word_copies_where_chunks_do_not_fit() -> None:
    k = kernel()
    stage = layout.stages(k)["s"]
    shifted = replace(stage, origin=(stage.origin[0], 1))
    assert layout.copy_shape(k, shifted).width == 1
    assert layout.copy_shape(k, replace(stage, pad=1)).width == 1


def test_best_xor_reaches_the_least() -> None:
    text = """
kernel f(W: f32[32, 16]) -> y: f32[32, 4]:
    Tile(t:32=THREAD, k:4=VEC):
        s = Stage(W, origin=(0, 0), box=(j:32@0, x:16@1))
        Sync()
        a = load s[t, k]
        y[t, k] = a
"""
    k: Any = read_program(text)[1][0]
    stage, body = layout.stages(k)["s"], k.body[0].body
    asked = warp_accesses.requests(k, stage, body)
    best = warp_accesses.best_xor(k, stage, body)
    assert warp_accesses.xor_cycles(stage, asked, best) < warp_accesses.xor_cycles(stage, asked, ())
    assert warp_accesses.xor_cycles(stage, asked, best) == min(
        warp_accesses.xor_cycles(stage, asked, bits) for bits in warp_accesses.xor_maps(stage)
    )


PADS = (1, 2, 4, 8)
READ_OFTEN = """
kernel f(W: f32[64, 64]) -> y: f32[4, 16, 4]:
    Tile(w:4=THREAD, i:4=THREAD, n:8=THREAD, r:4=REG):
        s = Stage(W, origin=(0, 0), box=(j:64@0, x:64@1), via=ASYNC, lanes=2)
        Wait()
        Sync()
        for k in 0..16 reduce:
            for v in 0..4 VEC:
                a = load s[n*4 + r, k*4 + v]
                acc <- add(acc, a)
        y[w, i, r] = acc
"""


def test_what_is_read_often_weighs_more_than_what_is_copied_once() -> None:
    """Two lanes copy a row while eight read rows four apart: no map serves both, and 64 reads stand against 8 copies."""
    k: Any = read_program(READ_OFTEN)[1][0]
    stage, body = layout.stages(k)["s"], k.body[0].body
    read, copied = warp_accesses.requests(k, stage, body)
    assert (read.times, copied.times) == (64, 8)
    best = replace(stage, xor=warp_accesses.best_xor(k, stage, body))
    assert warp_accesses.cycles(best, warp_accesses.Requests([read._replace(times=1)])) == 4


def test_padding_that_breaks_vectors_is_more_accesses() -> None:
    k: Any = read_program(READ_OFTEN)[1][0]
    stage, body = layout.stages(k)["s"], k.body[0].body
    assert warp_accesses.padded_accesses(k, stage, body, 4) == warp_accesses.padded_accesses(k, stage, body, 0) == 72
    assert warp_accesses.padded_accesses(k, stage, body, 1) == 4 * 64 + 32
    assert warp_accesses.padded_cycles(k, stage, body, 4) < warp_accesses.padded_cycles(k, stage, body, 0)
    cost = {
        p: (warp_accesses.padded_accesses(k, stage, body, p), warp_accesses.padded_cycles(k, stage, body, p))
        for p in PADS
    }
    assert min(cost, key=lambda pad: cost[pad]) in (4, 8)
    asked = warp_accesses.requests(k, replace(stage, pad=1), body)
    assert [request.width for request in asked] == [1] * 5, "four words, and a copy by words"


def test_a_swizzle_keeps_rows_apart_as_a_xor_does() -> None:
    k: Any = read_program(READ_OFTEN.replace("n*4 + r", "r*8 + n"))[1][0]
    stage, body = layout.stages(k)["s"], k.body[0].body
    asked = warp_accesses.requests(k, replace(stage, via="TMA"), body)
    assert warp_accesses.swizzled_cycles(stage, asked, 128) < warp_accesses.cycles(stage, asked)
    assert warp_accesses.box_loss(k, stage, body, ()) == 0
    narrow: Any = read_program(READ_OFTEN.replace("x:64@1", "x:4@1").replace("k*4 + v", "v"))[1][0]
    assert (
        warp_accesses.box_loss(narrow, layout.stages(narrow)["s"], narrow.body[0].body, ()) == 0
    )  # no span fits into a row
    four_apart: Any = read_program(READ_OFTEN)[1][0]
    assert warp_accesses.box_loss(four_apart, stage, four_apart.body[0].body, ()) > 0
