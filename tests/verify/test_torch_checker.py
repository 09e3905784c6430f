"""The checker of torch rules in small: what differs, what an op's pattern fixes, and which programs have a meaning."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dplc.engine.language.rule import RuleSet, load
from dplc.engine.verify.checkers import TorchChecker, _difference, _fixed
from dplc.engine.verify.outcome import Wrong
from dplc.engine.verify.torch_subjects import NoSubject
from dplc.ir.program import Param

INF, NAN = float("inf"), float("nan")
Y = Param("y", "f32", (2, 1, 3))
WANT = np.array([[[1.0, -2.0, 1000.0]], [[INF, -INF, NAN]]])


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ((0, 0), 1.0, None),
        ((0, 0), 1.0 + 0.9e-7, None),  # 1e-10 of the largest value
        ((0, 0), 1.0 + 1.2e-7, "y[0, 0] is 1.00000012, not 1.0: they differ by rounding alone, which `@approx` allows"),
        (
            (0, 2),
            1000.0 - 1.2e-7,
            "y[0, 2] is 999.99999988, not 1000.0: they differ by rounding alone, which `@approx` allows",
        ),
        ((1, 0), -INF, "y[1, 0] is -inf, not inf"),
        ((1, 0), NAN, "y[1, 0] is nan, not inf"),
        ((1, 0), 1e300, "y[1, 0] is 1e+300, not inf"),
        ((1, 1), -INF, None),
        ((1, 2), NAN, None),
        ((1, 2), 0.0, "y[1, 2] is 0.0, not nan"),
        ((0, 1), INF, "y[0, 1] is inf, not -2.0"),
        ((0, 1), NAN, "y[0, 1] is nan, not -2.0"),
    ],
)
def test_differences(place: tuple[int, int], value: float, said: str | None) -> None:
    got = WANT.reshape(2, 3).copy()
    got[place] = value
    assert _difference(Y, WANT, got, False) == said
    assert _difference(Y, WANT, got, True) is None  # what nobody defines


def test_small_values_are_compared_with_one() -> None:
    want = np.zeros((2, 1, 3))
    assert _difference(Y, want, np.full((2, 3), 0.9e-10), False) is None
    assert _difference(Y, want, np.full((2, 3), 1.1e-10), False) is not None


def test_shapes_and_dtypes() -> None:
    flat = WANT.reshape(2, 3)
    assert "has the shape [3, 2], not [2, 3]" in (_difference(Y, WANT, flat.T, False) or "")
    assert "is int64, not f32" in (_difference(Y, WANT, np.zeros((2, 3), np.int64), False) or "")
    truth, whole = Param("y", "b8", (3,)), Param("y", "i64", (3,))
    assert "is int64, not b8" in (_difference(truth, np.ones(3, bool), np.ones(3, np.int64), False) or "")
    assert "is bool, not i64" in (_difference(whole, np.ones(3, np.int64), np.ones(3, bool), False) or "")
    assert _difference(whole, np.array([1, 2, 3]), np.array([1, 2, 4]), False) == "y[2] is 4, not 3"
    assert _difference(truth, np.array([True, False, True]), np.array([True, False, True]), False) is None


@functools.cache
def built_in() -> RuleSet:
    return load()


TYPES = """
override rule silu on torch
match
    y = Silu(x)
{where}rewrite
    y[os..] = {value}
"""


def outcome(folder: Path, text: str, name: str, graph: str) -> Callable[[], Any]:
    file = folder / "mine.rw"
    file.write_text(text)
    rules = load([file])
    checker = TorchChecker(rules)
    return lambda: checker.check(rules.rule(name), checker.read(f"## level: torch\n{graph}\n", "test"))


SILU = "graph f(x: f32[3]) -> y: f32[3]:\n    y: f32[3] = Silu(x)"


def test_a_right_rule_a_wrong_one_and_one_that_refuses(tmp_path: Path) -> None:
    right = TYPES.format(where="", value="multiply(x[os..], sigmoid(x[os..]))")
    found = outcome(tmp_path, right, "silu", SILU)()
    assert found.valid and found.firings == 1
    with pytest.raises(Wrong, match=r"y\[0\] is"):
        outcome(tmp_path, right.replace("multiply", "add"), "silu", SILU)()
    refusing = TYPES.format(where='require rank(x) > 1 else "a vector"\n', value="x[os..]")
    found = outcome(tmp_path, refusing, "silu", SILU)()
    assert found.firings == 0 and found.refusals == {"a vector": 1}


def test_what_torch_itself_refuses_has_no_meaning(tmp_path: Path) -> None:
    """The shape that the program declares is not what torch gives."""
    right = TYPES.format(where="", value="multiply(x[os..], sigmoid(x[os..]))")
    found = outcome(tmp_path, right, "silu", SILU.replace("y: f32[3]", "y: f32[4]"))()
    assert found.firings == 0


def test_random_ops_have_no_single_meaning() -> None:
    checker = TorchChecker(built_in())
    drawn = checker.read("## level: torch\ngraph f(x: f32[5]) -> y: f32[5]:\n    y: f32[5] = RandLike(x)\n", "test")
    with pytest.raises(NoSubject, match="the results vary"):
        checker.wanted(drawn.value, 0)
    plain = checker.read(f"## level: torch\n{SILU}\n", "test")
    tensors, (result,) = checker.wanted(plain.value, 0)
    assert np.allclose(result.numpy(), tensors["x"].double() / (1 + (-tensors["x"].double()).exp()))


def test_the_fields_that_a_pattern_fixes() -> None:
    fixed = {name: _fixed(rule) for name, rule in built_in().rules.items() if rule.level == "torch"}
    assert {"rounding_mode": "trunc"} in fixed.values()
    assert {"approximate": "tanh"} in fixed.values()
    assert any(True in found.values() for found in fixed.values())
    assert fixed["silu"] == {}


def test_shorter_dimensions_come_one_at_a_time() -> None:
    checker = TorchChecker(built_in())
    text = "## level: torch\ngraph f(x: f32[5, 2]) -> y: f32[5, 2]:\n    y: f32[5, 2] = Relu(x)\n"
    shapes = [subject.value.ins[0].shape for subject in checker.smaller(checker.read(text, "test"))]
    assert shapes == [(1, 2), (2, 2), (3, 2), (5, 1)]


FAMILIES = sorted(
    {rule.name for rule in built_in().rules.values() if rule.level == "torch" and rule.family and not rule.examples}
)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.sampled(10)
def test_members_of_a_family_are_reached_by_its_examples(name: str) -> None:
    """Where an op of the same rule takes more dimensions, so do the programs; otherwise nothing would be drawn."""
    checker = TorchChecker(built_in())
    subjects = list(checker.examples([built_in().rules[name]]))
    assert sum(checker.check(built_in().rules[name], subject).firings for subject in subjects) > 0, len(subjects)


def test_what_pytorch_resizes_wrongly_is_not_judged() -> None:
    text = "## level: torch\ngraph f(x: f32[1, 2, 3, 2]) -> y: f32[1, 2, 2, {n}]:\n"
    text += "    y: f32[1, 2, 2, {n}] = UpsampleBilinear2dAa(x, output_size=(2, {n}), align_corners=false)\n"
    checker = TorchChecker(built_in())
    column, two = (checker.read(text.format(n=n), "a test").value for n in (1, 2))
    with pytest.raises(NoSubject, match="resizes wrongly"):
        checker.wanted(column, 0)
    assert checker.wanted(two, 0)
