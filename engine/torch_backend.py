"""Backend of `torch.compile(model, backend="dplc")`: the parts of a program that dynamo finds, forward and backward.

A part is compiled when it is first called with tensors of some shapes, for these shapes. A length that dynamo keeps
open (`dynamic=True`, `mark_dynamic`, a second shape) is a size, and one compile serves its range
(`capture/dynamic_inputs.py`). A length that cannot be a size is compiled for each value, after a warning that says why.
AOTAutograd handles mutations and gradients (`capture/graph_parts.py`). An op that no rule supports is cut out and runs
in eager, after one warning that says how many ops, why, where, and what to do. Options that mean nothing are errors at
the first call. torch finds this backend through the entry point group `torch_dynamo_backends`.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule
from torch.utils._python_dispatch import _disable_current_modes

from ..codegen.target import Target
from ..ir.diagnostic import DplcError, UsageError, did_you_mean
from ..ir.ranges import Narrower
from .api import Compiled, choices
from .api import compile as compile_function
from .capture.convert import RandomNumbers
from .capture.dynamic_inputs import ByNumbers, Lengths, at_call, carried, fixed, guarded, is_number, numbers, without
from .capture.fx_rewrites import by_elements, entering_autocast, flattened, split_off_views, value, without_checkpoints
from .capture.graph_parts import Shares, alike, cut, joint, needs_autograd, node_at, ops, user_place
from .capture.signature import odd_layout

Function = Callable[..., Any]
MOST_SIGNATURES = 64  # of one part; a text that grows by a token a call would keep every length otherwise
# without function, example_inputs and kwargs; lengths are dynamo's to say
OPTIONS = tuple(name for name in tuple(inspect.signature(compile_function).parameters)[3:] if name != "dynamic")


DRAWN = "nothing to do: the numbers are those that PyTorch draws without dplc, from the same seed"


class EagerWarning(UserWarning):
    """Warning that a part of a program runs in eager."""


class LengthWarning(UserWarning):
    """Warning that a part of a program is compiled again for every length, or for every value of a number."""


class OptionWarning(UserWarning):
    """Warning about an option of torch.compile that dplc does not heed."""


def backend(graph: GraphModule, example_inputs: Sequence[Any], **options: Any) -> Function:
    """Return the function for a part of a program; dynamo calls this backend.

    Args:
        graph: the part.
        example_inputs: the arguments of its first call.
        options: of torch.compile, passed to `dplc.compile` (device, rules, target, settings, db, explore, exact);
            `shares` is a `Shares`, which counts the ops that are compiled and those that run in eager.

    Returns:
        A function that compiles at its first call.

    Raises:
        UsageError: if `shares` is not a `Shares`.
    """
    graph = graph if needs_autograd(graph, example_inputs) else without_checkpoints(graph)
    graph = by_elements(flattened(graph, example_inputs))
    chosen = dict(options.get("options") or {})
    shares = shares_in(chosen)
    if options.get("mode") is not None:
        _unheeded(f'mode="{options["mode"]}" means nothing to dplc', "options are {'explore': True}, and `dplc tune`")
    told: set[str] = set()

    def function(graph: GraphModule, inputs: Sequence[Any]) -> Function:
        for x in inputs:
            if isinstance(x, torch.Tensor) and (odd := odd_layout("an argument of a part", x)) is not None:
                return GraphPart(graph, chosen, told, shares=shares)._eager(graph, odd)
        if not traced:
            return GraphPart(graph, chosen, told, shares=shares)
        try:
            return joint(graph, inputs, lambda piece: GraphPart(piece, chosen, told, shares=shares))
        except DplcError as problem:
            return GraphPart(graph, chosen, told, shares=shares)._eager(graph, problem)

    if known := guarded(graph):
        return _without(known, backend(fixed(graph, known), without(example_inputs, known), **options))
    traced = needs_autograd(graph, example_inputs)
    floating = carried(graph)
    if not numbers(floating):
        return function(graph if traced else floating, example_inputs)  # AOTAutograd makes tensors of floats itself
    # with others it traces the graph with the tensors of a call: for their shapes
    if traced and any(map(has_lengths, graph.graph.nodes)):
        _warn_of_lengths(
            "it is traced for its derivative, or changes in place, and a number of it changes between calls"
        )

    def again(reader: Any, before: Any, now: Any) -> None:
        _warn_of_number(told, before, now, *_reading(reader))

    return ByNumbers(graph, function, described if traced else lambda _: (), again)


def _without(known: Container[int], function: Function) -> Function:
    return lambda *args: function(*without(args, known))


def _warn_of_lengths(why: str, more: Sequence[str] = ()) -> None:
    what = f"dplc: a part of the program is compiled anew for every length: {why}"
    warnings.warn("\n".join((what, *more)), LengthWarning, stacklevel=_to_the_user())


def _warn_of_number(told: set[str], before: Any, now: Any, *more: str) -> None:
    """Say once that a number, no length and so fixed in what is compiled, is another one than it was."""
    if "number" not in told:
        told.add("number")
        what = "a part of the program is compiled anew for every value of a number that it is called with"
        notes = "".join(f"\n  {line}" for line in (f"note: it was {before}, and is {now}", *more))
        warnings.warn(f"dplc: {what}{notes}", LengthWarning, stacklevel=_to_the_user())


def _to_the_user() -> int:
    """Return the number of frames from a warning to the user's line, beyond our own files and torch's."""
    ours = (str(Path(__file__).parent), str(Path(torch.__file__).parent))
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(ours):
        frame, level = frame.f_back, level + 1
    return level


def _reading(op: Any) -> tuple[str, ...]:
    """Return notes that say where a number is read, and what to do."""
    place = user_place(op, None)
    return (*((f"at {place}",) if place else ()), "help: an op that takes a tensor there, as products and sums do")


def _unheeded(what: str, instead: str) -> None:
    warnings.warn(f"dplc: {what}: {instead}", OptionWarning, stacklevel=_to_the_user())


class FixedLengths(DplcError):
    """Error for a graph that compiles for one length, but not for all of a range."""


class NotCompiled(Exception):
    """Error for a graph that compiles for no length.

    problem: the reason; node: the name of the op that causes it, if it is one.
    """

    def __init__(self, problem: DplcError, node: str | None):
        super().__init__(problem.what)
        self.problem, self.node = problem, node


class GraphPart:
    """Part of a program, compiled once for each signature of its arguments: ranges of its lengths, all else unchanged.

    The constructor's third argument is the set of causes with a warning so far. total: ops of the part that dynamo
    found, of which this may be a piece; shares: counts the ops that are compiled here.
    """

    def __init__(
        self,
        graph: GraphModule,
        options: dict[str, Any],
        told: set[str] | None = None,
        total: int | None = None,
        shares: Shares | None = None,
    ):
        self.graph, self.options, self.shares = graph, options, shares
        self.compiled: dict[Hashable, Function] = {}
        self.fixed_numbers: dict[int, int] = {}  # {argument: its value} of the latest compile
        self.told: set[str] = set() if told is None else told
        self.total = len(ops(graph)) if total is None else total
        self.lengths = self._lengths()
        self.by_strides = any("as_strided" in str(node.target) for node in ops(graph))  # it reads memory, not elements

    def __call__(self, *args: Any) -> Any:
        signature, lengths = self._signature(args)
        if signature not in self.compiled:
            if len(self.compiled) == MOST_SIGNATURES:
                del self.compiled[next(iter(self.compiled))]  # the oldest
            self._tell_of_numbers(args)
            with _disable_current_modes():  # AOTAutograd looks on at first calls, which torch.export does not bear
                made = self._compile(args, lengths)
            signature, _ = self._signature(args)  # a compile may narrow a range
            self.compiled[signature] = made
        return self.compiled[signature](*args)

    def _signature(self, args: Sequence[Any]) -> tuple[Hashable, Lengths | None]:
        """Return the key of a call by which it finds its compile, and the lengths that are not part of the key."""
        lengths = self.lengths
        memory = tuple(map(in_memory, args)) if self.by_strides else ()
        rows = lengths.rows(args) if lengths is not None else None
        if lengths is None or rows is None:
            return (*map(described, args), memory), None
        return (rows, *map(described, args, map(lengths.open_dimensions, range(len(args)))), memory), lengths

    def _tell_of_numbers(self, args: Sequence[Any]) -> None:
        """Say once that a whole number, no length and so fixed in what is compiled, is another one than it was."""
        lengths = {n for x in args if isinstance(x, torch.Tensor) for n in x.shape}
        given = {index: x for index, x in enumerate(args) if type(x) is int and x not in lengths}
        before, self.fixed_numbers = self.fixed_numbers, given
        index = next((index for index, x in given.items() if before.get(index, x) != x), None)
        if index is not None:
            hint = f"help: a tensor in its place: torch.tensor({given[index]})"
            _warn_of_number(self.told, before[index], given[index], hint)

    def _lengths(self) -> Lengths | None:
        """Return the open lengths of dynamo's graph, None if there are none or they cannot be sizes."""
        if not any(is_number(n) or has_lengths(n) for n in self.graph.graph.nodes if n.op == "placeholder"):
            return None
        try:
            found = Lengths(self.graph)
        except DplcError as problem:
            self._fixed(problem)
            return None
        return found if found.places else None

    def _fixed(self, problem: DplcError) -> None:
        """Say once why every length is compiled for itself."""
        if problem.what not in self.told:
            self.told.add(problem.what)
            place = user_place(node_at(self.graph, problem.span), problem.span)
            notes = (f"  note: {note}" for note in problem.notes)
            _warn_of_lengths(problem.what, (*([f"  at {place}"] if place else []), *notes))

    def _compile(self, args: Sequence[Any], lengths: Lengths | None) -> Function:
        """Return the function for such arguments.

        Raises UsageError for options that mean nothing: eager would hide them.
        """
        options = dict(self.options)
        on_gpu = any(isinstance(x, torch.Tensor) and x.is_cuda for x in args)
        options.setdefault("device", "cuda" if on_gpu else "emulator")
        options.setdefault("rows", ())  # one compile for all lengths is what was asked for
        check_options(options)
        if any(isinstance(x, torch.Tensor) and x.device.type not in ("cpu", "cuda") for x in args):
            return self._eager(self.graph, DplcError("its tensors are neither on a CPU nor on a GPU"))
        if lengths is not None:
            try:
                return self._for_all(lengths, args, options)
            except NotCompiled as error:
                bad = next((node for node in ops(self.graph) if node.name == error.node), None)
                return self._eager(self.graph, error.problem, bad)
            except FixedLengths as problem:
                self._fixed(problem)
                self.lengths = None
        elif self.lengths is not None:
            self._fixed(DplcError("a length is outside of the range that one program serves"))
        return split_off_views(self.graph, lambda graph: self._computed(graph, args, options), at_call(self.graph))

    def _for_all(self, lengths: Lengths, args: Sequence[Any], options: dict[str, Any]) -> Function:
        """Return one function for a range of every length. Raises FixedLengths, NotCompiled."""
        try:
            return self._for_rows(lengths, args, options)
        except Narrower as asked:
            if lengths.narrow(asked.size, args):
                return self._for_all(lengths, args, options)
            raise FixedLengths(asked.what, asked.span, asked.notes) from None

    def _for_rows(self, lengths: Lengths, args: Sequence[Any], options: dict[str, Any]) -> Function:
        """Return one function for the ranges as they are known. Raises Narrower if the program needs others."""
        graph, results = lengths.of_tensors(args)
        tensors = [x for index, x in enumerate(args) if index not in lengths.numbers]

        def computed(piece: GraphModule) -> Function:
            return self._sized(piece, tensors, options, lengths.dynamic(piece, args))

        return lengths.around(split_off_views(graph, computed, at_call(graph)), results)

    def _compiled(
        self, graph: GraphModule, args: Sequence[Any], options: dict[str, Any], dynamic: Any = None
    ) -> Compiled:
        """Compile a graph whose results are all computed, for such arguments. Raises DplcError."""
        with torch.no_grad():
            return compile_function(entering_autocast(graph), tuple(args), dynamic=dynamic, **options)

    def _computed(self, graph: GraphModule, args: Sequence[Any], options: dict[str, Any]) -> Function:
        """Return a function for one shape of each argument, in eager where the graph does not compile."""
        try:
            made = self._compiled(graph, args, options)
        except UsageError:  # it is about the options
            raise
        except DplcError as error:
            return self._eager(graph, error, node_at(graph, error.span))
        return self._counted(graph, made)

    def _sized(
        self, graph: GraphModule, args: Sequence[Any], options: dict[str, Any], dynamic: Mapping[str, Any]
    ) -> Function:
        """Return a function for ranges of lengths. Raises Narrower, FixedLengths, NotCompiled."""
        try:
            return self._counted(graph, self._compiled(graph, args, options, dynamic))
        except Narrower:
            raise
        except DplcError as error:
            problem = error
        try:
            self._compiled(graph, args, options)
        except UsageError:
            raise
        except DplcError:
            bad = node_at(graph, problem.span)
            raise NotCompiled(problem, bad and bad.name) from None
        raise FixedLengths(problem.what, problem.span, problem.notes, problem.hint)

    def _counted(self, graph: GraphModule, made: Compiled) -> Function:
        """Return a compiled part; the same part in eager if the counts are for compiles that do not run."""
        if self.shares is None:
            return made
        self.shares.add_compiled(made.compilation, len(ops(graph)))
        forward: Function = graph.forward
        return made if self.shares.runs else forward

    def _eager(self, graph: GraphModule, problem: DplcError, bad: Any | None = None) -> Function:
        """Return the graph in eager: the nodes like `bad` and no others, if it is known which one is the problem."""
        every = ops(graph)
        nodes = alike(graph, bad) if bad in every else set(every)
        if self.shares is not None:
            self.shares.add_eager(nodes, problem, bad, check_options(self.options))
        if problem.what not in self.told:
            self.told.add(problem.what)
            warnings.warn(self._message(problem, bad, len(nodes)), EagerWarning, stacklevel=_to_the_user())
        if len(nodes) < len(every):
            return cut(graph, nodes, lambda piece: GraphPart(piece, self.options, self.told, self.total, self.shares))
        forward: Function = graph.forward
        return forward

    def _message(self, problem: DplcError, bad: Any | None, count: int) -> str:
        share = f"all {count}" if count == self.total else f"{count} of {self.total}"
        lines = [f"dplc: {share} ops of a part of the program run in eager: {problem.what}"]
        lines += [f"  at {place}" for place in (user_place(bad, problem.span),) if place]
        lines += [f"  note: {note}" for note in problem.notes]
        hint = DRAWN if isinstance(problem, RandomNumbers) else problem.hint
        return "\n".join((*lines, *([f"  help: {hint}"] if hint else [])))


def shares_in(options: dict[str, Any]) -> Shares | None:
    """Return the `Shares` among the options of torch.compile, and remove it from them.

    Args:
        options: the options, which the function changes.

    Returns:
        The `Shares`, None if there is none.

    Raises:
        UsageError: for anything else under its name.
    """
    found = options.pop("shares", None)
    if found is not None and not isinstance(found, Shares):
        raise UsageError("the option `shares` is no dplc.Shares", hint='shares = dplc.Shares(); {"shares": shares}')
    return found


def check_options(options: Mapping[str, Any]) -> Target:
    """Return the target of some options.

    Args:
        options: as in `dplc.compile`.

    Returns:
        The target that they name, or the default.

    Raises:
        UsageError: for an option that `dplc.compile` does not have.
        DplcError: for a value without a meaning.
    """
    for name in options:
        if name not in OPTIONS:
            notes = (f"options are {', '.join(OPTIONS)}",)
            raise UsageError(f"there is no option `{name}`", notes=notes, hint=did_you_mean(name, OPTIONS))
    device, rules, target, settings = map(options.get, ("device", "rules", "target", "settings"))
    return choices(device, rules, target, settings)[1].target


def has_lengths(node: Any) -> bool:
    """Return whether a tensor of dynamo's graph has a length that is open."""
    return any(isinstance(n, torch.SymInt) for n in getattr(value(node), "shape", ()))


def in_memory(argument: Any) -> Hashable:
    """Return where the elements of an argument lie in its memory; None if it is not a tensor."""
    return (argument.stride(), argument.storage_offset()) if isinstance(argument, torch.Tensor) else None


def described(argument: Any, open_dimensions: Container[int] | None = ()) -> Hashable:
    """Return the properties of an argument that decide how a part is compiled; numbers are fixed.

    Args:
        argument: a tensor, a number, or a tuple or list of them.
        open_dimensions: the dimensions that do not decide; None for a number that a tensor gives as well.

    Returns:
        A key: equal keys share a compile.
    """
    if open_dimensions is None:
        return None
    if isinstance(argument, torch.Tensor):
        shape = tuple(None if place in open_dimensions else n for place, n in enumerate(argument.shape))
        return (shape, argument.dtype, argument.device)
    if isinstance(argument, (tuple, list)):
        return (type(argument), *map(described, argument))
    return (type(argument), argument)
