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
