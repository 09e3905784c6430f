"""Slips of who writes rules, told where they are and with what to do: what the editor shows, too."""

from __future__ import annotations

import pytest

from dplc.ir.diagnostic import DplcError, Source
from dplc.ir.text.parse import parse

HEAD = "rule r on tile\nmatch\n    Tile(axes..):\n        body..\n"
SLIPS = {
    "a guard without a reason": ("where size(axes) > 0\nrewrite\n    pass\n", 5, "a `where` without its reason", "because"),
    "the last guard without a reason": ("prefer a\n", 5, "a `prefer` without its reason", "because"),
    "an open bracket": ("let n = f(a,\nrewrite\n    pass\n", 5, "`(` is never closed", "write `)`"),
    "an open text": ('where a because "x\nrewrite\n    pass\n', 5, "a text without its end", '`"`'),
    "an indentation between two": (
        "rewrite\n    Tile(axes..):\n      if a:\n        b..\n   c..\n", 9, "fits no block around it", "4 spaces",
    ),
    "tabs among spaces": ("rewrite\n\tpass\n    pass\n", 7, "fits no block around it", "tab counts as 8"),
    "names of the grammar": ("where a + * b\n", 5, "unexpected `*`", "a number, `{`"),
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
