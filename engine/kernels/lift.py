"""One kernel of Tensor IR to one loop nest of Loop IR.

Loops are the axes of the stored values: first those that no reduction of the kernel folds (the grid), then the others
(the row). A stack of blocks, each binding one axis; a value is computed in the innermost block that binds an axis it
varies with, once per block. Loop-invariant placement, computing again in every sweep, and sharing all follow from that.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...ir.dtypes import FLOATS, INTEGERS
from ...ir.expr import Axis, Binary, Call, Var, both, invert, rebuild
from ...ir.facts.dataflow import Dataflow, common_key, contracts
from ...ir.facts.index import operate, substitute
from ...ir.functions import HELD, identity
from ...ir.loop import Accumulate, For, If, Let, Load, Merge, Store
from ...ir.monoids import of_part
from ...ir.names import unused
from ...ir.node import Node, contents
from ...ir.program import Kernel, Param, Stmt
from ...ir.schemas import aten_name
from ...ir.sizes import sizes_in
from ...ir.tensor import (
    Case,
    Const,
    Elementwise,
    Fold,
    Input,
    Reduce,
    Remap,
    TensorGraph,
    Term,
    axes,
    dtype,
    factors,
    index_axes,
    operands,
    postorder,
)
from ...ir.torch import TorchOp
from ..language.evaluate import RESERVED
from .index_maps import FOLDING

# ---- The guards under which a kernel computes values that several sides of its selections need.


DIVISIONS = ("floor_divide", "remainder", "fmod")
Needed = tuple[Any, Any]  # a value, and the guard that a reader needs it under


def shared_guards(
    order: Sequence[Any],
    roots: Iterable[Needed],
    read: Container[Any],
    needed: Callable[[Any, Any], Sequence[Needed]],
) -> tuple[dict[Any, Any], set[Any]]:
    """Find one guard for each value that is needed under several.

    Selections whose sides read one value have as many paths to it as their links multiply to. A copy of the value on
    each path would double the kernel with every link.

    Args:
        order: the values of a kernel, operands before readers.
        roots: the values that it stores.
        read: the values that it reads from memory.
        needed: the values that a value is computed from under a guard.

    Returns:
        The guard of each shared value, and the values that are also computed where no reader needs them. Their elements
        may not exist there, so each of their loads must check that it is in bounds.
    """
    total: set[Any] = set()
    for term in order:
        if term in read or _is_total(term, total):
            total.add(term)
    guards: dict[Any, Any] = {}
    several: set[Any] = set()
    shared: dict[Any, Any] = {}
    beyond: set[Any] = set()

    def note(values: Iterable[Needed]) -> None:
        for value, guard in values:
            known = guards.get(value, guard)
            if known is not guard:
                several.add(value)
            guards[value] = _common_part(known, guard)

    note(roots)
    for term in reversed(order):
        if term not in guards:
            continue
        below = needed(term, guards[term])
        if term in several and term in total:
            shared[term] = guards[term]
            beyond.add(term)
        elif term in several:
            several.update(value for value, _ in below)
        if term in beyond:
            beyond.update(value for value, _ in below)
        note(below)
    return shared, beyond


def _is_total(term: Any, total: Container[Any]) -> bool:
    """Return whether a value can be computed where no reader needs it.

    A skipped load gives 0. Integers are not divided by it, and no index is computed from it.
    """
    if term.__class__ is Remap:
        return len(operands(term)) == 1
    if term.__class__ is Elementwise and term.fn in DIVISIONS and dtype(term) not in FLOATS:
        return False
    return all(operand in total for operand in operands(term))


def _common_part(guard: Any, other: Any) -> Any:
    """Return the guard with which two paths through selections begin.

    The outer conditions of a guard are on the left.
    """
    parts = {guard}
    while guard.__class__ is Binary and guard.op == "and":
        guard = guard.a
        parts.add(guard)
    while other not in parts:
        if other.__class__ is not Binary or other.op != "and":
            return True
        other = other.a
    return other


def holds_terms(e: Any) -> bool:
    """Return whether an index expression reads values. Nodes remember it: indices from look-ups are deep."""
    return isinstance(e, Node) and contents(e) & Term.marks != 0


# ---- Constants of Tensor IR as the numbers that Loop IR has.


def literal(term: Const) -> Any:
    """Return the number of a constant, in the kind that its dtype says."""
    if term.dtype == "b8":
        return bool(term.value)
    return int(term.value) if term.dtype in INTEGERS and math.isfinite(term.value) else float(term.value)


def number(term: Const) -> Any:
    """Return a constant as a value. A bare number is f32 unless its operands say otherwise, so f64 is explicit."""
    return Call("f64", (literal(term),)) if term.dtype == "f64" else literal(term)


# ---- Names that people read: kernels after the torch ops they compute, temporaries after the values they hold.


# Words that no value, loop or buffer may be called, so that every dump reads back and the CUDA compiles.
_SYNTAX = """
for in if and or not load by each inside rule with on let where match pass kernel graph example gives because pick
prefer rewrite drop none true false inf mat
"""
_CUDA = """
auto bool break case char const continue default do double else enum extern float goto int long register return short
signed sizeof static struct switch typedef union unsigned void volatile while class new delete this template typename
namespace using public private virtual operator half blockIdx threadIdx blockDim gridDim
"""
KEYWORDS = RESERVED.union(_SYNTAX.split(), _CUDA.split())

MOST = 4  # operations that a kernel's name lists
QUIET = frozenset(("where", "copy", "f32", "f16", "bf16", "i32", "i64", "b8"))
FOLDS = {
    "add": "sum",
    "maximum": "max",
    "minimum": "min",
    "multiply": "product",
    "logical_or": "any",
    "logical_and": "all",
}

# Functions of the C library that are also torch ops: a kernel is an `extern "C"` function, and must not be one of them.
_LIBRARY = """
clone copysign div double erfc frexp gamma hypot index ldexp lgamma log1p logb max min nextafter random read remainder
remove rename scalbn select signal signbit time write
"""
LIBRARY = frozenset(_LIBRARY.split())


class Names:
    """Names of one program. values: the names of its lines; origins: the torch op of each term."""

    def __init__(self, graph: TensorGraph, flow: Dataflow, stored: Container[Any], origins: Mapping[Any, TorchOp]):
        self.flow, self.stored, self.origins = flow, stored, origins
        self.values: dict[Any, str] = {named.value: identifier(named.name) for named in graph.names}
        self.used = {x.name for x in graph.ins} | {out.name for out in graph.outs}
        self.kernels: set[str] = set()

    def temporary(self, term: Any) -> str:
        """Return the name of a buffer between kernels."""
        return self._unique(self.values.get(term) or self._label(term) or "value", self.used)

    def kernel(self, values: Sequence[Any]) -> str:
        """Return the name of the kernel that stores these values: its operations in order, each once."""

        def below(term: Any) -> Sequence[Any]:
            return () if term in self.stored and term not in values else operands(term)

        found: dict[str, None] = {}
        for term in postorder(values, below):
            if term in values or term not in self.stored:
                label = self._label(term)
                if label:
                    found.setdefault(label)
        labels = list(found) or ["copy"]
        if len(labels) > MOST:
            labels = [*labels[: MOST - 1], labels[-1]]
        name = "_".join(labels)
        if name in KEYWORDS or name in LIBRARY:
            name = f"{name}_kernel"
        return self._unique(name, self.kernels)

    def _label(self, term: Any) -> str | None:
        origin = self.origins.get(term)
        if origin is not None:
            return identifier(aten_name(origin.op))
        if term.__class__ is Reduce:
            return "matmul" if self._contracts(term) else FOLDS.get(term.fn, term.fn)
        if term.__class__ is Fold:
            return str(of_part(term.part)[0].name)
        if term.__class__ is Elementwise:
            inside = term.fn == "multiply" and any(
                r.__class__ is Reduce and self._contracts(r) for r in self.flow.readers.get(term, ())
            )
            return None if term.fn in QUIET or inside else str(term.fn)
        return "gather" if term.__class__ is Remap and len(operands(term)) > 1 else None

    def _contracts(self, term: Any) -> bool:
        return contracts(self.flow.mask[term], *(self.flow.mask[factor] for factor in factors(term)))

    def _unique(self, wanted: str, used: set[str]) -> str:
        name = unused(wanted, used, KEYWORDS, between="_", first=2)
        used.add(name)
        return name


def identifier(text: str) -> str:
    """Return a text as a C identifier."""
    cleaned = re.sub(r"\W+", "_", text).strip("_") or "value"
    return cleaned if cleaned[0].isalpha() else f"n{cleaned}"


# ---- Where stored values live, and what a kernel stores.


@dataclass(frozen=True)
class BufferLayout:
    """Layout of a stored value. dims: its dimensions; element (loops..) is at `address`, one expression each."""

    name: str
    dtype: str
    dims: tuple[Axis, ...]
    loops: tuple[Axis, ...]
    address: tuple[Any, ...]

    @property
    def param(self) -> Param:
        return Param(self.name, self.dtype, tuple(axis.extent for axis in self.dims) or (1,))


@dataclass(frozen=True)
class Write:
    """A value that a kernel stores, where a guard over its loops holds."""

    value: Any
    buffer: BufferLayout
    guard: Any = True


def result_buffer(name: str, term: Any, dims: tuple[Axis, ...]) -> BufferLayout:
    """Return the plain layout: one dimension an axis, in this order."""
    return BufferLayout(name, dtype(term), dims, dims, dims)


def input_buffer(term: Input) -> BufferLayout:
    return BufferLayout(term.name, term.dtype, term.axes, term.axes, term.axes)


@dataclass
class Block:
    """A loop body under construction: the axis it binds, its statements, and the values already computed in it."""

    axis: Axis | None
    variable: str
    body: list[Stmt] = field(default_factory=list)
    memo: dict[Any, Any] = field(default_factory=dict)


ACCUMULATORS = {"add": "sum", "maximum": "top", "minimum": "low", "multiply": "product"}
SHORT = {"add": "plus", "subtract": "minus", "multiply": "times", "divide": "ratio", "where": "chosen"}


class Lift:
    """Lifts the values that one kernel stores. All share their loops."""

    def __init__(self, name: str, writes: Sequence[Write], buffers: dict[Any, BufferLayout], names: dict[Any, str]):
        self.name, self.writes, self.buffers, self.names = name, writes, buffers, names
        self.written = {write.value for write in writes}
        self.holds: dict[str, Term] = {}  # the value that each name of the kernel holds
        self.tried: dict[str, int] = {}
        self.used: set[str] = {name} | {write.buffer.name for write in writes}
        self.ins: dict[BufferLayout, None] = {}
        order = postorder((write.value for write in writes), self._below)
        self.used |= sizes_in((*order, *(write.buffer.param for write in writes))).keys()
        self.used |= {buffer.name for term in order if (buffer := self._buffer(term)) is not None}
        self.rank: dict[Any, int] = {}
        self.groups: dict[Any, list[Any]] = {}
        for term in order:
            if self._buffer(term) is not None:
                self.rank[term] = 0
                continue
            rank = max((self.rank[operand] for operand in self._below(term)), default=0)
            if term.__class__ is Reduce:
                rank += 1
                self.groups.setdefault((term.over, frozenset(axes(term)), rank), []).append(term)
            if term.__class__ is Fold:
                rank += 1  # part of the key: what needs another one's result cannot share its loop
                self.groups.setdefault((common_key(term), rank), []).append(term)
            self.rank[term] = rank
        self.deeper = self._deeper(order)
        self.anywhere: set[Any] = set()
        for term in order:
            if self._needs_no_guard(term):
                self.anywhere.add(term)
        needed = [*((term, True) for term in self._in_common()), *((write.value, write.guard) for write in writes)]
        read = {term for term in order if self._buffer(term) is not None}
        self.shared, self.beyond = shared_guards(order, needed, read, self._needed)

    def _deeper(self, order: Sequence[Any]) -> dict[Any, tuple[Axis, ...]]:
        """Return the axes under which reductions by `Fold`, and the values that need them, are computed.

        Reductions of one key share their loop, so each is computed as late as the last of them.
        """
        found: dict[Any, tuple[Axis, ...]] = {}
        for term in order:
            if self._buffer(term) is not None:
                continue
            if term.__class__ is Fold:
                found[term] = tuple(dict.fromkeys(axis for other in self._beside(term) for axis in axes(other)))
            elif any(operand in found for operand in operands(term)):
                below = dict.fromkeys(axis for x in operands(term) for axis in found.get(x, axes(x)))
                own = term.over if term.__class__ is Reduce else ()
                found[term] = tuple(axis for axis in below if axis not in own)
        return found

    def _needs_no_guard(self, term: Any) -> bool:
        """Return whether a value can be computed, and is the same, where a guard fails.

        It is if it is an operation on values that are always there. The sides of a selection that have it in common
        share it then (the steps of a loop that was written out and stacked). Computed under each guard, it would
        exist once for each side.
        """
        if term in self.written or self._buffer(term) is not None or term.__class__ is not Elementwise:
            return False
        return all(arg.__class__ is Const or arg in self.anywhere or self._always_there(arg) for arg in term.args)

    def _always_there(self, term: Any) -> bool:
        """Return whether memory holds the element that a term reads for every iteration of the loops."""
        source, mapping = (term.x, dict(term.map)) if term.__class__ is Remap else (term, {})
        buffer = self._buffer(source)
        if buffer is None:
            return False
        places = self._places(buffer, {**mapping, **{axis: 0 for axis in buffer.loops if axis not in axes(source)}})
        return self._present(buffer, places) is True and not any(map(holds_terms, places))

    def _needed(self, term: Any, guard: Any) -> list[tuple[Any, Any]]:
        """Return the values that a value is computed from under a guard, each with its own guard."""
        if self._buffer(term) is not None:
            return []
        if term.__class__ is Case:
            sides = [(term.a, both(guard, term.cond)), (term.b, both(guard, invert(term.cond)))]
            return [*((x, guard) for x in operands(term)[:-2]), *sides]
        if term.__class__ in FOLDING and len(self._beside(term)) > 1:
            guard = True  # folds that share a loop are computed without a guard
        guard = True if term in self.anywhere else guard
        return [(x, guard) for x in (operands(term)[1:] if term.__class__ is Remap else operands(term))]

    def _beside(self, term: Any) -> list[Any]:
        """Return the folds of the same key as a fold, itself included: those that may share its loop."""
        key = (term.over, frozenset(axes(term))) if term.__class__ is Reduce else (common_key(term),)
        return self.groups[*key, self.rank[term]]

    # ---- what is read from memory
    def _buffer(self, term: Any) -> BufferLayout | None:
        """Return the buffer a term is read from, or None for one that is computed here."""
        return None if term in self.written else self.buffers.get(term)

    def _below(self, term: Any) -> Sequence[Any]:
        return () if self._buffer(term) is not None else operands(term)

    # ---- the nest
    def kernel(self) -> Kernel:
        loops = self.writes[0].buffer.loops
        reductions = self._reductions()
        folded = {axis for term in reductions for axis in term.over}
        inside = folded.difference(loops)
        outermost = [term for term in reductions if inside.isdisjoint(axes(term))]
        grid = [axis for axis in loops if axis not in folded]
        grid.sort(key=lambda axis: -sum(axis in axes(term) for term in outermost))
        stack = [Block(None, "")]
        for axis in (*grid, *(axis for axis in loops if axis in folded)):
            stack.append(Block(axis, self.fresh(axis.name)))
        for term in self._in_common():
            self.value(term, stack)
        # what only follows a fold waits for it: its operands would be held in registers while the fold runs
        for write in sorted(self.writes, key=lambda write: self.rank.get(write.value, 0) == 0):
            value = self.value(write.value, stack, write.guard)
            if not isinstance(value, Node):
                value = self._let(None, value, "value", stack[-1])
            store: Stmt = Store(write.buffer.name, self._address(write.buffer, {}, stack), value)
            guard = self.index(write.guard, stack)
            stack[-1].body.append(store if guard is True else If(guard, (store,)))
        self._close(stack, "free")
        outs = tuple(write.buffer.param for write in self.writes)
        return Kernel(self.name, tuple(buffer.param for buffer in self.ins), outs, tuple(stack[0].body))

    def _in_common(self) -> list[Any]:
        """Return the reductions that guarded writes have in common: they are computed once, whichever guard holds."""
        if all(write.guard is True for write in self.writes):
            return []
        below = [set(postorder([write.value], self._below)) for write in self.writes]
        return [term for term in self._reductions() if all(term in terms for terms in below)]

    def _reductions(self) -> list[Any]:
        return [term for term in self.rank if term.__class__ in FOLDING and self._buffer(term) is None]

    def _close(self, blocks: list[Block], role: str) -> None:
        """Put each block but the first into the one before it, as a loop."""
        for parent, block in reversed([*itertools.pairwise(blocks)]):
            assert block.axis is not None
            parent.body.append(For(block.variable, 0, block.axis.extent, tuple(block.body), role))

    def fresh(self, hint: str) -> str:
        """Return a name that nothing in this kernel has yet."""
        name = unused(hint, self.used, KEYWORDS, tried=self.tried)
        self.used.add(name)
        return name

    def _depth(self, axis: Axis, stack: list[Block]) -> int:
        for place in range(len(stack) - 1, 0, -1):
            if stack[place].axis is axis:
                return place
        raise AssertionError(f"axis {axis.name} is bound by no loop of {self.name}")

    # ---- index expressions
    def index(self, e: Any, stack: list[Block], guard: Any = True) -> Any:
        """Return an index expression over the loop variables in scope."""
        if e.__class__ is Axis:
            return Var(stack[self._depth(e, stack)].variable)
        if isinstance(e, Term):
            return self.value(e, stack, guard)
        return rebuild(e, lambda part: self.index(part, stack, guard))

    def _condition(self, guard: Any, stack: list[Block]) -> Any:
        """Return a guard over the loop variables in scope.

        A later part reads values only where the earlier parts hold.
        """
        if guard.__class__ is Binary and guard.op == "and" and holds_terms(guard):
            return both(self._condition(guard.a, stack), self.index(guard.b, stack, guard.a))
        return self.index(guard, stack)

    def _address(
        self, buffer: BufferLayout, mapping: dict[Axis, Any], stack: list[Block], guard: Any = True
    ) -> tuple[Any, ...]:
        return tuple([self.index(e, stack, guard) for e in self._places(buffer, mapping)]) or (0,)

    def _places(self, buffer: BufferLayout, mapping: dict[Axis, Any]) -> tuple[Any, ...]:
        """Return the element of a buffer that a map reads, one expression over axes for each dimension."""
        return tuple([substitute(e, mapping) for e in buffer.address]) if mapping else buffer.address

    # ---- values
    def value(self, term: Any, stack: list[Block], guard: Any = True) -> Any:
        """Return the expression that holds a term's value: a name or a number. Its statements go where they belong."""
        pending = [(term, guard)]  # explicit: chains of operations may be longer than Python's stack
        while True:
            top, guard = pending[-1]
            guard = self._guard(top, guard)
            if top.__class__ is Const:
                known: Any = number(top)
            else:
                here, known = self._known(top, stack, guard)
                if known is None and top.__class__ is Elementwise and self._buffer(top) is None:
                    missing = [
                        a for a in top.args if a.__class__ is Elementwise and self._known(a, stack, guard)[1] is None
                    ]
                    if missing:  # what only follows a fold is computed after it
                        folds = [a for a in top.args if a.__class__ in FOLDING]
                        folds = [a for a in folds if self._known(a, stack, guard)[1] is None]
                        pending.extend((a, guard) for a in reversed((*folds, *missing)))
                        continue
                if known is None:
                    known = self._compute(top, stack[: here + 1], guard)
            pending.pop()
            if not pending:
                return known

    def _guard(self, term: Any, guard: Any) -> Any:
        """Return the guard that a value is computed under where a reader needs it under a guard."""
        return True if guard is True or term in self.anywhere else self.shared.get(term, guard)

    def _known(self, term: Any, stack: list[Block], guard: Any) -> tuple[int, Any]:
        """Return the index in the stack of the block for a value, and the value if the block has it already."""
        guard, bound = self._guard(term, guard), axes(term)
        if self._buffer(term) is not None:
            bound = tuple(axis for axis in bound if axis in self.buffers[term].loops)
        deeper = self.deeper.get(term)
        if deeper is not None:
            there = {block.axis for block in stack}
            bound = tuple(axis for axis in deeper if axis in there)
        here = max((self._depth(axis, stack) for axis in bound), default=0)
        known = stack[here].memo.get(term)
        if known is not None or guard is True:
            return here, known
        own = max((here, *(self._depth(axis, stack) for axis in index_axes(guard))))
        known = stack[own].memo.get((term, guard))
        while known is None and guard.__class__ is Binary and guard.op == "and":
            guard = guard.a  # what is there under a part of the guard is there under all of it
            known = stack[max((here, *(self._depth(axis, stack) for axis in index_axes(guard))))].memo.get(
                (term, guard)
            )
        return own, known

    def _compute(self, term: Any, stack: list[Block], guard: Any) -> Any:
        here, kind, always = stack[-1], term.__class__, guard is True
        if self._buffer(term) is not None:
            return self._load(term, {}, stack, guard)
        if kind is Remap:
            return self._load(term.x, dict(term.map), stack, guard, term)
        if kind is Reduce:
            return self._reduce(term, stack, guard)
        if kind is Fold:
            return self._fold(term, stack, guard)
        if kind is Case:
            return self._case(term, stack, guard)
        if kind is Elementwise and term.fn in HELD:
            name = self.value(term.args[0], stack, guard)  # registers hold f32: its store will round it
        elif kind is Elementwise:
            args = [self.value(arg, stack, guard) for arg in term.args]
            name = self._let(term, Call(term.fn, tuple(args)), SHORT.get(term.fn, term.fn), here)
        else:
            name = self._let(term, self.index(term.expr, stack, guard), "at", here)
        here.memo[term if always else (term, guard)] = name
        return name

    def _let(self, term: Any, value: Any, hint: str, here: Block) -> Var:
        name = self.fresh(self.names.get(term, hint))
        here.body.append(Let(name, value))
        if term is not None:
            self.holds[name] = term
        return Var(name)

    def _load(
        self, source: Any, mapping: dict[Axis, Any], stack: list[Block], guard: Any, term: Any = None, other: Any = None
    ) -> Any:
        """Load an element. other: what to take where the guard fails, if the selection is this load alone."""
        buffer, term = self.buffers[source], term or source
        # an output that repeats its value along an axis: any element of it will do
        missing = {axis: 0 for axis in buffer.loops if axis not in axes(source)}
        places = self._places(buffer, {**mapping, **missing})
        gathered = any(map(holds_terms, places))
        present = self._present(buffer, places)
        if (
            guard is not True and other is None and present is True and not gathered
        ):  # it is there even where the guard fails
            here, known = self._known(term, stack, True)
            if known is not None:
                return known
            guard, stack = True, stack[: here + 1]
        self.ins.setdefault(buffer)
        # without a guard nothing out of bounds is read: a side of a Case that is stored by itself
        when = self._condition(both(guard, present) if guard is True or term in self.beyond else guard, stack)
        idx = tuple([self.index(e, stack, guard) for e in places]) or (0,)
        name = self.fresh(re.sub(r"[^A-Za-z].*|^$", "", buffer.name)[:1].lower() or "v")
        if when is True:
            stack[-1].body.append(Load(name, buffer.name, idx))
        else:
            stack[-1].body.append(
                Load(name, buffer.name, idx, when, identity("add", buffer.dtype) if other is None else other)
            )
        if other is None:
            stack[-1].memo[term if guard is True else (term, guard)] = Var(name)
        return Var(name)

    def _present(self, buffer: BufferLayout, places: Sequence[Any]) -> Any:
        """Return the condition under which an element is there at all. An index from memory is taken at its word."""
        condition: Any = True
        for axis, e in zip(buffer.dims, places, strict=True):
            if e is axis or (e.__class__ is int and axis.extent.__class__ is int) or holds_terms(e):
                continue
            condition = both(both(condition, operate(">=", e, 0)), operate("<", e, axis.extent))
        return condition

    def _reduce(self, term: Any, stack: list[Block], guard: Any) -> Any:
        """Lower a reduction together with the others over the same axes in the same block: they share the loop."""
        here = stack[-1]
        group = [other for other in self._beside(term) if other not in here.memo] if guard is True else [term]
        names = [self.fresh(self.names.get(other, ACCUMULATORS.get(other.fn, "fold"))) for other in group]
        self.holds |= zip(names, group, strict=True)
        inner = [Block(axis, self.fresh(axis.name)) for axis in term.over]
        for other, name in zip(group, names, strict=True):
            value = self.value(other.x, stack + inner, guard)
            inner[-1].body.append(Accumulate(name, other.fn, value))
        self._close([here, *inner], "reduce")
        for other, name in zip(group, names, strict=True):
            here.memo[other if guard is True else (other, guard)] = Var(name)
        return Var(names[0]) if group[0] is term else here.memo[term]

    def _fold(self, term: Fold, stack: list[Block], guard: Any) -> Any:
        """Lower a part of a tuple reduction, and with it the others of its key: one loop, a tuple for each weight."""
        here = stack[-1]
        group, around = [term], {block.axis for block in stack}
        if guard is True:  # those whose axes are all bound here
            beside = self._beside(term)
            group = [other for other in beside if other not in here.memo and around.issuperset(axes(other))]
        monoid, _ = of_part(term.part)
        inner = [Block(axis, self.fresh(axis.name)) for axis in term.over]
        bound = around.union(block.axis for block in inner)
        tuples: dict[Any, tuple[str, ...]] = {}
        for other in group:
            if other.args not in tuples:
                named = {of_part(x.part)[1]: self.names.get(x, "") for x in group if x.args == other.args}
                accs = tuple(self.fresh(named.get(part) or part) for part in monoid.parts)
                # An operand that varies along more than what is bound here is one that no part of the group depends on.
                vals = tuple(
                    self.value(x, stack + inner, guard) if bound.issuperset(axes(x)) else 1.0 for x in other.args
                )
                inner[-1].body.append(Merge(accs, monoid.name, vals))
                tuples[other.args] = accs
            name = Var(tuples[other.args][monoid.parts.index(of_part(other.part)[1])])
            self.holds[name.name] = other
            here.memo[other if guard is True else (other, guard)] = name
        self._close([here, *inner], "reduce")
        return here.memo[term if guard is True else (term, guard)]

    def _case(self, term: Any, stack: list[Block], guard: Any) -> Any:
        """Lower a choice so that either side is only read where it is chosen.

        Guarded loads precede a selection; a single load with `other` replaces both if one side is a constant.
        """
        here = stack[-1]
        sides = ((both(guard, term.cond), term.a, term.b), (both(guard, invert(term.cond)), term.b, term.a))
        for when, side, rest in sides:
            source = side.x if side.__class__ is Remap else side
            if guard is True and rest.__class__ is Const and source in self.buffers and source not in self.written:
                mapping = dict(side.map) if side.__class__ is Remap else {}
                name = self._load(source, mapping, stack, when, side, literal(rest))
                here.memo[term] = name
                self.holds[name.name] = term
                return name
        # what the condition reads is there for both sides, if it is read first
        asked = self.index(term.cond, stack, guard)
        chosen = [self.value(side, stack, when) for when, side, _ in sides]
        condition = here.memo.get(asked)
        if condition is None:  # steps of a loop that is written out choose by one condition
            condition = here.memo[asked] = self._let(None, asked, "cond", here)
        name = self._let(term, Call("where", (condition, *chosen)), "chosen", here)
        here.memo[term if guard is True else (term, guard)] = name
        return name
