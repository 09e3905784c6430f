"""Ops in every dtype, on the examples of their rules: never wrong, never a crash."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from drawing import some
from operator_dtypes import COLUMNS, CRASHED, WRONG, OperatorVerdict, judged

from dplc.codegen.target import target
from dplc.engine.cli.machine import operators
from dplc.engine.compiler import compiler_with
from dplc.engine.ruleset import toolchain

NEGATED = (
    "override rule positive on torch\nmatch\n    y = Positive(x)\nrewrite\n    y[os..] = negative(x[os..])\n"
    'example "of a vector"\n    graph f(x: f32[5]) -> y: f32[5]:\n        y: f32[5] = Positive(x)\n'
    "gives\n    graph f(x: f32[5]) -> y: f32[5]:\n        y[i:5] = negative(x[i])\n"
)
# Each was once wrong or an internal error in one of the dtypes.
ONCE_WRONG = ("sign", "asinh", "empty_like", "addcmul", "tensordot")


def table(names: Iterable[str], rules: Iterable[Path] = ()) -> dict[str, dict[str, OperatorVerdict]]:
    """The verdicts on ops in each dtype."""
    compiler = compiler_with(target(), list(rules))
    known = operators(compiler.tools.torch)
    return {name: judged(known[name], COLUMNS, compiler) for name in names}


def words(row: dict[str, OperatorVerdict]) -> list[str]:
    return [verdict.word for verdict in row.values()]


def test_ops_of_every_dtype_are_right() -> None:
    found = table({"sign", "copy", "l1_loss", *some(ONCE_WRONG, 2)})
    assert words(found["sign"]) == ["right"] * 10
    assert {word for row in found.values() for word in words(row)} <= {"right", "-"}


def test_a_wrong_rule_is_found(tmp_path: Path) -> None:
    (mine := tmp_path / "mine.rw").write_text(NEGATED)
    found = table(("positive", "isclose"), [mine])
    assert found["positive"]["f32"].word == WRONG and found["positive"]["f32"].why.startswith("off by")
    assert words(found["isclose"]) == ["right"] * 10


PARTS = 16  # of the table of all ops, which would take a test too long as a whole


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_no_op_is_wrong_in_any_dtype(part: int) -> None:
    found = table(list(operators(toolchain().torch))[part::PARTS])
    assert not {WRONG, CRASHED} & {word for row in found.values() for word in words(row)}
