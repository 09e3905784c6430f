"""Calls of a compiled function: inputs checked and placed, dispatch over lengths, references of the results."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import logging
import math
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch

from ...codegen.judge import GATE, GATES, Judgement, accepted, error, errors, judge
from ...codegen.kernel import Buffer, Program
from ...codegen.target import Target
from ...ir.diagnostic import DplcError, UsageError, did_you_mean
from ...ir.dtypes import DTYPES
from ...ir.expr import Size, free_names, multiple_of
from ...ir.interp import tensor as meaning
from ...ir.interp import torch as torch_meaning
from ...ir.loop import For, Load, Store
from ...ir.node import nodes
from ...ir.program import Block, Kernel, Param, Stmt, TensorType
from ...ir.schemas import DTYPES as TORCH_DTYPES
from ...ir.sizes import AT_HINTS, Binding, at_hint, value_of
from ...ir.substitute import with_sizes
from ...ir.tensor import Input, Output, TensorGraph, postorder
from ...ir.torch import TorchGraph
from ..capture.capture import Capture, bits, modules_of, plain_parts
from ..capture.dynamic_shapes import Dim, range_of
from ..capture.export import dtype_name
from ..capture.signature import Tensors, check_kind, parts_of
from ..compiler import Compilation
from ..cost.instruction_counts import instruction_counts
from ..kernels.kernels import Plan, Prepared
from ..language.rule import RuleSet, policy
from ..schedule.scheduling import StoredSchedules, tuned_ranges


class Parameters:
    """Parameters of a function: named arguments move to their positions (not for functions without a signature)."""

    def __init__(self, function: Callable[..., Any]):
        called = function.forward if isinstance(function, torch.nn.Module) else function
        try:
            self.signature: inspect.Signature | None = inspect.signature(called)
        except (TypeError, ValueError):
            self.signature = None

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return (args, kwargs), by position where possible. Raises DplcError for missing or unknown arguments."""
        if self.signature is None:
            return tuple(args), dict(sorted(kwargs.items()))
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise DplcError(f"the call does not fit: {error}", notes=(f"it takes {self.signature}",)) from None
        return bound.args, dict(sorted(bound.kwargs.items()))  # in whatever order they are written


def arguments(
    function: Any, example_inputs: Any, kwargs: Mapping[str, Any] | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return (args, kwargs) of the example call, as of `Parameters.bind`. Raises DplcError if they do not fit."""
    if isinstance(example_inputs, Mapping):
        hint = "write `dplc.compile(f, (), kwargs=inputs)` for inputs by name, `(inputs,)` for one that is a dict"
        raise UsageError("the example inputs are a dict, which is not taken apart", hint=hint)
    args = tuple(example_inputs) if isinstance(example_inputs, (tuple, list)) else (example_inputs,)
    return Parameters(function).bind(args, kwargs or {}) if callable(function) else (args, dict(kwargs or {}))


class Frozen:
    """The tensors that were found where a function keeps them, and are part of what was compiled."""

    def __init__(self, captured: Capture):
        kept = ((name, t) for name, t in captured.tensors.items() if captured.kinds[name] == "constant")
        self.versions = [(name, tensor, tensor._version) for name, tensor in kept if not tensor.is_inference()]

    def check(self) -> None:
        """Raise DplcError for a tensor that has been mutated since."""
        if any(tensor._version != version for _, tensor, version in self.versions):
            what = "a tensor that the function found outside of its arguments has changed since it was compiled"
            raise DplcError(what, hint="compile again; or pass it as an argument, or register it as a buffer")


def check_arguments(captured: Capture, inputs: Tensors, sizes: Binding = AT_HINTS) -> None:
    """Raise DplcError for an argument that is not a tensor, or not of the dtype and shape that was compiled."""
    for param in captured.graph.ins:
        if param.name in inputs:
            told, tensor = f"argument `{param.name}`", inputs[param.name]
            if isinstance(tensor, torch.Tensor) and tensor.requires_grad and torch.is_grad_enabled():
                what = f"gradients are wanted of {told}; what dplc compiles is inference"
                raise DplcError(what, hint="call it within torch.no_grad(), or pass a detached tensor")
            shape = tuple(value_of(n, sizes) for n in param.shape) if sizes else param.shape
            check_tensor(told, tensor, param.dtype, shape)
            wanted = captured.strides.get(param.name)  # if the program reads the memory of the argument
            if wanted is not None and (given := tuple(tensor.stride())) != wanted:
                what = f"{told} has the strides {given}, not {wanted}, by which the program reads its memory"
                raise DplcError(what, hint="pass `.contiguous()`, or compile it for such a tensor")
            if wanted is not None and tensor.storage_offset():
                what = f"{told} is a part of another tensor's memory, and the program reads its memory"
                raise DplcError(what, hint="pass `.clone()`")


def sizes_of_call(places: Sequence[tuple[str, int, Size]], inputs: Tensors) -> dict[str, int]:
    """Return the sizes of a call, from the shapes of its tensors at (input, dimension, size).

    Raises DplcError for a length that was not compiled, and for two that must agree.
    """
    found: dict[str, int] = {}
    for name, dimension, size in places:
        shape = getattr(inputs.get(name), "shape", ())
        if dimension >= len(shape):
            continue  # `check_tensor` says what it is
        length = shape[dimension]
        if found.setdefault(size.name, length) != length:
            first = next(place for place in places if place[2].name == size.name)
            what = f"`{size.name}` is {found[size.name]} ({_where(*first)}) and {length} ({_where(name, dimension)})"
            raise DplcError(f"{what}: they must agree", hint="dimensions of one name have one length in a call")
        check_length(size, length, f" ({_where(name, dimension)})")
    return found


def check_length(size: Size, length: int, where: str = "") -> None:
    """Raise DplcError for a length that was not compiled. where: names its dimension in the message."""
    if not size.low <= length <= size.high or length % size.multiple:
        low, high = min(size.low, length), max(size.high, length)
        step = f", multiple={size.multiple}" if size.multiple > 1 and not length % size.multiple else ""
        hint = f'compile it for a wider range: dplc.Dim("{size.name}", {low}, {high}{step})'
        hint = hint if length else "a length is 1 or more: where there is nothing to compute, leave the call out"
        raise DplcError(f"`{size.name}` is {length}{where}; compiled for {range_of(size)}", hint=hint)


def _where(name: str, dimension: int, *_: Size) -> str:
    return f"dimension {dimension} of `{name}`"


def at_sizes(graph: TorchGraph, tensors: Tensors) -> TorchGraph:
    """Return a captured program with the sizes of its inputs."""
    places = tuple((p.name, d, n) for p in graph.ins for d, n in enumerate(p.shape) if isinstance(n, Size))
    sizes = sizes_of_call(places, tensors)
    return with_sizes(graph, sizes) if sizes else graph  # type: ignore[no-any-return]


def check_tensor(what: str, value: Any, dtype: str, shape: tuple[Any, ...]) -> None:
    """Raise DplcError unless `value` is a tensor of this dtype (by our name) and shape, with elements."""
    expected = f"{dtype}{list(shape)}"
    if not isinstance(value, torch.Tensor):
        numpy = type(value).__module__ == "numpy"
        found = "a numpy array" if numpy else f"of the type {type(value).__name__}"
        raise DplcError(
            f"{what} must be a tensor, {expected}; it is {found}", hint="pass torch.from_numpy(..)" if numpy else None
        )
    check_kind(what, value)
    found = f"{dtype_name(value.dtype)}{list(value.shape)}"
    if found != expected:
        hint = "shapes and dtypes are part of what was compiled: compile again for others"
        raise DplcError(f"{what} must be {expected}; it is {found}", hint=hint)
    if value.is_meta:
        raise DplcError(f"{what} is on the meta device: it has no elements")


def _place(tensor: Any) -> tuple[Any, ...]:
    """Return address, layout and dtype of a tensor. They identify a part of a weight across readings."""
    return tensor.data_ptr(), tensor.shape, tensor.dtype


class Weights:
    """Parameters and buffers of a function's modules, under the names that its program gives them.

    They are read at every call, through the module that holds them: a step of an optimiser, `load_state_dict`, or
    another parameter that replaces one all show.
    """

    def __init__(self, function: Any, captured: Capture):
        self.captured = captured
        self.homes: dict[str, tuple[Any, str, int]] = {}
        held: dict[Hashable, str] = {}
        for name, tensor in captured.tensors.items():
            if captured.kinds[name] in ("parameter", "buffer"):
                held |= {id(tensor): name, _place(tensor): name}
        for root in modules_of(function).values():
            for module in root.modules():
                for attribute, tensor in (
                    *module.named_parameters(recurse=False),
                    *module.named_buffers(recurse=False),
                ):
                    for index, part in enumerate(_read(tensor)):
                        identity = id(part) if part is tensor else _place(part)
                        if identity in held:
                            self.homes.setdefault(held[identity], (module, attribute, index))

    def now(self) -> dict[str, Any]:
        """Return {name: tensor}. Raises DplcError for a tensor whose dtype or shape has changed."""
        types = {param.name: param for param in self.captured.graph.ins}
        found = {}
        for name, (module, attribute, index) in self.homes.items():
            if name in types:
                parts = _read(getattr(module, attribute, None))
                found[name] = parts[index] if index < len(parts) else None
                check_tensor(f"{self.captured.kinds[name]} `{name}`", found[name], types[name].dtype, types[name].shape)
        return found


def _read(weight: Any) -> tuple[Any, ...]:
    """Return the tensors that a program reads of a weight: pairs for complex numbers, parts for a wrapper subclass."""
    if not isinstance(weight, torch.Tensor):
        return (weight,)
    return tuple(parts_of(part) if part.is_complex() else part for part in plain_parts(weight))


# ---- Devices of the tensors of a call.


def gpu_of(where: Mapping[str, torch.device]) -> int | None:
    """Return the GPU that tensors lie on, by name; None if all of them are on the CPU. Raises DplcError for several."""
    found: dict[int, str] = {}
    for name, device in where.items():
        if device.type == "cuda":
            found.setdefault(device.index or 0, name)
    if len(found) > 1:
        places = " and ".join(f"`{name}` is on cuda:{index}" for index, name in list(found.items())[:2])
        raise DplcError(f"{places}: a program runs on one GPU", hint="move them to the same device")
    return next(iter(found), None)


def devices_of(function: Callable[..., Any], values: Iterable[Any]) -> dict[str, torch.device]:
    """Return the devices of example inputs and of the weights of a function's modules, by a name for messages."""
    leaves = torch.utils._pytree.tree_leaves(list(values))
    found = {f"input {place}": leaf.device for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)}
    for root in modules_of(function).values():
        found |= {name: tensor.device for name, tensor in (*root.named_parameters(), *root.named_buffers())}
    return found


class Placing:
    """Moves what a program reads from the CPU to a GPU: inputs at every call, everything else once.

    What was moved is moved again when it is another tensor, or torch counted a change of it (a write through `.data` is
    not counted). kinds: of the program's arrays, as a capture has them.
    """

    def __init__(self, kinds: Mapping[str, str]):
        self.kinds = kinds
        self._moved: dict[tuple[str, torch.device], tuple[Any, int, Any]] = {}

    def place(self, tensors: Tensors, device: torch.device) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return the tensors, those on the CPU moved to `device`, and notes that say which tensors this call moved."""
        placed = {name: self._placed(name, tensor, device) for name, tensor in tensors.items()}
        moved = [name for name in tensors if placed[name] is not tensors[name] and self._is_input(name)]
        return placed, (f"moved from the CPU to {device}: {listed(moved)}",) if moved else ()

    def _is_input(self, name: str) -> bool:
        return self.kinds.get(name, "input") == "input"

    def _placed(self, name: str, tensor: Any, device: torch.device) -> Any:
        if tensor.device.type != "cpu" or tensor.device.type == device.type:
            return tensor
        if self._is_input(name):
            return tensor.to(device)
        original, version, moved = self._moved.get((name, device), (None, 0, None))
        if original is not tensor or version != tensor._version:
            moved = tensor.detach().to(device)
            self._moved[name, device] = tensor, tensor._version, moved
        return moved


def listed(names: list[str], most: int = 5) -> str:
    """Return names for a message."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(f"`{name}`" for name in names[:most]) + more


# ---- Kinds of the options of `dplc.compile`.


def _is(*kinds: type) -> Any:
    return lambda value: isinstance(value, kinds)


def _are_rules(value: Any) -> bool:
    several = isinstance(value, Iterable) and not isinstance(value, (bytes, Mapping))
    return isinstance(value, (str, Path, RuleSet)) or (several and all(isinstance(each, (str, Path)) for each in value))


def _are_settings(value: Any) -> bool:
    items = value.items() if isinstance(value, Mapping) else [(None, None)]
    return all(isinstance(rule, str) and isinstance(values, Mapping) for rule, values in items)


KINDS: dict[str, tuple[Any, str]] = {
    "device": (_is(str), "a name: cuda, cuda:N, emulator, reference"),
    "rules": (_are_rules, "a rule file or folder, several, or a `dplc.Rules`"),
    "target": (_is(str, Target), "the name of an architecture or a device"),
    "settings": (_are_settings, "a dict: {rule: {parameter: value}}"),
    "trace": (_is(bool), "True or False"),
    "db": (_is(bool, str, Path), "the file of a store, or False"),
    "explore": (_is(bool), "True or False"),
    "exact": (_is(bool), "True or False"),
}


def check_kinds(**options: Any) -> None:
    """Raise UsageError for an option of a wrong type. None is an option that is not given."""
    for name, value in options.items():
        fits, words = KINDS[name]
        if (value is not None or name in ("trace", "explore", "exact")) and not fits(value):
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
        self._kept: dict[Prepared, tuple[Any, Any]] = {}  # the tensors it was computed from, and the tensor

    def now(self, prepared: Iterable[Prepared], tensors: Tensors) -> dict[str, Any]:
        """Return {name: tensor} of the prepared weights of a program, given the others."""
        return {each.input.name: self._made(each, tensors) for each in prepared}

    def forget(self) -> None:
        """Compute all of them again when they are next needed."""
        self._kept.clear()

    def _made(self, each: Prepared, tensors: Tensors) -> Any:
        ins = tuple(term for term in postorder((each.value,)) if isinstance(term, Input))
        given = [tensors[x.name] for x in ins]
        version = tuple((id(t), t.data_ptr(), t._version, contents(t, t.is_cuda)) for t in given)
        known = self._kept.get(each)
        if known is not None and known[0] == version:
            return known[1]
        graph = TensorGraph("load", ins, (Output(each.input.name, each.input.axes, each.value),))
        data = {}
        for x, tensor in zip(ins, given, strict=True):
            plain = tensor.detach().cpu()
            plain = plain.double() if plain.dtype.is_floating_point else plain
            data[x.name] = plain.reshape([n for n in plain.shape if n != 1]).numpy()
        (value,) = meaning.run(graph, data, partial=True)  # a piece of a join is read within its own range alone
        made = torch.from_numpy(value.copy()).to(getattr(torch, TORCH_DTYPES[each.input.dtype])).to(given[0].device)
        self._kept[each] = version, made
        return made


def contents(tensor: Any, on_device: bool) -> bytes:
    """Return a digest of a tensor: of all of it, or of a sample of its elements if it is large and must be fetched.

    A single element of a weight on a device, written through `.data`, may be missed; a loader or an average may not.
    """
    flat = tensor.detach().reshape(-1)
    if on_device and flat.numel() * flat.element_size() > WHOLE:
        flat = flat[:: flat.numel() // SPREAD]
    return hashlib.blake2b(bits(flat), digest_size=16).digest()


def random_tensor(dtype: str, shape: Sequence[Any], generator: torch.Generator, below: int) -> Any:
    """Return floats of a normal distribution, or whole numbers from 0 that are below a bound."""
    kind = getattr(torch, TORCH_DTYPES[dtype])
    if kind.is_floating_point:
        return torch.randn(tuple(shape), generator=generator).to(kind)
    return torch.randint(0, below, tuple(shape), generator=generator).to(kind)


def in_float64(tensors: Tensors) -> dict[str, Any]:
    """Return tensors as arrays for an interpreter, floats in float64."""
    return {name: (x.double() if x.dtype.is_floating_point else x).numpy() for name, x in tensors.items()}


# ---- References of the judge: a program of the user's own ops in float64, and as PyTorch computes it in eager.


__all__ = ["GATE", "GATES", "Judgement", "accepted", "error", "errors", "judge", "run_eager", "run_reference"]


def run_reference(captured: Capture, tensors: Tensors) -> list[Any]:
    """Return the outputs of a program, of the user's own ops, in float64; integers and bools exact.

    Where capture decomposed an op, the reference is PyTorch's kernel of that op, not the decomposition: except for ops
    without a float64 kernel.
    """
    return _of_own_ops(captured, tensors, torch_meaning.run)


def run_eager(captured: Capture, tensors: Tensors) -> list[Any]:
    """Return the outputs of a program as torch computes them, one op after the other in its own dtypes."""
    return _of_own_ops(
        captured, tensors, lambda graph, values: torch_meaning.evaluated(graph, dict(values), wide=False)
    )


def _of_own_ops(captured: Capture, tensors: Tensors, run: Callable[..., list[Any]]) -> list[Any]:
    if (own := captured.written()) is not None:
        graph, known = own
        try:
            return list(run(at_sizes(graph, tensors), {**known, **tensors}))
        except DplcError:  # no kernel for the dtype
            pass
    return list(run(at_sizes(captured.graph, tensors), tensors))


# ---- Dispatch of one program over several ranges: compiles for parts of the range of a size, and the table of calls.
#
# A row is a refinement of sizes (low, high, multiple, hint). The same captured program is compiled for it when a call
# first needs it. The first row that admits a call wins. The program of the whole range follows the last row.

T = TypeVar("T")
LOG = logging.getLogger("dplc")

Row = tuple[Dim, ...]  # conditions on sizes, all of which hold; the Dims' hints are what the row is compiled for


def row_for(rows: Sequence[Row], sizes: Binding) -> int | None:
    """Return the index of the first row that admits such sizes; None if only the whole range does."""
    return next((n for n, row in enumerate(rows) if all(dim.admits(sizes[dim.name]) for dim in row)), None)


Make = Callable[[Capture], Compilation]  # compiles a capture whose sizes are narrower


def requested_rows(rows: Any, whole: Compilation, make: Make, schedules: StoredSchedules | None) -> tuple[Row, ...]:
    """Return the rows of `rows=`: Dims, or tuples of Dims of several sizes; True for those of a store and of the model.

    whole: the program compiled for the full range. Raises UsageError for an invalid row.
    """
    sizes = whole.sizes
    if rows is True:
        tuned = stored_rows(whole, schedules) if schedules is not None else ()
        return (*tuned, *trimmed(default_rows(whole, make), tuned))
    if not isinstance(rows, Sequence) or not all(isinstance(d, Dim) for row in rows for d in _listed(row)):
        raise UsageError("rows= is a list of Dims, each a part of a size's range", hint='rows=[dplc.Dim("s", 1, 64)]')
    found = tuple(_listed(row) for row in rows)
    for dim in (dim for row in found for dim in row):
        size = sizes.get(dim.name)
        if size is None:
            notes = (f"its sizes are {', '.join(sizes) or 'none'}",)
            raise UsageError(f"rows= names `{dim.name}`, no size", notes=notes, hint=did_you_mean(dim.name, sizes))
        if dim.low < size.low or dim.high > size.high:
            raise UsageError(f"a row of `{dim.name}` is {dim.range}, outside of {size.low}..{size.high}")
    return found


def _listed(row: Any) -> Row:
    return tuple(row) if isinstance(row, (tuple, list)) else (row,)


def default_rows(whole: Compilation, make: Make) -> tuple[Row, ...]:
    """Return the default rows: of one size its octaves, of several none, for these multiply.

    Where rows of memory are as long as the size and the model says that vectors pay, lengths in whole vectors have rows
    of their own, and the lengths between them fewer.
    """
    if len(whole.sizes) != 1:
        return ()
    (size,), numbers = whole.sizes.values(), policy(whole.target)
    vectors, pays = _of_vectors(whole, size), False
    if vectors is not None and vectors.hint is not None:  # by the instructions that the model counts at the hint
        binding, other = {vectors.name: vectors.hint}, make(narrowed(whole.captured, (vectors,), whole.sizes))
        usual, narrow = (
            sum(count.issued * count.blocks for count in map(instruction_counts, with_sizes(one.kernels, binding)))
            for one in (whole, other)
        )
        pays = narrow <= numbers.worth_of_vectors * usual
    if vectors is None or not pays:
        return octaves(size, whole.target)[: numbers.most_ranges]
    ends, warp = numbers.range_ends, whole.target.warp_lanes * _floats_of_vector(whole.target)
    long = _between(vectors, [end for end in ends if end >= warp])  # up to there a lane has one vector
    rows = [*long, *_between(size, ends[::2])]  # coarser, for these read element by element
    return tuple((row,) for row in rows[: numbers.most_ranges])


def stored_rows(whole: Compilation, schedules: StoredSchedules) -> tuple[Row, ...]:
    """Return the parts of the range for which a store has schedules that are faster than the default order.

    These are the parts that gain most, the narrowest first, for the first row that holds serves a call.
    """
    gains = dict[Row, float]()
    for kernel in whole.plan.kernels:
        for row, gain in tuned_ranges(schedules, kernel, whole.compiler.tools.rules, whole.target):
            gains[row] = max(gain, gains.get(row, 0))
    most = sorted(gains, key=lambda row: -gains[row])[: policy(whole.target).most_ranges]
    lengths = {row: math.prod(dim.high // dim.multiple - (dim.low - 1) // dim.multiple for dim in row) for row in most}
    return tuple(sorted(most, key=lambda row: (lengths[row], [dim.low for dim in row])))


def trimmed(usual: Iterable[Row], first: Sequence[Row]) -> Iterator[Row]:
    """Yield the default rows of one size, without the ends that preceding rows serve."""
    taken = sorted((row[0] for row in first if len(row) == 1), key=lambda dim: dim.low)
    for (dim,) in usual:
        low, high = dim.low, dim.high
        whole = [one for one in taken if one.name == dim.name and not dim.multiple % one.multiple]
        for one in whole:
            low = one.high + 1 if one.low <= low <= one.high else low
        for one in reversed(whole):
            high = one.low - 1 if one.low <= high <= one.high else high
        if low <= high // dim.multiple * dim.multiple:
            yield (dim if (low, high) == (dim.low, dim.high) else _usual(dim, low, high),)


def _usual(size: Dim | Size, low: int, high: int) -> Dim:
    """Return a part of a range, with its greatest length as the hint."""
    return Dim(size.name, low, high, size.multiple, hint=high // size.multiple * size.multiple)


def octaves(size: Dim | Size, target: Target) -> tuple[Row, ...]:
    """Return the parts of a range that suit products and norms of as many rows."""
    return tuple((row,) for row in _between(size, policy(target).range_ends))


def _between(size: Dim | Size, ends: Sequence[int]) -> Iterator[Dim]:
    """Yield the parts of a range that end at `ends`, each for the greatest length in it."""
    low = size.low
    for high in (*(end for end in ends if size.low <= end < size.high), size.high):
        if high // size.multiple * size.multiple >= low:
            yield _usual(size, low, high)
        low = high + 1


def _of_vectors(whole: Compilation, size: Size) -> Dim | None:
    """Return the lengths in whole vectors, if most data of the kernels lies in rows as long as a size."""
    numbers = policy(whole.target)
    step = math.lcm(size.multiple, _floats_of_vector(whole.target))
    low, high = max(size.low, numbers.vectors_from), size.high // step * step
    params = [param for kernel in whole.plan.kernels for param in (*kernel.ins, *kernel.outs)]
    ragged = [p for p in params if size in nodes((p.shape[-1],), Size) and multiple_of(p.shape[-1]) % step]
    if low > high or not ragged or 2 * sum(map(_bytes, ragged)) < sum(map(_bytes, params)):
        return None
    return Dim(size.name, low, size.high, step, hint=min(max(size.hint // step * step, -(-low // step) * step), high))


def _floats_of_vector(target: Target) -> int:
    return target.vector_bytes // DTYPES["f32"].item_bytes


def _bytes(param: Param) -> float:
    return float(DTYPES[param.dtype].item_bytes * math.prod(map(at_hint, param.shape)))


class Rows:
    """Compiles of a program by row, each created when it is first needed.

    whole: that of the full range; make: compiles a capture whose sizes are narrower.
    """

    def __init__(self, whole: Compilation, rows: Sequence[Row], make: Make):
        self.whole, self.rows, self._make = whole, tuple(rows), make
        self._made: dict[Row, Compilation] = {}

    def place(self, sizes: Binding) -> int | None:
        """Return the index of the row that serves a call with such sizes; None if only the whole range does."""
        return row_for(self.rows, sizes)

    def at(self, sizes: Binding) -> Compilation:
        """Return the compile that serves a call with such sizes."""
        place = self.place(sizes)
        return self.whole if place is None else self.compiled(self.rows[place])

    def compiled(self, row: Row) -> Compilation:
        if row not in self._made:
            start = time.perf_counter()
            self._made[row] = self._make(narrowed(self.whole.captured, row, self.whole.sizes))
            ranges = ", ".join(f"{dim.name}: {dim.range}" for dim in row)
            LOG.info(f"compiled for {ranges} in {(time.perf_counter() - start) * 1e3:.0f} ms")
        return self._made[row]

    @property
    def made(self) -> dict[Row, Compilation]:
        """The compiles that calls needed so far."""
        return dict(self._made)

    def compile_all(self) -> None:
        """Compile ahead what calls would compile."""
        for row in self.rows:
            self.compiled(row)

    @property
    def table(self) -> list[dict[str, Any]]:
        """Dispatch as data: conditions in order, of which the first that holds decides, each with its plan."""
        names = ("name", "low", "high", "multiple")
        listed = [[{name: getattr(dim, name) for name in names} for dim in row] for row in self.rows]
        return [{"when": when, "plan": n} for n, when in enumerate([*listed, []])]


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
        return self.ir("cuda")


def narrowed(captured: Capture, row: Iterable[Dim], sizes: Mapping[str, Size]) -> Capture:
    """Return the program with narrower sizes; a size of one number becomes that number."""
    known = {**sizes, **{dim.name: dim.number() for dim in row}}
    return dataclasses.replace(captured, graph=with_sizes(captured.graph, known))


# ---- Calls, bound once for each combination of dtypes and shapes.


MOST_KEPT = 64  # kinds of arguments whose launches are kept, as many as a compile keeps of bindings


@dataclass(frozen=True)
class BoundCall:
    """Compile that serves arguments of one kind, looked up once something is launched."""

    sizes: Binding
    rows: Rows

    @cached_property
    def made(self) -> Compilation:
        return self.rows.at(self.sizes)

    @cached_property
    def program(self) -> Program:
        return self.made.at(self.sizes)

    @cached_property
    def arrays(self) -> tuple[tuple[str, tuple[int, ...], list[int]], ...]:
        """Arrays of the launches: names, shapes, and these without dimensions of size 1."""
        buffers = (*self.program.inputs, *self.program.constants)
        return tuple((b.name, tuple(b.shape), [n for n in b.shape if n != 1]) for b in buffers)

    @cached_property
    def outputs(self) -> tuple[Buffer, ...]:
        return self.made.outputs_at(self.sizes)


class Calls:
    """The calls of a compiled function by kind: checked and bound when a kind comes first, looked up then.

    So a call of a program with sizes costs what one without costs.
    """

    def __init__(self, rows: Rows):
        self._rows, self._whole = rows, rows.whole
        self._kept: dict[Hashable, BoundCall] = {}

    def of(self, inputs: Tensors) -> BoundCall:
        """Return the compile that serves these arguments, {input: tensor}. Raises DplcError if they do not fit."""
        kind = self._kind(inputs)
        found = self._kept.get(kind)
        if found is None:
            sizes = sizes_of_call(self._whole.inputs_with_sizes, inputs)
            check_arguments(self._whole.captured, inputs, sizes)
            found = self.at(sizes)
            if kind is not None:
                if len(self._kept) >= MOST_KEPT:
                    del self._kept[next(iter(self._kept))]
                self._kept[kind] = found
        return found

    def at(self, sizes: Binding) -> BoundCall:
        return BoundCall(sizes, self._rows)

    def _kind(self, inputs: Tensors) -> Hashable | None:
        """Return classes, layouts, dtypes and shapes; None if every call needs further checks."""
        if self._whole.captured.strides:
            return None
        kind = []
        for given in inputs.values():
            if not isinstance(given, torch.Tensor) or given.requires_grad or given.is_meta:
                return None
            kind.append(((type(given), given.layout, given.dtype), given.shape))
        return tuple(kind)


# ---- A compile at one binding of its sizes.


def at_binding(made: Compilation, sizes: Binding, captured: Capture | None = None) -> Compilation:
    """Return what serves a call with such sizes. captured: the program with the inputs of the call."""
    program, given = made.at(sizes), captured or made.captured
    results = tuple(TensorType(kind.dtype, with_sizes(kind.shape, sizes)) for kind in made.plan.results)
    plan = _at(made.plan, sizes, "kernels", "inputs", "outputs", "temporaries")
    return replace(
        _at(made, sizes, "tensor", "tile", "kernels"),
        captured=_at(given, sizes, "graph"),
        plan=replace(plan, results=results),
        cuda_kernels=program.distinct_kernels(),
        program=program,
        bounds=tuple(_at(bound, sizes, "term", "low", "end") for bound in made.bounds),
    )


def _at(record: T, sizes: Binding, *fields: str) -> T:
    """Return a record whose fields have numbers for sizes."""
    return replace(record, **{name: with_sizes(getattr(record, name), sizes) for name in fields})  # type: ignore[type-var]


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
    pairs = [(output.name, source) for output, source in zip(compilation.plan.outputs, wanted, strict=True)]
    aliases = {output: source for output, source in pairs if refusal(compilation.plan, output, source) is None}
    return replace(compilation, program=replace(compilation.program, aliases=aliases))


def refusal(plan: Plan, output: str, source: str) -> str | None:
    """Return why an output may not share the memory of an input; None if it may."""
    inputs, outputs = ({param.name: param for param in params} for params in (plan.inputs, plan.outputs))
    if source not in inputs:
        return f"there is no input `{source}`"
    if (inputs[source].dtype, inputs[source].shape) != (outputs[output].dtype, outputs[output].shape):
        return "they differ in dtype or shape"
    written = ""
    for kernel in plan.kernels:
        reads = any(param.name == source for param in kernel.ins)
        writes = any(param.name == output for param in kernel.outs)
        if reads and written and not writes:
            return f"`{kernel.name}` reads `{source}` when `{written}` has written `{output}`"
        if writes and written:
            return f"both `{written}` and `{kernel.name}` write `{output}`"
        if writes:
            written = kernel.name
            reason = _reads_elsewhere(kernel, output, source) if reads else None
            if reason is not None:
                return reason
    return None if written else f"no kernel writes `{output}`"


@dataclass(frozen=True)
class _Access:
    """Load or store of a kernel, with its path. loops: {variable: the path of the loop that binds it}."""

    index: tuple[Any, ...]
    loops: Mapping[str, tuple[int, ...]]
    place: tuple[int, ...]

    @property
    def iteration(self) -> dict[str, tuple[int, ...]] | None:
        """The loops that its index follows; None if it follows anything else."""
        names = free_names(self.index)
        return {name: self.loops[name] for name in names} if names <= self.loops.keys() else None


def _reads_elsewhere(kernel: Kernel, output: str, source: str) -> str | None:
    """Return why a kernel that writes the output reads of the input more than the element that it is about to store."""
    stores, loads = [], []
    for statement, access in _accesses(kernel.body, {}, ()):
        if isinstance(statement, Store) and statement.buf == output:
            stores.append(access)
        elif isinstance(statement, Load) and statement.buf == source:
            loads.append(access)
    if len(stores) != 1:
        return f"`{kernel.name}` stores `{output}` at {len(stores)} places"
    (store,) = stores
    if store.iteration is None or store.iteration.keys() != store.loops.keys():
        return f"`{kernel.name}` stores elements of `{output}` that its loops do not tell apart"
    for load in loads:
        if load.index != store.index or load.iteration != store.iteration:
            return f"`{kernel.name}` reads `{source}` at another element than it writes `{output}`"
        if load.place > store.place:
            return f"`{kernel.name}` reads an element of `{source}` after it has written it"
    return None


def _accesses(
    block: Block, loops: Mapping[str, tuple[int, ...]], way: tuple[int, ...]
) -> Iterator[tuple[Stmt, _Access]]:
    for number, statement in enumerate(block):
        place = (*way, number)
        if isinstance(statement, (Load, Store)):
            yield statement, _Access(statement.idx, loops, place)
        inner = getattr(statement, "body", None)
        if inner is not None:
            bound = {**loops, statement.var: place} if isinstance(statement, For) else loops
            yield from _accesses(inner, bound, place)
