"""A rule file while one types in it: what is wrong, and what a name in it means, asked without a server."""

from __future__ import annotations

from pathlib import Path

import pytest
from counting import at_most_calls

from dplc.engine.language.rule import BUILT_IN
from dplc.engine.workbench import document as queries
from dplc.engine.workbench.document import At, Document, Request, completions, definition, meaning, references
from dplc.engine.workbench.language_server import diagnostic, fixes

MINE = Path("mine.rw").resolve()  # nobody wrote the file


def at(text: str, before: str, path: Path = MINE) -> At:
    """The position at the end of a text, where that stands first."""
    document = Document(path)
    document.problems(text)
    above = text[: text.index(before) + len(before)]
    return At(document, above.count("\n"), len(above.rpartition("\n")[2]))


FIELDS = """\
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
let n = size(axes(x))
rewrite
    y[bs..] = exp(x[bs..])
"""


@pytest.mark.parametrize(
    ("before", "says"),
    [
        ("for k", "`k` is a name"),
        ("0..K", "`K` is an expression"),
        ("y = Softmax(x", "`x` is a tensor value"),
        ("let n", "`n` is an integer, by `let`, line 12"),
        ("serial unroll", "field `unroll` of `For`: int, else 1"),
        ("depth", "field `depth` of `Stage`: int, else 1"),
        ("dim", "field `dim` of `Softmax`: int"),
    ],
)
def test_a_variable_or_a_field_says_what_it_is(before: str, says: str) -> None:
    assert meaning(at(FIELDS, before)) == says


@pytest.mark.parametrize(
    ("text", "before", "kind", "names"),
    [
        (FIELDS, "serial u", "field", ["step", "unroll"]),  # what has no place in the head of a loop
        (FIELDS, "serial unroll=", "field", []),
        (FIELDS, "Softmax(", "field", ["self", "dim", "dtype"]),
        (FIELDS, "serial unroll=", "parameter", ["U"]),
        ("rule mine on tile\nmatch\n    Tile(i:32=", "=", "constant", ["BLOCK", "THREAD", "REG", "VEC"]),
    ],
)
def test_what_may_follow_is_offered_once(text: str, before: str, kind: str, names: list[str]) -> None:
    offered = completions(at(text, before))
    assert [found.name for found in offered if found.kind == kind] == names


@pytest.mark.parametrize("text", ["without til", "pipeline tile\n    without ", "pipeline tile\n    pass "])
def test_rules_are_offered_where_a_rule_stands(text: str) -> None:
    offered = completions(at(text, text))
    assert {("tileify", "rule"), ("stage_inputs", "rule")} <= {(found.name, found.kind) for found in offered}


# ---- Definitions and references.

GUARDED = """\
rule mine(U: int in {2, 4} = 2) on tile
match
    Tile(axes..):
        body..
require size(axes) < beside and U < most_unrolled  else "few"
rewrite
    Sync()
"""


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
DEEPER = """\
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


@pytest.mark.parametrize(
    ("text", "ours", "others"),
    [
        (GUARDED, ["mine", "U", "axes", "body", "beside", "most_unrolled"], ["size", "Tile", "require"]),
        # a pass is called after a file of rules: no rule has the name
        ("pipeline torch\n    pass activations after elementwise\n", ["activations"], ["torch", "after"]),
        (DEEPER, ["rule deeper(depth"], ["with de"]),  # a field of a statement
    ],
)
def test_names_that_rule_files_declare_are_ours(text: str, ours: list[str], others: list[str], tmp_path: Path) -> None:
    (tmp_path / "other.rw").write_text('number beside = 4                                because "so"\n')
    assert [word for word in ours + others if definition(at(text, word, tmp_path / "mine.rw"))] == ours


@pytest.mark.parametrize(
    ("text", "before", "uses"),
    [
        (FIELDS, "0..K", [(2, 16), (5, 16)]),  # the bound of a loop is a use
        (DEEPER, "rule deeper(d", [(0, 12), (3, 8), (5, 19), (6, 17)]),  # a field of the same name is none
        (DEEPER, "depth=de", [(0, 12), (3, 8), (5, 19), (6, 17)]),
        (GROUP, "fact of_few(", [(9, 12), (9, 30)]),  # `x` is no variable of the rule above
        (GROUP, "guards s", [(11, 7)]),
    ],
)
def test_a_name_is_declared_at_the_first_of_its_uses(text: str, before: str, uses: list[tuple[int, int]]) -> None:
    here = at(text, before)
    assert [(place.line, place.column) for place in references(here)] == uses
    assert [(place.line, place.column) for place in definition(here)] == uses[:1]


@pytest.mark.parametrize(
    ("file", "before", "others"),
    [
        (
            "tile/pipelines/rings.rw",
            "rule pipeline_predicated",
            ["pipeline.rw", "refusals/tile/pipelines/rings.examples.rw", "tile/pipelines/rings.examples.rw"],
        ),
        ("policy.rw", "number most_unrolled", ["tile/axes/mark_unroll.rw"]),
        (
            "tile/registers/permute_register_tile.rw",
            "rule permute_register_tile(V",
            [
                "pipeline.rw",
                "refusals/tile/registers/permute_register_tile.examples.rw",
                "tile/registers/permute_register_tile.examples.rw",
            ],
        ),
        ("tensor/online.rw", "attention_shape", []),  # the reason of a number is a text
    ],
)
def test_uses_go_into_examples_and_pipelines(file: str, before: str, others: list[str]) -> None:
    here = at((BUILT_IN / file).read_text(), before, BUILT_IN / file)
    found = references(here)
    assert {str(place.path.relative_to(BUILT_IN)) for place in found} == {file, *others}
    lines = [place.path.read_text().splitlines()[place.line] for place in found]
    assert {line[place.column : place.end] for line, place in zip(lines, found, strict=True)} == {here.word}


def test_a_rule_reads_the_fact_of_its_own_level() -> None:
    here = at(GROUP, "rule")
    assert [entry.levels for entry in here.known("widest")] == [("tensor",)]


# ---- What is wrong.

THIRD = """\
rule third(N: int in {1, 2} = 1) on tile
match
    Tile(axes..):
        body..
require widest(body, [k]) > N else "narrow"
rewrite
    Tile(axes..):
        body..
"""
RULE = 'rule mine on tensor\nmatch\n    y = exp(x)\nrequire dtype(x) == f32 else "no float"\nrewrite\n    y = tanh(x)\n'
NEXT = "\n# Others.\n\n## Next.\n" + RULE.replace("mine", "next")


@pytest.mark.parametrize(
    ("wrong", "problem", "right"),
    [
        (f"@repaet\n{RULE}", "repaet", f"@repeat\n{RULE}"),
        (RULE.replace("tensor", "tensr"), "tensr", RULE),
        (RULE.replace("exp(x)", "add(x, zz)"), "zz", RULE.replace("exp(x)", "add(x, _)")),
        (
            RULE + NEXT,
            "`mine`: no example shows it fire",
            f'{RULE}example "it fires"\n    y = exp(x)\ngives\n    pass\n{NEXT}',
        ),
        (
            RULE + NEXT,
            "`mine`: no example is refused",
            f'{RULE}example "no float"\n    y = exp(x)\ngives no "no float"\n{NEXT}',
        ),
    ],
)
def test_a_fix_changes_what_is_wrong_where_it_stands(wrong: str, problem: str, right: str) -> None:
    document = Document(MINE)
    (error,) = [found for found in document.problems(wrong) if problem in found.what]
    shown = diagnostic(error, document.name)
    ((_, fix),) = fixes(document, shown.message, shown.range.start.line, shown.range.start.character)
    lines, start, end = wrong.splitlines(keepends=True), fix.range.start, fix.range.end
    before, after = lines[start.line][: start.character], lines[end.line][end.character :]
    assert "".join([*lines[: start.line], before, fix.new_text, after, *lines[end.line + 1 :]]) == right
    assert not [found for found in document.problems(right) if problem in found.what]


def test_a_declaration_that_makes_a_file_wrong_hides_no_rule() -> None:
    wrong = 'number wide = 4 because "so"\n\n' + THIRD.replace("widest", "wiedst")
    errors = [one.what for one in Document(MINE).problems(wrong) if one.severity == "error"]
    assert errors == [
        "`wide` is not a name of a number: two words or more in lower case, joined by `_`",
        "rule `third`: unknown fact or function `wiedst`",
        "rule `third`: unbound variable `k`",
    ]


def test_a_saved_file_is_judged_as_a_whole() -> None:
    """While one types, a rule is judged again where it changed itself: that another shadows it now is told on saving."""
    typed, second = Document(MINE), RULE.replace("mine", "second").replace("tanh", "sin")
    shadowed = RULE.replace('require dtype(x) == f32 else "no float"\n', "") + second

    def shadowing(text: str) -> bool:
        return any("`second`: can never fire" in one.what for one in typed.problems(text))

    assert not shadowing(RULE.replace("f32", "f16") + second) and not shadowing(shadowed)
    typed.forget()
    assert shadowing(shadowed)


LIMITED = """\
number most_parts = 8 because "enough"
## Few.
fact is_few(n: int) -> bool = n <= most_parts
## One.
fact few_of_each(n: int) -> bool = is_few(n) and n > 0
## Mine.
rule mine on tile
match
    for k in 0..K reduce unroll=1:
        body..
require few_of_each(K) else "few"
rewrite
    for k in 0..K reduce unroll=2:
        body..
"""


@pytest.mark.parametrize(
    ("path", "text", "changes"),
    [
        ("mine.rw", THIRD, [("rule", "\n\nrule"), ("match", "match  "), ("rule", "\ufeffrule"), ("body..", "body.. (")]),
        ("tensor/reassociate.rw", None, [("##", "\n\n##"), ("\nrule", "\n\n# new\n\nrule"), ("match", "match  ")]),
        ("mine.rw", LIMITED, [
            ("= 8", "= 4"), ("n <= most", "n < most"), ("n > 0", "n > 1"), ("few_of_each(K)", "few_of_each(K+1)"),
            ("number", "\n\nnumber"), ("most_parts = 4", "most_parts = 3 + 2"), ("each(n: int)", "each(n: str)"),
        ]),
    ],
)  # fmt: skip
def test_what_is_remembered_follows_every_key(path: str, text: str | None, changes: list[tuple[str, str]]) -> None:
    """Nothing stays as it was where something else changed, nor where it stood: as for a reader that knows nothing."""
    file = BUILT_IN / path
    text = text or file.read_text()
    typed = Document(file)
    for before, after in [("", ""), *changes]:
        text = text.replace(before, after, 1)
        moved, anew = typed.problems(text), Document(file)
        queries._parsed.cache_clear()
        expected = anew.problems(text.removeprefix("\ufeff"))
        assert [vars(one) for one in moved] == [vars(one) for one in expected], after
        assert typed.declarations == anew.declarations
        assert [(rule.clauses, rule.span) for rule in typed.file.rules] == [
            (r.clauses, r.span) for r in anew.file.rules
        ]


def test_files_of_ours_are_right_and_quick_to_type_in() -> None:
    """Typing in the longest file, and asking in it: what was not typed in is not read or judged again."""
    files = sorted((p for p in BUILT_IN.rglob("*.rw") if ".examples" not in p.name), key=lambda p: len(p.read_text()))
    of_rules = next(file for file in reversed(files) if "\nrequire " in file.read_text())
    queries.warm()
    for longest, word in ((of_rules, "\nrequire "), (BUILT_IN / "policy.rw", "\nnumber ")):
        text = longest.read_text()
        typed = Document(longest)
        assert typed.problems(text) == []
        for n in range(1, 4):
            with at_most_calls(400_000):
                typed.problems(text.replace(word, word + " " * n, 1))
            with at_most_calls(100_000):
                completions(At(typed, 40, 6))
                meaning(At(typed, 40, 6))


TWICE = """\
## A sum with itself is a double.
{head}
match
    y = add(x, x)
rewrite
    y = multiply(x, {factor})
example "one value"
    graph f(x: f32[i:8]) -> y: f32[8]:
        y[i] = add(x[i], x[i])
gives
    graph f(x: f32[i:8]) -> y: f32[8]:
        y[i] = multiply(x[i], 2.0)
"""


def test_an_override_for_one_device_is_checked_and_run(tmp_path: Path) -> None:
    path, general = tmp_path / "mine.rw", TWICE.format(head="rule twice on tensor", factor="2.0")
    own = general + TWICE.format(head="override rule twice on tensor for h200", factor="{}")
    (wrong,) = Document(path, {}.get).problems(own.format("z"))
    assert (wrong.what, wrong.span and wrong.span.line) == ("rule `twice`: unbound variable `z`", 18)
    for kind, label, line in (("examples", "1 of 2 hold", 19), ("check", "1 ok", 14)):
        answer = Request(kind, "twice", None, path, {path: own.format("3.0")}, None).answer(lambda *progress: None)
        assert (answer.label, [wrong.span and wrong.span.line for wrong in answer.wrong]) == (label, [line])


SHARED = """\
guards small():
    require size(loops(bdy)) == 0 else "it has loops"

rule mine on tile
match
    Tile(axes..):
        body..
guards small()
rewrite
    Tile(axes..):
        Sync()
        body..
"""


def test_a_mistake_in_shared_guards_is_shown_at_their_line() -> None:
    """Also once a line above them moves them, and not the rule that reads them."""
    typed, end = Document(MINE), SHARED.index("rule mine")
    for text in (SHARED, "# One.\n" + SHARED, "# One.\n" + SHARED[:end].rstrip() + "\n" + SHARED[end:]):
        (wrong,) = (one for one in typed.problems(text) if "unbound variable `bdy`" in one.what)
        assert wrong.span is not None
        assert "loops(bdy)" in text.splitlines()[wrong.span.line - 1] and "loops(bdy)" in wrong.render()
