"""Canonical expressions: the same value as what was written, a fixpoint, and read back identically."""

import random

import pytest

from dplc.ir import expr as e
from dplc.ir.node import contains
from dplc.ir.ranges import decide, interval, simplify
from dplc.ir.substitute import substitute, substitute_affine
from dplc.ir.text.print_statements import print_expr
from dplc.ir.text.programs import read_program

NAMES = ("x", "y", "z")
OPERATORS = ("+", "-", "*", "//", "%", "+", "*")
COUNT = 4000


def written(rnd, depth):
    """A random tree (operator, a, b), not yet canonical."""
    if depth == 0 or rnd.random() < 0.2:
        return rnd.choice([rnd.choice(NAMES), rnd.randint(0, 9)])
    if rnd.random() < 0.1:  # a quotient beside its remainder
        whole, n = written(rnd, depth - 1), rnd.randint(1, 9)
        return ("+", ("*", ("//", whole, n), n), ("%", whole, n))
    op = rnd.choice(OPERATORS)
    b = rnd.randint(1, 9) if op in ("//", "%") else written(rnd, depth - 1)
    return (op, written(rnd, depth - 1), b)


def canonical(tree):
    if isinstance(tree, str):
        return e.Var(tree)
    if isinstance(tree, int):
        return tree
    return e.binary(tree[0], canonical(tree[1]), canonical(tree[2]))


def evaluated(tree, env):
    if isinstance(tree, str):
        return env[tree]
    if isinstance(tree, int):
        return tree
    a, b = evaluated(tree[1], env), evaluated(tree[2], env)
    return {"+": a + b, "-": a - b, "*": a * b}[tree[0]] if tree[0] in "+-*" else a // b if tree[0] == "//" else a % b


def value(expression, env):
    return substitute(expression, dict(env))


def read_back(expression):
    text = f"kernel k() -> y: f32[1]:\n    y[{print_expr(expression)}] = 1.0\n"
    return read_program(text)[1][0].body[0].idx[0]


def samples():
    rnd = random.Random(1)
    return [(written(rnd, 4), rnd) for _ in range(COUNT)]


def test_four_thousand_random_expressions_keep_their_value():
    for tree, rnd in samples():
        expression = canonical(tree)
        for _ in range(3):
            env = {name: rnd.randint(-20, 20) for name in NAMES}
            assert value(expression, env) == evaluated(tree, env), (tree, print_expr(expression), env)


def test_they_are_read_back_as_the_same_node():
    for tree, _ in samples():
        expression = canonical(tree)
        again = read_back(expression)
        assert again is expression or (again == expression and type(again) is type(expression)), print_expr(expression)


def test_canonical_form_is_a_fixpoint():
    for tree, _ in samples()[:1000]:
        expression = canonical(tree)
        assert e.rebuild(expression, lambda part: part) == expression


def test_intervals_and_simplification_hold_for_every_value():
    ranges = {"x": (0, 7), "y": (0, 15), "z": (-3, 3)}
    for tree, rnd in samples()[:1500]:
        expression = canonical(tree)
        low, high = interval(expression, ranges)
        simple = simplify(expression, ranges)
        for _ in range(4):
            env = {name: rnd.randint(*ranges[name]) for name in NAMES}
            wanted = evaluated(tree, env)
            assert low <= wanted <= high, print_expr(expression)
            assert value(simple, env) == wanted, (print_expr(expression), print_expr(simple), env)


def test_decisions_are_true():
    ranges = {"x": (0, 7), "y": (0, 15), "z": (-3, 3)}
    rnd = random.Random(2)
    decided = 0
    for _ in range(1500):
        a, b, op = written(rnd, 3), written(rnd, 2), rnd.choice(list(e.COMPARISONS))
        answer = decide(e.compare(op, canonical(a), canonical(b)), ranges)
        for _ in range(4):
            env = {name: rnd.randint(*ranges[name]) for name in NAMES}
            assert answer in (None, e.COMPARISONS[op](evaluated(a, env), evaluated(b, env)))
        decided += answer is not None
    assert decided > 100


def test_affine_substitution_keeps_the_value():
    """`j*4 + r := q*64 + i`: where the form has that value, nothing changes."""
    rnd = random.Random(3)
    j, r, q, i, o = map(e.Var, "jrqio")
    form, image = e.add(e.multiply(j, 4), r), e.add(e.multiply(q, 64), i)
    for _ in range(500):
        c = rnd.randint(1, 5)
        inner = e.add(e.add(e.multiply(o, rnd.randint(0, 9)), e.multiply(form, c)), rnd.randint(0, 9))
        out = substitute_affine(inner, form, image)
        assert not {"j", "r"} & e.free_names(out)
        env = {name: rnd.randint(0, 30) for name in "qio"}
        total = env["q"] * 64 + env["i"]
        assert value(out, env) == value(inner, {"j": total // 4, "r": total % 4, **env})


@pytest.mark.parametrize(
    ("text", "canonical_text"),
    [
        ("(c*64 + r) // 16", "c*4 + r // 16"), ("(c*64 + r) % 16", "r % 16"), ("k*16 + k*16", "k*32"), ("k - k", "0"),
        ("(2*k + 3) - 1", "k*2 + 2"), ("-(k - 1)", "-k + 1"), ("k // 1", "k"), ("k % 1", "0"), ("k ^ 0", "k"),
        ("(c*64 + r) // 8 * 24 + (c*64 + r) % 8 * 3", "c*192 + r*3"), ("k // 8 * 4 + k % 8", "k // 8 * 4 + k % 8"),
    ],
)  # fmt: skip
def test_written_forms(text, canonical_text):
    program = f"kernel k() -> y: f32[1]:\n    y[{text}] = 1.0\n"
    shown = print_expr(read_program(program)[1][0].body[0].idx[0])
    again = f"kernel k() -> y: f32[1]:\n    y[{canonical_text}] = 1.0\n"
    assert read_program(again) == read_program(program), shown


def test_numbers_of_different_meaning_are_different_nodes():
    nodes = [e.Call("abs", (v,)) for v in (1, 1.0, True, 0.0, -0.0, False)]
    assert len({id(node) for node in nodes}) == 6
    assert e.Call("abs", (1,)) is nodes[0] and e.Call("abs", (-0.0,)) is nodes[4]


def test_a_divisor_that_is_no_positive_number_is_left_alone():
    x, y, size = e.Var("x"), e.Var("y"), e.Size("s", 1, 64, 1, 8)
    ranges = {"x": (0, 7), "y": (0, 15)}
    for divisor in (y, size, -4, 0):
        for op in ("//", "%"):
            written_out = e.Binary(op, e.add(x, 0), divisor)
            assert simplify(written_out, ranges) is written_out


def test_what_an_expression_contains_is_known_however_often_it_is_shared() -> None:
    """A walk would visit its leaf 2**200 times."""
    shared = e.Var("x")
    for _ in range(200):
        shared = e.Call("multiply", (shared, shared))
    assert contains(shared, e.Var) and contains(shared, e.Axis, e.Call) and not contains(shared, e.Axis)
    assert not contains(3, e.Var)
