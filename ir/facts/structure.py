"""What stands in a block: loops, accesses, accumulators, and what a value depends on.

Summaries are remembered on statements, so that asking about a block whose parts did not change costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any, NamedTuple

from ..expr import Var, free_names
from ..loop import Accumulate, For, If, Let, Load, Merge, Scale, Store
from ..node import contents, memoised
from ..program import Block, Stmt
from ..tile import Combine, CombineTuple, Slab, Stage, Sync, Tile, Wait

# Every thread of the block takes part in these: they never stand under a divergent guard.
COLLECTIVE = (Stage, Sync, Wait, Combine, CombineTuple)


Kinds = tuple[type[Stmt], ...]


class Summary:
    """The statements of each kind in a run, in text order; each kind is looked for when it is first asked for.

    barriers: how many statements all threads of the block take part in.
    """

    loops: tuple[For, ...]
    loads: tuple[Load, ...]
    stores: tuple[Store, ...]
    sums: tuple[Accumulate, ...]
    combines: tuple[Combine | CombineTuple, ...]
    stages: tuple[Stage, ...]
    lets: tuple[Let, ...]
    guards: tuple[If, ...]
    merges: tuple[Merge, ...]
    scales: tuple[Scale, ...]
    slabs: tuple[Slab, ...]
    barriers: int

    def __init__(self, block: Block) -> None:
        self._block = block

    def __getattr__(self, name: str) -> Any:
        if name == "barriers":
            found: Any = len(statements(self._block, COLLECTIVE))
        elif name in _KINDS:
            found = statements(self._block, _KINDS[name])
        else:
            raise AttributeError(name)
        setattr(self, name, found)
        return found

    @property
    def folded(self) -> tuple[str, ...]:
        """The accumulators that elements are folded into, one at a time or as a tuple, each once."""
        single = [stmt.acc for stmt in self.sums]
        return tuple(dict.fromkeys(chain(single, *(stmt.accs for stmt in self.merges))))


_KINDS: dict[str, Kinds] = {
    "loops": (For,), "loads": (Load,), "stores": (Store,), "sums": (Accumulate,), "combines": (Combine, CombineTuple),
    "stages": (Stage,), "lets": (Let,), "guards": (If,), "merges": (Merge,), "scales": (Scale,), "slabs": (Slab,),
}  # fmt: skip


def summary(block: Block) -> Summary:
    """The summary of a block, or of any run of statements."""
    return Summary(block)


def statements(block: Block, kinds: Kinds) -> tuple[Any, ...]:
    """The statements of some classes in a run and in the blocks below, in text order."""
    marks, found = 0, list[Stmt]()
    for kind in kinds:
        marks |= kind.mark
    for stmt in block:
        if contents(stmt) & marks:
            if stmt.__class__ in kinds:
                found.append(stmt)
            if hasattr(stmt, "body"):
                found += _inside(stmt, kinds)
    return tuple(found)


def _inside(stmt: Any, kinds: Kinds) -> tuple[Any, ...]:
    """Those of its block, remembered on the statement. Not itself: what refers to itself is never freed by counting."""
    known = _by_kind(stmt)
    if kinds not in known:
        known[kinds] = statements(stmt.body, kinds)
    return known[kinds]


@memoised
def _by_kind(stmt: Any) -> dict[Kinds, tuple[Any, ...]]:
    return {}


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
    return not isinstance(stmt, For) and bool(statements((stmt,), (For,)))
