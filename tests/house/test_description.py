"""What the package index shows: no link that works in the sources only, every extra, commands that exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TEXT = (ROOT / PROJECT["readme"]).read_text()


def test_no_link_is_dead_there() -> None:
    assert not re.search(r"\]\((?!https?://)", TEXT) and "examples/" not in TEXT


def test_every_extra_is_told() -> None:
    assert set(re.findall(r"dplc\[(\w+)\]", TEXT)) == set(PROJECT["optional-dependencies"]) - {"dev"}


def test_commands_exist() -> None:
    from dplc.engine.cli.app import app

    names = {command.name for command in app.registered_commands} | {group.name for group in app.registered_groups}
    assert set(re.findall(r"^dplc (\w+)", TEXT, re.MULTILINE)) <= names


def test_no_help_points_at_what_no_wheel_has() -> None:
    texts = {path: path.read_text() for folder in ("engine", "codegen", "ir") for path in (ROOT / folder).rglob("*.py")}
    shown = re.compile(r"^(?!\s*#).*(?:hint|help)\s*=.*examples/", re.MULTILINE)
    assert [path.name for path, text in texts.items() if shown.search(text)] == []


def test_the_licence_is_there_and_declared() -> None:
    text = (ROOT / PROJECT["license-files"][0]).read_text()
    assert PROJECT["license"] == "Apache-2.0" and "Apache License" in text and "Version 2.0, January 2004" in text
    assert len(text.splitlines()) > 200


def test_the_third_line_says_what_was_measured() -> None:
    for page in ("README.md", PROJECT["readme"]):
        assert "Measured on an H200" in (ROOT / page).read_text().splitlines()[2]
