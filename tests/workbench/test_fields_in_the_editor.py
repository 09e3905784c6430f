"""Fields of statements and ops in the editor: what may be written, and what a field is."""

from __future__ import annotations

from pathlib import Path

import pytest

from dplc.engine.workbench.document import At, Document, completions, meaning, references
from dplc.engine.workbench.language_server import fixes

TEXT = """\
rule mine(U: int in {2, 4} = 2) on tile
match
    for k in 0..K serial:
        a = Stage(b, origin=(0), box=(i:4), depth=1)
rewrite
    for k in 0..K serial unroll=U:
        Sync()

rule other on torch
match
    y = Softmax(x, dim=d)
rewrite
    y[bs..] = exp(x[bs..])
"""


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Document:
    made = Document(tmp_path_factory.mktemp("rules") / "mine.rw")
    made.problems(TEXT)
    return made


def place(document: Document, text: str) -> At:
    """The position behind the last character of a text that stands once."""
    before = document.text[: document.text.index(text) + len(text)]
    return At(document, before.count("\n"), len(before.rpartition("\n")[2]))


@pytest.mark.parametrize(
    ("at", "says"),
    [
        ("for k", "`k` is a name"),
        ("0..K", "`K` is an expression"),
        ("y = Softmax(x", "`x` is a tensor value"),
        ("serial unroll", "field `unroll` of `For`: int, else 1"),
        ("depth", "field `depth` of `Stage`: int, else 1"),
        ("dim", "field `dim` of `Softmax`: int"),
    ],
)
def test_a_variable_or_a_field_says_what_it_is(document: Document, at: str, says: str) -> None:
    assert meaning(place(document, at)) == says


def test_the_bound_of_a_loop_is_a_use_of_its_variable(document: Document) -> None:
    assert [one.line for one in references(place(document, "0..K"))] == [2, 5]


def test_a_loop_offers_the_fields_that_have_no_place_in_its_head(document: Document) -> None:
    names = [found.name for found in completions(place(document, "serial u")) if found.kind == "field"]
    assert names == ["step", "unroll"]


def test_behind_an_equals_sign_stand_values_and_each_name_once(document: Document) -> None:
    found = completions(place(document, "serial unroll="))
    assert not [one for one in found if one.kind == "field"]
    assert [one.kind for one in found if one.name == "U"] == ["parameter"]


def test_an_axis_offers_its_roles(tmp_path: Path) -> None:
    document = Document(tmp_path / "mine.rw")
    document.problems("rule mine on tile\nmatch\n    Tile(i:32=")
    found = completions(place(document, "Tile(i:32="))
    assert [one.name for one in found] == ["BLOCK", "THREAD", "REG", "VEC"]


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("@repaet\nrule mine on tensor", "@repeat\nrule mine on tensor"),
        ("@repeat\nrule mine on tensr", "@repeat\nrule mine on tensor"),
        ("rule mine on tensor\nmatch\n    y = add(x, zz)", "rule mine on tensor\nmatch\n    y = add(x, _)"),
    ],
)
def test_a_fix_changes_what_is_wrong_where_it_stands(wrong: str, right: str, tmp_path: Path) -> None:
    rest = "\nrewrite\n    y = tanh(x)\n" if "match" in wrong else "\nmatch\n    y = exp(x)\nrewrite\n    y = tanh(x)\n"
    document = Document(tmp_path / "mine.rw")
    (error,) = [found for found in document.problems(wrong + rest) if getattr(found, "severity", "") != "warning"]
    assert error.span is not None
    told = f"{error.what}\nhelp: {error.hint}"
    ((_, fix),) = fixes(document, told, error.span.line - 1, error.span.column)
    lines = (wrong + rest).splitlines(keepends=True)
    start, end = fix.range.start, fix.range.end
    lines[start.line] = lines[start.line][: start.character] + fix.new_text + lines[start.line][end.character :]
    assert "".join(lines) == right + rest
