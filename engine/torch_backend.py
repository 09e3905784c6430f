"""Backend of `torch.compile(model, backend="dplc")`: the parts of a program that dynamo finds, forward and backward.

A part is compiled when it is first called with tensors of some shapes, for these shapes. A length that dynamo keeps
open (`dynamic=True`, `mark_dynamic`, a second shape) is a size, and one compile serves its range
(`capture/fx_rewrites.py`). A length that cannot be a size is compiled for each value, after a warning that says why.
AOTAutograd handles mutations and gradients. An op that no rule supports is a call of torch between kernels; what cannot
be captured, such as random numbers, is cut out and runs in eager. One warning for each cause says how many ops, why,
where, and what to do. Options that mean nothing are errors at the first call. torch finds this backend through the
entry point group `torch_dynamo_backends`.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import keyword
import operator
import re
import sys
import warnings
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import TorchDynamoException
from torch._functorch.aot_autograd import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._ops import OpOverload
from torch.fx import GraphModule, Node
from torch.fx.passes.split_module import split_module
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes, is_traceable_wrapper_subclass

from ..codegen.cache import forget_oldest
from ..codegen.target import Target
from ..ir.diagnostic import DplcError, Span, UsageError, no_such
from ..ir.ranges import Narrower
from .api import Compiled, compile as compile_function, compile_options
from .capture.decompositions import derived, table
from .capture.export import explain
from .capture.fx_rewrites import (
    CallInputs,
    Function,
    Known,
    Lengths,
    bracketed,
    by_elements,
    calls,
    carried,
    eager,
    entering_autocast,
    fixed,
    flattened,
    guarded,
    is_number,
    leaves,
    numbers,
    placeholders,
    split_off_views,
    tensors,
    value,
    without,
    without_checkpoints,
)
from .capture.places import is_library
from .capture.signature import check_layout
from .rewrite.torch_rules.lower import RandomNumbers

_SWITCHES = (torch.amp._enter_autocast, torch.amp._exit_autocast, torch._C._set_grad_enabled)


def ops(graph: GraphModule) -> list[Node]:
    """Return the nodes that compute, without switches of autocast or gradients, which torch adds to every piece."""
    return [node for node in graph.graph.nodes if node.op.startswith("call_") and node.target not in _SWITCHES]


def alike(graph: GraphModule, bad: Node) -> set[Node]:
    """Return a node and its related nodes: the same function elsewhere, and those that split its several results."""
    if bad.target is operator.getitem:  # which may be anything: a slice, a mask
        return {bad}
    found = set()
    for node in ops(graph):
        part = node.target in (operator.getitem, getattr) and node.args[0] in found
        same = (node.op, node.target) == (bad.op, bad.target)
        if same or (part and isinstance(value(node.args[0]), (tuple, list))):
            found.add(node)
    return found


def cut(graph: GraphModule, bad: set[Node], compiled: Callable[[GraphModule], Function]) -> Function:
    """Return the graph with `bad` nodes in eager and each sequence of others compiled, in the graph's order."""
    number: dict[Node, int] = {}
    for run, (_, nodes) in enumerate(itertools.groupby(list(graph.graph.nodes), bad.__contains__)):
        number |= dict.fromkeys(nodes, run)
    whole = split_module(graph, graph, number.__getitem__, keep_original_order=True)
    left = {f"submod_{number[node]}" for node in bad}
    for name, child in list(whole.named_children()):
        if name not in left and isinstance(child, GraphModule) and ops(child):
            piece = torch.nn.Module()
            piece.forward = compiled(child)
            setattr(whole, name, piece)
    return eager(whole)


def node_at(graph: GraphModule, span: Span | None) -> Node | None:
    """Return the node of a line of the graph's own text; None for a span in another text."""
    if span is None or not span.source.name.startswith("<eval_with_key>"):
        return None
    name = re.match(r"\s*(\w+)", span.source.line(span.line))
    return next((node for node in ops(graph) if name is not None and node.name == name[1]), None)


def user_place(node: Node | None, span: Span | None) -> str | None:
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


def _percent(share: float) -> str:
    """Return a share as a percentage: `100%` only for the whole."""
    return "100%" if share == 1 else f"{min(share, 0.999):.1%}"


# ---- Let AOTAutograd make forward and backward graphs without gradients and changes in place.


def needs_autograd(graph: GraphModule, inputs: CallInputs) -> bool:
    """Return whether AOTAutograd must trace a graph of dynamo's that is called with such arguments.

    It need not where the graph only computes values of plain tensors: without gradients, mutations, transforms of
    torch.func and wrapper subclasses, such as quantised weights.
    """
    wrapped = any(map(is_traceable_wrapper_subclass, pytree.tree_leaves((inputs, leaves(graph)))))
    names = (getattr(node.target, "__name__", "") for node in graph.graph.nodes)
    transforms = any(name.endswith("_increment_nesting") for name in names)  # a `vmap`, a `grad`, .. of torch.func
    return wrapped or transforms or _differentiated(graph, inputs) or changes(graph)


def _differentiated(graph: GraphModule, inputs: CallInputs) -> bool:
    """Return whether gradients flow through a call or within it, or the graph changes the gradient mode."""
    enabled, nodes = torch.is_grad_enabled(), graph.graph.nodes
    modes = [node.args[0] for node in nodes if node.target is torch._C._set_grad_enabled]
    computed = [value(node) for node in nodes if node.op.startswith("call_")]
    return modes[-1:] == [not enabled] or any(x.requires_grad for x in tensors(inputs if enabled else (), computed))


def changes(graph: GraphModule) -> bool:
    """Return whether an op of dynamo's graph mutated a tensor.

    It ran on tensors without data, and their version shows it; that of `torch._foreach_add_` only by its name.
    """
    if any(x._version for x in tensors(leaves(graph))):
        return True
    names = (node.target.__name__ for node in graph.graph.nodes if node.op == "call_function")
    return any(name.endswith("_") and not keyword.iskeyword(name[:-1]) for name in names)  # not `operator.and_`


def joint(graph: GraphModule, inputs: CallInputs, compiled: Callable[[GraphModule], Function]) -> Function:
    """Return a function that computes what `graph` does on such inputs, changes and gradients included.

    compiled: makes a function of each graph that only computes. Raises DplcError for what AOTAutograd cannot trace.
    """

    def compiler(piece: GraphModule, _: CallInputs) -> Function:
        # ops that AOTAutograd rewrites get the form that programs have: casts of numbers, and adaptive pools
        for node in calls(piece, torch.ops.prims.convert_element_type.default):
            given, dtype = node.args
            node.target, node.args, node.kwargs = aten._to_copy.default, (given,), {"dtype": dtype}
        for name in ("adaptive_avg_pool2d", "adaptive_avg_pool3d"):
            for node in calls(piece, getattr(aten, f"_{name}").default):
                node.target = getattr(aten, name).default
        piece.recompile()
        boxed: Function = make_boxed_func(compiled(piece))
        return boxed

    aten = torch.ops.aten
    copied = functools.partial(_or_left, aten.as_strided_copy.default)
    formulas = {**table(), aten.as_strided.default: _as_strided, aten.as_strided_copy.default: copied}
    wrap = aot_autograd(fw_compiler=compiler, decompositions=formulas, partition_fn=min_cut_rematerialization_partition)
    try:
        with sdpa_kernel(SDPBackend.MATH), derived():
            function: Function = wrap(graph, inputs)
    except TorchDynamoException:  # it makes dynamo start again
        raise
    except (RuntimeError, AssertionError) as error:
        raise explain(error, None) from None
    return function


def _as_strided(x: Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None = None) -> Tensor:
    """Reshape all elements in order. Dynamo guards the strides of arguments of its graphs."""
    whole = torch.empty(tuple(size), device="meta")
    if x.is_contiguous() and not offset and x.numel() == whole.numel() and tuple(stride) == whole.stride():
        return x.view(size)
    return _or_left(torch.ops.aten.as_strided.default, x, size, stride, offset)


def _or_left(op: OpOverload, *arguments: object) -> Tensor:
    """Apply the formula of an op. An op that the formula refuses stays in the graph, for the part that compiles it."""
    try:
        return table()[op](*arguments)
    except DplcError:
        return NotImplemented


# ---- Compile the parts of a program.


MOST_VALUES = 64  # of the numbers of one graph; older ones are forgotten
MOST_SIGNATURES = 64  # of one part; a text that grows by a token a call would keep every length otherwise
# without function, example_inputs and kwargs; lengths are dynamo's to say
OPTIONS = tuple(name for name in tuple(inspect.signature(compile_function).parameters)[3:] if name != "dynamic")


PER_LENGTH = "a part of the program is compiled again for every length: "
DRAWN = "nothing to do: the numbers are those that PyTorch draws without dplc, from the same seed"


class EagerWarning(UserWarning):
    """Warning that a part of a program runs in eager."""


class LengthWarning(UserWarning):
    """Warning that a part of a program is compiled again for every length, or for every value of a number."""


class OptionWarning(UserWarning):
    """Warning about an option of torch.compile that dplc does not heed."""


def backend(graph: GraphModule, example_inputs: CallInputs, **options: Any) -> Function:
    """Return the function for a part of a program; dynamo calls this backend.

    Args:
        graph: the part.
        example_inputs: the arguments of its first call.
        options: of torch.compile, passed to `dplc.compile` (device, rules, target, settings, db, explore, exact, tf32);
            `shares` is a `Shares`, which counts the ops that are compiled and those that run in eager.

    Returns:
        A function that compiles at its first call.

    Raises:
        UsageError: if `shares` is not a `Shares`.
    """
    graph = graph if needs_autograd(graph, example_inputs) else without_checkpoints(graph)
    graph = by_elements(flattened(bracketed(graph), example_inputs))
    chosen = dict(options.get("options") or {})
    shares = chosen.pop("shares", None)
    if shares is not None and not isinstance(shares, Shares):
        raise UsageError("the option `shares` is not a dplc.Shares", hint='shares = dplc.Shares(); {"shares": shares}')
    if options.get("mode") not in (None, "default", "reduce-overhead"):  # graphs of launches are replayed anyway
        instead = "options are {'explore': True}, and `dplc tune`"
        _warn(OptionWarning, f'mode="{options["mode"]}" means nothing to dplc: {instead}')
    warned: set[str] = set()
    part = functools.partial(GraphPart, options=chosen, warned=warned, shares=shares)

    def function(graph: GraphModule, inputs: CallInputs) -> Function:
        try:
            for x in tensors(inputs):
                check_layout("an argument of a part", x)
            return joint(graph, inputs, part) if traced else part(graph)
        except DplcError as problem:
            return part(graph)._eager(graph, problem)

    if known := guarded(graph):
        rest = backend(fixed(graph, known), without(example_inputs, known), **options)
        return lambda *args: rest(*without(args, known))
    traced = needs_autograd(graph, example_inputs)
    floating = carried(graph)
    if not numbers(floating):
        return function(graph if traced else floating, example_inputs)  # AOTAutograd makes tensors of floats itself
    # with others it traces the graph with the tensors of a call: for their shapes
    if traced and any(map(has_lengths, graph.graph.nodes)):
        why = "it is traced for its derivative, or changes in place, and a number of it changes between calls"
        _warn(LengthWarning, PER_LENGTH + why)
    readers, latest, made = numbers(graph), dict[int, float](), dict[Hashable, Function]()

    def by_numbers(*args: Known) -> Any:
        """Compile again for every value of the numbers."""
        values = {index: args[index].item() for index in readers}
        others = without(args, values)
        key = (*values.values(), described(others) if traced else ())
        if key not in made:
            _warn_of_number(warned, latest, values, readers)
            latest.update(values)
            made[key] = function(fixed(graph, values), others)
            forget_oldest(made, MOST_VALUES)
        return made[key](*others)

    return by_numbers


def _warn(
    kind: type[Warning], what: str, place: str | None = None, notes: Sequence[str] = (), hint: str | None = None
) -> None:
    """Warn at the user's line. place: the location of an op, as of `user_place`."""
    lines = [f"dplc: {what}", *([f"  at {place}"] if place else []), *(f"  note: {note}" for note in notes)]
    lines += [f"  help: {hint}"] if hint else []
    warnings.warn("\n".join(lines), kind, stacklevel=_to_the_user())


def _warn_of_number(
    warned: set[str], before: Mapping[int, float], now: Mapping[int, float], readers: Mapping[int, Sequence[Node]]
) -> None:
    """Warn once if a number that is not a length, and so is fixed in a compile, has changed.

    before, now: numbers by argument; readers: nodes of the graph that read it out of a tensor, if it is in one.
    """
    for index, n in now.items():
        if before.get(index, n) != n and "number" not in warned:
            warned.add("number")
            reader = next((user for node in readers.get(index, ()) for user in node.users), None)
            what = "a part of the program is compiled again for every value of a number that it is called with"
            hint = (
                "an op that takes a tensor there, as products and sums do"
                if readers
                else f"a tensor in its place: torch.tensor({n})"
            )
            notes = (f"it was {before[index]}, and is {n}",)
            _warn(LengthWarning, what, user_place(reader, None), notes, hint)


def _to_the_user() -> int:
    """Return the number of frames from a warning to the user's line, beyond our own files and torch's."""
    ours = (str(Path(__file__).parent), str(Path(torch.__file__).parent))
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(ours):
        frame, level = frame.f_back, level + 1
    return level


@dataclass(eq=False)
class GraphPart:
    """Part of a program, compiled once for each signature of its arguments: ranges of its lengths, all else unchanged.

    warned: causes with a warning so far. total: ops of the part that dynamo found, of which this may be a piece;
    shares: counts the ops that are compiled here.
    """

    graph: GraphModule
    options: dict[str, Any]
    warned: set[str]
    total: int | None = None
    shares: Shares | None = None

    def __post_init__(self) -> None:
        self.compiled: dict[Hashable, Function] = {}
        self.fixed_numbers: dict[int, int] = {}  # {argument: its value} of the latest compile
        self.total = len(ops(self.graph)) if self.total is None else self.total
        self.lengths: Lengths | None = None  # None also for lengths that cannot be sizes
        if any(is_number(n) or has_lengths(n) for n in placeholders(self.graph)):
            self._find_lengths()
        self.by_strides = any("as_strided" in str(x.target) for x in ops(self.graph))  # it reads memory, not elements

    def __call__(self, *args: Known) -> Any:
        signature = self._signature(args)
        if signature not in self.compiled:
            with _disable_current_modes():  # AOTAutograd looks on at first calls, which torch.export does not bear
                made = self._compile(args)
            extents = {n for x in tensors(args) for n in x.shape}
            opened = self.lengths.open if self.lengths is not None else [()] * len(args)
            given = {i: x for i, x in enumerate(args) if type(x) is int and x not in extents and opened[i] is not None}
            _warn_of_number(self.warned, self.fixed_numbers, given, {})
            self.fixed_numbers = given
            signature = self._signature(args)  # a compile may narrow a range
            self.compiled[signature] = made
            forget_oldest(self.compiled, MOST_SIGNATURES)
        return self.compiled[signature](*args)

    def _signature(self, args: CallInputs) -> Hashable:
        """Return the key of a call by which it finds its compile."""
        memory = tuple((x.stride(), x.storage_offset()) for x in tensors(args)) if self.by_strides else ()
        if self.lengths is not None and (rows := self.lengths.rows(args)) is not None:
            return (rows, *map(described, args, self.lengths.open), memory)
        return (*map(described, args), memory)

    def _find_lengths(self, values: bool = True) -> None:
        """Find the lengths of the graph. values: as of `Lengths`."""
        self.lengths = None
        try:
            found = Lengths(self.graph, values)
            self.lengths = found if found.places else None
        except DplcError as problem:
            self._fixed(problem)

    def _fix_lengths(self, problem: DplcError, lengths: Lengths) -> None:
        """Fix the whole numbers among lengths that no shape depends on, if there are any, else all lengths."""
        if lengths.values:
            self._find_lengths(values=False)
        else:
            self._fixed(problem)
            self.lengths = None

    def _fixed(self, problem: DplcError) -> None:
        """Warn once, with the reason, that each length is compiled separately."""
        if problem.what not in self.warned:
            self.warned.add(problem.what)
            place = user_place(node_at(self.graph, problem.span), problem.span)
            _warn(LengthWarning, PER_LENGTH + problem.what, place, problem.notes)

    def _compile(self, args: CallInputs) -> Function:
        """Return the function for such arguments: for a range of every length, else for these lengths.

        Raises UsageError for options that mean nothing: eager would hide them.
        """
        devices = {x.device.type for x in tensors(args)}
        device = "cuda" if "cuda" in devices else "emulator"
        options = {"device": device, "rows": (), **self.options}  # one compile for all lengths was requested
        check_options(options)
        if not devices <= {"cpu", "cuda"}:
            return self._eager(self.graph, DplcError("its tensors are neither on a CPU nor on a GPU"))
        lengths = self.lengths
        if lengths is not None and lengths.rows(args) is None:
            if lengths.values:
                self._find_lengths(values=False)
                return self._compile(args)
            self._fixed(DplcError("a length is outside of the range that one program serves"))
            lengths = None

        def computed(piece: GraphModule) -> Function:
            """Compile a piece whose results are all computed and count it, or leave it in eager.

            If `shares` counts compiles that do not run, the result is the piece in eager, too. Raises DplcError if it
            only compiles for one length.
            """
            graph, given, dynamic = piece, list(args), None
            if lengths is not None:
                graph, given = lengths.of_tensors(piece, args), lengths.carried(args)
                dynamic = lengths.dynamic(args)
            try:
                made = _made(graph, given, options, dynamic)
            except (Narrower, UsageError):  # the latter is about the options
                raise
            except DplcError as problem:
                if lengths is not None and _compiles(graph, given, options):
                    raise
                return self._eager(piece, problem)
            function: Function = made
            apart = set[Node]()
            for cause in {cause.what: cause for cause in reversed(made.compilation.called)}.values():
                bad = node_at(graph, cause.span)
                nodes = alike(graph, bad) if bad is not None else set[Node]()
                apart |= nodes
                self._tell(nodes, cause, bad)
            if self.shares is not None:
                self.shares.ops += len(ops(graph)) - len(apart)
                self.shares.seconds += made.compilation.predicted_seconds
                if not self.shares.runs:
                    function = eager(graph)
            return function if lengths is None else lambda *given: function(*lengths.carried(given))

        try:
            return split_off_views(self.graph, computed)
        except UsageError:
            raise
        except DplcError as problem:
            assert lengths is not None
            if isinstance(problem, Narrower):
                for size in problem.sizes:
                    lengths.narrowed.setdefault(size.name, []).insert(0, size)
            if not isinstance(problem, Narrower) or lengths.rows(args) is None:
                self._fix_lengths(problem, lengths)
            return self._compile(args)

    def _eager(self, graph: GraphModule, problem: DplcError) -> Function:
        """Return the graph in eager: the nodes like that of the problem and no others, if it is known which one is."""
        every, bad = ops(graph), node_at(graph, problem.span)
        nodes = set(every) if bad is None else alike(graph, bad)
        self._tell(nodes, problem, bad)
        return cut(graph, nodes, lambda x: replace(self, graph=x)) if len(nodes) < len(every) else eager(graph)

    def _tell(self, nodes: set[Node], problem: DplcError, bad: Node | None) -> None:
        """Warn once of nodes that torch computes, in eager or between kernels, and count them. bad: one of them."""
        place = user_place(bad, problem.span)
        if self.shares is not None:
            machine = check_options(self.options)
            cause = self.shares.eager.setdefault(problem.what, EagerOps(problem.what, place, problem.hint))
            cause.ops += len(nodes)
            for node in nodes:  # a launch, and its tensors moved once; the computation is not counted
                moved = tensors(*map(value, node.all_input_nodes), value(node))
                count = sum(int(x.numel()) * x.element_size() for x in moved)
                cause.seconds += machine.launch_seconds + count / machine.dram_bytes_per_second
        if problem.what not in self.warned:
            self.warned.add(problem.what)
            share = f"all {len(nodes)}" if len(nodes) == self.total else f"{len(nodes)} of {self.total}"
            what = f"{share} ops of a part of the program run in eager: {problem.what}"
            hint = DRAWN if isinstance(problem, RandomNumbers) else problem.hint
            _warn(EagerWarning, what, place, problem.notes, hint)


def _made(graph: GraphModule, args: CallInputs, options: Mapping[str, Any], dynamic: object = None) -> Compiled:
    with torch.no_grad():
        return compile_function(entering_autocast(graph), tuple(args), dynamic=dynamic, **options)


def _compiles(graph: GraphModule, args: CallInputs, options: Mapping[str, Any]) -> bool:
    """Return whether a graph compiles for the lengths of a call alone, if its options mean something."""
    try:
        _made(graph, args, options)
    except DplcError as problem:
        return isinstance(problem, UsageError)
    return True


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
            raise no_such("option", name, OPTIONS)
    device, rules, target, settings = map(options.get, ("device", "rules", "target", "settings"))
    return compile_options(device, rules, target, settings, db=False)[1].target


def has_lengths(node: Node) -> bool:
    """Return whether a tensor of dynamo's graph has a length that is open."""
    return any(isinstance(n, torch.SymInt) for n in getattr(value(node), "shape", ()))


def described(argument: object, open_dimensions: Container[int] | None = ()) -> Hashable:
    """Return the properties of an argument that decide how a part is compiled; numbers are fixed.

    Args:
        argument: a tensor, a number, or a tuple or list of them.
        open_dimensions: the dimensions that do not decide; None for a number that a tensor gives as well.

    Returns:
        A key: equal keys share a compile.
    """
    if open_dimensions is None:
        return None
    if isinstance(argument, Tensor):
        shape = tuple(None if place in open_dimensions else n for place, n in enumerate(argument.shape))
        return (shape, argument.dtype, argument.device)
    if isinstance(argument, (tuple, list)):
        return (type(argument), *map(described, argument))
    return (type(argument), argument)
