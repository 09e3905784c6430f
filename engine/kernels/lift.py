"""One kernel of Tensor IR to one loop nest of Loop IR.

Loops are the axes of the stored values: first those that no reduction of the kernel folds (the grid), then the others
(the row). A stack of blocks, each binding one axis; a value is computed in the innermost block that binds an axis it
varies with, once per block. Loop-invariant placement, computing again in every sweep, and sharing all follow from that.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...ir.expr import Axis, Binary, Call, Var, both, invert
from ...ir.facts.dataflow import common_key, topological
from ...ir.facts.index import operate, substitute
from ...ir.functions import HELD
from ...ir.loop import Accumulate, For, If, Let, Load, Merge, Store
from ...ir.monoids import of_part
from ...ir.names import unused
from ...ir.node import Node
from ...ir.program import Kernel, Stmt
from ...ir.sizes import sizes_in
from ...ir.tensor import Case, Const, Elementwise, Fold, Reduce, Remap, Term, axes, index_axes, operands
from .buffers import BufferLayout, Write
from .guards import shared_guards
from .literals import literal, number, zero_of
from .names import KEYWORDS
from .resolve import holds_terms, over_variables


@dataclass
class Block:
    """A loop body under construction: the axis it binds, its statements, and the values already computed in it."""

    axis: Axis | None
    variable: str
    body: list[Stmt] = field(default_factory=list)
    memo: dict[Any, Any] = field(default_factory=dict)


FOLDING = (Reduce, Fold)
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
        order = topological((write.value for write in writes), self._below)
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
        """The axes under which folds are computed, and what needs them.

        Those of one key share their loop, so each stands where the last of them can be computed.
        """
        found: dict[Any, tuple[Axis, ...]] = {}
        for term in order:
            if self._buffer(term) is not None:
                continue
            if term.__class__ is Fold:
                together = self.groups[common_key(term), self.rank[term]]
                found[term] = tuple(dict.fromkeys(axis for other in together for axis in axes(other)))
            elif any(operand in found for operand in operands(term)):
                below = dict.fromkeys(axis for x in operands(term) for axis in found.get(x, axes(x)))
                own = term.over if term.__class__ is Reduce else ()
                found[term] = tuple(axis for axis in below if axis not in own)
        return found

    def _needs_no_guard(self, term: Any) -> bool:
        """Whether a value can be computed, and is the same, where a guard fails: operations on what is always there.

        The sides of a selection that have it in common share it then (the steps of a loop that was written out and
        stacked); computed under each guard, it would be there once for each side.
        """
        if term in self.written or self._buffer(term) is not None or term.__class__ is not Elementwise:
            return False
        return all(arg.__class__ is Const or arg in self.anywhere or self._always_there(arg) for arg in term.args)

    def _always_there(self, term: Any) -> bool:
        """Whether an element is read from memory that is there for every place of the loops."""
        source, mapping = (term.x, dict(term.map)) if term.__class__ is Remap else (term, {})
        buffer = self._buffer(source)
        if buffer is None:
            return False
        places = self._places(buffer, {**mapping, **{axis: 0 for axis in buffer.loops if axis not in axes(source)}})
        return self._present(buffer, places) is True and not any(map(holds_terms, places))

    def _needed(self, term: Any, guard: Any) -> list[tuple[Any, Any]]:
        """The values that a value is computed from under a guard, each with its own guard."""
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
        """The folds of the same key as a fold, itself included: those that may share its loop."""
        key = (term.over, frozenset(axes(term))) if term.__class__ is Reduce else (common_key(term),)
        return self.groups[*key, self.rank[term]]

    # ---- what is read from memory
    def _buffer(self, term: Any) -> BufferLayout | None:
        """The buffer a term is read from, or None for one that is computed here."""
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
        for place in range(len(stack) - 1, 0, -1):
            self._close(stack[place - 1], stack[place], "free")
        outs = tuple(write.buffer.param for write in self.writes)
        return Kernel(self.name, tuple(buffer.param for buffer in self.ins), outs, tuple(stack[0].body))

    def _in_common(self) -> list[Any]:
        """The reductions that guarded writes have in common: they are computed once, whichever guard holds."""
        if all(write.guard is True for write in self.writes):
            return []
        below = [set(topological([write.value], self._below)) for write in self.writes]
        return [term for term in self._reductions() if all(term in terms for terms in below)]

    def _reductions(self) -> list[Any]:
        return [term for term in self.rank if term.__class__ in FOLDING and self._buffer(term) is None]

    def _close(self, parent: Block, block: Block, role: str) -> None:
        assert block.axis is not None
        parent.body.append(For(block.variable, 0, block.axis.extent, tuple(block.body), role))

    def fresh(self, hint: str) -> str:
        """A name that nothing in this kernel has yet."""
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
        """An index expression over the loop variables in scope."""
        if e.__class__ is Axis:
            return Var(stack[self._depth(e, stack)].variable)
        if e.__class__ is int or e is True or e is False:
            return e
        variables = {axis: Var(stack[self._depth(axis, stack)].variable) for axis in index_axes(e)}
        return over_variables(e, variables, lambda term: self.value(term, stack, guard))

    def _condition(self, guard: Any, stack: list[Block]) -> Any:
        """A guard over the loop variables in scope. What a later part reads is read where the earlier ones hold."""
        if guard.__class__ is Binary and guard.op == "and" and holds_terms(guard):
            return both(self._condition(guard.a, stack), self.index(guard.b, stack, guard.a))
        return self.index(guard, stack)

    def _address(
        self, buffer: BufferLayout, mapping: dict[Axis, Any], stack: list[Block], guard: Any = True
    ) -> tuple[Any, ...]:
        return tuple([self.index(e, stack, guard) for e in self._places(buffer, mapping)]) or (0,)

    def _places(self, buffer: BufferLayout, mapping: dict[Axis, Any]) -> tuple[Any, ...]:
        """The element of a buffer that a map reads, one expression over axes for each dimension."""
        return tuple([substitute(e, mapping) for e in buffer.address]) if mapping else buffer.address

    # ---- values
    def value(self, term: Any, stack: list[Block], guard: Any = True) -> Any:
        """The expression that holds a term's value: a name or a number. Its statements go where they belong."""
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
        """The guard that a value is computed under where a reader needs it under a guard."""
        return True if guard is True or term in self.anywhere else self.shared.get(term, guard)

    def _known(self, term: Any, stack: list[Block], guard: Any) -> tuple[int, Any]:
        """The place in the stack where a value belongs, and the value if it is there already."""
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
        """Reads an element. other: what to take where the guard fails, if the selection is this load alone."""
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
            stack[-1].body.append(Load(name, buffer.name, idx, when, zero_of(buffer.dtype) if other is None else other))
        if other is None:
            stack[-1].memo[term if guard is True else (term, guard)] = Var(name)
        return Var(name)

    def _present(self, buffer: BufferLayout, places: Sequence[Any]) -> Any:
        """The condition under which an element is there at all. An index from memory is taken at its word."""
        condition: Any = True
        for axis, e in zip(buffer.dims, places, strict=True):
            if e is axis or (e.__class__ is int and axis.extent.__class__ is int) or holds_terms(e):
                continue
            condition = both(both(condition, operate(">=", e, 0)), operate("<", e, axis.extent))
        return condition

    def _reduce(self, term: Any, stack: list[Block], guard: Any) -> Any:
        """A reduction, and with it the others that fold the same axes at the same place: they share the loop."""
        here = stack[-1]
        group = [other for other in self._beside(term) if other not in here.memo] if guard is True else [term]
        names = [self.fresh(self.names.get(other, ACCUMULATORS.get(other.fn, "fold"))) for other in group]
        self.holds |= zip(names, group, strict=True)
        inner = [Block(axis, self.fresh(axis.name)) for axis in term.over]
        for other, name in zip(group, names, strict=True):
            value = self.value(other.x, stack + inner, guard)
            inner[-1].body.append(Accumulate(name, other.fn, value))
        for place in range(len(inner) - 1, -1, -1):
            self._close(inner[place - 1] if place else here, inner[place], "reduce")
        for other, name in zip(group, names, strict=True):
            here.memo[other if guard is True else (other, guard)] = Var(name)
        return Var(names[0]) if group[0] is term else here.memo[term]

    def _together(self, term: Fold, stack: list[Block]) -> list[Fold]:
        """The folds of the same key whose axes are all bound here."""
        bound = {block.axis for block in stack}
        return [other for other in self.groups[common_key(term), self.rank[term]] if bound.issuperset(axes(other))]

    def _fold(self, term: Fold, stack: list[Block], guard: Any) -> Any:
        """A part of a tuple reduction, and with it the others of the same key: one loop, a tuple for each weight."""
        here = stack[-1]
        group = [other for other in self._together(term, stack) if other not in here.memo] if guard is True else [term]
        monoid, _ = of_part(term.part)
        inner = [Block(axis, self.fresh(axis.name)) for axis in term.over]
        bound = {block.axis for block in (*stack, *inner)}
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
        for place in range(len(inner) - 1, -1, -1):
            self._close(inner[place - 1] if place else here, inner[place], "reduce")
        return here.memo[term if guard is True else (term, guard)]

    def _case(self, term: Any, stack: list[Block], guard: Any) -> Any:
        """Either side is only read where it is taken: guarded loads, then a selection (or a lone load with `other`)."""
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
