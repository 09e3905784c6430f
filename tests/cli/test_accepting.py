"""`dplc rules test --accept` writes what rules give, or leaves a file byte for byte as it was."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import MINE, Command

TOTAL = """\
## A sum of one op.
rule total on torch
match
    y = {op}(x, dim=d)
let os = axes(x)
rewrite
    y[reduced_axes(os, d, false)..] = Reduce(add, at(os, d).., x[os..])
example "of columns"
    graph f(a: f32[2, 3]) -> y: f32[3]:
        y: f32[3] = {op}(a, dim=(0))
{columns}example "of rows"
    graph f(a: f32[2, 3]) -> y: f32[2]:
        y: f32[2] = {said}(a, dim=(1))
{rows}"""
SUMS = {"op": "Sum", "said": "Sum"}
TOTALS = TOTAL.format(
    **SUMS,
    columns="gives\n    graph f(a: f32[2, 3]) -> y: f32[3]:\n        y[i:3] = Reduce(add, j:2, a[j, i])\n",
    rows="gives\n    graph f(a: f32[2, 3]) -> y: f32[2]:\n        y[i:2] = Reduce(add, j:3, a[i, j])\n",
)
DOUBLE = """\
## A sum with itself is a double.
rule twice on tensor
match
    y = add(x, x)
rewrite
    y = multiply(x, 2.0)
example "eight"
    graph f(x: f32[i:8]) -> y: f32[8]:
        y[i] = add(x[i], x[i])
gives
    graph f(x: f32[8]) -> y: f32[8]:
        y[i:8] = multiply(x[i], 3.0)
"""
RIGHT = DOUBLE.replace("3.0", "2.0")
HEAD, _, GIVEN = RIGHT.partition("gives\n")
REFUSED = """\
example "refused"
    graph f(x: f32[8]) -> y: f32[8]:
        y[i:8] = add(x[i], 1.0)
gives no "expected"

"""
REST = REFUSED + RIGHT.replace("twice", "again")  # both are errors, which keep no result from being written
SEVEN = RIGHT[RIGHT.index("example") :].replace("eight", "seven").replace("8", "7")
REMARKED = (DOUBLE.replace("example", f"{SEVEN}example")).replace("gives\n    graph f(x: f32[8])", "gives  # all\n    graph f(x: f32[8])")  # fmt: skip
NOTHING_YET = ("", "gives\n", "gives\n\n")


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        # The program is not Tensor IR: nothing stands for what it gives until the rule has fired.
        *((TOTAL.format(**SUMS, columns=gives, rows=gives), TOTALS, 0) for gives in (*NOTHING_YET, "\ngives\n")),
        *((HEAD + gives + REST, f"{HEAD}gives\n{GIVEN}{REST}", 1) for gives in NOTHING_YET),
        (REMARKED, REMARKED.replace("3.0", "2.0"), 0),
    ],
)
def test_accept_writes_results_and_nothing_else(dplc: Command, before: str, after: str, code: int) -> None:
    MINE.write_text(before)
    dplc("rules test --accept mine.rw", code=code).shows("examples rewritten")
    assert MINE.read_text() == after
    dplc("rules test --accept mine.rw", code=code).shows("0 examples rewritten")
    assert MINE.read_text() == after


@pytest.mark.parametrize("gives", ["", "gives\n"])
def test_accept_of_a_rule_that_does_not_fire_leaves_the_file(dplc: Command, gives: str) -> None:
    """The error stands where the example stands in the file that the user has."""
    text = TOTAL.format(op="Sum", said="Mean", columns=gives, rows=gives)
    before = f"\ufeff{text}".replace("\n", "\r\n").encode()
    MINE.write_bytes(before)
    line = text.split("\n").index('example "of rows"') + 1
    dplc("rules test --accept mine.rw", code=1).shows(
        f'mine.rw:{line}:1: error: example "of rows" of rule `total` did not fire'
    )
    assert MINE.read_bytes() == before


def test_accept_of_a_program_that_cannot_be_read_leaves_every_file(dplc: Command, tmp_path: Path) -> None:
    mine = TOTAL.format(**SUMS, columns="", rows="")
    texts = {"mine.rw": mine, "other.rw": mine.replace("Sum", "Prod").replace("rule total", "rule other").replace("(1)", "(x=1)")}  # fmt: skip
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    dplc("rules test --accept mine.rw other.rw", code=1).shows("other.rw:")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == texts


NINE = """\
examples twice
example "nine" as "eight"
    "i:8" => "i:9"
    "f32[8]" => "f32[9]"
gives
    "i:8" => "i:9"
    "f32[8]" => "f32[9]"
"""


def test_accept_leaves_an_example_that_edits_another_one(dplc: Command) -> None:
    MINE.write_text(DOUBLE)
    further = Path("mine.examples.rw")
    further.write_text(NINE)
    dplc("rules test --accept mine.rw").shows('example "nine" is written as edits of another one: edit what it gives')
    assert (MINE.read_text(), further.read_text()) == (RIGHT, NINE)
