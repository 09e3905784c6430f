"""The modules that a function uses: itself, its closure, its globals, its defaults, and what these hold."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ...ir.names import unused


def modules_of(function: Any) -> dict[str, Any]:
    """{label: module} for the modules that a function or module uses, without those inside of another one.

    A module is labelled by the variable that holds it; the module that is captured itself has the label "". A module
    that is not found is not lost: its weights are constants of the trace.
    """
    if isinstance(function, torch.nn.Module):
        return {"": function}
    found: dict[int, tuple[str, Any]] = {}
    for label, module in _reachable(function, "", set()):
        found.setdefault(id(module), (label, module))
    inner = {id(child) for _, module in found.values() for child in module.modules() if child is not module}
    labelled: dict[str, Any] = {}
    for key, (label, module) in found.items():
        if key not in inner:
            labelled[unused(label, labelled, between="_")] = module
    return labelled


def plain_parts(tensor: Any) -> tuple[Any, ...]:
    """Return the tensors in a wrapper subclass, in the order in which torch.export lists them; a plain tensor alone."""
    if not is_traceable_wrapper_subclass(tensor):
        return (tensor,)
    names, _ = tensor.__tensor_flatten__()
    return tuple(part for name in names for part in plain_parts(getattr(tensor, name)))


def _reachable(value: Any, label: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.nn.Module):
        yield label or type(value).__name__.lower(), value
    elif isinstance(value, MethodType):
        yield from _reachable(value.__self__, label, seen)
        yield from _reachable(value.__func__, label, seen)
    elif isinstance(value, partial):
        for item in (value.func, value.args, value.keywords):
            yield from _reachable(item, label, seen)
    elif isinstance(value, FunctionType):
        for name, item in _variables(value):
            yield from _reachable(item, name, seen)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _reachable(item, name if isinstance(name, str) else label, seen)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _reachable(item, label, seen)


def _variables(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """The variables that a function reads: closure, defaults, globals. Only names that its code mentions."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    parameters = function.__code__.co_varnames[: function.__code__.co_argcount]
    defaults = function.__defaults__ or ()
    yield from zip(parameters[len(parameters) - len(defaults) :], defaults, strict=True)
    yield from (function.__kwdefaults__ or {}).items()
    for name in _global_names(function.__code__):
        if name in function.__globals__ and _of_the_user(function.__globals__[name]):
            yield name, function.__globals__[name]


def _global_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _global_names(constant)


def _of_the_user(value: Any) -> bool:
    """Torch's own functions hold no modules of the user's."""
    return not str(getattr(value, "__module__", "")).startswith("torch.") or isinstance(value, torch.nn.Module)
