"""The store: what is kept, what is found, which rule edits matter, exports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from entries import OTHER, SCHEDULE, key, tuned

from dplc.engine.language.rule import BUILT_IN, RuleSet, load
from dplc.engine.store.store import (
    Decision,
    RuleDigests,
    SqliteStore,
)
from dplc.ir.diagnostic import DplcError

NVRTC: dict[str, Any] = {"basis": "measured", "details": {"assembler": "nvrtc 13.5"}}


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    return SqliteStore(tmp_path / "tuning.sqlite")


# ---- what is kept


def test_a_schedule_is_found_under_its_key_alone(store: SqliteStore) -> None:
    assert store.get(key()) is None and store.put(key(), tuned())
    store.close()
    again = SqliteStore(store.path)
    assert again.get(key()) == tuned()
    for other in (key(1), key(device="another"), key(arch="sm_80"), key(rules="others")):
        assert again.get(other) is None, other


def test_the_best_of_each_basis_and_tools_is_kept(store: SqliteStore) -> None:
    """Figures of another basis, or of other constants of a device, neither win nor lose against each other."""
    new, faster = key(tools="dplc 1; model 2"), tuned(1e-6, schedule=OTHER)
    for wanted, given, kept in (
        (key(), tuned(2e-6), True),
        (key(), tuned(3e-6, schedule=OTHER), False),
        (key(), tuned(2e-6, schedule=OTHER), False),
        (key(), faster, True),
        (new, tuned(9e-6), True),
    ):
        assert store.put(wanted, given) is kept
    assert store.get(key()) == faster and store.get(new) == tuned(9e-6)
    assert store.put(key(), tuned(5e-6, **NVRTC)) and not store.put(key(), tuned(6e-6, **NVRTC))
    assert store.get(key()) == tuned(5e-6, **NVRTC)
    assert sorted((entry.key.tools, entry.tuned.seconds) for entry in store.select()) == [
        ("dplc 1; model 1", 1e-6), ("dplc 1; model 2", 9e-6), ("dplc 1; nvrtc 13.5", 5e-6),
    ]  # fmt: skip


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_a_number_that_is_not_a_time_is_refused(store: SqliteStore, seconds: float) -> None:
    with pytest.raises(DplcError, match="not a time"):
        store.put(key(), tuned(seconds))
    assert store.select() == []


# ---- rule edits

RULES = {
    "used.rw": """\
## Documentation of a rule.
rule used(V: int in {1, 2, 4} = 4) on tile
match
    Tile(axes.., snake=0):
        body..
    Wait()
require V > 0                                    else "it must be positive"
rewrite
    Tile(axes.., snake=1):
        body.. with rule twice(V)

@local
rule twice(V) on tile
match
    Sync()
rewrite
    Sync()
    Sync()
""",
    "unused.rw": """\
rule unused on tile
match
    Wait()
rewrite
    Sync()
""",
}


def rules(tmp_path: Path, name: str = "", old: str = "", new: str = "") -> RuleSet:
    """The built-in rules and those above, with a text replaced in a file."""
    folder = tmp_path / "rules"
    folder.mkdir(exist_ok=True)
    for file, text in RULES.items():
        assert file != name or old in text
        (folder / file).write_text(text.replace(old, new) if file == name else text)
    return load([folder])


def test_an_edit_invalidates_only_what_used_the_rule(tmp_path: Path) -> None:
    path, first = tmp_path / "t.sqlite", rules(tmp_path)
    fires = tuned(schedule=(*SCHEDULE, Decision("used", "used", "0/0", {"V": 2})))
    with SqliteStore(path, first) as store:
        assert store.put(key(1, rules=first.digest), fires)
        assert store.put(key(2, rules=first.digest), tuned())
    for name, old, new, kept in (
        ("unused.rw", "Wait()", "Sync()", True),
        ("used.rw", "it must be positive", "no other value makes sense", True),
        ("used.rw", "Documentation of a rule", "Other documentation", True),
        ("used.rw", "## Documentation of a rule.\n", "\n\n", True),
        ("used.rw", "V > 0", "V > 1", False),
        ("used.rw", "= 4", "= 2", False),
        ("used.rw", "    Wait()\nrequire", "    Sync()\nrequire", False),
        ("used.rw", "rewrite\n    Sync()\n    Sync()", "rewrite\n    Sync()", False),  # the local rule
    ):
        edited = rules(tmp_path, name, old, new)
        assert edited.digest != first.digest
        with SqliteStore(path, edited) as store:
            assert [store.get(key(n, rules=edited.digest)) is not None for n in (1, 2)] == [kept, True], new


@pytest.mark.parametrize("name", ["tile/canonical", "tile/axes/tileify", "kernel/addresses"])
def test_some_rules_concern_every_schedule(tmp_path: Path, name: str) -> None:
    """Canonical rules, those that make the first Tile, those on Kernel IR: nobody lists when they fire."""
    text = (BUILT_IN / f"{name}.rw").read_text()
    again = text.replace("\nrule ", "\noverride rule ").replace("\nrequire ", "\n\nrequire ")
    path = tmp_path / "mine.rw"
    path.write_text(again)
    base = RuleDigests(load()).used(SCHEDULE)
    assert RuleDigests(load([path])).used(SCHEDULE) == base
    first = again.index("\nrequire ")
    path.write_text(again[:first] + again[again.index("\n", first + 1) :])  # a guard less
    changed = RuleDigests(load([path])).used(SCHEDULE)
    assert len([rule for rule in base if changed[rule] != base[rule]]) == 1


def test_a_rule_of_a_user_that_was_never_offered(tmp_path: Path) -> None:
    """Who writes a rule sees it fire, whatever the store says; a rule that is taken out does not come back either."""
    path, mine, base = tmp_path / "t.sqlite", tmp_path / "mine.rw", load()
    with SqliteStore(path, base) as store:
        assert store.put(key(rules=base.digest), tuned())
    for text, kept in ((RULES["unused.rw"], False), ("without xor_smem\n", False), ("without tma_copy\n", True)):
        mine.write_text(text)
        present = load([mine])
        with SqliteStore(path, present) as store:
            assert (store.get(key(rules=present.digest)) is not None) is kept, text
