"""A page that is viewed again is whole at once; what it says is what a compile says, which corrects it."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from view_programs import EXPONENTIALS, RULE
from view_waiting import until

from dplc.codegen.target import target
from dplc.engine.capture.text import capture_text
from dplc.engine.view import kept_page
from dplc.engine.view.kept_page import PARTS, KeptPage
from dplc.engine.view.live_page import LivePage, News
from dplc.engine.view.session import LiveProgram
from dplc.engine.view.wishes import Switches

View = Callable[..., tuple[LiveProgram, "Watched"]]


class Watched(LivePage):
    """Keeps what was shown, in order."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        super().__init__(EXPONENTIALS)

    def _put(self, parts: Any, said: Any) -> News:
        self.seen.append(dict(parts))
        return super()._put(parts, said)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own."""
    monkeypatch.setenv("DPLC_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "my.rw"
    file.write_text("# no rule yet\n")
    return file


@pytest.fixture
def view(rules: Path) -> Iterator[View]:
    """What `dplc view` does, without its server: the program and its page."""
    programs: list[LiveProgram] = []

    def begin() -> tuple[LiveProgram, Watched]:
        kept, shown = KeptPage([EXPONENTIALS], [rules]), Watched()
        shown.show(**kept.found())
        programs.append(
            LiveProgram(capture_text(EXPONENTIALS), EXPONENTIALS, [rules], (), target(), shown=shown, kept=kept)
        )
        return programs[-1], shown

    yield begin
    for program in programs:
        program.close()


def viewed(view: View, rules: Path) -> dict[str, Any]:
    """Compiled, priced and kept: what is found of it."""
    program, shown = view()
    assert not program.compile("started").error
    found: dict[str, Any] = until(KeptPage([EXPONENTIALS], [rules]).found)
    assert all(found[name] == json.loads(json.dumps(shown.record[name])) for name in PARTS)
    return found


def test_a_page_that_was_viewed_is_whole_before_anything_is_compiled(view: View, rules: Path) -> None:
    assert KeptPage([EXPONENTIALS], [rules]).found() == {}
    kept = viewed(view, rules)
    assert kept["effects"] and kept["kept"] > 0
    program, shown = view()
    assert all(shown.record[name] == kept[name] for name in PARTS)
    before = len(shown.seen)
    news = program.compile("started")
    assert news.compiles == 1 and not news.diff and not news.error
    told = {name for parts in shown.seen[before:] for name, part in parts.items() if part is not None}
    assert told == {"stages", "timings", "switches"}  # all that was shown is true, prices and registers too
    assert "kept" not in shown.record and shown.record["effects"] == kept["effects"]
    assert program.parameters("no rule") == []


def test_what_was_kept_is_corrected_where_a_compile_differs(view: View, rules: Path) -> None:
    kept = viewed(view, rules)
    kept["columns"][-1]["lines"][3] = "something else"
    keeping = KeptPage([EXPONENTIALS], [rules])
    keeping.keep(keeping.key(), kept)
    program, shown = view()
    assert "something else" in shown.record["columns"][-1]["lines"]
    before = len(shown.seen)
    news = program.compile("started")
    columns = [parts["columns"] for parts in shown.seen[before:] if "columns" in parts]
    assert len(columns) == 1 and len(columns[0]) == 7  # nothing of the page goes before all that is new is there
    assert "-something else" in news.diff

    def corrected() -> bool:
        found = keeping.found()  # nothing between one page and the next
        return bool(found) and "something else" not in found["columns"][-1]["lines"]

    assert until(corrected)


def test_a_page_is_found_by_all_that_decided_it(rules: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def key(text: str = EXPONENTIALS) -> str:
        return KeptPage([text], [rules]).key()

    keys = [key(), key(EXPONENTIALS + " ")]
    rules.write_text(RULE)
    keys.append(key())
    monkeypatch.setenv("DPLC_ANYTHING", "1")
    keys.append(key())
    monkeypatch.setattr(kept_page, "version", lambda name: "another")
    keys.append(key())
    ours = tmp_path / "ours"
    (ours / "rules").mkdir(parents=True)
    (ours / "rules" / "some.rw").write_text("")
    monkeypatch.setattr(kept_page, "ROOT", ours)
    keys.append(key())
    (ours / "rules" / "some.rw").write_text("# changed\n")
    keys.append(key())
    assert len(set(keys)) == len(keys) and key() == keys[-1]
    keeping = KeptPage([EXPONENTIALS], [rules])
    rules.unlink()
    assert keeping.key() == "" and keeping.found() == {}


def test_a_rule_that_is_saved_has_a_page_of_its_own_and_a_switch_none(view: View, rules: Path) -> None:
    viewed(view, rules)
    program, shown = view()
    program.compile("started")
    rules.write_text(RULE)
    program.compile("saved")
    found = until(KeptPage([EXPONENTIALS], [rules]).found)
    assert "product_of_exponentials" in found["rules"]
    program.compile("changed on the page", Switches(frozenset({"product_of_exponentials"})))
    until(lambda: shown.record["effects"] and shown.record["kernels"][0]["predicted"])
    assert "product_of_exponentials" not in shown.record["rules"]
    assert "product_of_exponentials" in KeptPage([EXPONENTIALS], [rules]).found()["rules"]


@pytest.mark.parametrize("harm", ["not JSON", "{}", "[1]", "writable"])
def test_what_is_damaged_or_may_be_anothers_is_not_shown(view: View, rules: Path, folder: Path, harm: str) -> None:
    viewed(view, rules)
    (file,) = (folder / "pages").rglob("*.json")
    assert not file.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if harm == "writable":
        file.chmod(0o666)
    else:
        file.write_text(harm)
    assert KeptPage([EXPONENTIALS], [rules]).found() == {}
