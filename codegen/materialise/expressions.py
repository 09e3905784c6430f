"""Expressions of Kernel IR: ranges and widths of indices, values in registers, addresses, conditions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, reduce
from typing import Any

from ...ir.diagnostic import InternalError
from ...ir.dtypes import DTYPES, NARROW
from ...ir.expr import (
    COMPARISONS,
    Binary,
    Call,
    Not,
    Sum,
    Var,
    add,
    binary,
    both,
    floordiv,
    free_names,
    from_linear,
    is_int,
    linear,
    multiple_of,
    multiply,
    only_sizes,
    rebuild,
    subtract,
    total,
)
from ...ir.facts.layout import is_vector, strides, tidy
from ...ir.functions import CAST, FUNCTIONS, SELECT
from ...ir.kernel import Address, Advance, Assign, Base, Branch, Define, Element, Registers, Replicate
from ...ir.node import CLASSES, Expr, contents, distinct, each_once, marks_of, memoised
from ...ir.program import Block
from ...ir.ranges import Ranges, decide, interval
from ...ir.sizes import Interval
from ...ir.substitute import substitute
from ..dtypes import dtype_of, is_literal, operand_dtypes
from .lowering import AsynchronousOperand, Held, Level, Lowering, Words, fresh

# ---- widths of index arithmetic: int where the ranges prove that no part leaves it, else 64 bits
#
# An `i64(..)` around a part widens an expression. C computes the rest of the expression in 64 bits.


INT_LIMIT = 2**31


def widen(e: Expr, ranges: Ranges) -> Expr:
    """Return an offset computed in 64 bits if 32 may not hold a part of it.

    A pointer adds its terms one at a time.
    """
    if e.__class__ is Sum:
        parts = [(_widened(atom, factor, ranges), factor) for atom, factor in e.terms]
        return from_linear(dict(parts), e.constant)
    return _widened(e, 1, ranges) if e.__class__ in CLASSES else e


@each_once
def _widened(atom: Any, factor: int, ranges: Ranges) -> Expr:
    """Return an atom of a sum, in 64 bits if it, what it is computed from, or its multiple may leave an int."""
    if not fits(atom, ranges):
        return wide(atom, ranges)
    lowest, highest = interval(atom, ranges)
    small = max(abs(lowest * factor), abs(highest * factor)) < INT_LIMIT
    return atom if small else Call("i64", (atom,))


@each_once
def exact(e: Expr, ranges: Ranges) -> Expr:
    """Return a value or a condition, with the arithmetic that 32 bits may not hold in 64."""
    kind = e.__class__
    if kind is Not or (kind is Binary and (e.op in COMPARISONS or e.op in ("and", "or"))):
        return rebuild(e, lambda part: exact(part, ranges))
    return e if (kind is not Sum and kind is not Binary) or fits(e, ranges) else wide(e, ranges)


@each_once
def wide(e: Any, ranges: Ranges) -> Expr:
    """Compute e in 64 bits: from parts of 64 bits if an int may not hold a value that it is computed from."""
    if e.__class__ not in CLASSES or (e.__class__ is Call and e.fn == "i64"):
        return e
    if e.__class__ is Sum:  # from left to right: a sum is wide if one of its terms is
        (first, factor), *others = e.terms
        terms = [(wide(first, ranges), factor), *((_widened(atom, n, ranges), n) for atom, n in others)]
        return from_linear(dict(terms), e.constant)
    if e.__class__ is Binary and not (fits(e.a, ranges) and fits(e.b, ranges)):
        return rebuild(e, lambda part: wide(part, ranges))
    if e.__class__ is Binary and not fits(e, ranges):
        return rebuild(e, lambda part: Call("i64", (part,)) if part.__class__ in CLASSES else part)
    return Call("i64", (e,))


@each_once
def fits(e: Any, ranges: Ranges) -> bool:
    """Return whether an int holds e and everything it is computed from."""
    lowest, highest = interval(e, ranges)
    if lowest <= -INT_LIMIT or highest >= INT_LIMIT:
        return False
    if e.__class__ is Sum:
        return (
            all(fits(multiply(atom, factor), ranges) for atom, factor in e.terms)
            if len(e.terms) > 1
            else fits(e.terms[0][0], ranges)
        )
    return e.__class__ is not Binary or (fits(e.a, ranges) and fits(e.b, ranges))


def tidied(low: Lowering, e: Expr) -> Expr:
    """Simplify e by the ranges of the names in scope."""
    if e.__class__ not in CLASSES or not (e._contents or contents(e)) & Binary.mark:
        return e  # a sum of names: nothing to divide
    known = low.tidied.get(e)
    if known is None:
        known = low.tidied[e] = rounded_down(low, tidy(e, low.ranges))
    return known


def rounded_down(low: Lowering, e: Expr) -> Expr:
    """Replace quotients of a dividend that may be negative by calls, because C rounds to zero. Shifts stay."""
    if e.__class__ not in CLASSES or all(least(low, division.a) >= 0 for division in divisions(e)):
        return e
    return _rounded_down(e, low)


@each_once
def _rounded_down(e: Expr, low: Lowering) -> Expr:
    e = rebuild(e, lambda part: _rounded_down(part, low))
    if e.__class__ is not Binary or not _divides(e) or least(low, e.a) >= 0:
        return e
    return Call("floor_divide" if e.op == "//" else "remainder", (exact(e.a, low.ranges), exact(e.b, low.ranges)))


@contextmanager
def ranging(low: Lowering, ranges: Mapping[str, Interval]) -> Iterator[None]:
    """Return a context in which these names have these ranges.

    Simplified expressions are kept by ranges: copies of two shared tiles alternate, and each finds again what it knew.
    """
    before, known = low.ranges, (low.tidied, low.cells)
    low.ranges = {**before, **ranges}
    if low.ranges != before:
        low.tidied, low.cells = low.simplified.setdefault(frozenset(low.ranges.items()), ({}, {}))
    yield
    low.ranges = before  # a value that is defined after a loop may have the name of the loop's variable
    low.tidied, low.cells = known


@contextmanager
def replicating(low: Lowering, extents: Mapping[str, int]) -> Iterator[None]:
    """Return a context in which these names are further replicated axes."""
    low.replicated.update(extents)
    with ranging(low, {name: (0, extent - 1) for name, extent in extents.items()}):
        yield
    for name in extents:
        del low.replicated[name]


def least(low: Lowering, e: Expr) -> int:
    """Return the least value of an index."""
    return interval(e, low.ranges)[0]


def greatest(low: Lowering, e: Expr) -> int:
    """Return the greatest value of an index."""
    return interval(e, low.ranges)[1]


def counter_dtype(low: Lowering, start: Expr, stop: Expr, step: Expr) -> str:
    """Return the dtype of a loop's variable, which must hold the value that ends the loop too."""
    last = greatest(low, stop) - 1 + (step if is_int(step) else greatest(low, step))
    return "i32" if fits(start, low.ranges) and fits(stop, low.ranges) and last < INT_LIMIT else "i64"


@memoised
def divisions(e: Any) -> tuple[Any, ...]:
    """Return the quotients and remainders in an expression that are not shifts and masks."""
    return tuple(filter(_divides, distinct(e, Binary)))


def _divides(e: Any) -> bool:
    return e.op in ("//", "%") and not (is_int(e.b) and e.b > 0 and e.b & (e.b - 1) == 0)


# ---- registers: the replicated axes and dtypes of values, and the expressions that read them


def axes_of(low: Lowering, e: Any, bound: frozenset[str]) -> tuple[str, ...]:
    """Return the replicated axes that an expression varies with, outermost first, but for axes that a loop fixed."""
    found: set[str] = set()
    for name in free_names(e):
        if name in low.replicated:
            found.add(name)
        elif name in low.env:
            found.update(low.env[name].axes)
    return tuple(axis for axis in low.replicated if axis in found and axis not in bound)


def extents(low: Lowering, axes: Iterable[str]) -> tuple[int, ...]:
    return tuple(low.replicated[axis] for axis in axes)


def nest(low: Lowering, axes: tuple[str, ...], body: Block, snake: bool = False) -> Block:
    """Return the block once for every value of the axes. snake: inner axes run backwards where the outermost is odd."""
    for depth in reversed(range(len(axes))):
        reverse = axes[0] if snake and depth else None
        body = (Replicate(axes[depth], low.replicated[axes[depth]], body, reverse),)
    return body


def guarded(when: Expr, block: Block) -> Block:
    """Return the block under a condition."""
    return block if when is True else (Branch(when, block),)


def filled(low: Lowering, held: Held, val: Expr, mutable: int = 0) -> Block:
    """Return new registers with their contents: a value at the current index of the axes."""
    if not held.axes:
        return (Define(held.name, held.dtype, val, mutable),)
    return (declared(low, held), *assigned(low, held, val))


def declared(low: Lowering, held: Held, fill: Expr | None = None) -> Registers:
    """Return the declaration of new registers."""
    return Registers(held.name, held.dtype, extents(low, held.axes), fill)


def assigned(low: Lowering, held: Held, val: Expr) -> Block:
    """Return the assignment of a value to all registers."""
    return nest(low, held.axes, (Assign(register_of(low, held), val),))


def row_major(extents: Mapping[str, int], axes: Iterable[str]) -> Expr:
    """Return the number of the current index among all values of some axes."""
    axes = tuple(axes)
    return total(map(Var, axes), strides(tuple([extents[axis] for axis in axes])))


def varies(low: Lowering, e: Expr, axis: str) -> bool:
    """Return whether a value in the expression (not the axis itself) varies with a replicated axis."""
    return any(axis in low.env[name].axes for name in free_names(e) if name in low.env)


def dtype_in(low: Lowering, e: Expr) -> str:
    """Return the dtype of an expression of the program."""
    return dtype_of(e, partial(type_of, low), "i64")


def type_of(low: Lowering, name: str) -> str:
    value = low.env.get(name)
    return "i64" if value is None else value.dtype


def in_registers(low: Lowering, e: Expr, fixed: Mapping[str, int] | None = None) -> Expr:
    """Return a value or a condition of the program in registers, with the axes in `fixed` at one value."""
    return exact(read(low, e, fixed), low.ranges)


_CHANGES = marks_of(Binary, Call)


def read(low: Lowering, e: Expr, fixed: Mapping[str, int] | None = None) -> Expr:
    """Return an expression of the program in registers, index arithmetic in int outside of calls."""
    return _read(e, low, {} if fixed is None else fixed)


@each_once
def _read(e: Expr, low: Lowering, fixed: Mapping[str, int]) -> Expr:
    kind = e.__class__
    if kind is Var:
        value = low.env.get(e.name)
        if value is None:
            return fixed.get(e.name, e)
        if isinstance(value, Words | AsynchronousOperand):
            raise InternalError(f"`{e.name}` is an operand of tensor cores: only an Mma reads it")
        return register_of(low, value, fixed) if isinstance(value, Held) else _read(value.val, low, fixed)
    if kind is Call:
        dtype = operand_dtypes(e, partial(type_of, low), "i64")[-1]
        return computed(low, e.fn, tuple(exact(_read(arg, low, fixed), low.ranges) for arg in e.args), dtype)
    if e.__class__ not in CLASSES:
        return e
    names = free_names(e)
    if names.isdisjoint(low.env) and names.isdisjoint(fixed) and not contents(e) & _CHANGES:
        return e  # a sum of names, as most indices are
    return tidied(low, rebuild(e, lambda part: _read(part, low, fixed)))


# The greatest size of a result by the sizes of its operands; of any other function it is unknown.
BOUNDS: dict[str, Callable[[Iterable[int]], int]] = {
    "add": sum, "subtract": sum, "multiply": math.prod,
    **dict.fromkeys(("where", "maximum", "minimum", "copy", "negative", "abs", "sign", "relu"), max),
    **dict.fromkeys(("floor_divide", "remainder", "fmod"), max),
}  # fmt: skip


def computed(low: Lowering, fn: str, args: tuple[Expr, ...], dtype: str) -> Expr:
    """Return a function of operands in registers that are of a common dtype in the program.

    An index is an i64 of the program. It stays an int here if an int holds all operands and the result.
    """
    call = Call(fn, args)
    own = operand_dtypes(call, low.register_type, "i32")[-1]
    if dtype != "i64" or own == "i64" or FUNCTIONS[fn].kind == CAST:
        return call
    if own == "i32" and max(size(e, low) for e in (call, *args)) < INT_LIMIT:
        return call
    first = FUNCTIONS[fn].kind == SELECT  # a condition
    return Call(fn, (*args[:first], *(arg if is_literal(arg) else Call("i64", (arg,)) for arg in args[first:])))


@each_once
def size(e: Any, low: Lowering) -> int:
    """Return a bound of the absolute value of an integer that an int may hold in registers."""
    if is_literal(e):
        return abs(int(e))
    if e.__class__ is Call and e.fn in BOUNDS:
        return BOUNDS[e.fn]([size(arg, low) for arg in e.args])
    dtype = dtype_of(e, low.register_type, "i32")
    return 1 << 8 * DTYPES[dtype].item_bytes if dtype in ("b8", *NARROW) else max(map(abs, interval(e, low.ranges)))


def register_of(low: Lowering, value: Held, fixed: Mapping[str, int] | None = None, skip: tuple[str, ...] = ()) -> Expr:
    """Return the registers of a value at the current index of its axes, but for the axes in `skip` at the end."""
    low.registers[value.name] = value.dtype
    place: dict[str, Expr] = {**{axis: Var(axis) for axis in value.axes}, **(fixed or {})}
    if value.backwards is not None:
        axis, extent = value.backwards
        place[axis] = subtract(extent - 1, place[axis])
    index = tuple(place[axis] for axis in value.axes if axis not in skip)
    return Element(value.name, index) if index else Var(value.name)


# ---- addresses: a flat linear form, split by the level of the nest at which each of its terms is known
#
# only THREAD and BLOCK axes     one named base at the top of the kernel
# a loop at run time             global memory: a pointer advanced each iteration; shared: base + slot, each iteration
# a replicated axis, a value     the immediate part, at the access
#
# Bases are keyed by (base below, terms), so accesses share them. ptxas compiles this form best: one register and an
# immediate for an access. It computes any other form again inside the loop.


FAR_BYTES = 4096  # cp.async does not fold immediates beyond this: two additions per copy otherwise
AT_ACCESS = -1


def flat(low: Lowering, buf: str, idx: tuple[Expr, ...]) -> Expr:
    """Return the element of a buffer in global memory, as a linear form."""
    return tidied(low, total(idx, strides(low.params[buf].shape)))


def global_address(low: Lowering, buf: str, element: Expr) -> Address:
    """Return the address of an element of a buffer."""
    base, offset = resolve(low, buf, element, f"{buf}_at", shared=False, far=FAR_BYTES // low.item(buf))
    return Address(base, widen(read(low, offset), low.ranges))


def resolve(low: Lowering, root: str, e: Expr, hint: str, *, shared: bool, far: int = 0) -> tuple[str, Expr]:
    """Return (base, what is left for the access) of a linear form. Far constants go to the innermost base."""
    terms, constant = linear(e)
    by_level: dict[int, dict[Any, int]] = {}
    for atom, factor in terms.items():
        by_level.setdefault(level_of(low, atom), {})[atom] = factor
    rest = by_level.pop(AT_ACCESS, {})
    moved = constant if far and abs(constant) >= far else 0
    if moved and not by_level:
        by_level[0] = {}
    base, last = root, max(by_level, default=0)
    for number in sorted(by_level):
        base = derive(low, base, number, by_level[number], moved if number == last else 0, hint, shared)
    return base, from_linear(rest, constant - moved)


def level_of(low: Lowering, atom: Expr) -> int:
    """Return the outermost level that knows an atom.

    0 is the kernel's top, others are loops, AT_ACCESS is none of them.
    """
    names = free_names(atom)
    if names <= low.fixed:
        return 0
    if any(name in low.replicated or name in low.env for name in names):
        return AT_ACCESS
    loops = [number for number, level in enumerate(low.levels) if level.var in names]
    return loops[-1] if loops else AT_ACCESS


def derive(low: Lowering, root: str, number: int, terms: dict[Any, int], constant: int, hint: str, shared: bool) -> str:
    """Return a base of a level: the one before it plus the terms of this level."""
    level = low.levels[number]
    key = (root, tuple(terms.items()), constant)
    if key in level.bases:
        return level.bases[key]
    var, name = Var(level.var) if level.var else None, fresh(low, hint)
    if var is not None and not shared and terms.keys() == {var} and is_int(level.step):
        start = add(multiply(level.start, terms[var]), constant)
        level.before.append(Base(name, root, widen(start, low.ranges), 1))
        level.tail.append(Advance(name, multiply(level.step, terms[var])))
    elif var is not None and shared:
        slots = [ring(low, level, atom, factor) for atom, factor in terms.items()]
        level.head.append(Base(name, root, total((constant, *slots))))
    else:
        level.head.append(Base(name, root, widen(from_linear(terms, constant), low.ranges)))
    level.bases[key] = name
    return name


def ring(low: Lowering, level: Level, atom: Expr, factor: int) -> Expr:
    """Return `(k + d) % N * bytes` of a ring of slots: a mask for a power of two, else a counter with a select.

    `k % 3` costs about 20 instructions an iteration, the select one or two.
    """
    if not _is_ring(level, atom):
        return multiply(atom, factor)
    key = ("ring", atom, factor)
    if key not in level.bases:
        iterations, (_, ahead) = atom.b, linear(atom.a)
        name = level.bases[key] = fresh(low, "slot")
        if iterations & (iterations - 1) == 0:
            level.head.append(Define(name, "i32", multiply(atom, factor)))
        else:
            level.before.append(Define(name, "i32", (level.start + ahead) % iterations * factor, 1))
            last = Binary("==", Var(name), (iterations - 1) * factor)
            level.tail.append(Assign(Var(name), Call("where", (last, 0, add(Var(name), factor)))))
    return Var(level.bases[key])


def _is_ring(level: Level, atom: Any) -> bool:
    if atom.__class__ is not Binary or atom.op != "%" or not is_int(atom.b):
        return False
    counts = linear(atom.a)[0] == {Var(level.var or ""): 1}
    return counts and level.step == 1 and is_int(level.start)


# ---- conditions at vector granularity, and the ranges that a condition implies


def weaken(low: Lowering, condition: Expr) -> Expr:
    """Return the condition without the replicated axes on which it does not depend.

    `e < N` holds for all of a vector or none of it, if e counts aligned neighbours and N is a multiple of the width.
    That is why a ragged row of 2000 keeps its vector stores and one of 2003 does not. The same holds for the
    neighbouring rows of a thread: what they share is then loaded once.
    """
    if condition.__class__ is not Binary:
        return condition
    if condition.op in ("and", "or"):
        return binary(condition.op, weaken(low, condition.a), weaken(low, condition.b))
    names = free_names(condition)
    for axis, width in low.replicated.items():
        edge = condition.op in ("<", ">=") and on_edge(condition.b, width)
        if (
            edge
            and axis in names
            and is_vector(tidied(low, condition.a), axis, width)
            and not varies(low, condition, axis)
        ):
            condition = binary(condition.op, substitute(condition.a, {axis: 0}), condition.b)
            if condition.__class__ is not Binary:
                break
    return condition


def on_edge(limit: Expr, width: int) -> bool:
    """Return whether no vector of a width has a limit inside."""
    return only_sizes(limit) and multiple_of(limit) % width == 0


def simplify_condition(low: Lowering, condition: Expr) -> Expr:
    """Return the condition simplified, with the parts that ranges decide taken out."""
    condition = tidied(low, condition)
    decided = decide(condition, low.ranges)
    if decided is not None:
        return decided
    if condition.__class__ is Binary and condition.op in ("and", "or"):
        return binary(condition.op, simplify_condition(low, condition.a), simplify_condition(low, condition.b))
    return condition


def narrowed(low: Lowering, condition: Expr) -> dict[str, Interval]:
    """Return the ranges of names where the condition `name + c < limit` holds."""
    ranges = dict(low.ranges)
    if condition.__class__ is not Binary or condition.op not in ("<", "<="):
        return ranges
    terms, spare = linear(subtract(condition.b, condition.a))
    if len(terms) == 1:
        ((name, factor),) = terms.items()
        if name.__class__ is Var and factor == -1 and name.name in ranges:
            bottom, top = ranges[name.name]
            ranges[name.name] = (bottom, min(top, spare - (condition.op == "<")))
    return ranges


def in_chunks(low: Lowering, place: Expr, limit: Expr) -> Expr:
    """Return the condition that an index is below a limit, for whole chunks if the limit cuts no chunk.

    No thread then tests an index of its own: `chunk*16 + i < 2048` of i below 16 is `chunk < 128`, and the same for a
    whole block.
    """
    terms, _ = linear(place)
    for size in sorted({n for n in terms.values() if n > 1 and on_edge(limit, n)}, reverse=True):
        chunk = tidied(low, floordiv(place, size))
        divided = chunk.__class__ in CLASSES and contents(chunk) & Binary.mark
        if not divided and free_names(chunk) < free_names(place):
            return binary("<", chunk, floordiv(limit, size))
    return binary("<", place, limit)


def conjunction(conditions: Iterable[Expr]) -> Expr:
    return reduce(both, conditions, True)
