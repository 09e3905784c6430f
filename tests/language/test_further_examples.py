"""Examples in a file beside the rules: found, run, and wrong ones pointed at."""

from __future__ import annotations

from pathlib import Path

import pytest

from dplc.engine.kernels.examples import run_examples
from dplc.engine.language.check import load_facts
from dplc.engine.language.rule import BUILT_IN, load
from dplc.engine.language.rule_files import refusals_of, rule_paths
from dplc.engine.rewrite.statements.driver import Engine
from dplc.ir.diagnostic import DplcError

load_facts()

RULE = """rule twice on tile
match
    for k in 0..n reduce:
        body..
require n > 4                                    else "too short to unroll"
rewrite
    for k in 0..n reduce unroll=2:
        body..
"""
MORE = """examples twice
example "a long loop"
    for k in 0..8 reduce:
        a = load A[k]
        s <- add(s, a)
gives
    for k in 0..8 reduce unroll=2:
        a = load A[k]
        s <- add(s, a)
example "a short one"
    for k in 0..4 reduce:
        a = load A[k]
        s <- add(s, a)
gives no "too short to unroll"
"""


def written(folder: Path, rule: str = RULE, more: str = MORE) -> Path:
    (folder / "mine.rw").write_text(rule)
    (folder / "mine.examples.rw").write_text(more)
    return folder


def test_examples_beside_a_file_are_those_of_its_rules(tmp_path: Path) -> None:
    for given in (written(tmp_path), tmp_path / "mine.rw"):
        rules = load([given])
        assert [example.title for example in rules.rule("twice").examples] == ["a long loop", "a short one"]
        ran, failures = run_examples(Engine(rules), [rules.rule("twice")])
        assert ran == 2 and not failures


def test_refusals_are_in_the_nearest_folder_for_them(tmp_path: Path) -> None:
    """`refusals/deep/mine.examples.rw` for `deep/mine.rw`, and not in a folder of `deep`."""
    head, refused = MORE.split('example "a short one"')
    (tmp_path / "deep").mkdir()
    written(tmp_path / "deep", more=head)
    file = tmp_path / "refusals" / "deep" / "mine.examples.rw"
    file.parent.mkdir(parents=True)
    file.write_text(f'examples twice\nexample "a short one"{refused}')
    assert refusals_of(tmp_path / "deep" / "mine.rw") == file
    for given in (tmp_path, tmp_path / "deep"):
        rules = load([given])
        assert [example.title for example in rules.rule("twice").examples] == ["a long loop", "a short one"]


def test_a_wrong_one_is_pointed_at_in_its_own_file(tmp_path: Path) -> None:
    rules = load([written(tmp_path, more=MORE.replace("unroll=2", "unroll=4"))])
    _, (failure,) = run_examples(Engine(rules), [rules.rule("twice")])
    assert "mine.examples.rw:2:9" in str(failure.error())


@pytest.mark.parametrize(
    ("rule", "more", "said"),
    [
        (RULE, MORE.replace("examples twice", "examples twise"), "there is no rule `twise` in mine.rw"),
        (RULE, RULE, "a file of examples holds `examples RULE`"),
        (RULE + MORE, MORE, "examples of a rule stand in the rule, or in the file beside it"),
    ],
)
def test_what_does_not_belong_there(tmp_path: Path, rule: str, more: str, said: str) -> None:
    with pytest.raises(DplcError) as caught:
        list(load([written(tmp_path, rule, more)]).rule("twice").examples)
    assert said in caught.value.what and caught.value.span is not None


def test_examples_alone_are_no_rules(tmp_path: Path) -> None:
    written(tmp_path)
    with pytest.raises(DplcError, match="holds examples only"):
        load([tmp_path / "mine.examples.rw"])


def test_an_edited_copy_keeps_the_examples_of_what_it_is_a_copy_of(tmp_path: Path) -> None:
    (copy,) = (path for path in rule_paths(BUILT_IN / "tile") if path.stem == "stage_inputs")
    (tmp_path / "mine.rw").write_text(copy.read_text())
    edited = load([tmp_path / "mine.rw"], copies=True)
    assert len(edited.rule("stage_inputs").examples) == len(load().rule("stage_inputs").examples)
