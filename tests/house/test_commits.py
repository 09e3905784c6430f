"""Subjects of commits are imperative and at most 72 characters long (docs/contributing/style.md)."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FIRST = re.compile(r"[A-Z][a-z]+(?=[ ,-])")
NOT_IMPERATIVE = re.compile(r"(?:A|An|The|This|It|No|Of|What|Where|Some|Wip|\w+(?:ed|ing|[^s]s))$")
IMPERATIVE = {"Bring", "Embed", "Feed", "Need", "Seed", "Focus", "Bias"}


def fault(subject: str) -> str:
    """Return the rule that a subject breaks, or nothing."""
    if len(subject) > 72:
        return f"{len(subject)} characters: at most 72"
    word = FIRST.match(subject)
    if word is None or (NOT_IMPERATIVE.match(word[0]) and word[0] not in IMPERATIVE):
        return "begin with an imperative: Add, Fix, Merge .."
    return "a full stop at the end" if subject.endswith(".") else ""


def test_subjects_of_commits_since_this_check() -> None:
    def log(*options: str) -> list[str]:
        done = subprocess.run(["git", "log", *options], cwd=ROOT, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    added = log("--diff-filter=A", "--format=%H", "--", str(Path(__file__).relative_to(ROOT)))
    subjects = log("--no-merges", "--format=%s", f"{added[-1]}..HEAD") if added else []
    assert {subject: fault(subject) for subject in subjects if fault(subject)} == {}


@pytest.mark.parametrize(
    ("subject", "right"),
    [
        ("Merge the modules of ir by subject", True),
        ("Process rows in groups", True),
        ("Types", False),
        ("CONTRIBUTING: no time that nobody has measured", False),
        ("A walk over 135 tiles shows what one over 420 shows", False),
        ("Fixed a test", False),
        ("Adds a test", False),
        ("Add a test that has a subject of more than seventy-two characters in its line", False),
    ],
)
def test_a_subject_is_judged_by_its_form(subject: str, right: bool) -> None:
    assert (fault(subject) == "") == right
