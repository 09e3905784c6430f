"""Every fact that a rule on values trusts, against the interpreter: it computes what follows if the fact is right.

A rule is proved, or checked on programs, under its facts. So each has a law here, or is one of those that only say which
kernels there may be: programs are drawn until each has given several answers, and their kernels are compared.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from built_in import rules_in
from drawing import draws
from hypothesis import given, settings, strategies as st
from random_programs import GATHERING, data_for, program

from dplc.codegen.target import target
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import compiler_with
from dplc.engine.facts import tensor as facts
from dplc.engine.kernels.examples import fused_alone, settings_of
from dplc.engine.kernels.fusion_pass import FusionRules
from dplc.engine.kernels.kernels import compile_graph
from dplc.engine.language import core as s
from dplc.engine.language.check import load_facts
from dplc.engine.language.evaluate import FACTS, Fact, facts_of
from dplc.engine.language.rule import Rule
from dplc.engine.language.typed_slots import calls, names_in
from dplc.engine.rewrite.terms.rewriter import find_packs
from dplc.ir import compose
from dplc.ir.expr import Axis, binary
from dplc.ir.functions import FUNCTIONS
from dplc.ir.interp import loop, tensor
from dplc.ir.interp.scalar import KINDS
from dplc.ir.tensor import Const, Elementwise, Input, Output, Reduce, Remap, TensorGraph, Term, axes, postorder, terms
from dplc.ir.text.tensor import read_graph

AXES = tuple(Axis(name, extent) for name, extent in zip("ijkl", (2, 3, 5, 7), strict=True))
SOME_AXES = st.lists(st.sampled_from(AXES), unique=True).map(tuple)
WHOLE = st.integers(-50, 50)
FLOATS = st.floats(width=32, allow_nan=False)
Law = Callable[[Any], None]
LAWS: dict[str, Law] = {}


def law(check: Law) -> Law:
    LAWS[check.__name__.removeprefix("law_of_")] = check
    return check


def meaning(x: Term, data: dict[str, Any] | None = None) -> Any:
    """Return the value of a term along its own axes; of inputs without data, drawn ones."""
    own = axes(x)
    ins = tuple(term for term in postorder((x,)) if isinstance(term, Input))
    graph = TensorGraph("g", ins, (Output("y", own, x),))
    return tensor.run(graph, data_for(graph, 0) if data is None else data, partial=True)[0]


def counted(over: tuple[Axis, ...]) -> int:
    """Count the elements along axes by adding up ones."""
    return int(meaning(Reduce("add", over, Const(1.0))))


def drawn_term(data: Any, kind: type = Term) -> Any:
    """Return a value of a drawn program, of a class if it has one."""
    graph = program(random.Random(data.draw(st.integers(0, 10**6))), GATHERING)
    found = terms(graph)
    return data.draw(st.sampled_from([term for term in found if isinstance(term, kind)] or found))


def drawn_values(over: tuple[Axis, ...], name: str = "x") -> Input:
    return Input(name, over)


# ---- lists of axes


@law
def law_of_disjoint(data: Any) -> None:
    """A factor without the summed axes leaves the sum."""
    ks, own = data.draw(SOME_AXES), data.draw(SOME_AXES)
    x, factor = drawn_values(AXES), drawn_values(own, "s")
    inside = meaning(compose.reduce("add", ks, compose.elementwise("multiply", x, factor)))
    if facts.disjoint(ks, own):
        outside = compose.elementwise("multiply", compose.reduce("add", ks, x), factor)
        assert np.allclose(inside, meaning(outside), rtol=1e-12)
    else:
        assert set(ks) & set(own)


@law
def law_of_within(data: Any) -> None:
    some, others = data.draw(SOME_AXES), data.draw(SOME_AXES)
    assert facts.within(some, others) == (counted(tuple({*some, *others})) == counted(others))


@law
def law_of_common(data: Any) -> None:
    some, others = data.draw(SOME_AXES), data.draw(SOME_AXES)
    both = counted(facts.common(some, others)) * counted(tuple({*some, *others}))
    assert both == counted(some) * counted(others)


@law
def law_of_element_count(data: Any) -> None:
    over = data.draw(SOME_AXES)
    assert facts.element_count(over) == counted(over)
    assert facts.element_count(over + over) == counted(over)


@law
def law_of_size(data: Any) -> None:
    over = data.draw(SOME_AXES)
    assert facts.size(over) == meaning(drawn_values(over)).ndim


@law
def law_of_extent(data: Any) -> None:
    axis = data.draw(st.sampled_from(AXES))
    assert meaning(drawn_values((axis,))).shape == (facts.extent(axis),)


@law
def law_of_axes(data: Any) -> None:
    """A value read at 0 along all its axes is one number, and along the others it stays what it is."""
    x = drawn_term(data)
    own = facts.axes_of(x)
    assert meaning(x).shape == tuple(axis.extent for axis in own)
    assert meaning(Remap(x, tuple((axis, 0) for axis in own)) if own else x).shape == ()


@law
def law_of_first_along(data: Any) -> None:
    x = drawn_term(data)
    over = tuple(axis for axis in axes(x) if data.draw(st.booleans()))
    first = tuple(0 if axis in over else slice(None) for axis in axes(x))
    read = Remap(x, facts.first_along(over)) if over else x
    assert np.array_equal(meaning(read), meaning(x)[first], equal_nan=True)


def moved(data: Any) -> tuple[Input, tuple[Axis, ...], Any]:
    """Return a value, axes to sum over, and an index map: flipped, shared, merged or renamed axes, and fixed ones."""
    x, ks = drawn_values(data.draw(SOME_AXES)), data.draw(SOME_AXES)
    targets = (*AXES, Axis("m", 4))
    is_: list[tuple[Axis, Any]] = []
    for axis in x.axes:
        if data.draw(st.booleans()):
            place = data.draw(st.sampled_from([0, *(t for t in targets)]))
            place = binary("%", place, axis.extent) if place else 0
            is_.append((axis, binary("-", axis.extent - 1, place) if data.draw(st.booleans()) else place))
    return x, ks, tuple(is_)


@law
def law_of_source_axes(data: Any) -> None:
    """A map may follow a sum if it neither reads along a summed axis nor replaces one."""
    x, ks, is_ = moved(data)
    if not is_ or not ks:
        return
    before = Reduce("add", ks, Remap(x, is_))
    if facts.disjoint(ks, facts.image_axes(is_)) and facts.disjoint(ks, facts.source_axes(is_)):
        kept = tuple((axis, place) for axis, place in is_ if axis in axes(Reduce("add", ks, x)))
        after = Reduce("add", ks, x)
        after = Remap(after, kept) if kept else after
        assert axes(before) == axes(after)
        assert np.allclose(meaning(before), meaning(after), rtol=1e-12)


@law
def law_of_image_axes(data: Any) -> None:
    """A value that is read under a map varies along its own axes but the replaced ones, and along what the map reads."""
    x, _, is_ = moved(data)
    if is_:
        own = [axis for axis in x.axes if axis not in facts.source_axes(is_)]
        assert set(axes(Remap(x, is_))) == {*own, *facts.image_axes(is_)}
        assert counted(tuple({*own, *facts.image_axes(is_)})) == meaning(Remap(x, is_)).size


@law
def law_of_folded_below(data: Any) -> None:
    """The rest of the axes may be folded after those that rows fold."""
    x, ks = drawn_term(data, Reduce), data.draw(SOME_AXES)
    along = (*axes(x), *getattr(x, "over", ()), *ks)
    row = facts.folded_below(x, along)
    assert set(row) <= set(along)
    assert set(row) >= set(getattr(x, "over", ()))
    own = tuple(axis for axis in axes(x) if axis not in row)
    whole, first = (Reduce("maximum", over, x) if over else x for over in (axes(x), tuple(set(axes(x)) & set(row))))
    assert np.array_equal(meaning(Reduce("maximum", own, first) if own else first), meaning(whole), equal_nan=True)


# ---- numbers and dtypes


@law
def law_of_dtype(data: Any) -> None:
    x = drawn_term(data)
    assert meaning(x).dtype == KINDS[facts.dtype_of(x).name]


@law
def law_of_literal(data: Any) -> None:
    x = data.draw(
        st.one_of(
            st.builds(Const, FLOATS),
            st.builds(Const, WHOLE, st.just("i64")),
            st.builds(Const, st.booleans(), st.just("b8")),
        )
    )
    assert meaning(x) == facts.literal(x)
    assert facts.literal(drawn_values(())) is None


@law
def law_of_one_over(data: Any) -> None:
    """The sum of equal elements times the number is the element, to the last bit but two."""
    over = data.draw(SOME_AXES)
    count = counted(over)
    right = 1 / count
    near = st.sampled_from([right, right * 1.01, right * 1.0001, right + 0.005, 1 / (count + 1), -right, 0.0, 0.13])
    c = data.draw(st.one_of(near, st.floats(0.5 / count, 2 / count)))
    if facts.one_over(Const(c), over):
        mean = compose.elementwise("multiply", Reduce("add", over, drawn_values(())), Const(c))
        assert math.isclose(meaning(mean, {"x": np.asarray(3.0)}), 3.0, rel_tol=2**-51)
    assert facts.one_over(Const(right), over)
    assert not facts.one_over(drawn_values(()), over)


@law
def law_of_exact_reciprocal(data: Any) -> None:
    """To multiply by it is to divide, bit for bit, in every float that a device divides in."""
    powers = st.builds(lambda sign, n: sign * 2.0**n, st.sampled_from([1, -1]), st.integers(-140, 120))
    c = data.draw(st.one_of(powers, FLOATS))
    found = facts.exact_reciprocal(Const(c))
    if found is not None:
        for kind in (np.float32, np.float64):
            x = kind(data.draw(st.floats(width=32)))
            with np.errstate(all="ignore"):
                assert np.array_equal(x / kind(c), x * kind(found), equal_nan=True)
                assert np.signbit(x / kind(c)) == np.signbit(x * kind(found)) or np.isnan(x)


@law
def law_of_number(data: Any) -> None:
    """A function of numbers is the number that the interpreter computes."""
    fn = data.draw(
        st.sampled_from(
            ["add", "subtract", "multiply", "divide", "maximum", "negative", "exp", "less", "abs", "i32", "f32"]
        )
    )
    kinds = st.sampled_from([("f32", FLOATS), ("i64", WHOLE), ("i32", WHOLE)])
    arity = FUNCTIONS[fn].arity
    args = []
    for _ in range(arity):
        kind, values = data.draw(kinds)
        args.append(Const(data.draw(values), kind))
    x = Elementwise(fn, tuple(args))
    found = facts.number(x)
    if found is not None:
        assert math.isclose(found, meaning(x), rel_tol=1e-6), (x, found, meaning(x))


# ---- weights


@law
def law_of_known(data: Any) -> None:
    """A value that is known when a program is loaded is the same whatever the other inputs are."""
    x = drawn_term(data)
    ins = [term for term in postorder((x,)) if isinstance(term, Input)]
    weights = {term.name for term in ins if data.draw(st.booleans())}
    if facts.known(SimpleNamespace(weights=weights, known={}), x):
        graph = TensorGraph("g", tuple(ins), (Output("y", axes(x), x),))
        one, other = data_for(graph, 0), data_for(graph, 1)
        values = [meaning(x, {**drawn, **{name: one[name] for name in weights}}) for drawn in (one, other)]
        assert weights and np.array_equal(*values, equal_nan=True)


@law
def law_of_packed(data: Any) -> None:
    """A part of a packed weight is the weight."""
    k = AXES[2]
    sides = [Axis(f"o{n}", data.draw(st.integers(1, 4))) for n in range(data.draw(st.integers(2, 4)))]
    weights = [Input(f"w{n}", (side, k) if data.draw(st.booleans()) else (k, side)) for n, side in enumerate(sides)]
    x = drawn_values((AXES[0], k))
    products = [Reduce("add", (k,), Elementwise("multiply", (x, w))) for w in weights]
    site = SimpleNamespace(packs=find_packs(products, {w.name for w in weights}))
    for w in weights:
        whole, part = facts.packed(site, w, (k,)), facts.packed_places(site, w, (k,))
        values = {
            one.name: np.arange(math.prod(a.extent for a in one.axes)).reshape([a.extent for a in one.axes]) + 100.0 * n
            for n, one in enumerate(weights)
        }
        read = compose.remap(whole, dict(part))
        order = [axes(read).index(axis) for axis in w.axes]
        assert np.array_equal(meaning(read, values).transpose(order), values[w.name])


LAWS["packed_places"] = law_of_packed


@pytest.mark.parametrize("name", LAWS)
def test_what_follows_from_a_fact_is_so(name: str) -> None:
    settings(max_examples=draws(25), deadline=None)(given(st.data())(LAWS[name]))()


# ---- facts about which kernels there may be


def compare(graph: TensorGraph, rules: FusionRules, seed: int) -> None:
    """Assert that the kernels of a program mean what it means."""
    data = data_for(graph, seed)
    memory = loop.run(compile_graph(graph, rules).kernels, {name: np.atleast_1d(value) for name, value in data.items()})
    for out, wanted in zip(graph.outs, tensor.run(graph, data), strict=True):
        assert np.allclose(memory[out.name].reshape(wanted.shape), wanted, rtol=1e-9, atol=1e-9, equal_nan=True)


SCAN = "(lambda x: torch.cumsum(x, -1) / x.sum(-1, keepdim=True))(torch.randn(4, 16))"  # a sum that a row shares, and one up to each element


def answered(seeds: range) -> dict[str, set[Any]]:
    """The answers that facts gave in examples of the rules, and in drawn programs, whose kernels mean what these mean."""
    answers: dict[str, set[Any]] = defaultdict(set)

    def noted(entry: Fact) -> Fact:
        def ask(*arguments: Any) -> Any:
            answers[entry.name].add(answer := entry.ask(*arguments))
            return answer

        return dataclasses.replace(entry, ask=ask)

    before = dict(FACTS)
    try:
        FACTS.update((key, noted(entry)) for key, entry in before.items() if key[0] == "tensor")
        facts_of.cache_clear()
        every = [dataclasses.replace(rule) for rule in rules_in("fusion")]
        together = FusionRules(every)
        for seed in seeds:
            compare(program(random.Random(seed), GATHERING), together, seed)
        compare(compiler_with(target()).values(capture_text(SCAN)).graph, together, 0)
        for rule in every:
            for example in rule.examples:
                fused_alone(rule, read_graph(example.before[0]), target(), settings_of(example, rule))
    finally:
        FACTS.clear()
        FACTS.update(before)
        facts_of.cache_clear()
    return answers


def trusted(rule: Rule) -> set[str]:
    """The facts in the `require` clauses of a rule, in its template, and in the lets that these read."""
    lets = {clause.name: clause.value for clause in rule.clauses if isinstance(clause, s.LetClause)}
    parts = [*(guard.condition for guard in rule.guards if guard.kind == "require"), *rule.rewrite]
    reached: set[str] = set()
    for part in parts:
        fresh = (names_in(part) & lets.keys()) - reached
        reached |= fresh
        parts += [lets[name] for name in fresh]
    return {call.fn for part in parts for call in calls(part)} & facts_of(rule.level).keys()


# What these say of a value decides whether it may join a kernel. A wrong answer is a wrong kernel.
OF_KERNELS = {
    *("beside", "contains_reduction", "evaluations", "fixed", "folded", "folded_together", "folds_once", "independent"),
    *("moved", "only_for", "places_read", "readers", "reduction", "repeats", "same_loops", "same_place"),
    *("sum_before_scan", "sweeps", "widens"),
}


def test_every_fact_that_a_rule_trusts_has_a_law() -> None:
    load_facts()
    needed = {name for folder in ("algebra", "tensor", "fusion") for rule in rules_in(folder) for name in trusted(rule)}
    assert needed - LAWS.keys() - OF_KERNELS == set()
    assert needed >= OF_KERNELS and not OF_KERNELS & LAWS.keys()


def test_facts_of_kernels_answer_in_several_ways() -> None:
    answers = answered(range(draws(40)))
    assert " ".join(sorted(name for name in OF_KERNELS if len(answers[name]) < 2)) == ""
