"""Calling convention of a captured function: nested Python values outside, flat tensors inside."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ...ir.diagnostic import DplcError
from ...ir.program import Param
from ...ir.schemas import DTYPES
from ...ir.sizes import has_sizes

Tensors = Mapping[str, Any]  # {name: tensor}

# ---- Results that are objects holding tensors, such as a cache. PyTorch's pytree does not open them.


# No way into these: they hold what is not part of a result, and a copy of one would be another thing.
_CLOSED = (torch.nn.Module, type, ModuleType, FunctionType, BuiltinFunctionType, MethodType, str, bytes, torch.dtype)
_PLAIN = (int, float, complex, type(None), torch.SymInt, torch.SymFloat, torch.SymBool)


class TensorSlot:
    """Marker for a tensor in the copy of an object."""


def tensors_of(value: Any) -> tuple[Any, ...]:
    """Return the tensors that an object holds, each once, in the order of its attributes and items."""
    return tuple(x for x in _inside(value, set()) if isinstance(x, torch.Tensor))


def mould(value: Any, order: Iterator[int]) -> ObjectOutput:
    """Return an object as a result. order: gives the index of the next output.

    Raises DplcError for an object that cannot be copied.
    """
    parts = list(_inside(value, set()))
    kept = {id(part): part for part in parts if isinstance(part, _CLOSED)}
    holes = {id(part): TensorSlot() for part in parts if isinstance(part, torch.Tensor)}
    try:
        copied = copy.deepcopy(value, {**kept, **holes})
    except Exception as error:
        what = f"the function returns a {type(value).__name__}, which holds tensors and cannot be copied"
        raise DplcError(what, notes=(str(error),), hint="return its tensors in a tuple, list or dict") from None
    return ObjectOutput(copied, tuple(holes.values()), kept, tuple(itertools.islice(order, len(holes))))


def _inside(value: Any, seen: set[int]) -> Iterator[Any]:
    """Yield the tensors in an object, and the parts of it that are closed; each once."""
    if id(value) in seen or isinstance(value, _PLAIN):
        return
    seen.add(id(value))
    if isinstance(value, (torch.Tensor, *_CLOSED)):
        yield value
        return
    for part in _members(value):
        yield from _inside(part, seen)


def _members(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from value
    yield from getattr(value, "__dict__", {}).values()
    for kind in type(value).__mro__:
        names = getattr(kind, "__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                yield getattr(value, name)


@dataclass(frozen=True)
class Fixed:
    """A leaf that is not a tensor. It was part of what was captured, so it cannot change."""

    value: Any

    def result(self, outputs: Sequence[Any], device: Any) -> Any:
        return self.value


@dataclass(frozen=True)
class Pairs:
    """An argument of complex numbers. name: of the input that takes their parts."""

    name: str


@dataclass(frozen=True)
class ComplexOutput:
    """Result of complex numbers; the field is the index of the output that holds their parts."""

    place: int

    def result(self, outputs: Sequence[Any], device: Any) -> Any:
        return torch.view_as_complex(outputs[self.place].contiguous())


@dataclass(frozen=True)
class Empty:
    """Result without elements: every call allocates it, without a kernel."""

    dtype: str
    shape: tuple[int, ...]

    def result(self, outputs: Sequence[Any], device: Any) -> Any:
        return torch.empty(self.shape, dtype=getattr(torch, DTYPES.get(self.dtype, self.dtype)), device=device)


@dataclass(frozen=True)
class ObjectOutput:
    """Result that is an object, with holes where its tensors were.

    kept: what copies share with it; places: the indices of the outputs that hold the tensors, in the order of
    `tensors_of`.
    """

    value: Any
    holes: tuple[TensorSlot, ...]
    kept: Mapping[int, Any]
    places: tuple[int | Empty | ComplexOutput, ...]

    def result(self, outputs: Sequence[Any], device: Any) -> Any:
        """Return a new object with the tensors of these outputs."""
        tensors = (_result(place, outputs, device) for place in self.places)
        filled = {id(hole): tensor for hole, tensor in zip(self.holes, tensors, strict=True)}
        return copy.deepcopy(self.value, {**self.kept, **filled})


def _result(leaf: int | Fixed | Empty | ComplexOutput | ObjectOutput, outputs: Sequence[Any], device: Any) -> Any:
    return outputs[leaf] if isinstance(leaf, int) else leaf.result(outputs, device)


# The structure of what is returned, and per leaf the index of the output or whatever else it is.
Results = tuple[Any, tuple[int | Fixed | Empty | ComplexOutput | ObjectOutput, ...]]


@dataclass(frozen=True)
class Signature:
    """Arguments and results of a captured function.

    arguments: the structure of (args, kwargs) and per leaf the input's name or its fixed value. results: the same of
    the returned value.
    """

    arguments: tuple[Any, tuple[str | Pairs | Fixed, ...]]
    results: Results

    def of_outputs(self, outs: Sequence[Param], complexes: Container[int] = ()) -> Signature:
        """Return the signature for a graph that omits its outputs without elements.

        complexes: indices of the outputs that hold the parts of complex numbers. Raises DplcError for an empty one of
        every size.
        """
        spec, leaves = self.results
        order = itertools.count()
        places: list[int | Empty | ComplexOutput] = [
            _empty(out) if 0 in out.shape else ComplexOutput(next(order)) if place in complexes else next(order)
            for place, out in enumerate(outs)
        ]

        def placed(leaf: Any) -> Any:
            if isinstance(leaf, ObjectOutput):
                return replace(leaf, places=tuple(map(placed, leaf.places)))
            return places[leaf] if isinstance(leaf, int) else leaf

        return replace(self, results=(spec, tuple(map(placed, leaves))))

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return {input name: tensor} of a call. Raises DplcError for another structure or another fixed value."""
        spec, expected = self.arguments
        leaves, found = pytree.tree_flatten((tuple(args), dict(kwargs or {})))
        if found != spec:
            raise DplcError(
                "the arguments are not structured as those the function was captured with",
                notes=(f"captured: {pytree.treespec_pprint(spec)}", f"given: {pytree.treespec_pprint(found)}"),
            )
        bound = {}
        for leaf, name in zip(leaves, expected, strict=True):
            if isinstance(name, str):
                bound[name] = leaf
            elif isinstance(name, Pairs):
                if not isinstance(leaf, torch.Tensor) or not leaf.is_complex():
                    what = f"argument `{name.name}` must hold complex numbers"
                    raise DplcError(what, hint="it did when the function was captured")
                bound[name.name] = parts_of(leaf)
            elif not (leaf is name.value or leaf == name.value):
                raise DplcError(
                    f"an argument was {name.value!r} when the function was captured and is {leaf!r} now",
                    hint="only tensors may differ between calls: compile again",
                )
        return bound

    def pack(self, outputs: Sequence[Any], device: Any = None) -> Any:
        """Return the function's result from the outputs of the graph in order. device: of results without elements."""
        spec, leaves = self.results
        return pytree.tree_unflatten([_result(leaf, outputs, device) for leaf in leaves], spec)


def parts_of(tensor: Any) -> Any:
    """Return complex numbers as pairs of their parts, in one more dimension; a view if the memory holds them so."""
    return torch.view_as_real(tensor.resolve_conj().resolve_neg())


def odd_layout(what: str, tensor: Any) -> DplcError | None:
    """Return the error for a tensor whose elements do not lie in memory by strides. what: its name in the message."""
    if tensor.is_nested:
        layout = "jagged" if tensor.layout is torch.jagged else "nested"
        found, hint = f"a {layout} tensor", "pass its values and its offsets, or pad it: `.to_padded_tensor(0.0)`"
    elif tensor.layout is not torch.strided:
        found, hint = f"of the layout {tensor.layout}", "pass `.to_dense()`"
    elif tensor.is_quantized:
        found, hint = f"of the dtype {tensor.dtype}", "pass `.dequantize()`"
    else:
        return None
    return DplcError(f"{what} is {found}, which is not supported", hint=hint)


def check_kind(what: str, tensor: Any, wrappers: bool = False) -> None:
    """Raise DplcError for a tensor with an unsupported layout, or of a subclass that changes its operations.

    wrappers: whether a wrapper subclass is allowed.
    """
    if (problem := odd_layout(what, tensor)) is not None:
        raise problem
    kind = type(tensor)
    if is_traceable_wrapper_subclass(tensor):
        if wrappers:
            return
        found = f"a {kind.__name__}, a tensor subclass with tensors inside"
        hint = 'compile with torch.compile(.., backend="dplc"), or make it a parameter of a module'
    elif overrides(kind):
        found = f"a {kind.__name__}, a tensor subclass that changes what operations do"
        hint = "pass `.as_subclass(torch.Tensor)` where plain operations are meant"
    else:
        return
    raise DplcError(f"{what} is {found}, which is not supported", hint=hint)


def overrides(kind: Any) -> bool:
    """Return whether a class of tensors has a `__torch_function__` or `__torch_dispatch__` of its own."""
    if issubclass(kind, torch.nn.parameter.UninitializedTensorMixin):  # torch says itself what to do about it
        return False
    function = kind.__torch_function__
    plain = (torch.Tensor.__torch_function__.__func__, torch._C._disabled_torch_function_impl)
    dispatched: bool = kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
    return dispatched or getattr(function, "__func__", function) not in plain


def _empty(out: Param) -> Empty:
    if has_sizes(out.shape):
        what = f"a result of {out.dtype}{list(map(str, out.shape))} has no elements, whatever its sizes are"
        raise DplcError(what, hint="leave it out, or compile for one length")
    return Empty(out.dtype, tuple(map(int, out.shape)))
