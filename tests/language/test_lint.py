"""`dplc rules lint`: a file with one of each, what is said of it and where, and our own rules, of which nothing is."""

from __future__ import annotations

from pathlib import Path

import pytest

from dplc.engine.cli.app import main

FILE = """\
rule pieces on tile
match
    for k in 0..K serial:
        body..
require K > 2 else "short"
require 2 > 1 else "always"
rewrite
    for k in 0..K serial:
        Sync()
        body..

@repeat
rule longer on tile
match
    Wait(keep=n)
require n < 9 else "long"
rewrite
    Wait(keep=n + 1)

@local
rule alone on tile
match
    Sync()
rewrite
    Wait(keep=0)
"""
SAID = {
    "`2 > 1` always holds: no program violates it": "6:9",
    "rule `longer`: nothing says that its firings end": "13:6",
    "no rule says `with rule alone(..)`": "21:",
}


@pytest.fixture
def linted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    path = tmp_path / "mine.rw"
    path.write_text(FILE)
    with pytest.raises(SystemExit) as stop:
        main(["rules", "lint", str(path)])
    assert stop.value.code == 1
    printed = capsys.readouterr()
    assert f"{len(SAID)} findings" in printed.out
    return printed.err.replace(str(path), "mine.rw")


def test_each_is_said_at_its_place(linted: str) -> None:
    heads = [line for line in linted.splitlines() if ": warning: " in line]
    for what, place in SAID.items():
        (head,) = [line for line in heads if what in line]
        assert head.startswith(f"mine.rw:{place}"), head
    assert linted.count("^") >= len(SAID)
    assert linted.count("  help: ") == len(SAID)


def test_nothing_is_said_of_our_rules(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["rules", "lint"])
    assert stop.value.code in (0, None), capsys.readouterr().err
