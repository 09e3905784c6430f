"""The table of ATen schemas: true to the live torch, readable without it, and enough to tell overloads apart."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import counting
import pytest
import torch

from dplc.ir import schemas
from dplc.ir.expr import Var
from dplc.ir.interp.torch import aten_names
from dplc.ir.node import REQUIRED

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "benches"))
from aten_schemas import generate, render

STAMP = json.loads(schemas.TABLE.read_text())["torch"]


def test_the_table_is_that_of_the_live_torch() -> None:
    if torch.__version__.split("+")[0] != STAMP:
        pytest.skip(f"the table is of torch {STAMP}")
    assert schemas.TABLE.read_text() == render(generate())


def test_another_torch_still_has_the_ops_that_rules_name() -> None:
    """Whatever torch this is."""
    live = generate()["ops"]
    for op in ("Linear", "Softmax", "RmsNorm", "LayerNorm", "ScaledDotProductAttention", "Add", "Sum", "Mean", "Cat"):
        for name, given in live[op]["overloads"].items():
            (shipped,) = (o for o in schemas.overloads(op) if o.name.partition(".")[2] == name)
            assert [*given] == [argument.name for argument in shipped.arguments]


def test_reading_the_table_imports_no_torch_and_is_quick() -> None:
    code = (
        "import sys\n"
        f"sys.path.append({str(Path(counting.__file__).parent)!r})\n"
        "from counting import at_most_calls\n"
        "from dplc.ir import schemas\n"
        "with at_most_calls(1_000):\n"
        "    schemas.overloads('Sum')\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_names_go_there_and_back() -> None:
    live = aten_names()
    for op in schemas.names() - {"Getitem"}:
        assert schemas.op_name(schemas.aten_name(op)) == op
        assert live[op] == schemas.aten_name(op)


def test_no_kind_is_unknown() -> None:
    base = {"Tensor", "number", "int", "float", "bool", "str", "dtype", "Storage"}
    for op in schemas.names():
        for overload in schemas.overloads(op):
            for argument in overload.arguments:
                assert argument.kind.replace("[]", "").replace("?", "") in base
                assert argument.required or schemas.fits(argument.kind, argument.default), (overload.name, argument)


X, Y, F32 = Var("x"), Var("y"), Var("f32")


@pytest.mark.parametrize(("op", "args", "overload"), [
    ("Sum", {"self": X}, "sum"),
    ("Sum", {"self": X, "dtype": F32}, "sum"),
    ("Sum", {"self": X, "dim": (1,)}, "sum.dim_IntList"),
    ("Sum", {"self": X, "dim": None, "keepdim": True}, "sum.dim_IntList"),
    ("Add", {"self": X, "other": Y}, "add.Tensor"),
    ("Add", {"self": X, "other": 2}, "add.Tensor"),
    ("Pow", {"self": X, "exponent": 2}, "pow.Tensor_Tensor"),
    ("Pow", {"self": X, "exponent": Y}, "pow.Tensor_Tensor"),
    ("To", {"self": X, "dtype": F32}, "to.dtype"),
    ("To", {"self": X, "other": Y}, "to.other"),
    ("Max", {"self": X}, "max"),
    ("Max", {"self": X, "dim": 1}, "max.dim"),
    ("Max", {"self": X, "other": Y}, "max.other"),
    ("Var", {"self": X, "dim": (1,)}, "var.dim"),
    ("Var", {"self": X, "dim": (1,), "correction": 0}, "var.correction"),
    ("Div", {"self": X, "other": Y, "rounding_mode": "floor"}, "div.Tensor_mode"),
    ("Split", {"self": X, "split_size": 2}, "split.Tensor"),
    ("Split", {"self": X, "split_size": (2, 3)}, "split.sizes"),
    ("Arange", {"end": 4}, "arange"),
    ("Arange", {"start": 1, "end": 4}, "arange.start"),
    ("Arange", {"start": 1, "end": 4, "step": 2}, "arange.start_step"),
    ("Index", {"self": X, "indices": (None, Y)}, "index.Tensor"),
    ("Cat", {"tensors": (X, Y)}, "cat"),
    ("Clamp", {"self": X, "min": 0.0}, "clamp"),
    ("Clamp", {"self": X, "min": Y}, "clamp.Tensor"),
    ("Getitem", {"self": X, "index": 1}, "getitem"),
    ("Softmax", {"self": X, "dim": 0}, "softmax.int"),
    ("Softmax", {"self": X}, None),  # dim is missing
    ("Softmax", {"self": X, "dim": 0, "axis": 1}, None),
    ("Softmax", {"self": F32, "dim": 0}, None),
    ("Softmax", {"self": X, "dim": 0.5}, None),
    ("Nothing", {}, None),
])  # fmt: skip
def test_fields_say_which_overload_is_meant(op: str, args: dict[str, Any], overload: str | None) -> None:
    found = schemas.resolve(op, tuple(args.items()))
    assert (found.name if found else None) == overload


def test_what_a_rule_may_mention() -> None:
    assert schemas.fields("Sum") == ("self", "dim", "keepdim", "dtype")
    assert "device" not in schemas.fields("Zeros")
    assert schemas.fields("Nothing") == ()
    dtype = next(a for a in schemas.overloads("TrilIndices")[0].arguments if a.name == "dtype")
    assert dtype.default == Var("i64")
    assert schemas.overloads("Linear")[0].arguments[0].default is REQUIRED
