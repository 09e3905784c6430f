"""The matcher of rules on tensor: patterns are dataflow, rewriting goes to a fixpoint, all that happens is told."""

from __future__ import annotations

import pytest

import dplc.engine.facts.tensor  # noqa: F401  (registers the facts)
from dplc.engine.language.rule import read_rules
from dplc.engine.rewrite.terms.rewriter import Rewriter, TermEvidence, TermRules, rewrite_graph
from dplc.ir import compose
from dplc.ir.diagnostic import DplcError, Source
from dplc.ir.expr import Axis, Size
from dplc.ir.facts.index import operate
from dplc.ir.tensor import Case, Const, Elementwise, Index, Input, Mat, Named, Output, Reduce, Remap, TensorGraph, Term

I, J, K = Axis("i", 4), Axis("j", 5), Axis("k", 6)  # noqa: E741
X, Y, W, N = Input("x", (I, K)), Input("y", (I, K)), Input("w", (K, J)), Input("n", (I,), "i64")
B = Input("b", (I,), "b8")


def rules(text: str, **options: object) -> TermRules:
    return TermRules(read_rules(Source("test.rw", text)).rules, **options)  # type: ignore[arg-type]


def rule(match: str, rewrite: str, guards: str = "", name: str = "r", head: str = "") -> str:
    lines = [f"rule {name}{head} on tensor", "match", *(f"    {line}" for line in match.split("; "))]
    lines += [line for line in guards.split("; ") if line]
    return "\n".join([*lines, "rewrite", *(f"    {line}" for line in rewrite.split("; "))]) + "\n"


def rewritten(text: str, term: Term) -> Term:
    return Rewriter(rules(text)).rewrite(term)


def e(fn: str, *args: Term) -> Elementwise:
    return Elementwise(fn, args)


ZERO, ONE = Const(0.0), Const(1.0)
ADD_ZERO = rule("y = add(x, 0)", "y = x", name="add_zero")


def test_a_commutative_function_matches_in_either_order() -> None:
    assert rewritten(ADD_ZERO, e("add", X, ZERO)) is X
    assert rewritten(ADD_ZERO, e("add", ZERO, X)) is X
    subtract = rule("y = subtract(x, 0)", "y = x")
    assert rewritten(subtract, e("subtract", ZERO, X)) is e("subtract", ZERO, X)


def test_places_in_arithmetic_are_matched_by_what_they_come_to() -> None:
    """`Index(i + 1)` is the place behind an element; `Index(k)` of an axis that is bound already is that axis."""
    behind = rule("y = where(less(Index(i + 1), n), a, b)", "y = a")
    shifted, plain = Index(operate("+", I, 1)), Index(I)
    chosen = [e("where", e("less", at, N), X, Y) for at in (shifted, plain)]
    assert [rewritten(behind, term) for term in chosen] == [X, chosen[1]]
    along = rule("p = multiply(x, f32(Index(k))); y = Reduce(add, k, p)", "y = Reduce(add, k, x)")
    summed = [Reduce("add", (K,), e("multiply", X, e("f32", Index(axis)))) for axis in (K, I)]
    assert [rewritten(along, term) for term in summed] == [Reduce("add", (K,), X), summed[1]]


def test_nothing_to_do_is_the_same_object() -> None:
    term = e("exp", e("add", X, Y))
    assert rewritten(ADD_ZERO, term) is term
    graph = TensorGraph("g", (X, Y), (Output("o", (I, K), term),))
    assert rewrite_graph(graph, rules(ADD_ZERO)) is graph


def test_numbers_match_by_value_but_booleans_are_no_numbers() -> None:
    assert rewritten(ADD_ZERO, e("add", N, Const(0, "i64"))) is N
    false = Const(False, "b8")
    assert rewritten(rule("y = where(0, a, b)", "y = b"), e("where", false, X, Y)) is e("where", false, X, Y)
    assert rewritten(rule("y = where(false, a, b)", "y = b"), e("where", false, X, Y)) is Y
    assert rewritten(rule("y = add(x, -inf)", "y = x"), e("add", X, Const(float("-inf")))) is X


def test_statements_and_nested_calls_are_the_same_pattern() -> None:
    named = rule("n = negative(x); y = negative(n)", "y = x")
    nested = rule("y = negative(negative(x))", "y = x")
    for text in (named, nested):
        assert rewritten(text, e("negative", e("negative", X))) is X
        assert rewritten(text, e("negative", X)) is e("negative", X)


def test_a_variable_used_twice_is_one_value() -> None:
    square = rule("y = multiply(x, x)", "y = exp(x)")
    assert rewritten(square, e("multiply", X, X)) is e("exp", X)
    assert rewritten(square, e("multiply", X, Y)) is e("multiply", X, Y)


def test_backtracking_over_both_orders_at_once() -> None:
    text = rule("y = add(multiply(a, b), multiply(a, c))", "y = multiply(a, add(b, c))")
    for left in (e("multiply", Y, X), e("multiply", X, Y)):
        assert rewritten(text, e("add", left, e("multiply", X, X))) is e("multiply", X, e("add", Y, X))


def test_guards_choose_between_the_orders() -> None:
    text = rule(
        "y = Reduce(add, k, multiply(x, c))", "y = multiply(Reduce(add, k, x), c)", 'require k not in axes(c) else "v"'
    )
    scale = Input("s", (I,))
    for product in (e("multiply", X, scale), e("multiply", scale, X)):
        assert rewritten(text, Reduce("add", (K,), product)) is e("multiply", Reduce("add", (K,), X), scale)


def test_reductions_axes_and_functions_are_variables() -> None:
    text = rule(
        "y = Reduce(f, k, multiply(x, c))",
        "y = multiply(Reduce(f, k, x), c)",
        'require k not in axes(c) else "varies"',
    )
    scale = Input("s", (I,))
    product = e("multiply", X, scale)
    assert rewritten(text, Reduce("add", (K,), product)) is e("multiply", Reduce("add", (K,), X), scale)
    assert rewritten(text, Reduce("add", (I,), product)) is Reduce("add", (I,), product)
    assert rewritten(text, Reduce("add", (I, K), product)) is Reduce("add", (I, K), product)  # `k` is one axis
    several = rule("y = Reduce(maximum, ks.., relu(x))", "y = relu(Reduce(maximum, ks.., x))")
    assert rewritten(several, Reduce("maximum", (I, K), e("relu", X))) is e("relu", Reduce("maximum", (I, K), X))


def test_runs_take_any_number_of_operands() -> None:
    text = rule("y = f(before.., exp(x), after..)", "y = f(before.., x, after..)")
    assert rewritten(text, e("where", B, X, e("exp", Y))) is e("where", B, X, Y)
    assert rewritten(text, e("where", B, e("exp", X), Y)) is e("where", B, X, Y)
    assert rewritten(text, e("tanh", e("exp", X))) is e("tanh", X)


def test_other_nodes_match() -> None:
    view = Remap(e("exp", X), ((I, 2),))
    assert rewritten(rule("h = exp(x); y = h[is..]", "y = x[is..]"), view) is Remap(X, ((I, 2),))
    case = Case(compose.index(compose.index(I).expr).expr, X, X)
    assert rewritten(rule("y = Case(_, a, a)", "y = a"), case) is X
    assert rewritten(rule("y = Index(i)", "y = 7"), e("f32", Index(I))) is e("f32", Const(7, "i64"))


def test_a_minus_in_an_index_pattern_counts_backwards() -> None:
    backwards, forwards = (Remap(e("exp", X), ((I, compose.index(at).expr),)) for at in (operate("-", 3, I), I))
    text = rule("h = exp(x); y = h[-i + 3, j]", "y = 7")
    assert rewritten(text, backwards) is Const(7.0) and rewritten(text, forwards) is forwards


def test_only_the_spine_is_built_again() -> None:
    inside = e("add", X, ZERO)
    kept = e("exp", Y)
    assert rewritten(ADD_ZERO, e("multiply", kept, e("tanh", inside))) is e("multiply", kept, e("tanh", X))
    places = Remap(X, ((I, e("add", N, Const(0, "i64"))),))
    assert rewritten(ADD_ZERO, places) is Remap(X, ((I, N),))
    assert rewritten(ADD_ZERO, Reduce("add", (K,), inside)) is Reduce("add", (K,), X)
    assert rewritten(ADD_ZERO, Mat(Case(I, inside, Y))) is Mat(Case(I, X, Y))


def test_results_are_rewritten_again() -> None:
    text = (
        rule("y = exp(x)", "y = tanh(add(x, 0.0))", name="a") + ADD_ZERO + rule("y = tanh(x)", "y = relu(x)", name="b")
    )
    assert rewritten(text, e("exp", X)) is e("relu", X)


@pytest.mark.parametrize("guard", ["", 'require dtype(x) == dtype(y) else "dtype"'])
def test_ten_thousand_operations(guard: str) -> None:
    term: Term = X
    for _ in range(10_000):
        term = e("add", term, ZERO)
    rewriter = Rewriter(rules(rule("y = add(x, 0)", "y = x", guard)))
    assert rewriter.rewrite(e("exp", term)) is e("exp", X)
    assert rewriter.firings == 10_000


def test_the_first_rule_of_the_file_wins() -> None:
    text = rule("y = exp(x)", "y = relu(x)", name="a") + rule("y = exp(x)", "y = tanh(x)", name="b")
    assert rewritten(text, e("exp", X)) is e("relu", X)


def test_a_number_in_a_template_takes_the_dtype_it_meets() -> None:
    assert rewritten(rule("y = abs(x)", "y = multiply(x, 2)"), e("abs", X)) is e("multiply", X, Const(2.0))
    assert rewritten(rule("y = abs(x)", "y = multiply(x, 2)"), e("abs", N)) is e("multiply", N, Const(2, "i64"))
    assert rewritten(rule("y = exp(x)", "y = 1"), e("exp", X)) is Const(1.0)


def test_lets_and_parameters() -> None:
    text = rule(
        "y = divide(x, c)", "y = multiply(x, r)", 'let r = exact_reciprocal(c); require r != none else "no power"'
    )
    assert rewritten(text, e("divide", X, Const(8.0))) is e("multiply", X, Const(0.125))
    assert rewritten(text, e("divide", X, Const(3.0))) is e("divide", X, Const(3.0))
    head = "(N: int = 4)"
    limited = rule("y = Reduce(add, k, x)", "y = x", 'require extent(k) < N else "long"; ', head=head)
    term = Reduce("add", (K,), Input("z", (K,)))
    assert Rewriter(rules(limited)).rewrite(term) is term
    assert Rewriter(rules(limited, parameters={"r.N": 7})).rewrite(term) is Input("z", (K,))


@pytest.mark.parametrize(("kind", "fires"), [("require", False), ("prefer", True)])
def test_what_pays_is_asked_of_sizes_as_they_are_as_a_rule(kind: str, fires: bool) -> None:
    """What has to hold must hold for every length."""
    rows = Axis("r", Size("n", 1, 4096, 1, 64))
    text = rule("y = Reduce(add, k, x)", "y = x", f'{kind} extent(k) > 8 else "short"')
    value = Input("z", (rows,))
    term = Reduce("add", (rows,), value)
    for evidence in (None, TermEvidence()):
        assert Rewriter(rules(text), evidence=evidence).rewrite(term) is (value if fires else term)


def test_evidence_tells_what_fired_and_what_refused() -> None:
    text = ADD_ZERO + rule(
        "y = Reduce(add, k, x)", "y = x", 'require k not in axes(x) else "it varies along k"', name="drop"
    )
    evidence = TermEvidence()
    term = e("add", Reduce("add", (K,), X), ZERO)
    Rewriter(rules(text), evidence=evidence).rewrite(term)
    (fired,) = evidence.firings
    assert (fired.rule.name, fired.before, fired.after) == ("add_zero", term, Reduce("add", (K,), X))
    assert fired.rule.location == "test.rw:1"
    (refusal,) = evidence.refusals
    assert (refusal.because, refusal.term) == ("it varies along k", term.args[0])
    told = 'test.rw:9: drop: matched, but "it varies along k" [k not in axes(x); x=a, axes(x)=(i:4, k:6)]'
    assert refusal.render({refusal.term.x: "a"}) == told


def test_both_variants_agree() -> None:
    text = ADD_ZERO + rule("y = negative(negative(x))", "y = x", name="n")
    term = e("add", e("negative", e("negative", e("add", X, ZERO))), ZERO)
    assert Rewriter(rules(text), evidence=TermEvidence()).rewrite(term) is rewritten(text, term) is X


def test_a_rewrite_never_changes_the_dtype() -> None:
    evidence = TermEvidence()
    term = e("f32", N)
    assert Rewriter(rules(rule("y = f32(x)", "y = x")), evidence=evidence).rewrite(term) is term
    assert [refusal.because for refusal in evidence.refusals] == ["the result would have another dtype"]


def test_only_an_operand_of_the_root_is_taken_unseen() -> None:
    term = e("add", e("f32", N), ZERO)
    assert Rewriter(rules(rule("y = add(f32(x), 0)", "y = x"))).rewrite(term) is term


def test_rules_without_an_end_are_named() -> None:
    growing = rule("y = exp(x)", "y = exp(exp(x))", name="grow")
    with pytest.raises(DplcError, match="do not come to an end: `grow` fires on what it made"):
        rewritten(growing, e("exp", X))
    swapping = rule("y = exp(x)", "y = tanh(x)", name="there") + rule("y = tanh(x)", "y = exp(x)", name="back")
    with pytest.raises(DplcError, match="do not come to an end"):
        rewritten(swapping, e("exp", X))


def test_rules_marked_off_fire_only_if_named() -> None:
    off = "@off\n" + rule("y = exp(x)", "y = x", name="u")
    approximate = "@approx\n" + rule("y = tanh(x)", "y = x", name="a")
    term = e("exp", e("tanh", X))
    assert Rewriter(rules(off + approximate)).rewrite(term) is e("exp", X)
    assert Rewriter(rules(off + approximate, enabled=("u",))).rewrite(term) is X


def test_names_and_origins_follow_their_values() -> None:
    inside = e("add", e("tanh", X), ZERO)
    root = e("exp", inside)
    graph = TensorGraph("g", (X,), (Output("o", (I, K), root),), (Named("t", e("tanh", X)), Named("a", inside)))
    origins = {inside: "add", root: "exp"}
    after = rewrite_graph(graph, rules(ADD_ZERO), origins=origins)  # type: ignore[arg-type]
    assert after.names == (Named("t", e("tanh", X)),)
    assert origins[after.outs[0].value] == "exp"  # type: ignore[index]


@pytest.mark.parametrize(
    ("match", "rewrite", "message"),
    [
        ("y = add(x)", "y = x", "takes 2 operands"),
        ("y = Redcue(add, k, x)", "y = x", "no operation `Redcue`"),
        ("y = x[i, js..]", "y = x", "under an index map"),
        ("exp(x)", "y = x", "a line reads `name = value`"),
        ("y = Case(i < 3, a)", "y = a", "write `Case(condition, a, b)`"),
    ],
)
def test_what_is_no_rule_says_so_with_its_place(match: str, rewrite: str, message: str) -> None:
    with pytest.raises(DplcError) as caught:
        rewritten(rule(match, rewrite), e("exp", X))
    assert message in caught.value.render() and caught.value.span is not None
