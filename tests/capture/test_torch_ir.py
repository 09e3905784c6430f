"""Torch IR: the table of ATen schemas, which overload the fields of an op mean, and the float64 runner."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import counting
import pytest
import torch

from dplc.engine.capture.capture import check_types
from dplc.ir import schemas
from dplc.ir.diagnostic import DplcError
from dplc.ir.expr import Var
from dplc.ir.interp.torch import aten_names, call, run
from dplc.ir.node import REQUIRED
from dplc.ir.text.programs import read_program

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "benches"))
from aten_schemas import generate, render

STAMP = json.loads(schemas.TABLE.read_text())["torch"]


def graph(*lines: str) -> Any:
    """The graph of statements on `x` and `z`, of which the last defines `y: f32[3]`."""
    return read_program("\n    ".join(("graph main(x: f32[3], z: f32[3]) -> y: f32[3]:", *lines)))[1][0]


# ---- The table of schemas: true to the live torch, and readable without it.


def test_the_table_is_that_of_the_live_torch() -> None:
    if torch.__version__.split("+")[0] != STAMP:
        pytest.skip(f"the table is of torch {STAMP}")
    assert schemas.TABLE.read_text() == render(generate())


def test_another_torch_still_has_the_ops_that_rules_name() -> None:
    """Whatever torch this is."""
    live = generate()["ops"]
    for op in ("Linear", "Softmax", "RmsNorm", "LayerNorm", "ScaledDotProductAttention", "Add", "Sum", "Mean", "Cat"):
        shipped = {o.name.partition(".")[2]: [argument.name for argument in o.arguments] for o in schemas.overloads(op)}
        assert {name: [*given] for name, given in live[op]["overloads"].items()}.items() <= shipped.items()


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
    for op in schemas.names() - {"Getitem", schemas.LOOP}:
        assert schemas.op_name(schemas.aten_name(op)) == op
        assert live[op] == schemas.aten_name(op)


def test_no_kind_is_unknown() -> None:
    base = {"Tensor", "number", "int", "float", "bool", "str", "dtype", "Storage", "graph"}
    for op in schemas.names():
        for argument in (argument for overload in schemas.overloads(op) for argument in overload.arguments):
            assert argument.kind.replace("[]", "").replace("?", "") in base
            assert argument.required or schemas.fits(argument.kind, argument.default), (op, argument)


def test_what_a_rule_may_mention() -> None:
    assert schemas.fields("Sum") == ("self", "dim", "keepdim", "dtype")
    assert schemas.fields("Zeros") == ("size", "dtype")
    assert schemas.fields("Nothing") == ()
    defaults = {argument.name: argument.default for argument in schemas.overloads("TrilIndices")[0].arguments}
    assert defaults == {"row": REQUIRED, "col": REQUIRED, "offset": 0, "dtype": Var("i64")}


OVERLOADS = """
    Sum(x)                                 sum
    Sum(x, dtype=f32)                      sum
    Sum(x, dim=(1))                        sum.dim_IntList
    Sum(x, dim=none, keepdim=true)         sum.dim_IntList
    Add(x, z)                              add.Tensor
    Add(x, other=2)                        add.Tensor
    Pow(x, exponent=2)                     pow.Tensor_Tensor
    Pow(x, z)                              pow.Tensor_Tensor
    To(x, dtype=f32)                       to.dtype
    To(x, other=z)                         to.other
    Max(x)                                 max
    Max(x, dim=1)                          max.dim
    Max(x, other=z)                        max.other
    Var(x, dim=(1))                        var.dim
    Var(x, dim=(1), correction=0)          var.correction
    Div(x, z, rounding_mode="floor")       div.Tensor_mode
    Split(x, split_size=2)                 split.Tensor
    Split(x, split_size=(2, 3))            split.sizes
    Arange(end=4)                          arange
    Arange(start=1, end=4)                 arange.start
    Arange(start=1, end=4, step=2)         arange.start_step
    Index(x, indices=(none, z))            index.Tensor
    Cat((x, z))                            cat
    Clamp(x, min=0.0)                      clamp
    Clamp(x, min=z)                        clamp.Tensor
    Getitem(x, index=1)                    getitem
    Softmax(x, dim=0)                      softmax.int
""".strip().splitlines()


@pytest.mark.parametrize(("written", "overload"), [row.rsplit(maxsplit=1) for row in OVERLOADS])
def test_fields_say_which_overload_is_meant(written: str, overload: str) -> None:
    (op,) = graph(f"y: f32[3] = {written}").body
    found = schemas.resolve(op.op, op.args)
    assert found is not None and found.name == overload


@pytest.mark.parametrize("fields", ["x", "x, dim=0, axis=1", "self=f32, dim=0", "x, dim=0.5"])
def test_fields_that_no_overload_has_are_refused(fields: str) -> None:
    with pytest.raises(DplcError, match="no overload of `Softmax` takes these fields"):
        graph(f"y: f32[3] = Softmax({fields})")


# ---- The float64 runner: torch's meaning of Torch IR.

X = torch.tensor([1 / 3, 1e8, -1e8])


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        (("a: f32[3] = Add(x, other=1)", "y: f32[3] = Sub(a, x)"), [1, 1, 1]),  # in float32 the second is 0
        (("i: i64[3] = Arange(end=3)", "y: f32[3] = Div(i, other=3)"), [0, 1 / 3, 2 / 3]),
        (("one: f32[3] = Ones(size=(3))", "y: f32[3] = Div(one, other=3)"), [1 / 3] * 3),
        *(((f"y: f32[3] = To(x, dtype={dtype})",), X.tolist()) for dtype in ("f32", "f16", "bf16", "f64")),
    ],
)
def test_floats_are_computed_in_float64(lines: tuple[str, ...], wanted: list[float]) -> None:
    (got,) = run(graph(*lines), {"x": X, "z": X})
    assert got.dtype is torch.float64 and got.tolist() == wanted
    assert torch.get_default_dtype() is torch.float32


def test_a_missing_input_is_named() -> None:
    with pytest.raises(KeyError, match="z"):
        run(graph("y: f32[3] = Exp(x)"), {"x": X})


@pytest.mark.parametrize("op", ["View", "UnsafeView"])
def test_a_value_has_no_strides_that_a_view_could_miss(op: str) -> None:
    """A program without aliases may view what eager has laid out otherwise (drawn program 4740)."""
    transposed = torch.arange(6).reshape(2, 3).T
    assert torch.equal(call(op, {"self": transposed, "size": [6]}), transposed.reshape(6))


def transform(op: str, given: int = 5, dim: object = (1,), **more: object) -> Any:
    """A transform of rows of some complex numbers."""
    x = torch.full((3, given), 1 + 2j, dtype=torch.complex128).cumsum(1)
    found = call(op, {"self": x, "dim": dim, "normalization": 0, **more})
    return torch.equal(found, torch.fft.irfft(x, n=found.shape[1], norm="forward"))


@pytest.mark.parametrize(("given", "length"), [(1, 1), (2, 2), (2, 3), (5, 8), (5, 9)])
def test_half_a_transform_has_two_lengths(given: int, length: int) -> None:
    """Of n real places n // 2 + 1 are given, and of one place given the length is 1."""
    assert transform("FftC2r", given, [1], last_dim_size=length)


@pytest.mark.parametrize(
    ("said", "options"),
    [
        *(("of n places n // 2", {"given": n, "last_dim_size": length}) for n, length in ((1, 2), (5, 7), (5, 10))),
        # a fraction lies between two dimensions that are there, and is none
        *(
            ("dimensions that are there and named once each", {"dim": dim})
            for dim in ([0.5], [None], [2], [-3], [1, -1])
        ),
    ],
)
def test_a_transform_that_torch_would_not_check_is_refused(said: str, options: dict[str, Any]) -> None:
    for op, more in (("FftC2c", {"forward": True}), ("FftC2r", {"last_dim_size": 4})):
        with pytest.raises(DplcError, match=said):
            transform(op, **{"dim": [1], **more, **options})


def test_a_shape_that_depends_on_values_is_believed() -> None:
    """The text says it, and further shapes follow from it."""

    def check(shape: str) -> None:
        check_types(graph("at: i64[3, 1] = Nonzero(x)", f"n: i64[{shape}] = Neg(at)", "y: f32[3] = Neg(x)"), "f.ir")

    check("3, 1")
    with pytest.raises(DplcError, match=r"f\.ir: `n: i64\[4, 1\] = Neg\(at\)`: torch gives int64\[3, 1\]"):
        check("4, 1")
