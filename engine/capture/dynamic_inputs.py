"""A graph of dynamo's with lengths that are known at a call: what they are, and the same graph without numbers.

Dynamo hands a length over twice: as a number (`s77`) and as a dimension of a tensor. The numbers go: a graph of tensors
alone reads its lengths off them, so that `capture` takes it like any function with `dynamic=`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from ...ir.diagnostic import DplcError
from ...ir.expr import Size
from .dynamic_shapes import MOST, Dim, evaluated
from .fx_rewrites import Function, value

FIRST_ROW = 4096  # the end of the first range of lengths, where torch knows none
WIDER = 16  # times as far goes each range behind it


class Lengths:
    """Lengths of a graph, and its other numbers, which are fixed.

    Raises DplcError for a graph with a length that is not a dimension of a tensor.
    """

    def __init__(self, graph: GraphModule):
        self.graph = graph
        given = graph.graph.find_nodes(op="placeholder")
        self.numbers = {index: value(node).node.expr for index, node in enumerate(given) if is_number(node)}
        self.dimensions: dict[int, dict[int, Any]] = {}  # of tensors: expressions of symbols
        self.places: dict[Any, tuple[int, int]] = {}  # symbol: an argument and a dimension that tell it
        self.ranges: dict[Any, tuple[int, int | None]] = {}
        self.narrowed: dict[Any, Size] = {}  # what a compile found to be one program
        for index, node in enumerate(given):
            for place, n in enumerate(getattr(value(node), "shape", ())):
                if isinstance(n, torch.SymInt) and not n.node.expr.is_Integer:
                    self._learn(index, place, n)
        told = {symbol for own in self.dimensions.values() for e in own.values() for symbol in e.free_symbols}
        if lost := sorted(map(str, told - self.places.keys())):
            raise DplcError(f"`{lost[0]}` is part of lengths, but is itself no length of an argument")
        others = [e for own in self.dimensions.values() for e in own.values() if e not in self.places]
        if others:
            raise DplcError(f"an argument has the length `{others[0]}`, which is computed from others")
        if read := sorted(map(str, _symbols(graph) - self.places.keys() - set(self.numbers.values()))):
            raise DplcError(f"a shape depends on `{read[0]}`, which is read out of a tensor")

    def _learn(self, index: int, place: int, n: Any) -> None:
        e = n.node.expr
        self.dimensions.setdefault(index, {})[place] = e
        if e.is_Symbol and e not in self.places:
            self.places[e] = index, place
            known = n.node.shape_env.var_to_range.get(e)
            open_ = known is None or not known.upper.is_Integer or known.upper > MOST
            low = 1 if known is None or not known.lower.is_Integer else max(1, int(known.lower))
            self.ranges[e] = low, None if open_ else int(known.upper)

    def bound(self, args: Sequence[Any]) -> dict[Any, int]:
        """Return the numbers of a call, by symbol."""
        found = {symbol: args[index].shape[place] for symbol, (index, place) in self.places.items()}
        found |= {e: args[index] for index, e in self.numbers.items() if e.is_Symbol and e not in found}
        return found

    def open_dimensions(self, index: int) -> Container[int] | None:
        """Return the dimensions of an argument that a range covers; None for a number that is one of them."""
        if index in self.numbers:
            return None if self.numbers[index].free_symbols <= self.places.keys() else ()
        return self.dimensions.get(index, {})

    def row(self, symbol: Any, n: int) -> tuple[int, int, int]:
        """Return (low, high, multiple) of the compile for a length n: torch's range, or one of those of WIDER."""
        low, high = self.ranges[symbol]
        if high is None:
            high = FIRST_ROW
            while n > high:
                low, high = high + 1, high * WIDER
            high = min(high, MOST)
        known = self.narrowed.get(symbol)
        if known is None or known.low > high or known.high < low:
            return low, high, 1
        return max(low, known.low), min(high, known.high), known.multiple

    def narrow(self, found: Size, args: Sequence[Any]) -> bool:
        """Adopt a range that a compile needs; return False if a call with such arguments is outside of it."""
        symbol = next(symbol for symbol in self.places if str(symbol) == found.name)
        self.narrowed[symbol] = found
        return self.rows(args) is not None

    def rows(self, args: Sequence[Any]) -> tuple[tuple[int, int, int], ...] | None:
        """Return the range of every length of a call; None if a length is outside of what one program serves."""
        found = []
        for symbol, (index, place) in self.places.items():
            n = args[index].shape[place]
            low, high, multiple = row = self.row(symbol, n)
            if not low <= n <= high or n % multiple:
                return None
            found.append(row)
        return tuple(found)

    def dynamic(self, graph: GraphModule, args: Sequence[Any]) -> dict[str, dict[int, Dim]]:
        """Return the value of `dynamic=` in `dplc.compile` for a call with such tensors.

        graph: one of tensors alone; args: of the graph with numbers. The lengths of the call are the hints.
        """
        names = list(inspect.signature(graph.forward).parameters)
        tensors = [index for index in range(len(args)) if index not in self.numbers]
        numbers = self.bound(args)
        dims = {}
        for symbol in self.places:
            dims[symbol] = Dim(str(symbol), *self.row(symbol, numbers[symbol]), hint=numbers[symbol])
        return {
            names[tensors.index(index)]: {place: dims[e] for place, e in own.items()}
            for index, own in self.dimensions.items()
        }

    def of_tensors(self, args: Sequence[Any]) -> tuple[GraphModule, list[Any]]:
        """Return the graph without numbers among its arguments and results, and the results.

        A result is a symbol's expression for a number, None for a tensor. args: of a call, which fix the numbers that
        are not lengths.
        """
        inner = torch.fx.Graph()
        copies: dict[Any, Any] = {}
        given = self.graph.graph.find_nodes(op="placeholder")
        for index, node in enumerate(given):
            if index not in self.numbers:
                copies[node] = inner.node_copy(node)
        known: dict[Any, Any] = {e: n for e, n in self.bound(args).items() if e not in self.places}
        for symbol, (index, place) in self.places.items():
            read = inner.call_method("size", (copies[given[index]], place))
            read.meta["example_value"] = value(given[index]).shape[place]
            known[symbol] = torch.fx.Proxy(read)
        results: list[Any] = []
        for node in self.graph.graph.nodes:
            if node in copies:
                continue
            if node.op == "output":
                leaves = pytree.tree_leaves(node.args[0])
                results = [value(x).node.expr if is_number(x) else None for x in leaves]
                kept = [copies.get(x, x) for x, e in zip(leaves, results, strict=True) if e is None]
                inner.output(tuple(kept))
            elif is_number(node):
                copies[node] = _spoken(value(node), known)
            elif isinstance(value(node), torch.Size):
                copies[node] = tuple(_spoken(n, known) for n in value(node))
            else:
                copies[node] = inner.node_copy(node, copies.__getitem__)
        inner.eliminate_dead_code()
        return GraphModule(self.graph, inner), results

    def around(self, function: Function, results: Sequence[Any]) -> Function:
        """Return the function of the graph's own arguments, given that of its tensors. results: as of `of_tensors`."""
        (form,) = self.graph.graph.output_node().args
        spec = pytree.tree_structure(form, is_leaf=lambda x: isinstance(x, torch.fx.Node))
        numbered = any(e is not None for e in results)

        def run(*args: Any) -> Any:
            made = iter(function(*(x for index, x in enumerate(args) if index not in self.numbers)))
            numbers = self.bound(args) if numbered else {}
            return pytree.tree_unflatten([next(made) if e is None else evaluated(e, numbers) for e in results], spec)

        return run


def at_call(graph: GraphModule) -> Callable[[Sequence[Any], Any], int | None]:
    """Return a function that computes a number of a graph (such as a stride of a result) from the arguments of a call.

    It returns None for a number that the arguments do not determine, such as a value that is read out of a tensor.
    """
    places: dict[
        Any, tuple[int, int | None]
    ] = {}  # expression: an argument that is it, or one with a dimension that is
    for index, node in enumerate(graph.graph.find_nodes(op="placeholder")):
        known = [(None, value(node))] if is_number(node) else enumerate(getattr(value(node), "shape", ()))
        for place, n in known:
            if isinstance(n, torch.SymInt) and n.node.expr.free_symbols:
                places.setdefault(n.node.expr, (index, place))
    names = {e: e if e.is_Symbol else sympy.Dummy(integer=True) for e in sorted(places, key=sympy.count_ops)}

    def found(args: Sequence[Any], n: Any) -> int | None:
        if not isinstance(n, torch.SymInt):
            return int(n)
        e = n.node.expr
        e = names.get(e, e) if e.free_symbols <= names.keys() else e.xreplace(names)
        if not e.free_symbols <= set(names.values()):
            return None
        numbers = {names[at]: args[i] if d is None else args[i].shape[d] for at, (i, d) in places.items()}
        return int(evaluated(e, numbers))

    return found


def _symbols(graph: GraphModule) -> set[Any]:
    """Return all symbols of torch's in the shapes and numbers of a graph."""
    known = (leaf for node in graph.graph.nodes for leaf in pytree.tree_leaves(value(node)))
    found = (n for leaf in known for n in (leaf.shape if isinstance(leaf, torch.Tensor) else (leaf,)))
    return {symbol for n in found if isinstance(n, torch.SymInt) for symbol in n.node.expr.free_symbols}


def is_number(node: Any) -> bool:
    """Return whether a node of a graph is a number that is known at a call."""
    return isinstance(node, torch.fx.Node) and isinstance(value(node), torch.SymInt)


def _spoken(n: Any, known: Mapping[Any, Any]) -> Any:
    """Return a number of the graph, computed from the lengths of its arguments."""
    if not isinstance(n, torch.SymInt):
        return n
    made = evaluated(n.node.expr, known)
    if isinstance(made, torch.fx.Proxy):
        made.node.meta.setdefault("example_value", n)
        return made.node
    return int(made)


# ---- Python numbers that dynamo passes as tensors, because they changed between calls.


MOST_VALUES = 64  # of the numbers of one graph; older ones are forgotten
_READS = (torch.ops.aten.item.default, torch.ops.aten._local_scalar_dense.default)


def numbers(graph: GraphModule) -> dict[int, list[Any]]:
    """Return {argument that is a number in a tensor of no dimensions: the nodes that read it}."""
    found: dict[int, list[Any]] = {}
    for index, node in enumerate(graph.graph.find_nodes(op="placeholder")):
        readers = [user for user in node.users if user.target == "item" or user.target in _READS]
        if readers and len(readers) == len(node.users):
            found[index] = readers
    return found


def guarded(graph: GraphModule) -> dict[int, Any]:
    """Return {argument: its value}, of the numbers that have one value wherever this graph is called."""
    known = {}
    for index, readers in numbers(graph).items():
        spoken = [value(reader) for reader in readers]
        if all(isinstance(x, (torch.SymFloat, torch.SymInt)) and x.node.expr.is_number for x in spoken):
            kind = float if isinstance(spoken[0], torch.SymFloat) else int
            known[index] = kind(spoken[0].node.expr)
    return known


def fixed(graph: GraphModule, values: Mapping[int, Any]) -> GraphModule:
    """Return the graph without the arguments that have these values."""
    given = graph.graph.find_nodes(op="placeholder")
    gone = {given[index] for index in values}
    copies: dict[Any, Any] = {
        reader: values[index] for index, readers in numbers(graph).items() if index in values for reader in readers
    }
    inner = torch.fx.Graph()
    for node in graph.graph.nodes:
        if node not in copies and node not in gone:
            copies[node] = inner.node_copy(node, copies.__getitem__)
    return GraphModule(graph, inner)


def carried(graph: GraphModule) -> GraphModule:
    """Return the graph with floats read as tensors, where its ops accept them; the graph itself if there are none."""
    given = graph.graph.find_nodes(op="placeholder")
    found = dict[Any, Any]()  # a number: the tensor in its place
    for index, readers in numbers(graph).items():
        if isinstance(value(given[index]), torch.Tensor) and value(given[index]).dtype is torch.float64:
            found |= _as_tensors(given[index], readers) or {}
    if not found:
        return graph
    inner = torch.fx.Graph()
    copies: dict[Any, Any] = {}
    for node in graph.graph.nodes:
        if node in found and found[node] is not None:
            copies[node] = copies[found[node]]
            continue
        kind = _kind_beside(node) if node not in found and found.keys() & set(node.all_input_nodes) else None
        copies[node] = inner.node_copy(node, lambda x, kind=kind: _cast(inner, copies[x], kind if x in found else None))
        if node in found:
            copies[node].meta = {"example_value": _PLACE.clone()}
    return GraphModule(graph, inner)


_PLACE = torch.empty((), dtype=torch.float64, device="meta")


def _as_tensors(given: Any, readers: Sequence[Any]) -> dict[Any, Any] | None:
    """Return {number: the argument that holds it}, or None if an op that reads one of them accepts no tensor there.

    The argument is None for a number that is computed from such numbers alone.
    """
    found: dict[Any, Any] = dict.fromkeys(readers, given)
    pending = list(readers)
    while pending:
        for user in pending.pop().users:
            if user in found:
                continue
            tried = _tried(user, found)
            if isinstance(value(user), torch.SymFloat) and _like(tried, _PLACE):
                found[user] = None
                pending.append(user)
            elif not isinstance(value(user), torch.Tensor) or not _like(tried, value(user)):
                return None
    return found


def _tried(node: Any, numbers: Container[Any]) -> Any:
    """Return the result of an op for tensors without data where a number is a tensor; None if the op accepts none."""
    kind = _kind_beside(node)

    def stand_in(x: Any) -> Any:
        known = value(x)
        if x in numbers:
            return _PLACE.to(kind or _PLACE.dtype)
        if not isinstance(known, torch.Tensor):
            raise TypeError(f"`{x}` is no tensor")
        shape = [n if isinstance(n, int) else n.node.hint for n in known.shape]
        return torch.empty(shape, dtype=known.dtype, device="meta")

    if node.op not in ("call_function", "call_method"):
        return None
    try:
        args, kwargs = torch.fx.map_arg((node.args, dict(node.kwargs)), stand_in)
        with torch.no_grad():
            if node.op == "call_method":
                return getattr(args[0], node.target)(*args[1:], **kwargs)
            return node.target(*args, **kwargs)
    except (RuntimeError, TypeError, ValueError):  # torch has one for each way to refuse
        return None


def _like(a: Any, b: Any) -> bool:
    """Return whether two values are tensors of one kind."""
    both = isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)
    return both and a.dtype is b.dtype and len(a.shape) == len(b.shape)


def _kind_beside(node: Any) -> torch.dtype | None:
    """Return the dtype that torch gives a float among an op's tensors; None if the op reads numbers alone."""
    tensors = [x for x in map(value, node.all_input_nodes) if isinstance(x, torch.Tensor)]
    kinds = {torch.result_type(torch.empty(1, dtype=x.dtype, device="meta"), 1.0) for x in tensors}
    if not kinds:
        return None
    return torch.float64 if kinds & {torch.float64, torch.complex128} else torch.float32


def _cast(graph: torch.fx.Graph, node: Any, kind: torch.dtype | None) -> Any:
    if kind is None or kind is torch.float64:
        return node
    cast = graph.call_method("to", (node, kind))
    cast.meta["example_value"] = _PLACE.to(kind)
    return cast


def without(arguments: Sequence[Any], gone: Container[int]) -> list[Any]:
    return [argument for index, argument in enumerate(arguments) if index not in gone]


class ByNumbers:
    """Function that is compiled again for every value of its numbers.

    The constructor's first callable compiles the graph without numbers for the other arguments. The second returns the
    key of these other arguments under which the result is kept. The third is called when a number changes, with the op
    that reads it and both values.
    """

    def __init__(
        self,
        graph: GraphModule,
        make: Callable[[GraphModule, Sequence[Any]], Function],
        told: Callable[[Sequence[Any]], Hashable],
        changed: Callable[[Any, Any, Any], None],
    ):
        self.graph, self.make, self.told, self.changed = graph, make, told, changed
        self.readers = numbers(graph)
        self.latest: dict[int, Any] = {}
        self.made: dict[Hashable, Function] = {}

    def __call__(self, *args: Any) -> Any:
        values = {index: args[index].item() for index in self.readers}
        others = without(args, values)
        key = (*values.values(), self.told(others))
        if key not in self.made:
            self._compare(values)
            if len(self.made) == MOST_VALUES:
                del self.made[next(iter(self.made))]
            self.made[key] = self.make(fixed(self.graph, values), others)
        return self.made[key](*others)

    def _compare(self, values: dict[int, Any]) -> None:
        index = next((i for i, n in values.items() if self.latest.get(i, n) != n), None)
        if index is not None:
            reader = next((user for node in self.readers[index] for user in node.users), None)
            self.changed(reader, self.latest[index], values[index])
        self.latest = values
