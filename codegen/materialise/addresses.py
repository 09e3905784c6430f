"""Addresses: a flat linear form, split by the level of the nest at which each of its terms is known.

    only THREAD and BLOCK axes     one named base at the kernel's top
    a loop at run time             global memory: a pointer moved on after each turn; shared: base + slot, per turn
    a replicated axis, a value     the immediate part, at the access

Bases are remembered by (base below, terms), so accesses share them at no cost. ptxas rewards exactly this text: one
register and an immediate per access; anything else it computes again inside the loop.
"""

from __future__ import annotations

from typing import Any

from ...ir.expr import Binary, Call, Var, add, free_names, from_linear, is_int, linear, multiply, total
from ...ir.facts.layout import DTYPE_BYTES, strides
from ...ir.kernel import Address, Advance, Assign, Base, Define
from ...ir.node import Expr
from .lowering import Level, Lowering, fresh
from .ranges import tidied
from .registers import read
from .widths import widen

FAR_BYTES = 4096  # cp.async does not fold immediates beyond this: two additions per copy otherwise
AT_ACCESS = -1


def flat(low: Lowering, buf: str, idx: tuple[Expr, ...]) -> Expr:
    """The element of a buffer in global memory, as a linear form."""
    return tidied(low, total(idx, strides(low.params[buf].shape)))


def global_address(low: Lowering, buf: str, element: Expr) -> Address:
    """The address of an element of a buffer."""
    far = FAR_BYTES // DTYPE_BYTES[low.params[buf].dtype]
    base, offset = resolve(low, buf, element, f"{buf}_at", shared=False, far=far)
    return Address(base, widen(read(low, offset), low.ranges))


def resolve(low: Lowering, root: str, e: Expr, hint: str, *, shared: bool, far: int = 0) -> tuple[str, Expr]:
    """(base, what is left for the access) of a linear form. Far constants go to the innermost base."""
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
    """The outermost level that knows an atom: 0 is the kernel's top, others are loops, AT_ACCESS is none of them."""
    names = free_names(atom)
    if names <= low.fixed:
        return 0
    if any(name in low.replicated or name in low.env for name in names):
        return AT_ACCESS
    loops = [number for number, level in enumerate(low.levels) if level.var in names]
    return loops[-1] if loops else AT_ACCESS


def derive(low: Lowering, root: str, number: int, terms: dict[Any, int], constant: int, hint: str, shared: bool) -> str:
    """A base of a level: the one before it plus the terms of this level."""
    level = low.levels[number]
    key = (root, tuple(terms.items()), constant)
    if key in level.bases:
        return level.bases[key]
    offset = from_linear(terms, constant)
    var = Var(level.var) if level.var else None
    if var is not None and not shared and terms.keys() == {var} and is_int(level.step):
        name = fresh(low, hint)
        start = add(multiply(level.start, terms[var]), constant)
        level.before.append(Base(name, root, widen(start, low.ranges), 1))
        level.tail.append(Advance(name, multiply(level.step, terms[var])))
    elif var is not None and shared:
        slots = [ring(low, level, atom, factor) for atom, factor in terms.items()]
        name = fresh(low, hint)
        level.head.append(Base(name, root, total((constant, *slots))))
    else:
        name = fresh(low, hint)
        level.head.append(Base(name, root, widen(offset, low.ranges)))
    level.bases[key] = name
    return name


def ring(low: Lowering, level: Level, atom: Expr, factor: int) -> Expr:
    """`(k + d) % N * bytes` of a ring of slots: a mask for a power of two, else a counter that wraps by a select.

    `k % 3` costs about 20 instructions a turn, the select one or two.
    """
    if not _is_ring(level, atom):
        return multiply(atom, factor)
    key = ("ring", atom, factor)
    if key not in level.bases:
        turns, (_, ahead) = atom.b, linear(atom.a)
        name = level.bases[key] = fresh(low, "slot")
        if turns & (turns - 1) == 0:
            level.head.append(Define(name, "i32", multiply(atom, factor)))
        else:
            level.before.append(Define(name, "i32", (level.start + ahead) % turns * factor, 1))
            last = Binary("==", Var(name), (turns - 1) * factor)
            level.tail.append(Assign(Var(name), Call("where", (last, 0, add(Var(name), factor)))))
    return Var(level.bases[key])


def _is_ring(level: Level, atom: Any) -> bool:
    if atom.__class__ is not Binary or atom.op != "%" or not is_int(atom.b):
        return False
    counts = linear(atom.a)[0] == {Var(level.var or ""): 1}
    return counts and level.step == 1 and is_int(level.start)
