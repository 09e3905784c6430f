"""Statements that the rules of a file share: what they are written out as, and one seeded mistake each, the whole message."""

from __future__ import annotations

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
