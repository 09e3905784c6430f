"""Schemas of Torch IR: per op its overloads, their fields, kinds and defaults, from torch's own ATen schemas.

The table ships as `aten.json`, so that text and rules are read without importing torch; a test compares it with the
live torch. `examples/benches/aten_schemas.py` regenerates it.

**Which overload a statement means is a function of its fields alone.** A statement names every field without a default
and every other field that differs from its default, so `resolve` returns the first overload (torch's order) that has
all the fields given, is given all the fields it requires, and whose kinds fit. `Sum(x)` is `sum`, `Sum(x, dim=(1))` is
`sum.dim_IntList`. Where several fit, they mean the same.

Torch IR omits fields that say where and how a tensor is stored or computed, not its value (device, layout,
memory_format, ...). Only an op that draws random numbers has a device: each has a generator of its own.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .dtypes import DTYPES as COMPUTED
from .expr import Var, only_sizes
from .node import REQUIRED, Node, Value
from .torch import TorchGraph

TABLE = Path(__file__).with_name("aten.json")

# The dtypes that a Torch IR program can name, and what torch calls them.
DTYPES = {
    **{name: dtype.torch for name, dtype in COMPUTED.items()},
    "u16": "uint16", "u32": "uint32", "u64": "uint64", "c32": "complex32", "c64": "complex64", "c128": "complex128",
}  # fmt: skip

# Complex dtypes that programs may compute with, and the dtype of their real and imaginary parts.
PARTS = {"c64": "f32", "c128": "f64"}

# Fields whose tensors torch promotes together.
PROMOTED = frozenset(("self", "other", "value", "tensor1", "tensor2", "min", "max", "exponent", "x", "n"))

# Ops that do not round a tensor without dimensions to 16 bits next to 16-bit floats.
WIDE_SCALARS = frozenset(("Mul", "Multiply", "Div", "Divide", "TrueDivide", "FloorDivide"))

# Where and how, not what: left out of the table, and dropped by capture.
PLACEMENT = frozenset((
    "device", "layout", "pin_memory", "memory_format", "non_blocking", "copy", "cudnn_enable", "cudnn_enabled",
    "generator",
))  # fmt: skip


class Argument(NamedTuple):
    """A field of an overload. kind: `Tensor number int float bool str dtype`, `[]` a list of it, `?` it or None."""

    name: str
    kind: str
    default: Value = REQUIRED

    @property
    def required(self) -> bool:
        return self.default is REQUIRED


class Overload(NamedTuple):
    """One schema: its name in torch (`sum.dim_IntList`) and its fields in order."""

    name: str
    arguments: tuple[Argument, ...]


# A loop: its body is a graph of carried values, of one row of each of `xs`, and of `reads`, which are the same in every
# step. It gives the carried values of the next step, and rows. The results are the last carried values, and the stacked
# rows.
LOOP = "Scan"
_OWN = {
    "Getitem": Overload("getitem", (Argument("self", "Tensor[]"), Argument("index", "int"))),
    LOOP: Overload(
        "scan", (*(Argument(name, "Tensor[]") for name in ("init", "xs", "reads")), Argument("body", "graph"))
    ),
}


def op_name(aten: str) -> str:
    """Return the Torch IR name of an ATen op: `rms_norm` is `RmsNorm`, `__and__` is `And`."""
    return "".join(part[:1].upper() + part[1:] for part in aten.strip("_").split("_"))


def names() -> frozenset[str]:
    """Return the names of all ops, in camel case."""
    return frozenset(_table()["ops"]) | _OWN.keys()


def aten_name(op: str) -> str:
    """Return the name of an op in torch: `RmsNorm` is `rms_norm`. Raises KeyError for an unknown op."""
    return _OWN[op].name if op in _OWN else str(_table()["ops"][op]["aten"])


@functools.cache
def overloads(op: str) -> tuple[Overload, ...]:
    """Return the overloads of an op in torch's order; none for an unknown op."""
    if op in _OWN:
        return (_OWN[op],)
    entry = _table()["ops"].get(op)
    if entry is None:
        return ()
    found = []
    for name, given in entry["overloads"].items():
        full = f"{entry['aten']}.{name}" if name else entry["aten"]
        found.append(Overload(full, tuple(_argument(field, *rest) for field, rest in given.items())))
    return tuple(found)


def draws(op: str, given: Mapping[str, Any]) -> bool:
    """Return whether an op with such fields draws random numbers.

    Dropout outside of training or of rate 0 or 1 does not, nor do attention and recurrent layers without dropout.
    """
    rates = _table()["ops"].get(op, {}).get("draws")
    return rates is not None and all(given.get(name) is True or given.get(name, 0) not in (0, 1) for name in rates)


def takes_tensor(op: str, field: str) -> bool:
    """Return whether an overload of an op has a tensor for a field."""
    return any(argument.name == field and argument.kind == "Tensor" for x in overloads(op) for argument in x.arguments)


def _argument(name: str, kind: str, default: Any = REQUIRED) -> Argument:
    if isinstance(default, list):
        default = tuple(default)
    return Argument(name, kind, Var(default) if kind == "dtype?" and isinstance(default, str) else default)


@functools.cache
def fields(op: str) -> tuple[str, ...]:
    """Return the names of all fields of an op, over its overloads, in order of first occurrence.

    A rule may mention these fields.
    """
    return tuple(dict.fromkeys(argument.name for overload in overloads(op) for argument in overload.arguments))


def resolve(op: str, args: Value) -> Overload | None:
    """Return the overload that `op(args)` means, or None if no overload has these fields.

    args: ((field, value), ...).
    """
    return next((overload for overload in overloads(op) if accepts(overload, dict(args))), None)


def accepts(overload: Overload, given: dict[str, Value]) -> bool:
    """Return whether these are fields of the overload, of the right kinds and with all required fields."""
    known = {argument.name: argument for argument in overload.arguments}
    if not known.keys() >= given.keys():
        return False
    if any(argument.required and argument.name not in given for argument in overload.arguments):
        return False
    return all(fits(known[name].kind, value) for name, value in given.items())


_SCALARS: dict[str, tuple[type, ...]] = {
    "number": (int, float, bool), "int": (int,), "float": (int, float), "bool": (bool,), "str": (str,),
    "Tensor": (int, float, bool),  # torch takes a number where it wants a tensor
}  # fmt: skip


def fits(kind: str, value: Value) -> bool:
    """Return whether a field of this kind may hold a value. A name is a tensor, or a dtype if a dtype has that name."""
    if kind == "graph" or isinstance(value, TorchGraph):
        return kind == "graph" and isinstance(value, TorchGraph)
    if isinstance(value, Node) and only_sizes(value):
        value = 1  # a size is a number
    if kind.endswith("?"):
        return value is None or fits(kind[:-1], value)
    if kind.endswith("[]"):
        if isinstance(value, tuple):
            return all(fits(kind[:-2], item) for item in value)
        return kind == "Tensor[]" and isinstance(value, Var)
    if isinstance(value, Var):
        return kind == ("dtype" if value.name in DTYPES else "Tensor")
    return isinstance(value, _SCALARS.get(kind, ()))


@functools.cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    return table
