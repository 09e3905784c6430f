"""`fold` in a template: what it is written out as, which is the monoid's recurrence, and one seeded mistake each."""

from __future__ import annotations

from broken_rules import change, report

from dplc.engine.language.format import format_rule
from dplc.engine.language.rule import BUILT_IN, read_rules
from dplc.engine.language.rule_files import rule_paths, rule_source
from dplc.engine.language.spelling import statement
from dplc.ir.diagnostic import Source
from dplc.ir.monoid_texts import NAMES, TEXTS

FOLD = """\
rule chunk on tile
match
    (m, l) <- online((m, l), (x, 1.0))
rewrite
    p = fold online over [t] of x into (m, l) scaling o
"""


def template(text: str) -> str:
    (rule,) = read_rules(Source("rule.rw", text)).rules
    return "\n".join(line for node in rule.rewrite for line in statement(node))


def test_the_recurrence_of_a_softmax() -> None:
    assert (
        template(FOLD)
        == """\
c <- maximum(c, x)
Combine(c, maximum, over=[t])
top = maximum(m, c)
base = where(equal(top, -inf), 0.0, top)
gap = subtract(m, base)
fix = exp(gap)
m <- maximum(m, top)
below = subtract(x, base)
p = exp(below)
total <- add(total, p)
Combine(total, add, over=[t])
Scale(l, fix)
l <- add(l, total)
Scale(o, fix)"""
    )


def test_one_lane_has_nothing_to_combine() -> None:
    text = template(change(FOLD, " over [t]", ""))
    assert "Combine" not in text
    assert text.splitlines()[0] == "top = maximum(m, x)"
    assert text.splitlines()[-2] == "l <- add(l, p)"


def test_a_weight_goes_into_memory() -> None:
    assert template(change(FOLD, "p = fold", "P[t] = fold")).endswith("\nP[t] = p")


def test_its_names_give_way_to_those_of_the_rule() -> None:
    assert template(FOLD.replace(" x", " top").replace("(x,", "(top,")).splitlines()[2] == "top1 = maximum(m, c)"


def test_sums_relative_to_a_leading_part_have_a_recurrence() -> None:
    what = "is not a sum relative to a leading part"
    assert [name for name in NAMES if what not in report(change(FOLD, "fold online", f"fold {name}"))] == ["online"]


def test_the_recurrence_is_that_of_this_definition() -> None:
    """Whoever changes the monoid changes what a fold is written out as."""
    assert TEXTS["online"][2:] == (
        "m = x\nbase = where(equal(m, -inf), 0.0, m)\nd = subtract(x, base)\ns = multiply(exp(d), v)",
        "m = maximum(m1, m2)\nbase = where(equal(m, -inf), 0.0, m)\na = subtract(m1, base)\n"
        "b = subtract(m2, base)\ns = add(multiply(s1, exp(a)), multiply(s2, exp(b)))",
    )


def test_what_was_written_is_shown() -> None:
    assert format_rule(read_rules(Source("rule.rw", FOLD)).rules[0]) == FOLD


def test_no_rule_of_ours_writes_the_recurrence() -> None:
    assert not [
        rule.name
        for path in rule_paths(BUILT_IN / "tile")
        for rule in read_rules(rule_source(path)).rules
        if "Scale(" in format_rule(rule).split("\nexample")[0]
    ]
