"""A graph of torch functions cut around the ops that dplc does not compile, so that the rest is compiled."""

from __future__ import annotations

import keyword
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import TorchDynamoException
from torch._functorch.aot_autograd import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.fx import GraphModule
from torch.fx.passes.split_module import split_module
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ...codegen.target import Target
from ...ir.diagnostic import DplcError, Span
from ...ir.substitute import with_hints
from ..cost.instruction_counts import instruction_counts
from ..cost.predict import predict
from .decompositions import derived, table
from .export import explain
from .fx_rewrites import Function, value
from .places import is_library

_SWITCHES = (torch.amp._enter_autocast, torch.amp._exit_autocast, torch._C._set_grad_enabled)


class Piece(torch.nn.Module):  # type: ignore[misc]
    """Function that replaces a submodule."""

    def __init__(self, function: Function):
        super().__init__()
        self.forward = function


def ops(graph: GraphModule) -> list[Any]:
    """Return the nodes that compute, without switches of autocast or gradients, which torch adds to every piece."""
    return [node for node in graph.graph.nodes if node.op.startswith("call_") and node.target not in _SWITCHES]


def alike(graph: GraphModule, bad: Any) -> set[Any]:
    """Return a node and its related nodes: the same function elsewhere, and those that split its several results."""
    if bad.target is operator.getitem:  # which may be anything: a slice, a mask
        return {bad}
    found = {node for node in ops(graph) if (node.op, node.target) == (bad.op, bad.target)}
    for node in ops(graph):
        if node.target in (operator.getitem, getattr) and node.args[0] in found and _several(node.args[0]):
            found.add(node)
    return found


def _several(node: Any) -> bool:
    return isinstance(value(node), (tuple, list))


def cut(graph: GraphModule, bad: set[Any], compiled: Callable[[GraphModule], Function]) -> Function:
    """Return the graph with `bad` nodes in eager and each sequence of others compiled, in the graph's order."""
    number: dict[Any, int] = {}
    run, last = 0, False
    for node in graph.graph.nodes:
        run, last = run + ((node in bad) != last), node in bad
        number[node] = run
    whole = split_module(graph, graph, lambda node: number[node], keep_original_order=True)
    eager = {f"submod_{number[node]}" for node in bad}
    for name, child in list(whole.named_children()):
        if name not in eager and isinstance(child, GraphModule) and ops(child):
            setattr(whole, name, Piece(compiled(child)))
    forward: Function = whole.forward
    return forward


def node_at(graph: GraphModule, span: Span | None) -> Any | None:
    """Return the node of a line of the graph's own text; None for a span in another text."""
    if span is None or not span.source.name.startswith("<eval_with_key>"):
        return None
    name = re.match(r"\s*(\w+)", span.source.line(span.line))
    return next((node for node in ops(graph) if name is not None and node.name == name[1]), None)


def user_place(node: Any | None, span: Span | None) -> str | None:
    """Return the location of a node's op in the user's text: `model.py:12: y = conv(x)`."""
    if node is None:
        return None if span is None or span.source.name.startswith("<eval_with_key>") else span.location
    frames = re.findall(r'File "(.+?)", line (\d+), in .*\n\s*(.*)', node.stack_trace or "")
    users = [frame for frame in frames if not is_library(frame[0])] or frames
    return "{}:{}: {}".format(*users[-1]) if users else None


# ---- Count the ops that dplc compiled and those that run in eager, with predicted times.


@dataclass
class EagerOps:
    """Ops that run in eager for one cause. seconds: predicted; the location is that of the first op, if known."""

    why: str
    place: str | None
    hint: str | None
    ops: int = 0
    seconds: float = 0.0


@dataclass
class Shares:
    """Coverage of `torch.compile(model, backend="dplc", options={"shares": shares})`: print it at the end of a session.

    runs: whether compiled parts run; without, they are compiled and PyTorch computes their results. ops, seconds: of
    all compiled parts, for one run of each part, in seconds as predicted for the example of each open length; eager:
    {cause: its ops}.
    """

    runs: bool = True
    ops: int = 0
    seconds: float = 0.0
    eager: dict[str, EagerOps] = field(default_factory=dict)

    def add_compiled(self, compilation: Any, ops: int) -> None:
        """Count a part that was compiled. compilation: a `Compilation`; ops: of the part."""
        machine, kernels = compilation.target, with_hints(compilation.kernels)
        each = [predict(instruction_counts(kernel), machine).seconds for kernel in kernels]
        self.ops += ops
        self.seconds += sum(each[kernel] for kernel in compilation.launched)

    def add_eager(self, nodes: Any, problem: DplcError, bad: Any | None, machine: Target) -> None:
        """Count nodes of a graph that eager runs. bad: the one that the problem was found at."""
        found = self.eager.setdefault(problem.what, EagerOps(problem.what, user_place(bad, problem.span), problem.hint))
        found.ops += len(nodes)
        found.seconds += sum(eager_seconds(node, machine) for node in nodes)

    @property
    def all_ops(self) -> int:
        return self.ops + sum(cause.ops for cause in self.eager.values())

    @property
    def all_seconds(self) -> float:
        return self.seconds + sum(cause.seconds for cause in self.eager.values())

    def __str__(self) -> str:
        if not self.all_ops:
            return "nothing was compiled, and nothing left to eager"
        time = self.seconds / self.all_seconds if self.all_seconds else 1.0
        lines = [
            f"dplc runs {self.ops} of {self.all_ops} ops ({_percent(self.ops / self.all_ops)}), "
            f"{_percent(time)} of the {self.all_seconds * 1e6:.1f} us predicted"
        ]
        for cause in sorted(self.eager.values(), key=lambda cause: -cause.seconds):
            lines.append(f"in eager {cause.ops}, {cause.seconds * 1e6:.1f} us: {cause.why}")
            lines += [f"  at {cause.place}"] if cause.place else []
            lines += [f"  help: {cause.hint}"] if cause.hint else []
        return "\n".join(lines)


def eager_seconds(node: Any, machine: Target) -> float:
    """Predict an op in eager: a launch, and its tensors moved once. Its computation is not counted."""
    tensors = [value(argument) for argument in node.all_input_nodes] + [value(node)]
    leaves = [leaf for tensor in tensors for leaf in torch.utils._pytree.tree_leaves(tensor)]
    moved = sum(int(leaf.numel()) * leaf.element_size() for leaf in leaves if isinstance(leaf, torch.Tensor))
    return float(machine.launch_seconds + moved / machine.dram_bytes_per_second)


def _percent(share: float) -> str:
    """Return a share as a percentage: `100%` only for the whole."""
    return "100%" if share == 1 else f"{min(share, 0.999):.1%}"


# ---- Let AOTAutograd make forward and backward graphs without gradients and in-place changes.


def needs_autograd(graph: GraphModule, inputs: Sequence[Any]) -> bool:
    """Return whether AOTAutograd must trace a graph of dynamo's that is called with such arguments.

    It need not where the graph only computes values of plain tensors: without gradients, mutations, transforms of
    torch.func and wrapper subclasses, such as quantised weights.
    """
    nodes = graph.graph.nodes
    values = pytree.tree_leaves([*inputs, *map(value, nodes)])
    wrapped = any(map(is_traceable_wrapper_subclass, values))
    return wrapped or _differentiated(graph, inputs) or changes(graph) or any(map(_transforms, nodes))


def _differentiated(graph: GraphModule, inputs: Sequence[Any]) -> bool:
    """Return whether gradients flow through a call or within it, or the graph changes the gradient mode."""
    if torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs):
        return True
    modes = [node.args[0] for node in graph.graph.nodes if node.target is torch._C._set_grad_enabled]
    if modes and modes[-1] != torch.is_grad_enabled():
        return True
    computed = [value(node) for node in graph.graph.nodes if node.op.startswith("call_")]
    return any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in pytree.tree_leaves(computed))


def _transforms(node: Any) -> bool:
    """Return whether a node enters a `vmap`, a `grad` or another transform of torch.func, which wraps tensors."""
    return getattr(node.target, "__name__", "").endswith("_increment_nesting")


def changes(graph: GraphModule) -> bool:
    """Return whether an op of dynamo's graph mutated a tensor.

    It ran on tensors without data, and their version shows it; that of `torch._foreach_add_` only by its name.
    """
    leaves = (leaf for node in graph.graph.nodes for leaf in pytree.tree_leaves(value(node)))
    if any(isinstance(leaf, torch.Tensor) and leaf._version for leaf in leaves):
        return True
    return any(node.op == "call_function" and _ends_in_place(node.target.__name__) for node in graph.graph.nodes)


def _ends_in_place(name: str) -> bool:
    """Return whether a name is that of a mutating op: `_foreach_add_`, but not `operator.and_`."""
    return name.endswith("_") and not keyword.iskeyword(name[:-1])


def joint(graph: GraphModule, inputs: Sequence[Any], compiled: Callable[[GraphModule], Function]) -> Function:
    """Return a function that computes what `graph` does on such inputs, changes and gradients included.

    compiled: makes a function of each graph that only computes. Raises DplcError for what AOTAutograd cannot trace.
    """

    def compiler(piece: GraphModule, _: Sequence[Any]) -> Function:
        _spell(piece)
        boxed: Function = make_boxed_func(compiled(piece))
        return boxed

    aten = torch.ops.aten
    formulas = {**table(), aten.as_strided.default: _as_strided, aten.as_strided_copy.default: _as_strided_copy}
    wrap = aot_autograd(fw_compiler=compiler, decompositions=formulas, partition_fn=min_cut_rematerialization_partition)
    try:
        with sdpa_kernel(SDPBackend.MATH), derived():
            function: Function = wrap(graph, inputs)
    except TorchDynamoException:  # it asks dynamo to begin again
        raise
    except (RuntimeError, AssertionError) as error:
        raise explain(error, None) from None
    return function


def _spell(graph: GraphModule) -> None:
    """Restore ops that AOTAutograd rewrites to the form that programs have: casts of numbers, and adaptive pools."""
    aten = torch.ops.aten
    for node in graph.graph.find_nodes(op="call_function", target=torch.ops.prims.convert_element_type.default):
        given, dtype = node.args
        node.target, node.args, node.kwargs = aten._to_copy.default, (given,), {"dtype": dtype}
    for name in ("adaptive_avg_pool2d", "adaptive_avg_pool3d"):
        for node in graph.graph.find_nodes(op="call_function", target=getattr(aten, f"_{name}").default):
            node.target = getattr(aten, name).default
    graph.recompile()


def _as_strided(x: Any, size: Sequence[int], stride: Sequence[int], offset: int | None = None) -> Any:
    """Reshape all elements in order. Dynamo guards the strides of arguments of its graphs."""
    whole = torch.empty(tuple(size), device="meta")
    if x.is_contiguous() and not offset and x.numel() == whole.numel() and tuple(stride) == whole.stride():
        return x.view(size)
    return _or_left(torch.ops.aten.as_strided.default, x, size, stride, offset)


def _as_strided_copy(x: Any, *where: Any) -> Any:
    return _or_left(torch.ops.aten.as_strided_copy.default, x, *where)


def _or_left(op: Any, *arguments: Any) -> Any:
    """Apply the formula of an op. An op that the formula refuses stays in the graph, for the part that compiles it."""
    try:
        return table()[op](*arguments)
    except DplcError:
        return NotImplemented
