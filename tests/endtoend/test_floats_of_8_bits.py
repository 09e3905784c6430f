"""Floats of 8 bits: casts to the last bit as PyTorch has them, and scaled products on tensor cores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from drawing import draws
from hypothesis import given, settings, strategies as st
from products_of_halves import atoms, near

import dplc
from dplc.codegen.judge import judge
from dplc.codegen.target import target
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import compiler_with
from dplc.engine.cost.instruction_counts import instruction_counts, substituted_work
from dplc.engine.cost.predict import predict
from dplc.engine.run.calls import run_reference

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
DTYPES = (E4M3, E5M2)
Shape = tuple[int, int, int]
Function = Callable[..., torch.Tensor]


def operands(shape: Shape, left: torch.dtype, right: torch.dtype) -> list[torch.Tensor]:
    """Two matrices, the rows of both along the sum, and their scales."""
    m, n, k = shape
    dice = torch.Generator().manual_seed(m + n + k)
    x, w = torch.randn(m, k, generator=dice), torch.randn(n, k, generator=dice)
    scales = [torch.rand((), generator=dice) + 0.5 for _ in "xw"]
    return [x.to(left), w.to(right), *scales]


def scaled(x: torch.Tensor, w: torch.Tensor, s: torch.Tensor, t: torch.Tensor, *bias: torch.Tensor) -> torch.Tensor:
    return torch._scaled_mm(x, w.t(), s, t, bias=bias[0] if bias else None, out_dtype=torch.bfloat16)


def across(x: torch.Tensor, w: torch.Tensor, s: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """The same of a right operand whose rows are across the sum in memory."""
    return torch._scaled_mm(x, w, s, t, out_dtype=torch.bfloat16)


def transposed(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    return [inputs[0], inputs[1].t().contiguous(), *inputs[2:]]


def judged(made: dplc.Compiled, inputs: list[torch.Tensor], f: Function = scaled) -> None:
    """Within twice PyTorch's own error of float64, fast and in checked mode, which finds nothing."""
    x, w, s, t, *bias = (value.double() for value in inputs)
    want = s * t * (x @ (w.t() if f is scaled else w)) + (bias[0] if bias else 0)
    near(made, f, inputs, want)


def compiled(inputs: list[torch.Tensor], device: str, f: Function = scaled, **sizes: int) -> dplc.Compiled:
    pinned = (
        {"blockify_launch": {"BM": sizes["side"], "BN": sizes["side"]}, "chunk_matmul_k": {"BK": 128}} if sizes else {}
    )
    return dplc.compile(f, tuple(inputs), target=device, device="emulator", db=False, settings=pinned)


@pytest.mark.parametrize("right", DTYPES, ids=["e4m3", "e5m2"])
@pytest.mark.parametrize("left", DTYPES, ids=["e4m3", "e5m2"])
@pytest.mark.sampled(2)
def test_every_pair_of_dtypes_is_multiplied_by_tensor_cores(left: torch.dtype, right: torch.dtype) -> None:
    inputs = operands((64, 48, 96), left, right)
    made = compiled(inputs, "rtx5090")
    assert atoms(made) == {"m16n8k32_f8"}
    judged(made, inputs)


# ragged in all three; primes; a long sum; one atom
@pytest.mark.parametrize("shape", [(40, 24, 64), (97, 131, 67), (48, 40, 1024), (16, 8, 64)], ids=str)
@pytest.mark.sampled(2)
def test_products(shape: Shape) -> None:
    inputs = operands(shape, E4M3, E4M3)
    for f, own in ((scaled, inputs), (across, transposed(inputs))):
        made = compiled(own, "rtx4090", f=f)
        assert atoms(made) == {"m16n8k32_f8"}
        judged(made, own, f)


@settings(max_examples=draws(2), deadline=None)
@given(st.tuples(*(st.integers(1, 50) for _ in "mnk")), st.sampled_from(DTYPES), st.sampled_from(["a100", "rtx5090"]))
def test_any_shape(shape: Shape, left: torch.dtype, device: str) -> None:
    inputs = operands(shape, left, E4M3)
    judged(compiled(inputs, device), inputs)


def test_a_machine_without_the_instruction_multiplies_by_fma() -> None:
    inputs = operands((64, 64, 64), E4M3, E4M3)
    made = compiled(inputs, "a100")
    assert atoms(made) == set()
    judged(made, inputs)


def test_a_machine_that_makes_it_of_halves_is_priced_so() -> None:
    """On sm_90 the assembler makes two products of halves of each, four additions, and converts each word twice."""
    inputs = operands((256, 256, 256), E4M3, E4M3)
    (kernel,) = compiled(inputs, "h200").compilation.kernels
    counts = instruction_counts(kernel)
    ((atom, times, words),) = counts.spelled
    assert (atom, times) == ("m16n8k32_f8", 256**3 / (16 * 8 * 32) / counts.blocks)
    more = substituted_work(counts.spelled, target("h200").sm)
    assert more == (5 * times + 2 * words, 4 * times, counts.tensor)
    assert (
        substituted_work(counts.spelled, target("rtx4090").sm)
        == substituted_work(counts.spelled, target("rtx5090").sm)
        == (0, 0, 0)
    )
    here, known = (predict(one, target("h200")) for one in (counts, replace(counts, spelled=())))
    assert here.bounds["tensor"] == pytest.approx(2 * known.bounds["tensor"])
    assert here.bounds["issue"] > known.bounds["issue"]


def test_scales_of_rows_and_columns_and_a_bias() -> None:
    x, w, *_ = operands((40, 24, 64), E4M3, E5M2)
    dice = torch.Generator().manual_seed(0)
    inputs = [x, w, torch.rand(40, 1, generator=dice), torch.rand(1, 24, generator=dice), torch.randn(24).bfloat16()]
    made = compiled(inputs, "rtx5090")
    assert len(made.compilation.cuda_kernels) == 1
    judged(made, inputs)


def test_a_product_is_one_kernel_at_any_size() -> None:
    """What is widened for the product alone is not stored before it."""
    inputs = [
        torch.empty(4096, 4096, dtype=E4M3),
        torch.empty(4096, 4096, dtype=E4M3),
        torch.ones(()),
        torch.ones(()),
    ]
    for device in ("rtx4090", "h200", "rtx5090"):
        assert len(compiled(inputs, device).compilation.cuda_kernels) == 1


@pytest.mark.parametrize(("shape", "side"), [((64, 128, 512), 64), ((50, 72, 528), 64)], ids=str)
@pytest.mark.sampled(2)
def test_four_warps_multiply_out_of_shared_memory(shape: Shape, side: int) -> None:
    inputs = operands(shape, E4M3, E4M3)
    made = compiled(inputs, "h200", side=side)
    assert atoms(made) == {f"m64n{side}k32_f8"}
    judged(made, inputs)


def test_rows_across_the_sum_are_left_to_single_warps() -> None:
    """A descriptor lets lines run across rows of a shared tile for elements of 2 bytes alone, be they whole spans of a swizzle."""
    inputs = transposed(operands((128, 128, 512), E4M3, E4M3))
    made = compiled(inputs, "h200", across, side=128)
    assert atoms(made) == {"m16n8k32_f8"}
    judged(made, inputs, across)


@pytest.mark.parametrize("source", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=["e4m3", "e5m2"])
def test_casts(dtype: torch.dtype, source: torch.dtype) -> None:
    """What is too large, infinite, no number, or smaller than the least; whole vectors, and what is left of them."""
    ends = [448.0, 464.0, 480.0, 57344.0, 61440.0, 1e9, float("inf"), float("nan"), 2.0**-10, 2.0**-17, 1e-9, 0.0]
    x = torch.cat([torch.tensor(ends), -torch.tensor(ends), torch.randn(1000) * 100, torch.randn(1000) * 2.0**-8])
    x = x.to(source)
    made = dplc.compile(lambda x: (x.to(dtype), x.to(dtype).float() * 2), (x,), device="emulator", db=False)
    narrow, wide = made(x)
    want = x.to(dtype)
    assert narrow.dtype == dtype
    assert torch.equal(narrow.float().nan_to_num(7.0), want.float().nan_to_num(7.0))
    assert torch.equal(narrow.float().isnan(), want.float().isnan())
    assert torch.equal((wide / 2).nan_to_num(7.0), want.float().nan_to_num(7.0))


def test_moved_as_they_are() -> None:
    x = torch.randn(33, 20).to(E4M3)
    made = dplc.compile(lambda x: torch.cat([x, x.flip(0)]).t().contiguous(), (x,), device="emulator", db=False)
    assert torch.equal(made(x).view(torch.uint8), torch.cat([x, x.flip(0)]).t().contiguous().view(torch.uint8))


def test_quantised_on_the_way() -> None:
    x, w, s, t = operands((40, 48, 64), E4M3, E4M3)
    wide = x.float() * 3
    f = lambda x, w, s, t: scaled((x / s).to(E4M3), w, s, t)  # noqa: E731
    made = dplc.compile(f, (wide, w, s, t), target="rtx5090", device="emulator", db=False)
    want = s.double() * t.double() * ((wide / s).to(E4M3).double() @ w.double().t())
    own = (f(wide, w, s, t).double() - want).abs().max()
    assert (made(wide, w, s, t).double() - want).abs().max() <= 2 * own


def test_the_command_runs_a_product_and_judges_it() -> None:
    """Its meaning in float64 is ours: PyTorch makes the product of nothing wider than 8 bits."""
    capture = capture_text(
        "torch._scaled_mm(torch.randn(5, 16).to(torch.float8_e4m3fn), torch.randn(7, 16).to(torch.float8_e4m3fn).t(), "
        "torch.rand(5, 1), torch.rand(1, 7), bias=torch.randn(7).bfloat16(), out_dtype=torch.bfloat16)"
    )
    made = dplc.Compiled(compiler_with(target("sm_89")).compile(capture), "emulator")
    (want,) = run_reference(capture, capture.tensors)
    x, w, s, t, bias = (value.double() for value in capture.tensors.values())  # in the order of the text
    assert want.dtype is torch.float64
    torch.testing.assert_close(want, x @ w.reshape(7, 16).t() * s * t + bias, rtol=1e-12, atol=1e-12)
    assert judge(made.run({}), [want], capture.reference).ok
