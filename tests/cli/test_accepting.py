"""`dplc rules test --accept` writes what rules give, or leaves a file byte for byte as it was."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Command

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
        y: f32[3] = {op}(a, dim=(0,))
{gives}example "of rows"
    graph f(a: f32[2, 3]) -> y: f32[2]:
        y: f32[2] = {said}(a, dim=(1,))
{gives}"""


@pytest.mark.parametrize("gives", ["", "gives\n", "gives\n\n", "\ngives\n"])
def test_an_example_on_torch_takes_what_its_rule_gives(dplc: Command, mine: Path, gives: str) -> None:
    """Its program is not Tensor IR: nothing stands for what it gives until the rule has fired."""
    mine.write_text(TOTAL.format(op="Sum", said="Sum", gives=gives))
    done = dplc(f"rules test --accept {mine}")
    assert (done.code, "2 examples rewritten" in done.err) == (0, True), done.err
    text = mine.read_text()
    assert text.count("\ngives\n") == 2 and "pass" not in text
    assert "y[i:3] = Reduce(add, j:2, a[j, i])" in text and "y[i:2] = Reduce(add, j:3, a[i, j])" in text
    assert "0 examples rewritten" in dplc(f"rules test --accept {mine}").err and mine.read_text() == text


@pytest.mark.parametrize("gives", ["", "gives\n"])
def test_a_file_whose_rule_does_not_fire_is_left_as_it_was(dplc: Command, mine: Path, gives: str) -> None:
    """The error stands where the example stands in the file that the user has."""
    before = ("\ufeff" + TOTAL.format(op="Sum", said="Mean", gives=gives)).replace("\n", "\r\n").encode()
    mine.write_bytes(before)
    done = dplc(f"rules test --accept {mine}")
    line = before.decode().split("\r\n").index('example "of rows"') + 1
    assert done.code == 1 and mine.read_bytes() == before
    assert f'{mine}:{line}:1: error: example "of rows" of rule `total` did not fire' in done.err


def test_a_program_that_cannot_be_read_leaves_every_file_as_it_was(dplc: Command, tmp_path: Path) -> None:
    files = [tmp_path / "mine.rw", tmp_path / "other.rw"]
    texts = [
        TOTAL.format(op="Sum", said="Sum", gives=""),
        TOTAL.format(op="Prod", said="Prod", gives="").replace("rule total", "rule other").replace("(1,)", "(x=1)"),
    ]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    done = dplc("rules test --accept", *map(str, files))
    assert done.code == 1 and "other.rw:" in done.err
    assert [file.read_text() for file in files] == texts


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
SEVEN = DOUBLE[DOUBLE.index("example") :].replace("eight", "seven").replace("8", "7").replace("3.0", "2.0")


REFUSED = """\
example "refused"
    graph f(x: f32[8]) -> y: f32[8]:
        y[i:8] = add(x[i], 1.0)
gives no "expected"

"""


@pytest.mark.parametrize("gives", ["", "gives\n", "gives\n\n"])
def test_an_example_that_says_nothing_yet_takes_what_its_rule_gives(dplc: Command, tmp_path: Path, gives: str) -> None:
    """And nothing else changes."""
    path, (head, _, given) = tmp_path / "mine.rw", DOUBLE.partition("gives\n")
    text = REFUSED + DOUBLE.replace("twice", "again").replace("3.0", "2.0")
    path.write_text(head + gives + text)
    assert "1 examples rewritten" in dplc(f"rules test --accept {path}").err
    wanted = f"{head}gives\n{given.replace('3.0', '2.0')}{text}"
    assert path.read_text() == wanted
    again = dplc(f"rules test --accept {path}").err
    assert "0 examples rewritten" in again and path.read_text() == wanted


def test_accept_with_comment_after_gives_keeps_other_examples(dplc: Command, tmp_path: Path) -> None:
    path, (head, example) = tmp_path / "mine.rw", DOUBLE.split("example")
    text = f"{head}{SEVEN}example{example}".replace(
        "gives\n    graph f(x: f32[8])", "gives  # all\n    graph f(x: f32[8])"
    )
    path.write_text(text)
    done = dplc(f"rules test --accept {path}")
    assert done.code == 0 and path.read_text() == text.replace("3.0", "2.0"), done.err


NINE = """\
examples twice
example "nine" as "eight"
    "i:8" => "i:9"
    "f32[8]" => "f32[9]"
gives
    "i:8" => "i:9"
    "f32[8]" => "f32[9]"
"""


def test_an_example_that_edits_another_one_stays_as_it_is(dplc: Command, tmp_path: Path) -> None:
    path, further = tmp_path / "mine.rw", tmp_path / "mine.examples.rw"
    path.write_text(DOUBLE)
    further.write_text(NINE)
    done = dplc(f"rules test --accept {path}")
    assert done.code == 0 and path.read_text() == DOUBLE.replace("3.0", "2.0"), done.err
    assert 'example "nine" is written as edits of another one: edit what it gives' in done.err
    assert further.read_text() == NINE
