"""Rules of algebra, tensor and fusion: their labels, their mutants, and their faulty forms of the past."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from drawing import some

from dplc.engine.language.check import load_facts
from dplc.engine.language.rule import Rule, RuleSet, load, read_rules
from dplc.engine.prove.equations import prove
from dplc.engine.rewrite.terms.rewriter import mentions_mat
from dplc.engine.verify.mutants import replaced
from dplc.engine.verify.run import Checkers, CheckOptions, check_rule
from dplc.ir.diagnostic import Source
from tests.verify.template_mutants import mutants

SNAPSHOT = Path(__file__).with_name("proofs.txt")
FOLDERS = ("rules/algebra", "rules/tensor", "rules/fusion")


@functools.cache
def built_in() -> RuleSet:
    load_facts()
    return load()


def chosen() -> list[Rule]:
    return [rule for rule in built_in().rules.values() if rule.span.source.name.startswith(FOLDERS)]


def line(rule: Rule) -> str:
    found = prove(rule)
    parts = (f"stops: {found.stopped}",) if found.stopped else ("proved", *found.needed, f"by {', '.join(found.laws)}")
    return f"{rule.name}: {'; '.join(parts)}".removesuffix("; by ")


def test_labels_are_those_of_the_snapshot() -> None:
    """DPLC_UPDATE_GOLDEN=1 writes it anew: read the diff."""
    text = "".join(f"{line(rule)}\n" for rule in chosen())
    if os.environ.get("DPLC_UPDATE_GOLDEN"):
        SNAPSHOT.write_text(text)
    assert text == SNAPSHOT.read_text()


def test_normal_forms_are_independent_of_hashes() -> None:
    rules = ("reassociate_contractions", "online_attention_masked", "hoist_bias", "shifted_squares")
    code = (
        "from dplc.engine.language.rule import load; from dplc.engine.prove.equations import prove\n"
        f"rules = load().rules\nfor name in {rules}: print(prove(rules[name]), prove(list(rules.values())[3]))"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    run = [
        subprocess.run(
            [sys.executable, "-c", code], env=env | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        )
        for seed in ("1", "2")
    ]
    assert run[0].stdout == run[1].stdout and run[0].stdout


# ---- mutants

# Right over the real numbers: a shift by +f, not -f; a weight that a maximum does not read; any shift of the exponentials.
EQUAL = {
    ("hoist_mean", "`add` for `subtract` in `subtract(x, f)`"),
    ("online_rows", "2.0 for 1.0 at line 15"),
    ("online_log_rows", "2.0 for 1.0 at line 51"),
    ("online_logsumexp", "2.0 for 1.0 at line 89"),
}
SWAPS = (  # other monoids, other axes, other operands, lost maps, by their texts in a template
    ("Reduce(add, ", "Reduce(multiply, "), ("Reduce(add, ", "Reduce(maximum, "), ("Reduce(maximum, ", "Reduce(minimum, "),
    ("Reduce(f, ", "Reduce(add, "), ("welford.mean", "welford.q"), ("welford.q", "welford.mean"), ("online.s", "online.m"),
    ("online.m", "online.s"), ("ks.., ", "rs.., "), ("rs.., ", "ks.., "), ("row.., ", "rest.., "), ("rest.., ", "row.., "),
    ("[is..]", ""), ("[at..]", ""), ("multiply(x, ", "multiply(y0, "), ("divide(", "multiply("), ("exp(", "log("),
    ("log(", "exp("), (", v))", ", x))"), ("(x, v)", "(v, x)"), ("(u))", "(x))"), ("isinf(m)", "isinf(s)"),
    ("f(before.., x", "f(x, before.."), ("f(before.., v", "f(v, before.."), ("f(x, z)", "f(z, x)"), ("y = x", "y = z0"),
    ("where(c, b, a)", "where(c, a, b)"), ("y = a", "y = b"), ("y = b", "y = a"), ("false", "true"), ("true", "false"),
    ("(a, b) = mat(v, w)", "(b, a) = mat(v, w)"), ("f32(", "i32("), ("maximum(s, 1)", "maximum(s, 0)"), ("y = c", "y = 0"),
    ("relu(x)", "x"), ("subtract(x, z)", "subtract(z, x)"), ("mat(", "negative("), ("f(xs..)", "exp(f(xs..))"),
)  # fmt: skip
RIGHT = {("shifted_squares", "(u))")}  # right over the real numbers: squares of deviations do not see a shift


def swapped() -> Iterator[tuple[Rule, str, Rule]]:
    """Yield rules with one text of the template replaced, where it is there and the rule is still read."""
    for rule in chosen():
        source = rule.span.source
        head = re.search(rf"rule {rule.family or rule.name}\b", source.text).start()  # type: ignore[union-attr]
        start = source.text.index("\nrewrite", head)
        end = min(n for n in (source.text.find(mark, start) for mark in ("\nexample", "\n##")) if n > 0)
        body = source.text[start:end]
        for old, new in SWAPS:
            if old in body and old != new:
                text = source.text[head:start] + body.replace(old, new, 1) + "\n"
                file = read_rules(Source("mutant.rw", text))
                broken = next((one for one in file.rules if one.name == rule.name), None)
                if broken is not None:
                    yield rule, old, dataclasses.replace(broken, family=rule.family)


def test_a_mutant_that_means_something_else_is_not_proved() -> None:
    """Of 150 mutated rules and more, those that are proved are right: listed here, or without a `require` and tried below."""
    proved, count = set[tuple[str, str]](), 0
    for rule in chosen():
        for what, broken in mutants(rule):
            count += 1
            if not what.startswith("without `require") and not prove(broken).stopped:
                proved.add((rule.name, what))
    assert proved == EQUAL
    found = [(rule.name, old, prove(broken).stopped) for rule, old, broken in swapped()]
    assert {(name, old) for name, old, stopped in found if not stopped} == RIGHT
    assert count + len(found) >= 220


def without_needless_guards() -> list[tuple[Rule, str, Rule]]:
    found = [(rule, what, broken) for rule in chosen() if not mentions_mat(rule) for what, broken in mutants(rule)]
    return [one for one in found if one[1].startswith("without `require") and not prove(one[2]).stopped]


@pytest.mark.parametrize("number", range(4))
def test_what_is_proved_without_a_guard_is_right_on_programs(number: int) -> None:
    rules = built_in()
    for _, what, broken in some(without_needless_guards()[number::4], 1):
        verdict = check_rule(broken, Checkers(replaced(rules, broken)), CheckOptions(6, shrink=False, more=0))
        assert verdict.wrong is None or "do not come to an end" in verdict.wrong.problem, (broken.name, what)


# ---- faulty forms of the past


def test_view_of_fold_without_its_last_guard_is_not_proved() -> None:
    """The rule once took a reduction of equal values for a reduction of others."""
    rule = built_in().rule("view_of_fold")
    kept = tuple(c for c in rule.clauses if getattr(c, "reason", "") != "the index map replaces a folded axis")
    assert len(kept) == len(rule.clauses) - 1
    assert "by the template" in prove(dataclasses.replace(rule, clauses=kept)).stopped
    assert not prove(rule).stopped


# ---- what a proof stops at

RULE = """
rule tried on tensor
match
{}
rewrite
{}
"""
STOPS = {
    ("    y = x", "    y = divide(multiply(x, s), s)"): "the template needs `s` to be defined",
    ("    y = exp(x)", "    y = add(exp(x), multiply(log(s), 0.0))"): "to be defined, and the pattern does not",
    ("    y = Reduce(add, ks.., where(c, x, z))", "    y = where(c, Reduce(add, ks.., x), Reduce(add, ks.., z))"):
        "a condition varies along a reduced axis",
    ("    y = where(less(x, z), x, z)", "    y = minimum(x, z)"): "the condition `less(x, z)` has no law",
    ("    y = Case(c, x, z)[is..]", "    y = Case(c, x[is..], z[is..])"): "`y` is `Case c",
    ("    y = x\nlet r = exact_reciprocal(c)", "    y = multiply(x, r)"): "`r` may be none",
    ("    y = x\nlet r = element_count([])", "    y = multiply(x, r)"): "`r = element_count([])` has no law",
    ("    y = Reduce(add, ks.., x)", "    y = Reduce(add, ks.., f16(x))"): "`y` is `Reduce add(x(ks), ks)` by the pattern",
    ("    y = x\nlet row = folded_below(x, ks)", "    y = Reduce(add, row.., x)"): "`y` is `x(ks, ks&row)` by the pattern",
    ("    y = Index(i)", "    y = x"): "`Index(i)` has no normal form",
    ("    y = where(isinf(multiply(x, s)), 0.0, x)", "    y = x"): "is compared with -inf",
}  # fmt: skip


@pytest.mark.parametrize("sides", STOPS)
def test_stop_names_the_value_or_the_condition(sides: tuple[str, str]) -> None:
    (rule,) = read_rules(Source("mine.rw", RULE.format(*sides))).rules
    assert STOPS[sides] in prove(rule).stopped
