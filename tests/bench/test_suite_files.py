"""Suite files: what is read, and what is said about wrong ones."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from dplc.codegen.target import target
from dplc.engine.bench.bench import compile_all
from dplc.engine.bench.cases import read_suite, subject_of
from dplc.engine.compiler import Compiler, compiler_with
from dplc.engine.ruleset import toolchain
from dplc.ir.diagnostic import DplcError

SUITES = Path(__file__).resolve().parents[2] / "examples" / "suites"
SHAPE = {"name": "a", "operation": "f", "sizes": {"n": 4}}
GOOD: dict[str, Any] = {"operations": {"f": {"expression": "torch.relu(x)", "inputs": {"x": "n 3"}}}, "cases": [SHAPE]}


def written(folder: Path, data: Any) -> Path:
    path = folder / "suite.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def test_sizes_become_shapes(tmp_path: Path) -> None:
    suite = read_suite(written(tmp_path, GOOD))
    assert subject_of(suite, suite.cases[0]).shapes == {"x": (4, 3)}


def test_weights_are_as_large_as_their_fan_in_lets_them_be(tmp_path: Path) -> None:
    data = copy.deepcopy(GOOD)
    plain = read_suite(written(tmp_path, data))
    data["operations"]["f"]["fan_in"] = {"x": "n"}
    scaled = read_suite(written(tmp_path, data))
    one, other = (subject_of(suite, suite.cases[0]).inputs()["x"] for suite in (plain, scaled))
    assert (one * 0.5 == other).all()


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("cases", 0, "sizes", "n"), "4", "Expected `int`, got `str` - at `$.cases[0].sizes[...]`"),
        (("cases", 0, "colour"), "red", "unknown field `colour` - at `$.cases[0]`"),
        (("cases", 0, "operation"), "g", "case `a`: there is no operation `g`"),
        (("cases", 0, "sizes"), {}, "case `a` does not say how large `n` is"),
        (("cases", 0, "sizes", "m"), 2, "case `a`: no input of `f` has a dimension `m`"),
        (("cases", 0, "sizes", "n"), 0, "case `a`: `n` is 0"),
        (("cases", 0, "dtype"), "float8", "Invalid enum value 'float8' - at `$.cases[0].dtype`"),
        (("cases",), [SHAPE, SHAPE], "two cases are named `a`"),
        (("cases",), [], "Expected `array` of length >= 1 - at `$.cases`"),
        (("operations", "f", "inputs"), {"lambda": "n"}, "an input cannot be named `lambda`"),
        (("operations", "f", "inputs"), {"x": "n -1"}, "`-1` of input `x` is neither a number nor a name of a size"),
        (("operations", "f", "inputs"), {}, "operation `f` has no inputs"),
        (("operations", "f", "fan_in"), {"w": "n"}, "`fan_in` names no input: `w`"),
        (("operations", "f", "fan_in"), {"x": "m"}, "`m` of `fan_in` is not a dimension of its inputs"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, place: tuple[Any, ...], value: Any, said: str) -> None:
    data = copy.deepcopy(GOOD)
    inner = data
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    with pytest.raises(DplcError) as wrong:
        read_suite(written(tmp_path, data))
    assert said in wrong.value.render()
    assert "suite.json" in wrong.value.render()


def test_rule_files_of_a_case_are_laid_over_the_rules(tmp_path: Path) -> None:
    """Their paths are relative to the suite, and other cases do not see them."""
    (tmp_path / "single.rw").write_text("override number asynchronous_mma = 0\n")
    data = copy.deepcopy(GOOD)
    data["operations"]["f"] = {"expression": "x @ w", "inputs": {"x": "n n", "w": "n n"}}
    plain = {"name": "a", "operation": "f", "sizes": {"n": 2048}, "dtype": "bfloat16"}
    data["cases"] = [
        plain,
        {**plain, "name": "single", "rules": ["single.rw"]},
        {**plain, "name": "no", "rules": ["no.rw"]},
    ]
    suite = read_suite(written(tmp_path, data))
    subjects = [subject_of(suite, case) for case in suite.cases]
    records, (own, single), _ = compile_all(subjects, lambda: compiler_with(target("h200")), lambda line: None)
    assert "wgmma" in own.compilation.cuda and "wgmma" not in single.compilation.cuda
    assert f"no such rule file: {tmp_path / 'no.rw'}" in records[2].error


def test_no_json(tmp_path: Path) -> None:
    with pytest.raises(DplcError, match="holds no suite: Input data was truncated"):
        read_suite(written(tmp_path, "{"))
    with pytest.raises(DplcError, match="cannot read the suite"):
        read_suite(tmp_path / "absent.json")


def test_several_mistakes_are_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(DplcError) as wrong:
        read_suite(written(tmp_path, {**GOOD, "cases": [{**SHAPE, "sizes": {"m": 0}}]}))
    assert wrong.value.render().count("error:") == 3


def test_selection(tmp_path: Path) -> None:
    suite = read_suite(SUITES / "kernels_84.json")
    assert len(suite.select("rmsnorm")) == 6
    assert [case.name for case in suite.select("softmax.*.s32")] == ["softmax.tinyllama.s32", "softmax.qwen.s32"]
    with pytest.raises(DplcError, match="no case of the suite"):
        suite.select("nothing")


def test_the_84_shapes() -> None:
    suite = read_suite(SUITES / "kernels_84.json")
    assert len(suite.cases) == 84
    assert all(subject_of(suite, case).shapes for case in suite.cases)
    for name in suite.operations:  # every expression is what the operation says, on small extents
        case = next(case for case in suite.cases if case.operation == name)
        assert subject_of(suite, case).shapes


def test_the_suite_of_halves_compiles_to_16_byte_accesses() -> None:
    suite, tools = read_suite(SUITES / "halves.json"), toolchain()
    for case in suite.cases:
        captured = subject_of(suite, case).capture()
        texts = [kernel.text for kernel in Compiler(tools, target("sm_90a")).compile(captured).cuda_kernels]
        if any("mma_m16n8k16" in text for text in texts):  # a lane has two neighbours of a result: it stores pairs
            assert any("ldmatrix_x4" in text for text in texts), case.name
            copied = any("cp_async16" in text or "ldg128(" in text for text in texts)
            assert copied == (case.name not in ("linear.ragged.bf16", "matmul.even.f16")), case.name
        elif any("wgmma_m64" in text for text in texts):  # boxes are copied, and pairs stored here, too
            assert any("copy_box_2d" in text for text in texts), case.name
        else:
            assert any("stg128(" in text for text in texts), case.name


def test_an_expression_that_fails_names_its_case(tmp_path: Path) -> None:
    data = copy.deepcopy(GOOD)
    data["operations"]["f"]["expression"] = "torch.rely(x)"
    suite = read_suite(written(tmp_path, data))
    with pytest.raises(DplcError) as wrong:
        subject_of(suite, suite.cases[0]).capture()
    assert "rely" in wrong.value.render()
    assert "case `a`: torch.rely(x)" in wrong.value.render()
