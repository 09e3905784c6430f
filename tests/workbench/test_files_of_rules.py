"""Examples in a file beside their rules."""

from __future__ import annotations

from pathlib import Path

from dplc.engine.workbench.document import Document, definition, ours, references
from dplc.engine.workbench.language_server import fixes, rules_file


def test_the_file_that_examples_belong_to() -> None:
    assert rules_file(Path("rules/rows.examples.rw")) == Path("rules/rows.rw")
    assert rules_file(Path("rules/rows.rw")) == Path("rules/rows.rw")


RULE = """\
rule mine(U: int in {2, 4} = 2) on tile
match
    Tile(axes..):
        body..
require size(axes) < beside and U < most_unrolled  else "few"
rewrite
    Sync()
"""


def test_what_can_have_another_name(tmp_path: Path) -> None:
    """What the rule itself, our files or a file beside declare; no fact, no statement, no word of the grammar."""
    (tmp_path / "other.rw").write_text('number beside = 4                                because "so"\n')
    document = Document(tmp_path / "mine.rw")
    document.problems(RULE)

    def declared(word: str) -> bool:
        before = RULE[: RULE.index(word)]
        return ours(document, before.count("\n"), len(before.rpartition("\n")[2]) + 1)

    named = {
        word: declared(word)
        for word in ("mine", "U:", "axes", "body", "beside", "most_unrolled", "size", "Tile", "require")
    }
    assert [word for word, is_ours in named.items() if not is_ours] == ["size", "Tile", "require"]


def test_a_pass_of_an_order_is_one_of_ours(tmp_path: Path) -> None:
    """It is called after a file of rules; no rule has the name."""
    text = "pipeline torch\n    pass activations after elementwise\n"
    document = Document(tmp_path / "mine.rw")
    document.problems(text)
    places = {
        word: text.splitlines()[line].index(word) for word, line in (("torch", 0), ("activations", 1), ("after", 1))
    }
    named = {word: ours(document, int(word != "torch"), at) for word, at in places.items()}
    assert named == {"torch": False, "activations": True, "after": False}


GROUP = """\
rule mine on tensor
match
    y = exp(x)
# A remark among the clauses.
require size(axes(x)) > 1 else "flat"
rewrite
    y = tanh(x)

## Remark of the next declaration.
fact of_few(x: int) -> bool = x < 4

guards small(x):
    require size(axes(x)) < 4 else "large"
"""


def test_a_name_below_a_rule_is_not_a_variable_of_that_rule(tmp_path: Path) -> None:
    document = Document(tmp_path / "mine.rw")
    document.problems(GROUP)
    line = GROUP[: GROUP.index("fact of_few")].count("\n")
    found = references(document, line, len("fact of_few("))
    assert [(place.line, place.column) for place in found] == [(line, 12), (line, 30)]


def test_the_definition_of_a_group_of_guards_is_found(tmp_path: Path) -> None:
    document = Document(tmp_path / "mine.rw")
    document.problems(GROUP)
    line = GROUP[: GROUP.index("guards small")].count("\n")
    (found,) = definition(document, line, len("guards s"))
    assert (found.line, found.column, found.end) == (line, 7, 12)
    assert ours(document, line, len("guards s"))


def test_an_example_is_inserted_below_a_rule_with_remarks(tmp_path: Path) -> None:
    document = Document(tmp_path / "mine.rw")
    document.problems(GROUP)
    ((_, edit),) = fixes(document, "no example shows it fire", 0, 0)
    assert edit.range.start.line == GROUP[: GROUP.index("\n\n## Remark")].count("\n") + 1
