"""Rules as egglog text: what can be said there, and what is refused with its place."""

from __future__ import annotations

import pytest
from exploring import tools

from dplc.engine.explore.saturate import RuleTexts, export
from dplc.engine.language.check import load_facts
from dplc.engine.language.rule import read_rules
from dplc.ir.diagnostic import Source

load_facts()


def exported(match: str, rewrite: str, clauses: str = "", head: str = "rule r on tensor") -> RuleTexts:
    lines = "".join(f"    {line}\n" for line in match.split("; "))
    made = "".join(f"    {line}\n" for line in rewrite.split("; "))
    return export(read_rules(Source("mine.rw", f"{head}\nmatch\n{lines}{clauses}rewrite\n{made}")).rules)


def test_a_rule_is_a_query_and_a_union() -> None:
    made = exported("t = exp(x); y = multiply(t, z)", "y = multiply(z, t)")
    assert made.text["r"] == (
        '(rule ((= v_t (E1 "exp" v_x)) (= v_y (E2 "multiply" v_t v_z))) '
        '((union v_y (E2 "multiply" v_z v_t))) :ruleset rule_r :name "r")'
    )


def test_guards_about_axes_extents_dtypes_and_weights_hold_inside() -> None:
    clauses = (
        'require k not in axes(s) else "a"\nrequire k in axes(x) else "b"\nrequire within(axes(s), axes(x)) else "c"\n'
        'require axes(s) != axes(x) else "d"\nrequire extent(k) <= 64 else "e"\nrequire dtype(x) == f32 else "f"\n'
        'require known(s) and not known(x) else "g"\nprefer extent(k) > 3 else "h"\n'
    )
    text = exported("p = multiply(x, s); y = Reduce(add, k, p)", "y = Reduce(add, k, x)", clauses).text["r"]
    for fact in (
        "(single v_k)", "(= 0 (& v_k (axes v_s)))", "(!= 0 (& v_k (axes v_x)))", "(= (axes v_s) (& (axes v_s) (axes v_x)))",
        "(!= (axes v_s) (axes v_x))", "(<= (extent v_k) 64)", '(= (dtype v_x) "f32")', "(known v_s)", "(varies v_x)",
    ):  # fmt: skip
        assert fact in text
    assert " 3)" not in text, "what a rule prefers is for extraction to find out"


def test_values_that_only_the_template_brings_together_must_share_their_dtype() -> None:
    text = exported("y = where(greater(a, b), x, z)", "y = where(less(x, a), x, z)").text["r"]
    assert "(= (dtype v_y) (dtype v_a))" in text, "y has the dtype of x, says the pattern"
    assert "floating" in exported("y = add(x, z)", "y = exp(x)").text["r"]
    assert "floating" not in exported("y = exp(x)", "t = sqrt(x); y = exp(t)").text["r"]
    assert '(Num "2.0" d0)' in exported("y = add(x, x)", "y = multiply(x, 2)").text["r"]


REFUSED = [
    ("y = f(xs..)", "y = f(xs..)", "", "a list of operands", "mine.rw:3:9"),
    ("y = Reduce(add, k, ks.., x)", "y = Reduce(add, k, ks.., x)", "", "a list of axes", "mine.rw:3:9"),
    (
        "y = exp(x)",
        "y = x",
        'require readers(x) == 1 else "w"\n',
        "`readers` is a property of one kernel",
        "mine.rw:4:9",
    ),
    ("y = exp(x)", "y = x", 'require number(x) != none else "w"\n', "the fact `number`", "mine.rw:4:9"),
    ("y = exp(x)", "y = x", 'require known(x) or dtype(x) == f32 else "w"\n', "`or`", "mine.rw:4:9"),
    ("y = Index(e)", "y = Index(e)", "", "`Index` in a pattern", "mine.rw:3:9"),
]


@pytest.mark.parametrize(("match", "rewrite", "clauses", "what", "where"), REFUSED)
def test_what_cannot_be_said_is_refused_with_its_place(
    match: str, rewrite: str, clauses: str, what: str, where: str
) -> None:
    made = exported(match, rewrite, clauses)
    (error,) = made.refused
    assert not made.text and what in error.what
    assert error.span is not None and error.span.location == where
    assert error.hint == "the rule still works where it is run as a rewrite"


def test_our_algebra_is_exported_but_for_what_is_written_down_here() -> None:
    made = export(tools().equations)
    assert {error.what.split("`")[1] for error in made.refused} <= {
        "divide_power_of_two",
        "drop_copy",
        "fold_numbers",
        "attention",
        "rows_first",
    } | {error.what.split("`")[1] for error in made.refused if "scale_after" in error.what}
    assert {
        "hoist_inner_factor",
        "reassociate_contractions",
        "fold_gain",
        "pack_siblings",
        "hoist_mean",
        "welford_mean",
    } <= made.text.keys()


def test_exact_leaves_out_what_reorders_floating_point() -> None:
    made = export(tools().exactly.equations)
    assert "pack_siblings" in made.text and "hoist_factor" not in made.text


def test_fusion_rules_are_no_algebra() -> None:
    assert not exported("h = mat(v); y = f(h)", "y = f(v)").text
    assert not exported("h = mat(v); y = f(h)", "y = f(v)").refused


def test_the_sides_of_a_choice_share_their_dtype() -> None:
    text = exported("t = Case(c, a, b); y = exp(t)", "u = exp(a); v = exp(b); y = Case(c, u, v)").text["r"]
    assert '(let t_u (E1 "exp" v_a)) (let t_v (E1 "exp" v_b)) (union v_y (Case v_c t_u t_v))' in text
