"""What differs between the graphs that dynamo makes of one function: a float or a length that torch fixes each time.

Dynamo keeps numbers open where it can. Where it cannot, every value is another graph, and it tells nobody.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .fx_rewrites import value


@dataclass(frozen=True)
class FixedNumbers:
    """What a graph has fixed. ops: what it computes, without floats; floats: each with its op; lengths: of every
    argument the dimensions that are numbers, None for open ones."""

    ops: tuple[Any, ...]
    floats: tuple[tuple[float, Any], ...]
    lengths: tuple[tuple[int | None, ...], ...]


@dataclass(frozen=True)
class Change:
    """A number that was another one. op: what reads it, None for a length."""

    before: float
    now: float
    op: Any | None


@dataclass
class _Function:
    """What is known of a function: its latest graph, of which compile that is, the graph of the compile before it."""

    compile: int = -1
    latest: FixedNumbers | None = None
    before: FixedNumbers | None = None
    told: bool = False

    def take(self, compile_: int, graph: FixedNumbers) -> None:
        if compile_ != self.compile:  # else torch began this one again
            self.before = self.latest if compile_ > self.compile else None  # less: torch has forgotten all
            self.told &= compile_ > self.compile
        self.compile, self.latest = compile_, graph


_functions: dict[Any, _Function] = {}
MOST = 256  # functions; older ones are forgotten


def changed(graph: torch.fx.GraphModule) -> Change | None:
    """A number that this graph fixes, and that the graph before it of the same function fixed otherwise; told once."""
    compile_id, config = torch._guards.CompileContext.current_compile_id(), torch._dynamo.config
    static = config.assume_static_by_default and not config.automatic_dynamic_shapes  # as was asked for
    if compile_id is None or static:
        return None
    function = _functions[compile_id.frame_id] = _functions.pop(compile_id.frame_id, _Function())
    if len(_functions) > MOST:
        del _functions[next(iter(_functions))]
    now = _fixed(graph)
    function.take(compile_id.frame_compile_id, now)
    found = None if function.told or function.before is None else next(_changes(function.before, now), None)
    function.told |= found is not None
    return found


def _fixed(graph: torch.fx.GraphModule) -> FixedNumbers:
    ops, floats = list[Any](), list[tuple[float, Any]]()
    for node in graph.graph.nodes:
        leaves = pytree.tree_leaves((node.args, dict(node.kwargs)))
        floats += ((leaf, node) for leaf in leaves if leaf.__class__ is float)
        ops.append((node.op, str(node.target), *("float" if leaf.__class__ is float else str(leaf) for leaf in leaves)))
    given = (value(node) for node in graph.graph.find_nodes(op="placeholder"))
    shapes = (getattr(x, "shape", ()) if not isinstance(x, torch.nn.Parameter) else () for x in given)
    return FixedNumbers(tuple(ops), tuple(floats), tuple(tuple(map(_number, shape)) for shape in shapes))


def _number(n: Any) -> int | None:
    return int(n) if isinstance(n, int) or n.node.expr.is_number else None


def _changes(before: FixedNumbers, now: FixedNumbers) -> Iterator[Change]:
    if before.ops == now.ops:
        for (a, _), (b, node) in zip(before.floats, now.floats, strict=True):
            if a != b:
                yield Change(a, b, node)
    if list(map(len, before.lengths)) == list(map(len, now.lengths)):
        for own, other in zip(before.lengths, now.lengths, strict=True):
            yield from (Change(a, b, None) for a, b in zip(own, other, strict=True) if a and b and a != b)
