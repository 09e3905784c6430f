"""Reductions over tuple monoids: the laws of the monoids, and one meaning on every IR."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from drawing import draws
from hypothesis import given, settings, strategies as st

from dplc.ir.interp import loop, tensor as meaning, tile
from dplc.ir.interp.loop import combined, fold_tuples, lifted
from dplc.ir.interp.scalar import ScheduleError, evaluate
from dplc.ir.monoid_texts import NAMES, ORDERED, OVER_PARTS
from dplc.ir.monoids import monoid
from dplc.ir.text.programs import print_program, read_program
from dplc.ir.verify import loop as verify_loop, tensor as verify_tensor, tile as verify_tile

numbers = st.floats(-30, 30)
elements = st.lists(st.tuples(numbers | st.just(-np.inf), numbers), min_size=1, max_size=12)


def parts_of(name: str, element: tuple[float, float]) -> tuple[Any, ...]:
    if name.endswith(OVER_PARTS):  # what they are made of are partial results
        return lifted(monoid(name), parts_of(name.removesuffix(OVER_PARTS), element))
    known = monoid(name)
    return lifted(known, operands_of(name, element))


def operands_of(name: str, element: tuple[float, float]) -> tuple[float, ...]:
    """What an element is made of; -inf only where it is a score."""
    first = element[0] if name.startswith("online") else max(element[0], -60.0)
    return (first, element[1], 1.0)[: len(monoid(name).operands)]


def close(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    return all(np.allclose(x, y, rtol=1e-9, atol=1e-9) for x, y in zip(a, b, strict=True))


def test_a_loop_without_turns_folds_nothing() -> None:
    text = """
kernel f(x: f32[3, 1]) -> y: f32[3], z: f32[3]:
    for i in 0..3 free:
        for l in 0..0 reduce:
            a = load x[i, l]
            (n, mean, q) <- welford((n, mean, q), (a))
            top <- maximum(top, a)
        y[i] = n
        z[i] = top
"""
    memory = loop.run(read_program(text, "text")[1], {"x": np.ones((3, 1))})
    assert not memory["y"].any() and (memory["z"] == -np.inf).all()


@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith(OVER_PARTS)])
@settings(max_examples=draws(10), deadline=None)
@given(data=elements)
def test_a_step_is_an_element_lifted_and_combined(name: str, data: list[tuple[float, float]]) -> None:
    known = monoid(name)
    so_far = stepped = known.identity
    for element in data:
        operands = operands_of(name, element)
        so_far = combined(known, so_far, lifted(known, operands))
        names = dict(zip(known.operands, operands, strict=True))
        names |= {f"{part}1": value for part, value in zip(known.parts, stepped, strict=True)}
        for stmt in known.step:
            names[stmt.dst] = evaluate(stmt.val, names)
        stepped = tuple(names[part] for part in known.parts)
        assert close(stepped, so_far)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=draws(5), deadline=None)
@given(data=elements)
def test_the_laws_of_a_monoid(name: str, data: list[tuple[float, float]]) -> None:
    known = monoid(name)
    parts = [parts_of(name, element) for element in data]
    a, b, c = parts[0], parts[len(parts) // 2], parts[-1]
    assert close(combined(known, a, known.identity), a)
    assert close(combined(known, known.identity, a), a)
    assert close(combined(known, known.identity, known.identity), known.identity)
    assert close(combined(known, combined(known, a, b), c), combined(known, a, combined(known, b, c)))


@pytest.mark.parametrize("name", NAMES)
def test_where_elements_may_change_places(name: str) -> None:
    """Two recurrences may not: rules that deal elements out anew ask."""
    a, b = parts_of(name, (0.5, 2.0)), parts_of(name, (3.0, 1.0))
    assert close(combined(monoid(name), a, b), combined(monoid(name), b, a)) == (name not in ORDERED)


def test_a_part_says_what_it_reads() -> None:
    assert monoid("online").reads("m") == ("x",)
    assert monoid("online").reads("s") == ("x", "v")
    assert monoid("welford").reads("n") == ()


def test_a_part_says_which_others_it_needs() -> None:
    assert monoid("online").beside("m") == {"m"}
    assert monoid("online_pair").beside("l") == {"m", "l"}
    assert monoid("welford").beside("q") == {"n", "mean", "q"}


@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith(OVER_PARTS)])
def test_partial_results_are_put_together_as_elements_are(name: str) -> None:
    dice = np.random.default_rng(1)
    known, over_parts = monoid(name), monoid(name + OVER_PARTS)
    operands = tuple(dice.standard_normal(12) for _ in known.operands)
    pieces = [fold_tuples(known, tuple(x[n : n + 3] for x in operands), 3) for n in range(0, 12, 3)]
    again = fold_tuples(over_parts, tuple(map(np.array, zip(*pieces, strict=True))), 4)
    assert close(again, fold_tuples(known, operands, 12))


LEAST = float(np.finfo(np.float64).min)


@pytest.mark.parametrize("name", ["online", "online_pair"])
@given(
    data=st.lists(
        st.sampled_from([-np.inf, LEAST, -3.4028234663852886e38, -3e38, 0.0, 1.0, 3e38]), min_size=1, max_size=6
    )
)
def test_any_scores_are_weighed_by_their_distance(name: str, data: list[float]) -> None:
    """Elements one by one, and halves that are combined: the largest counts 1, be it the least float; of -inf alone 0."""
    known, x = monoid(name), np.array(data)
    top = x.max()
    wanted = np.exp(x - (0 if top == -np.inf else top)).sum()
    folded = [
        fold_tuples(known, tuple([part] + [np.ones(len(part))] * (len(known.operands) - 1)), len(part))
        for part in (x, x[:3], x[3:])
    ]
    for m, s, *_ in (folded[0], combined(known, folded[1], folded[2])):
        assert m == top and np.allclose(s, wanted)


@given(st.lists(numbers, min_size=1, max_size=20))
def test_welford_is_the_variance(values: list[float]) -> None:
    n, mean, squares = fold_tuples(monoid("welford"), (np.array(values),), len(values))
    assert n == len(values)
    assert np.allclose([mean, squares / n], [np.mean(values), np.var(values)], atol=1e-9)


def online(x: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Sum over the last axis of x of exp(x - max) * v."""
    top = x.max(-1, keepdims=True)
    return np.einsum("in,n...->i...", np.exp(x - np.where(top == -np.inf, 0, top)), v)


GRAPH = """
graph g(x: f32[5, 7], v: f32[7, 3]) -> o: f32[5, 3], m: f32[5], q: f32[5]:
    o[i:5, e:3] = Fold(online.s, n:7, (x[i, n], v[n, e]))
    m[i] = Fold(online.m, n, (x[i, n], v[n, e]))
    q[i] = Fold(welford.q, n, (x[i, n]))
"""


def test_the_meaning_of_a_fold() -> None:
    (graph,) = read_program(GRAPH)[1]
    assert print_program(graph).strip() == GRAPH.strip()
    assert verify_tensor.check(graph) == []  # type: ignore[arg-type]
    dice = np.random.default_rng(0)
    x, v = dice.standard_normal((5, 7)) * 9, dice.standard_normal((7, 3))
    x[2], x[3, 1:4] = -np.inf, -np.inf
    o, m, q = meaning.run(graph, {"x": x, "v": v})  # type: ignore[arg-type]
    assert np.allclose(o, online(x, v))
    assert np.allclose(m, x.max(1))
    assert np.allclose(q[[0, 1, 4]], x[[0, 1, 4]].var(1) * 7)


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ("Fold(online.t, n:7, (x[i, n], 1.0))", "no `online.t`"),
        ("Fold(online.s, n:7, (x[i, n]))", "2 operands"),
        ("Fold(online.s, n:7, x[i, n], 1.0)", "2 operands"),
        ("Fold(online.s)", "takes axes"),
    ],
)
def test_a_wrong_fold_is_refused(wrong: str, what: str) -> None:
    text = f"graph g(x: f32[i:5, n:7]) -> y: f32[5]:\n    y[i:5] = {wrong}\n"
    with pytest.raises(Exception, match=what):
        read_program(text)


MERGE = """
kernel f(x: f32[5, 7], v: f32[7, 3]) -> y: f32[5, 3]:
    for i in 0..5 free:
        for e in 0..3 free:
            for n in 0..7 {role}:
                a = load x[i, n]
                b = load v[n, e]
                (m, s) <- online((m, s), (a, b))
            y[i, e] = s
"""


@pytest.mark.parametrize("role", ["reduce", "serial"])
def test_the_meaning_of_a_merge(role: str) -> None:
    program: Any = read_program(MERGE.format(role=role))[1]
    assert print_program(program).strip() == MERGE.format(role=role).strip()
    assert verify_loop.problems(program[0]) == ()
    dice = np.random.default_rng(1)
    x, v = dice.standard_normal((5, 7)), dice.standard_normal((7, 3))
    assert np.allclose(loop.run(program, {"x": x, "v": v})["y"], online(x, v))


@pytest.mark.parametrize(
    ("good", "bad", "what"),
    [
        ("(m, s) <- online((m, s), (a, b))", "(m, s, u) <- online((m, s, u), (a, b))", "2 parts and 2 operands"),
        ("(m, s) <- online((m, s), (a, b))", "s <- add(s, a)\n                Scale(s, b)", "have an order"),
        ("b = load v[n, e]", "b = load v[n, e]\n                Carry(b)", "`b` is not an accumulator"),
    ],
)
def test_what_does_not_hold_of_a_merge(good: str, bad: str, what: str) -> None:
    program: Any = read_program(MERGE.format(role="reduce").replace(good, bad))[1]
    assert any(what in problem for problem in verify_loop.problems(program[0]))


CARRIED = """
kernel f(x: f32[4, 8]) -> y: f32[4]:
    Tile(i:4=THREAD):
        {carry}
        for k in 0..8 serial:
            a = load x[i, k]
            before = maximum(top, -9.0)
            top <- maximum(top, a)
            gap = subtract(before, top)
            fix = exp(gap)
            d = subtract(a, top)
            p = exp(d)
            Scale(s, fix)
            s <- add(s, p)
        y[i] = s
"""


def test_a_carried_maximum_scales_what_was_added() -> None:
    program: Any = read_program(CARRIED.format(carry="Carry(top)"))[1]
    assert verify_tile.problems(program[0]) == ()
    x = np.random.default_rng(2).standard_normal((4, 8))
    wanted = np.exp(x - x.max(1, keepdims=True)).sum(1)
    assert np.allclose(tile.run(program, {"x": x})["y"], wanted)
    # without the mention the maximum starts again in every turn
    forgotten: Any = read_program(CARRIED.format(carry="pass"))[1]
    assert not np.allclose(tile.run(forgotten, {"x": x})["y"], wanted)


SHARED_TILE = """
kernel f(x: f32[16]) -> y: f32[16]:
    Tile(t:16=THREAD):
        p = SharedTile(c:16)
        a = load x[t]
        p[{cell}] = a
        {between}
        b = load p[15 - t]
        y[t] = b
"""


def test_values_in_shared_memory() -> None:
    program: Any = read_program(SHARED_TILE.format(cell="t", between="Sync()"))[1]
    assert verify_tile.problems(program[0]) == ()
    for seed in range(4):
        assert (tile.run(program, {"x": np.arange(16)}, seed)["y"] == np.arange(16)[::-1]).all()


@pytest.mark.parametrize(
    ("cell", "between", "what"),
    [
        ("t", "pass", "before a barrier"),
        ("t // 2", "Sync()", "two threads write one word"),
        ("t + 1", "Sync()", "outside of the shared tile"),
    ],
)
def test_races_and_bounds_of_stored_values(cell: str, between: str, what: str) -> None:
    program: Any = read_program(SHARED_TILE.format(cell=cell, between=between))[1]
    with pytest.raises(ScheduleError) as caught:
        for seed in range(12):
            tile.run(program, {"x": np.arange(16)}, seed)
    assert what in caught.value.render() or "uninitialised" in caught.value.render()
