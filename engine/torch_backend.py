"""`torch.compile(model, backend="dplc")`: the parts of a program that dynamo finds, forward and backward.

A part is compiled when it is first called with tensors of some shapes, for these shapes. Changes in place and gradients
are AOTAutograd's (capture/joint.py). An op that no rule supports is cut out and runs in eager, after one warning that
says how much runs so, why, where, and what to do. Options that mean nothing are errors at the first call. torch finds
this through the entry point group `torch_dynamo_backends`.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import torch

from ..ir.diagnostic import DplcError, UsageError, did_you_mean
from .api import Compiled, choices
from .api import compile as compile_function
from .capture.joint import changes, joint, wants_gradients
from .capture.numbers import ByNumbers, numbers
from .capture.partition import alike, cut, node_at, ops, user_place
from .capture.views import apart

Function = Callable[..., Any]
MOST_SIGNATURES = 64  # of one part; a text that grows by a token a call would keep every length otherwise
OPTIONS = tuple(inspect.signature(compile_function).parameters)[3:]  # without function, example_inputs and kwargs


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
    told: set[str] = set()

    def function(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Function:
        if not changes(graph) and not wants_gradients(inputs):
            return GraphPart(graph, chosen, told)
        return joint(graph, inputs, lambda piece: GraphPart(piece, chosen, told))

    return ByNumbers(graph, function) if numbers(graph) else function(graph, example_inputs)


def _unheeded(what: str, instead: str) -> None:
    warnings.warn(f"dplc: {what}: {instead}", OptionWarning, stacklevel=2)


class GraphPart:
    """A part of a program, compiled once for each signature of its arguments.

    told: causes that were warned of; total: ops of the part that dynamo found, of which this may be a piece.
    """

    def __init__(
        self,
        graph: torch.fx.GraphModule,
        options: dict[str, Any],
        told: set[str] | None = None,
        total: int | None = None,
    ):
        self.graph, self.options = graph, options
        self.compiled: dict[Hashable, Function] = {}
        self.told: set[str] = set() if told is None else told
        self.total = len(ops(graph)) if total is None else total

    def __call__(self, *args: Any) -> Any:
        signature = tuple(map(described, args))
        if signature not in self.compiled:
            if len(self.compiled) == MOST_SIGNATURES:
                del self.compiled[next(iter(self.compiled))]  # the oldest
            self.compiled[signature] = self._compile(args)
        return self.compiled[signature](*args)

    def _compile(self, args: Sequence[Any]) -> Function:
        """What runs for such arguments. Raises UsageError for options that mean nothing: eager would hide them."""
        options = dict(self.options)
        on_gpu = any(isinstance(x, torch.Tensor) and x.is_cuda for x in args)
        options.setdefault("device", "cuda" if on_gpu else "emulator")
        check_options(options)
        if any(isinstance(x, torch.Tensor) and x.device.type not in ("cpu", "cuda") for x in args):
            return self._eager(self.graph, DplcError("its tensors are neither on a CPU nor on a GPU"))
        return apart(self.graph, lambda graph: self._computed(graph, args, options))

    def _computed(self, graph: torch.fx.GraphModule, args: Sequence[Any], options: dict[str, Any]) -> Function:
        """A graph whose results are all computed. args: of any call."""
        try:
            with torch.no_grad():
                made: Compiled = compile_function(graph, tuple(args), **options)
        except UsageError:  # it is about the options
            raise
        except DplcError as error:
            return self._eager(graph, error, node_at(graph, error.span))
        return made

    def _eager(self, graph: torch.fx.GraphModule, problem: DplcError, bad: Any | None = None) -> Function:
        """The graph in eager: the nodes like `bad` and no others, if it is known which one is the problem."""
        every = ops(graph)
        nodes = alike(graph, bad) if bad in every else set(every)
        if problem.what not in self.told:
            self.told.add(problem.what)
            warnings.warn(self._message(problem, bad, len(nodes)), EagerWarning, stacklevel=3)
        if len(nodes) < len(every):
            return cut(graph, nodes, lambda piece: GraphPart(piece, self.options, self.told, self.total))
        forward: Function = graph.forward
        return forward

    def _message(self, problem: DplcError, bad: Any | None, count: int) -> str:
        share = f"all {count}" if count == self.total else f"{count} of {self.total}"
        lines = [f"dplc: {share} ops of a part of the program run in eager: {problem.what}"]
        lines += [f"  at {place}" for place in (user_place(bad, problem.span),) if place]
        lines += [f"  note: {note}" for note in problem.notes]
        return "\n".join((*lines, *([f"  help: {problem.hint}"] if problem.hint else [])))


def check_options(options: Mapping[str, Any]) -> None:
    """Raises UsageError for an option that `dplc.compile` has not, DplcError for a value that means nothing."""
    for name in options:
        if name not in OPTIONS:
            notes = (f"options are {', '.join(OPTIONS)}",)
            raise UsageError(f"there is no option `{name}`", notes=notes, hint=did_you_mean(name, OPTIONS))
    choices(*(options.get(name) for name in ("device", "rules", "target", "settings")))


def described(argument: Any) -> Hashable:
    """What of an argument decides how a part is compiled; numbers are fixed."""
    if isinstance(argument, torch.Tensor):
        return (tuple(argument.shape), argument.dtype, argument.device)
    if isinstance(argument, (tuple, list)):
        return (type(argument), *map(described, argument))
    return (type(argument), argument)
