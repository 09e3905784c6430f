"""Suite files: what is read, and what is said about wrong ones."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from dplc.codegen.target import target
from dplc.engine.bench.bench import compile_all
from dplc.engine.bench.cases import BenchSubject, Suite, read_suite, subject_of
from dplc.engine.compiler import compiler_with
from dplc.ir.diagnostic import DplcError

SUITES = Path(__file__).resolve().parents[2] / "examples" / "suites"
SHAPE = {"name": "a", "operation": "f", "sizes": {"n": 4}}
GOOD: dict[str, Any] = {"operations": {"f": {"expression": "torch.relu(x)", "inputs": {"x": "n 3"}}}, "cases": [SHAPE]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "suite.json"


def read(path: Path, place: str = "", value: Any = None) -> Suite:
    """The good suite with one value that differs: that at `cases.0.sizes`."""
    data = copy.deepcopy(GOOD)
    inner: Any = data
    *keys, last = (int(key) if key.isdigit() else key for key in place.split("."))
    for key in keys:
        inner = inner[key]
    if place:
        inner[last] = value
    path.write_text(json.dumps(data))
    return read_suite(path)


def first_of(suite: Suite) -> BenchSubject:
    return subject_of(suite, suite.cases[0])


def test_sizes_become_shapes_and_weights_are_as_large_as_their_fan_in_lets_them_be(path: Path) -> None:
    plain, scaled = first_of(read(path)), first_of(read(path, "operations.f.fan_in", {"x": "n"}))
    assert plain.shapes == {"x": (4, 3)}
    assert (plain.inputs()["x"] * 0.5 == scaled.inputs()["x"]).all()


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("cases.0.sizes.n", "4", "Expected `int`, got `str` - at `$.cases[0].sizes[...]`"),
        ("cases.0.colour", "red", "unknown field `colour` - at `$.cases[0]`"),
        ("cases.0.operation", "g", "case `a`: there is no operation `g`"),
        ("cases.0.sizes", {}, "case `a` does not say how large `n` is"),
        ("cases.0.sizes.m", 2, "case `a`: no input of `f` has a dimension `m`"),
        ("cases.0.sizes.n", 0, "case `a`: `n` is 0"),
        ("cases.0.dtype", "float8", "Invalid enum value 'float8' - at `$.cases[0].dtype`"),
        ("cases", [SHAPE, SHAPE], "two cases are named `a`"),
        ("cases", [], "Expected `array` of length >= 1 - at `$.cases`"),
        ("operations.f.inputs", {"lambda": "n"}, "an input cannot be named `lambda`"),
        ("operations.f.inputs", {"x": "n -1"}, "`-1` of input `x` is neither a number nor a name of a size"),
        ("operations.f.inputs", {}, "operation `f` has no inputs"),
        ("operations.f.fan_in", {"w": "n"}, "`fan_in` names no input: `w`"),
        ("operations.f.fan_in", {"x": "m"}, "`m` of `fan_in` is not a dimension of its inputs"),
        # several mistakes are said at once
        ("cases.0.sizes", {"m": 0}, "`n` is\nno input of `f` has a dimension `m`\n`m` is 0"),
        ("operations.f.expression", "torch.rely(x)", "rely\ncase `a`: torch.rely(x)"),
    ],
)
def test_what_is_wrong_is_said(path: Path, place: str, value: Any, said: str) -> None:
    with pytest.raises(DplcError) as wrong:
        first_of(read(path, place, value)).capture()
    message = wrong.value.render()
    assert all(line in message for line in said.split("\n"))
    assert "suite.json" in message or "expression" in place


def test_what_is_no_suite_is_said(path: Path) -> None:
    with pytest.raises(DplcError, match="cannot read the suite"):
        read_suite(path)
    path.write_text("{")
    with pytest.raises(DplcError, match="holds no suite: Input data was truncated"):
        read_suite(path)


def test_rule_files_of_a_case_are_laid_over_the_rules(path: Path) -> None:
    """Their paths are relative to the suite, and other cases do not see them."""
    path.with_name("single.rw").write_text("override number asynchronous_mma = 0\n")
    plain = {"operation": "f", "sizes": {"n": 2048}, "dtype": "bfloat16"}
    files = {"a": [], "single": ["single.rw"], "no": ["no.rw"]}
    cases = [{**plain, "name": name, "rules": rules} for name, rules in files.items()]
    product = {"f": {"expression": "x @ w", "inputs": {"x": "n n", "w": "n n"}}}
    path.write_text(json.dumps({"operations": product, "cases": cases}))
    suite = read_suite(path)
    subjects = [subject_of(suite, case) for case in suite.cases]
    records, (own, single), _ = compile_all(subjects, lambda: compiler_with(target("h200")), lambda line: None)
    assert "wgmma" in own.compilation.cuda and "wgmma" not in single.compilation.cuda
    assert f"no such rule file: {path.with_name('no.rw')}" in records[2].error


def test_the_84_shapes() -> None:
    suite = read_suite(SUITES / "kernels_84.json")
    assert len(suite.cases) == 84 and all(subject_of(suite, case).shapes for case in suite.cases)
    assert len(suite.select("rmsnorm")) == 6
    assert [case.name for case in suite.select("softmax.*.s32")] == ["softmax.tinyllama.s32", "softmax.qwen.s32"]
    with pytest.raises(DplcError, match="no case of the suite"):
        suite.select("nothing")


def test_the_suite_of_halves_compiles_to_16_byte_accesses() -> None:
    suite, compiler = read_suite(SUITES / "halves.json"), compiler_with(target("sm_90a"))
    for case in suite.cases:
        text = subject_of(suite, case).compile(compiler).cuda
        if "mma_m16n8k16" in text:  # a lane has two neighbours of a result: it stores pairs
            assert "ldmatrix_x4" in text, case.name
            copied = "cp_async16" in text or "ldg128(" in text
            assert copied == (case.name not in ("linear.ragged.bf16", "matmul.even.f16")), case.name
        else:  # with wgmma boxes are copied, and pairs stored here, too
            assert ("copy_box_2d" if "wgmma_m64" in text else "stg128(") in text, case.name
