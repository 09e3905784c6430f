"""What stands in the parentheses of an example: an expression has its value at every level, or is one error where it stands."""

from __future__ import annotations

import pytest
from trial import engine

from dplc.engine.kernels import examples  # noqa: F401  (the examples on tensor)
from dplc.engine.kernels.examples import Failure, run_examples
from dplc.engine.language.check import load_facts
from dplc.ir.diagnostic import DplcError

TILE = """
rule keep_fewer(N: int = 1) on tile
match
    Wait(keep=n)
require N == 3  else "another number"
rewrite
    Wait(keep=0)
example "a number" (N={value})
    Wait(keep=3)
gives
    Wait(keep=0)
"""
TENSOR = """
rule twice(N: int = 1) on tensor
match
    y = negative(x)
require N == 3  else "another number"
rewrite
    y = multiply(x, -1.0)
example "a number" (N={value})
    graph g(x: f32[i:4]) -> y: f32[4]:
        y[i] = negative(x[i])
gives
    graph g(x: f32[i:4]) -> y: f32[4]:
        y[i] = multiply(x[i], -1.0)
"""
RULES = {"tile": TILE, "tensor": TENSOR}


def failures(level: str, value: str) -> list[Failure]:
    load_facts()  # `max` is one
    return run_examples(engine(RULES[level].format(value=value)))[1]


@pytest.mark.parametrize("level", RULES)
@pytest.mark.parametrize("value", ["3", "1 + 2", "7 // 2", "max([1, 3])", "[1, 3][1]", "3 if 2 > 1 else 4"])
def test_an_expression_is_its_value(level: str, value: str) -> None:
    assert failures(level, value) == []


@pytest.mark.parametrize("level", RULES)
@pytest.mark.parametrize("value", ["2", "1 + 1", "-3", "other", '"3"'])
def test_another_value_is_another_one(level: str, value: str) -> None:
    assert [failure.problem for failure in failures(level, value)] == ["did not fire"]


@pytest.mark.parametrize("level", RULES)
@pytest.mark.parametrize(
    "value", ["[0][0][0]", "1 // 0", "1 % 0", "[][3]", "2[0]", "[x for x in 3]", "size(3)", "[1, 2].x", "there(3)"]
)
def test_what_has_no_value_is_an_error_at_its_place(level: str, value: str) -> None:
    with pytest.raises(DplcError) as told:
        failures(level, value)
    assert told.value.exit_code == 1
    assert told.value.span is not None and told.value.span.line == RULES[level].split("(N={value})")[0].count("\n") + 1
