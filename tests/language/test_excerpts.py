"""A rule that a page shows is the text of its file, word for word."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUN = (
    "docs/tutorials/first_rule.md",
    "docs/tutorials/schedule_rule.md",
    "docs/tutorials/new_statement.md",
)  # whole files that one writes while one reads: tests/docs/test_docs.py runs them
PAGES = [
    path
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md"))
    if "generated" not in path.parts
    if path.relative_to(ROOT).as_posix() not in RUN
    if re.search(r"^rule \w+", path.read_text(), re.MULTILINE)
]
RULES = sorted((*(ROOT / "rules").rglob("*.rw"), *(ROOT / "examples").rglob("*.rw")))
ELISION = "..."  # a line of its own: the page leaves something out


def excerpts(page: str) -> list[str]:
    """The fenced blocks that show a rule."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    return [block for block in blocks if re.search(r"^rule \w+", block, re.MULTILINE)]


def problem(excerpt: str, text: str) -> str:
    """The first part of an excerpt that does not stand in the text, in order; "" if all do."""
    at = 0
    for part in re.split(rf"^{re.escape(ELISION)}\n", excerpt, flags=re.MULTILINE):
        found = text.find(part, at)
        if found < 0:
            return part
        at = found + len(part)
    return ""


def stale(page: str) -> list[str]:
    """What the excerpts of a page say that no file of rules says."""
    wrong = []
    for excerpt in excerpts(page):
        head = re.search(r"^rule \w+.*$", excerpt, re.MULTILINE)
        assert head is not None
        name = head[0].split("(")[0].split(" on ")[0]
        files = [path.read_text() for path in RULES if re.search(rf"^{name}\b", path.read_text(), re.MULTILINE)]
        wrong += (
            [excerpt]
            if not files
            else []
            if any(not problem(excerpt, text) for text in files)
            else [problem(excerpt, files[0])]
        )
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_an_excerpt_is_the_text_of_its_file(page: Path) -> None:
    assert excerpts(page.read_text())
    assert stale(page.read_text()) == []


def test_pages_show_rules() -> None:
    assert {page.relative_to(ROOT).as_posix() for page in PAGES} >= {"README.md", "docs/reference/rule_language.md"}


@pytest.mark.parametrize(
    ("old", "new"), [("is already staged", "was staged"), ("rule stage_inputs", "rule stage_outputs")]
)
def test_a_stale_excerpt_is_seen(old: str, new: str) -> None:
    page = (ROOT / "README.md").read_text()
    assert old in page and len(stale(page.replace(old, new))) == 1
