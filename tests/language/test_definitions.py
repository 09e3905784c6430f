"""Facts that are an expression: written out where they are asked, with one meaning for every reader."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dplc.engine.explore.saturate import export
from dplc.engine.language.check import check
from dplc.engine.language.rule import RuleSet, read_rules
from dplc.engine.rewrite.statements.pattern import RuleExpressions
from dplc.engine.store.store import digests_of
from dplc.ir.diagnostic import DplcError, Source

RULE = """\
rule unroll(U: int in divisors(K) = K) on tile
match
    for k in 0..K reduce:
        body..
let fitting = [n for n in divisors(K) if n <= 8]
prefer U in fitting                              else "too many copies"
require U > 1                                    else "none"
rewrite
    for k in 0..K reduce unroll=U:
        body..
"""
ASKING = RULE.replace("[n for n in divisors(K) if n <= 8]", "parts_up_to(K, 8)")
FACT = "## Its divisors.\nfact parts_up_to(size: int, most: int) -> [int] = [n for n in divisors(size) if n <= most]\n"


NAMED = """\
## Its middle divisor.
fact middle_part(size: int, most: int) -> int:
    let fitting = [n for n in divisors(size) if n <= most]
    let largest = max(fitting)
    largest if largest*largest <= size else min(fitting)
"""


def rules(*texts: str) -> RuleSet:
    return RuleSet([read_rules(Source(f"{n}.rw", text)) for n, text in enumerate(texts)])


def meaning(*texts: str) -> str | None:
    return digests_of(rules(*texts)).digest("unroll")


def test_a_fact_is_read_as_if_its_expression_stood_there() -> None:
    assert meaning(FACT + ASKING) == meaning(RULE) != meaning(FACT.replace("<=", "<") + ASKING)


def test_facts_ask_facts_above_them_and_read_numbers() -> None:
    text = 'number most_parts = 8 because "enough"\n' + FACT
    text += "fact few_parts(size: int) -> [int] = parts_up_to(size, most_parts)\n"
    assert meaning(text + ASKING.replace("parts_up_to(K, 8)", "few_parts(K)")) == meaning(RULE)
    changed = meaning(text + ASKING.replace("parts_up_to(K, 8)", "few_parts(K)"), "override number most_parts = 4\n")
    assert changed == meaning(RULE.replace("8", "4"))


def test_the_variable_of_a_fact_catches_no_name_of_an_argument() -> None:
    asked = ASKING.replace("let fitting", "let n = 8\nlet fitting").replace("parts_up_to(K, 8)", "parts_up_to(K, n)")
    plain = RULE.replace("let fitting", "let n = 8\nlet fitting").replace(
        "[n for n in divisors(K) if n <= 8]", "[n1 for n1 in divisors(K) if n1 <= n]"
    )
    assert meaning(FACT + asked) == meaning(plain)


@pytest.mark.parametrize(
    ("asked", "value", "divided"),
    [
        ("middle_part(64, 8)", 8, [64]),
        ("middle_part(2*largest, largest)", 1, [14]),
        ("[middle_part(n, fitting) for n in [6, 64]]", (1, 4), [6, 64]),
        ("middle_part(min([n for n in divisors(largest) if n > 1]), 8)", 1, [7, 7]),
        ("parts_up_to(64, max(divisors(8)))", (1, 2, 4, 8), [8, 64]),
    ],
)
def test_named_parts_of_a_fact_are_computed_once(asked: str, value: object, divided: list[int]) -> None:
    """The rule has variables of the names that the fact gives its parts."""
    expressions, found = RuleExpressions("tile"), list[int]()
    divisors = expressions.facts["divisors"]

    def noted(n: int) -> object:
        found.append(n)
        return divisors.ask(n)

    expressions.facts = {**expressions.facts, "divisors": replace(divisors, ask=noted)}
    (let, *_) = rules(FACT + NAMED, ASKING.replace("parts_up_to(K, 8)", asked)).rules["unroll"].clauses
    assert expressions.compile(let.value)({"K": 64, "largest": 7, "fitting": 4}) == value
    assert found == divided


@pytest.mark.parametrize(
    ("text", "place", "what", "hint"),
    [
        (FACT + FACT, "0.rw:4:6", "declared twice", "another name"),
        (FACT.replace("parts_up_to", "parts"), "0.rw:2:6", "two words or more", ""),
        (FACT.replace("most: int", "size: int"), "0.rw:2:", "binds `size` twice", "another name"),
        (FACT.replace("size: int", "size: integer"), "0.rw:2:", "unknown sort `integer`", "`int"),
        (FACT.replace("<= most", "<= mosst"), "0.rw:2:", "unbound variable `mosst`", "`most`"),
        (FACT.replace("<= most", "<= K"), "0.rw:2:", "unbound variable `K`", ""),
        (
            FACT + ASKING.replace("parts_up_to(K, 8)", "parts_up_to(K)"),
            "0.rw:7:",
            "takes 2 arguments, not 1",
            "size: int",
        ),
        (FACT.replace(" = [", " [") + ASKING, "0.rw:2:", "unexpected", "="),
        (NAMED.replace("let fitting", "let most"), "0.rw:3:", "binds `most` twice", "another name"),
        (
            NAMED.replace("largest if", "size if").replace("largest*largest", "size"),
            "0.rw:4:",
            "never reads",
            "take the",
        ),
        (NAMED.replace("divisors(size)", "divisors(largest)"), "0.rw:3:", "before its `let`", "after the line"),
    ],
)
def test_what_a_fact_may_not_say(text: str, place: str, what: str, hint: str) -> None:
    with pytest.raises(DplcError) as raised:
        rules(text)
    message = raised.value.render()
    assert message.startswith(place) and what in message and hint in message and "^" in message, message


def test_a_fact_that_no_rule_asks_is_an_error() -> None:
    found = [finding.render() for finding in check(rules(FACT + RULE), {"0.rw"})]
    assert any("fact `parts_up_to` is never asked" in text for text in found)


def test_the_e_graph_asks_it_too() -> None:
    text = """\
fact free_of(over: [axis], value: term) -> bool = disjoint(over, axes(value))
rule hoist on tensor
match
    p = multiply(x, c)
    y = Reduce(add, ks.., p)
require free_of(ks, c)                           else "the factor varies along the reduced axes"
rewrite
    t = Reduce(add, ks.., x)
    y = multiply(t, c)
"""
    plain = text.split("\n", 1)[1].replace("free_of(ks, c)", "disjoint(ks, axes(c))")
    named = text.replace(" = disjoint(over, axes(value))", ":\n    let ks = axes(value)\n    disjoint(over, ks)")
    written = [export(rules(each).at("tensor")) for each in (text, named, plain)]
    assert written[0] == written[1] == written[2] and written[0].text["hoist"]
