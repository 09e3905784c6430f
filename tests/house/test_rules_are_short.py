"""A rule of a schedule is an equation on a page: how many lines it may have, without its examples."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples" / "benches"))

from rule_lines import FOLDER, SIXTEEN, declared_in, of_transform  # noqa: E402

MOST, MOST_OF_SIXTEEN = 40, 25


def test_rules_of_schedules_are_short() -> None:
    found = [(one.lines, one.name) for path in sorted(FOLDER.rglob("*.rw")) for one in declared_in(path)]
    assert len(found) > 90
    assert [one for one in found if one[0] > MOST] == []


def test_the_sixteen_are_shorter() -> None:
    found = [(rule.lines, rule.name) for entry in SIXTEEN for rule in of_transform(entry)[0]]
    assert len(SIXTEEN) == 16 and len(found) > 16
    assert [one for one in found if one[0] > MOST_OF_SIXTEEN] == []


def test_a_long_rule_is_seen(tmp_path: Path) -> None:
    (tmp_path / "long.rw").write_text(
        "## Long.\nrule long on tile\n" + "    a = 1\n" * 40 + '\nexample "x"\n    b = 1\n'
    )
    assert [one.lines for one in declared_in(tmp_path / "long.rw")] == [42]
