"""Statements that the rules of a file share: what they are written out as, and one seeded mistake each, the whole message."""

from __future__ import annotations

import pytest
from broken_rules import change, report

from dplc.engine.language.format import format_file, format_rule
from dplc.engine.language.rule import read_rules
from dplc.ir.diagnostic import Source
from dplc.ir.text.parse import parse

SHARED = """\
## A loop whose last turn is by itself.
form turns_and_tail(k, K, role):
    for k in 0..K role:
        body..
    tail..

rule one on tile
match
    form turns_and_tail(j, 8, serial)
guards no_sums(body)
rewrite
    tail..
    for j in 0..most serial:
        body..

rule two on tile
match
    form turns_and_tail(k, K, reduce)
guards no_sums(body)
rewrite
    form turns_and_tail(k, most, free)

## What both need.
guards no_sums(run):
    let sums = accumulators(run)
    require size(sums) == 0                          else "a sum"
    let most = size(buffers(run))
"""
TWO = """\
rule two on tile
match
    for k in 0..K reduce:
        body..
    tail..
let sums = accumulators(body)
require size(sums) == 0                          else "a sum"
let most = size(buffers(body))
rewrite
    for k in 0..most free:
        body..
    tail..
"""


def test_the_statements_stand_in_the_rule() -> None:
    assert format_rule(read_rules(Source("rule.rw", SHARED)).rules[1]) == TWO
    assert [rule.match for rule in read_rules(Source("rule.rw", TWO)).rules]
    assert "unused" not in report(SHARED)


def test_what_was_written_is_shown() -> None:
    assert format_file(parse(Source("rule.rw", SHARED))) == SHARED


def test_a_form_may_hold_one_above_it() -> None:
    both = change(SHARED, "\nrule one", "\nform all_of(K):\n    form turns_and_tail(k, K, reduce)\n\nrule one")
    both = change(both, "    form turns_and_tail(k, K, reduce)\nguards", "    form all_of(K)\nguards")
    assert format_rule(read_rules(Source("rule.rw", both)).rules[1]) == TWO


MISTAKES = [
    pytest.param(
        change(SHARED, "    form turns_and_tail(j, 8, serial)", "    form turns_and_tai(j, 8, serial)"),
        """\
rule.rw:9:10: error: rule `one`: this file declares no `form turns_and_tai`
 9 |     form turns_and_tai(j, 8, serial)
   |          ^^^^^^^^^^^^^^^^^^^^^^^^^^^
  help: did you mean `turns_and_tail`?""",
        id="unknown form",
    ),
    pytest.param(
        change(SHARED, "turns_and_tail(j, 8, serial)", "turns_and_tail(j, 8)"),
        """\
rule.rw:9:10: error: rule `one`: `form turns_and_tail` takes 3 arguments, k, K, role; here are 2
 9 |     form turns_and_tail(j, 8)
   |          ^^^^^^^^^^^^^^^^^^^^""",
        id="too few arguments",
    ),
    pytest.param(
        change(SHARED, "form turns_and_tail(k, K, role):", "form turns_and_tail(k, K, role, x):"),
        """\
rule.rw:2:33: error: no statement of `form turns_and_tail` says `x`
 2 | form turns_and_tail(k, K, role, x):
   |                                 ^""",
        id="unused parameter",
    ),
    pytest.param(
        change(SHARED, "form turns_and_tail(k, K, role):", "form turns_and_tail(k, 8, role):"),
        """\
rule.rw:2:24: error: the parameters of `form` are names, each once
 2 | form turns_and_tail(k, 8, role):
   |                        ^""",
        id="parameter that is not a name",
    ),
    pytest.param(
        change(SHARED, "\nrule one", "\nform other():\n    rest..\n\nrule one"),
        """\
rule.rw:7:6: error: no rule of this file has `form other(..)`
 7 | form other():
   |      ^^^^^^^""",
        id="unused form",
    ),
    pytest.param(
        change(SHARED, "\nrule one", "\nform turns_and_tail():\n    rest..\n\nrule one"),
        """\
rule.rw:7:6: error: `form turns_and_tail` is declared twice
 7 | form turns_and_tail():
   |      ^^^^^^^^^^^^^^^^
  note: first in line 2""",
        id="declared twice",
    ),
    pytest.param(
        change(SHARED, "    let most = size(buffers(run))\n", ""),
        """\
rule.rw:13:17: error: rule `one`: unbound variable `most`
 13 |     for j in 0..most serial:
    |                 ^^^^
rule.rw:18:28: error: rule `two`: `K` is bound but never used; write `_`
 18 |     form turns_and_tail(k, K, reduce)
    |                            ^
rule.rw:21:28: error: rule `two`: unbound variable `most`
 21 |     form turns_and_tail(k, most, free)
    |                            ^^^^""",
        id="a name that the group does not bind",
    ),
    pytest.param(
        change(SHARED, "require size(sums)", "require size(sum)"),
        """\
rule.rw:26:18: error: `sum` is not a parameter of `guards no_sums`
 26 |     require size(sum) == 0                          else "a sum"
    |                  ^^^
  help: did you mean `sums`?""",
        id="neither a parameter nor a let",
    ),
    pytest.param(
        'rule one on tile\nmatch\n    Sync()\nrewrite\n    pass\nexample "x"\n    form other()\ngives\n    pass\n',
        """\
rule.rw:7:10: error: rule `one`: example "x": this stands in patterns and templates only, or is not a statement
 7 |     form other()
   |          ^^^^^^^""",
        id="in an example",
    ),
]


@pytest.mark.parametrize(("text", "expected"), MISTAKES)
def test_mistakes(text: str, expected: str) -> None:
    assert report(text) == expected
