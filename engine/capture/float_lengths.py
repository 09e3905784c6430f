"""Floats that a program makes of lengths (`x / n**0.5`, the scale of a resize to a given size), as tensors.

torch.export keeps such a float as Python's arithmetic of its lengths. Here a tensor without dimensions holds it, which
ops take in the place of a number: in f32, as kernels of PyTorch's do, in f64 beside f64.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from typing import Any

import sympy
import torch

from .views import value

_aten = torch.ops.aten
_OPS: dict[Any, Any] = {
    operator.add: _aten.add.Tensor, operator.sub: _aten.sub.Tensor, operator.mul: _aten.mul.Tensor,
    operator.truediv: _aten.div.Tensor, operator.pow: _aten.pow.Tensor_Tensor, operator.neg: _aten.neg.default,
    torch.sym_max: _aten.maximum.default, torch.sym_min: _aten.minimum.default, torch._sym_sqrt: _aten.sqrt.default,
    math.sqrt: _aten.sqrt.default,
}  # fmt: skip
_QUOTIENTS = ("FloatTrueDiv", "IntTrueDiv")  # torch's, of floats and of lengths


def as_tensors(program: Any) -> Any:
    """The program, whose graph is changed: ops read floats of lengths as tensors, as far as they take one there."""
    changed = False
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule) and any(map(_varies, module.graph.nodes)):
            changed |= _Floats(module.graph).run()
    if changed:
        program.graph_module.recompile()
    return program


def constant_of(n: Any) -> float | None:
    """A float made of lengths that is the same number for all of them, as reals: s / (s*2.0) is a half."""
    found = n.node.expr.replace(lambda e: type(e).__name__ == "ToFloat", lambda e: e.args[0])
    found = found.replace(lambda e: type(e).__name__ in _QUOTIENTS, lambda e: e.args[0] / e.args[1])
    found = sympy.simplify(found)
    return float(found) if found.is_number else None


def _varies(node: Any) -> bool:
    """Whether it is a float that lengths decide; one out of a tensor is an element of it."""
    number = value(node)
    if node.op != "call_function" or not isinstance(number, torch.SymFloat):
        return False
    return not any(isinstance(value(x), torch.Tensor) for x in node.all_input_nodes) and constant_of(number) is None


class _Floats:
    """The floats of one graph. known: the tensors that hold them, by number and dtype."""

    def __init__(self, graph: Any):
        self.graph = graph
        self.known: dict[tuple[Any, torch.dtype], Any] = {}

    def run(self) -> bool:
        """Let every op that takes a tensor in the place of such a float read one; whether any does."""
        readers = [node for node in self.graph.nodes if any(map(_varies, node.all_input_nodes))]
        read = [self._reads(node) for node in readers if isinstance(node.target, torch._ops.OpOverload)]
        return any(read)

    def _reads(self, user: Any) -> bool:
        taking = next(_taking_tensors(user), None)
        result = value(user)
        if taking is None or not isinstance(result, torch.Tensor):
            return False
        dtype = torch.float64 if result.dtype is torch.float64 else torch.float32
        with self.graph.inserting_before(user):
            user.target = taking
            user.args = tuple(self._held(x, dtype) if _is_float(x) else x for x in user.args)
            user.kwargs = {name: self._held(x, dtype) if _is_float(x) else x for name, x in user.kwargs.items()}
        return True

    def _held(self, number: Any, dtype: torch.dtype) -> Any:
        """The tensor that holds a number, where the reader stands that asked first."""
        key = number, dtype
        if key not in self.known:
            self.known[key] = self._made(number, dtype)
        return self.known[key]

    def _made(self, number: Any, dtype: torch.dtype) -> Any:
        arithmetic = isinstance(number, torch.fx.Node) and not isinstance(value(number), (torch.SymInt, int))
        if arithmetic and number.target is torch.sym_float:
            return self._held(number.args[0], dtype)
        if arithmetic and number.target in _OPS:
            return self._call(_OPS[number.target], tuple(self._held(x, dtype) for x in number.args), {}, dtype)
        return self._call(_aten.full.default, ((), number), {"dtype": dtype}, dtype)

    def _call(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], dtype: torch.dtype) -> Any:
        made = self.graph.call_function(op, args, kwargs)
        made.meta["val"] = torch.empty((), dtype=dtype, device="meta")
        return made


def _is_float(x: Any) -> bool:
    return isinstance(x, torch.fx.Node) and _varies(x)


def _taking_tensors(user: Any) -> Iterator[Any]:
    """The overloads of an op that take what it is given, and tensors where such floats are."""
    packet = user.target.overloadpacket
    given = {argument.name: argument for argument in user.target._schema.arguments}
    values = dict(zip(given, user.args, strict=False)) | user.kwargs
    floats = {name for name, x in values.items() if _is_float(x)}
    rest = {name for name, x in values.items() if x is not None} - floats
    for overload in (user.target, *(getattr(packet, name) for name in packet.overloads())):
        taken = {argument.name: argument for argument in overload._schema.arguments}
        if [*taken] != [*given]:
            continue
        if all(_takes_tensor(taken[n]) for n in floats) and all(taken[n].type == given[n].type for n in rest):
            yield overload


def _takes_tensor(argument: Any) -> bool:
    return str(argument.type) in ("Tensor", "Optional[Tensor]")
