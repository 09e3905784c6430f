"""The commands and the test on the page about testing rules run."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import dplc
from dplc.engine.cli.app import main

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "examples" / "rules"
PAGE = (ROOT / "docs/guides/test_rules.md").read_text()


def test_the_page_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shutil.copy(RULES / "product_of_exponentials.rw", tmp_path)
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    names["test_what_is_drawn_are_programs"]()


def test_the_commands_in_continuous_integration_pass_and_fail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commands = re.findall(r"^dplc (.*) my_rules\.rw$", PAGE, re.MULTILINE)
    assert commands == ["rules test", "check"]
    monkeypatch.chdir(tmp_path)
    good = (RULES / "product_of_exponentials.rw").read_text()
    for text, want in ((good, False), (good.replace("exp(add(", "exp(subtract("), True)):
        Path("my_rules.rw").write_text(text)
        for command in commands:
            with pytest.raises(SystemExit) as stop:
                main([*command.split(), "my_rules.rw"])
            assert bool(stop.value.code) == want, command


def test_a_strategy_asks_for_a_rule_that_is_there() -> None:
    with pytest.raises(dplc.DplcError, match="there is no rule"):
        dplc.programs_of(RULES / "product_of_exponentials.rw", "product_of_exponential")
