"""The judge by itself: tensors that are right, tensors that are wrong, and eager results that fail here and there."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from drawing import draws
from hypothesis import given, settings, strategies as st

from dplc.codegen.judge import GATES, judge
from dplc.engine.capture.capture import capture
from dplc.engine.run.calls import judge_program

INF, NAN = float("inf"), float("nan")
KINDS = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def drawn(count: int = 1000, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def behind(*first: float) -> torch.Tensor:
    """Some values, then a thousand that are drawn."""
    return torch.cat([torch.tensor(first, dtype=torch.float64), drawn()])


def off(values: torch.Tensor, *places: int) -> torch.Tensor:
    """A copy that is larger by one at some places."""
    copy = values.clone()
    copy[[*places]] += 1
    return copy


class Case(NamedTuple):
    """float64 and eager; results that are right, as eager is; those that are wrong, with the number of wrong elements.

    alone: whether the judge says the same of them without eager.
    """

    want: torch.Tensor
    eager: torch.Tensor
    right: list[torch.Tensor]
    wrong: list[tuple[torch.Tensor, int]]
    alone: bool = False


HUNDRED, TINY, POLE = (behind(first).float() for first in (100.0, 1e-30, 1.5707963))
HALVES = POLE / torch.cat([torch.ones(1), torch.full((1000,), 2.0)])
STEPS, BITS = torch.arange(-50, 51).double(), torch.arange(40).remainder(2)
THIRD = torch.tensor(38.20 / 3 * 3.0007, dtype=torch.float64)
CASES = {
    "a rule that adds 1000 to log(exp(x)), where eager overflows once": Case(
        HUNDRED.double(), HUNDRED.exp().log(), [HUNDRED], [(HUNDRED + 1000, 1000)]
    ),
    "a floor that eager takes elsewhere": Case(
        STEPS, off(STEPS, 3, 9, 60).float(), [STEPS.float(), off(STEPS, 9).float()],
        [(off(STEPS, 9, 10).float(), 1), (STEPS.float() + 1, 98)],
    ),
    "one giant does not set the scale of the others": Case(
        1 / TINY.double(), 1 / TINY, [], [(1 / TINY + 1000, 1000)], alone=True
    ),
    "nor does a pole": Case(
        HALVES.double().tan(), HALVES.double().tan().float() * torch.cat([torch.tensor([1.001]), torch.ones(1000)]),
        [HALVES.tan()], [(HALVES.tan() + 0.1, 1000)],
    ),
}  # fmt: skip
for name, dtype in KINDS.items():
    huge = behind(1e39, -1e39)
    CASES[f"what lies beyond {name} is infinite, and does not make the scale"] = Case(
        huge, huge.to(dtype), [], [(huge.to(dtype) + 1, 1000)], alone=True
    )
for dtype in (torch.float16, torch.bfloat16):
    nearest, infinite = THIRD.to(dtype), torch.tensor(INF, dtype=dtype)
    CASES[f"the nearest value is right where eager overflows in {dtype}"] = Case(
        THIRD, infinite, [nearest], [(torch.nextafter(nearest, infinite), 1)]
    )
for dtype in (torch.int32, torch.bool):
    CASES[f"elements of {dtype}"] = Case(
        BITS.to(dtype), off(BITS, 4).to(dtype), [BITS.to(dtype)], [(off(BITS, 6).to(dtype), 1)]
    )


@pytest.mark.parametrize("name", CASES)
def test_each_element_is_right_if_it_is_float64s_or_eagers(name: str) -> None:
    want, eager, right, wrong, alone = CASES[name]
    for own in ([eager], None) if alone else ([eager],):
        assert all(judge([got], [want], own).ok for got in (eager, *right))
        assert [judge([got], [want], own).wrong for got, _ in wrong] == [count for _, count in wrong]
    assert judge([eager], [want]).ok == alone
    assert not alone or judge([eager], [want]).relative < next(
        GATES[kind] for kind in KINDS if KINDS[kind] is eager.dtype
    )


def test_what_equals_neither_where_eager_overflows_is_not_judged_and_that_is_said() -> None:
    x = torch.cat([torch.full((3,), 100.0), drawn(998).float()])
    result = x.clone()
    result[:3] = torch.tensor([INF, 100.0, 7.0])
    found = judge([result], [x.double()], [x.exp().log()])
    assert found.ok and (found.as_eager, found.unjudged, found.count) == (1, 1, 1001)
    assert found.notes[1] == "1 of 1,001 elements were not judged: eager overflows there"
    assert found.absolute < 1e-5 and found.relative < 1e-5
    assert judge([x], [off(x, 4)]).verdict == "WRONG at 1 of 1,001 elements"
    assert not judge([x[:3] + 1000], [x[:3].double()], [x[:3].exp().log()]).ok  # nothing could be judged


@pytest.mark.parametrize("value", [INF, -INF, NAN, 1.0])
@pytest.mark.parametrize("wanted", [INF, -INF, NAN, 1.0])
def test_classes_are_float64s_or_eagers(value: float, wanted: float) -> None:
    """At the one element where they differ, whatever the others are."""
    base = drawn(50)
    want, got, other = base.clone(), base.float(), base.float()
    want[7], got[7], other[7] = wanted, value, -INF if value == INF else INF  # eager has a third class
    same = value == wanted or (value != value and wanted != wanted)
    assert judge([got], [want], [want.float()]).ok == judge([got], [want]).ok == same
    assert judge([got], [want], [got]).ok
    assert judge([got], [want], [other]).ok == (same or wanted == value == 1.0)


@settings(max_examples=draws(15))
@given(st.sampled_from(sorted(KINDS)), st.integers(1, 300), st.integers(0, 10**6), st.floats(1e-7, 1e-1))
def test_errors_of_rounding_up_to_twice_eagers_are_right(kind: str, count: int, seed: int, size: float) -> None:
    """As before, whatever the tensor: no element is judged more narrowly where eager is everywhere of one kind."""
    want = drawn(count, seed)
    noise = drawn(count, seed + 1).clamp(-3, 3) * size
    eager = (want + noise).to(KINDS[kind])
    worst = (eager.double() - want).abs().max()
    got = (want + drawn(count, seed + 2).sign() * worst * 1.9).to(KINDS[kind])
    assert judge([eager], [want], [eager]).ok
    if (got.double() - want).abs().max() <= 2 * worst:
        assert judge([got], [want], [eager]).ok
    assert not judge([(want + 2.5 * worst + 1e-4 * want.abs().max() + 0.1).to(KINDS[kind])], [want], [eager]).ok


def test_shapes_and_nothing_at_all() -> None:
    nothing = torch.zeros(3, dtype=torch.float64)
    assert all(judge([x.float()], [x]).ok for x in (nothing[:0], nothing[0], nothing))
    assert not judge([torch.zeros(4)], [nothing]).ok and not judge([torch.full((3,), 1e-30)], [nothing]).ok


NEAR = torch.tensor([0.124999997, 0.3, 0.4, 0.9])  # four times the first is as near to a half as rounding moves it
EQUAL, CANCELLING = torch.tensor([0.3, 0.3]), torch.tensor([1000, -999.99, 3, -3.1])
# {name: (function, its input, results that are right, results that are wrong)}
ROUNDED: dict[str, tuple[Any, torch.Tensor, list[Any], list[Any]]] = {
    "a tie": (
        lambda x: (x * 1.1 / 1.1 * 4).round().long(), NEAR, [[0, 1, 2, 4], [1, 1, 2, 4]],
        [[2, 1, 2, 4], [-1, 1, 2, 4], [0, 2, 2, 4]],
    ),
    "a tie, and steps of a half that are wider than a tie": (
        lambda x: ((x.bfloat16() + 8) * 64).round().long(), NEAR, [[520, 532, 536, 568], [520, 528, 540, 568]],
        [[500, 532, 536, 568], [520, 532, 536, 600]],
    ),
    "a comparison": (
        lambda x: x * 1.1 > 0.44, NEAR, [[False, False, True, True], [False, False, False, True]],
        [[False, True, True, True], [False, False, True, False]],
    ),
    "the largest of two": (lambda x: (x * 1.1).argmax(), torch.tensor([0.1, 0.7, 0.70000005]), [2, 1], [0]),
    "a sum that cancels": (lambda x: (x * 1.1).sum(), CANCELLING, [-0.09899, -0.0990, -0.0991], [-0.0982, -0.1]),
    "an exact number": (lambda x: x >= 0.5, torch.tensor([0.5, 0.6]), [[True, True]], [[False, True]]),
    "equal products": (lambda x: x * 1.1 == x.flip(0) * 1.1, EQUAL, [[True, True]], [[False, True]]),
    "a difference of equal products": (lambda x: x * 1.1 - x.flip(0) * 1.1, EQUAL, [[0.0, 0.0]], [[1e-9, 0.0]]),
}  # fmt: skip


@pytest.mark.parametrize("name", ROUNDED)
def test_rounding_explains_steps_and_cancellation_alone(name: str) -> None:
    """Without eager, which would fall to a side of its own."""
    function, x, right, wrong = ROUNDED[name]
    captured = capture(function, (x,))
    (kind,) = (function(x).dtype,)

    def found(result: Any) -> Any:
        return judge_program(captured, {"x": x}, [torch.tensor(result, dtype=kind)], None)

    assert [found(result).ok for result in (*right, *wrong)] == [True] * len(right) + [False] * len(wrong)
    assert all(found(result).notes for result in right[1:] if kind is torch.int64)
