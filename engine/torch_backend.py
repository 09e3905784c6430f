"""`torch.compile(model, backend="dplc")`: the parts of a program that dynamo finds, compiled for inference.

A part is compiled when it is first called with tensors of some shapes, for these shapes. What dplc cannot compile runs
in eager, after one warning that says how much runs so, why, where, and what to do: an op that no rule supports,
gradients, results that share memory with arguments. Options that mean nothing are errors at the first call. torch
finds this through the entry point group `torch_dynamo_backends`.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..ir.diagnostic import DplcError, Span, UsageError, did_you_mean
from .api import Compiled, choices
from .api import compile as compile_function
from .front.places import is_library

Function = Callable[..., Any]
MOST_SIGNATURES = 64  # of one part; a text that grows by a token a call would keep every length otherwise
OPTIONS = tuple(inspect.signature(compile_function).parameters)[3:]  # without function, example_inputs and kwargs
AROUND = "keep it out of what is compiled, with torch.compiler.disable on the function around it: the rest compiles"


class EagerWarning(UserWarning):
    """A part of a program runs in eager."""


class OptionWarning(UserWarning):
    """An option of torch.compile that dplc does not heed."""


def backend(graph: torch.fx.GraphModule, example_inputs: Sequence[Any], **options: Any) -> Function:
    """What dynamo calls with a part of a program and gets a function for.

    options: of torch.compile, handed to `dplc.compile` (device, rules, target, settings, db, explore).
    """
    chosen = {"trace": False, **(options.get("options") or {})}
    if options.get("mode") is not None:
        _unheeded(f'mode="{options["mode"]}" means nothing to dplc', "options are {'explore': True}, and `dplc tune`")
    if not torch._dynamo.config.assume_static_by_default:
        _unheeded("dynamic=True means nothing to dplc", "every shape is compiled for itself when it is first met")
    return Part(graph, aliases(graph), chosen)


def _unheeded(what: str, instead: str) -> None:
    warnings.warn(f"dplc: {what}: {instead}", OptionWarning, stacklevel=2)


class Part:
    """A part of a program, compiled once for each signature of its arguments."""

    def __init__(self, graph: torch.fx.GraphModule, problem: str | None, options: dict[str, Any]):
        self.graph, self.problem, self.options = graph, problem, options
        self.compiled: dict[Hashable, Function] = {}
        self.told: set[str] = set()

    def __call__(self, *args: Any) -> Any:
        if torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in args):
            problem = DplcError("gradients are asked for", hint="dplc compiles inference: call it in torch.no_grad()")
            return self._eager(problem)(*args)
        signature = tuple(map(described, args))
        if signature not in self.compiled:
            if len(self.compiled) == MOST_SIGNATURES:
                del self.compiled[next(iter(self.compiled))]  # the oldest
            self.compiled[signature] = self._compile(args)
        return self.compiled[signature](*args)

    def _compile(self, args: Sequence[Any]) -> Function:
        """What runs for such arguments. Raises DplcError for options that mean nothing: eager would hide them."""
        options = dict(self.options)
        on_gpu = any(isinstance(x, torch.Tensor) and x.is_cuda for x in args)
        options.setdefault("device", "cuda" if on_gpu else "emulator")
        check_options(options)
        if self.problem is not None:
            return self._eager(DplcError(self.problem, hint="return a copy: `.clone()`"))
        if any(isinstance(x, torch.Tensor) and x.device.type not in ("cpu", "cuda") for x in args):
            return self._eager(DplcError("its tensors are neither on a CPU nor on a GPU"))
        try:
            with torch.no_grad():
                made: Compiled = compile_function(self.graph, tuple(args), **options)
        except UsageError:  # it is about the options
            raise
        except DplcError as error:
            return self._eager(error)
        return made

    def _eager(self, problem: DplcError) -> Function:
        if problem.what not in self.told:
            self.told.add(problem.what)
            warnings.warn(self._message(problem), EagerWarning, stacklevel=3)
        forward: Function = self.graph.forward
        return forward

    def _message(self, problem: DplcError) -> str:
        ops = sum(node.op.startswith("call_") for node in self.graph.graph.nodes)
        lines = [f"dplc: all {ops} ops of a part of the program run in eager: {problem.what}"]
        lines += [f"  at {place}" for place in (user_place(self.graph, problem.span),) if place]
        lines += [f"  note: {note}" for note in problem.notes]
        return "\n".join((*lines, f"  help: {problem.hint or AROUND}"))


def check_options(options: Mapping[str, Any]) -> None:
    """Raises UsageError for an option that `dplc.compile` has not, DplcError for a value that means nothing."""
    for name in options:
        if name not in OPTIONS:
            notes = (f"options are {', '.join(OPTIONS)}",)
            raise UsageError(f"there is no option `{name}`", notes=notes, hint=did_you_mean(name, OPTIONS))
    choices(*(options.get(name) for name in ("device", "rules", "target", "settings")))


def user_place(graph: torch.fx.GraphModule, span: Span | None) -> str | None:
    """Where the user wrote the op of a line of the graph's text: `model.py:12: y = conv(x)`."""
    if span is None:
        return None
    if not span.source.name.startswith("<eval_with_key>"):
        return span.location
    name = re.match(r"\s*(\w+)", span.source.line(span.line))
    node = next((node for node in graph.graph.nodes if name is not None and node.name == name[1]), None)
    frames = re.findall(r'File "(.+?)", line (\d+), in .*\n\s*(.*)', (node and node.stack_trace) or "")
    users = [frame for frame in frames if not is_library(frame[0])] or frames
    return "{}:{}: {}".format(*users[-1]) if users else None


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
