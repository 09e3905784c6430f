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
from torch._functorch.aot_autograd import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

from .decompositions import derived, table
from .views import value

Function = Callable[..., Any]


def wants_gradients(inputs: Sequence[Any]) -> bool:
    """Whether a call with these arguments is one that gradients flow through."""
    return torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs)


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
    """A function that computes what `graph` does on such inputs, changes and gradients included.

    compiled: makes a function of each graph that only computes.
    """

    def compiler(piece: torch.fx.GraphModule, _: Sequence[Any]) -> Function:
        _spell(piece)
        boxed: Function = make_boxed_func(compiled(piece))
        return boxed

    formulas = {**table(), torch.ops.aten.as_strided.default: _as_strided}
    wrap = aot_autograd(fw_compiler=compiler, decompositions=formulas, partition_fn=min_cut_rematerialization_partition)
    with sdpa_kernel(SDPBackend.MATH), derived():
        function: Function = wrap(graph, inputs)
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
    return table()[torch.ops.aten.as_strided.default](x, size, stride, offset)
