"""What stands in a block: loops, accesses, accumulators, and what a value depends on.

Summaries are remembered on statements, so that asking about a block whose parts did not change costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any, NamedTuple

from ..expr import Var, free_names
from ..loop import Accumulate, For, If, Let, Load, Merge, Scale, Store
from ..node import Node, memoised
from ..program import Block, Stmt
from ..tile import Combine, CombineTuple, Slab, Stage, Sync, Tile, Wait

COLLECTIVE = (
    Stage,
    Sync,
    Wait,
    Combine,
    CombineTuple,
)  # every thread of the block takes part: never under a divergent guard


class Summary(NamedTuple):
    """The statements of each kind below a block, in text order."""

    loops: tuple[For, ...] = ()
    loads: tuple[Load, ...] = ()
    stores: tuple[Store, ...] = ()
    sums: tuple[Accumulate, ...] = ()
    combines: tuple[Combine | CombineTuple, ...] = ()
    stages: tuple[Stage, ...] = ()
    lets: tuple[Let, ...] = ()
    guards: tuple[If, ...] = ()
    merges: tuple[Merge, ...] = ()
    scales: tuple[Scale, ...] = ()
    slabs: tuple[Slab, ...] = ()
    barriers: int = 0

    @property
    def folded(self) -> tuple[str, ...]:
        """The accumulators that elements are folded into, one at a time or as a tuple, each once."""
        single = [stmt.acc for stmt in self.sums]
        return tuple(dict.fromkeys(chain(single, *(stmt.accs for stmt in self.merges))))


_PLACE: dict[type[Stmt], int] = {
    For: 0, Load: 1, Store: 2, Accumulate: 3, Combine: 4, CombineTuple: 4, Stage: 5, Let: 6, If: 7, Merge: 8, Scale: 9,
    Slab: 10,
}  # fmt: skip


def summary(block: Block) -> Summary:
    """The summary of a block, or of any run of statements."""
    return _join([_summary(stmt) for stmt in block])


def _join(parts: list[Summary]) -> Summary:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Summary()
    lists: Any = [tuple(chain.from_iterable(column)) for column in zip(*(part[:-1] for part in parts), strict=True)]
    return Summary._make([*lists, sum(part.barriers for part in parts)])


@memoised
def _summary(stmt: Stmt) -> Summary:
    parts = [_summary(inner) for inner in getattr(stmt, "body", ())]
    own: list[Any] = [()] * 11 + [int(isinstance(stmt, COLLECTIVE))]
    place = _PLACE.get(type(stmt))
    if place is not None:
        own[place] = (stmt,)
    return _join([Summary(*own), *parts])


def defines(stmt: Stmt) -> str | None:
    """The name of the value that a statement defines for what follows it in its block."""
    return stmt.dst if isinstance(stmt, Load | Let) else None


@memoised
def used_names(stmt: Stmt) -> frozenset[str]:
    """The names that a statement and its block mention in expressions (buffers and binders are not uses)."""
    own = [getattr(stmt, f.name) for f in type(stmt).fields if f.sort in ("Expr", "Over")]
    extra = set(stmt.accs) if isinstance(stmt, Combine | CombineTuple) else set()
    return free_names(tuple(own)).union(extra, *map(used_names, getattr(stmt, "body", ())), *_origins(stmt))


def _origins(stmt: Stmt) -> Iterable[frozenset[str]]:
    return [free_names(stmt.origin)] if isinstance(stmt, Stage) else []


def uses(block: Block) -> frozenset[str]:
    return frozenset().union(*map(used_names, block))


@memoised
def all_names(stmt: Node) -> frozenset[str]:
    """Every name that a statement, a kernel or a parameter mentions, in whatever role."""
    found: set[str] = set()
    for field in type(stmt).fields:
        _collect(getattr(stmt, field.name), field.sort, found)
    return frozenset(found)


def _collect(value: Any, sort: str, found: set[str]) -> None:
    if value.__class__ is str:
        if sort == "Name":
            found.add(value)
    elif value.__class__ is tuple:
        for item in value:
            _collect(item, sort, found)
    elif isinstance(value, Node):
        found |= {value.name} if value.__class__ is Var else all_names(value)


# ---- accumulators


class Accumulator(NamedTuple):
    """An accumulator and the function it folds with."""

    acc: Var
    fn: Var


def accumulators(block: Block) -> tuple[Accumulator, ...]:
    """What the block accumulates for others: accumulated in it and not read in it."""
    read = uses(block)
    return tuple(dict.fromkeys(Accumulator(Var(s.acc), Var(s.fn)) for s in summary(block).sums if s.acc not in read))


def only(block: Block, *kinds: type[Stmt]) -> bool:
    """Whether a run holds statements of these kinds only, at its top."""
    return all(isinstance(stmt, kinds) for stmt in block)


# ---- what a value depends on


@memoised
def _direct(stmt: Stmt) -> dict[str, frozenset[str]]:
    """For each name defined below the statement, the names that its definition mentions."""
    found: dict[str, frozenset[str]] = {}
    if isinstance(stmt, Let):
        found[stmt.dst] = free_names(stmt.val)
    elif isinstance(stmt, Load):
        found[stmt.dst] = free_names(stmt.idx) | free_names(stmt.when)
    elif isinstance(stmt, Accumulate | Scale):
        found[stmt.acc] = free_names(stmt.val)
    elif isinstance(stmt, Merge):
        found.update((acc, free_names(stmt.vals) | set(stmt.accs)) for acc in stmt.accs)
    elif isinstance(stmt, CombineTuple):
        found.update((acc, frozenset(stmt.accs)) for acc in stmt.accs)
    elif isinstance(stmt, For):
        found[stmt.var] = free_names(stmt.start) | free_names(stmt.stop)
    for inner in getattr(stmt, "body", ()):
        for name, names in _direct(inner).items():
            found[name] = found.get(name, frozenset()) | names
    return found


def dependencies(value: Any, block: Block) -> frozenset[str]:
    """All names that an expression depends on, through the definitions in a block."""
    tables = [_direct(stmt) for stmt in block]
    todo, seen = list(free_names(value)), set()
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            for table in tables:
                todo += table.get(name, ())
    return frozenset(seen)


def variation(value: Any, block: Block) -> frozenset[str]:
    """The names of axes and loops that a value varies with.

    An accumulator does not vary with the loops that it folds, nor with the axes it was combined over.
    """
    tables = [_direct(stmt) for stmt in block]
    found = summary(block)
    loops = {loop.var for loop in found.loops}
    folded = {acc: set(loops) for acc in found.folded}
    for combine in found.combines:
        for acc in combine.accs:
            folded.setdefault(acc, set()).update(free_names(combine.over))
    memo: dict[str, frozenset[str]] = {}

    def vary(name: str) -> frozenset[str]:
        if name not in memo:
            memo[name] = frozenset((name,))
            inner = frozenset().union(*(vary(n) for table in tables for n in table.get(name, ())))
            memo[name] = (memo[name] | inner) - folded.get(name, set())
        return memo[name]

    return frozenset().union(*map(vary, free_names(value)))


def replicated_names(tile: Tile) -> frozenset[str]:
    """The axes whose values a thread holds all at once."""
    return frozenset(axis.name for axis in tile.axes if axis.role in ("REG", "VEC"))


def thread_names(tile: Tile) -> frozenset[str]:
    return frozenset(axis.name for axis in tile.axes if axis.role == "THREAD")


# ---- shapes of reductions


def is_outer_product(body: Block, var: str, axes: frozenset[str], within: Block) -> bool:
    """Whether a reduction over `var` has two operands, each varying with an axis that the other lacks.

    within: the block that defines what the loop reads.
    """
    varying = [dependencies(load.idx, within) for load in summary(body).loads]
    along = [names & axes for names in varying if var in names]
    return any(a - b and b - a for n, a in enumerate(along) for b in along[n + 1 :])


def matmul_loops(block: Block, axes: frozenset[str]) -> tuple[For, ...]:
    """The reductions of a block that are outer products over the given axes."""
    loops = [loop for loop in summary(block).loops if loop.role == "reduce"]
    return tuple(loop for loop in loops if is_outer_product(loop.body, loop.var, axes, block))


def team_loops(block: Block) -> tuple[For, ...]:
    """The loops that the threads of a block can share out: the outermost of each nest, if they run over 0..K.

    Empty where sharing them out would go wrong: a reduction under a guard (its Combine would diverge), an accumulator
    that two of them feed, or a name that an inner loop has too.
    """
    loops = tuple(stmt for stmt in block if isinstance(stmt, For))
    if any(loop.start != 0 or loop.step != 1 or loop.stop.__class__ is not int for loop in loops):
        return ()
    if any(loop.role not in ("reduce", "free") for loop in loops) or any(_hides_loops(stmt) for stmt in block):
        return ()
    folding = [loop for loop in loops if loop.role == "reduce"]
    sums: list[Any] = [name.acc for loop in folding for name in accumulators(loop.body)]
    sums += [accs for loop in folding for accs in dict.fromkeys(merge.accs for merge in summary(loop.body).merges)]
    if len(summary(block).merges) > sum(len(summary(loop.body).merges) for loop in folding):
        return ()
    names = [loop.var for loop in summary(block).loops]
    unique = all(names.count(loop.var) == 1 for loop in loops)
    return loops if len(set(sums)) == len(sums) and unique else ()


def _hides_loops(stmt: Stmt) -> bool:
    return not isinstance(stmt, For) and bool(_summary(stmt).loops)
