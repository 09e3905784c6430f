"""Normal forms of values over named axes: expressions of SymPy, in which sums are split as far as possible.

A value is a real function of indices. A reduction is a function of its body and of the indices that it binds. A region
is a set of axes of any number, with one index for all of them. Two values with equal normal forms are therefore equal
for all ranks and sizes.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from typing import Any

from sympy import Add, Dummy, Function, Mul, S, Symbol, default_sort_key, exp, expand, log, nan, numer, oo, together
from sympy.core.function import AppliedUndef

Form = Any  # an expression of SymPy
LOWEST: Form = -oo
BOUND = "index of"  # a function of the depth, the position and the region of an index
IDEMPOTENT = ("maximum", "minimum", "logical_and", "logical_or")


class Stopped(Exception):
    """The value or condition that a proof cannot express, in words."""


def applied(name: str, *args: Form) -> Form:
    """Return an unknown real function of some forms."""
    return Function(name, real=True)(*args) if args else Symbol(name, real=True)


def kind(form: Form) -> str:
    """Return the name of an unknown function, "" for other forms."""
    return form.func.__name__ if isinstance(form, AppliedUndef) else ""


def extent(region: str) -> Form:
    return Symbol(f"extent({region})", positive=True)


def equal(a: Form, b: Form) -> bool:
    """Return whether two forms are equal where no divisor is 0."""
    return bool(a == b or expand(numer(together(expand(a - b)))) == 0)


def product(a: Form, b: Form) -> Form:
    if LOWEST in (a, b):
        raise Stopped("a product with -inf")
    return a * b


def inverse(a: Form) -> Form:
    """Return 1 / a; what is undefined is NaN, here and in SymPy."""
    return nan if a == LOWEST or equal(a, S.Zero) else 1 / a


def logarithm(a: Form) -> Form:
    return log(a) if a != 0 else LOWEST


# ---- Bound indices.


def indices(form: Form) -> set[Form]:
    """Return the indices in a form that a reduction around it runs over."""
    return set(form.atoms(Dummy))


def closed(name: str, bound: Collection[Form], body: Form) -> Form:
    """Return the reduction that binds indices in a body. Of all orders of the indices, it takes the first."""
    depth = max((form.args[0] for form in body.atoms(AppliedUndef) if kind(form) == BOUND), default=0) + 1

    def in_order(order: tuple[Form, ...]) -> Form:
        names = {index: applied(BOUND, depth, n, Symbol(index.name)) for n, index in enumerate(order)}
        return applied(f"Reduce {name}", body.xreplace(names), *names.values())

    orders = itertools.permutations(sorted(bound, key=default_sort_key))
    return min(map(in_order, orders), key=default_sort_key) if bound else body


def opened(form: Form) -> tuple[set[Form], Form]:
    """Return fresh indices for those that a reduction binds, and its body with them."""
    body, *bound = form.args
    names = {index: Dummy(index.args[2].name) for index in bound}
    return set(names.values()), body.xreplace(names)


def total(bound: Collection[Form], form: Form) -> Form:
    """Return the sum over indices: linear, and factors leave it that do not vary."""
    return Add(*(_total(set(bound), term) for term in Add.make_args(expand(form))))


def _total(bound: set[Form], product: Form) -> Form:
    """Return the sum of a product. Sums that vary with a bound index are opened: a sum of sums is one sum."""
    waiting, groups = list(Mul.make_args(product)), list[tuple[set[Form], Form]]()
    while waiting:
        factor = waiting.pop()
        base, n = factor.as_base_exp()
        own = indices(factor) & bound
        if kind(base) == "Reduce add" and n.is_Integer and n > 0 and own:
            new, body = opened(base)
            bound |= new
            waiting += (*Mul.make_args(body), base ** (n - 1))
            continue
        for group in [group for group in groups if group[0] & own]:  # what shares an index stays together
            groups.remove(group)
            own, factor = own | group[0], factor * group[1]
        groups.append((own, factor))
    free = bound.difference(*(own for own, _ in groups))
    sums = (closed("add", own, factor) if own else factor for own, factor in groups)
    return Mul(*sums, *(extent(index.name) for index in free))


def fold(name: str, bound: set[Form], form: Form) -> Form:
    """Return another reduction: a reduction of a reduction is one, and a maximum commutes with exp and shifts."""
    body = expand(form)
    if name in ("maximum", "minimum"):
        if isinstance(body, exp):
            return exp(fold(name, bound, body.exp))
        shift = Add(*(term for term in Add.make_args(body) if not indices(term) & bound))
        if shift not in (0, body):
            return shift + fold(name, bound, body - shift)
    if kind(body) == f"Reduce {name}":
        new, body = opened(body)
        bound = bound | new
    if name in IDEMPOTENT:
        bound = bound & indices(body)
    return closed(name, bound, body)


def shown(form: Form) -> str:
    """Return a form as text: a bound index by its region."""
    return str(form.xreplace({part: part.args[2] for part in form.atoms(AppliedUndef) if kind(part) == BOUND}))
