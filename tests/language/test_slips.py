"""Slips that a page cannot hold: bytes that are no text, marks of editors, long files. `mistakes.md` has all others."""

from __future__ import annotations

from pathlib import Path

import pytest

from dplc.engine.language.check import check, errors
from dplc.engine.language.rule import load
from dplc.ir.diagnostic import DplcError, Source
from dplc.ir.text.parse import _slip_of_line, parse

TENSOR = "rule mine on tensor\nmatch\n    y = {}\nrewrite\n    y = tanh(x)\n"
BYTES = {
    "a zero byte": (TENSOR.format("exp(x\0)"), "3:14: error: unexpected character U+0000"),
    "no UTF-8": (TENSOR.format("exp(x\udcff)"), "3:14: error: byte 0xff is not UTF-8"),
}


@pytest.mark.parametrize("slip", BYTES)
def test_a_byte_that_is_no_text_is_located(tmp_path: Path, slip: str) -> None:
    text, said = BYTES[slip]
    told = first_error(tmp_path / "mine.rw", text.encode("utf-8", "surrogateescape"))
    assert told.startswith(f"mine.rw:{said}") and "^" in told and "\n  help: " in told, told


def test_long_files_with_a_slip_are_quick() -> None:
    text = "rule r on tile\nmatch\n    Tile(axes..):\n        body..\n" + "let a = f(1)\n" * 5000
    with pytest.raises(DplcError, match="fits no block"):
        parse(Source("mine.rw", text + "rewrite\n    if a:\n        b..\n      c..\n"))


def test_a_tab_may_stand_on_the_line_behind() -> None:
    """What does not fit may be the line before the tab: where the parser stops, and one line on."""
    for line in (3, 4):
        found = _slip_of_line(Source("mine.rw", "a\n    b\nc\n\td\n"), line)
        assert found is not None and found.span is not None and found.span.line == 4
    assert _slip_of_line(Source("mine.rw", "a\n    b\nc\n\td\n"), 2) is None


def test_what_stands_below_a_pipeline_is_no_guard() -> None:
    with pytest.raises(DplcError) as caught:
        parse(Source("mine.rw", TENSOR.format("exp(x)") + "\npipeline tensor\nsize(x) > 3\n"))
    assert "a guard" not in caught.value.what


@pytest.mark.parametrize("ends", [b"\n", b"\r\n"])
def test_marks_of_other_editors_are_no_slips(tmp_path: Path, ends: bytes) -> None:
    assert not first_error(
        tmp_path / "mine.rw", b"\xef\xbb\xbf" + TENSOR.format("exp(x)").encode().replace(b"\n", ends)
    )


def test_a_variable_may_have_the_name_of_a_fact(tmp_path: Path) -> None:
    """Facts are called, variables are not: `let size = ..` beside `size(..)` says what it says."""
    rule = "rule r on tile\nmatch\n    Tile(axes..):\n        body..\nlet size = 3\n"
    rule += 'require size(loops(body)) < size else "few"\nrewrite\n    Tile(axes..):\n        body..\n        Sync()\n'
    assert not first_error(tmp_path / "mine.rw", rule.encode())


def first_error(path: Path, data: bytes) -> str:
    """The first error of a file, as it is printed; empty if there is none."""
    path.write_bytes(data)
    try:
        found = errors(check(load([path]), {str(path)}))
    except DplcError as error:
        return error.render().replace(f"{path.parent}/", "")
    return found[0].render().replace(f"{path.parent}/", "") if found else ""
