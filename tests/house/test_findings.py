"""The page of findings names tests that exist: what is renamed or removed is noticed there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_every_test_that_is_named_exists() -> None:
    named = set(NAMED.findall((ROOT / "tests" / "findings.md").read_text()))
    gone = []
    for file, test in sorted(named):
        tree = ast.parse((ROOT / file).read_text()) if (ROOT / file).exists() else ast.Module([], [])
        if test not in {
            node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }:
            gone.append(f"{file}::{test}")
    assert not gone and len(named) > 80
