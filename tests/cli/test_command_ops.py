"""`dplc ops`: what the rules take, and the table of op and dtype, made by running them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Command
from drawing import some

# Each was once wrong or an internal error in one of the dtypes.
ONCE_WRONG = ("sign", "asinh", "empty_like", "addcmul", "tensordot")
NEGATED = "override rule positive on torch\nmatch\n    y = Positive(x)\nrewrite\n    y[os..] = negative(x[os..])\n" + (
    'example "of a vector"\n    graph f(x: f32[5]) -> y: f32[5]:\n        y: f32[5] = Positive(x)\n'
    "gives\n    graph f(x: f32[5]) -> y: f32[5]:\n        y[i:5] = negative(x[i])\n"
)


def test_list_names_ops_and_the_rules_that_take_them(ok: Command) -> None:
    lines = dict(line.split(maxsplit=1) for line in ok("ops").out.splitlines())
    assert lines["linear"] == "linear, linear_bias, linear_vector"
    assert len(lines) > 300
    record = json.loads(ok("ops linear --json").out)
    assert [entry["rule"] for entry in record["linear"]] == ["linear", "linear_bias", "linear_vector"]


def test_what_is_missing_is_listed_by_cause(ok: Command) -> None:
    record = json.loads(ok("ops --missing --json").out)
    by_cause = record["missing"]
    assert "nonzero" in by_cause["give a shape that depends on values"]
    assert "randn" in by_cause["draw random numbers"]
    taken = set(json.loads(ok("ops --json").out))
    assert not taken & {name for names in by_cause.values() for name in names}
    assert "lgamma" in taken and record["by rule"] >= len(taken) - 1


def test_table_of_dtypes(ok: Command) -> None:
    names = some(ONCE_WRONG, 2)
    table = json.loads(ok("ops --dtypes --json", *names).out)
    assert table.pop("dplc")
    assert set(table) == set(names)
    words = {entry["is"] for row in table.values() for entry in row.values()}
    assert words <= {"right", "-"}
    assert [entry["is"] for entry in table["sign"].values()] == ["right"] * 10


def test_a_wrong_rule_is_found_and_a_refusal_has_its_reason(dplc: Command, tmp_path: Path) -> None:
    path = tmp_path / "negated.rw"
    path.write_text(NEGATED)
    done = dplc(f"ops --dtypes --rules {path} positive isclose")
    assert done.code == 1
    assert "positive of f32: wrong: off by" in done.err
    assert done.out.splitlines()[2].split() == ["isclose", *["right"] * 10]


@pytest.mark.slow
def test_no_op_is_wrong_in_any_dtype(ok: Command) -> None:
    assert "right" in ok("ops --dtypes").out
