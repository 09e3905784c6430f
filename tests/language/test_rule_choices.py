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
        "   |                                                              ^^^^^"
    )
    assert issubclass(NotComputed, DplcError)


def test_what_was_written_is_shown() -> None:
    assert format_rule(read_rules(Source("rule.rw", UNROLLED)).rules[0]) == UNROLLED
    nested = change(UNROLLED, "minimising (K", "minimising 1 + (choose v in (1, 2) maximising v)*(K")
    assert format_rule(read_rules(Source("rule.rw", nested)).rules[0]) == nested


def test_choose_is_a_name_where_it_chooses_nothing() -> None:
    assert not report(change(UNROLLED, "let usual = choose u in", "let usual = choose u in").replace("body", "choose"))


MISTAKES = [
    pytest.param(
        change(UNROLLED, " minimising (K // u - 2)*(K // u - 2)", ""),
        """\
rule.rw:6:50: error: unexpected end of the line
 6 | let usual = choose u in divisors(K) if u <= K - 1
   |                                                  ^
  note: expected `maximising`, `minimising` or `or`""",
        id="no cost",
    ),
    pytest.param(
        change(UNROLLED, "choose u in divisors(K) if u <= K - 1", "choose u if u <= K - 1"),
        """\
rule.rw:6:22: error: unexpected `if`
 6 | let usual = choose u if u <= K - 1 minimising (K // u - 2)*(K // u - 2)
   |                      ^^
  note: expected `in`""",
        id="no values",
    ),
    pytest.param(
        change(UNROLLED, "choose u in", "choose u, v in"),
        """\
rule.rw:6:21: error: unexpected `,`
 6 | let usual = choose u, v in divisors(K) if u <= K - 1 minimising (K // u - 2)*(K // u - 2)
   |                     ^
  note: expected `in`""",
        id="two names",
    ),
    pytest.param(
        change(UNROLLED, "minimising", "minimizing"),
        """\
rule.rw:6:51: error: unexpected `minimizing`
 6 | let usual = choose u in divisors(K) if u <= K - 1 minimizing (K // u - 2)*(K // u - 2)
   |                                                   ^
  note: expected `maximising`, `minimising` or `or`
  help: did you mean `minimising`?""",
        id="another word",
    ),
    pytest.param(
        change(
            UNROLLED,
            "if u <= K - 1 minimising (K // u - 2)*(K // u - 2)",
            "minimising (K // u - 2)*(K // u - 2) if u <= K - 1",
        ),
        """\
rule.rw:6:87: error: unexpected end of the line
 6 | let usual = choose u in divisors(K) minimising (K // u - 2)*(K // u - 2) if u <= K - 1
   |                                                                                       ^
  note: expected `else` or `or`""",
        id="condition behind the cost",
    ),
    pytest.param(
        change(UNROLLED, "(K // u - 2)*(K // u - 2)", "body"),
        """\
rule.rw:6:62: error: rule `unrolled`: what `minimising` compares is a number, or a list of them, not a run of statements
 6 | let usual = choose u in divisors(K) if u <= K - 1 minimising body
   |                                                              ^^^^""",
        id="a cost that is not a number",
    ),
    pytest.param(
        change(UNROLLED, "(K // u - 2)*(K // u - 2)", '"dear"'),
        """\
rule.rw:6:62: error: rule `unrolled`: what `minimising` compares is a number, or a list of them, not a text
 6 | let usual = choose u in divisors(K) if u <= K - 1 minimising "dear"
   |                                                              ^^^^^^""",
        id="a cost that is a text",
    ),
    pytest.param(
        change(UNROLLED, "(K // u - 2)*(K // u - 2)", "K"),
        """\
rule.rw:6:62: error: rule `unrolled`: every alternative is alike: what `minimising` compares does not read `u`
 6 | let usual = choose u in divisors(K) if u <= K - 1 minimising K
   |                                                              ^
  help: say what a value `u` costs""",
        id="a cost that reads nothing",
    ),
    pytest.param(
        change(UNROLLED, "choose u in divisors(K)", "choose u in 8"),
        """\
rule.rw:6:25: error: rule `unrolled`: a domain is a list, not an integer
 6 | let usual = choose u in 8 if u <= K - 1 minimising (K // u - 2)*(K // u - 2)
   |                         ^""",
        id="values that are not a list",
    ),
    pytest.param(
        change(UNROLLED, "choose u in divisors(K)", "choose u in {8}"),
        """\
rule.rw:6:25: error: rule `unrolled`: nothing to choose: there is one value
 6 | let usual = choose u in {8} if u <= K - 1 minimising (K // u - 2)*(K // u - 2)
   |                         ^^^""",
        id="one value",
    ),
    pytest.param(
        change(UNROLLED, "choose u in divisors(K)", "choose u in ()"),
        """\
rule.rw:6:25: error: rule `unrolled`: nothing to choose: there is no value
 6 | let usual = choose u in () if u <= K - 1 minimising (K // u - 2)*(K // u - 2)
   |                         ^^""",
        id="no value",
    ),
    pytest.param(
        change(UNROLLED, "if u <= K - 1", "if size(body)"),
        """\
rule.rw:6:40: error: rule `unrolled`: the condition of `choose` is true or false, not an integer
 6 | let usual = choose u in divisors(K) if size(body) minimising (K // u - 2)*(K // u - 2)
   |                                        ^^^^^^^^^^""",
        id="a condition that is a number",
    ),
    pytest.param(
        change(UNROLLED, "(K // u - 2)*(K // u - 2)", "u*turn"),
        """\
rule.rw:6:64: error: rule `unrolled`: unbound variable `turn`
 6 | let usual = choose u in divisors(K) if u <= K - 1 minimising u*turn
   |                                                                ^^^^""",
        id="an unknown name in the cost",
    ),
    pytest.param(
        change(UNROLLED, "(K // u - 2)*(K // u - 2)", "ceildi(u, 2)"),
        """\
rule.rw:6:62: error: rule `unrolled`: unknown fact or function `ceildi`
 6 | let usual = choose u in divisors(K) if u <= K - 1 minimising ceildi(u, 2)
   |                                                              ^^^^^^^^^^^^
  help: did you mean `ceildiv`?""",
        id="an unknown fact in the cost",
    ),
    pytest.param(
        change(UNROLLED, "require U > 1", "require u > 1"),
        """\
rule.rw:7:9: error: rule `unrolled`: unbound variable `u`
 7 | require u > 1                                    else "unrolling by one is nothing"
   |         ^""",
        id="its name outside of it",
    ),
    pytest.param(
        change(UNROLLED, "require U > 1", "require choose n in (1, U) minimising n"),
        """\
rule.rw:7:9: error: rule `unrolled`: the condition of `require` is true or false, not an integer
 7 | require choose n in (1, U) minimising n                                    else "unrolling by one is nothing"
   |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^""",
        id="a condition where true or false is wanted",
    ),
    pytest.param(
        change(UNROLLED, "divisors(K) = usual)", "{2, 4} = choose n in (8, 16) minimising n)"),
        """\
rule.rw:2:34: error: rule `unrolled`: the default 8 of `U` is not in its domain
 2 | rule unrolled(U: int in {2, 4} = choose n in (8, 16) minimising n) on tile
   |                                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  note: the domain is {2, 4}
rule.rw:6:5: error: rule `unrolled`: `let usual` is never used
 6 | let usual = choose u in divisors(K) if u <= K - 1 minimising (K // u - 2)*(K // u - 2)
   |     ^^^^^""",
        id="a default outside of the domain",
    ),
    pytest.param(
        change(
            UNROLLED, "0..K reduce:\n        body", "0..K by (choose n in (1, 2) minimising n) reduce:\n        body"
        ),
        """\
rule.rw:4:23: error: rule `unrolled`: a pattern weighs nothing: `choose` stands in a clause, a default or the template
 4 |     for k in 0..K by (choose n in (1, 2) minimising n) reduce:
   |                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^""",
        id="in a pattern",
    ),
]


@pytest.mark.parametrize(("text", "expected"), MISTAKES)
def test_mistakes(text: str, expected: str) -> None:
    assert report(text) == expected
