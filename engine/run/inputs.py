"""Inputs of a compiled function, checked and placed, and the references that its results are compared with."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ...codegen.judge import GATE, GATES, Judgement, accepted, error, errors, judge
from ...codegen.target import Target
from ...ir.diagnostic import DplcError, UsageError
from ...ir.expr import Size
from ...ir.interp import tensor as meaning
from ...ir.interp import torch as torch_meaning
from ...ir.schemas import DTYPES
from ...ir.sizes import AT_HINTS, Binding, value_of
from ...ir.substitute import with_sizes
from ...ir.tensor import Input, Output, TensorGraph, postorder
from ...ir.torch import TorchGraph
from ..capture.capture import Capture, bits, modules_of, plain_parts
from ..capture.convert import dtype_name
from ..capture.dynamic_shapes import range_of
from ..capture.signature import check_kind, parts_of
from ..kernels.kernels import Prepared
from ..language.rule import RuleSet


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


def check_arguments(captured: Capture, inputs: Mapping[str, Any], sizes: Binding = AT_HINTS) -> None:
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


def sizes_of_call(places: Sequence[tuple[str, int, Size]], inputs: Mapping[str, Any]) -> dict[str, int]:
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


def at_sizes(graph: TorchGraph, tensors: Mapping[str, Any]) -> TorchGraph:
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

    def place(self, tensors: Mapping[str, Any], device: torch.device) -> tuple[dict[str, Any], tuple[str, ...]]:
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

    def now(self, prepared: Iterable[Prepared], tensors: Mapping[str, Any]) -> dict[str, Any]:
        """Return {name: tensor} of the prepared weights of a program, given the others."""
        return {each.input.name: self._made(each, tensors) for each in prepared}

    def forget(self) -> None:
        """Compute all of them again when they are next needed."""
        self._kept.clear()

    def _made(self, each: Prepared, tensors: Mapping[str, Any]) -> Any:
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
        made = torch.from_numpy(value.copy()).to(getattr(torch, DTYPES[each.input.dtype])).to(given[0].device)
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


# ---- References of the judge: a program of the user's own ops in float64, and as PyTorch computes it in eager.


__all__ = ["GATE", "GATES", "Judgement", "accepted", "error", "errors", "judge", "run_eager", "run_reference"]


def run_reference(captured: Capture, tensors: Mapping[str, Any]) -> list[Any]:
    """Return the outputs of a program, of the user's own ops, in float64; integers and bools exact.

    Where capture decomposed an op, the reference is PyTorch's kernel of that op, not the decomposition: except for ops
    without a float64 kernel.
    """
    return _of_own_ops(captured, tensors, torch_meaning.run)


def run_eager(captured: Capture, tensors: Mapping[str, Any]) -> list[Any]:
    """Return the outputs of a program as torch computes them, one op after the other in its own dtypes."""
    return _of_own_ops(
        captured, tensors, lambda graph, values: torch_meaning.evaluated(graph, dict(values), wide=False)
    )


def _of_own_ops(captured: Capture, tensors: Mapping[str, Any], run: Callable[..., list[Any]]) -> list[Any]:
    if (own := captured.written()) is not None:
        graph, known = own
        try:
            return list(run(at_sizes(graph, tensors), {**known, **tensors}))
        except DplcError:  # no kernel for the dtype
            pass
    return list(run(at_sizes(captured.graph, tensors), tensors))
