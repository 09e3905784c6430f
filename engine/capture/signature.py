"""Calling convention of a captured function: nested Python values outside, flat tensors inside."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from functools import partial
from types import BuiltinFunctionType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ...ir.diagnostic import DplcError, Span
from ...ir.node import immutable
from ...ir.program import Param, TensorType
from ...ir.schemas import DTYPES, PARTS
from ...ir.sizes import has_sizes
from ...ir.torch import TorchGraph

Device: TypeAlias = torch.device | str | None
Tensors = Mapping[str, Tensor]  # {name: tensor}


class TraceInput(NamedTuple):
    """Tensor that a trace replaces by an input of the graph.

    name: what people call it; sizes: {dimension: its size, or how it is computed from sizes}, of those that are known
    at a call; kind: input or parameter; span: of the text that made it; held: the object that may be met elsewhere,
    where it is this input too.
    """

    name: str
    tensor: Tensor
    sizes: Mapping[int, Any] = MappingProxyType({})
    kind: str = "input"
    span: Span | None = None
    held: Tensor | None = None


# ---- Results that are objects holding tensors, such as a cache. PyTorch's pytree does not open them.


# No way into these: they hold what is not part of a result, and a copy of one would be another thing.
_CLOSED = (torch.nn.Module, type, ModuleType, FunctionType, BuiltinFunctionType, MethodType, str, bytes, torch.dtype)
_PLAIN = (int, float, complex, type(None), torch.SymInt, torch.SymFloat, torch.SymBool)


class TensorSlot:
    """Marker for a tensor in the copy of an object."""


def tensors_of(value: object) -> tuple[Tensor, ...]:
    """Return the tensors that an object holds, each once, in the order of its attributes and items."""
    return tuple(x for x in _inside(value, set()) if isinstance(x, Tensor))


def mould(value: object, order: Iterator[int]) -> ObjectOutput:
    """Return an object as a result. order: gives the index of the next output.

    Raises DplcError for an object that cannot be copied.
    """
    parts = list(_inside(value, set()))
    kept = {id(part): part for part in parts if isinstance(part, _CLOSED)}
    slots = {id(part): TensorSlot() for part in parts if isinstance(part, Tensor)}
    try:
        copied = copy.deepcopy(value, {**kept, **slots})
    except Exception as error:
        what = f"the function returns a {type(value).__name__}, which holds tensors and cannot be copied"
        raise DplcError(what, notes=(str(error),), hint="return its tensors in a tuple, list or dict") from None
    return ObjectOutput(copied, kept, dict(zip(slots.values(), order)))


def _inside(value: object, seen: set[int]) -> Iterator[object]:
    """Yield the tensors in an object, and the parts of it that are closed; each once."""
    if id(value) in seen or isinstance(value, _PLAIN):
        return
    seen.add(id(value))
    if isinstance(value, (Tensor, *_CLOSED)):
        yield value
        return
    for part in _members(value):
        yield from _inside(part, seen)


def _members(value: object) -> Iterable[object]:
    """Yield the items of a container, then the attributes of an object, those in slots last."""
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from value
    state: Any = object.__getstate__(value)
    for attributes in state if isinstance(state, tuple) else (state,):
        yield from (attributes or {}).values()


@immutable
class Fixed:
    """A leaf that is not a tensor. It was part of what was captured, so it cannot change."""

    value: object


@immutable
class Pairs:
    """An argument of complex numbers. name: of the input that takes their parts."""

    name: str


@immutable
class ObjectOutput:
    """Result that is an object, with slots where its tensors were.

    kept: what copies share with it, by identity; slots: {slot: index of the tensor that the function returns}.
    """

    value: object
    kept: Mapping[int, object]
    slots: Mapping[TensorSlot, int]


Attribute: TypeAlias = tuple[torch.nn.Module, str]  # a module, and the name of one of its tensors
NO_INPUTS: Mapping[str, Tensor] = MappingProxyType({})
# The structure of what is returned, and per leaf the index of the tensor or whatever else it is.
Results = tuple[pytree.TreeSpec | None, tuple[int | Fixed | ObjectOutput, ...]]
# How a returned tensor is made: by a call that allocates it, or from an output, which may hold the pairs of complex
# numbers.
Output = Callable[..., Tensor] | bool


@contextmanager
def as_buffers(modules: Iterable[torch.nn.Module]) -> Iterator[None]:
    """Make the tensors that are plain attributes of modules their buffers for a while."""
    plain = [(module, name, x) for module in modules for name, x in vars(module).items() if isinstance(x, Tensor)]
    for module, name, _ in plain:
        module._buffers[name] = vars(module).pop(name)
    try:
        yield
    finally:
        for module, name, x in plain:
            module._buffers.pop(name, None)
            vars(module)[name] = x


@immutable
class Signature:
    """Arguments and results of a captured function.

    arguments: the structure of (args, kwargs) and per leaf the input's name or its fixed value. results: the same of
    the returned value. outputs: per tensor that is computed, how it is made: first the new values of what the function
    changes in place. views: computes these values and the returned tensors from the inputs and those of `outputs`,
    where some share memory. writes: what is changed, an input by its name or a weight by a function that returns it.
    unmoved: {number of a returned tensor: number of the changed tensor that it is}. assigned: the attributes of modules
    that the function assigns: their values follow the returned tensors.
    """

    arguments: tuple[pytree.TreeSpec | None, tuple[str | Pairs | Fixed, ...]] = (None, ())
    results: Results = (None, ())
    outputs: tuple[Output, ...] = ()
    views: Callable[..., Sequence[Tensor]] | None = None
    writes: tuple[str | Callable[[], Tensor], ...] = ()
    unmoved: Mapping[int, int] = field(default_factory=dict)
    assigned: tuple[Attribute, ...] = ()

    def bind(self, args: Sequence[object], kwargs: Mapping[str, object] | None = None) -> dict[str, Tensor]:
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
                if not isinstance(leaf, Tensor) or not leaf.is_complex():
                    what = f"argument `{name.name}` must hold complex numbers"
                    raise DplcError(what, hint="it did when the function was captured")
                bound[name.name] = parts_of(leaf)
            elif not (leaf is name.value or leaf == name.value):
                what = f"an argument was {name.value!r} when the function was captured and is {leaf!r} now"
                raise DplcError(what, hint="only tensors may differ between calls: compile again")
        return bound

    def pack(self, outputs: Sequence[Tensor], device: Device = None, inputs: Mapping[str, Tensor] = NO_INPUTS) -> Any:
        """Return the function's result from the outputs of the graph and the inputs of the call, in order.

        What the function changes in place or assigns has its new values afterwards. device: of results without
        elements.
        """
        spec, leaves = self.results
        order = iter(outputs)
        tensors: Sequence[Tensor] = [
            made(device=device)
            if callable(made)
            else torch.view_as_complex(next(order).contiguous()).data
            if made
            else next(order)
            for made in self.outputs
        ]
        if self.views is not None:
            tensors = self.views(inputs.values(), tensors)
        tensors = self._written(tensors, inputs) if self.writes else tensors
        for (module, name), tensor in zip(self.assigned, tensors[len(tensors) - len(self.assigned) :], strict=True):
            setattr(module, name, tensor)

        def result(leaf: int | Fixed | ObjectOutput) -> object:
            if isinstance(leaf, ObjectOutput):
                filled = {id(slot): tensors[place] for slot, place in leaf.slots.items()}
                return copy.deepcopy(leaf.value, {**leaf.kept, **filled})
            return tensors[leaf] if isinstance(leaf, int) else leaf.value

        return pytree.tree_unflatten(map(result, leaves), spec)

    def _written(self, tensors: Sequence[Tensor], inputs: Mapping[str, Tensor]) -> Sequence[Tensor]:
        """Write the new values of changed tensors, and return the results: a changed tensor itself where it is one."""
        changed = [inputs[write] if isinstance(write, str) else write() for write in self.writes]
        memory = {tensor.untyped_storage().data_ptr() for tensor in changed}
        values = [  # a value may be what another one overwrites, as in a swap
            tensor.clone() if tensor.untyped_storage().data_ptr() in memory else tensor for tensor in tensors
        ]
        with torch.no_grad():
            for target, new in zip(changed, values, strict=False):
                target.copy_(parts_of(new) if new.is_complex() and not target.is_complex() else new)
        results = values[len(changed) :]
        for place, number in self.unmoved.items():
            pairs = results[place].is_complex() and not changed[number].is_complex()
            results[place] = torch.view_as_complex(changed[number]) if pairs else changed[number]
        return results


@immutable
class Capture:
    """Captured program with its tensors.

    graph: the computation. tensors: {input name: tensor} for every input of the graph, with the declared shape and
    dtype. kinds: {input name: input, parameter, buffer or constant}. spans: {value name: the span of the user's text
    that requested it, or the path of its module if no line of the user's text did}. signature: how to call the function
    and what it returns. reference: torch's own results, one tensor per output of the graph (texts only, else None).
    folds: whether loading may compute with weights; else they stay as their files hold them. strides: {input: its
    strides}, for inputs whose memory is read by strides. written: the program of the user's own ops and its tensors, if
    some of them were decomposed; it returns None if Torch IR cannot express them.
    """

    graph: TorchGraph
    tensors: Tensors
    kinds: Mapping[str, str]
    spans: Mapping[str, Span | str]
    signature: Signature = Signature()
    reference: tuple[Tensor, ...] | None = None
    folds: bool = True
    strides: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    written: Callable[[], tuple[TorchGraph, Tensors] | None] | None = field(default=None, compare=False)

    @property
    def inputs(self) -> tuple[str, ...]:
        """User inputs in calling order."""
        return tuple(name for name, kind in self.kinds.items() if kind == "input")


def output(out: Param) -> Output:
    """Return how a tensor is made that a function returns: without elements it needs no kernel.

    Raises DplcError for an empty one of every size.
    """
    if 0 not in out.shape:
        return out.dtype in PARTS
    if has_sizes(out.shape):
        what = f"a result of {out.dtype}{list(map(str, out.shape))} has no elements, whatever its sizes are"
        raise DplcError(what, hint="leave it out, or compile for one length")
    return partial(unset, out)


def unset(kind: TensorType | Param, device: Device = None) -> Tensor:
    """Return a tensor of a type, with any values."""
    return torch.empty(kind.shape, dtype=getattr(torch, DTYPES.get(kind.dtype, kind.dtype)), device=device)


def parts_of(tensor: Tensor) -> Tensor:
    """Return complex numbers as pairs of their parts, in one more dimension: a view if the memory holds them so.

    Other tensors stay as they are.
    """
    return torch.view_as_real(tensor.resolve_conj().resolve_neg()) if tensor.is_complex() else tensor


def check_layout(what: str, tensor: Tensor) -> None:
    """Raise DplcError for a tensor whose elements do not lie in memory by strides. what: its name in the message."""
    if tensor.is_nested:
        layout = "jagged" if tensor.layout is torch.jagged else "nested"
        found, hint = f"a {layout} tensor", "pass its values and its offsets, or pad it: `.to_padded_tensor(0.0)`"
    elif tensor.layout is not torch.strided:
        found, hint = f"of the layout {tensor.layout}", "pass `.to_dense()`"
    elif tensor.is_quantized:
        found, hint = f"of the dtype {tensor.dtype}", "pass `.dequantize()`"
    else:
        return
    raise DplcError(f"{what} is {found}, which is not supported", hint=hint)


def check_kind(what: str, tensor: Tensor, wrappers: bool = False) -> None:
    """Raise DplcError for a tensor with an unsupported layout, or of a subclass that changes its operations.

    wrappers: whether a wrapper subclass is allowed.
    """
    check_layout(what, tensor)
    kind, wrapper = type(tensor), is_traceable_wrapper_subclass(tensor)
    if wrapper and not wrappers:
        found = "with tensors inside"
        hint = 'compile with torch.compile(.., backend="dplc"), or make it a parameter of a module'
    elif not wrapper and _overrides(kind):
        found = "that changes what operations do"
        hint = "pass `.as_subclass(Tensor)` where plain operations are meant"
    else:
        return
    raise DplcError(f"{what} is a {kind.__name__}, a tensor subclass {found}, which is not supported", hint=hint)


def _overrides(kind: type[Tensor]) -> bool:
    """Return whether a class of tensors has a `__torch_function__` or `__torch_dispatch__` of its own."""
    if issubclass(kind, torch.nn.parameter.UninitializedTensorMixin):  # torch says itself what to do about it
        return False
    function = kind.__torch_function__
    plain = (Tensor.__torch_function__.__func__, torch._C._disabled_torch_function_impl)
    dispatched = kind.__torch_dispatch__ is not Tensor.__torch_dispatch__
    return dispatched or getattr(function, "__func__", function) not in plain
