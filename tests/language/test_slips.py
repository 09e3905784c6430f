"""Slips of who writes rules, told where they are and with what to do: what the editor shows, too."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dplc.engine.language.check import check, errors
from dplc.engine.language.rule import load
from dplc.ir.diagnostic import DplcError, Source
from dplc.ir.text.parse import _slip_of_line, parse

HEAD = "rule r on tile\nmatch\n    Tile(axes..):\n        body..\n"
SLIPS = {
    "a guard without a reason": ("require size(axes) > 0\nrewrite\n    pass\n", 5, "a `require` without its reason", "else"),
    "the last guard without a reason": ("prefer a\n", 5, "a `prefer` without its reason", "else"),
    "an open bracket": ("let n = f(a,\nrewrite\n    pass\n", 5, "`(` is never closed", "write `)`"),
    "an open text": ('require a else "x\nrewrite\n    pass\n', 5, "a text without its end", '`"`'),
    "an indentation between two": (
        "rewrite\n    Tile(axes..):\n      if a:\n        b..\n   c..\n", 9, "fits no block around it", "4 spaces",
    ),
    "tabs among spaces": ("rewrite\n\tpass\n    pass\n", 7, "fits no block around it", "tab counts as 8"),
    "names of the grammar": ("require a + * b\n", 5, "unexpected `*`", "a number, `{`"),
}  # fmt: skip


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_is_told_where_it_is(slip: str) -> None:
    text, line, what, help_ = SLIPS[slip]
    with pytest.raises(DplcError) as caught:
        parse(Source("mine.rw", HEAD + text))
    told = caught.value.render()
    assert told.startswith(f"mine.rw:{line}:") and what in told.split("\n")[0], told
    assert help_ in told, told
    assert "lsqb" not in told and "minus" not in told


def test_long_files_with_a_slip_are_quick() -> None:
    text = HEAD + "let a = f(1)\n" * 5000 + "rewrite\n    if a:\n        b..\n      c..\n"
    with pytest.raises(DplcError, match="fits no block"):
        parse(Source("mine.rw", text))


TENSOR = "rule mine on tensor\nmatch\n    y = {}\n{}rewrite\n    y = tanh(x)\n"
# The file, and its first error: where, what is wrong, and what the rest of the message says.
FILES = {
    "no require": (TENSOR.format("exp(x)", 'known(x) else "no"\n'), "4:1", "a guard without its word", "write `require`"),
    "no else": (TENSOR.format("exp(x)", "require known(x)\n"), "4:16", "a `require` without its reason", "write `else"),
    "no else, a text": (TENSOR.format("exp(x)", 'require known(x) "no"\n'), "4:18", "a reason without its word", "`else`"),
    "the word of a number": (TENSOR.format("exp(x)", 'require known(x) because "no"\n'), "4:18", "unexpected `because`", "write `else`"),
    "an open bracket": (TENSOR.format("exp(tanh(x)", ""), "3:12", "`(` is never closed", "line 4 goes on inside of it: rewrite"),
    "an open bracket in a guard": (TENSOR.format("exp(x)", 'require (known(x) else "no"\n'), "4:9", "`(` is never closed", "`else` stands inside"),
    "a bracket too many": (TENSOR.format("exp(x))", ""), "3:15", "`)` closes no bracket", "take it away"),
    "an open text": (TENSOR.format("exp(x)", 'require known(x) else "no\n'), "4:23", "a text without its end", "on the same line"),
    "other quotes": (TENSOR.format("exp(x)", "require known(x) else \u201cno\u201d\n"), "4:23", "`\u201c` begins no text", 'two `"`'),
    "a tab among spaces": ("rule mine on tile\nmatch\n    a = load B[i..]\n\tSync()\nrewrite\n    Sync()\n", "4:1", "a tab among lines that begin with spaces", "four for each level"),
    "too far in": (TENSOR.format("exp(x)\n      z = exp(x)", ""), "4:1", "this line stands too far in", "line 3 begins no block"),
    "not indented": ("rule mine on tensor\nmatch\ny = exp(x)\n", "3:1", "unexpected `y`", "indent it by 4 spaces"),
    "no colon": ("rule mine on tile\nmatch\n    for k in 0..K serial\n        body..\n", "3:25", "unexpected end of the line", "expected `:`"),
    "no gives": (TENSOR.format("exp(x)", "") + 'example "a"\n    graph g(x: f32[4]) -> y: f32[4]:\n        y[i:4] = exp(x[i])\n\n', "8:27", "unexpected end of the file", "expected `gives`"),
    "no match": ("rule mine on tensor\nrewrite\n    y = exp(x)\n", "1:6", "rule `mine` has no `match`", "what the program has"),
    "no rewrite": ("rule mine on tensor\nmatch\n    y = exp(x)\n", "1:6", "rule `mine` has no `rewrite`", "what it becomes"),
    "no match, no indentation of it": ("rule mine on tensor\n    y = exp(x)\nrewrite\n    y = tanh(x)\n", "2:5", "a pattern without its word", "write `match`"),
    "no require, no else": (TENSOR.format("exp(x)", "known(x)\n"), "4:1", "a guard without its word", "else"),
    "a comparison without either": (TENSOR.format("exp(x)", "size(axes(x)) > 3\n"), "4:1", "a guard without its word", "write `require`"),
    "a comparison right below the head": ("rule mine on tensor\nsize(axes(x)) > 3\nmatch\n    y = exp(x)\n", "2:1", "a guard without its word", "write `require`"),
    "half a condition": (TENSOR.format("exp(x)", 'require 3 < else "no"\n'), "4:13", "unexpected `else`", "not a whole condition"),
    "an open bracket at the end": ("rule mine on tensor\nmatch\n    y = exp(x\n", "3:12", "`(` is never closed", "the file ends inside of it"),
    "an open bracket in the head": ("rule mine(N: int in {1, 2} = 1 on tensor\nmatch\n    y = exp(x)\n", "1:10", "`(` is never closed", "`on` stands inside"),
    "no name": ("rule on tensor\nmatch\n    y = exp(x)\n", "1:5", "a rule without its name", "write `rule mine on tensor`"),
    "a program of another word": (TENSOR.format("exp(x)", "") + 'example "a"\n    torch g(x: f32[4]) -> y: f32[4]:\n        y[i:4] = exp(x[i])\ngives\n    pass\n', "7:5", "`torch` begins no program", "write `graph`"),
    "no on": ("rule mine tensor\nmatch\n    y = exp(x)\n", "1:11", "unexpected `tensor`", "`on LEVEL`"),
    "Python": ("def mine(x):\n    return x\n", "1:1", "unexpected `def`", "a rule file holds rules"),
    "a character": (TENSOR.format("exp(x) ? 1", ""), "3:16", "unexpected character `?`", ""),
    "a zero byte": (TENSOR.format("exp(x\0)", ""), "3:14", "unexpected character U+0000", ""),
    "no UTF-8": (TENSOR.format("exp(x\udcff)", ""), "3:14", "byte 0xff is not UTF-8", "save the file as UTF-8"),
    "an operator of values": (TENSOR.format("x * 2", ""), "3:9", "rule `mine`: this is not a value", "`multiply(a, b)`"),
    "a guard below": (TENSOR.format("exp(x)", "") + 'require known(x) else "no"\n', "6:9", "rule `mine`: a guard below `rewrite`", "between `match` and `rewrite`"),
    "a dtype as a number": ("rule mine on torch\nmatch\n    y = Relu6(x)\nrequire dtype(x) > 3 else \"no\"\nrewrite\n    y[bs..] = x[bs..]\n", "4:9", "rule `mine`: `>` works on numbers and index expressions, not on a dtype", ""),
    "a value before it is made": ("rule mine on torch\nmatch\n    y = Relu6(x)\nrewrite\n    y[bs..] = t[bs..]\n    t[bs..] = x[bs..]\n", "5:15", "rule `mine`: `t` is read before it is made", "line 6 makes it"),
    "a let above": ("rule mine on tensor\nlet n = 2\nmatch\n    y = exp(x)\nrewrite\n    y = tanh(x)\n", "2:5", "rule `mine`: a `let` above `match`", "between `match` and `rewrite`"),
}  # fmt: skip


@pytest.mark.parametrize("slip", FILES)
def test_a_file_with_a_slip(tmp_path: Path, slip: str) -> None:
    text, place, what, rest = FILES[slip]
    told = first_error(tmp_path / "mine.rw", text.encode("utf-8", "surrogateescape"))
    assert told.startswith(f"mine.rw:{place}: error: {what}"), told
    assert rest in told and "^" in told, told
    assert not re.search(r"\b_?[A-Z]{3,}\b", told.replace("LEVEL", "").replace("UTF", "")), told  # of the grammar


# What is underlined of the line, where a slip has a reading of its own.
MARKED = {
    "no require": "known(x)", "no name": " ", "a tab among spaces": "\t", "a program of another word": "torch",
}  # fmt: skip


@pytest.mark.parametrize("slip", MARKED)
def test_what_is_marked(slip: str) -> None:
    with pytest.raises(DplcError) as caught:
        parse(Source("mine.rw", FILES[slip][0]))
    span = caught.value.span
    assert span is not None and span.line == span.end_line
    assert span.source.line(span.line).ljust(span.end_column)[span.column : span.end_column] == MARKED[slip]


def test_a_tab_may_stand_on_the_line_behind() -> None:
    """What does not fit may be the line before the tab: where the parser stops, and one line on."""
    for line in (3, 4):
        found = _slip_of_line(Source("mine.rw", "a\n    b\nc\n\td\n"), line)
        assert found is not None and found.span is not None and found.span.line == 4
    assert _slip_of_line(Source("mine.rw", "a\n    b\nc\n\td\n"), 2) is None


def test_what_stands_below_a_pipeline_is_no_guard() -> None:
    with pytest.raises(DplcError) as caught:
        parse(Source("mine.rw", TENSOR.format("exp(x)", "") + "\npipeline tensor\nsize(x) > 3\n"))
    assert "a guard" not in caught.value.what


@pytest.mark.parametrize("ends", [b"\n", b"\r\n"])
def test_marks_of_other_editors_are_no_slips(tmp_path: Path, ends: bytes) -> None:
    assert not first_error(
        tmp_path / "mine.rw", b"\xef\xbb\xbf" + TENSOR.format("exp(x)", "").encode().replace(b"\n", ends)
    )


def first_error(path: Path, data: bytes) -> str:
    """The first error of a file, as it is printed; empty if there is none."""
    path.write_bytes(data)
    try:
        found = errors(check(load([path]), {str(path)}))
    except DplcError as error:
        return error.render().replace(f"{path.parent}/", "")
    return found[0].render().replace(f"{path.parent}/", "") if found else ""
