"""What Torch IR may say: per op its overloads, their fields, kinds and defaults, from torch's own ATen schemas.

The table ships as `aten.json`, so that rules are checked without importing torch; a test compares it with the live
torch. `python -m dplc.engine.front.schemas --update` writes it anew.

**Which overload a statement means is a function of its fields alone.** A statement names every field without a default
and every other field that differs from its default, so `resolve` takes the first overload (torch's order) that has all
the fields given, is given all the fields it requires, and whose kinds fit. `Sum(x)` is `sum`, `Sum(x, dim=(1))` is
`sum.dim_IntList`. Where several fit, they mean the same.

Fields that say where and how a tensor is stored or computed, not what it is (device, layout, memory_format, ...), are
no part of Torch IR.
"""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

from ...ir.expr import Var
from ...ir.interp.torch import DTYPES, op_name
from ...ir.node import REQUIRED, Value
from ...ir.torch import TorchOp

TABLE = Path(__file__).with_name("aten.json")

# Where and how, not what: left out of the table, and dropped by capture.
PLACEMENT = frozenset(
    ("device", "layout", "pin_memory", "memory_format", "non_blocking", "copy", "cudnn_enable", "cudnn_enabled")
)
# Private ops that a program written in public ones can give.
_PRIVATE = frozenset((
    "__and__", "__or__", "__xor__", "__lshift__", "__rshift__",
    "_to_copy", "_unsafe_view", "_safe_softmax", "_native_batch_norm_legit_no_training",
))  # fmt: skip
_FOREIGN = ("sparse", "quantize", "fbgemm", "mkldnn", "cudnn", "miopen", "mps", "nested", "backward", "dequant")


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


GETITEM = Overload("getitem", (Argument("self", "Tensor[]"), Argument("index", "int")))


def names() -> frozenset[str]:
    """The names of all ops, in camel case."""
    return frozenset(_table()["ops"]) | {"Getitem"}


def aten_name(op: str) -> str:
    """The name of an op in torch: `RmsNorm` is `rms_norm`. Raises KeyError for an unknown op."""
    return "getitem" if op == "Getitem" else str(_table()["ops"][op]["aten"])


@functools.cache
def overloads(op: str) -> tuple[Overload, ...]:
    """The overloads of an op in torch's order; none for an unknown op."""
    if op == "Getitem":
        return (GETITEM,)
    entry = _table()["ops"].get(op)
    if entry is None:
        return ()
    found = []
    for name, given in entry["overloads"].items():
        full = f"{entry['aten']}.{name}" if name else entry["aten"]
        found.append(Overload(full, tuple(_argument(field, *rest) for field, rest in given.items())))
    return tuple(found)


def _argument(name: str, kind: str, default: Any = REQUIRED) -> Argument:
    if isinstance(default, list):
        default = tuple(default)
    return Argument(name, kind, Var(default) if kind == "dtype?" and isinstance(default, str) else default)


@functools.cache
def fields(op: str) -> tuple[str, ...]:
    """The names of all fields of an op, over its overloads, in order of first occurrence: what a rule may mention."""
    return tuple(dict.fromkeys(argument.name for overload in overloads(op) for argument in overload.arguments))


def resolve(op: str, args: Value) -> Overload | None:
    """The overload that `op(args)` means, None if no overload has these fields. args: ((field, value), ...)."""
    return next((overload for overload in overloads(op) if _accepts(overload, dict(args))), None)


def complete(statement: TorchOp) -> dict[str, Value]:
    """Every field of a statement in schema order, defaults filled in. Raises ValueError if no overload fits."""
    overload = resolve(statement.op, statement.args)
    if overload is None:
        given = ", ".join(name for name, _ in statement.args)
        raise ValueError(f"no overload of {statement.op} has the fields {given}")
    values = dict(statement.args)
    return {argument.name: values.get(argument.name, argument.default) for argument in overload.arguments}


def _accepts(overload: Overload, given: dict[str, Value]) -> bool:
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
    """Whether a value may stand in a field of this kind. A name is a tensor, or a dtype if it is one's name."""
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
    return json.loads(TABLE.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def generate() -> dict[str, Any]:
    """The table of the live torch. Imports torch."""
    import torch

    registered = set(torch._C._dispatch_get_all_op_names())
    ops: dict[str, Any] = {}
    for schema in torch._C._jit_get_all_schemas():
        name = schema.name.removeprefix("aten::")
        full = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
        if full in registered and schema.name.startswith("aten::") and _wanted(schema, name):
            entry = ops.setdefault(op_name(name), {"aten": name, "overloads": {}})
            if entry["aten"] != name:
                raise ValueError(f"{name} and {entry['aten']} share the name {op_name(name)}")
            entry["overloads"][schema.overload_name] = {
                argument.name: _described(argument) for argument in schema.arguments if argument.name not in PLACEMENT
            }
    return {"torch": torch.__version__.split("+")[0], "ops": dict(sorted(ops.items()))}


def _wanted(schema: Any, name: str) -> bool:
    """Functional overloads that give ordinary tensors."""
    if (name.startswith("_") and name not in _PRIVATE) or any(word in name for word in _FOREIGN):
        return False
    if schema.is_mutable or any(argument.is_out or argument.name == "generator" for argument in schema.arguments):
        return False  # in place, into a buffer of the caller's, or random
    if any(argument.name == "device" and not argument.has_default_value() for argument in schema.arguments):
        return False  # `to.device`, which is `to.dtype` once the device is left out
    return any("Tensor" in str(result.type) for result in schema.returns)


def _described(argument: Any) -> list[Any]:
    kind = _kind(str(argument.real_type))
    if not argument.has_default_value():
        return [kind]
    default = argument.default_value
    if kind.startswith("dtype") and default is not None:
        default = {4: "i64"}[default]  # torch's number for int64, the only one that is a default
    return [kind, list(default) if isinstance(default, (list, tuple)) else default]


def _kind(text: str) -> str:
    for prefix, suffix in (("Optional[", "?"), ("List[", "[]")):
        if text.startswith(prefix):
            return _kind(text[len(prefix) : -1]) + suffix
    return {"ScalarType": "dtype"}.get(text, text)


def render(table: dict[str, Any]) -> str:
    """The table as text, one op a line, so that a new torch is a readable diff."""
    lines = (f"  {json.dumps(op)}: {json.dumps(entry)}" for op, entry in table["ops"].items())
    return f'{{"torch": {json.dumps(table["torch"])},\n "ops": {{\n' + ",\n".join(lines) + "\n}}\n"


def main(arguments: list[str]) -> int:
    """`--update` writes the table; without it, says whether the table is that of the live torch."""
    text = render(generate())
    if "--update" in arguments:
        TABLE.write_text(text, encoding="utf-8")
        return 0
    same = TABLE.read_text(encoding="utf-8") == text
    print("aten.json is up to date" if same else "aten.json differs from this torch: run with --update")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
