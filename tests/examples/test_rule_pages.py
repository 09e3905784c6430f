"""The page of diagnostics is true: each mistake gives its message."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from dplc.engine.workbench.document import Document

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/diagnostics.md"
MISTAKES = re.findall(r"^## (.+?)\n\n```\n(.*?)^```\n\n```\n(.*?)^```", PAGE.read_text(), re.M | re.S)


def test_there_are_fifty_mistakes() -> None:
    assert len(MISTAKES) == 50


def told(text: str) -> str:
    """What the editor says of a file, less missing examples."""
    found = [error.render() for error in Document(Path("mine.rw")).problems(text) if "no example" not in error.what]
    return "\n".join(found) + "\n"


@pytest.mark.parametrize(("title", "text", "said"), MISTAKES, ids=[title for title, _, _ in MISTAKES])
@pytest.mark.sampled(6)
def test_the_editor_says_of_a_mistake_what_the_page_says(title: str, text: str, said: str) -> None:
    assert told(text) == said


@pytest.mark.skipif("DPLC_UPDATE_GOLDEN" not in os.environ, reason="the test above compares the messages of the page")
def test_golden_page_of_diagnostics() -> None:
    """DPLC_UPDATE_GOLDEN=1 writes the messages anew: read the diff."""
    page = PAGE.read_text()
    for _, text, said in MISTAKES:
        page = page.replace(f"{text}```\n\n```\n{said}```", f"{text}```\n\n```\n{told(text)}```")
    PAGE.write_text(page)
