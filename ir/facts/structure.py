"""The structure of kernels: loops, accesses, accumulators and their scopes, names, dtypes, and dependences of values.

Summaries are cached on statements, so a query about a block whose parts did not change costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeVar

from ..atoms import ATOMS
from ..expr import COMPARISONS, Binary, Call, NameSet, Not, Sum, Var, free_names, only_sizes
from ..functions import literal_dtype, opmath, promote, result_dtype
from ..kernel import Address, Advance, Base, CopyBox, Element, Replicate, TensorMap
from ..loop import Accumulate, For, If, Let, Load, Merge, Scale, Store
from ..monoids import monoid
from ..node import Expr, Node, contents, each_once, marks_of, memoised, names_below, nodes
from ..program import Block, Kernel, Param, Stmt
from ..tile import (
    AlongAxes,
    Collective,
    Combine,
    CombineTuple,
    Mma,
    RegisterTile,
    Scan,
    ScanTuple,
    SharedTile,
    Stage,
    Tile,
    TuplesAlongAxes,
)

S = TypeVar("S")


NamesOf = dict[str, NameSet]  # {name: the names that it depends on}
Path = tuple[int, ...]  # positions of statements from the kernel's body down to a block


def positions(
    block: Block, path: Path = (), guards: tuple[Expr, ...] = ()
) -> Iterator[tuple[Path, tuple[Expr, ...], Stmt]]:
    """Yield each statement at any depth, with the path of its block and the conditions of the guards around it."""
    for position, stmt in enumerate(block):
        yield path, guards, stmt
        inner = (*guards, stmt.cond) if isinstance(stmt, If) else guards
        yield from positions(getattr(stmt, "body", ()), (*path, position), inner)


class Kinds(Generic[S]):
    """The statements of some classes in a run: an attribute that is computed when it is first read."""

    def __init__(self, *kinds: type):
        self.marks = marks_of(*kinds)

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, run: Summary, owner: type) -> tuple[S, ...]:
        found: tuple[S, ...] = statements(run.block, self.marks)
        run.__dict__[self.name] = found
        return found


class Summary:
    """The statements of each kind in a run, in text order."""

    loops = Kinds[For](For)
    loads = Kinds[Load](Load)
    stores = Kinds[Store](Store)
    sums = Kinds[Accumulate](Accumulate)
    combines = Kinds[Combine | CombineTuple](Combine, CombineTuple)
    scans = Kinds[Scan | ScanTuple](Scan, ScanTuple)
    stages = Kinds[Stage](Stage)
    lets = Kinds[Let](Let)
    guards = Kinds[If](If)
    merges = Kinds[Merge](Merge)
    scales = Kinds[Scale](Scale)
    shared_tiles = Kinds[SharedTile](SharedTile)
    register_tiles = Kinds[RegisterTile](RegisterTile)
    mmas = Kinds[Mma](Mma)
    collectives = Kinds[Collective](Collective)

    def __init__(self, block: Block):
        self.block = block

    @property
    def barriers(self) -> int:
        """Number of statements that require all threads of the block."""
        return len(self.collectives)

    @property
    def folded(self) -> tuple[str, ...]:
        """The accumulators that elements are folded into, one at a time or as a tuple, each once."""
        single = [*(stmt.acc for stmt in self.sums), *(stmt.acc for stmt in self.mmas)]
        return tuple(dict.fromkeys(chain(single, *(stmt.accs for stmt in self.merges))))


summary = Summary  # of a block, or of any run of statements


def statements(block: Block, marks: int) -> tuple[Any, ...]:
    """Return the statements of some classes in a sequence and in the blocks below, in text order."""
    found: list[Stmt] = []
    for stmt in block:
        if (stmt._contents or contents(stmt)) & marks:
            if stmt.mark & marks:
                found.append(stmt)
            if "body" in stmt.__class__.inner:
                found += _inside(stmt, marks)
    return tuple(found)


def _inside(stmt: Any, marks: int) -> tuple[Any, ...]:
    """Return the statements of its block, remembered on it. A node that refers to itself would never be freed."""
    known = _by_marks(stmt)
    if marks not in known:
        known[marks] = statements(stmt.body, marks)
    return known[marks]


@memoised
def _by_marks(stmt: Any) -> dict[int, tuple[Any, ...]]:
    return {}


def summed_axes(stmt: Mma) -> NameSet:
    """Return the axes along which an Mma adds up: the result does not vary with them."""
    return free_names((stmt.axes[ATOMS[stmt.atom].result :], stmt.over))


def result_axes(stmt: Mma) -> NameSet:
    """Return the lanes and registers over which an Mma distributes its result, independent of its operands."""
    return free_names(stmt.axes[: ATOMS[stmt.atom].result])


def result_registers(stmt: Mma) -> tuple[str, ...]:
    """Return the registers of an Mma's result, slowest first, in the order of the instruction."""
    atom = ATOMS[stmt.atom]
    return tuple(axis.name for axis in stmt.axes[len(atom.lanes) : atom.result])


def defines(stmt: Stmt) -> str | None:
    """Return the name of the value that a statement defines for the following statements of its block."""
    return stmt.dst if isinstance(stmt, Load | Let) else None


@memoised
def used_names(stmt: Stmt) -> NameSet:
    """Return the names that a statement and its block mention in expressions (buffers and binders are not uses)."""
    extra = set(stmt.accs) if isinstance(stmt, AlongAxes | TuplesAlongAxes) else set()
    return own_names(stmt).union(extra, *map(used_names, getattr(stmt, "body", ())))


def own_names(stmt: Stmt, without: Container[str] = ()) -> NameSet:
    """Return the names in the expressions of a statement itself, not of its block, nor its labels.

    without: fields that are left out.
    """
    own = (f.name for f in type(stmt).fields if f.sort in ("Expr", "Over") and f.name not in without)
    return free_names(tuple([getattr(stmt, name) for name in own])).difference(getattr(stmt, "gathered", ()))


def own_fields(stmt: Node) -> tuple[Any, ...]:
    """Return the fields of a statement itself, without its block."""
    return tuple([getattr(stmt, field.name) for field in type(stmt).fields if field.name != "body"])


def uses(block: Block) -> NameSet:
    return frozenset().union(*map(used_names, block))


# ---- accumulators


class AccumulatorFold(NamedTuple):
    """An accumulator and the function it folds with."""

    acc: Var
    fn: Var


def accumulators(block: Block) -> tuple[AccumulatorFold, ...]:
    """Return the accumulators that the block updates and does not read."""
    read = uses(block)
    return tuple(
        dict.fromkeys(AccumulatorFold(Var(s.acc), Var(s.fn)) for s in summary(block).sums if s.acc not in read)
    )


def merged(block: Block) -> tuple[Merge, ...]:
    """Return the tuples that the block folds but does not read."""
    read = uses(block)
    return tuple(stmt for stmt in summary(block).merges if read.isdisjoint(stmt.accs))


def only(block: Block, *kinds: type[Stmt]) -> bool:
    """Return whether a statement sequence holds statements of these kinds only, at its top level."""
    return all(isinstance(stmt, kinds) for stmt in block)


# ---- what a value depends on


@memoised
def _direct(stmt: Stmt) -> NamesOf:
    """Return the names that each definition below the statement mentions, by the name that it defines."""
    found: NamesOf = {}
    match stmt:
        case Let(dst=name, val=val) | Accumulate(acc=name, val=val) | Scale(acc=name, val=val):
            found[name] = free_names(val)
        case Load():
            found[stmt.dst] = free_names((stmt.idx, stmt.when))
        case Mma():
            found[stmt.acc] = free_names((stmt.a, stmt.b)) | result_axes(stmt)
        case Scan():
            found[stmt.acc] = free_names(stmt.over)
        case Merge(accs=accs, vals=read) | ScanTuple(accs=accs, over=read):
            found = dict.fromkeys(accs, free_names(read).union(accs))
        case CombineTuple(accs=accs):
            found = dict.fromkeys(accs, frozenset(accs))
        case For():
            found[stmt.var] = free_names((stmt.start, stmt.stop))
    body = getattr(stmt, "body", ())
    return _united((*found.items(), *_tables(body).items())) if body else found


def accumulators_of(stmt: Any) -> tuple[str, ...]:
    """Return the accumulators that a statement mentions as such."""
    return getattr(stmt, "accs", ()) or ((stmt.acc,) if hasattr(stmt, "acc") else ())


def _guards(block: Block) -> Iterator[tuple[str, NameSet]]:
    """Yield the accumulator of each accumulation of a block, with the names in the conditions around it."""
    for _, guards, stmt in positions(block):
        yield from ((acc, free_names(guards)) for acc in accumulators_of(stmt))


def _tables(block: Block) -> NamesOf:
    """Return the names that the definitions of a block mention, by the name that they define."""
    if len(block) == 1:
        return _direct(block[0])
    return _united(item for stmt in block for item in _direct(stmt).items())


def _united(pairs: Iterable[tuple[str, NameSet]]) -> NamesOf:
    """Return all names that some pairs give to each name."""
    found: NamesOf = {}
    for name, names in pairs:
        found[name] = found[name] | names if name in found else names
    return found


def dependencies(value: Any, block: Block) -> NameSet:
    """Return all names that an expression depends on, through the definitions in a block."""
    return _followed(free_names(value), _tables(block))


def _followed(names: NameSet, table: NamesOf) -> NameSet:
    """Return some names with all names on which they depend by a table."""
    seen = new = names
    while new:
        new = frozenset([inner for name in new if name in table for inner in table[name]]) - seen
        seen |= new
    return seen


class Variations:
    """The names of axes and loops that values of a block vary with.

    An accumulator does not vary with the loops that it reduces, nor with the axes over which it was combined.

    guarded: an accumulator also varies with the guards of its accumulation. If such a guard fails, it holds another
    value, which matters if a thread computes for others.
    """

    def __init__(self, block: Block, guarded: bool = False):
        found = summary(block)
        loops = {loop.var for loop in found.loops}
        self._table = _tables(block)
        if guarded:
            self._table = _united((*self._table.items(), *_guards(block)))
        self._folded = {acc: set(loops) for acc in found.folded}
        for product in found.mmas:
            self._folded.setdefault(product.acc, set()).update(summed_axes(product))
        for combine in found.combines:
            for acc in combine.accs:
                self._folded.setdefault(acc, set()).update(free_names(combine.over))

    def of(self, value: Any) -> NameSet:
        known: NamesOf = {}
        return frozenset().union(*(self._of_name(name, known) for name in free_names(value)))

    def _of_name(self, name: str, known: NamesOf) -> NameSet:
        if name not in known:
            known[name] = found = frozenset((name,))
            for other in self._table.get(name, ()):
                found |= known[other] if other in known else self._of_name(other, known)
            known[name] = found - self._folded[name] if name in self._folded else found
        return known[name]


def variation(value: Any, block: Block) -> NameSet:
    """Return the names of axes and loops that a value of a block varies with."""
    return Variations(block).of(value)


def replicated_names(tile: Tile) -> NameSet:
    """Return the axes whose values a thread holds simultaneously."""
    return frozenset(axis.name for axis in tile.axes if axis.role in ("REG", "VEC"))


# ---- shapes of reductions


def is_outer_product(body: Block, var: str, axes: NameSet, within: Block, values: bool = False) -> bool:
    """Return whether a reduction over `var` has two operands, each varying with an axis that the other lacks.

    The operands are elements of memory. If `values` is set, they may also be values, such as a comparison of an index
    with an axis.

    within: the block that defines the values that the loop reads.
    """
    found = summary(body)
    asked = [load.idx for load in found.loads] + [let.val for let in found.lets if values]
    table = _tables(within) if asked else {}
    varying = [_followed(free_names(value), table) for value in asked]
    along = [names & axes for names in varying if var in names]
    return any(a - b and b - a for n, a in enumerate(along) for b in along[n + 1 :])


def matmul_loops(block: Block, axes: NameSet, values: bool = False) -> tuple[For, ...]:
    """Return the reductions of a block that are outer products over the given axes.

    values: whether operands may also be values rather than elements of memory.
    """
    loops = [loop for loop in summary(block).loops if loop.role == "reduce"]
    return tuple(loop for loop in loops if is_outer_product(loop.body, loop.var, axes, block, values))


def team_loops(block: Block) -> tuple[For, ...]:
    """Return the loops that the threads of a block can share: the outermost loop of each nest, if it runs over 0..K.

    The result is empty if sharing would be wrong. That is so for a reduction under a guard (its Combine would diverge),
    a reduction with a store (a single thread would store the result of all), an accumulator that two of the loops feed,
    a name that an inner loop also binds, or a barrier in a loop (threads would meet it at different iterations).
    """
    loops = tuple(stmt for stmt in block if isinstance(stmt, For))
    if summary(loops).barriers:
        return ()
    if any(loop.start != 0 or loop.step != 1 or not only_sizes(loop.stop) for loop in loops):
        return ()
    if any(loop.role not in ("reduce", "free") for loop in loops):
        return ()
    if any(not isinstance(stmt, For) and statements((stmt,), For.marks) for stmt in block):
        return ()
    folding = [loop for loop in loops if loop.role == "reduce"]
    if any(summary(loop.body).stores for loop in folding):
        return ()
    sums: list[Any] = [name.acc for loop in folding for name in accumulators(loop.body)]
    sums += [accs for loop in folding for accs in dict.fromkeys(merge.accs for merge in merged(loop.body))]
    if len(summary(block).merges) > sum(len(summary(loop.body).merges) for loop in folding):
        return ()
    names = [loop.var for loop in summary(block).loops]
    unique = all(names.count(loop.var) == 1 for loop in loops)
    return loops if len(set(sums)) == len(sums) and unique else ()


# ---- scopes of accumulators: the innermost block that contains all mentions of one; it is initialised there


class AccumulatorStart(NamedTuple):
    acc: str
    fn: str


@memoised
def accumulator_scopes(kernel: Kernel) -> dict[Path, tuple[AccumulatorStart, ...]]:
    """Return the accumulators that start on entry to each block."""
    mentions: dict[str, list[Path]] = {}
    functions: dict[str, str] = {}
    parts: dict[str, str] = {}
    tuples: list[tuple[str, ...]] = []
    for path, _, stmt in positions(kernel.body):
        if isinstance(stmt, Accumulate):
            functions[stmt.acc] = stmt.fn
        if isinstance(stmt, Merge):
            functions.update(_parts(stmt))
            tuples.append(stmt.accs)
        if isinstance(stmt, TuplesAlongAxes):  # what is combined as a tuple starts as one, in whatever way it adds up
            parts.update(_parts(stmt))
        if isinstance(stmt, Mma):
            functions[stmt.acc] = "add"
        for name in free_names(own_fields(stmt)).union(accumulators_of(stmt)):
            mentions.setdefault(name, []).append(path)
    for accs in tuples:  # the parts of a tuple start together: one of them may not be read at all
        together = [path for acc in accs for path in mentions[acc]]
        mentions.update((acc, together) for acc in accs)
    functions.update((acc, part) for acc, part in parts.items() if acc in functions)
    scopes: dict[Path, tuple[AccumulatorStart, ...]] = {}
    for acc, fn in functions.items():
        path = _common(mentions[acc])
        scopes[path] = (*scopes.get(path, ()), AccumulatorStart(acc, fn))
    return scopes


def _parts(stmt: Merge | TuplesAlongAxes) -> dict[str, str]:
    """Return the part of the monoid that each accumulator holds."""
    return {acc: f"{stmt.fn}.{part}" for acc, part in zip(stmt.accs, monoid(stmt.fn).parts)}


def _common(paths: list[Path]) -> Path:
    """Return the longest common prefix."""
    out: list[int] = []
    for steps in zip(*paths):
        if len(set(steps)) > 1:
            break
        out.append(steps[0])
    return tuple(out)


# ---- names that statements and expressions of Kernel IR read: registers, bases, buffers


# The fields that hold the name of what is read.
NAMED: dict[type[Node], str] = {
    Element: "name", Address: "base", Advance: "base", Base: "root", TensorMap: "src", CopyBox: "map",
    Replicate: "reverse",
}  # fmt: skip


@memoised
def names_read(node: Any) -> NameSet:
    """Return the names that a statement or an expression reads or changes, at any depth, without those it defines."""
    kind = node.__class__
    if kind is Var:
        return frozenset((node.name,))
    found: set[str] = set()
    if kind in NAMED and getattr(node, NAMED[kind]):
        found.add(getattr(node, NAMED[kind]))
    return frozenset(found | names_below(kind.read_inner(node), names_read))


# ---- dtypes of values


INDEX = "i64"
LITERALS = (int, float, bool)


@memoised
def value_dtypes(kernel: Kernel) -> dict[str, str]:
    """Return the dtype of every value, accumulator, axis and loop variable."""
    return block_dtypes(kernel.params, kernel.body)


def block_dtypes(params: Iterable[Param], block: Block) -> dict[str, str]:
    """Return the dtypes of the names in a block that reads some buffers. A name without a definition is an index."""
    buffers = {param.name: param.dtype for param in params}
    for stage in nodes(block, Stage):
        buffers[stage.dst] = buffers[stage.src]
    buffers.update((tile.dst, tile.dtype) for tile in nodes(block, SharedTile, RegisterTile))
    known: dict[str, str] = {}

    def type_of(name: str) -> str:
        return known.get(name, INDEX)

    for stmt in nodes(block, Tile, For, Load, Let, Accumulate, Merge, Mma):
        if isinstance(stmt, Tile):
            known.update((axis.name, INDEX) for axis in stmt.axes)
        elif isinstance(stmt, For):
            known[stmt.var] = INDEX
        elif isinstance(stmt, Load):
            known[stmt.dst] = buffers[stmt.buf]
        elif isinstance(stmt, Let):
            known[stmt.dst] = expr_dtype(stmt.val, type_of)
        elif isinstance(stmt, Accumulate):
            known[stmt.acc] = opmath(expr_dtype(stmt.val, type_of))
        elif isinstance(stmt, Mma):
            known[stmt.acc] = ATOMS[stmt.atom].sums
        elif isinstance(stmt, Merge):
            of_parts = promote("f32", *(expr_dtype(val, type_of) for val in stmt.vals))
            known.update(dict.fromkeys(stmt.accs, opmath(of_parts)))
    return known


@each_once
def expr_dtype(e: Any, type_of: Callable[[str], str], index: str = INDEX) -> str:
    """Return the dtype of an expression. A number takes the dtype of the operands that it meets.

    Args:
        type_of: the dtype of a name.
        index: the dtype of index arithmetic.
    """
    kind = e.__class__
    if kind is Var or kind is Element:
        return type_of(e.name)
    if kind is Call:
        own = [None if a.__class__ in LITERALS else expr_dtype(a, type_of, index) for a in e.args]
        met = [dtype for dtype in own if dtype is not None]
        return result_dtype(e.fn, *(d or literal_dtype(a, met) for a, d in zip(e.args, own, strict=True)))
    if kind is Not or (kind is Binary and e.op in ("and", "or", *COMPARISONS)):
        return "b8"
    if kind in LITERALS:
        return literal_dtype(e, ())
    parts = [atom for atom, _ in e.terms] if kind is Sum else [e.a, e.b] if kind is Binary else []
    return promote(index, *(expr_dtype(part, type_of, index) for part in parts if part.__class__ not in LITERALS))
