"""One kernel of Tensor IR to one loop nest of Loop IR.

Loops are the axes of the stored values: first those that no reduction of the kernel folds (the grid), then the others
(the row). A stack of blocks, each binding one axis; a value is computed in the innermost block that binds an axis it
varies with, once per block. Loop-invariant placement, computing again in every sweep, and sharing all follow from that.
"""

from __future__ import annotations

import functools
import math
import re
from collections import Counter, defaultdict
from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...ir.dtypes import FLOATS, INTEGERS
from ...ir.expr import Axis, Binary, Call, Var, both, extents_of, invert, rebuild
from ...ir.facts.dataflow import Dataflow, common_key, contracts, offsets_of
from ...ir.facts.index import operate, substitute
from ...ir.functions import HELD, identity
from ...ir.loop import Accumulate, For, If, Let, Load, Merge, Store
from ...ir.monoids import of_part
from ...ir.names import unused
from ...ir.node import Expr, Node, contains, immutable, names_in
from ...ir.program import Kernel, Param, Stmt
from ...ir.schemas import aten_name
from ...ir.sizes import at_hint, sizes_in
from ...ir.tensor import (
    Case,
    Const,
    Elementwise,
    Fold,
    Index,
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

    def __init__(self, graph: TensorGraph, flow: Dataflow, stored: Container[Term], origins: Mapping[Term, TorchOp]):
        self.flow, self.stored, self.origins = flow, stored, origins
        self.values: dict[Term, str] = {named.value: identifier(named.name) for named in graph.names}
        self.used = {x.name for x in graph.ins} | {x.name for x in graph.outs}
        self.used.update(*map(names_in, graph.calls))
        self.kernels: set[str] = set()
        self.tried: tuple[dict[str, int], dict[str, int]] = {}, {}  # of buffers, of kernels

    def temporary(self, term: Term) -> str:
        """Return the name of a buffer between kernels."""
        return _claimed(self.values.get(term) or self._label(term) or "value", self.used, self.tried[0])

    def kernel(self, values: Sequence[Term]) -> str:
        """Return the name of the kernel that stores these values: its operations in order, each once."""

        def computed(term: Term) -> bool:
            return term in values or term not in self.stored

        order = postorder(values, lambda term: operands(term) if computed(term) else ())
        found = dict.fromkeys(self._label(term) for term in order if computed(term))
        labels = [label for label in found if label] or ["copy"]
        if len(labels) > MOST:
            labels[MOST - 1 : -1] = []
        name = "_".join(labels)
        name = f"{name}_kernel" if name in KEYWORDS or name in LIBRARY else name
        return _claimed(name, self.kernels, self.tried[1])

    def _label(self, term: Term) -> str | None:
        origin = self.origins.get(term)
        if origin is not None:
            return identifier(aten_name(origin.op))
        if term.__class__ is Reduce:
            return "matmul" if self._contracts(term) else FOLDS.get(term.fn, term.fn)
        if term.__class__ is Fold:
            return of_part(term.part)[0].name
        if term.__class__ is Elementwise:
            inside = term.fn == "multiply" and any(map(self._contracts, self.flow.readers.get(term, ())))
            return None if inside or term.fn in QUIET else str(term.fn)
        return "gather" if term.__class__ is Remap and len(operands(term)) > 1 else None

    def _contracts(self, term: Term) -> bool:
        return contracts(self.flow.mask[term], *(self.flow.mask[factor] for factor in factors(term)))


def _claimed(wanted: str, used: set[str], tried: dict[str, int]) -> str:
    name = unused(wanted, used, KEYWORDS, between="_", first=2, tried=tried)
    used.add(name)
    return name


def identifier(text: str) -> str:
    """Return a text as a C identifier."""
    cleaned = re.sub(r"\W+", "_", text).strip("_") or "value"
    return cleaned if cleaned[0].isalpha() else f"n{cleaned}"


# ---- Where stored values live, and what a kernel stores.


@immutable
class BufferLayout:
    """Layout of a stored value. dims: its dimensions; element (loops..) is at `address`, one expression each."""

    name: str
    dtype: str
    dims: tuple[Axis, ...]
    loops: tuple[Axis, ...]
    address: tuple[Expr, ...]

    @property
    def param(self) -> Param:
        return Param(self.name, self.dtype, extents_of(self.dims) or (1,))


@immutable
class Write:
    """A value that a kernel stores, where a guard over its loops holds."""

    value: Term
    buffer: BufferLayout
    guard: Expr = True


def result_buffer(name: str, term: Term, dims: tuple[Axis, ...]) -> BufferLayout:
    """Return the plain layout: one dimension an axis, in this order."""
    return BufferLayout(name, dtype(term), dims, dims, dims)


def input_buffer(term: Input) -> BufferLayout:
    return result_buffer(term.name, term, term.axes)


# ---- Values, indices and guards, asked one at a time.


DIVISIONS = ("floor_divide", "remainder", "fmod")


def _literal(term: Const) -> float:
    """Return the number of a constant, in the kind that its dtype says."""
    if term.dtype == "b8":
        return bool(term.value)
    return int(term.value) if term.dtype in INTEGERS and math.isfinite(term.value) else float(term.value)


def _source(term: Term) -> tuple[Term, dict[Axis, Expr]]:
    """Return the value that an index map reads, and where it reads each axis. Any other value is its own."""
    return (term.x, dict(term.map)) if term.__class__ is Remap else (term, {})


def _extended(guard: Expr) -> Iterator[Expr]:
    """Yield a guard and those that it extends. The outer conditions of a guard are on the left."""
    yield guard
    while guard.__class__ is Binary and guard.op == "and":
        guard = guard.a
        yield guard


def _common_part(guard: Expr, other: Expr) -> Expr:
    """Return the guard with which two paths through selections begin."""
    beginnings = {*_extended(guard)}
    return next((part for part in _extended(other) if part in beginnings), True)


def _sides(term: Case, guard: Expr) -> list[tuple[Term, Expr]]:
    """Return the sides of a choice, each with the guard that it is needed under."""
    return [(term.a, both(guard, term.cond)), (term.b, both(guard, invert(term.cond)))]


def _is_total(term: Term, total: set[Term]) -> bool:
    """Return whether a value over `total` ones can be computed where no reader needs it.

    A skipped load gives 0. Integers are not divided by it, and no index is computed from it.
    """
    if term.__class__ is Remap:
        return len(operands(term)) == 1
    divides = term.__class__ is Elementwise and term.fn in DIVISIONS and dtype(term) not in FLOATS
    return not divides and total.issuperset(operands(term))


# ---- The loop nest.


@dataclass
class Block:
    """A loop body under construction. outer: the block around it, which binds the axes before its own.

    variables: those of all axes in scope. known: the values that are computed in it, by term and guard.
    """

    variables: dict[Axis, str]
    axis: Axis | None = None
    outer: Block | None = None
    body: list[Stmt] = field(default_factory=list)
    known: dict[tuple[Term, Expr], Expr] = field(default_factory=dict)

    def binding(self, bound: Container[Axis]) -> Block:
        """Return the innermost block that binds one of some axes, or else the body of the kernel."""
        return self if self.outer is None or self.axis in bound else self.outer.binding(bound)

    def close(self, outer: Block, role: str) -> None:
        """Put each block up to an outer one into that around it, as a loop."""
        block = self
        while block is not outer:
            assert block.axis is not None and block.outer is not None
            loop = For(block.variables[block.axis], 0, block.axis.extent, tuple(block.body), role)
            block = block.outer
            block.body.append(loop)


ACCUMULATORS = {"add": "sum", "maximum": "top", "minimum": "low", "multiply": "product"}
SHORT = {"add": "plus", "subtract": "minus", "multiply": "times", "divide": "ratio", "where": "chosen"}


class Lift:
    """Lifts the values that one kernel stores. All share their loops."""

    def __init__(self, name: str, writes: Sequence[Write], buffers: dict[Term, BufferLayout], names: dict[Term, str]):
        self.name, self.writes, self.buffers, self.names = name, writes, buffers, names
        self.written = {write.value for write in writes}
        self.holds: dict[str, Term] = {}  # the value that each name of the kernel holds
        self.tried: dict[str, int] = {}
        self.ins: dict[BufferLayout, None] = {}
        order = postorder((write.value for write in writes), self._below)
        stored = [write.buffer for write in writes]
        read = [buffers[term] for term in order if self._in_memory(term)]
        self.used = {name, *(x.name for x in (*stored, *read)), *sizes_in((*order, *(x.param for x in stored)))}
        self.rank: dict[Term, int] = {}  # of folds that need each other's results: such folds cannot share a loop
        self.fold_groups: dict[Term, list[Reduce | Fold]] = {}  # for each fold, those that may share its loop
        groups: defaultdict[Hashable, list[Reduce | Fold]] = defaultdict(list)
        for term in order:
            self.rank[term] = max((self.rank[operand] for operand in self._below(term)), default=0)
            if isinstance(term, FOLDING) and not self._in_memory(term):
                self.rank[term] += 1
                key = common_key(term) if term.__class__ is Fold else (term.over, frozenset(axes(term)))
                self.fold_groups[term] = groups[key, self.rank[term]]
                self.fold_groups[term].append(term)
        self.bound: dict[Term, set[Axis]] = {}  # the axes that a value is computed under, as far as they have a loop
        self.anywhere: set[Term] = set()  # values that can be computed, and are the same, where a guard fails
        for term in order:
            self.bound[term] = self._bound(term)
            if self._needs_no_guard(term):
                self.anywhere.add(term)
        self.beyond: set[Term] = set()  # values that are also computed where no reader needs them
        self.guards = self._shared_guards(order)  # of values that are needed under several

    def _in_memory(self, term: Term) -> bool:
        """Return whether a value is read from a buffer, and not computed here."""
        return term in self.buffers and term not in self.written

    def _below(self, term: Term) -> Sequence[Term]:
        return () if self._in_memory(term) else operands(term)

    def _bound(self, term: Term) -> set[Axis]:
        """Return the axes that a value varies with, and those of what it waits for.

        Reductions by `Fold` of one key share their loop, so each is computed as late as the last of them.
        """
        if self._in_memory(term):
            return set(axes(term)).intersection(self.buffers[term].loops)
        if term.__class__ is Fold:
            return {axis for other in self.fold_groups[term] for axis in axes(other)}
        below = (self.bound.get(operand, ()) for operand in operands(term) if not self._in_memory(operand))
        return set(axes(term)).union(*below).difference(term.over if term.__class__ is Reduce else ())

    # ---- guards
    def _needs_no_guard(self, term: Term) -> bool:
        """Return whether a value is an operation on values that are always there.

        The sides of a selection that have it in common share it then (the steps of a loop that was written out and
        stacked). Computed under each guard, it would exist once for each side.
        """

        def there(arg: Term) -> bool:
            source, images = _source(arg)
            return self._in_memory(source) and self._element(source, images)[-1]

        if term.__class__ is not Elementwise or term in self.buffers or term in self.written:
            return False
        return all(arg.__class__ is Const or arg in self.anywhere or there(arg) for arg in term.args)

    def _shared_guards(self, order: Sequence[Term]) -> dict[Term, Expr]:
        """Return one guard for each value that is needed under several.

        Selections whose sides read one value have as many paths to it as their links multiply to. A copy of the value
        on each path would double the kernel with every link. Elements of a value may not exist where no reader needs
        it, so each of its loads must check there that it is in bounds.
        """
        total: set[Term] = set()
        for term in order:
            if self._in_memory(term) or _is_total(term, total):
                total.add(term)
        found: dict[Term, Expr] = {}
        several: set[Term] = set()
        asked: defaultdict[Term, dict[Expr, None]] = defaultdict(dict)  # the guards that readers need a value under
        needed = [(term, True) for term in self._in_common()] + [(write.value, write.guard) for write in self.writes]
        for term in reversed(order):
            for value, guard in needed:
                asked[value].setdefault(guard)
            if len(asked[term]) > 1:
                several.add(term)
            guard = functools.reduce(_common_part, asked[term] or (True,))
            needed = self._needed(term, guard)
            if term in several and term in total:
                found[term] = guard
                self.beyond.add(term)
            for above in (self.beyond,) if term in total else (self.beyond, several):
                if term in above:
                    above.update(value for value, _ in needed)
        return found | dict.fromkeys(self.anywhere, True)

    def _needed(self, term: Term, guard: Expr) -> list[tuple[Term, Expr]]:
        """Return the values that a value is computed from under a guard, each with its own guard."""
        if term.__class__ is Case and not self._in_memory(term):
            return [*((x, guard) for x in operands(term)[:-2]), *_sides(term, guard)]
        if term in self.anywhere or len(self.fold_groups.get(term, ())) > 1:
            guard = True  # folds that share a loop are computed without a guard
        return [(x, guard) for x in self._below(term)[term.__class__ is Remap :]]

    def _in_common(self) -> list[Term]:
        """Return the reductions that guarded writes have in common: they are computed once, whichever guard holds."""
        if all(write.guard is True for write in self.writes):
            return []
        common = set.intersection(*(set(postorder([write.value], self._below)) for write in self.writes))
        return [term for term in self.fold_groups if term in common]

    # ---- the nest
    def kernel(self) -> Kernel:
        """Return the kernel."""
        loops = self.writes[0].buffer.loops
        folded = {axis for group in self.fold_groups.values() for term in group for axis in term.over}
        outermost = [term for term in self.fold_groups if folded.difference(loops).isdisjoint(axes(term))]
        shared = Counter(axis for term in outermost for axis in axes(term) if axis not in folded)
        root = Block({})
        here = self._loops(sorted(loops, key=lambda axis: (axis in folded, -shared[axis])), root)
        for term in self._in_common():
            self.value(term, here)
        # what only follows a fold waits for it: its operands would be held in registers while the fold runs
        for write in sorted(self.writes, key=lambda write: self.rank[write.value] == 0):
            value = self.value(write.value, here, write.guard)
            if not isinstance(value, Node):
                value = self._let(None, value, "value", here)
            store: Stmt = Store(write.buffer.name, self._indices(write.buffer.address, here), value)
            guard = self.index(write.guard, here)
            here.body.append(store if guard is True else If(guard, (store,)))
        here.close(root, "free")
        outs = tuple(write.buffer.param for write in self.writes)
        return Kernel(self.name, tuple(buffer.param for buffer in self.ins), outs, tuple(root.body))

    def _loops(self, over: Iterable[Axis], here: Block) -> Block:
        """Return the innermost block of new loops inside a block."""
        for axis in over:
            here = Block({**here.variables, axis: self._fresh(axis.name)}, axis, here)
        return here

    def _fresh(self, hint: str) -> str:
        """Return a name that nothing in this kernel has yet."""
        name = unused(hint, self.used, KEYWORDS, tried=self.tried)
        self.used.add(name)
        return name

    def _held(self, term: Term | None, hint: str) -> str:
        """Return a name for a value of the program, None where it is none."""
        if term is None:
            return self._fresh(hint)
        name = self._fresh(self.names.get(term, hint))
        self.holds[name] = term
        return name

    def _let(self, term: Term | None, value: Expr, hint: str, here: Block) -> Var:
        name = self._held(term, hint)
        here.body.append(Let(name, value))
        return Var(name)

    # ---- index expressions
    def index(self, e: Expr, here: Block, guard: Expr = True) -> Expr:
        """Return an index expression over the loop variables in scope."""
        if e.__class__ is Axis:
            return Var(here.variables[e])
        if isinstance(e, Term):
            return self.value(e, here, guard)
        return rebuild(e, lambda part: self.index(part, here, guard))

    def _indices(self, places: Sequence[Expr], here: Block, guard: Expr = True) -> tuple[Expr, ...]:
        return tuple([self.index(e, here, guard) for e in places]) or (0,)

    def _condition(self, guard: Expr, here: Block) -> Expr:
        """Return a guard over the loop variables in scope.

        A later part reads values only where the earlier parts hold.
        """
        if guard.__class__ is Binary and guard.op == "and":
            return both(self._condition(guard.a, here), self.index(guard.b, here, guard.a))
        return self.index(guard, here)

    def _element(self, source: Term, images: dict[Axis, Expr]) -> tuple[tuple[Expr, ...], Expr, bool]:
        """Return the indices of an element of a stored value, over axes, and the condition under which it is there.

        An index from memory is taken at its word. The last result says whether neither it nor a guard is needed.
        """
        buffer = self.buffers[source]
        # an output that repeats its value along an axis: any element of it will do
        images = images | dict.fromkeys({*buffer.loops}.difference(axes(source)), 0)
        places = tuple([substitute(e, images) for e in buffer.address])
        present: Expr = True
        for axis, e in zip(buffer.dims, places, strict=True):
            if e is not axis and not (e.__class__ is axis.extent.__class__ is int) and not contains(e, Term):
                present = both(both(present, operate(">=", e, 0)), operate("<", e, axis.extent))
        return places, present, present is True and not any(contains(e, Term) for e in places)

    # ---- values
    def value(self, term: Term, here: Block, guard: Expr = True) -> Expr:
        """Return the expression that holds a term's value: a name or a number. Its statements go where they belong."""
        pending = [(term, guard)]  # explicit: chains of operations may be longer than Python's stack
        while True:
            top, guard = pending[-1]
            block, guard, known = self._known(top, here, guard)
            if known is None and top.__class__ is Elementwise and not self._in_memory(top):
                missing = [x for x in top.args if self._known(x, here, guard)[-1] is None]
                operations = [x for x in missing if x.__class__ is Elementwise]
                if operations:  # what only follows a fold is computed after it
                    folds = [x for x in missing if x.__class__ in FOLDING]
                    pending.extend((x, guard) for x in reversed((*folds, *operations)))
                    continue
            if known is None:
                known = block.known[top, guard] = self._computed(top, block, guard)
            pending.pop()
            if not pending:
                return known

    def _known(self, term: Term, here: Block, guard: Expr) -> tuple[Block, Expr, Expr]:
        """Return the block for a value, its guard, and the value if a block has it already.

        What is there under a part of the guard is there under all of it.
        """
        if term.__class__ is Const:  # a bare number is f32 unless its operands say otherwise, so f64 is explicit
            return here, guard, Call("f64", (_literal(term),)) if term.dtype == "f64" else _literal(term)
        guard = guard is True or self.guards.get(term, guard)
        bound = self.bound.get(term) or self._bound(term)  # an index of a stored value may be no part of it
        blocks = {part: here.binding(bound.union(index_axes(part))) for part in (True, *_extended(guard))}
        found = (block.known.get((term, part)) for part, block in blocks.items())
        return blocks[guard], guard, next((value for value in found if value is not None), None)

    def _computed(self, term: Term, here: Block, guard: Expr) -> Expr:
        if term.__class__ is Remap or self._in_memory(term):
            return self._load(term, here, guard)
        if isinstance(term, FOLDING):
            return self._fold(term, here, guard)
        if term.__class__ is Case:
            return self._case(term, here, guard)
        if isinstance(term, Index):
            return self._let(term, self.index(term.expr, here, guard), "at", here)
        assert isinstance(term, Elementwise)
        args = [self.value(arg, here, guard) for arg in term.args]
        if term.fn in HELD:
            return args[0]  # registers hold f32: its store will round it
        return self._let(term, Call(term.fn, tuple(args)), SHORT.get(term.fn, term.fn), here)

    def _load(self, term: Term, here: Block, guard: Expr, other: float | None = None) -> Var:
        """Load an element. other: what to take where the guard fails, if the selection is this load alone."""
        source, images = (term, {}) if other is None and self._in_memory(term) else _source(term)
        buffer = self.buffers[source]
        places, present, always = self._element(source, images)
        if guard is not True and other is None and always:  # it is there even where the guard fails
            loaded: Var = self.value(term, here)
            return loaded
        self.ins.setdefault(buffer)
        # without a guard nothing out of bounds is read: a side of a Case that is stored by itself
        when = self._condition(both(guard, present) if guard is True or term in self.beyond else guard, here)
        indices = self._indices(places, here, guard)
        name = self._fresh(re.sub(r"[^A-Za-z].*", "", buffer.name)[:1].lower() or "v")
        otherwise = () if when is True else (when, identity("add", buffer.dtype) if other is None else other)
        here.body.append(Load(name, buffer.name, indices, *otherwise))
        return Var(name)

    def _fold(self, term: Reduce | Fold, here: Block, guard: Expr) -> Var:
        """Lower a fold with those that may share its loop, if their axes are all bound in the same block.

        Each `Reduce` has an accumulator. Each weight of parts of a monoid has a tuple of them.
        """
        group = [
            other
            for other in (self.fold_groups[term] if guard is True else (term,))
            if (other, guard) not in here.known and here.variables.keys() >= set(axes(other))
        ]
        single = {x: self._held(x, ACCUMULATORS.get(x.fn, "fold")) for x in group if isinstance(x, Reduce)}
        tuples: dict[tuple[Term, ...], dict[str, str]] = {}  # for each weight, the accumulators by part
        inner = self._loops(self._order_in_memory(term), here)
        for other in group:
            if isinstance(other, Reduce):
                name, value = single[other], self.value(other.x, inner, guard)
                inner.body.append(Accumulate(name, other.fn, value))
            else:
                monoid, own = of_part(other.part)
                if other.args not in tuples:
                    named = {
                        of_part(x.part)[1]: self.names.get(x)
                        for x in group
                        if isinstance(x, Fold) and x.args == other.args
                    }
                    tuples[other.args] = {part: self._fresh(named.get(part) or part) for part in monoid.parts}
                    # what varies along more than is bound here is an operand that no part of the group depends on
                    bound = inner.variables.keys()
                    values = [self.value(x, inner, guard) if bound >= set(axes(x)) else 1.0 for x in other.args]
                    inner.body.append(Merge(tuple(tuples[other.args].values()), monoid.name, tuple(values)))
                name = tuples[other.args][own]
            self.holds[name] = other
            here.known[other, guard] = Var(name)
        inner.close(here, "reduce")
        folded: Var = here.known[term, guard]
        return folded

    def _order_in_memory(self, term: Reduce | Fold) -> Sequence[Axis]:
        """Return the axes of a fold in the order of its largest operand in memory: the innermost loop reads neighbours.

        A sum of products keeps the order that says how its factors are tiled. If one factor is read through a window,
        it takes the order of the other one, which is then one run.
        """
        several = dict.fromkeys(factors(term))
        filters = [factor for factor in several if not offsets_of(factor)]
        if len(term.over) < 2 or (len(several) > 1 and len(filters) != 1):
            return term.over
        reached = postorder(filters if len(several) > 1 else operands(term), self._below)
        views = [view for view in map(_source, reversed(reached)) if self._in_memory(view[0])]  # maps first
        source, images = max(
            views, key=lambda view: math.prod(at_hint(axis.extent) for axis in axes(view[0])), default=(term, {})
        )
        dims = self.buffers[source].loops if source in self.buffers else ()
        place = {axis: n for n, dim in reversed([*enumerate(dims)]) for axis in index_axes(images.get(dim, dim))}
        return sorted(term.over, key=lambda axis: place.get(axis, -1))

    def _case(self, term: Case, here: Block, guard: Expr) -> Var:
        """Lower a choice so that either side is only read where it is chosen.

        Guarded loads precede a selection; a single load with `other` replaces both if one side is a constant.
        """
        sides = _sides(term, guard)
        for (side, when), rest in zip(sides, (term.b, term.a), strict=True):
            if guard is True and isinstance(rest, Const) and self._in_memory(_source(side)[0]):
                loaded = self._load(side, here, when, _literal(rest))
                self.holds[loaded.name] = term
                return loaded
        # what the condition reads is there for both sides, if it is read first
        asked = self.index(term.cond, here, guard)
        chosen = [self.value(side, here, when) for side, when in sides]
        if (asked, True) not in here.known:  # steps of a loop that is written out choose by one condition
            here.known[asked, True] = self._let(None, asked, "cond", here)
        return self._let(term, Call("where", (here.known[asked, True], *chosen)), "chosen", here)
