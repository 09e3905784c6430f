"""The store: what is kept, what is found, which rule edits matter, exports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from entries import OTHER, SCHEDULE, key, tuned

from dplc.engine.language.rule import BUILT_IN, RuleSet, load
from dplc.engine.store.store import (
    Attempt,
    RuleDigests,
    Score,
    SqliteStore,
    default_path,
    export_lines,
    import_lines,
)
from dplc.ir.diagnostic import DplcError


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    return SqliteStore(tmp_path / "tuning.sqlite")


# ---- what is kept


def test_what_is_put_is_found_again(store: SqliteStore) -> None:
    assert store.get(key()) is None
    assert store.put(key(), tuned())
    assert store.get(key()) == tuned()
    assert store.get(key(1)) is None
    assert store.get(key(device="another")) is None
    store.close()
    assert SqliteStore(store.path).get(key()) == tuned()


def test_only_what_is_better_is_kept(store: SqliteStore) -> None:
    assert store.put(key(), tuned(2e-6))
    assert not store.put(key(), tuned(3e-6, schedule=OTHER))
    assert not store.put(key(), tuned(2e-6, schedule=OTHER))
    assert store.put(key(), tuned(1e-6, schedule=OTHER))
    assert [entry.tuned.schedule for entry in store.select()] == [OTHER]


def test_predicted_and_measured_do_not_mix(store: SqliteStore) -> None:
    assert store.put(key(), tuned(1e-6))
    assert store.put(key(), tuned(5e-6, "measured", OTHER, details={"assembler": "nvrtc 13.5"}))
    assert not store.put(key(), tuned(6e-6, "measured", details={"assembler": "nvrtc 13.5"}))
    found = store.get(key())
    assert found is not None and (found.basis, found.seconds, found.schedule) == ("measured", 5e-6, OTHER)
    assert sorted((entry.tuned.basis, entry.key.tools) for entry in store.select()) == [
        ("measured", "dplc 1; nvrtc 13.5"),
        ("predicted", "dplc 1; model 1"),
    ]


def test_predictions_of_another_model_are_not_compared(store: SqliteStore) -> None:
    """New constants of a device: old figures neither win nor lose against new ones."""
    assert store.put(key(), tuned(1e-6))
    new = key(tools="dplc 1; model 2")
    assert store.put(new, tuned(9e-6, schedule=OTHER))
    assert store.get(new) == tuned(9e-6, schedule=OTHER)
    assert store.get(key()) == tuned(1e-6)


def test_what_is_no_time_is_refused(store: SqliteStore) -> None:
    for seconds in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(DplcError, match="not a time"):
            store.put(key(), tuned(seconds))
    assert store.select() == []


def test_attempts_are_remembered(store: SqliteStore) -> None:
    wrong = Score(None, "measured", "wrong", "off by 0.1", {"assembler": "nvrtc 13.5"})
    store.record(key(), [Attempt(SCHEDULE, "p", wrong, "hill", 0, 1)] * 3)
    assert store.counts() == {"entries": 0, "attempts": 3, "kernels": 0}


def test_the_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DPLC_CACHE_DIR", str(tmp_path / "cache"))
    assert default_path() == tmp_path / "cache" / "tuning.sqlite"
    with SqliteStore() as store:
        assert store.put(key(), tuned())
    assert default_path().is_file()


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


def rules(tmp_path: Path, **edits: tuple[str, str]) -> RuleSet:
    """The built-in rules and those above, with texts replaced in a file."""
    folder = tmp_path / "rules"
    folder.mkdir(exist_ok=True)
    for name, text in RULES.items():
        old, new = edits.get(name.removesuffix(".rw"), ("", ""))
        assert old in text
        (folder / name).write_text(text.replace(old, new) if old else text)
    return load([folder])


def digest(rules: RuleSet, name: str) -> str | None:
    return RuleDigests(rules).digest(name)


@pytest.mark.parametrize(
    ("edit", "same"),
    [
        (("it must be positive", "no other value makes sense"), True),
        (("Documentation of a rule", "Other documentation"), True),
        (("## Documentation of a rule.\n", "\n\n"), True),
        (("V > 0", "V > 1"), False),
        (("= 4", "= 2"), False),
        (("    Wait()\nrequire", "    Sync()\nrequire"), False),
        (("rewrite\n    Sync()\n    Sync()", "rewrite\n    Sync()"), False),  # the local rule
    ],
)
def test_what_an_edit_changes(tmp_path: Path, edit: tuple[str, str], same: bool) -> None:
    before = digest(rules(tmp_path), "used")
    assert before is not None
    after = digest(rules(tmp_path, used=edit), "used")
    assert (after == before) is same


def test_an_edit_invalidates_only_what_used_the_rule(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    first = rules(tmp_path)
    fires = tuned(schedule=(*SCHEDULE, OTHER[0].__class__("used", "used", "0/0", {"V": 2})))
    with SqliteStore(path, first) as store:
        assert store.put(key(1, rules=first.digest), fires)
        assert store.put(key(2, rules=first.digest), tuned())
    for edits, kept in (
        ({"unused": ("Wait()", "Sync()")}, [True, True]),
        ({"used": ("V > 0", "V > 1")}, [False, True]),
        ({"used": ("Documentation", "Prose")}, [True, True]),
    ):
        edited = rules(tmp_path, **edits)
        assert edited.digest != first.digest
        with SqliteStore(path, edited) as store:
            assert [store.get(key(n, rules=edited.digest)) is not None for n in (1, 2)] == kept, edits


@pytest.mark.parametrize("name", ["tile/canonical", "tile/axes/tileify", "kernel/addresses"])
def test_some_rules_concern_every_schedule(tmp_path: Path, name: str) -> None:
    """Canonical rules, those that make the first Tile, those on Kernel IR: nobody lists when they fire."""
    text = (BUILT_IN / f"{name}.rw").read_text()
    again = text.replace("\nrule ", "\noverride rule ").replace("\nrequire ", "\n\nrequire ")
    path = tmp_path / f"{name.split('/')[1]}.rw"
    path.write_text(again)
    base = RuleDigests(load()).used(SCHEDULE)
    assert RuleDigests(load([path])).used(SCHEDULE) == base
    first = again.index("\nrequire ")
    path.write_text(again[:first] + again[again.index("\n", first + 1) :])  # a guard less
    changed = RuleDigests(load([path])).used(SCHEDULE)
    assert len([rule for rule in base if changed[rule] != base[rule]]) == 1


def test_a_rule_of_a_user_that_was_never_offered(tmp_path: Path) -> None:
    """Who writes a rule sees it fire, whatever the store says; a rule that is taken out does not come back either."""
    path = tmp_path / "t.sqlite"
    base = load()
    with SqliteStore(path, base) as store:
        assert store.put(key(rules=base.digest), tuned())
    for text, kept in ((RULES["unused.rw"], False), ("without xor_smem\n", False), ("without tma_copy\n", True)):
        (tmp_path / "mine.rw").write_text(text)
        mine = load([tmp_path / "mine.rw"])
        with SqliteStore(path, mine) as store:
            assert (store.get(key(rules=mine.digest)) is not None) is kept, text


def test_without_a_rule_set_only_the_same_rules_are_found(store: SqliteStore) -> None:
    store.put(key(), tuned())
    assert store.get(key(rules="others")) is None


# ---- exports


def filled(path: Path, order: list[int]) -> SqliteStore:
    store = SqliteStore(path)
    for number in order:
        store.put(key(number), tuned((number + 1) * 1e-6))
        store.put(key(number), tuned((number + 2) * 1e-6, "measured"))
    return store


def test_exports_are_sorted_and_the_same(tmp_path: Path) -> None:
    one = export_lines(filled(tmp_path / "a.sqlite", [0, 1, 2]).select())
    two = export_lines(filled(tmp_path / "b.sqlite", [2, 0, 1]).select())
    assert one == two
    lines = one.splitlines()
    assert json.loads(lines[0]) == {"dplc_schedules": 1}
    assert [json.loads(line)["key"]["kernel"] for line in lines[1:]] == [f"kernel{n}" for n in (0, 0, 1, 1, 2, 2)]
    assert str(tmp_path) not in one


def test_an_export_keeps_ranges(tmp_path: Path) -> None:
    sized = key(7, ranges=((9, 64, 1),))
    with SqliteStore(tmp_path / "a.sqlite") as store:
        store.put(sized, tuned())
        (entry,) = store.exact(sized)
    assert entry.key == sized
    file = tmp_path / "share.jsonl"
    file.write_text(export_lines([entry]))
    assert import_lines(file) == [entry]


def test_an_export_can_be_imported_and_merged(tmp_path: Path) -> None:
    store = filled(tmp_path / "a.sqlite", [0, 1, 2])
    file = tmp_path / "share.jsonl"
    file.write_text(export_lines(store.select()))
    other = SqliteStore(tmp_path / "b.sqlite")
    other.put(key(0), tuned(5e-7, schedule=OTHER))
    assert other.add(import_lines(file)) == 5
    assert other.add(import_lines(file)) == 0
    assert other.get(key(1)) == store.get(key(1))
    assert [e.tuned.schedule for e in other.exact(key(0)) if e.tuned.basis == "predicted"] == [OTHER]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not an export"),
        ("{}\n", "not an export"),
        ('{"dplc_schedules":99}\n', "another dplc"),
        ('{"dplc_schedules":1}\n{"kernel":1}\n', r":2: .*kernel"),
        ('{"dplc_schedules":1}\n\x00\n', ":2: "),
    ],
)
def test_what_is_no_export_is_refused_whole(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text(text)
    with pytest.raises(DplcError, match=said):
        import_lines(file)
    with pytest.raises(DplcError, match="cannot read"):
        import_lines(tmp_path / "absent.jsonl")
