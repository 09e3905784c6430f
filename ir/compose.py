"""Building Tensor IR: typed and canonical constructors of terms.

Operands are promoted as in torch: `elementwise` inserts the casts that give a common dtype, and a Python number is
*weak*: it adopts the dtype of the other operand (`x * 2` stays f32, `n + 0.5` of an integer n becomes f32). A number
that sizes determine at a launch (`s - 1`, `reciprocal(s)`) is weak, too. Canonical: constants fold, arithmetic on
`Index` stays an index expression, index maps compose, and conditions that the extents decide are removed. A trace
records each of these steps. The reader of texts builds terms as they are written; these constructors are for computed
terms.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar

import numpy as np

from .dtypes import FLOATS, SMALL_FLOATS
from .expr import Axis, Call, Var, invert
from .facts.index import interval, operate, substitute
from .functions import (
    CAST,
    COMPARE,
    FLOAT,
    FUNCTIONS,
    HELD,
    LOGICAL,
    SELECT,
    category,
    identity,
    weak_dtype,
    whole,
    wrapped,
)
from .monoids import of_part
from .node import WEIGHT, Expr, Node, contains, contents, immutable
from .tensor import Case, Const, Elementwise, Fold, Index, Mat, Reduce, Remap, Term, axes, dtype, is_condition

# ---- simplifications, recorded for a trace


@immutable
class Folded:
    """Record of one call: `fn(args..)` was requested and gave `result`, a term or a number."""

    fn: str
    args: tuple[Any, ...]
    result: Any


_collector: ContextVar[list[Folded] | None] = ContextVar("folds", default=None)


@contextlib.contextmanager
def collected_folds() -> Iterator[list[Folded]]:
    """Return a context manager that collects the constant folding inside of it, in order.

    An outer collector does not receive the results that an inner collector receives.
    """
    found: list[Folded] = []
    token = _collector.set(found)
    try:
        yield found
    finally:
        _collector.reset(token)


R = TypeVar("R")


def tell(fn: str, args: tuple[Any, ...], result: R) -> R:
    """Return the result, and report it to the active collector of `collected_folds`."""
    collector = _collector.get()
    if collector is not None:
        collector.append(Folded(fn, args, result))
    return result


Operand = Any  # a Term; weak: a Python number, or a number of sizes (`known_at_launch`)

_CATEGORY: dict[type, int] = {bool: 0, int: 1, float: 2}


def const(value: Any, as_dtype: str | None = None) -> Const:
    """Return a number of a dtype, by default f32, i64 or b8 according to the kind of number."""
    name = as_dtype or {float: "f32", int: "i64", bool: "b8"}[value.__class__]
    if category(name) == 2:
        return Const(float(value), name)
    if category(name) == 1 and isinstance(value, float) and not math.isfinite(value):
        raise OverflowError(f"{value} is not a value of {name}")
    return Const(bool(value) if name == "b8" else wrapped(int(value), name), name)


def weak_category(x: Operand) -> int:
    """Return the category of a number that adopts the dtype of the other operands."""
    if x.__class__ is Call:
        return 2 if FUNCTIONS[x.fn].kind == FLOAT else max(map(weak_category, x.args))
    return _CATEGORY.get(x.__class__, 1)


def of_sizes(x: Expr, to: str) -> Term:
    """Return a number of sizes as a value of a dtype."""
    if x.__class__ is not Call:
        return cast(Index(x), to)
    wide = "f32" if weak_category(x) == 2 and (to in SMALL_FLOATS or to not in FLOATS) else to
    return cast(elementwise(x.fn, *(cast(arg, wide) for arg in x.args)), to)


def index(e: Expr) -> Term:
    """Return index arithmetic as a value."""
    if isinstance(e, Term):
        return e
    return Index(e) if not isinstance(e, (bool, int)) else const(e)


def cast(x: Operand, to: str) -> Term:
    """Return x in another dtype, or x itself if it already has that dtype."""
    if not isinstance(x, Term):
        return of_sizes(x, to) if isinstance(x, Node) else const(x, to)
    if dtype(x) == to:
        return x
    if x.__class__ is Const:
        return const(int(whole(x.value, to)) if category(to) == 1 else x.value, to)
    return Elementwise(to, (x,))


def asked_cast(x: Operand, to: str) -> Term:
    """Return the cast that a rule requests, and report it to the tracer if no cast is needed."""
    made = cast(x, to)
    return tell(to, (x,), made) if isinstance(x, Term) and (made is x or made.__class__ is Const) else made


def held(x: Operand, to: str) -> Term:
    """Return the f32 result of an op in its declared dtype.

    A small float is rounded when it is stored, not earlier. Any other dtype is cast.
    """
    if isinstance(x, Term) and f"as_{to}" in HELD and dtype(x) == "f32" and x.__class__ is not Const:
        return Elementwise(f"as_{to}", (x,))
    return cast(x, to)


def common_dtype(operands: Iterable[Operand]) -> str | None:
    """Return the common dtype of operands, or None if all of them are numbers."""
    weak, strong = 0, []
    for x in operands:
        if isinstance(x, Term):
            strong.append(dtype(x))
        else:
            weak = max(weak, weak_category(x))
    if not strong:
        return None
    return weak_dtype(weak, strong)


def elementwise(fn: str, *args: Operand) -> Operand:
    """Return `fn(args..)`, which is a number if all operands are numbers."""
    if not any(isinstance(x, Term) for x in args):
        return _fold_numbers(fn, args)
    operands = agreed(fn, args)
    simple = _simplify(fn, operands)
    if simple is None:
        return Elementwise(fn, operands)
    return simple if simple.__class__ is Elementwise and simple.fn == fn else tell(fn, operands, simple)


def _fold_numbers(fn: str, args: tuple[Any, ...]) -> Operand:
    if any(isinstance(x, Node) for x in args):
        return elementwise(fn, *map(as_term, args))
    folded = _compute(fn, args) if FUNCTIONS[fn].folds else None
    if folded is not None:
        return tell(fn, args, folded)
    if fn == "copy":
        return args[0]
    if fn == "where":
        return args[1] if args[0] else args[2]
    return elementwise(fn, *map(const, args))


def _compute(fn: str, values: tuple[Any, ...]) -> Any:
    """Return the value of a function of numbers, or None if a text cannot hold the value."""
    kinds = {v.__class__ for v in values}
    numbers = (int(v) if v.__class__ is bool and FUNCTIONS[fn].kind != LOGICAL else v for v in values)
    try:
        with np.errstate(over="ignore"):  # integers wrap around
            result = FUNCTIONS[fn].numpy(*numbers).item()
    except (ArithmeticError, ValueError, AttributeError):
        return None
    if isinstance(result, float) and math.isnan(result):
        return None
    if FUNCTIONS[fn].kind in (COMPARE, LOGICAL):
        return bool(result)
    return int(result) if FUNCTIONS[fn].kind != FLOAT and float not in kinds else float(result)


def agreed(fn: str, args: Sequence[Operand]) -> tuple[Term, ...]:
    """Return the operands as terms of the dtypes that fn accepts."""
    kind = FUNCTIONS[fn].kind
    if kind == CAST:
        return (as_term(args[0]),)
    if kind == LOGICAL:
        return tuple(cast(x, "b8") for x in args)
    chosen = args[1:] if kind == SELECT else args
    name = common_dtype(chosen) or common_dtype(map(as_term, chosen)) or "f32"
    if kind == FLOAT and name not in FLOATS:
        name = "f32"
    rest = tuple(cast(x, name) for x in chosen)
    return (cast(args[0], "b8"), *rest) if kind == SELECT else rest


def as_term(x: Operand) -> Term:
    """Return an operand as a term."""
    if isinstance(x, Node) and not isinstance(x, Term):
        return of_sizes(x, ("b8", "i64", "f32")[weak_category(x)])
    return x if isinstance(x, Term) else const(x)


def _simplify(fn: str, args: tuple[Term, ...]) -> Term | None:
    """Return a simpler term equal to `fn(args..)`, or None."""
    if fn in HELD:
        return held(args[0], HELD[fn])
    if FUNCTIONS[fn].kind == CAST:
        return cast(args[0], fn)
    numbers = tuple(x.value for x in args if x.__class__ is Const)
    if len(numbers) == len(args) and FUNCTIONS[fn].folds:
        value = _compute(fn, numbers)
        if value is not None:
            return const(value, "b8" if value.__class__ is bool else dtype(args[0]))
    if len(args) == 2:
        return _simplify_two(fn, *args)
    return index(invert(args[0].expr)) if fn == "logical_not" and isinstance(args[0], Index) else None


def _simplify_two(fn: str, a: Any, b: Any) -> Term | None:
    left, right = _index_expr(a), _index_expr(b)
    if left is not None and right is not None and not (a.__class__ is Const and b.__class__ is Const):
        conditions, op = (is_condition(left), is_condition(right)), FUNCTIONS[fn].operator
        if op in ("//", "%"):
            operates = right.__class__ is int and right > 0
        else:
            operates = all(conditions) if op in ("and", "or") else bool(op) and not any(conditions)
        if operates:
            made = operate(op, left, right)
            wraps = op in ("+", "-", "*") and not _is_i64(made)  # values wrap around, index arithmetic does not
            return None if wraps else index(made)
    return None


def _is_i64(e: Expr) -> bool:
    """Return whether index arithmetic stays within i64 for all values of the axes, or reads an index from memory."""
    low, high = interval(e)
    return (low >= -(2**63) and high < 2**63) or contains(e, Term)


def _index_expr(x: Any) -> Expr:
    """Return the index expression of a term, or None if the term is not index arithmetic."""
    if x.__class__ is Index:
        return x.expr
    return x.value if x.__class__ is Const and x.dtype in ("i64", "b8") else None


def reduce(fn: str, over: Iterable[Axis], x: Operand) -> Term:
    """Reduce x over axes.

    An axis that x lacks reduces equal values: to a product, a power, or the value itself. An axis of extent 0 reduces
    to the identity of fn.
    """
    x = as_term(x)
    wanted = tuple(dict.fromkeys(over))
    if any(a.extent == 0 for a in wanted):
        wide = "f32" if dtype(x) in SMALL_FLOATS else dtype(x)
        return tell("Reduce", (fn, *wanted, x), const(identity(fn, wide), wide))
    there = tuple(a for a in wanted if a in axes(x))
    missing = math.prod(a.extent for a in wanted if a not in axes(x))
    result: Term = Reduce(fn, there, x) if there else x
    if missing != 1 and fn in ("add", "multiply"):
        result = as_term(elementwise("multiply" if fn == "add" else "pow", result, missing))
    return tell("Reduce", (fn, *wanted, x), result) if len(there) < len(wanted) else result


def fold(part: str, over: Iterable[Axis], args: Iterable[Operand]) -> Term:
    """Return a part of a reduction over a tuple monoid. Numbers take the dtype of the other operands.

    Without axes, the result is the part to which the single element is lifted.
    """
    given, wanted = tuple(args), tuple(dict.fromkeys(over))
    name = common_dtype(given) or "f32"
    if wanted:
        return Fold(part, wanted, tuple(cast(x, name) for x in given))
    monoid, own = of_part(part)
    known = dict(zip(monoid.operands, given, strict=True))
    for stmt in monoid.lift:
        known[stmt.dst] = _of_values(stmt.val, known)
    return cast(known[own], name)


def _of_values(e: Any, values: Mapping[str, Operand]) -> Operand:
    """Return the value of a definition over terms."""
    if e.__class__ is Call:
        return elementwise(e.fn, *(_of_values(x, values) for x in e.args))
    return values[e.name] if e.__class__ is Var else e


def remap(x: Term, mapping: Mapping[Axis, Expr]) -> Term:
    """Return x with axes replaced by index expressions, which may hold terms.

    A view of a view is one, unless an index of it would have over WEIGHT nodes: they double with every step whose view
    names an axis twice.
    """
    kept = {a: e for a, e in ((a, _unwrapped(mapping[a])) for a in axes(x) if a in mapping) if e is not a}
    if not kept:
        return x
    if x.__class__ is Index:
        return index(remap_expr(x.expr, kept))
    if x.__class__ is Remap:
        inner = dict(x.map)
        images = {a: remap_expr(inner.get(a, a), kept) for a in axes(x.x)}
        if max([contents(e) & WEIGHT for e in images.values() if isinstance(e, Node)], default=0) < WEIGHT:
            return remap(x.x, images)
    return Remap(x, tuple(kept.items()))


def rebuilt(term: Any, new: Callable[[Any], Term]) -> Term:
    """Return a value with other operands, also in its index expressions, or the value itself if they are the same."""
    kind = term.__class__
    if term.__class__ is Elementwise or term.__class__ is Fold:
        args = tuple([new(arg) for arg in term.args])
        if args == term.args:  # interned: == compares identities
            return term
        return Elementwise(term.fn, args) if isinstance(term, Elementwise) else Fold(term.part, term.over, args)
    if kind is Reduce:
        x = new(term.x)
        return term if x is term.x else reduce(term.fn, term.over, x)
    if kind is Remap:
        x, mapping = new(term.x), {axis: substitute(e, {}, new) for axis, e in term.map}
        return term if x is term.x and tuple(mapping.items()) == term.map else remap(x, mapping)
    if kind is Case:
        return Case(substitute(term.cond, {}, new), new(term.a), new(term.b))
    if kind is Index:
        return Index(substitute(term.expr, {}, new))
    return Mat(new(term.x)) if kind is Mat else term


def _unwrapped(e: Expr) -> Expr:
    """Return the index arithmetic of a term that is index arithmetic, or else the expression itself."""
    found = _index_expr(e) if isinstance(e, Term) else None
    return e if found is None else found


def remap_expr(e: Expr, mapping: Mapping[Axis, Expr]) -> Expr:
    """Return an index expression with axes replaced by index expressions."""
    return substitute(e, mapping, lambda term: _unwrapped(remap(term, mapping)))


def case(cond: Expr, a: Operand, b: Operand) -> Term:
    """Return a where cond holds, and b elsewhere."""
    if isinstance(cond, bool):
        return tell("Case", (cond, a, b), as_term(a if cond else b))
    name = common_dtype((a, b)) or common_dtype((as_term(a), as_term(b))) or "f32"
    return Case(cond, cast(a, name), cast(b, name))
