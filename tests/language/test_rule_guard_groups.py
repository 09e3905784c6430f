"""Guards that the rules of a file share: what they are written out as, and one seeded mistake each, the whole message."""

from __future__ import annotations

import pytest
from broken_rules import change, report

from dplc.engine.language.format import format_file, format_rule
from dplc.engine.language.rule import read_rules
from dplc.ir.diagnostic import Source
from dplc.ir.text.parse import parse

SHARED = """\
## What both need.
guards apart(run, name):
    require plain(run)                               else "more than values"
    require reads(run, name) == 0                    else "it reads the sum"

rule one on tile
match
    a <- add(a, v)
    rest..
guards apart(rest, a)
rewrite
    rest..
    a <- add(a, v)

rule two on tile
match
    rest..
    a <- maximum(a, v)
guards apart(rest, a)
rewrite
    a <- maximum(a, v)
    rest..
"""
TWO = SHARED[SHARED.index("rule two") :]


def test_each_rule_has_the_guards() -> None:
    rules = read_rules(Source("rule.rw", SHARED)).rules
    for rule in rules:
        assert [(guard.kind, guard.reason, guard.span.line) for guard in rule.guards] == [
            ("require", "more than values", 3), ("require", "it reads the sum", 4)
        ]  # fmt: skip
    assert report(SHARED) == ""


def test_what_was_written_is_shown() -> None:
    assert format_file(parse(Source("rule.rw", SHARED))) == SHARED


def test_a_rule_by_itself_has_the_guards() -> None:
    shown = format_rule(read_rules(Source("rule.rw", SHARED)).rules[1])
    guards = ("plain(rest)", "more than values"), ("reads(rest, a) == 0", "it reads the sum")
    lines = "".join(f'{f"require {condition}":48} else "{reason}"\n' for condition, reason in guards)
    assert shown == change(TWO, "guards apart(rest, a)\n", lines)


SHOWN = """\
example "a loop after it"
    a <- add(a, v)
    for k in 0..4 free:
        y[k] = v
gives no "more than values"
example "the sum is read"
    a <- add(a, v)
    b = copy(a)
gives no "it reads the sum"

rule two"""


@pytest.mark.parametrize(("text", "lacks"), [(SHARED, 4), (change(SHARED, "\nrule two", SHOWN), 0)])
def test_an_example_of_one_rule_shows_the_guards_of_both(text: str, lacks: int) -> None:
    assert report(text, ()).count("no example is refused because") == lacks


MISTAKES = [
    pytest.param(
        change(SHARED, "guards apart(rest, a)\nrewrite\n    rest", "guards apar(rest, a)\nrewrite\n    rest"),
        """\
rule.rw:10:8: error: rule `one`: this file declares no `guards apar`
 10 | guards apar(rest, a)
    |        ^^^^^^^^^^^^^
  help: did you mean `apart`?""",
        id="unknown group",
    ),
    pytest.param(
        change(SHARED, "guards apart(rest, a)\nrewrite\n    rest", "guards apart(rest)\nrewrite\n    rest"),
        """\
rule.rw:10:8: error: rule `one`: `guards apart` takes 2 arguments, run, name; here are 1
 10 | guards apart(rest)
    |        ^^^^^^^^^^^""",
        id="too few arguments",
    ),
    pytest.param(
        change(SHARED, "guards apart(rest, a)\nrewrite\n    rest", "guards apart(best, a)\nrewrite\n    rest"),
        """\
rule.rw:10:14: error: rule `one`: unbound variable `best`
 10 | guards apart(best, a)
    |              ^^^^
  help: did you mean `rest`?""",
        id="unbound argument",
    ),
    pytest.param(
        change(SHARED, "reads(run, name)", "reads(run, nam)"),
        """\
rule.rw:4:24: error: `nam` is not a parameter of `guards apart`
 4 |     require reads(run, nam) == 0                    else "it reads the sum"
   |                        ^^^
  help: did you mean `name`?""",
        id="not a parameter",
    ),
    pytest.param(
        change(SHARED, "apart(run, name):", "apart(run, name, x):"),
        """\
rule.rw:2:25: error: no guard of `apart` reads `x`
 2 | guards apart(run, name, x):
   |                         ^""",
        id="unused parameter",
    ),
    pytest.param(
        change(SHARED, "apart(run, name):", "apart(run, run):"),
        """\
rule.rw:2:14: error: the parameters of `guards` are names, each once
 2 | guards apart(run, run):
   |              ^^^""",
        id="parameter twice",
    ),
    pytest.param(
        change(SHARED, "## What both need.\n", 'guards apart(x):\n    require plain(x) else "y"\n\n'),
        """\
rule.rw:4:8: error: `guards apart` is declared twice
 4 | guards apart(run, name):
   |        ^^^^^^^^^^^^^^^^
  note: first in line 1""",
        id="declared twice",
    ),
    pytest.param(
        SHARED.replace("guards apart(rest, a)\n", ""),
        """\
rule.rw:2:8: error: no rule of this file has `guards apart(..)`
 2 | guards apart(run, name):
   |        ^^^^^^^^^^^^^^^^""",
        id="unused group",
    ),
    pytest.param(
        change(
            SHARED,
            "guards apart(rest, a)\nrewrite\n    rest",
            "guards apart(rest, a)\nguards apart(rest, a)\nrewrite\n    rest",
        ),
        """\
rule.rw:3:13: error: rule `one`: two guards give the reason "more than values"
 3 |     require plain(run)                               else "more than values"
   |             ^^^^^^^^^^
  note: the other is in line 3
  help: say what is different
rule.rw:4:13: error: rule `one`: two guards give the reason "it reads the sum"
 4 |     require reads(run, name) == 0                    else "it reads the sum"
   |             ^^^^^^^^^^^^^^^^^^^^^
  note: the other is in line 4
  help: say what is different""",
        id="guards twice",
    ),
]


@pytest.mark.parametrize(("text", "expected"), MISTAKES)
def test_mistakes(text: str, expected: str) -> None:
    assert report(text) == expected
