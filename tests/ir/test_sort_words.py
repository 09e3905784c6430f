"""Messages about words that a language does not have: each sort has a word that people use, with its article."""

from __future__ import annotations

import pytest

from dplc.ir.diagnostic import DplcError
from dplc.ir.names import SORTS
from dplc.ir.text.programs import read_program
from dplc.ir.text.read_statements import CLOSED

PRODUCT = """
kernel f(x: f16[16, 16]) -> y: f32[16, 16]:
    Tile(i:16=THREAD):
        Mma(acc, a, b, atom=ATOM, axes=(g, t, h, v, u, w))
"""


@pytest.mark.parametrize(
    "text, told",
    [
        (PRODUCT.replace("ATOM", "m16n8k17"), "`m16n8k17` is not an atom"),
        (PRODUCT.replace("THREAD", "THREADS"), "`THREADS` is not a role"),
        (PRODUCT.replace("Mma(", "s = Stage(x, via=SYNCH)\n        Mma("), "`SYNCH` is not a transport"),
    ],
)
def test_a_word_that_is_not_there_is_told_with_its_article(text: str, told: str) -> None:
    with pytest.raises(DplcError) as problem:
        read_program(text)
    assert problem.value.what == told
    assert problem.value.span is not None


def test_every_sort_of_words_has_a_word() -> None:
    assert set(CLOSED) <= set(SORTS)
