"""What AOTAutograd makes of a graph of torch functions: forward and backward, without gradients or changes in place.

What changes its arguments, or is asked for gradients, becomes graphs that only compute; torch itself writes the changes
back and calls the backward graph. What the backward pass needs is kept or computed again as torch's min-cut
partitioner decides. Attention is written as products and a softmax, so that its derivative is of these.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import TorchDynamoException
from torch._functorch.aot_autograd import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ...ir.diagnostic import DplcError
from .decompositions import derived, table
from .export import explain
from .views import value

Function = Callable[..., Any]


def needs_autograd(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> bool:
    """Return whether AOTAutograd must trace a graph of dynamo's that is called with such arguments.

    It need not where the graph only computes values of plain tensors: without gradients, changes in place, transforms
    of torch.func and wrapper subclasses, such as quantised weights.
    """
    nodes = graph.graph.nodes
    values = pytree.tree_leaves([*inputs, *map(value, nodes)])
    wrapped = any(map(is_traceable_wrapper_subclass, values))
    return wrapped or _differentiated(graph, inputs) or changes(graph) or any(map(_transforms, nodes))


def _differentiated(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> bool:
    """Whether gradients flow through a call or within it, or the graph ends in another gradient mode than it starts."""
    if torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs):
        return True
    modes = [node.args[0] for node in graph.graph.nodes if node.target is torch._C._set_grad_enabled]
    if modes and modes[-1] != torch.is_grad_enabled():
        return True
    computed = [value(node) for node in graph.graph.nodes if node.op.startswith("call_")]
    return any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in pytree.tree_leaves(computed))


def _transforms(node: Any) -> bool:
    """Whether a node enters a `vmap`, a `grad` or another transform of torch.func, which wraps tensors."""
    return getattr(node.target, "__name__", "").endswith("_increment_nesting")


def changes(graph: torch.fx.GraphModule) -> bool:
    """Whether an op of dynamo's graph changed a tensor in place.

    It ran on tensors without data, and their version says so; that of `torch._foreach_add_` only by its name.
    """
    leaves = (leaf for node in graph.graph.nodes for leaf in pytree.tree_leaves(value(node)))
    if any(isinstance(leaf, torch.Tensor) and leaf._version for leaf in leaves):
        return True
    return any(node.op == "call_function" and _ends_in_place(node.target.__name__) for node in graph.graph.nodes)


def _ends_in_place(name: str) -> bool:
    """`_foreach_add_`; not `operator.and_`, which is only not called `and`."""
    return name.endswith("_") and not keyword.iskeyword(name[:-1])


def joint(
    graph: torch.fx.GraphModule, inputs: Sequence[Any], compiled: Callable[[torch.fx.GraphModule], Function]
) -> Function:
    """Return a function that computes what `graph` does on such inputs, changes and gradients included.

    compiled: makes a function of each graph that only computes. Raises DplcError for what AOTAutograd cannot trace.
    """

    def compiler(piece: torch.fx.GraphModule, _: Sequence[Any]) -> Function:
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


def _spell(graph: torch.fx.GraphModule) -> None:
    """Ops that AOTAutograd makes of others, as programs have them: casts of numbers, and adaptive pools."""
    aten = torch.ops.aten
    for node in graph.graph.find_nodes(op="call_function", target=torch.ops.prims.convert_element_type.default):
        given, dtype = node.args
        node.target, node.args, node.kwargs = aten._to_copy.default, (given,), {"dtype": dtype}
    for name in ("adaptive_avg_pool2d", "adaptive_avg_pool3d"):
        for node in graph.graph.find_nodes(op="call_function", target=getattr(aten, f"_{name}").default):
            node.target = getattr(aten, name).default
    graph.recompile()


def _as_strided(x: Any, size: Sequence[int], stride: Sequence[int], offset: int | None = None) -> Any:
    """Another shape of all elements in order. Of a graph of dynamo's, the strides of arguments are guarded."""
    whole = torch.empty(tuple(size), device="meta")
    if x.is_contiguous() and not offset and x.numel() == whole.numel() and tuple(stride) == whole.stride():
        return x.view(size)
    return _or_left(torch.ops.aten.as_strided.default, x, size, stride, offset)


def _as_strided_copy(x: Any, *where: Any) -> Any:
    return _or_left(torch.ops.aten.as_strided_copy.default, x, *where)


def _or_left(op: Any, *arguments: Any) -> Any:
    """An op by its formula. One that the formula refuses stays in the graph, for the part that compiles it."""
    try:
        return table()[op](*arguments)
    except DplcError:
        return NotImplemented
