"""What a split says without a word is asked at every firing: its parts are all values of what is split."""

from __future__ import annotations

from pathlib import Path

import pytest
from trial import TARGET, block, fire

from dplc.engine.language.rule import load
from dplc.engine.rewrite.statements.driver import Engine
from dplc.ir.diagnostic import DplcError

SPLIT = """\
rule blocks(B: int in {2, 4, 8} = 4) on tile
match
    Tile(i:M=THREAD):
        body..
split i:M => %s
rewrite
    Tile(i..):
        body..
"""
COPY = "Tile(i:%s=THREAD):\n    a = load x[i]\n    y[i] = a"
SIZED = "kernel f(x: f32[s], s: 1..64%s) -> y: f32[s]:\n    Tile(i:s=THREAD):\n        a = load x[i]\n        y[i] = a"


def said(split: str, program: str, **parameters: int) -> str:
    with pytest.raises(DplcError) as error:
        fire(SPLIT % split, program, **parameters)
    return error.value.render()


@pytest.mark.parametrize("size", [5, 7, 9, 13, 97])
def test_parts_that_leave_values_out_are_an_error_at_the_split(size: int) -> None:
    assert (
        said("i_o:M // B=BLOCK, i:B=THREAD", COPY % size)
        == f"""\
rules/tile/001_test1.rw:5:7: error: rule `blocks`: the parts of `i` leave values out: (M // B) * B is {size // 4 * 4}, of {size}
 5 | split i:M => i_o:M // B=BLOCK, i:B=THREAD
   |       ^
  help: a `//` says that the parts divide it: ask for that in a `require`, or write `ceildiv(M, ..)`"""
    )


def test_parts_that_divide_are_no_more_than_what_is_split() -> None:
    assert "are more: (M // B + 1) * B is 16, of 12" in said("i_o:M // B + 1=BLOCK, i:B=THREAD", COPY % 12)


def test_parts_under_a_guard_may_be_more_but_not_fewer() -> None:
    assert "leave values out: 3 * B is 12, of 13" in said("i_o:3=BLOCK, i:B=THREAD", COPY % 13)
    assert "round up: `ceildiv(M, ..)`" in said("i_o:3=BLOCK, i:B=THREAD", COPY % 13)
    assert "if i_o*4 + i < 11:" in fire(SPLIT % "i_o:3=BLOCK, i:B=THREAD", COPY % 11)


@pytest.mark.parametrize("size", [4, 8, 96])
def test_parts_that_divide_are_put_back(size: int) -> None:
    assert f"Tile(i_o:{size // 4}=BLOCK, i:4=THREAD):" in fire(SPLIT % "i_o:M // B=BLOCK, i:B=THREAD", COPY % size)


def test_a_part_of_a_part_is_asked_too() -> None:
    split = "i_o=BLOCK, row:12 => r:B=REG, i:12 // B=THREAD"
    assert "Tile(i_o:2=BLOCK, r:4=REG, i:3=THREAD):" in fire(SPLIT % split, COPY % 20)
    assert "the parts of `row` leave values out: B * (12 // B) is 8, of 12" in said(split, COPY % 20, B=8)


def test_sizes_are_asked_at_the_numbers_that_tell_most() -> None:
    assert "leave values out: (M // B) * B is 0, of 1" in said("i_o:M // B=BLOCK, i:B=THREAD", SIZED % "")
    assert "i_o:s // 4=BLOCK" in fire(SPLIT % "i_o:M // B=BLOCK, i:B=THREAD", SIZED % " by 4")


def test_what_a_rule_of_somebody_else_makes_is_looked_at(tmp_path: Path) -> None:
    file = tmp_path / "mine.rw"
    file.write_text(
        'rule mine on tile\nmatch\n    Tile(i:M=THREAD):\n        body..\nrequire M > 1  else "one"\n'
        "rewrite\n    Tile(i:M=THREAD, i:1=REG):\n        body..\n"
    )
    rules = load([file], built_in=False)
    with pytest.raises(DplcError, match="not well formed: two axes of a tile are called `i`"):
        Engine(rules).fire("mine", block(COPY % 4), TARGET)
