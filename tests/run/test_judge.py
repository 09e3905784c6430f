"""The judge by itself: tensors that are right, tensors that are wrong, and eager results that fail here and there."""

from __future__ import annotations

import pytest
import torch
from drawing import draws
from hypothesis import given, settings
from hypothesis import strategies as st

from dplc.engine.run.calls import GATES, accepted, error, judge

INF, NAN = float("inf"), float("nan")
KINDS = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def drawn(count: int = 1000, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_an_overflow_of_eager_excuses_no_other_element() -> None:
    """The rule log(exp(x)) -> x + 1000: eager is infinite at one element, and the rule wrong at all."""
    x = torch.cat([torch.full((1,), 100.0), drawn().float()])
    want, eager = x.double(), x.exp().log()
    found = judge([x + 1000], [want], [eager])
    assert torch.isinf(eager[0]) and not found.ok and found.wrong >= 1000
    for right in (eager, x):
        assert judge([right], [want], [eager]).ok


def test_what_equals_neither_where_eager_overflows_is_not_judged_and_that_is_said() -> None:
    x = torch.cat([torch.full((3,), 100.0), drawn(998).float()])
    result = x.clone()
    result[:3] = torch.tensor([INF, 100.0, 7.0])
    found = judge([result], [x.double()], [x.exp().log()])
    assert found.ok and (found.as_eager, found.unjudged, found.count) == (1, 1, 1001)
    assert found.notes[1] == "1 of 1,001 elements were not judged: eager overflows there"
    assert found.absolute < 1e-5 and found.relative < 1e-5


def test_an_output_of_which_nothing_could_be_judged_is_not_right() -> None:
    x = torch.full((4,), 100.0)
    assert not judge([x + 1000], [x.double()], [x.exp().log()]).ok


@pytest.mark.parametrize("value", [INF, -INF, NAN, 1.0])
@pytest.mark.parametrize("wanted", [INF, -INF, NAN, 1.0])
def test_classes_are_float64s_or_eagers(value: float, wanted: float) -> None:
    """At the one element where they differ, whatever the others are."""
    base = drawn(50)
    want, got = base.clone(), base.float()
    want[7], got[7] = wanted, value
    same = value == wanted or (value != value and wanted != wanted)
    assert accepted([got], [want], [want.float()]) == same
    assert accepted([got], [want], [got]) and accepted([got], [want]) == same
    other = got.clone()
    other[7] = -INF if value == INF else INF  # eager has a third class
    third = accepted([got], [want], [other])
    assert third == (same or (wanted == 1.0 and value == 1.0))


@pytest.mark.parametrize("kind", KINDS)
def test_a_value_beyond_the_dtype_is_infinite_in_it(kind: str) -> None:
    """And does not make the scale of the others."""
    want = torch.cat([torch.tensor([1e39, -1e39], dtype=torch.float64), drawn(50)])
    got = want.to(KINDS[kind])
    assert torch.isinf(got[0]) and error(got, want)[1] < GATES[kind]
    assert accepted([got], [want], [got])
    assert not accepted([got + 1], [want], [got]) and not accepted([got + 1], [want])


def test_a_step_that_eager_takes_elsewhere_excuses_no_other_element() -> None:
    """A floor that eager has wrong at some elements: right is float64's or eager's, at each."""
    want = torch.arange(-50, 51).double()
    eager = want.float()
    eager[[3, 9, 60]] += 1
    assert accepted([eager], [want], [eager]) and accepted([want.float()], [want], [eager])
    mixed = want.float()
    mixed[9] += 1
    assert accepted([mixed], [want], [eager])
    mixed[10] += 1
    found = judge([mixed], [want], [eager])
    assert found.wrong == 1 and "WRONG at 1 of 101" in found.verdict
    assert not accepted([want.float() + 1], [want], [eager])


def test_one_giant_does_not_set_the_scale_of_the_others() -> None:
    """1/x of one tiny x: what is added to every other element is seen."""
    x = torch.cat([torch.full((1,), 1e-30), drawn().float()])
    want, eager = 1 / x.double(), 1 / x
    assert accepted([eager], [want], [eager]) and accepted([eager], [want])
    assert not accepted([eager + 1000], [want], [eager]) and not accepted([eager + 1000], [want])
    pole = torch.tensor([1.5707963]).float()
    y = torch.cat([pole, drawn().float() / 2])
    off = torch.tan(y.double()).float()
    off[0] *= 1.001
    assert accepted([y.tan()], [torch.tan(y.double())], [off])
    assert not accepted([y.tan() + 0.1], [torch.tan(y.double())], [off])


@settings(max_examples=draws(15))
@given(st.sampled_from(sorted(KINDS)), st.integers(1, 300), st.integers(0, 10**6), st.floats(1e-7, 1e-1))
def test_errors_of_rounding_up_to_twice_eagers_are_right(kind: str, count: int, seed: int, size: float) -> None:
    """As before, whatever the tensor: no element is judged more narrowly where eager is everywhere of one kind."""
    want = drawn(count, seed)
    noise = drawn(count, seed + 1).clamp(-3, 3) * size
    eager = (want + noise).to(KINDS[kind])
    worst = (eager.double() - want).abs().max()
    got = (want + drawn(count, seed + 2).sign() * worst * 1.9).to(KINDS[kind])
    assert accepted([eager], [want], [eager])
    if (got.double() - want).abs().max() <= 2 * worst:
        assert accepted([got], [want], [eager])
    assert not accepted([(want + 2.5 * worst + 1e-4 * want.abs().max() + 0.1).to(KINDS[kind])], [want], [eager])


@pytest.mark.parametrize("kind", [torch.int32, torch.int64, torch.bool])
def test_integers_are_float64s_or_eagers_element_by_element(kind: torch.dtype) -> None:
    want = torch.arange(40).remainder(2).to(kind)
    eager = want.clone()
    eager[5] = 1 - want[5].int()
    assert accepted([eager], [want], [eager]) and accepted([want], [want], [eager]) and not accepted([eager], [want])
    wrong = want.clone()
    wrong[6] = 1 - want[6].int()
    assert judge([wrong], [want], [eager]).wrong == 1


def test_shapes_and_nothing_at_all() -> None:
    assert not accepted([torch.zeros(3)], [torch.zeros(4, dtype=torch.float64)])
    assert accepted([torch.zeros(0)], [torch.zeros(0, dtype=torch.float64)])
    assert accepted([torch.zeros(())], [torch.zeros((), dtype=torch.float64)])
    assert not accepted([torch.full((3,), 1e-30)], [torch.zeros(3, dtype=torch.float64)])


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_the_nearest_value_is_right_where_eager_overflows(kind: torch.dtype) -> None:
    want = torch.tensor(38.20 / 3 * 3.0007, dtype=torch.float64)
    got, eager = want.to(kind), torch.tensor(float("inf"), dtype=kind)
    assert (got.double() - want).abs() > 1e-4 * want and accepted([got], [want], [eager])
    assert not accepted([torch.nextafter(got, eager)], [want], [eager])
