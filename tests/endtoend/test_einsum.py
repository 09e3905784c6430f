"""Einsums of any number of operands: equal to float64, by contractions of two in the cheapest order."""

from __future__ import annotations

import itertools
import re

import pytest
import torch
from hypothesis import given, strategies as st

import dplc

LETTERS = "abcdE"


@st.composite
def equations(draw: st.DrawFn) -> tuple[str, list[list[int]]]:
    """An equation of three to six operands, implicit or with a result, and their shapes; a length may be 1 in one."""
    size = {letter: draw(st.sampled_from([1, 2, 3, 5])) for letter in LETTERS}
    term = st.lists(st.sampled_from(LETTERS), max_size=3)
    terms = draw(st.lists(st.tuples(term, st.booleans()), min_size=3, max_size=6))
    shapes, texts = [], []
    for letters, dots in terms:
        lengths = {letter: draw(st.sampled_from([size[letter]] * 9 + [1])) for letter in letters}
        rest = draw(st.sampled_from([[], [3], [2, 3], [1, 3]])) if dots else []
        shapes.append([lengths[letter] for letter in letters[:1]] + rest + [lengths[letter] for letter in letters[1:]])
        texts.append("".join(letters[:1]) + "..." * dots + "".join(letters[1:]))
    equation = ",".join(texts)
    if draw(st.booleans()):
        named = sorted({*itertools.chain(*(letters for letters, _ in terms))})
        kept = draw(st.permutations(named))[: draw(st.integers(0, 3))]
        equation += "->" + "".join(kept[:1]) + "..." * any(dots for _, dots in terms) + "".join(kept[1:])
    return equation, shapes


@given(equations(), st.integers(0, 99))
def test_einsums_of_many_operands(drawn: tuple[str, list[list[int]]], seed: int) -> None:
    equation, shapes = drawn
    torch.manual_seed(seed)
    operands = [torch.randn(shape) for shape in shapes]
    want = torch.einsum(equation, *(operand.double() for operand in operands))
    compiled = dplc.compile(lambda *xs: torch.einsum(equation, *xs), operands)
    torch.testing.assert_close(compiled(*operands).double(), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("equation", "shapes", "first"),
    [
        ("ij,jk,kl->il", [(8, 64), (64, 64), (64, 64)], [8, 64, 64]),  # from the left
        ("ij,jk,kl->il", [(64, 64), (64, 64), (64, 8)], [8, 64, 64]),  # from the right
        (
            "in,jn,ij,jp->ip",
            [(16, 4), (16, 4), (16, 16), (16, 8)],
            [4, 16, 16],
        ),  # a chunk of a linear recurrence: its scores
    ],
)
def test_the_cheapest_pair_is_contracted_first(equation: str, shapes: list[tuple[int, ...]], first: list[int]) -> None:
    operands = [torch.ones(shape) for shape in shapes]
    text = dplc.compile(lambda *xs: torch.einsum(equation, *xs), operands).ir("tensor")
    parts = re.search(r"parts\[(.*?)\] = multiply", text)
    assert parts and sorted(map(int, re.findall(r":(\d+)", parts[1]))) == first
