"""The dtypes of programs, in a table, `dtypes.toml`: names in C++, numpy and torch, and the size of an element."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any, Literal, NamedTuple

DtypeName = Literal["f64", "f32", "f16", "bf16", "e4m3", "e5m2", "i64", "i32", "i16", "i8", "u8", "b8"]


class Dtype(NamedTuple):
    """Names and size of a dtype in CUDA, numpy and PyTorch.

    numpy: the dtype that holds the same bits. numpy has no bf16, whose bits are held as uint16, and no float of 8 bits.
    e4m3 has no infinity: values beyond 448 become 448, as in PyTorch.
    """

    c_type: str
    item_bytes: int
    numpy: str
    torch: str


def toml_table(package: str, name: str) -> dict[str, Any]:
    """Return the table in the file `NAME.toml` of a package, which may be in an archive: a pack is one."""
    return tomllib.loads((files(package) / f"{name}.toml").read_text())


DTYPES: dict[str, Dtype] = {name: Dtype(*fields) for name, fields in toml_table(__package__, "dtypes").items()}
COMPUTING_FLOATS = ("f32", "f16", "bf16", "f64")  # PyTorch adds and multiplies them, and models may be of them
FLOAT_NAMES = {name: ours for ours in COMPUTING_FLOATS for name in (ours, DTYPES[ours].torch)}  # ours and torch's
FLOATS = (*COMPUTING_FLOATS, "e4m3", "e5m2")
INTEGERS = ("i32", "i64", "u8", "i8", "i16")
HALVES = ("f16", "bf16")
SMALL_FLOATS = (*HALVES, "e4m3", "e5m2")  # in registers as f32; as themselves only where nothing computes with them
NARROW = ("u8", "i8", "i16")  # C++ computes in int what is narrower than it, so each result is cut to its width
