"""No kernel of a suite or of a shipped model is predicted to take more than 5 times what no schedule goes below.

Predictions only: nothing is built or run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from drawing import some

from dplc.codegen.target import target
from dplc.engine.bench.bench import kernel_record, over_limits, sources_of
from dplc.engine.bench.cases import read_suite, subject_of
from dplc.engine.capture.capture import capture_text
from dplc.engine.capture.signature import Capture
from dplc.engine.compiler import Compilation, compiler_with
from dplc.engine.cost.instruction_counts import instruction_counts
from dplc.engine.cost.limits import least_seconds, slots_per_second
from dplc.engine.cost.predict import predict
from dplc.engine.models.compiling import capture_results
from dplc.engine.models.sources import build, find
from dplc.ir.text.programs import read_program

EXAMPLES = Path(__file__).parents[2] / "examples"
H200 = target("h200")
MOST = 5.0  # times its limit
SUITES = ("kernels_84", "halves")  # the programs of limits.json are held to less, by test_ninety_programs.py
MODELS = sorted(path.stem for path in (EXAMPLES / "models").glob("*.json"))


@functools.lru_cache(maxsize=4)  # each holds its inputs
def compiled(text: str) -> Compilation:
    return compiler_with(H200).compile(capture_text(text))


def over_limits_of(captured: Capture) -> dict[str, float]:
    made = compiler_with(H200).compile(captured)
    kernels = zip(made.kernels, made.cuda_kernels, strict=True)
    return over_limits(sources_of(made), [kernel_record(*each, H200) for each in kernels], H200)


def least_of(captured: Capture) -> float:
    """Seconds of the first kernel that no schedule goes below."""
    return least_seconds(compiler_with(H200).compile(captured).plan.kernels[0], H200)


def seconds(made: Compilation) -> list[float]:
    return [predict(instruction_counts(kernel), H200).seconds for kernel in made.kernels]


def whole(text: str) -> float:
    """Seconds of all launches, predicted."""
    made = compiled(text)
    each = seconds(made)
    return sum(each[place] for place in made.launched)


def too_slow(name: str, capture: Callable[[], Capture]) -> list[str]:
    return [
        f"{name}: {kernel} takes {times:.0f} times its limit"
        for kernel, times in over_limits_of(capture()).items()
        if times > MOST
    ]


@pytest.mark.parametrize("name", SUITES)
def test_every_kernel_of_a_suite_is_near_its_limit(name: str) -> None:
    suite = read_suite(EXAMPLES / "suites" / f"{name}.json")
    assert not [line for case in some(suite.cases, 6) for line in too_slow(case.name, subject_of(suite, case).capture)]


@pytest.mark.parametrize("name", MODELS)
def test_every_kernel_of_a_layer_is_near_its_limit(name: str) -> None:
    model: Any = build(find(str(EXAMPLES / "models" / f"{name}.json")), "f32", 1)
    for n in some((512, 1, 32, 128), 1):
        assert not too_slow(f"{name}, {n} tokens", functools.partial(_captured, model, n))


def _captured(model: Any, tokens: int) -> Capture:
    return capture_results(model, tokens).captured


FLAT = "nn.Linear(2048, 1024)(torch.randn(512, 2048))"
BATCHED = {
    "sequences": "nn.Linear(2048, 1024)(torch.randn(2, 256, 2048))",
    "sequences of sequences": "nn.Linear(2048, 1024)(torch.randn(2, 4, 64, 2048))",
    "tokens before sequences": "nn.Linear(2048, 1024)(torch.randn(128, 4, 2048).transpose(0, 1))",
    "parts of sequences": "nn.Linear(2048, 1024)(torch.randn(2, 300, 2048)[:, :256])",
    "heads of a weight": "torch.einsum('bsd,dhk->bhsk', torch.randn(2, 256, 2048), torch.randn(2048, 16, 64))",
    "heads of a weight, by rows": "torch.einsum('bsd,hdk->bshk', torch.randn(2, 256, 2048), torch.randn(16, 2048, 64))",
}


@pytest.mark.parametrize("name", BATCHED)
def test_a_batch_of_rows_is_more_rows(name: str) -> None:
    assert whole(BATCHED[name]) <= 1.05 * whole(FLAT)


HEADS = "q, k, v = (torch.randn(2, 8, 256, 64) for _ in range(3)); o = F.scaled_dot_product_attention(q, k, v); "
ORDERS = (
    "o",
    "o.transpose(1, 2).contiguous()",
    "o.permute(2, 0, 1, 3).contiguous()",
    "o.permute(1, 2, 0, 3).contiguous()",
)


@pytest.mark.parametrize("order", ORDERS[1:])
def test_attention_is_tiled_in_whatever_order_it_is_stored(order: str) -> None:
    assert whole(HEADS + order) <= 1.3 * whole(HEADS + ORDERS[0])


def test_what_stands_beside_a_sum_does_not_keep_it_whole() -> None:
    product = whole("nn.Linear(5632, 2048)(torch.randn(32, 5632))")
    assert whole("torch.randn(32, 2048) + nn.Linear(5632, 2048)(torch.randn(32, 5632))") <= 1.1 * product
    both = "x = torch.randn(32, 2048); F.silu(nn.Linear(2048, 256)(x)) * nn.Linear(2048, 256)(x)"
    assert whole(both) <= 2 * whole("nn.Linear(2048, 256)(torch.randn(32, 2048))")


def test_a_limit_does_not_count_what_is_computed_again() -> None:
    once = """## level: loop
kernel f(x: f32[4096, 4096]) -> y: f32[4096, 512]:
    for i in 0..4096 free:
        for k in 0..4096 reduce:
            a = load x[i, k]
            e = exp(a)
            s <- add(s, e)
        for j in 0..512 free:
            y[i, j] = s
"""
    again = """## level: loop
kernel f(x: f32[4096, 4096]) -> y: f32[4096, 512]:
    for i in 0..4096 free:
        for j in 0..512 free:
            for k in 0..4096 reduce:
                a = load x[i, k]
                e = exp(a)
                s <- add(s, e)
            y[i, j] = s
"""
    found = [least_seconds(kernel, H200) for text in (once, again) for kernel in read_program(text)[1]]
    assert found[0] == found[1] > 4 * 4096 * (4096 + 512) / H200.dram_bytes_per_second


@pytest.mark.parametrize("mask", ["", ", is_causal=True"])
def test_a_limit_counts_what_is_made_of_sums(mask: str) -> None:
    """Of attention both products, whether or not its scores are compared with a place, and an exponential a score."""
    heads, rows, size = 32, 512, 64
    operands = f"q, k, v = (torch.randn(1, {heads}, {rows}, {size}) for _ in range(3)); "
    (kernel,) = compiled(f"{operands}F.scaled_dot_product_attention(q, k, v{mask})").plan.kernels
    computed = (least_seconds(kernel, H200) - H200.launch_seconds - 1.5 * H200.memory_latency_seconds) * (
        slots_per_second(H200)
    )
    scores = heads * rows * rows
    exponential = H200.fp32_per_clock / H200.special_per_clock
    assert 2 * size + exponential <= computed / scores <= 2 * size + exponential + 6


def test_what_lies_between_the_elements_of_a_row_is_moved_with_them() -> None:
    """Half of the elements of 64 KB, a quarter, and one in a hundred: a sector for each, at most what there is."""

    def moved(text: str) -> float:
        (kernel,) = compiled(text).plan.kernels
        launch = H200.launch_seconds + 1.5 * H200.memory_latency_seconds
        return round((least_seconds(kernel, H200) - launch) * H200.dram_bytes_per_second)

    assert moved("torch.randn(64, 256)[:, ::2].contiguous()") == 64 * 256 * 4 + 64 * 128 * 4
    assert moved("torch.randn(64, 256)[::2].contiguous()") == 2 * 32 * 256 * 4
    assert moved("torch.randn(64, 3200)[:, ::100].contiguous()") == 64 * 32 * (32 + 4)


@pytest.mark.parametrize("step", [2, 3, 8, 16])
def test_a_limit_counts_the_sectors_that_come_with_every_other_element(step: int) -> None:
    """Memory moves 32 bytes at a time: what lies between elements comes along, what lies beyond a sector does not."""
    captured = capture_text(f"torch.randn(512, {1024 * step})[:, ::{step}] * 2.0")
    least = least_of(captured)
    whole = least_of(capture_text(f"torch.randn(512, {1024 * min(step, 8)}) * 2.0"))
    moved = 4 * 512 * 1024 * (min(step, 8) + 1)
    assert least - whole == pytest.approx((moved - 8 * 512 * 1024 * min(step, 8)) / H200.dram_bytes_per_second)
