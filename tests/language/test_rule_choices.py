"""`choose` among alternatives: what it takes, what a trace says of it, and one seeded mistake each, the whole message."""

from __future__ import annotations

import pytest
from broken_rules import change, report

from dplc.codegen.target import target
from dplc.engine.kernels.examples import read_subject
from dplc.engine.language.check import load_facts
from dplc.engine.language.evaluate import NotComputed
from dplc.engine.language.format import format_rule
from dplc.engine.language.rule import RuleSet, read_rules
from dplc.engine.rewrite.statements.driver import Engine
from dplc.engine.rewrite.trace import Trace
from dplc.ir.diagnostic import DplcError, Source
from dplc.ir.text.parse import parse

UNROLLED = """\
@repeat
rule unrolled(U: int in divisors(K) = usual) on tile
match
    for k in 0..K reduce:
        body..
let usual = choose u in divisors(K) if u <= K - 1 minimising (K // u - 2)*(K // u - 2)
require U > 1                                    else "unrolling by one is nothing"
rewrite
    for k in 0..K reduce unroll=U:
        body..
"""
LOOP = """\
for k in 0..{} reduce:
    a = load A[k]
    s <- add(s, a)
B[0] = s
"""


def fired(rule: str, turns: int = 12, **pinned: int) -> Trace:
    nameless = "rule x on tile\nmatch\n{}\nrewrite\n    pass\n"
    body = "\n".join(f"    {line}" for line in LOOP.format(turns).splitlines())
    (read,) = parse(Source("subject", nameless.format(body)))
    load_facts()
    trace = Trace()
    pins = {"unrolled": pinned} if pinned else None
    engine = Engine(RuleSet([read_rules(Source("rule.rw", rule))]), pins, check=True)
    engine.fire("unrolled", read_subject(read.clauses[0].body), target("sm_80"), trace=trace)  # type: ignore[attr-defined]
    return trace


def taken(rule: str, turns: int = 12) -> int | None:
    firings = fired(rule, turns).firings
    return firings[0].parameters["U"] if firings else None  # type: ignore[no-any-return]


def test_the_cheapest_is_taken() -> None:
    assert taken(UNROLLED) == 6


def test_the_dearest_is_taken() -> None:
    assert taken(change(UNROLLED, "minimising", "maximising")) is None, "1 is the dearest: the guard refuses it"
    assert taken(change(UNROLLED, "minimising (K // u - 2)*(K // u - 2)", "maximising u")) == 6


def test_of_several_the_first_is_taken() -> None:
    assert taken(change(UNROLLED, "(K // u - 2)*(K // u - 2)", "u - u")) is None, "1 is the first of all"
    assert (
        taken(change(UNROLLED, "if u <= K - 1 minimising (K // u - 2)*(K // u - 2)", "if u > 2 minimising u - u")) == 3
    )


def test_a_list_of_costs_is_compared_one_after_the_other() -> None:
    both = change(UNROLLED, "minimising (K // u - 2)*(K // u - 2)", "minimising (u % 2, 0 - u)")
    assert taken(both) == 6
    assert taken(change(both, "(u % 2, 0 - u)", "(0 - u % 2, 0 - u)")) == 3


def test_nothing_to_choose_from_is_a_default_outside_of_the_domain() -> None:
    none = change(UNROLLED, "if u <= K - 1", "if u > K")
    trace = fired(none)
    assert not trace.firings
    assert "the default U=0 is not in its domain {1, 2, 3, 4, 6, 12} (no value of it would pay here)" in trace.render(
        2, ["each"]
    )


def test_what_was_weighed_is_told() -> None:
    text = fired(UNROLLED).render(2)
    costs = "6 costs 0, 4 costs 1, 3 costs 4, 2 costs 16, 1 costs 100"
    assert f"# choose usual = {costs} (minimising (K // u - 2)*(K // u - 2))\n" in text
    assert "choose" not in fired(UNROLLED).render(1)
    (record,) = fired(UNROLLED).firings[0].record()["weighed"]
    assert record["alternatives"][0] == {"value": "6", "cost": "0"}
    assert (record["name"], record["maximising"], record["set"]) == ("usual", False, None)


def test_a_long_list_is_cut() -> None:
    assert fired(UNROLLED, 5040).render(2).count(" costs ") == 6
    assert "more (minimising" in fired(UNROLLED, 5040).render(2)


def test_a_value_that_somebody_set_is_told_beside_what_it_beats() -> None:
    own = change(UNROLLED, "= usual)", "= choose u in divisors(K) minimising (u - 4)*(u - 4))")
    own = own.replace(next(line for line in own.splitlines() if line.startswith("let")) + "\n", "")
    assert "choose U = 4 costs 0, 3 costs 1" in fired(own).render(2)
    assert "set to" not in fired(own).render(2)
    assert "(minimising (u - 4)*(u - 4)); set to 6\n" in fired(own, U=6).render(2)


def test_a_cost_is_a_number_where_it_is_asked() -> None:
    with pytest.raises(DplcError) as wrong:
        fired(change(UNROLLED, "(K // u - 2)*(K // u - 2)", "k + u"))
    assert wrong.value.render() == (
        "rule.rw:6:62: error: rule `unrolled`: a cost is a number, or a list of them; here it is k + 1\n"
        " 6 | let usual = choose u in divisors(K) if u <= K - 1 minimising k + u\n"
        "   |                                                              ^^^^^\n"
        "  help: require first that it has a value, as `N > 0 and M % N == 0`"
    )
    assert issubclass(NotComputed, DplcError)


def test_what_was_written_is_shown() -> None:
    assert format_rule(read_rules(Source("rule.rw", UNROLLED)).rules[0]) == UNROLLED
    nested = change(UNROLLED, "minimising (K", "minimising 1 + (choose v in (1, 2) maximising v)*(K")
    assert format_rule(read_rules(Source("rule.rw", nested)).rules[0]) == nested


def test_choose_is_a_name_where_it_chooses_nothing() -> None:
    assert not report(change(UNROLLED, "let usual = choose u in", "let usual = choose u in").replace("body", "choose"))
