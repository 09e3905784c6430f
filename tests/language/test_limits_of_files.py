"""Lines that are too long to be looked at: brackets that span lines are one line, whatever closes inside of them."""

from __future__ import annotations

import pytest

from dplc.engine.language.rule_files import NESTING, OPERATORS, within_limits
from dplc.ir.diagnostic import DplcError, Source

HALF = " + ".join(["1"] * (OPERATORS // 2 + 2))


def read(text: str) -> None:
    within_limits(Source("file.rw", text))


@pytest.mark.parametrize("inner", ["", "(2), ", "((2)), [3], "])
def test_a_bracket_over_two_lines_is_one_line(inner: str) -> None:
    read(f"let a = {HALF}\nlet b = [{inner}2]\n")
    with pytest.raises(DplcError, match=f"more than {OPERATORS} operators in one line"):
        read(f"let a = [{inner}{HALF},\n    {HALF}]\n")


def test_lines_are_counted_apart_once_the_bracket_is_closed() -> None:
    read(f"let a = [(1), {HALF}]\nlet b = {HALF}\n")


def test_nesting() -> None:
    read("(" * NESTING + ")" * NESTING)
    with pytest.raises(DplcError, match="levels of nesting"):
        read("(" * (NESTING + 1))


def test_as_many_operators_as_a_line_may_have() -> None:
    read("1" + " + 1" * OPERATORS)
    with pytest.raises(DplcError, match=f"more than {OPERATORS} operators in one line"):
        read("1" + " + 1" * (OPERATORS + 1))
    assert OPERATORS == 200
