"""What no input reaches is computed when the program is compiled, and comes back as a formula where it is one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from capture_checks import assert_means, check_lowering, data, ops
from drawing import draws
from hypothesis import given, settings, strategies as st

import dplc
from dplc.engine.capture.capture import bits, capture, capture_text, fold
from dplc.engine.language.rule import policy_with
from dplc.ir.diagnostic import DplcError
from dplc.ir.text.programs import print_program, read_program
from dplc.ir.text.tensor import print_graph

FAR = torch.empty(3, device="meta")


def causal(scores: Any) -> Any:
    i, j = torch.arange(4), torch.arange(4)
    mask = (j[None, :] <= i[:, None]).to(torch.float64) * 2 > 1
    return scores.masked_fill(~mask, float("-inf"))


@pytest.mark.parametrize(
    ("function", "x", "left", "constant"),
    [
        (causal, data(4, 4), "MaskedFill", torch.ones(4, 4).triu(1).bool()),
        (lambda x: x + torch.arange(8.0).view(2, 4).T.split(2)[1], data(2, 2), "Add", torch.tensor([[2, 6], [3, 7.0]])),
        (lambda x: (x.exp(), torch.arange(3) * 2), data(3), "Exp", torch.tensor([0, 2, 4])),
        # the graph of a model without data says `meta` where it makes a mask; the constants are real all the same
        (lambda x: x + torch.ones(3, device=x.device), FAR, "Add", torch.ones(3)),
        *(
            (lambda x, made=made: x * made(x), FAR, "Mul", torch.tensor([1.0, 2.0, 5.0]))
            for made in (
                lambda x: torch.tensor([1.0, 2, 5], device=x.device),
                lambda x: torch.as_tensor([1.0, 2, 5], device=x.device),
                lambda x: torch.asarray([1.0, 2, 5], device="meta"),
                lambda x: x.new_tensor([1, 2, 5]),
            )
        ),
        (lambda x: torch.minimum(x, torch.tensor(0.5, device=x.device)), FAR, "Minimum", torch.tensor(0.5)),
    ],
)
def test_what_depends_on_no_input_is_one_constant(function: Any, x: Any, left: str, constant: Any) -> None:
    captured = capture(function, (x,))
    folded = fold(captured)
    (held,) = (folded.tensors[name] for name, kind in folded.kinds.items() if kind == "constant")
    assert ops(folded) == [left]
    assert held.is_contiguous() and torch.equal(held, constant)
    assert fold(folded).graph is folded.graph
    if not x.is_meta:
        assert_means(captured, function(x))


def test_an_unsupported_dtype_may_fold_away_but_not_stay() -> None:
    captured = capture(lambda x: x + torch.ones(3, dtype=torch.uint16).float(), (data(3),))
    assert read_program(print_program((captured.graph,), "torch"))[1] == (captured.graph,)
    assert ops(fold(captured)) == ["Add"]
    with pytest.raises(DplcError, match="u16"):
        capture(lambda x: x.to(torch.uint16) + torch.ones(3, dtype=torch.uint16), (data(3),))


def test_a_constant_without_data_is_no_formula() -> None:
    mask = torch.ones(3, device="meta")
    compiled = dplc.compile(lambda x: x * mask, (FAR,), db=False)
    assert [param.name for param in compiled.compilation.plan.inputs] == ["x", "constant"]
    with pytest.raises(DplcError, match="meta"):
        compiled(torch.ones(3))


def test_weights_are_not_folded() -> None:
    captured = capture_text("m = nn.Linear(4, 4)\nm(torch.randn(2, 4)) @ m.weight.exp()")
    assert fold(captured).graph is captured.graph


def test_a_large_result_is_not_folded() -> None:
    def function(x: Any) -> Any:
        return x + (torch.arange(8)[None] * torch.ones(8, 1)).sum(0)

    captured = capture(function, (data(8),))
    assert ops(fold(captured)) == ["Add"]
    folded = fold(captured, policy_with((("largest_constant", 8),)))
    assert ops(folded) == ["Mul", "Sum", "Add"]
    assert_means(folded, function(data(8)))


@settings(max_examples=draws(60))
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=3),
    st.sampled_from((torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.bool, torch.complex64)),
)
def test_bits_are_those_of_the_elements_however_they_lie(dims: list[tuple[int, int]], kind: torch.dtype) -> None:
    value = torch.arange(-3, 30).to(kind).as_strided([n for n, _ in dims], [stride for _, stride in dims], 2)
    fresh = torch.empty(value.shape, dtype=kind).copy_(value)
    assert bytes(bits(value)) == bytes(fresh.untyped_storage())


def test_bits_of_what_is_negated_when_it_is_read() -> None:
    z = torch.tensor([1 + 2j, 3 - 4j])
    assert bytes(bits(z.conj())) == bytes(bits(torch.tensor([1 - 2j, 3 + 4j])))
    assert bytes(bits(z.conj().imag)) == bytes(bits(torch.tensor([-2.0, 4.0])))


# ---- Formulas in place of constants.


def inputs(constant: Any) -> int:
    """How many inputs the product of a tensor and a constant has when it is lowered, which is right."""
    captured = capture(lambda x: x * constant.clone(), (torch.ones_like(constant),))
    return len(check_lowering(captured, tolerance=0).ins)


@pytest.mark.parametrize(
    "constant",
    [
        torch.full((3, 5), 2.5),
        torch.arange(7),
        torch.arange(7.0)[:, None] * 3 + torch.arange(5.0) * -2 + 1,
        torch.arange(9) < 4,
        torch.arange(9) >= 4,
        torch.ones(5, 7).tril(1).bool(),
        torch.ones(5, 5).triu(1).bool(),
        torch.ones(1, 1, 5, 5).tril().bool().expand(2, 3, 5, 5).clone(),
        torch.full((5, 5), float("-inf")).triu(1),
        torch.eye(5),
        ~torch.eye(5).bool(),
        torch.tensor([0.5, 0.25, 7.0]),
        torch.tensor([True, False, True]),
    ],
)
def test_a_formula_is_not_an_input(constant: Any) -> None:
    assert inputs(constant) == 1


@pytest.mark.parametrize(
    "constant",
    [
        torch.tensor([1.0, 5.0, 2.0, 7.0, 3.0]),
        torch.tensor([[True, False, True], [True, False, False]]),
        torch.arange(5) ** 2,
        torch.tensor([0.0, -0.0, 1.0, 2.0, 5.0]),
        torch.arange(6) * 3 + (2**63 - 7),  # their difference is not an integer of 64 bits
    ],
)
def test_another_constant_stays_an_input(constant: Any) -> None:
    assert inputs(constant) == 2


@given(
    st.lists(st.sampled_from((-1, 0, 1, 2)), min_size=1, max_size=6),
    st.sampled_from((torch.int64, torch.float32, torch.bool)),
)
def test_any_small_constant_means_itself(values: list[int], dtype: torch.dtype) -> None:
    inputs(torch.tensor(values).to(dtype))


def test_a_causal_mask_is_an_index_expression() -> None:
    def masked(x: Any) -> Any:
        return torch.where(torch.ones(5, 5, dtype=torch.bool).tril(), x, 0.0)

    graph = check_lowering(capture(masked, (data(5, 5),)))
    assert "where(Index(j <= i), x[i, j], 0.0)" in print_graph(graph)
