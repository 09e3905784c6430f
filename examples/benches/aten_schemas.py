"""The table of ATen schemas, made from the live torch: `python examples/benches/aten_schemas.py --update`.

`ir/schemas.py` reads it without torch.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from dplc.ir.schemas import PLACEMENT, TABLE, op_name

# Private ops that a program written in public ones can give.
_PRIVATE = frozenset((
    "__and__", "__or__", "__xor__", "__lshift__", "__rshift__",
    "_int_mm", "_scaled_mm", "_to_copy", "_unsafe_view", "_safe_softmax", "_native_batch_norm_legit_no_training",
    "_standard_gamma", "_fft_c2c", "_fft_r2c", "_fft_c2r", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa",
))  # fmt: skip
_FOREIGN = ("sparse", "quantize", "fbgemm", "mkldnn", "cudnn", "miopen", "mps", "nested", "dequant")


def generate() -> dict[str, Any]:
    """Import torch and return the table of its schemas."""
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
            found = torch._C._get_operation_overload(schema.name, schema.overload_name)
            draws = torch.Tag.nondeterministic_seeded in found[2]
            if draws:
                entry["draws"] = _rates([argument.name for argument in schema.arguments])
            entry["overloads"][schema.overload_name] = {
                argument.name: _described(argument)
                for argument in schema.arguments
                if argument.name not in PLACEMENT or (draws and argument.name == "device")
            }
    return {"torch": torch.__version__.split("+")[0], "ops": dict(sorted(ops.items()))}


def _wanted(schema: Any, name: str) -> bool:
    """Return whether an overload is functional and returns ordinary tensors."""
    if (name.startswith("_") and name not in _PRIVATE) or any(word in name for word in _FOREIGN):
        return False
    if schema.is_mutable or any(argument.is_out for argument in schema.arguments):
        return False  # in place, or into a buffer of the caller
    if any(x.name in ("device", "generator") and not x.has_default_value() for x in schema.arguments):
        return False  # `to.device`, which is `to.dtype` once the device is left out
    return any("Tensor" in str(result.type) for result in schema.returns)


def _rates(fields: list[str]) -> list[str]:
    """Return the fields of a random op that are 0 where it draws nothing."""
    training = [field for field in fields if field in ("train", "training")]
    return training + [field for field in fields if field.startswith("dropout") or (training and field == "p")]


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
    return {"ScalarType": "dtype", "Device": "str"}.get(text, text)


def render(table: dict[str, Any]) -> str:
    """Return the table as text, one op a line, so that a new torch is a readable diff."""
    lines = (f"  {json.dumps(op)}: {json.dumps(entry)}" for op, entry in table["ops"].items())
    return f'{{"torch": {json.dumps(table["torch"])},\n "ops": {{\n' + ",\n".join(lines) + "\n}}\n"


def main(arguments: list[str]) -> int:
    """Write the table with `--update`; without it, report whether the table is that of the live torch."""
    text = render(generate())
    if "--update" in arguments:
        TABLE.write_text(text, encoding="utf-8")
        return 0
    same = TABLE.read_text(encoding="utf-8") == text
    print("aten.json is up to date" if same else "aten.json differs from this torch: run with --update")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
