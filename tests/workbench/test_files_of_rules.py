"""Examples in a file beside their rules."""

from __future__ import annotations

from pathlib import Path

from dplc.engine.workbench.lenses import rules_file


def test_the_file_that_examples_belong_to() -> None:
    assert rules_file(Path("rules/rows.examples.rw")) == Path("rules/rows.rw")
    assert rules_file(Path("rules/rows.rw")) == Path("rules/rows.rw")
