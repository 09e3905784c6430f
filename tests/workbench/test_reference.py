"""All that a rule may name, from the definitions, and `dplc rules new`: a rule to fill in, filled in and accepted."""

from __future__ import annotations

import functools
import posixpath
import re
from pathlib import Path

import pytest
from command_line import Command

from dplc.engine.language.evaluate import FACTS
from dplc.engine.language.rule import LEVELS, RuleSet, load, read_rules
from dplc.engine.language.sorts import sort_of
from dplc.engine.workbench import reference
from dplc.ir.diagnostic import Source
from dplc.ir.functions import FUNCTIONS
from dplc.ir.text.read_statements import owners


def test_nothing_is_missing_and_everything_has_a_sentence() -> None:
    entries = [*reference.facts(load()), *reference.nodes()]
    assert {name for _, name in FACTS} | FUNCTIONS.keys() | owners().keys() <= {entry.name for entry in entries}
    for entry in entries:
        assert len(entry.sentence) > 5 and entry.signature.startswith(entry.name), entry
        assert entry.levels and set(entry.levels) <= set(LEVELS), entry
        for field in entry.fields:
            assert sort_of(field.sort) != sort_of("nonsense") or field.sort.strip("[]") == "any", (entry.name, field)


def test_places_are_definitions() -> None:
    for entry in reference.facts(load()):
        file, _, line = entry.place.partition(":")
        text = Path(reference.ROOT, file).read_text().splitlines()
        near = text[max(int(line) - 4, 0) : int(line) + 3] if line else text
        assert entry.name in "\n".join(near), entry.place


def test_what_is_said_of_functions_is_their_algebra() -> None:
    said = {entry.name: entry.sentence for entry in reference.known() if entry.place.startswith("ir/functions.")}
    assert said.keys() == FUNCTIONS.keys()
    for name, function in FUNCTIONS.items():
        assert ("Commutative." in said[name]) is function.commutative, name
        assert ("starts from" in said[name]) is (function.identity is not None), name


# ---- The Markdown pages of all rules: every link leads somewhere, and markup stays text.


@functools.cache
def written() -> dict[str, str]:
    return reference.pages(load())


def without_code(text: str) -> str:
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def test_every_link_leads_somewhere() -> None:
    known, links = set[str](), set[str]()
    for path, text in written().items():
        known |= {f"{path}#{anchor}".casefold() for anchor in ("", *re.findall(r"(?m)^#+ (\S+)$", text))}
        for to, anchor in re.findall(r"\]\(([^)#]*)(#?[^)]*)\)", without_code(text)):
            links.add(f"{posixpath.normpath(posixpath.join(posixpath.dirname(path), to))}{anchor or '#'}".casefold())
    assert links - known == set() and len(links) > 500


def test_every_rule_has_its_text_and_its_reasons() -> None:
    text = "\n".join(written().values())
    for rule in load().rules.values():
        assert f"\n## {rule.name}\n" in text and f"`{rule.location}`" in text
    page = written()["groups/tile_memory.md"]
    assert "the barriers of the chunk loop would diverge" in page
    assert "[`staged_share`](../constants.md#staged_share)" in page and "[`lies_in`](../facts.md#lies_in)" in page
    assert "### Stage" in written()["statements.md"]


def test_a_suite_says_where_rules_fire() -> None:
    made = reference.pages(load(), {"stage_inputs": [("none", 1, 1.0), ("small", 2, 8.0), ("slow", 1, 0.5)]}, "a suite")
    gain = "geometric mean of the predicted time, with over without the firing: 0.50"
    cases = "small (2, 8.00x), none (1), slow (1, 0.50x)"
    assert f"Fires in 3 cases of a suite; {gain}: {cases}." in made["groups/tile_memory.md"]
    assert "Does not fire in a suite." in made["groups/tile_memory.md"]


def test_markup_in_a_rule_stays_text() -> None:
    text = """## <script>alert(1)</script>
rule odd on tensor
match
    y = multiply(a, 2)
require "<b>" == "<b>" else "<img src=x>"
rewrite
    y = add(a, a)
"""
    made = reference.pages(RuleSet((*load().files, read_rules(Source("odd.rw", text)))))
    outside = without_code(made["groups/yours.md"] + made["index.md"])
    assert "<script>alert" not in outside and "<img" not in outside and "&lt;script&gt;alert" in outside


# ---- A rule to fill in.

GRAPH = """\
## level: tensor
graph scaled(x: f32[6, 35], w: f32[35]) -> y: f32[6]:
    product[i:6, k:35] = multiply(x[i, k], w[k])
    total[i] = Reduce(add, k, product)
    y[i] = tanh(total)
"""
NEST = """\
## level: loop
kernel twice(x: f32[64]) -> y: f32[64]:
    for i in 0..64 free:
        a = load x[i]
        b = add(a, a)
        y[i] = b
"""
EXPONENTIALS = "torch.exp(torch.randn(64)) * torch.exp(torch.randn(64))"
UNKNOWN = "torch.linalg.matrix_exp(torch.randn(4, 4))"


@pytest.fixture(autouse=True)
def dumps(tmp_path: Path) -> None:
    """Programs in the folder where commands run."""
    (tmp_path / "scaled.ir").write_text(GRAPH)
    (tmp_path / "twice.ir").write_text(NEST)
    (tmp_path / "said.ir").write_text(NEST.replace("        a = load", "# what is doubled\n\n        a = load"))


@pytest.mark.parametrize(
    ("program", "pattern", "template"),
    [
        ("--from scaled.ir:3-4", "    product = multiply(x, w)\n    total = Reduce(add, k, product)\n", None),
        ("--from said.ir:4-7", "    a = load x[i]\n    b = add(a, a)\n", None),  # without the remark above
        (f"-c '{EXPONENTIALS}'", "    exp_1 = exp(x)\n    exp_2 = exp(y)\n    mul = multiply(exp_1, exp_2)\n", None),
        ("--op exp -c 'torch.exp(torch.randn(3, 5))'", "    y = Exp(x)\n", "    y[i, j] = x[i, j]\n"),
    ],
)
def test_a_program_becomes_pattern_template_and_example(
    dplc: Command, program: str, pattern: str, template: str | None
) -> None:
    text = dplc(f"rules new mine {program}").out
    assert f"\nmatch\n{pattern}rewrite\n{template or pattern}" in text
    ((before, after),) = re.findall(r'^example ".*"\n((?: .*\n)+)gives\n((?: .*\n)+)', text, re.MULTILINE)
    assert after == ("    pass\n" if template else before)


def test_lines_of_loops_become_a_rule_that_is_filled_in_and_accepted(dplc: Command) -> None:
    dplc("rules new doubled --from twice.ir:3-6 -o doubled.rw")
    file = Path("doubled.rw")
    pattern, rest = file.read_text().split("rewrite\n")
    assert "for i in 0..I free:" in pattern and 'example "refused"\n    for i in 0..1 free:' in rest
    file.write_text(f"{pattern}rewrite\n{rest.replace('b = add(a, a)', 'b = multiply(a, 2.0)', 1)}")
    dplc("rules test doubled.rw", code=1).shows("+    b = multiply(a, 2.0)")
    dplc("rules test --accept doubled.rw").shows("1 examples rewritten")
    assert "b = multiply(a, 2.0)" in file.read_text().split("\ngives\n")[1]
    dplc("rules test doubled.rw").shows("2 examples, 0 failed")


def test_the_error_of_an_unsupported_op_is_the_command_that_begins_its_rule(dplc: Command) -> None:
    (command,) = re.findall("help: begin its rule: dplc (.*)", dplc("compile --calls none -c", UNKNOWN, code=1).err)
    dplc(command)
    file = Path("linalg_matrix_exp.rw")
    assert "y = LinalgMatrixExp(x)" in file.read_text()
    dplc("rules test", file, code=1).shows("does not say yet what the rule gives")
    dplc("rules test --accept", file).shows("1 examples rewritten")
    assert "copy(x[" in file.read_text().split("\ngives\n")[1]
    # wrong, and compiled: what it means is for its author to say
    dplc(f"compile --rules {file} --ir tensor -c", UNKNOWN).shows("= x[i, j]")


@pytest.mark.parametrize(
    ("words", "says", "code"),
    [
        ("--from twice.ir:4-9 -c x", "takes one program: `-c` and `--from` were given", 2),
        ("", "a program is needed", 2),
        ("--from twice.ir:9-12", "there is nothing in lines 9 to 12", 1),
        ("--from twice.ir:5-3", "lines count from 1", 2),
        ("--op linalg_matrix_expp", "did you mean `linalg_matrix_exp`?", 1),
        ("--op linalg_matrix_exp -c 'torch.relu(torch.randn(3))'", "the program has no `LinalgMatrixExp`", 1),
    ],
)
def test_what_cannot_be_a_rule_is_said(dplc: Command, words: str, says: str, code: int) -> None:
    dplc(f"rules new mine {words}", code=code).shows(says)


def test_names_of_values_and_axes_in_an_example_on_torch_are_its_own(dplc: Command) -> None:
    Path("frac.rw").write_text(
        "rule my_frac on torch\nmatch\n    y = Frac(x)\nrewrite\n    y[is..] = subtract(x[is..], floor(x[is..]))\n"
        'example "any names"\n    graph f(x: f32[4]) -> y: f32[4]:\n        y: f32[4] = Frac(x)\n'
        "gives\n    graph f(x: f32[4]) -> y: f32[4]:\n"
        "        down[place:4] = floor(x[place])\n        y[place] = subtract(x[place], down)\n"
    )
    dplc("rules test frac.rw").shows("1 examples, 0 failed")


def test_pages_keep_code_spans_and_reasons_as_text() -> None:
    pages = dict(reference.pages(load()))
    assert [page for page, text in pages.items() if page.endswith("index.md") and "\\`" in text] == []
    reason = load().numbers["block_threads"].declared.reason
    assert reason.split(";")[0] in re.sub(r"```.*?```", "", pages["constants.md"], flags=re.S)
