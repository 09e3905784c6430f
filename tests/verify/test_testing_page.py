"""The page about rules under pytest is true: what stands in it runs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from test_check_command import plugin

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "examples" / "rules"
PAGE = (ROOT / "docs/guides/test_rules.md").read_text()


def test_the_page_runs(pytester: pytest.Pytester) -> None:
    codes = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(codes) == 2
    shutil.copy(RULES / "product_of_exponentials.rw", pytester.path)
    for name, code in zip(("fixture", "strategy"), codes, strict=True):
        pytester.makepyfile(**{f"test_{name}": code})
    pytester.runpytest_inprocess(*plugin()).assert_outcomes(passed=2)
    items = pytester.runpytest_inprocess(*plugin(), "--dplc-check", "--dplc-examples=20", "product_of_exponentials.rw")
    items.assert_outcomes(passed=1)


def test_the_page_has_every_option() -> None:
    plugin_text = (ROOT / "engine/verify/pytest_plugin.py").read_text()
    for option in re.findall(r'addoption\("(--dplc-[\w-]+)"', plugin_text):
        assert option in PAGE, option


def test_a_strategy_asks_for_a_rule_that_is_there() -> None:
    import dplc

    with pytest.raises(dplc.DplcError, match="there is no rule"):
        dplc.programs_of(RULES / "product_of_exponentials.rw", "product_of_exponential")
