"""All that a rule may name, with sorts and a sentence, from the definitions."""

from __future__ import annotations

from pathlib import Path

from dplc.engine.language.evaluate import FACTS
from dplc.engine.language.rule import LEVELS, load
from dplc.engine.language.sorts import sort_of
from dplc.engine.workbench import reference
from dplc.ir.functions import FUNCTIONS
from dplc.ir.text.read_statements import owners

ROOT = Path(reference.ROOT)


def test_nothing_is_missing_and_everything_has_a_sentence() -> None:
    entries = [*reference.facts(load()), *reference.nodes()]
    names = {entry.name for entry in entries}
    assert {name for _, name in FACTS} | FUNCTIONS.keys() | owners().keys() <= names
    silent = [entry.name for entry in entries if len(entry.sentence) < 6 or not entry.signature.startswith(entry.name)]
    assert not silent
    assert all(entry.levels and set(entry.levels) <= set(LEVELS) for entry in entries)


def test_places_are_definitions() -> None:
    for entry in reference.facts(load()):
        file, _, line = entry.place.partition(":")
        text = (ROOT / file).read_text().splitlines()
        near = "\n".join(text[max(int(line) - 4, 0) : int(line) + 3]) if line else "\n".join(text)
        assert entry.name in near, entry.place


def test_sorts_of_fields_are_words_of_the_language() -> None:
    for entry in reference.nodes():
        for field in entry.fields:
            assert sort_of(field.sort) != sort_of("nonsense") or field.sort.strip("[]") == "any", (entry.name, field)


def test_a_name_may_mean_several_things() -> None:
    assert [entry.levels for entry in reference.facts(load()) if entry.name == "widest"] == [
        ("module", "loop", "tile"),
        ("tensor",),
    ]
    assert [field.name for field in reference.op("Softmax").fields] == ["self", "dim", "dtype"]


def test_what_is_said_of_functions_is_their_algebra() -> None:
    found = [entry for entry in reference.known() if entry.place == "ir/functions.py"]
    assert {entry.name for entry in found} == FUNCTIONS.keys()
    for entry in found:
        function = FUNCTIONS[entry.name]
        assert ("Commutative." in entry.sentence) is function.commutative, entry.name
        assert ("starts from" in entry.sentence) is (function.identity is not None), entry.name
