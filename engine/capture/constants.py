"""Constant folding: torch computes values that depend on no input, on the CPU, when the program is compiled.

Attention-mask arithmetic, position ids, causal masks: a model uses dozens of small ops to compute one tensor of known
values. A result that something else reads becomes an input of the kind "constant". A tensor without elements depends on
nothing: it is a constant whatever its operands are, and its consumers fold too (the sum of nothing).
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ...ir.diagnostic import DplcError
from ...ir.expr import Var, free_names
from ...ir.interp.torch import applied
from ...ir.program import Param
from ...ir.schemas import DTYPES, PARTS
from ...ir.sizes import has_sizes
from ...ir.substitute import substitute
from ...ir.torch import TorchGraph, TorchOp
from ..language.rule import Policy, built_in_policy
from .capture import Capture, check_dtypes, with_graph
from .convert import dtype_name
from .signature import parts_of


def bits(tensor: torch.Tensor) -> Any:
    """Return the bytes of a tensor's elements in their order, as numpy holds them.

    PyTorch calls a tensor of one element contiguous whatever its stride is (`x[::2]` of two elements), and then does
    not read it under a narrower dtype: the function sets the stride explicitly.
    """
    flat = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return flat.as_strided((flat.numel(),), (1,)).view(torch.uint8).numpy()


def fold(captured: Capture, numbers: Policy | None = None) -> Capture:
    """Return the capture with every value folded that depends on no input, parameter or buffer.

    Folding covers tensors of up to `largest_constant` elements. A constant of the capture (a tensor written out in a
    function, or of its closure) counts as known. The tensors of the constants are in `tensors`. Raises DplcError for a
    dtype that cannot be compiled and did not fold away.
    """
    largest = (numbers or built_in_policy()).largest_constant
    graph = captured.graph
    given = {name: captured.tensors[name] for name, kind in captured.kinds.items() if kind == "constant"}
    known = {name: tensor.detach().cpu() for name, tensor in given.items() if tensor.device.type != "meta"}
    known |= {param.name: _nothing(param.dtype, param.shape) for param in graph.ins if _without_elements(param)}
    rest = []
    with torch.no_grad():
        for statement in graph.body:
            if _empty(statement):
                known[statement.dst] = _nothing(statement.types[0].dtype, statement.types[0].shape)
            elif _foldable(statement, known, largest):
                known[statement.dst] = _compute(statement, known)
            else:
                rest.append(statement)
    known, rest = _merged(graph, known, rest)
    read = {out.name for out in graph.outs}.union(*(free_names(statement.args) for statement in rest))
    types = {statement.dst: statement.types[0] for statement in graph.body}
    made = {name: value.contiguous() for name, value in known.items() if name in read and name in types}
    kept = tuple(param for param in graph.ins if param.name in read or captured.kinds[param.name] == "input")
    pairs = [name for name in made if types[name].dtype in PARTS]
    opened = [TorchOp(name, "ViewAsComplex", (("self", Var(_pairs(name))),), (types[name],)) for name in pairs]
    made = {_pairs(name) if name in pairs else name: x for name, x in made.items()}
    made |= {_pairs(name): parts_of(made[_pairs(name)]) for name in pairs}
    ins = kept + tuple(Param(name, dtype_name(x.dtype), tuple(x.shape)) for name, x in made.items())
    folded = with_graph(captured, TorchGraph(graph.name, ins, graph.outs, (*opened, *rest)), made)
    check_dtypes(folded)
    return folded


def _pairs(name: str) -> str:
    """Return the name of the pairs of a constant of complex numbers."""
    return f"{name}_pairs"


def _merged(graph: TorchGraph, known: dict[str, Any], rest: list[TorchOp]) -> tuple[dict[str, Any], list[TorchOp]]:
    """Merge constants of equal bits: every layer of a model computes its own view of the same values."""
    read = set().union(*(free_names(statement.args) for statement in rest)) & known.keys()
    outs = {out.name for out in graph.outs}
    first: dict[tuple[Any, ...], str] = {}
    same: dict[str, Any] = {}
    for name in (name for name in known if name in read and name not in outs):
        value = known[name]
        content = (value.dtype, tuple(value.shape), bits(value).tobytes())
        kept = first.setdefault(content, name)
        if kept != name:
            same[name] = Var(kept)
    merged = [
        statement if same.keys().isdisjoint(free_names(statement.args)) else substitute(statement, same)
        for statement in rest
    ]
    return {name: value for name, value in known.items() if name not in same}, merged


def _empty(statement: TorchOp) -> bool:
    return len(statement.types) == 1 and _without_elements(statement.types[0])


def _without_elements(kind: Any) -> bool:
    """Return whether an input or a result has no elements at a fixed shape.

    Rules handle one of every size: a tensor of numbers has one shape.
    """
    return 0 in kind.shape and not has_sizes(kind.shape)


def _nothing(dtype: str, shape: tuple[Any, ...]) -> Any:
    return torch.empty(tuple(map(int, shape)), dtype=getattr(torch, DTYPES.get(dtype, dtype)))


def _foldable(statement: TorchOp, known: dict[str, Any], largest: int) -> bool:
    if not free_names(statement.args) - DTYPES.keys() <= known.keys():
        return False
    if has_sizes((statement.args, statement.types)):
        return False  # a tensor of every size: a rule says it as a formula
    return statement.op == "Getitem" or all(math.prod(kind.shape) <= largest for kind in statement.types)


def _compute(statement: TorchOp, values: dict[str, Any]) -> Any:
    try:
        result = applied(statement, values)
    except Exception as error:
        raise DplcError(f"the constant `{statement.dst}` cannot be computed: {error}") from None
    return result.cpu() if isinstance(result, torch.Tensor) else result
