"""The page of diagnostics is true: each mistake gives its message."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dplc.engine.workbench.document import Document

ROOT = Path(__file__).resolve().parents[2]
MISTAKES = re.findall(
    r"^## (.+?)\n\n```\n(.*?)^```\n\n```\n(.*?)^```", (ROOT / "docs/reference/diagnostics.md").read_text(), re.M | re.S
)


def test_there_are_fifty_mistakes() -> None:
    assert len(MISTAKES) == 50


@pytest.mark.parametrize(("title", "text", "said"), MISTAKES, ids=[title for title, _, _ in MISTAKES])
@pytest.mark.sampled(6)
def test_the_editor_says_of_a_mistake_what_the_page_says(title: str, text: str, said: str) -> None:
    found = [error.render() for error in Document(Path("mine.rw")).problems(text) if "no example" not in error.what]
    assert "\n".join(found) == said.rstrip("\n")
