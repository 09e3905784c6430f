"""What no schedule of a kernel goes below: every byte once, every operation once at the device's peak, one launch.

Counted in Loop IR, where a value may stand in more loops than it varies with: operations are counted by what the value
varies with, so a nest that computes something again in every turn has the limit of one that does not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from ...codegen.target import Target
from ...ir.dtypes import DTYPES
from ...ir.expr import Binary, Call, Var, linear
from ...ir.facts.structure import dependencies, summary
from ...ir.loop import Accumulate, For, Let, Load, Merge, Store
from ...ir.monoids import monoid
from ...ir.node import Node, nodes
from ...ir.program import Block, Kernel
from .accesses import SECTOR
from .fusing import fixed_seconds
from .work import COSTS


def least_seconds(kernel: Kernel, target: Target) -> float:
    """Seconds that a kernel of Loop IR takes at least, on a device at its published peaks."""
    moved = _bytes(kernel) / target.dram_bytes_per_second
    computed = _slots(kernel, target) / slots_per_second(target)
    return fixed_seconds(target) + max(moved, computed)


def program_seconds(kernels: Sequence[Kernel], least_bytes: int, launches: int, target: Target) -> float:
    """Seconds that a program of so many launches takes at least: least_bytes (its arguments and results) once, or every
    operation of its kernels of Loop IR once; what is stored in between counts for nothing."""
    moved = min(least_bytes, sum(_bytes(kernel) for kernel in kernels)) / target.dram_bytes_per_second
    computed = sum(_slots(kernel, target) for kernel in kernels) / slots_per_second(target)
    return launches * fixed_seconds(target) + max(moved, computed)


def slots_per_second(target: Target) -> float:
    return target.multiprocessors * target.fp32_per_clock * target.clock


def _bytes(kernel: Kernel) -> float:
    """Bytes of global memory, each once: of a buffer at most all, and what comes with each place that is asked for."""
    body, found = kernel.body, summary(kernel.body)
    extents = {loop.var: loop.stop for loop in found.loops}
    items = {param.name: DTYPES[param.dtype].item_bytes for param in (*kernel.ins, *kernel.outs)}
    asked: dict[str, float] = {}
    accesses: tuple[Load | Store, ...] = (*found.loads, *found.stores)
    for access in accesses:
        along = dependencies(access.idx, body) & extents.keys()
        places = math.prod(extents[name] for name in along)
        asked[access.buf] = asked.get(access.buf, 0) + places * _bytes_of_a_place(access.idx, items[access.buf])
    sizes = {param.name: items[param.name] * math.prod(param.shape) for param in (*kernel.ins, *kernel.outs)}
    return float(sum(min(asked.get(name, 0), size) for name, size in sizes.items()))


def _bytes_of_a_place(idx: tuple[Any, ...], item: int) -> int:
    """Memory moves sectors whole: of every other element of a row, each brings the one that is left out."""
    steps = [step for step in linear(idx[-1])[0].values() if isinstance(step, int)] if idx else []
    return min(item * max(math.gcd(*steps), 1), SECTOR)


def _slots(kernel: Kernel, target: Target) -> float:
    """Issue slots of all operations, each done once for every element of its value.

    What stands up to each place is folded by one operation an element: each place goes on where the one before stopped.
    Running softmaxes of one key (attention has two: of its values, and of ones) take its exponentials from each other.
    """
    body, found = kernel.body, summary(kernel.body)
    extents = {loop.var: loop.stop for loop in found.loops}
    summed = {stmt.val.name for stmt in found.sums if stmt.fn == "add" and stmt.val.__class__ is Var}
    running = _running(body, extents)
    keys: set[Any] = set()
    total = 0.0
    for stmt, around in _placed(body, frozenset()):

        def times(*values: Any, around: frozenset[str] = around) -> float:
            return float(math.prod(extents[name] for name in dependencies(values, body) & around))

        if isinstance(stmt, Let):
            call = stmt.val if stmt.val.__class__ is Call and stmt.dst not in running else None
            if call is not None and not (call.fn == "multiply" and stmt.dst in summed):  # one instruction with the sum
                total += times(Var(stmt.dst)) * _cost(call.fn, target)
        elif isinstance(stmt, Accumulate | Merge):
            total += _folded(stmt, running, times, target, keys)
    return total


def _placed(block: Block, around: frozenset[str]) -> Iterator[tuple[Any, frozenset[str]]]:
    """Every statement with the loops around it: what it makes of a sum does not vary with the loops of that."""
    for stmt in block:
        yield stmt, around
        yield from _placed(getattr(stmt, "body", ()), around | {stmt.var} if isinstance(stmt, For) else around)


def _running(body: Block, extents: dict[str, Any]) -> dict[str, Any]:
    """The values `where(k <= place, x, e)` that a running fold takes in, each with the extent of its k. x is the same
    at every place: scores under a causal mask are not, and each is an operation of its own."""
    found = summary(body)
    made: dict[str, Any] = {let.dst: let.val for let in found.lets} | {load.dst: load.idx for load in found.loads}
    made |= {stmt.acc: stmt.val for stmt in found.sums}
    running = {}
    for let in found.lets:
        chosen = let.val.__class__ is Call and let.val.fn == "where"
        bound: Any = made.get(getattr(let.val.args[0], "name", "")) if chosen else None
        extent = extents.get(getattr(bound.a, "name", "")) if bound.__class__ is Binary and bound.op == "<=" else None
        if extent and set(_names(bound.b, made)) & extents.keys() - set(_names(let.val.args[1], made, bound.b)):
            running[let.dst] = extent
    return running


def _names(value: Any, made: dict[str, Any], digit: Any = None) -> Iterator[str]:
    """The names that a value depends on, through what it is made of. digit: where it is `t % n`, `t // n` does not
    depend on it, and is left out."""
    rest = Binary("//", digit.a, digit.b) if digit.__class__ is Binary and digit.op == "%" else None
    todo, seen = [value], set()
    while todo:
        part = todo.pop()
        if part.__class__ is tuple:
            todo += part
        elif part.__class__ is Var and part not in seen:
            seen.add(part)
            yield part.name
            todo.append(made.get(part.name, ()))
        elif isinstance(part, Node) and part is not rest and part.__class__ is not Var:
            todo += [getattr(part, field.name) for field in type(part).fields]


def _folded(stmt: Accumulate | Merge, running: dict[str, Any], times: Any, target: Target, keys: set[Any]) -> float:
    """An element goes into an accumulator by one operation; into a running softmax after an exponential of its key.
    keys: those whose exponentials are counted."""
    folded = (stmt.val,) if isinstance(stmt, Accumulate) else stmt.vals
    places = max(running.get(getattr(value, "name", ""), 1) for value in folded)
    keyed = isinstance(stmt, Merge) and any(call.fn in ("exp", "exp2") for call in nodes(monoid(stmt.fn).step, Call))
    key = times(folded[0]) * _cost("exp", target) if keyed and folded[0] not in keys else 0
    keys.update(folded[:1] if keyed else ())
    return float(times(*folded) + key) / float(places)


def _cost(fn: str, target: Target) -> float:
    issued, special = COSTS.get(fn, (1, 0))
    return max(float(issued), special * target.fp32_per_clock / target.special_per_clock)
