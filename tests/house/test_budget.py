"""The size of the product is bounded by folder, in Python tokens: lines can be packed, tokens cannot."""

from __future__ import annotations

import io
import re
import tokenize
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUDGET = tomllib.loads((ROOT / "tests" / "house" / "budget.toml").read_text())
SLACK = 1.02  # a budget that is higher than this share of the present size is lowered
UNCOUNTED = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
}  # fmt: skip
# Forms that tell the type checker nothing, and the folders where each is counted; [untyped] of budget.toml has the bars.
UNTYPED = {"Any": (r"\bAny\b", "engine"), "type: ignore": ("type: ignore", "engine + ir + codegen")}


def tokens(text: str) -> int:
    """Count the tokens of a Python text without comments, docstrings and line ends."""
    count, begins = 0, True
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in UNCOUNTED:
            count += not (begins and token.type == tokenize.STRING)  # a string that begins a line is a docstring
            begins = False
        begins |= token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    return count


def test_every_folder_is_within_its_budget() -> None:
    found = {
        name: sum(tokens(path.read_text()) for folder in names.split(" + ") for path in _files(folder))
        for name, names in BUDGET["folders"].items()
    }
    over = {name: (size, BUDGET["tokens"][name]) for name, size in found.items() if size > BUDGET["tokens"][name]}
    assert not over, f"larger than their budget: {over}"
    loose = {name: size for name, size in found.items() if size * SLACK < BUDGET["tokens"][name]}
    assert not loose, f"lower these budgets in tests/house/budget.toml: {loose}"


def test_the_product_has_no_more_files_than_its_budget() -> None:
    files = sum(1 for folder in ("engine", "ir", "codegen") for _ in _files(folder))
    assert files <= BUDGET["files"] <= files * SLACK + 1


def test_types_leave_out_no_more_than_their_bars() -> None:
    bars = BUDGET["untyped"]
    for name, (form, folders) in UNTYPED.items():
        texts = (path.read_text() for folder in folders.split(" + ") for path in _files(folder))
        found = sum(len(re.findall(form, text)) for text in texts)
        assert found <= bars[name], f"{found} times `{name}` in {folders}; say what these are"


def test_comments_and_docstrings_are_not_counted() -> None:
    assert tokens('"""A page."""\n\n# why\nx = 1  # one\n') == 3


def _files(name: str) -> list[Path]:
    """The Python files of a folder, or those directly in it for NAME/*."""
    folder = ROOT / name.removesuffix("/*")
    return sorted(folder.glob("*.py") if name.endswith("/*") else folder.rglob("*.py"))
