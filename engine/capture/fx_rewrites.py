"""Changes of FX graphs: views among results, indices, regions, floats and lengths that are known at a call."""

from __future__ import annotations

import copy
import functools
import itertools
import math
import operator
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeGuard, TypeVar

import sympy
import torch
from sympy import Expr
from torch import SymFloat, SymInt, Tensor
from torch._higher_order_ops.associative_scan import associative_scan_op
from torch._higher_order_ops.wrap import tag_activation_checkpoint, wrap_with_autocast
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import Argument, Target
from torch.utils import _pytree as pytree

from ...ir import schemas
from ...ir.diagnostic import DplcError
from ...ir.expr import Size
from .dynamic_shapes import MOST, Computed, Dim, evaluated

T = TypeVar("T")
Function = Callable[..., Any]
Known: TypeAlias = (
    Tensor | SymInt | SymFloat
)  # the known part of a value; a tuple of them if a node has several results
CallInputs: TypeAlias = Sequence[Known]  # of a graph at a call
Index: TypeAlias = Tensor | SymInt | int | slice | None  # of elements, or a tuple of them
Nodes = dict[Node, Argument]  # {node: its copy in another graph, or the constant that replaces it}


def value(node: Node) -> Known:
    """Return the known part of a node's value: a tensor without data, or several."""
    return node.meta.get("example_value", node.meta.get("val"))


def placeholders(graph: GraphModule | ExportedProgram) -> list[Node]:
    """Return the nodes of the arguments of a module or an exported program."""
    return list(graph.graph.find_nodes(op="placeholder"))


def calls(graph: GraphModule | ExportedProgram, target: Target) -> list[Node]:
    """Return the nodes of a module or an exported program that call a function."""
    return list(graph.graph.find_nodes(op="call_function", target=target))


def given_fields(node: Node) -> dict[str, Any]:
    """Return the arguments of a node by their names in the schema."""
    schema = getattr(node.target, "_schema", None)
    names = (argument.name for argument in schema.arguments) if schema else ()
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}


def draws_numbers(node: Node) -> bool:
    """Return whether a node draws random numbers."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schemas.draws(schemas.op_name(schema.name.partition("::")[2]), given_fields(node))


def tensors(*values: object) -> list[Tensor]:
    """Return the tensors among values, in lists and tuples too."""
    return [x for x in pytree.tree_leaves(values) if isinstance(x, Tensor)]


def leaves(graph: GraphModule) -> list[Known]:
    """Return the known parts of all values of a graph, tensors and numbers."""
    return list(pytree.tree_leaves([value(node) for node in graph.graph.nodes]))


def is_view(node: Node) -> bool:
    """Return whether a node computes nothing: all its memory is that of the tensors it reads."""
    if node.target is operator.getitem and isinstance(value(node.args[0]), (tuple, list)):
        return is_view(node.args[0])
    own = storages(node) if node.op.startswith("call_") else set()
    return bool(own) and own <= storages(*node.all_input_nodes)


def storages(*nodes: Node) -> set[int]:
    """Return the identities of the memory of the tensors of nodes."""
    found = set()
    for tensor in tensors(*map(value, nodes)):
        while torch._C._functorch.is_functorch_wrapped_tensor(tensor):  # wrappers of torch.func have no memory
            tensor = torch._C._functorch.get_unwrapped(tensor)
        found.add(tensor.untyped_storage()._cdata)
    return found


def split_off_views(graph: GraphModule, compiled: Callable[[GraphModule], Function]) -> Function:
    """Return the graph as a function: `compiled` compiles its computation; views among the results are derived from it.

    Results have the strides that the graph gives them, since views that are derived later depend on these.
    """
    results = [x for x in pytree.tree_leaves(graph.graph.output_node().args) if isinstance(x, Node)]
    below, derive = views_among(graph, results, placeholders(graph), is_view)
    strides = [x.stride() if isinstance(x, Tensor) and not x.is_contiguous() else () for x in map(value, below)]
    if results == below and not any(strides):
        return compiled(graph)
    made: Function = lambda *_: ()  # noqa: E731
    if below:
        inner, copies = Graph(), Nodes()
        inner.graph_copy(graph.graph, copies)
        inner.output(tuple(copies[node] for node in below))
        inner.eliminate_dead_code()
        made = compiled(GraphModule(graph, inner))
    views, known = derive(), at_call(graph)

    def run(*args: Known) -> object:
        wanted = (tuple(known(args, n) for n in own) for own in strides)
        return views(args, map(restrided, made(*args), wanted))

    return run


def views_among(
    graph: GraphModule, results: Sequence[Node], given: Container[Node], derived: Callable[[Node], bool]
) -> tuple[list[Node], Callable[[], Function]]:
    """Return the nodes to compute, and what makes a function of the arguments and these that returns all results.

    given: arguments that need not be computed; derived: whether a node, of those that are results or that such views
    read, is to be derived as a view at a call.
    """
    views = dict[Node, None]()
    for node in reversed(graph.graph.nodes):
        if (node in results or not views.keys().isdisjoint(node.users)) and derived(node):
            views[node] = None
    read = dict.fromkeys([*results, *(source for view in views for source in view.all_input_nodes)])
    below = [x for x in read if x not in views and x not in given and x.op != "get_attr" and not _numeric(x)]

    def function() -> Function:
        # lengths that results and views read, of absent tensors: those of a call also give them
        arguments = placeholders(graph)
        there = {*below, *views, *arguments}
        for node in graph.graph.nodes:
            if _numeric(node) and there.issuperset(node.all_input_nodes):
                there.add(node)
        numbers = [node for node in read if node not in there and is_number(node)]
        viewing = Graph()  # from the arguments and the computed tensors to the results
        taken = enumerate((*arguments, *below, *numbers))  # an argument twice, where it is computed: then as that
        copies = {node: viewing.placeholder(f"x{place}") for place, node in taken}
        views_only = copied(graph, viewing, copies, lambda node: node.op in ("placeholder", "output"))
        after, known = eager(views_only), at_call(graph)
        return lambda args, computed: after(*args, *computed, *(known(args, value(node)) for node in numbers))

    return below, function


def restrided(tensor: Tensor, strides: tuple[int | None, ...]) -> Tensor:
    """Return the tensor with such strides, copied where it has others; itself if they are unknown or repeat memory."""
    if not strides or None in strides or 0 in strides or tensor.stride() == strides:
        return tensor
    copy = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device)
    return copy.copy_(tensor)


def _numeric(node: Node) -> bool:
    """Return whether a node computes lengths from lengths, not a tensor."""
    return node.op.startswith("call_") and bool(node.all_input_nodes) and not storages(node)


def bracketed(graph: GraphModule) -> GraphModule:
    """Change the graph so that a node negates the base of a power that is a negative number, and return the graph.

    torch.fx prints `(-2) ** x` without brackets, as `-2 ** x`, which is the negative of a power.
    """
    for node in calls(graph, operator.pow):
        base, power = node.args
        if str(base).startswith("-"):
            with graph.graph.inserting_before(node):
                node.args = graph.graph.call_function(operator.neg, (-base,)), power
            graph.recompile()
    return graph


# ---- Read elements at an index that a tensor without dimensions holds: `v[i]`.


_aten = torch.ops.aten
_BY_INDEX = {_aten.select.int: _aten.index.Tensor, _aten.select_scatter.default: _aten.index_put.default}


def indexed(program: ExportedProgram) -> None:
    """Change a functional program so that a selection at a number out of a tensor is an index by the tensor.

    A number with another reader stays for that.
    """
    graph = program.graph
    for number in calls(program, _aten.item.default):
        held, dtype = number.args[0], value(number.args[0]).dtype
        for node in list(number.users):
            if dtype is torch.uint8 or node.target not in _BY_INDEX or node.args[-1] is not number:
                continue  # bytes may be a mask, as they are in eager mode
            (source, *written, dim, _), at = node.args, held
            if dtype not in (torch.int32, torch.int64):  # which index takes
                with graph.inserting_before(node):
                    at = graph.call_function(_aten._to_copy.default, (at,), {"dtype": torch.int64})
                at.meta = node.meta | {"val": value(held).to(torch.int64)}
            indices = [None] * (dim % value(source).ndim) + [at]
            node.target, node.args = _BY_INDEX[node.target], (source, indices, *written)


# ---- Write elements at such an index: `v[i] = x`.


_PLACES = (torch.int64, torch.int32, torch.int16, torch.int8)  # as bytes and truth values they are masks


def write_elements(tensor: Tensor, index: Index, given: Tensor | float) -> None:
    """Compute `tensor[index] = given`, with indices that are tensors without dimensions."""
    if not _of_places(index):
        tensor[index] = given
        return
    part, places = _apart(tensor, index)
    if not isinstance(given, Tensor):
        given = torch.full((), given, dtype=part.dtype, device=part.device)
    given = given.to(part)
    most = sum(place is None for place in places)
    while given.dim() > most and given.shape[0] == 1:  # as PyTorch leaves out what a value has in front
        given = given[0]
    _aten.index_put_(part, places, given)


def read_elements(tensor: Tensor, index: Index) -> Tensor:
    """Return a copy of `tensor[index]`, with indices that are tensors without dimensions."""
    return _aten.index(*_apart(tensor, index))


def by_elements(graph: GraphModule) -> GraphModule:
    """Replace indexing by tensors of no dimensions in dynamo's graph by these functions.

    A read stays a view if an op mutates a value that is computed from it, except for `v[i] += x`, which writes it back.
    """
    for node in filter(_by_places, calls(graph, operator.setitem)):
        node.target = write_elements
    for node in filter(_by_places, calls(graph, operator.getitem)):
        node.target = node.target if _is_changed(node) else read_elements
    graph.recompile()
    return graph


def _by_places(node: Node) -> bool:
    index = torch.fx.map_arg(node.args[1], value)
    return isinstance(value(node.args[0]), Tensor) and _of_places(index)


def _is_changed(read: Node) -> bool:
    """Return whether an op may mutate a value that is computed from a read one, apart from those of `v[i] += x`."""
    computed = {read}
    for node in read.graph.nodes:
        if computed.isdisjoint(node.all_input_nodes):
            continue
        back = [(user.target, user.args) for user in node.users] == [(write_elements, (*read.args, node))]
        if back and [*read.users] == [node] and node.args[0] is read:
            continue  # the only reader of the changed value writes it back
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        operator_in_place = getattr(node.target, "__module__", "") == "_operator" and name[:1] == "i"
        if (name.endswith("_") and not name.endswith("__")) or (operator_in_place and name != "index"):
            return True
        computed.add(node)
    return False


def _several(index: Index) -> tuple[Index, ...]:
    return index if isinstance(index, tuple) else (index,)


def _of_places(index: Index) -> bool:
    """Return whether tensors of no dimensions are indices among numbers, slices and new axes alone."""
    rest = {type(x) for x in _several(index) if not _is_place(x)}
    return any(map(_is_place, _several(index))) and rest <= {int, SymInt, slice, type(None), type(...)}


def _is_place(index: Index) -> TypeGuard[Tensor]:
    return isinstance(index, Tensor) and index.dim() == 0 and index.dtype in _PLACES


def _apart(tensor: Tensor, index: Index) -> tuple[Tensor, list[Tensor | None]]:
    """Return the part that the other indices select, and a tensor index or None for each of its dimensions."""
    part = tensor[tuple(slice(None) if _is_place(x) else x for x in _several(index))]
    kept = [x for x in _several(index) if not isinstance(x, (int, SymInt))]
    dots = next((number for number, x in enumerate(kept) if x is ...), len(kept))
    places: list[Tensor | None] = [None] * part.dim()
    for number, x in enumerate(kept):
        if _is_place(x):  # after `..` counted from the end; an index has 32 or 64 bits
            places[number if number < dots else number - len(kept)] = x.long() if x.dtype.itemsize < 4 else x
    return part, places


# ---- Inline scans, checkpoints and autocast regions of dynamo's graphs.


def flattened(graph: GraphModule, inputs: CallInputs) -> GraphModule:
    """Return the same graph without scans; itself where it has none, or where lengths are open.

    inputs: tensors of the shapes of a call.
    """
    scans = calls(graph, associative_scan_op)
    if not scans or any(isinstance(x, SymInt) for x in inputs):
        return graph
    for scan in scans:
        scan.target = _looped
    graph.recompile()
    return make_fx(lambda *args: graph(*args), tracing_mode="fake")(*inputs)


def _looped(step: Function, given: Sequence[Tensor], more: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Compute a scan one step after the other."""
    rows = ([x[place] for x in given] for place in range(given[0].shape[0]))
    found = itertools.accumulate(rows, lambda so_far, row: list(step(*so_far, *row, *more)))
    return tuple(map(torch.stack, zip(*found, strict=True)))


def without_checkpoints(graph: GraphModule) -> GraphModule:
    """Replace the call of each checkpoint by its body, which is right without a derivative."""
    while checkpoints := calls(graph, tag_activation_checkpoint):
        for call in checkpoints:
            body, *operands = call.args
            inner = graph.get_submodule(body.target)
            copies = dict(zip(placeholders(inner), operands, strict=True))
            with graph.graph.inserting_before(call):
                results = graph.graph.graph_copy(inner.graph, copies)
            for node in inner.graph.find_nodes(op="get_attr"):
                copies[node].target = f"{body.target}.{node.target}"
            for read in tuple(call.users):
                read.replace_all_uses_with(results[read.args[1]])
                graph.graph.erase_node(read)
            graph.graph.erase_node(call)
        graph.recompile()
    return graph


def switching_autocast(graph: GraphModule) -> None:
    """Let a node-by-node interpreter of an exported program run the nodes of each autocast region under autocast."""
    for call in calls(graph, wrap_with_autocast):
        *settings, body = call.args[:5]
        region = graph.get_submodule(body.target)
        switching_autocast(region)
        call.target, call.args = torch.autocast(*settings)(torch.fx.Interpreter(region).run), call.args[5:]


def entering_autocast(graph: GraphModule) -> GraphModule:
    """Return the graph, or a copy that switches autocast during a trace. torch's own ops only leave nodes then."""
    if not calls(graph, torch.amp._enter_autocast):
        return graph
    inner = copy.deepcopy(graph.graph)
    for node in inner.nodes:
        node.target = {torch.amp._enter_autocast: _enter, torch.amp._exit_autocast: _exit}.get(node.target, node.target)
    return GraphModule(graph, inner)


@contextmanager
def leaving_autocast() -> Iterator[None]:
    """Return a context that leaves entered autocast regions if an error ends the trace."""
    try:
        yield
    finally:
        while _entered:
            _exit(_entered[-1])


_entered: list[torch.autocast] = []  # captures are alone


def _enter(*settings: object) -> torch.autocast:
    _entered.append(torch.autocast(*settings))
    return _entered[-1].__enter__()


def _exit(region: torch.autocast) -> None:
    _entered.remove(region)
    region.__exit__(None, None, None)


# ---- Hold floats that are computed from lengths (`x / n**0.5`) in tensors, as ops take them.


_OPS: dict[Target, OpOverload] = {
    operator.add: _aten.add.Tensor, operator.sub: _aten.sub.Tensor, operator.mul: _aten.mul.Tensor,
    operator.truediv: _aten.div.Tensor, operator.pow: _aten.pow.Tensor_Tensor, operator.neg: _aten.neg.default,
    torch.sym_max: _aten.maximum.default, torch.sym_min: _aten.minimum.default, torch._sym_sqrt: _aten.sqrt.default,
    math.sqrt: _aten.sqrt.default,
}  # fmt: skip
# torch's own operations of lengths, as those of reals
_REALS: dict[str, Function] = {
    "ToFloat": operator.pos, "FloatTrueDiv": operator.truediv, "IntTrueDiv": operator.truediv
}  # fmt: skip


def regions(program: ExportedProgram) -> list[GraphModule]:
    """Return the graph of an exported program and those of its regions, such as `with torch.enable_grad()`."""
    return [module for module in program.graph_module.modules() if isinstance(module, GraphModule)]


def as_tensors(program: ExportedProgram) -> None:
    """Change the program so that ops read floats of lengths as tensors, if they accept one there."""
    for region in regions(program):
        _hold_floats(region.graph)


def constant_of(n: SymFloat) -> float | None:
    """Return the number that a float computed from lengths equals for all of them, as reals: s / (s*2.0) is a half."""
    real = n.node.expr.replace(lambda e: type(e).__name__ in _REALS, lambda e: _REALS[type(e).__name__](*e.args))
    found = sympy.simplify(real)
    return float(found) if found.is_number else None


def _varies(x: Node) -> bool:
    """Return whether a node is a float that lengths decide; one out of a tensor is an element of it."""
    return (
        isinstance(value(x), SymFloat)
        and x.op == "call_function"
        and not tensors(*map(value, x.all_input_nodes))
        and constant_of(value(x)) is None
    )


def _hold_floats(graph: Graph) -> None:
    """Let every op that accepts a tensor for a float of lengths read one."""

    @functools.cache
    def held(number: Argument, dtype: torch.dtype) -> Node:
        """Return the tensor that holds a number; it is created at its first reader."""
        arithmetic = isinstance(number, Node) and not isinstance(value(number), (SymInt, int))
        if arithmetic and number.target is torch.sym_float:
            return held(number.args[0], dtype)
        if arithmetic and number.target in _OPS:
            made = graph.call_function(_OPS[number.target], tuple(held(x, dtype) for x in number.args))
        else:
            made = graph.call_function(_aten.full.default, ((), number), {"dtype": dtype})
        made.meta["val"] = torch.empty((), dtype=dtype, device="meta")
        return made

    for user in list(graph.nodes):
        varying = list(filter(_varies, user.all_input_nodes))
        taking, result = _taking_tensors(user, varying) if varying else None, value(user)
        if taking is not None and isinstance(result, Tensor):
            user.target, dtype = taking, torch.float64 if result.dtype is torch.float64 else torch.float32
            with graph.inserting_before(user):
                for number in varying:
                    user.replace_input_with(number, held(number, dtype))


def _taking_tensors(user: Node, numbers: Sequence[Node]) -> OpOverload | None:
    """Return an overload of the op that accepts its arguments, with tensors for some numbers; None without."""
    if not isinstance(user.target, OpOverload):
        return None
    packet, kinds = user.target.overloadpacket, _kinds(user.target)
    values = dict(zip(kinds, user.args, strict=False)) | user.kwargs
    for overload in (user.target, *(getattr(packet, name) for name in packet.overloads())):
        taken = _kinds(overload)
        if [*taken] == [*kinds] and all(
            taken[name] in ("Tensor", "Optional[Tensor]") if x in numbers else x is None or taken[name] == kinds[name]
            for name, x in values.items()
        ):
            return overload
    return None


def _kinds(overload: OpOverload) -> dict[str, str]:
    """Return {argument of an overload: its kind}."""
    return {argument.name: str(argument.type) for argument in overload._schema.arguments}


# ---- A graph of dynamo's with lengths that are known at a call: what they are, and the same graph without numbers.
#
# Dynamo hands a length over twice: as a number (`s77`) and as a dimension of a tensor. The numbers go: a graph of
# tensors alone reads its lengths off them, so that `capture` takes it like any function with `dynamic=`.


FIRST_ROW = 4096  # the end of the first range of lengths, where torch knows none
WIDER = 16  # each following range is this many times as large


class Lengths:
    """Lengths of a graph, and its other numbers, which are fixed.

    open: for each argument the dimensions that a range covers; None for a number that is computed from those. narrowed:
    {name of a length: ranges that compiles found to be one program, the latest first}. values: whether a whole number
    that no shape depends on may be a length, such as the place of a token; the attribute tells whether one is. Raises
    DplcError for a graph with a length that its arguments do not tell.
    """

    def __init__(self, graph: GraphModule, values: bool = True):
        self.values = False
        nodes = placeholders(graph)
        self.numbers = {index: value(node).node.expr for index, node in enumerate(nodes) if is_number(node)}
        # {length: an argument and the dimension that tell it; None for an argument that is the number}
        self.places: dict[Expr, tuple[int, int | None]] = {}
        self.narrowed: dict[str, list[Size]] = {}
        self._names = [node.target for node in nodes]
        self._ranges: dict[Expr, tuple[int, int | None]] = {}
        known, shaping = list(_open_numbers(graph)), _symbols(n for x in tensors(leaves(graph)) for n in x.shape)
        dimensions = [told for told in known if told[2] is not None]
        for told in sorted(known, key=lambda told: told[2] is None):  # a dimension before a number
            e = told[0].node.expr
            shapes = told[2] is not None or e in shaping
            if e.is_Symbol and (values or shapes):
                self._learn(*told)
                self.values |= not shapes
        for told in dimensions:  # of which only the product is known
            if not told[0].node.expr.free_symbols <= self.places.keys():
                self._learn(*told)
        sources = {symbol for e in self.places for symbol in e.free_symbols} | set(self.numbers.values())
        if read := sorted(map(str, (shaping | _symbols(leaves(graph))) - sources)):
            raise DplcError(f"a shape depends on `{read[0]}`, which is read out of a tensor")
        lengths: list[dict[int, Expr]] = [{} for _ in nodes]
        for n, index, place in dimensions:
            lengths[index][place or 0] = n.node.expr
        self.open: list[dict[int, Expr] | None] = [*lengths]
        for index, e in self.numbers.items():
            if e in self.places or e.free_symbols <= self.places.keys():
                self.open[index] = None

    def _learn(self, n: SymInt, index: int, place: int | None) -> None:
        """Record where a length is told, if nothing told it before, and its range."""
        e = n.node.expr
        if e not in self.places:
            known = n.node.shape_env.bound_sympy(e)  # None for the length of a jagged tensor
            low, high = (max(1, known.lower), known.upper) if known else (1, MOST + 1)
            self.places[e], self._ranges[e] = (index, place), (int(low), None if high > MOST else int(high))

    def rows(self, args: CallInputs) -> tuple[tuple[int, int, int], ...] | None:
        """Return (low, high, multiple) for every length of a call: torch's range, or one of those of WIDER.

        None if a length is outside of what one program serves.
        """
        rows = []
        for symbol, (index, place) in self.places.items():
            (low, high), n, multiple = self._ranges[symbol], _told(args, index, place), 1
            if high is None:
                high = FIRST_ROW
                while n > high:
                    low, high = high + 1, high * WIDER
                high = min(high, MOST)
            for known in self.narrowed.get(self._name(symbol), ()):
                if known.low <= n <= known.high:
                    low, high, multiple = max(low, known.low), min(high, known.high), known.multiple
                    break
                low, high = (max(low, known.high + 1), high) if known.high < n else (low, min(high, known.low - 1))
            if not low <= n <= high or n % multiple:
                return None
            rows.append((low, high, multiple))
        return tuple(rows)

    def dynamic(self, args: CallInputs) -> dict[str, dict[int, Dim | Computed]]:
        """Return the value of `dynamic=` in `dplc.compile` for a call. Its lengths are the hints."""
        rows = zip(self.places.items(), self.rows(args) or (), strict=True)
        dims = {e: Dim(self._name(e), *row, hint=_told(args, *told)) for (e, told), row in rows}
        of_each = {
            name: {place: dims[e] if e in dims else Computed(e, dims) for place, e in own.items()}
            for name, own in zip(self._names, self.open, strict=True)
            if own
        }
        return of_each | {f"of_{e}": {0: dims[e]} for e in self._carriers}

    def _name(self, e: Expr) -> str:
        return str(e) if e.is_Symbol else "length_{}_{}".format(*self.places[e])

    @property
    def _carriers(self) -> list[Expr]:
        """The lengths that only numbers tell: a tensor without elements carries each into a graph of tensors."""
        return [e for e, (_, place) in self.places.items() if place is None]

    def carried(self, args: CallInputs) -> list[Known]:
        """Return the arguments of a graph without numbers, for a call with numbers."""
        given = without(args, self.numbers)
        like = next(iter(tensors(given)), torch.empty(0))
        return given + [like.new_empty((_told(args, *self.places[e]), 0)) for e in self._carriers]

    def of_tensors(self, part: GraphModule, args: CallInputs) -> GraphModule:
        """Return a part of the graph without numbers among its arguments: it reads the lengths from its tensors.

        args: of a call, which fix the numbers that are not lengths.
        """
        inner = Graph()
        given = placeholders(part)
        copies = {node: inner.node_copy(node) for node in without(given, self.numbers)}
        known: dict[Expr, Known | torch.fx.Proxy] = {e: args[index] for index, e in self.numbers.items()}
        carriers = {e: inner.placeholder(f"of_{e}") for e in self._carriers}
        for e, (index, place) in self.places.items():
            read = inner.call_method("size", (carriers[e], 0) if place is None else (copies[given[index]], place))
            read.meta["example_value"] = value(given[index]) if place is None else value(given[index]).shape[place]
            known[e] = torch.fx.Proxy(read)
        for index, e in self.numbers.items():
            number = known[e] if e in self.places else evaluated(e, known)
            copies[given[index]] = number.node if isinstance(number, torch.fx.Proxy) else int(number)
        return copied(part, inner, copies)


def _told(args: CallInputs, index: int, place: int | None) -> int:
    """Return a length of a call: of a dimension of an argument, or an argument that is a number."""
    return int(args[index] if place is None else args[index].shape[place])


def _symbols(numbers: Iterable[Known]) -> set[sympy.Symbol]:
    """Return torch's symbols of the lengths among numbers."""
    return {symbol for n in numbers if isinstance(n, SymInt) for symbol in n.node.expr.free_symbols}


def copied(graph: GraphModule, inner: Graph, copies: Nodes, kept: Callable[[Node], bool] | None = None) -> GraphModule:
    """Return a graph copied into another one, where some of its nodes have copies already, without dead nodes.

    kept: whether a dead node stays; by default one with side effects.
    """
    inner.output(inner.graph_copy(graph.graph, copies))
    inner.eliminate_dead_code(kept)
    return GraphModule(graph, inner)


def _open_numbers(graph: GraphModule) -> Iterator[tuple[SymInt, int, int | None]]:
    """Yield the numbers that a call tells, each with the argument and its dimension; None for the argument itself."""
    for index, node in enumerate(placeholders(graph)):
        known = value(node)
        for place, n in [(None, known)] if is_number(node) else enumerate(getattr(known, "shape", ())):
            if isinstance(n, SymInt) and n.node.expr.free_symbols:
                yield n, index, place


def at_call(graph: GraphModule) -> Callable[[CallInputs, int | SymInt], int | None]:
    """Return a function that computes a number of a graph (such as a stride of a result) from the arguments of a call.

    It returns None for a number that the arguments do not determine, such as a value that is read out of a tensor.
    """
    places: dict[Expr, tuple[int, int | None]] = {}  # by expression
    for n, index, place in _open_numbers(graph):
        places.setdefault(n.node.expr, (index, place))
    names = {e: sympy.Dummy(integer=True) for e in places}

    def found(args: CallInputs, n: int | SymInt) -> int | None:
        if not isinstance(n, SymInt):
            return int(n)
        e = n.node.expr.xreplace(names)
        numbers = {names[at]: args[i] if d is None else args[i].shape[d] for at, (i, d) in places.items()}
        return int(evaluated(e, numbers)) if e.free_symbols <= numbers.keys() else None

    return found


def is_number(node: Node) -> bool:
    """Return whether a node of a graph is a number that is known at a call."""
    return isinstance(value(node), SymInt)


# ---- Python numbers that dynamo passes as tensors, because they changed between calls.


_READS = ("item", _aten.item.default, _aten._local_scalar_dense.default)


def numbers(graph: GraphModule) -> dict[int, list[Node]]:
    """Return {argument that is a number in a tensor of no dimensions: the nodes that read it}."""
    given = enumerate([*node.users] for node in placeholders(graph))
    return {index: users for index, users in given if users and all(user.target in _READS for user in users)}


def guarded(graph: GraphModule) -> dict[int, float]:
    """Return {argument: its value}, of the numbers that have one value wherever this graph is called."""
    known = {}
    for index, readers in numbers(graph).items():
        spoken: list[Any] = [getattr(value(reader), "node", None) for reader in readers]
        if all(n is not None and n.expr.is_number for n in spoken):
            known[index] = spoken[0].pytype(spoken[0].expr)
    return known


def fixed(graph: GraphModule, values: Mapping[int, float]) -> GraphModule:
    """Return the graph without the arguments that have these values."""
    given = placeholders(graph)
    copies: Nodes = {given[index]: None for index in values}
    copies |= {reader: values[n] for n, readers in numbers(graph).items() if n in values for reader in readers}
    return copied(graph, Graph(), copies, lambda _: True)


def carried(graph: GraphModule) -> GraphModule:
    """Return the graph with floats read as tensors, where its ops accept them; the graph itself if there are none."""
    for index in numbers(graph):
        graph = _holding(graph, index) or graph
    return graph


_PLACE = torch.empty((), dtype=torch.float64, device="meta")


def _holding(graph: GraphModule, index: int) -> GraphModule | None:
    """Return the graph in which a tensor, this argument, holds a float; None if an op accepts no tensor there."""
    given, readers = placeholders(graph)[index], numbers(graph)[index]
    if value(given).dim() or value(given).dtype is not torch.float64:
        return None
    inner, copies = Graph(), Nodes()
    held = set(readers)  # nodes that are the number, or a number that is computed from it
    for node in graph.graph.nodes:
        if node in readers:
            copies[node] = copies[given]
            continue
        operands = {x: copies[x] for x in node.all_input_nodes}
        read = [x for x in operands if x in held]
        for x in read if _is_f32(node) else ():
            operands[x] = inner.call_method("to", (copies[x], torch.float32))
            operands[x].meta["example_value"] = _PLACE.float()
        copies[node] = made = inner.node_copy(node, operands.__getitem__)
        of_lengths = isinstance(value(node), torch.SymFloat)
        if read and not _gives(made, _PLACE if of_lengths else value(node)):
            return None
        if read and of_lengths:
            held.add(node)
            made.meta = {"example_value": _PLACE.clone()}
    return GraphModule(graph, inner)


def _gives(node: Node, wanted: Tensor) -> bool:
    """Return whether an op accepts its operands as tensors without data, and gives a tensor of the wanted kind."""
    try:
        made = called_with(node, functools.partial(torch.empty, device="meta"))
        return bool(made.dtype is wanted.dtype and made.dim() == wanted.dim())
    except (AttributeError, RuntimeError, TypeError, ValueError):  # torch has one for each way to refuse
        return False


def called_with(node: Node, make: Callable[..., Any]) -> Any:
    """Return what torch computes for a node with other operands. make: creates one of a shape and a dtype."""

    def stand_in(x: Node) -> Any:
        return make([n if isinstance(n, int) else n.node.hint for n in value(x).shape], dtype=value(x).dtype)

    function = getattr(Tensor, node.target) if isinstance(node.target, str) else node.target
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), stand_in)
    with torch.no_grad():
        return function(*args, **kwargs)


def _is_f32(node: Node) -> bool:
    """Return whether torch takes a float among an op's tensors as f32; not if the op reads numbers alone."""
    kinds = {torch.result_type(x, 1.0) for x in tensors(*map(value, node.all_input_nodes))}
    return bool(kinds) and kinds.isdisjoint((torch.float64, torch.complex128))


def eager(graph: GraphModule) -> Function:
    """Return the function that PyTorch computes with a graph."""
    forward: Function = graph.forward
    return forward


def without(arguments: Sequence[T], gone: Container[int]) -> list[T]:
    return [argument for index, argument in enumerate(arguments) if index not in gone]
