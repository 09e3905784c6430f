"""Calls of a compiled function: inputs checked and placed, dispatch over lengths, references of the results."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import itertools
import logging
import math
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor
from torch.nn import Module

from ...codegen.arrays import listed, torch_dtype
from ...codegen.cache import forget_oldest
from ...codegen.judge import Judgement, judge
from ...codegen.kernel import Buffer, Program
from ...codegen.target import Target
from ...ir.diagnostic import DplcError, UsageError, did_you_mean
from ...ir.dtypes import DTYPES
from ...ir.expr import Size, free_names, multiple_of
from ...ir.interp import tensor as meaning, torch as torch_meaning
from ...ir.loop import For, Load, Store
from ...ir.node import immutable, nodes
from ...ir.program import Block, Kernel, Param
from ...ir.sizes import Binding, at_hint, value_of
from ...ir.substitute import with_sizes
from ...ir.tensor import Input, Output, TensorGraph, postorder
from ...ir.torch import TorchGraph
from ..capture.capture import bits, modules_of, plain_parts
from ..capture.dynamic_shapes import Dim, range_of
from ..capture.export import dtype_name
from ..capture.fx_rewrites import Function
from ..capture.precision import tf32_operators
from ..capture.signature import Capture, Tensors, check_kind, parts_of
from ..compiler import Compilation, SizePlaces, places_of_sizes
from ..cost.instruction_counts import instruction_counts
from ..kernels.kernels import Plan, Prepared
from ..language.rule import RuleSet, policy
from ..schedule.scheduling import StoredSchedules, tuned_ranges

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# ---- The function that was compiled: its parameters, and the tensors that it keeps.


Arguments = tuple[tuple[object, ...], dict[str, object]]  # (args, kwargs)


def arguments(function: Function, example_inputs: object, kwargs: Mapping[str, object] | None) -> Arguments:
    """Return (args, kwargs) of the example call, by position where possible. Raises DplcError if they do not fit."""
    if isinstance(example_inputs, Mapping):
        hint = "write `dplc.compile(f, (), kwargs=inputs)` for inputs by name, `(inputs,)` for one that is a dict"
        raise UsageError("the example inputs are a dict, which is not taken apart", hint=hint)
    args = example_inputs if isinstance(example_inputs, (tuple, list)) else (example_inputs,)
    return _bound(_signature(function), args, kwargs or {})


def _signature(function: Function) -> inspect.Signature | None:
    """Return the parameters of a function or module; None if it does not tell them."""
    try:
        return inspect.signature(function.forward if isinstance(function, Module) else function)
    except (TypeError, ValueError):
        return None


def _bound(signature: inspect.Signature | None, args: Sequence[object], kwargs: Mapping[str, object]) -> Arguments:
    """Return (args, kwargs), by position where possible. Raises DplcError for missing or unknown arguments."""
    if signature is not None:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise DplcError(f"the call does not fit: {error}", notes=(f"it takes {signature}",)) from None
        args, kwargs = bound.args, bound.kwargs
    return tuple(args), dict(sorted(kwargs.items()))  # in whatever order they are written


class Original:
    """The function that was compiled: how it is called, and the tensors that it keeps.

    Parameters and buffers of its modules are read at every call, through the module that holds them: a step of an
    optimiser, `load_state_dict`, or another parameter that replaces one all show. Other tensors that were found where
    the function keeps them are part of what was compiled.

    Args:
        captured: the program as it was captured.
        folded: the program that was compiled, whose weights are read.
    """

    def __init__(self, function: Function, captured: Capture, folded: Capture):
        self.captured, self._signature = captured, _signature(function)
        fixed = (tensor for name, tensor in captured.tensors.items() if captured.kinds[name] == "constant")
        self._versions = [(tensor, tensor._version) for tensor in fixed if not tensor.is_inference()]
        self._kinds = folded.kinds
        self._homes: dict[Param, tuple[Module, str, int]] = {}
        held = dict[Hashable, Param]()
        for param in folded.graph.ins:
            if self._kinds[param.name] in ("parameter", "buffer"):
                tensor = folded.tensors[param.name]
                held |= {id(tensor): param, _place(tensor): param}
        for module in (module for root in modules_of(function).values() for module in root.modules()):
            named = *module.named_parameters(recurse=False), *module.named_buffers(recurse=False), *vars(module).items()
            for attribute, tensor in named:
                for index, part in enumerate(_read(tensor)):
                    found = held.get(id(part) if part is tensor else _place(part))
                    if found is not None:
                        self._homes.setdefault(found, (module, attribute, index))

    def bind(self, args: Sequence[object], kwargs: Mapping[str, object]) -> Arguments:
        """Return (args, kwargs) of a call: named arguments move to their positions, if the function has a signature.

        Raises DplcError for missing or unknown arguments, and if a fixed tensor has changed since the compile.
        """
        if any(tensor.is_meta for tensor, _ in self._versions):
            raise DplcError("a tensor that the function found outside of its arguments is on the meta device")
        if any(tensor._version != version for tensor, version in self._versions):
            what = "a tensor that the function found outside of its arguments has changed since it was compiled"
            raise DplcError(what, hint="compile again; or pass it as an argument, or register it as a buffer")
        return _bound(self._signature, args, kwargs)

    def weights(self) -> Tensors:
        """Return {name: tensor} as of now. Raises DplcError for a tensor whose dtype or shape has changed."""
        found = {}
        for param, (module, attribute, index) in self._homes.items():
            parts = _read(getattr(module, attribute, None))
            found[param.name] = parts[index] if index < len(parts) else None
            label = f"{self._kinds[param.name]} `{param.name}`"
            check_tensor(label, found[param.name], param.dtype, param.shape)
        return found


def _place(tensor: Tensor) -> Hashable:
    """Return address, layout and dtype of a tensor. They identify a part of a weight across readings."""
    return tensor.data_ptr(), tensor.shape, tensor.dtype


def _read(weight: Tensor | None) -> tuple[Tensor | None, ...]:
    """Return the tensors that a program reads of a weight: pairs for complex numbers, parts for a wrapper subclass."""
    if not isinstance(weight, Tensor):
        return (weight,)
    return tuple(parts_of(part) if part.is_complex() else part for part in plain_parts(weight))


# ---- Checks of the tensors of a call.


def check_arguments(captured: Capture, inputs: Tensors, sizes: Binding) -> None:
    """Raise DplcError for an argument that is not a tensor, or not of the dtype and shape that was compiled."""
    for param in captured.graph.ins:
        if param.name in inputs:
            label, tensor = f"argument `{param.name}`", inputs[param.name]
            if isinstance(tensor, Tensor) and tensor.requires_grad and torch.is_grad_enabled():
                what = f"gradients are wanted of {label}; what dplc compiles is inference"
                raise DplcError(what, hint="call it within torch.no_grad(), or pass a detached tensor")
            check_tensor(label, tensor, param.dtype, [value_of(n, sizes) for n in param.shape])
            wanted = captured.strides.get(param.name)  # if the program reads the memory of the argument
            if wanted is not None:
                if (given := tuple(tensor.stride())) != wanted:
                    what = f"{label} has the strides {given}, not {wanted}, by which the program reads its memory"
                    raise DplcError(what, hint="pass `.contiguous()`, or compile it for such a tensor")
                if tensor.storage_offset():
                    what = f"{label} is a part of another tensor's memory, and the program reads its memory"
                    raise DplcError(what, hint="pass `.clone()`")


def check_tensor(what: str, value: object, dtype: str, shape: Sequence[int]) -> None:
    """Raise DplcError unless `value` is a tensor of this dtype (by our name) and shape, with elements."""
    expected = f"{dtype}{list(shape)}"
    if not isinstance(value, Tensor):
        numpy = type(value).__module__ == "numpy"
        found = "a numpy array" if numpy else f"of the type {type(value).__name__}"
        hint = "pass torch.from_numpy(..)" if numpy else None
        raise DplcError(f"{what} must be a tensor, {expected}; it is {found}", hint=hint)
    check_kind(what, value)
    found = f"{dtype_name(value.dtype)}{list(value.shape)}"
    if found != expected:
        hint = "shapes and dtypes are part of what was compiled: compile again for others"
        raise DplcError(f"{what} must be {expected}; it is {found}", hint=hint)
    if value.is_meta:
        raise DplcError(f"{what} is on the meta device: it has no elements")


def sizes_of_call(places: SizePlaces, inputs: Tensors) -> dict[str, int]:
    """Return the sizes of a call, from the shapes of its tensors.

    Raises DplcError for a length that was not compiled, and for two that must agree.
    """
    found: dict[str, int] = {}
    for name, dimension, size in places:
        shape = getattr(inputs.get(name), "shape", ())
        if dimension < len(shape) and shape[dimension] != found.get(size.name):  # `check_tensor` looks at the rank
            length, where = shape[dimension], f"dimension {dimension} of `{name}`"
            if size.name in found:
                first = next(f"dimension {d} of `{n}`" for n, d, other in places if other.name == size.name)
                what = f"`{size.name}` is {found[size.name]} ({first}) and {length} ({where})"
                raise DplcError(f"{what}: they must agree", hint="dimensions of one name have one length in a call")
            check_length(size, length, f" ({where})")
            found[size.name] = length
    return found


def check_length(size: Size, length: int, where: str = "") -> None:
    """Raise DplcError for a length that was not compiled. where: names its dimension in the message."""
    if not size.low <= length <= size.high or length % size.multiple:
        low, high = min(size.low, length), max(size.high, length)
        step = f", multiple={size.multiple}" if size.multiple > 1 and not length % size.multiple else ""
        hint = f'compile it for a wider range: dplc.Dim("{size.name}", {low}, {high}{step})'
        hint = hint if length else "a length is 1 or more: where there is nothing to compute, leave the call out"
        raise DplcError(f"`{size.name}` is {length}{where}; compiled for {range_of(size)}", hint=hint)


# ---- Devices of the tensors of a call.


def gpu_of(where: Mapping[str, torch.device]) -> int | None:
    """Return the GPU that tensors lie on, by name; None if all of them are on the CPU. Raises DplcError for several."""
    found: dict[int, str] = {}
    for name, device in where.items():
        if device.type == "cuda":
            found.setdefault(device.index or 0, name)
    if len(found) > 1:
        places = " and ".join(f"`{name}` is on cuda:{index}" for index, name in itertools.islice(found.items(), 2))
        raise DplcError(f"{places}: a program runs on one GPU", hint="move them to the same device")
    return next(iter(found), None)


def devices_of(function: Function, values: Iterable[object]) -> dict[str, torch.device]:
    """Return the devices of example inputs and of the weights of a function's modules, by a name for messages."""
    leaves = torch.utils._pytree.tree_leaves(list(values))
    found = {f"input {place}": leaf.device for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)}
    for root in modules_of(function).values():
        found |= {name: tensor.device for name, tensor in (*root.named_parameters(), *root.named_buffers())}
    return found


class Placing:
    """Moves what a program reads from the CPU to a GPU: inputs at every call, everything else once.

    What was moved is moved again when it is another tensor, or torch counted a change of it (a write through `.data` is
    not counted). kinds: of the program's arrays, as a capture has them.
    """

    def __init__(self, kinds: Mapping[str, str]):
        self._kinds = kinds
        self._moved: dict[tuple[str, torch.device], tuple[Tensor, int, Tensor]] = {}

    def place(self, tensors: Tensors, device: torch.device) -> tuple[dict[str, Tensor], tuple[str, ...]]:
        """Return the tensors, those on the CPU moved to `device`, and notes that say which inputs this call moved."""
        placed, moved = dict(tensors), list[str]()
        for name, tensor in tensors.items():
            if tensor.device.type != "cpu" or device.type == "cpu":
                continue
            if self._kinds.get(name, "input") == "input":
                placed[name] = tensor.to(device)
                moved.append(name)
                continue
            original, version, _ = self._moved.get((name, device), (None, 0, None))
            if original is not tensor or version != tensor._version:
                self._moved[name, device] = tensor, tensor._version, tensor.detach().to(device)
            placed[name] = self._moved[name, device][2]
        return placed, (f"moved from the CPU to {device}: {listed(moved)}",) if moved else ()


# ---- Kinds of the options of `dplc.compile`.


def _is(*kinds: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, kinds)


def _are_rules(value: object) -> bool:
    if isinstance(value, (Path, RuleSet)):
        return True
    if not isinstance(value, Iterable) or isinstance(value, (bytes, Mapping)):
        return False
    return all(isinstance(each, (str, Path)) for each in value)


def _are_settings(value: object) -> bool:
    return isinstance(value, Mapping) and all(map(_is(str), value)) and all(map(_is(Mapping), value.values()))


SWITCHES = ("trace", "explore", "exact")
KINDS: dict[str, tuple[Callable[[object], bool], str]] = {
    "device": (_is(str), "a name: cuda, cuda:N, emulator, reference"),
    "rules": (_are_rules, "a rule file or folder, several, or a `dplc.Rules`"),
    "target": (_is(str, Target), "the name of an architecture or a device"),
    "settings": (_are_settings, "a dict: {rule: {parameter: value}}"),
    "db": (_is(bool, str, Path), "the file of a store, or False"),
    "tf32": (_is(str), "auto, on or off"),
    "calls": (_is(str), "missing or none"),
    **dict.fromkeys(SWITCHES, (_is(bool), "True or False")),
}


def check_kinds(**options: object) -> None:
    """Raise UsageError for an option of a wrong type. None is an option that is not given."""
    for name, value in options.items():
        fits, words = KINDS[name]
        if (value is not None or name in SWITCHES) and not fits(value):
            raise UsageError(f"{name}={value!r:.60} is a {type(value).__name__}", hint=f"it takes {words}")


# ---- Weights that loading computes, in float64, rounded once to their dtype.
#
# `p.data` and numpy views change weights without a trace in the tensor, so each run compares their contents.


WHOLE = 1 << 16  # bytes of a tensor on a device that are looked at one by one
SPREAD = 4096  # elements that are looked at of a larger one


class Preparation:
    """Prepared weights, computed when they are first needed and again when a weight has changed.

    Compiles of parts of a size's range that prepare the same weight share it.
    """

    def __init__(self) -> None:
        self._kept: dict[Prepared, tuple[Hashable, Tensor]] = {}  # the tensors it was computed from, and the tensor

    def now(self, prepared: Iterable[Prepared], tensors: Tensors) -> Tensors:
        """Return {name: tensor} of the prepared weights of a program, given the others."""
        return {each.input.name: self._made(each, tensors) for each in prepared}

    def _made(self, each: Prepared, tensors: Tensors) -> Tensor:
        ins = tuple(term for term in postorder((each.value,)) if isinstance(term, Input))
        given = {x.name: tensors[x.name] for x in ins}
        version = tuple((id(t), t.data_ptr(), t._version, contents(t, t.is_cuda)) for t in given.values())
        known, made = self._kept.get(each, (None, None))
        if known != version:
            graph = TensorGraph("load", ins, (Output(each.input.name, each.input.axes, each.value),))
            data = in_float64({name: tensor.detach().cpu().squeeze() for name, tensor in given.items()})
            (value,) = meaning.run(graph, data, partial=True)  # a piece of a join is read within its own range alone
            device = tensors[ins[0].name].device
            made = torch.from_numpy(value.copy()).to(torch_dtype(each.input.dtype)).to(device)
            self._kept[each] = version, made
        return made


def contents(tensor: Tensor, on_device: bool) -> bytes:
    """Return a digest of a tensor: of all of it, or of a sample of its elements if it is large and must be fetched.

    A single element of a weight on a device, written through `.data`, may be missed; a loader or an average may not.
    """
    flat = tensor.detach().reshape(-1)
    if on_device and flat.numel() * flat.element_size() > WHOLE:
        flat = flat[:: flat.numel() // SPREAD]
    return hashlib.blake2b(bits(flat), digest_size=16).digest()


def random_tensor(dtype: str, shape: Sequence[int], generator: torch.Generator, below: int) -> Tensor:
    """Return floats of a normal distribution, or whole numbers from 0 that are below a bound."""
    kind, size = torch_dtype(dtype), tuple(shape)
    if kind.is_floating_point:
        return torch.randn(size, generator=generator).to(kind)
    return torch.randint(0, below, size, generator=generator).to(kind)


def in_float64(tensors: Tensors) -> Tensors:
    """Return tensors as arrays for an interpreter, floats in float64."""
    return {name: (x.double() if x.dtype.is_floating_point else x).numpy() for name, x in tensors.items()}


# ---- References of the judge: a program of the user's own ops in float64, and as PyTorch computes it in eager.


Run = Callable[[TorchGraph, dict[str, Tensor]], list[Tensor]]


def run_reference(captured: Capture, tensors: Tensors, run: Run = torch_meaning.run) -> list[Tensor]:
    """Return the outputs of a program, of the user's own ops, in float64; integers and bools exact.

    Where capture decomposed an op, the reference is PyTorch's kernel of that op, not the decomposition: except for ops
    without a float64 kernel. run: computes the outputs of a graph without sizes.
    """
    if captured.written and (own := captured.written()) is not None:
        graph, known = own[0], {**own[1], **tensors}
        # a buffer without data was read at capture: only the captured program has what was computed from it
        if not any(known[param.name].is_meta for param in graph.ins):
            with contextlib.suppress(DplcError):  # no kernel for the dtype
                return run(_at_sizes_of(graph, tensors), known)
    return run(_at_sizes_of(captured.graph, tensors), {**tensors})


ROUNDINGS = 16  # references with errors of rounding: a step that a quarter of them takes is missed once in a hundred


def judge_program(
    captured: Capture,
    tensors: Tensors,
    results: Sequence[Tensor],
    eager: Sequence[Tensor] | None,
    target: Target | None = None,
    gates: Mapping[str, float] | None = None,
    references: Sequence[Tensor] = (),
) -> Judgement:
    """Judge the outputs of a program for a target, by default one without TF32. gates, references: see `judge`.

    Where tensor cores multiply in TF32, eager does too: as torch on that device, whatever `eager` says. Where an
    element is wrong, errors of rounding are drawn for every op of the references.
    """
    tf32 = tf32_operators(target) if target else frozenset[str]()
    if target and any(op.op in tf32 for op in captured.graph.body):
        eager = run_eager(captured, tensors, target)
    meaning = partial(torch_meaning.run, tf32=tf32)
    rounded = (run_reference(captured, tensors, partial(meaning, seed=seed)) for seed in range(ROUNDINGS))
    return judge(results, references or run_reference(captured, tensors), eager, gates, rounded)


def run_eager(captured: Capture, tensors: Tensors, target: Target) -> list[Tensor]:
    """Return the outputs as torch computes them on a target, one op after the other in its own dtypes or in TF32."""
    return run_reference(captured, tensors, partial(torch_meaning.evaluated, wide=False, tf32=tf32_operators(target)))


def _at_sizes_of(graph: TorchGraph, tensors: Tensors) -> TorchGraph:
    """Return a captured program with the sizes of its inputs."""
    return with_sizes(graph, sizes_of_call(places_of_sizes(graph.ins), tensors))


# ---- Dispatch of one program over several ranges: compiles for parts of the range of a size, and the table of calls.
#
# A row is a refinement of sizes (low, high, multiple, hint). The same captured program is compiled for it when a call
# first needs it. The first row that admits a call wins. The program of the whole range follows the last row.

LOG = logging.getLogger("dplc")
Row = tuple[Dim, ...]  # conditions on sizes, all of which hold; the Dims' hints are what the row is compiled for
Wanted = bool | Sequence[Dim | Sequence[Dim]] | None  # as `rows=` of `dplc.compile`
Make = Callable[[Capture], Compilation]  # compiles a capture whose sizes are narrower


def row_for(rows: Sequence[Row], sizes: Binding) -> int | None:
    """Return the index of the first row that admits such sizes; None if only the whole range does."""
    return next((n for n, row in enumerate(rows) if all(dim.admits(sizes[dim.name]) for dim in row)), None)


def requested_rows(rows: Wanted, whole: Compilation, make: Make, schedules: StoredSchedules | None) -> tuple[Row, ...]:
    """Return the rows of `rows=`: Dims, or tuples of Dims of several sizes; True for those of a store and of the model.

    whole: the program compiled for the full range. Raises UsageError for an invalid row.
    """
    sizes = whole.sizes
    if rows is True:
        tuned = stored_rows(whole, schedules) if schedules is not None else ()
        return (*tuned, *_trimmed(default_rows(whole, make), tuned))
    given = rows if isinstance(rows, Sequence) else (None,)
    found = tuple(tuple(row) if isinstance(row, (tuple, list)) else (row,) for row in given)
    for dim in itertools.chain(*found):
        if not isinstance(dim, Dim):
            what = "rows= is a list of Dims, each a part of a size's range"
            raise UsageError(what, hint='rows=[dplc.Dim("s", 1, 64)]')
        size = sizes.get(dim.name)
        if size is None:
            notes = (f"its sizes are {', '.join(sizes) or 'none'}",)
            raise UsageError(f"rows= names `{dim.name}`, no size", notes=notes, hint=did_you_mean(dim.name, sizes))
        if dim.low < size.low or dim.high > size.high:
            raise UsageError(f"a row of `{dim.name}` is {dim.range}, outside of {size.low}..{size.high}")
    return found


def stored_rows(whole: Compilation, schedules: StoredSchedules) -> tuple[Row, ...]:
    """Return the parts of the range for which a store has schedules that are faster than the default order.

    These are the parts that gain most, the narrowest first, for the first row that holds serves a call.
    """
    gains = dict[Row, float]()
    for kernel in whole.plan.kernels:
        for row, gain in tuned_ranges(schedules, kernel, whole.compiler.tools.rules, whole.target):
            gains[row] = max(gain, gains.get(row, 0))

    def width(row: Row) -> tuple[int, list[int]]:
        lengths = (dim.high // dim.multiple - (dim.low - 1) // dim.multiple for dim in row)
        return math.prod(lengths), [dim.low for dim in row]

    most = sorted(gains, key=lambda row: -gains[row])[: policy(whole.target).most_ranges]
    return tuple(sorted(most, key=width))


def default_rows(whole: Compilation, make: Make) -> list[Dim]:
    """Return the default parts of the range: of one size its octaves, of several none, for these multiply.

    Where rows of memory are as long as the size and the model says that vectors pay, lengths in whole vectors have rows
    of their own, and the lengths between them fewer.
    """
    if len(whole.sizes) != 1:
        return []
    (size,), target = whole.sizes.values(), whole.target
    numbers, lanes = policy(target), target.vector_bytes // DTYPES["f32"].item_bytes
    found = octaves(size, target)
    vectors = _of_vectors(whole, size, math.lcm(size.multiple, lanes))
    if vectors is not None:  # if they pay by the instructions that the model counts at the hint
        narrow, binding = make(narrowed(whole.captured, (vectors,), whole.sizes)), {size.name: vectors.hint}
        usual, fewer = (
            sum(count.issued * count.blocks for count in map(instruction_counts, with_sizes(kernels, binding)))
            for kernels in (whole.kernels, narrow.kernels)
        )
        if fewer <= numbers.worth_of_vectors * usual:
            long = [end for end in numbers.range_ends if end >= target.warp_lanes * lanes]  # else a lane has one vector
            found = [*_between(vectors, long), *_between(size, numbers.range_ends[::2])]  # coarser, for single elements
    return found[: numbers.most_ranges]


def _of_vectors(whole: Compilation, size: Size, step: int) -> Dim | None:
    """Return the lengths in whole vectors, if most data of the kernels lies in rows as long as a size."""
    low, high = max(size.low, policy(whole.target).vectors_from), size.high // step * step
    params = [param for kernel in whole.plan.kernels for param in kernel.params]
    ragged = [p for p in params if size in nodes((p.shape[-1],), Size) and multiple_of(p.shape[-1]) % step]
    if low > high or not ragged or 2 * sum(map(_bytes, ragged)) < sum(map(_bytes, params)):
        return None
    return Dim(size.name, low, size.high, step, hint=min(max(size.hint // step * step, -(-low // step) * step), high))


def _bytes(param: Param) -> float:
    return float(DTYPES[param.dtype].item_bytes * math.prod(map(at_hint, param.shape)))


def octaves(size: Dim | Size, target: Target) -> list[Dim]:
    """Return the parts of a range that suit products and norms of as many rows."""
    return list(_between(size, policy(target).range_ends))


def _between(size: Dim | Size, ends: Sequence[int]) -> Iterator[Dim]:
    """Yield the parts of a range that end at `ends`."""
    within = [end for end in ends if size.low <= end < size.high]
    for before, end in itertools.pairwise((size.low - 1, *within, size.high)):
        yield from _part(size, before + 1, end)


def _part(size: Dim | Size, low: int, high: int) -> Iterator[Dim]:
    """Yield a part of a range, unless it has no length, with its greatest length as the hint."""
    greatest = high // size.multiple * size.multiple
    if low <= greatest:
        yield Dim(size.name, low, high, size.multiple, hint=greatest)


def _trimmed(usual: Iterable[Dim], first: Sequence[Row]) -> Iterator[Row]:
    """Yield the default rows of one size, without the ends that preceding rows serve."""
    for dim in usual:
        low, high = dim.low, dim.high
        whole = [one for (one,) in sorted(first, key=lambda row: row[0].low) if not dim.multiple % one.multiple]
        for one in whole:
            low = one.high + 1 if one.low <= low <= one.high else low
        for one in reversed(whole):
            high = one.low - 1 if one.low <= high <= one.high else high
        yield from zip(_part(dim, low, high), strict=True)


class Rows:
    """Compiles of a program by row, each created when it is first needed.

    whole: that of the full range; make: compiles a capture whose sizes are narrower; made: the compiles that calls
    needed so far.
    """

    def __init__(self, whole: Compilation, rows: Sequence[Row], make: Make):
        self.whole, self.rows, self._make = whole, tuple(rows), make
        self.made: dict[Row, Compilation] = {}

    def place(self, sizes: Binding) -> int | None:
        """Return the index of the row that serves a call with such sizes; None if only the whole range does."""
        return row_for(self.rows, sizes)

    def at(self, sizes: Binding) -> Compilation:
        """Return the compile that serves a call with such sizes."""
        place = self.place(sizes)
        return self.whole if place is None else self.compiled(self.rows[place])

    def compiled(self, row: Row) -> Compilation:
        """Return the compile of a row."""
        if row not in self.made:
            start = time.perf_counter()
            self.made[row] = self._make(narrowed(self.whole.captured, row, self.whole.sizes))
            ranges = ", ".join(f"{dim.name}: {dim.range}" for dim in row)
            LOG.info(f"compiled for {ranges} in {(time.perf_counter() - start) * 1e3:.0f} ms")
        return self.made[row]

    def compile_all(self) -> None:
        """Compile ahead what calls would compile."""
        for row in self.rows:
            self.compiled(row)

    @property
    def table(self) -> list[dict[str, object]]:
        """Dispatch as data: conditions in order, of which the first that holds decides, each with its plan."""
        names = ("name", "low", "high", "multiple")
        return [
            {"when": [{name: getattr(dim, name) for name in names} for dim in row], "plan": place}
            for place, row in enumerate((*self.rows, ()))
        ]


class Served:
    """Base of compiled functions and models: rows hold the compile of the whole range, and those of its parts."""

    rows: Rows

    @property
    def compilation(self) -> Compilation:
        """The compile of the whole range."""
        return self.rows.whole

    @property
    def program(self) -> Program:
        return self.compilation.program

    def ir(self, stage: str) -> str:
        """Return the program's text at a stage: torch, tensor, loop, tile, kernel, cuda. Raises UsageError."""
        return self.compilation.ir(stage)

    @property
    def cuda(self) -> str:
        return self.compilation.cuda


# ---- Calls, bound once for each combination of dtypes and shapes.


MOST_KEPT = 64  # kinds of arguments whose launches are kept, as many as a compile keeps of bindings
ShapedArray = tuple[str, tuple[int, ...], list[int]]  # name, shape, and this without dimensions of size 1


@immutable
class BoundCall:
    """Compile that serves arguments of one kind, looked up once something is launched."""

    sizes: Binding
    rows: Rows

    @cached_property
    def launch(self) -> tuple[Compilation, Program, tuple[ShapedArray, ...], tuple[Buffer, ...]]:
        """The compile, its launches with the arrays that they take, and the outputs with torch's shapes."""
        made = self.rows.at(self.sizes)
        program = made.at(self.sizes)
        buffers = (*program.inputs, *program.constants)
        arrays = tuple((b.name, tuple(b.shape), [n for n in b.shape if n != 1]) for b in buffers)
        return made, program, arrays, made.outputs_at(self.sizes)


def bound_call(rows: Rows, inputs: Tensors, kept: dict[Hashable, BoundCall]) -> BoundCall:
    """Return the compile that serves these arguments, {input: tensor}. Raises DplcError if they do not fit.

    They are checked and bound when their kind comes first, and looked up then: so a call of a program with sizes costs
    what one without costs. kept: the calls so far by kind, which belong to the caller.
    """
    kind = None if rows.whole.captured.strides else _kind(inputs)
    found = kept.get(kind)
    if found is None:
        sizes = sizes_of_call(rows.whole.inputs_with_sizes, inputs)
        check_arguments(rows.whole.captured, inputs, sizes)
        found = BoundCall(sizes, rows)
        if kind is not None:
            kept[kind] = found
            forget_oldest(kept, MOST_KEPT)
    return found


def _kind(inputs: Tensors) -> Hashable | None:
    """Return classes, layouts, dtypes and shapes; None if every call needs further checks."""
    kind = []
    for given in inputs.values():
        if not isinstance(given, Tensor) or given.requires_grad or given.is_meta:
            return None
        kind.append(((type(given), given.layout, given.dtype), given.shape))
    return tuple(kind)


# ---- A program with other sizes: narrower ones, or numbers.

Record = TypeVar("Record", bound="DataclassInstance")


def narrowed(captured: Capture, row: Iterable[Dim], sizes: Mapping[str, Size]) -> Capture:
    """Return the program with narrower sizes; a size of one number becomes that number."""
    return _at(captured, {**sizes, **{dim.name: dim.number() for dim in row}}, "graph")


def at_binding(made: Compilation, sizes: Binding, captured: Capture | None = None) -> Compilation:
    """Return what serves a call with such sizes. captured: the program with the inputs of the call."""
    program = made.at(sizes)
    return replace(
        _at(made, sizes, "tensor", "tile", "kernels"),
        captured=_at(captured or made.captured, sizes, "graph"),
        plan=_at(made.plan, sizes, "kernels", "inputs", "outputs", "temporaries", "results", "calls"),
        cuda_kernels=program.distinct_kernels(),
        program=program,
        bounds=tuple(_at(bound, sizes, "term", "low", "end") for bound in made.bounds),
    )


def _at(record: Record, sizes: Mapping[str, Size | int], *fields: str) -> Record:
    """Return a record whose fields have other sizes, or numbers for them."""
    return replace(record, **{name: with_sizes(getattr(record, name), sizes) for name in fields})


# ---- Outputs that share the memory of an input, where the index maps of the kernels permit it.
#
# In Loop IR a kernel says which elements it reads and writes. An output may share an input's memory if no launch reads
# the input once the output is being written. The only exception is the kernel that writes the output, if it reads of
# the input only the very element that it stores next, in the same iteration of the same loops. No schedule changes
# that: an iteration's loads precede its store, and an element that another thread has staged in shared memory was read
# before a barrier. Kernel text calls such an input read-only, which is as good as true: no element that a thread reads
# has been written in this launch.


def with_aliases(compilation: Compilation, wanted: Iterable[str]) -> Compilation:
    """Return the compilation with each output in the memory of an input, where the kernels permit it.

    wanted: the name of an input for every output, in order.
    """
    plan = compilation.plan
    names = [output.name for output in plan.outputs]
    aliases = {name: one for name, one in zip(names, wanted, strict=True) if refusal(plan, name, one) is None}
    return replace(compilation, program=replace(compilation.program, aliases=aliases))


def refusal(plan: Plan, output: str, source: str) -> str | None:
    """Return why an output may not share the memory of an input; None if it may."""
    inputs, outputs = ({p.name: (p.dtype, p.shape) for p in params} for params in (plan.inputs, plan.outputs))
    if source not in inputs:
        return f"there is no input `{source}`"
    if inputs[source] != outputs[output]:
        return "they differ in dtype or shape"
    if any(source in [param.name for param in call.given] for call in plan.calls):
        return f"a call of torch reads `{source}`"
    written = ""
    for kernel in plan.kernels:
        reads, writes = (
            name in [param.name for param in params] for name, params in ((source, kernel.ins), (output, kernel.outs))
        )
        if written and writes:
            return f"both `{written}` and `{kernel.name}` write `{output}`"
        if written and reads:
            return f"`{kernel.name}` reads `{source}` when `{written}` has written `{output}`"
        if writes:
            written = kernel.name
            if reads and (reason := _reads_elsewhere(kernel, output, source)):
                return reason
    return None if written else f"no kernel writes `{output}`"


def _reads_elsewhere(kernel: Kernel, output: str, source: str) -> str | None:
    """Return why a kernel that writes the output reads of the input more than the element that it is about to store."""
    accesses = list(_accesses(kernel.body, {}, itertools.count()))
    stores = [one for one in accesses if isinstance(one[0], Store) and one[0].buf == output]
    if len(stores) != 1:
        return f"`{kernel.name}` stores `{output}` at {len(stores)} places"
    ((store, last, around),) = stores
    if free_names(store.idx) != around.keys():
        return f"`{kernel.name}` stores elements of `{output}` that its loops do not tell apart"
    for load, place, loops in accesses:
        if isinstance(load, Load) and load.buf == source:
            if load.idx != store.idx or not around.items() <= loops.items():
                return f"`{kernel.name}` reads `{source}` at another element than it writes `{output}`"
            if place > last:
                return f"`{kernel.name}` reads an element of `{source}` after it has written it"
    return None


def _accesses(
    block: Block, loops: Mapping[str, int], places: Iterator[int]
) -> Iterator[tuple[Load | Store, int, Mapping[str, int]]]:
    """Yield loads and stores, with their places in the text and {variable: the place of the loop that binds it}."""
    for place, statement in zip(places, block):
        if isinstance(statement, (Load, Store)):
            yield statement, place, loops
        bound = {**loops, statement.var: place} if isinstance(statement, For) else loops
        yield from _accesses(getattr(statement, "body", ()), bound, places)
