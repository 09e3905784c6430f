"""f16 and bf16, from PyTorch to kernels that ran: as near to float64 as twice what PyTorch itself is, or nearer."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from drawing import draws
from expressions import EXPRESSIONS
from halves import GROUPS
from hypothesis import HealthCheck, given, settings, strategies as st

from dplc.codegen.judge import judge
from dplc.codegen.target import target
from dplc.engine.api import Compiled, compile
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import compiler_with
from dplc.engine.run.calls import run_reference
from dplc.ir.diagnostic import DplcError

sys.path.insert(0, str(Path(__file__).parents[1] / "capture"))
from torch_programs import torch_programs

CASES = [
    pytest.param(text, dtype, id=f"{group}-{place}-{dtype}")
    for group, texts in GROUPS.items()
    for place, text in enumerate(texts)
    for dtype in ("f16", "bf16")
]
EVERY = [
    pytest.param(text, dtype, id=f"{group}-{place}-{dtype}", marks=pytest.mark.slow)
    for group, texts in EXPRESSIONS.items()
    for place, text in enumerate(texts)
    for dtype in ("f16", "bf16")
]
HALVES = (torch.float16, torch.bfloat16)


def outputs(text: str, dtype: str = "f32") -> list[torch.Tensor]:
    captured = capture_text(text, dtype=dtype)
    return Compiled(compiler_with(target()).compile(captured), "emulator").run({})


def check(text: str, dtype: str) -> None:
    captured = capture_text(text, dtype=dtype)
    compilation = compiler_with(target()).compile(captured)
    results = Compiled(compilation, "emulator").run({})
    assert captured.reference is not None
    for result, eager in zip(results, captured.reference, strict=True):
        assert (result.dtype, result.shape) == (eager.dtype, eager.shape)
    references = run_reference(compilation.captured, compilation.captured.tensors)
    found = judge(results, references, captured.reference)
    assert found.ok, f"{text}\n{found}"


@pytest.mark.parametrize(("text", "dtype"), [*CASES, *EVERY])
@pytest.mark.sampled(4)
def test_expression(text: str, dtype: str) -> None:
    try:
        check(text, dtype)
    except DplcError as error:
        if not re.search("not implemented for '|support tensors of type", error.what):
            raise
        pytest.skip(f"PyTorch refuses: {error.what}")


@settings(deadline=None, max_examples=draws(4), suppress_health_check=list(HealthCheck))
@given(torch_programs(), st.sampled_from(("f16", "bf16")))
def test_random_programs(text: str, dtype: str) -> None:
    check(text, dtype)


@pytest.mark.parametrize("dtype", HALVES)
def test_one_operation_is_rounded_once_as_torch_rounds_it(dtype: torch.dtype) -> None:
    """All 65,536 values times a number, plus another tensor, as 32-bit floats: the same bits as eager."""
    every = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16).view(dtype)
    other = every[torch.randperm(every.numel(), generator=torch.Generator().manual_seed(0))]

    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x * 1.1, x + y, x * y, x.float(), -x, x.relu(), torch.maximum(x, y), y / x

    for got, want in zip(
        compile(function, [every, other], device="emulator")(every, other), function(every, other), strict=True
    ):
        numbers = ~want.isnan()
        assert torch.equal(got.isnan(), want.isnan())
        kind = torch.int16 if want.dtype is dtype else torch.int32
        same = got.view(kind) == want.view(kind)
        assert same[numbers & (want != 0)].all()
        assert (got[numbers] == want[numbers]).all()


@pytest.mark.parametrize("dtype", HALVES)
def test_vectors_of_integers_are_rounded_where_they_are_stored(dtype: torch.dtype) -> None:
    for x in torch.arange(8, dtype=torch.int8), torch.arange(8, dtype=torch.int32):
        rows = compile(lambda x: x.to(dtype).repeat(4, 1), [x], device="emulator")(x)
        assert torch.equal(rows, x.to(dtype).repeat(4, 1))


@pytest.mark.parametrize("dtype", HALVES)
def test_a_cast_that_the_user_wrote_rounds(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.cat(
        [torch.randn(500), torch.randn(500) * 1e-7, torch.randn(24) * 7e4, torch.tensor([3.4e38, 65519.9, 65520.0])]
    )

    def there_and_back(x: torch.Tensor) -> torch.Tensor:
        return x.to(dtype).float() * 3

    assert torch.equal(compile(there_and_back, [x], device="emulator")(x), there_and_back(x))


def test_between_operations_values_stay_in_f32() -> None:
    """A fused chain does not overflow where f16 would: it is rounded when it is stored."""
    x = torch.full((8,), 300.0, dtype=torch.float16)

    def chain(x: torch.Tensor) -> torch.Tensor:
        return x * x / 300

    assert torch.isinf(chain(x)).all()
    assert torch.equal(compile(chain, [x], device="emulator")(x), x)


def test_sums_are_f32() -> None:
    """Deviations from a mean that f16 cannot hold (2048.5)."""
    x = (torch.arange(64 * 512).reshape(64, 512) % 2 * 2 + 2048).half()
    x[:, ::4] += 2

    def norm(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.layer_norm(x, (512,))

    got, want = compile(norm, [x], device="emulator")(x).double(), norm(x.double())
    assert (got - want).abs().max() < 2e-3


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("torch.randn(64, 1024) * 2", ("ldg128", "stg128")),
        ("nn.RMSNorm(2048)(torch.randn(64, 2048))", ("ldg128", "stg128")),
        (
            "torch.randn(256, 256) @ torch.randn(256, 256)",
            ("cp_async16", "ldmatrix_x4(", "ldmatrix_x4_trans(", "stg128"),
        ),
        ("torch.randn(130, 258) @ torch.randn(258, 130)", ("cp_async4",)),
        ("torch.randn(128, 255) @ torch.randn(255, 129)", ("sts(",)),
    ],
)
def test_widths_are_counted_in_bytes(text: str, calls: tuple[str, ...]) -> None:
    captured = capture_text(text, dtype="bf16")
    cuda = "\n".join(k.text for k in compiler_with(target()).compile(captured).cuda_kernels)
    for call in calls:
        assert call in cuda, cuda
    assert not re.search(r"\bfloat4\b", cuda)
