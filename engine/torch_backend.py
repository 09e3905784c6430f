"""`torch.compile(model, backend="dplc")`: the parts of a program that dynamo finds, compiled for inference.

A part is compiled when it is first called with tensors of some shapes, for these shapes. What dplc cannot compile runs
in eager, after one warning that names the reason: an op that no rule supports, gradients, results that share memory
with arguments. torch finds this through the entry point group `torch_dynamo_backends`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..ir.diagnostic import DplcError
from .api import Compiled
from .api import compile as compile_function

Function = Callable[..., Any]
MOST_SIGNATURES = 64  # of one part; a text that grows by a token a call would keep every length otherwise


class EagerWarning(UserWarning):
    """A part of a program runs in eager."""


def backend(graph: torch.fx.GraphModule, example_inputs: Sequence[Any], **options: Any) -> Function:
    """What dynamo calls with a part of a program and gets a function for.

    options: of torch.compile, handed to `dplc.compile` (device, rules, target, settings, db, explore).
    """
    chosen = {"trace": False, **(options.get("options") or {})}
    return Part(graph, aliases(graph), chosen)


class Part:
    """A part of a program, compiled once for each signature of its arguments."""

    def __init__(self, graph: torch.fx.GraphModule, problem: str | None, options: dict[str, Any]):
        self.graph, self.problem, self.options = graph, problem, options
        self.compiled: dict[Hashable, Function] = {}
        self.told: set[str] = set()

    def __call__(self, *args: Any) -> Any:
        if torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in args):
            return self._eager("gradients are asked for; dplc compiles inference (torch.no_grad())")(*args)
        signature = tuple(map(described, args))
        if signature not in self.compiled:
            if len(self.compiled) == MOST_SIGNATURES:
                del self.compiled[next(iter(self.compiled))]  # the oldest
            self.compiled[signature] = self._compile(args)
        return self.compiled[signature](*args)

    def _compile(self, args: Sequence[Any]) -> Function:
        if self.problem is not None:
            return self._eager(self.problem)
        options = dict(self.options)
        if any(isinstance(x, torch.Tensor) and x.device.type not in ("cpu", "cuda") for x in args):
            return self._eager("its tensors are neither on a CPU nor on a GPU")
        on_gpu = any(isinstance(x, torch.Tensor) and x.is_cuda for x in args)
        options.setdefault("device", "cuda" if on_gpu else "emulator")
        try:
            with torch.no_grad():
                made: Compiled = compile_function(self.graph, tuple(args), **options)
        except DplcError as error:
            return self._eager(error.what)
        return made

    def _eager(self, reason: str) -> Function:
        if reason not in self.told:
            self.told.add(reason)
            warnings.warn(f"dplc: a part of the program runs in eager: {reason}", EagerWarning, stacklevel=3)
        forward: Function = self.graph.forward
        return forward


def described(argument: Any) -> Hashable:
    """What of an argument decides how a part is compiled; numbers are fixed."""
    if isinstance(argument, torch.Tensor):
        return (tuple(argument.shape), argument.dtype, argument.device)
    return (type(argument), argument)


def aliases(graph: torch.fx.GraphModule) -> str | None:
    """Why results must stay views: one shares memory with an argument or another result. None if none does."""
    seen = {storage for node in graph.graph.nodes if node.op == "placeholder" for storage in _storages(node)}
    for node in graph.graph.nodes:
        if node.op == "output":
            for result in pytree.tree_leaves(node.args):
                storages = _storages(result) if isinstance(result, torch.fx.Node) else ()
                if not seen.isdisjoint(storages):
                    return f"result `{result.name}` shares memory with an argument or another result"
                seen.update(storages)
    return None


def _storages(node: torch.fx.Node) -> tuple[int, ...]:
    value = node.meta.get("example_value", node.meta.get("val"))
    return (value.untyped_storage()._cdata,) if isinstance(value, torch.Tensor) else ()
