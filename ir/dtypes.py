"""The dtypes of programs, in one table: their names in C++, numpy and torch, and the size of an element."""

from __future__ import annotations

from typing import Literal, NamedTuple

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


DTYPES: dict[str, Dtype] = {
    "f32": Dtype("float", 4, "float32", "float32"),
    "f16": Dtype("f16", 2, "float16", "float16"),
    "bf16": Dtype("bf16", 2, "uint16", "bfloat16"),
    "i32": Dtype("int", 4, "int32", "int32"),
    "i64": Dtype("long long", 8, "int64", "int64"),
    "b8": Dtype("bool", 1, "bool", "bool"),
    "f64": Dtype("double", 8, "float64", "float64"),
    "i16": Dtype("i16", 2, "int16", "int16"),
    "i8": Dtype("i8", 1, "int8", "int8"),
    "u8": Dtype("u8", 1, "uint8", "uint8"),
    "e4m3": Dtype("e4m3", 1, "uint8", "float8_e4m3fn"),
    "e5m2": Dtype("e5m2", 1, "uint8", "float8_e5m2"),
}
COMPUTING_FLOATS = ("f32", "f16", "bf16", "f64")  # PyTorch adds and multiplies them, and models may be of them
FLOAT_NAMES = {name: ours for ours in COMPUTING_FLOATS for name in (ours, DTYPES[ours].torch)}  # ours and torch's
FLOATS = (*COMPUTING_FLOATS, "e4m3", "e5m2")
INTEGERS = ("i32", "i64", "u8", "i8", "i16")
HALVES = ("f16", "bf16")
SMALL_FLOATS = (*HALVES, "e4m3", "e5m2")  # in registers as f32; as themselves only where nothing computes with them
NARROW = ("u8", "i8", "i16")  # C++ computes in int what is narrower than it, so each result is cut to its width
