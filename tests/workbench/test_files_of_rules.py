"""Examples in a file beside their rules."""

from __future__ import annotations

from pathlib import Path

from dplc.engine.workbench.document import At, Document, definition, references
from dplc.engine.workbench.language_server import fixes, rules_file


def test_the_file_that_examples_belong_to() -> None:
    assert rules_file(Path("rules/rows.examples.rw")) == Path("rules/rows.rw")
    assert rules_file(Path("rules/rows.rw")) == Path("rules/rows.rw")


def at(folder: Path, text: str, before: str) -> At:
    """The position behind the first occurrence of a text in a file of the folder."""
    document = Document(folder / "mine.rw")
    document.problems(text)
    above = text[: text.index(before) + len(before)]
    return At(document, above.count("\n"), len(above.rpartition("\n")[2]))


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
    named = {
        word: definition(at(tmp_path, RULE, word))
        for word in ("mine", "U", "axes", "body", "beside", "most_unrolled", "size", "Tile", "require")
    }
    assert [word for word, is_ours in named.items() if not is_ours] == ["size", "Tile", "require"]


def test_a_pass_of_an_order_is_one_of_ours(tmp_path: Path) -> None:
    """It is called after a file of rules; no rule has the name."""
    text = "pipeline torch\n    pass activations after elementwise\n"
    named = {word: bool(definition(at(tmp_path, text, word))) for word in ("torch", "activations", "after")}
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
    fact = at(tmp_path, GROUP, "fact of_few(")
    assert [(place.line, place.column) for place in references(fact)] == [(fact.line, 12), (fact.line, 30)]


def test_the_definition_of_a_group_of_guards_is_found(tmp_path: Path) -> None:
    guards = at(tmp_path, GROUP, "guards s")
    (found,) = definition(guards)
    assert (found.line, found.column, found.end) == (guards.line, 7, 12)


def test_an_example_is_inserted_below_a_rule_with_remarks(tmp_path: Path) -> None:
    ((_, edit),) = fixes(at(tmp_path, GROUP, "rule").document, "no example shows it fire", 0, 0)
    assert edit.range.start.line == at(tmp_path, GROUP, '"flat"\nrewrite\n    y = tanh(x)\n').line


def test_a_rule_reads_the_fact_of_its_own_level(tmp_path: Path) -> None:
    assert [entry.levels for entry in at(tmp_path, GROUP, "rule").known("widest")] == [("tensor",)]


FIELDS = """\
rule deeper(depth: int in {2, 3} = 2) on tile
match
    a: Stage(depth=1)
require depth > 1 else "few"
rewrite
    a.. with depth=depth
example "three" (depth=3)
    a = Stage(b, origin=(0), box=(i:4), depth=1)
gives
    a = Stage(b, origin=(0), box=(i:4), depth=3)
"""


def test_a_field_named_like_a_variable_is_no_use_of_it(tmp_path: Path) -> None:
    uses = [(0, 12), (3, 8), (5, 19), (6, 17)]
    assert [(place.line, place.column) for place in references(at(tmp_path, FIELDS, "rule deeper(d"))] == uses
    (bound,) = definition(at(tmp_path, FIELDS, "depth=de"))
    assert (bound.line, bound.column) == uses[0]
    assert not definition(at(tmp_path, FIELDS, "with de"))
