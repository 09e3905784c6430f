"""Products of rows about their own weighted mean, as of covariances, written in one comprehension and not op by op.

Both folds and the product are one kernel then. What a row's fold gives goes into the product's operands.
"""

from __future__ import annotations

from typing import Any

import torch
from drawing import draws
from hypothesis import example, given, settings, strategies as st
from wide_checks import at_most, flat

from dplc.codegen.emulator.executor import run_kernels
from dplc.codegen.judge import judge
from dplc.codegen.target import target
from dplc.engine.cli.programs import compile_dump, draw as drawn_inputs, dump_of, reference_of
from dplc.engine.compiler import compiler_with
from dplc.ir.interp import loop as loop_meaning, tile as tile_meaning
from dplc.ir.schemas import DTYPES
from dplc.ir.text.programs import read_program
from dplc.ir.verify.kernel import problems

EXTENTS = (1, 2, 3, 5, 7, 8, 9, 16, 17, 33, 64)
"""Rows, columns, places of a sum."""
SECONDS = 30


def operand(row: str, extents: dict[str, int], read: str, pre: str, fold: str, divided: str, how: str) -> list[str]:
    """The lines of `x - sum(w*x) / sum(w)` for the rows of an operand."""
    n, k = extents[row], extents["k"]
    mean = {"by weights": f"divide(s{row}, total)", "by places": f"multiply(s{row}, {1 / k!r})", "": f"s{row}"}[divided]
    return [
        f"b{row}[{row}:{n}, k:{k}] = {pre}",
        f"p{row}[{row}, k] = multiply(b{row}, often)",
        f"s{row}[{row}] = Reduce({fold}, k, p{row})",
        f"m{row}[{row}] = {mean if divided else f'multiply(s{row}, 1.0)'}",
        f"g{row}[{row}, k] = {how}(b{row}, m{row})",
    ]


@st.composite
def programs(draw: Any) -> str:
    """A program as the text of Tensor IR."""
    extents = {name: draw(st.sampled_from(EXTENTS)) for name in "ijk"}
    transposed, kind = draw(st.booleans()), draw(st.sampled_from(("f32", "f32", "f64")))
    fold, how = draw(st.sampled_from(("add", "add", "maximum"))), draw(st.sampled_from(("subtract", "divide")))
    divided = draw(st.sampled_from(("by weights", "by weights", "by places", "")))
    pre = draw(st.sampled_from(("multiply({}, 1.5)", "abs({})", "multiply({}, 1.0)")))
    same = draw(st.booleans())
    if same:
        extents["j"] = extents["i"]
    other = "x" if same else "y"
    lines = [f"often[k:{extents['k']}] = {kind}(w[k])"]
    lines += ["total = Reduce(add, k, often)"] * (divided == "by weights")
    for row, name in (("i", "x"), ("j", other)):
        read = f"{name}[k, {row}]" if transposed else f"{name}[{row}, k]"
        lines += operand(row, extents, read, pre.format(read), fold, divided, how)
    lines += [
        f"prod[i:{extents['i']}, j:{extents['j']}, k] = multiply(gi[i, k], gj[j, k])",
        "z[i, j] = Reduce(add, k, prod)",
    ]
    shapes = {"x": ["i", "k"], other: ["j", "k"]} if not same else {"x": ["i", "k"]}
    ins = [
        f"{name}: {kind}[{', '.join(str(extents[a]) for a in (axes[::-1] if transposed else axes))}]"
        for name, axes in shapes.items()
    ]
    head = f"graph f({', '.join(ins)}, w: i64[{extents['k']}]) -> z: {kind}[{extents['i']}, {extents['j']}]:"
    return "\n    ".join(["## level: tensor\n" + head, *lines]) + "\n"


# In each of these what one row's fold gives went wrong: a name of its own was taken, or a thread beyond the last column used it.
RECIPROCAL = """## level: tensor
graph f(x: f32[33, 7], y: f32[7, 33], w: i64[7]) -> z: f32[33, 33]:
    often[k] = f32(w[k])
    total = Reduce(add, k:7, often)
    bi[i:33, k] = multiply(x[i, k], 1.5)
    pi[i, k] = multiply(bi, often)
    si[i] = Reduce(maximum, k, pi)
    mi[i] = divide(si, total)
    gi[i, k] = subtract(bi, mi)
    pj[j:33, k] = multiply(y[k, j], often)
    sj[j] = Reduce(maximum, k, pj)
    mj[j] = divide(sj, total)
    gj[j, k] = subtract(y[k, j], mj)
    wi[i, k] = multiply(gi, often)
    prod[i, j, k] = multiply(wi, gj)
    z[i, j] = Reduce(add, k, prod)
"""
BEYOND = """## level: tensor
graph f(x: f32[33, 16], y: f32[16, 7], w: i64[16]) -> z: f32[33, 7]:
    often[k] = f32(w[k])
    bi[i:33, k:16] = abs(x[i, k])
    pi[i, k] = multiply(bi, often)
    si[i] = Reduce(add, k, pi)
    gi[i, k] = subtract(bi, si)
    bj[j:7, k] = abs(y[k, j])
    pj[j, k] = multiply(bj, often)
    sj[j] = Reduce(add, k, pj)
    gj[j, k] = subtract(bj, sj)
    prod[i, j, k] = multiply(gi, gj)
    z[i, j] = Reduce(add, k, prod)
"""


@settings(max_examples=draws(2), deadline=None)
@example(RECIPROCAL, "sm_80")
@example(BEYOND, "h200")
@given(programs(), st.sampled_from(("sm_80", "h200")))
def test_products_of_rows_about_their_means(text: str, machine: str) -> None:
    """On every level what the text means; no name is read where there is none."""
    level, units = read_program(text, "test")
    dump = dump_of(level or "", units, units, {})
    with at_most(SECONDS):
        made = compile_dump(dump, compiler_with(target(machine)))
    assert [problems(kernel) for kernel in made.kernels] == [()] * len(made.kernels)
    tensors = drawn_inputs(dump.plan.inputs, 0)
    wanted, data = reference_of(dump, tensors), {name: flat(tensor) for name, tensor in tensors.items()}
    runs: Any = ((loop_meaning.run, made.plan.kernels), (tile_meaning.run, made.tile), (run_kernels, made.kernels))
    for run, kernels in runs:
        found = run(kernels, data)[made.plan.outputs[0].name].reshape(wanted[0].shape)
        kind = made.plan.results[0].dtype if run is run_kernels else "f64"  # the others compute in float64
        assert judge([torch.from_numpy(found.copy()).to(getattr(torch, DTYPES[kind]))], wanted).ok, run
