"""Results that are objects with tensors inside, such as a cache: the tensors are results, all else in them is fixed.

torch's pytree opens tuples, lists, dicts and what is registered with it. Anything else is a leaf to it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from ...ir.diagnostic import DplcError

# No way into these: they hold what is not part of a result, and a copy of one would be another thing.
_CLOSED = (torch.nn.Module, type, ModuleType, FunctionType, BuiltinFunctionType, MethodType, str, bytes, torch.dtype)
_PLAIN = (int, float, complex, type(None), torch.SymInt, torch.SymFloat, torch.SymBool)


class Hole:
    """Stands for a tensor in the copy of an object."""


@dataclass(frozen=True)
class Mould:
    """An object with holes where its tensors were. kept: what copies share with it."""

    value: Any
    holes: tuple[Hole, ...]
    kept: Mapping[int, Any]

    def cast(self, tensors: Sequence[Any]) -> Any:
        """A new object with these tensors, in the order of `tensors_of`."""
        filled = {id(hole): tensor for hole, tensor in zip(self.holes, tensors, strict=True)}
        return copy.deepcopy(self.value, {**self.kept, **filled})


def tensors_of(value: Any) -> tuple[Any, ...]:
    """The tensors that an object holds, each once, in the order of its attributes and items."""
    return tuple(x for x in _inside(value, set()) if isinstance(x, torch.Tensor))


def mould(value: Any) -> Mould:
    """The form of an object. Raises DplcError for one that cannot be copied."""
    parts = list(_inside(value, set()))
    kept = {id(part): part for part in parts if isinstance(part, _CLOSED)}
    holes = {id(part): Hole() for part in parts if isinstance(part, torch.Tensor)}
    try:
        return Mould(copy.deepcopy(value, {**kept, **holes}), tuple(holes.values()), kept)
    except Exception as error:
        what = f"the function returns a {type(value).__name__}, which holds tensors and cannot be copied"
        raise DplcError(what, notes=(str(error),), hint="return its tensors in a tuple, list or dict") from None


def _inside(value: Any, seen: set[int]) -> Iterator[Any]:
    """The tensors in an object, and the parts of it that are closed; each once."""
    if id(value) in seen or isinstance(value, _PLAIN):
        return
    seen.add(id(value))
    if isinstance(value, (torch.Tensor, *_CLOSED)):
        yield value
        return
    for part in _parts(value):
        yield from _inside(part, seen)


def _parts(value: Any) -> Iterable[Any]:
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
