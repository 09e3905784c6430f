"""Values and accumulators: which get registers, and which are inlined where they are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping
from typing import Any

from ...ir.expr import Binary, Call, NameSet, Var, free_names
from ...ir.facts.structure import (
    accumulator_scopes,
    accumulators_of,
    positions,
    result_registers,
    summed_axes,
    used_names,
    value_dtypes,
)
from ...ir.functions import identity
from ...ir.kernel import Assign, Define
from ...ir.loop import Accumulate, Carry, Let, Load, Merge, Scale, Store
from ...ir.monoids import Definitions, monoid
from ...ir.node import Expr, memoised, nodes
from ...ir.program import Block, Stmt
from ...ir.substitute import substitute
from ...ir.tensor import postorder
from ...ir.tile import Combine, CombineTuple, Mma
from .expressions import (
    axes_of,
    conjunction,
    declared,
    dtype_in,
    filled,
    in_registers,
    nest,
    register_of,
    type_of,
    weaken,
)
from .lowering import Accumulator, Held, Inlined, Lowering, Place, fresh, held_in

INLINE_CALLS = 6  # a longer expression gets a name of its own, for the reader: a name costs nothing


def lower_let(low: Lowering, stmt: Let, at: Place) -> Block:
    """Lower a value: in the expression that reads it if that is the only one, else in registers."""
    inlined = inlined_value(low, stmt.val, axes_of(low, stmt.val, at.bound))
    if inlined.calls <= INLINE_CALLS and read_once(low, stmt.dst, inlined, at):
        low.env[stmt.dst] = inlined
        return ()
    val = in_registers(low, stmt.val)
    value = low.env[stmt.dst] = Held(fresh(low, stmt.dst), inlined.axes, inlined.dtype)
    return filled(low, value, val)


def inlined_value(low: Lowering, val: Expr, axes: tuple[str, ...]) -> Inlined:
    """Return an expression as a value without registers."""
    values = [low.env[name] for name in sorted(free_names(val)) if name in low.env]
    inner = [value for value in values if isinstance(value, Inlined)]
    calls = sum(1 for _ in nodes(val, Call)) + sum(value.calls for value in inner)
    own = free_names(val) & low.accumulators.keys()
    return Inlined(val, axes, dtype_in(low, val), own.union(*(value.accumulators for value in inner)), calls)


def read_once(low: Lowering, name: str, value: Inlined, at: Place) -> bool:
    """Return whether one later computation of this block reads a value, once per definition, and unchanged.

    This is decided per block, since peeled copies of a loop reuse names; a product with an array of its own would not
    become an FFMA.
    """
    later = at.block[at.position + 1 :]
    readers = [(position, stmt) for position, stmt in enumerate(later) if name in mentions(stmt)]
    if len(readers) != 1 or mentions(readers[0][1])[name] != 1:
        return False
    position, reader = readers[0]
    if changes(later[:position], value):
        return False
    if isinstance(reader, Mma):  # rounded once, as it is packed
        return True
    if not isinstance(reader, (Let, Accumulate, Store)) or name not in free_names(reader.val):
        return False
    axes = axes_of(low, (reader.val, getattr(reader, "idx", ()), value.val), at.bound)
    return isinstance(reader, Accumulate) or set(axes) <= set(value.axes)


def changes(block: Block, value: Inlined) -> bool:
    """Return whether statements change an accumulator that a value reads."""
    found = (stmt for stmt in nodes(block, Stmt) if not isinstance(stmt, Carry))
    return any(not value.accumulators.isdisjoint(accumulators_of(stmt)) for stmt in found)


@memoised
def mentions(stmt: Any) -> Counter[str]:
    """Count how often a statement reads each name, at any depth."""
    return Counter(var.name for var in nodes(stmt, Var))


def initialised(low: Lowering, accumulator: Accumulator, held: Held) -> Block:
    """Return the registers of an accumulator, all with the identity of its function."""
    start = identity(accumulator.fn, held.dtype)
    if not held.axes or start == 0:
        return (declared(low, held, start),)
    return filled(low, held, start)


def lower_accumulate(low: Lowering, stmt: Accumulate, at: Place) -> Block:
    """Lower `acc <- fn(acc, val)`, for every value of the axes that either varies with."""
    accumulator = low.accumulators[stmt.acc]
    if accumulator.direct:
        return accumulate_first(low, stmt, at, accumulator, held_in(low, stmt.acc))
    # back and forth over a register tile: neighbours in time share a register, and ptxas keeps it latched
    return updated(low, stmt, stmt.fn, at, bool(low.tile.snake) and not accumulator.combined & low.replicated.keys())


def updated(low: Lowering, stmt: Accumulate | Scale, fn: str, at: Place, snake: bool) -> Block:
    """Combine every register of an accumulator with a value."""
    axes = axes_of(low, (stmt.val, Var(stmt.acc)), at.bound)
    place = register_of(low, held_in(low, stmt.acc))
    step = Assign(place, Call(fn, (place, in_registers(low, stmt.val))))
    return nest(low, axes, (step,), snake and len(axes) > 1)


def lower_scale(low: Lowering, stmt: Scale, at: Place) -> Block:
    """Multiply the sum so far, for every register of the accumulator."""
    return updated(low, stmt, "multiply", at, snake=False)


def lower_merge(low: Lowering, stmt: Merge, at: Place) -> Block:
    """Combine a tuple of accumulators with an element: the monoid's own definitions, in registers."""
    known, outer = monoid(stmt.fn), dict(low.env)
    axes = axes_of(low, (stmt.vals, tuple(map(Var, stmt.accs))), at.bound)
    steps: list[Stmt] = []
    dtype = type_of(low, stmt.accs[0])
    names: dict[str, Expr] = dict(zip(known.operands, stmt.vals, strict=True))
    names |= known.sides(map(Var, stmt.accs))
    made = defined(low, known.step, names, steps, dtype)
    for part, acc in zip(known.parts, stmt.accs, strict=True):
        steps.append(Assign(register_of(low, held_in(low, acc)), in_registers(low, made[part])))
    low.env = outer
    return nest(low, axes, tuple(steps))


def defined(
    low: Lowering, block: Definitions, names: dict[str, Expr], steps: list[Stmt], dtype: str
) -> dict[str, Expr]:
    """Append the definitions of a monoid in scalars of a dtype to `steps`; names: the values of what they read."""
    for definition in block:
        val = substitute(definition.val, names)
        if isinstance(val, Call):
            name = fresh(low, definition.dst)
            steps.append(Define(name, dtype, in_registers(low, val)))
            low.env[name] = Held(name, (), dtype)
            val = Var(name)
        names = {**names, definition.dst: val}
    return names


def accumulate_first(low: Lowering, stmt: Accumulate, at: Place, accumulator: Accumulator, held: Held) -> Block:
    """Return the only addition to an accumulator, where it lives: its first value needs nothing to be added to."""
    axes = axes_of(low, (stmt.val, Var(stmt.acc)), at.bound)
    place, val = register_of(low, held), in_registers(low, stmt.val)
    if not axes:
        return filled(low, held, val, 1)
    repeated = [axis for axis in axes if axis not in held.axes]
    if not repeated:
        inlined = inlined_value(low, stmt.val, held.axes)
        folded = accumulator.combines == [at.path] and accumulator.combined.issuperset(held.axes)
        if folded and not changes(at.block[at.position + 1 :], inlined):
            low.env[stmt.acc] = inlined  # the Combine folds what is added up: no registers in between
            return ()
        return (declared(low, held), *nest(low, axes, (Assign(place, val),)))
    first = conjunction(Binary("==", Var(axis), 0) for axis in repeated)
    steps: list[Stmt] = []
    if isinstance(val, Call):  # a name for what is on both sides of the select
        name = fresh(low, stmt.val.name if isinstance(stmt.val, Var) else f"{stmt.acc}_next")
        steps.append(Define(name, held.dtype, val))
        val = Var(name)
    chosen = Call("where", (first, val, Call(stmt.fn, (place, val))))
    return (declared(low, held), *nest(low, axes, (*steps, Assign(place, chosen))))


# ---- accumulators: scope, replicated axes, and whether they need an initial value


def replicated_axes(low: Lowering, accumulator: Accumulator, bound: NameSet) -> tuple[str, ...]:
    """Return the axes over which an accumulator is replicated.

    Of the axes that a Combine reduces only VEC ones remain, as independent chains.
    """
    own = {axis.name for axis in low.tile.axes} & accumulator.depends
    kept = [axis for axis in low.replicated if axis in own and axis not in bound]
    kept = [axis for axis in kept if axis not in accumulator.combined or axis in low.vectors]
    return (*(axis for axis in kept if axis not in accumulator.laid_out), *accumulator.laid_out)


def find_accumulators(low: Lowering) -> dict[str, Accumulator]:
    """Return every accumulator of the kernel."""
    dtypes = value_dtypes(low.kernel)
    found = {
        start.acc: Accumulator(start.acc, start.fn, dtypes[start.acc], path)
        for path, starts in accumulator_scopes(low.kernel).items()
        for start in starts
    }
    values: dict[str, set[str]] = {}
    for path, conditions, stmt in positions(low.kernel.body):
        guards = free_names(tuple([weaken(low, condition) for condition in conditions]))
        if isinstance(stmt, Let | Load):
            values.setdefault(stmt.dst, set()).update(used_names(stmt))
        for acc in accumulators_of(stmt):
            one = found[acc]
            one.reads |= guards.union(
                *(free_names(getattr(stmt, f.name)) for f in type(stmt).fields if f.sort == "Expr")
            )
            if isinstance(stmt, Accumulate):
                one.adds.append(path)
            elif isinstance(stmt, Merge | Mma | CombineTuple):
                one.adds += [path, path]  # read and written: never the first value as it is
            if isinstance(stmt, Mma):
                one.summed |= summed_axes(stmt)
                one.laid_out |= dict.fromkeys(result_registers(stmt))
            elif isinstance(stmt, Combine):
                one.combines.append(path)
                one.combined |= free_names(stmt.over)
            elif isinstance(stmt, CombineTuple):
                known = monoid(stmt.fn)
                beside = known.beside(known.parts[stmt.accs.index(acc)])
                one.combines.append(path)
                one.reads.update(other for part, other in zip(known.parts, stmt.accs, strict=True) if part in beside)
                one.beside.update(stmt.accs)
                one.merged |= free_names(stmt.over)
    _follow(values, found)
    return found


def _follow(values: Mapping[str, set[str]], found: Mapping[str, Accumulator]) -> None:
    """Find what accumulators vary with, as the least fixpoint: they may read each other in cycles.

    A combined value is the same everywhere along the axes of its Combine, but for the others of its tuple. An Mma has
    its own result layout. values: the names that each value reads.
    """
    reads = {**values, **{name: accumulator.reads for name, accumulator in found.items()}}
    order = postorder(found, lambda name: sorted(reads.get(name, ())))
    varying = {name: set() if name in reads else {name} for name in order}

    def seen(name: str, beside: Container[str]) -> set[str]:
        """Return the names that a value varies with where a value or an accumulator reads it."""
        if name not in found:
            return varying[name]
        merged = set() if name in beside else found[name].merged
        return varying[name] - found[name].combined - merged

    changed = True
    while changed:
        changed = False
        for name in filter(reads.__contains__, order):
            one = found.get(name)
            new = set[str]().union(*(seen(other, one.beside if one else ()) for other in reads[name]))
            if one:
                new = new - one.summed | one.laid_out.keys()
            changed |= new != varying[name]
            varying[name] = new
    for name, accumulator in found.items():
        accumulator.depends = varying[name]
