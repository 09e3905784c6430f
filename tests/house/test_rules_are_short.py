"""A rule of a schedule is an equation on a page: how many lines it may have, without its examples."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

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


def examples_of(text: str) -> int:
    """How many lines of a rule file are examples."""
    inside, found = False, 0
    for line in text.splitlines():
        if line.strip() and not line[0].isspace():
            inside = line.startswith("example") or (inside and line.startswith("gives"))
        found += inside and bool(line.strip())
    return found


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.rw")), ids=lambda path: path.name)
def test_examples_are_half_of_a_file_at_most(path: Path) -> None:
    """The one that explains a rule stands in it; the others, and the refusals, in the file beside it."""
    if not path.name.endswith(".examples.rw"):
        text = path.read_text()
        assert 2 * examples_of(text) <= len(text.splitlines()), f"move some to {path.stem}.examples.rw"


def test_examples_are_counted() -> None:
    assert examples_of('rule r on tile\nexample "a"\n    pass\ngives\n    pass\n\nrule q on tile\n    pass\n') == 4


def test_a_long_rule_is_seen(tmp_path: Path) -> None:
    (tmp_path / "long.rw").write_text(
        "## Long.\nrule long on tile\n" + "    a = 1\n" * 40 + '\nexample "x"\n    b = 1\n'
    )
    assert [one.lines for one in declared_in(tmp_path / "long.rw")] == [42]
