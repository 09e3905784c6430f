"""No kernel of a suite or of a shipped model is predicted to take more than 5 times what no schedule goes below.

Predictions only: nothing is built or run.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
from drawing import some

from dplc.codegen.target import target
from dplc.engine.bench.bench import CompiledCase, compile_all, describe
from dplc.engine.bench.cases import read_suite, subject_of
from dplc.engine.bench.records import CaseRecord
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import Compilation, compiler_with
from dplc.engine.cost.limits import fixed_seconds, least_seconds, slots_per_second
from dplc.engine.models.compiling import capture_results
from dplc.engine.models.sources import build, find
from dplc.ir.text.programs import read_program

EXAMPLES = Path(__file__).parents[2] / "examples"
H200 = target("h200")
MOST = 5.0  # times its limit
NEAR, FAR = 1.3, 3.0  # times the bound; the farthest is a pad, which starts many blocks (2.7, an H200 took 3.6)
LEAST_NEAR = 80 / 90  # of the programs of limits.json


@functools.lru_cache(maxsize=4)  # each holds its inputs
def compiled(text: str) -> Compilation:
    return compiler_with(H200).compile(capture_text(text))


def whole(text: str) -> float:
    """Seconds of all launches, predicted."""
    return compiled(text).predicted_seconds


def least(text: str) -> float:
    """Seconds of the only kernel below which no schedule goes, but for those that every kernel takes."""
    (kernel,) = compiled(text).plan.kernels
    return least_seconds(kernel, H200) - fixed_seconds(H200)


def records_of(name: str, few: int) -> list[CaseRecord]:
    suite = read_suite(EXAMPLES / "suites" / f"{name}.json")
    subjects = [subject_of(suite, case) for case in some(suite.cases, few)]
    records, _, _ = compile_all(subjects, lambda: compiler_with(H200), lambda text: None)
    assert not [one.error for one in records if one.error]
    return records


@pytest.mark.parametrize("name", ["kernels_84", "halves"])
def test_every_kernel_of_a_suite_is_near_its_limit(name: str) -> None:
    assert not [one.name for one in records_of(name, 6) if not one.times_limit or one.times_limit > MOST]


def test_programs_stay_near_their_bounds() -> None:
    """How many of the ninety are predicted near what the device can do: as many as were asked for."""
    records = records_of("limits", 8)
    ratios = {one.name: one.predicted_us / one.least_us for one in records if one.predicted_us and one.least_us}
    assert len(ratios) == len(records)
    assert sum(ratio <= NEAR for ratio in ratios.values()) >= int(LEAST_NEAR * len(records))
    assert [name for name, ratio in ratios.items() if ratio > FAR] == []


@pytest.mark.parametrize("path", sorted((EXAMPLES / "models").glob("*.json")), ids=lambda path: path.stem)
def test_every_kernel_of_a_layer_is_near_its_limit(path: Path) -> None:
    model: Any = build(find(str(path)), "f32", 1)
    for tokens in some((512, 1, 32, 128), 1):
        made = compiler_with(H200).compile(capture_results(model, tokens).captured)
        record = CaseRecord(name=path.stem, operation="", sizes={}, dtype="")
        describe(CompiledCase(made, record))
        assert record.times_limit and record.times_limit <= MOST, tokens


FLAT = "nn.Linear(2048, 1024)(torch.randn(512, 2048))"
HEADS = "q, k, v = (torch.randn(2, 8, 256, 64) for _ in range(3)); o = F.scaled_dot_product_attention(q, k, v); "
PRODUCT = "nn.Linear(5632, 2048)(torch.randn(32, 5632))"
NARROW = "nn.Linear(2048, 256)(torch.randn(32, 2048))"


@pytest.mark.parametrize(
    ("text", "most", "other"),
    [
        # a batch of rows is more rows: sequences, also of sequences, tokens before sequences, parts of sequences
        ("nn.Linear(2048, 1024)(torch.randn(2, 256, 2048))", 1.05, FLAT),
        ("nn.Linear(2048, 1024)(torch.randn(2, 4, 64, 2048))", 1.05, FLAT),
        ("nn.Linear(2048, 1024)(torch.randn(128, 4, 2048).transpose(0, 1))", 1.05, FLAT),
        ("nn.Linear(2048, 1024)(torch.randn(2, 300, 2048)[:, :256])", 1.05, FLAT),
        # heads of a weight, also by rows
        ("torch.einsum('bsd,dhk->bhsk', torch.randn(2, 256, 2048), torch.randn(2048, 16, 64))", 1.05, FLAT),
        ("torch.einsum('bsd,hdk->bshk', torch.randn(2, 256, 2048), torch.randn(16, 2048, 64))", 1.05, FLAT),
        # attention is tiled in whatever order it is stored
        (f"{HEADS}o.transpose(1, 2).contiguous()", 1.3, f"{HEADS}o"),
        (f"{HEADS}o.permute(2, 0, 1, 3).contiguous()", 1.3, f"{HEADS}o"),
        (f"{HEADS}o.permute(1, 2, 0, 3).contiguous()", 1.3, f"{HEADS}o"),
        # what stands beside a sum does not keep it whole
        (f"torch.randn(32, 2048) + {PRODUCT}", 1.1, PRODUCT),
        ("x = torch.randn(32, 2048); F.silu(nn.Linear(2048, 256)(x)) * nn.Linear(2048, 256)(x)", 2, NARROW),
    ],
)
def test_a_program_takes_hardly_longer_than_its_product(text: str, most: float, other: str) -> None:
    assert whole(text) <= most * whole(other)


ONCE = """## level: loop
kernel f(x: f32[4096, 4096]) -> y: f32[4096, 512]:
    for i in 0..4096 free:
        for k in 0..4096 reduce:
            a = load x[i, k]
            e = exp(a)
            s <- add(s, e)
        for j in 0..512 free:
            y[i, j] = s
"""
AGAIN = """## level: loop
kernel f(x: f32[4096, 4096]) -> y: f32[4096, 512]:
    for i in 0..4096 free:
        for j in 0..512 free:
            for k in 0..4096 reduce:
                a = load x[i, k]
                e = exp(a)
                s <- add(s, e)
            y[i, j] = s
"""


def test_a_limit_does_not_count_what_is_computed_again() -> None:
    once, again = (least_seconds(read_program(text)[1][0], H200) for text in (ONCE, AGAIN))
    assert once == again > 4 * 4096 * (4096 + 512) / H200.dram_bytes_per_second


@pytest.mark.parametrize("mask", ["", ", is_causal=True"])
def test_a_limit_counts_what_is_made_of_sums(mask: str) -> None:
    """Of attention both products, whether or not its scores are compared with a place, and an exponential a score."""
    heads, rows, size = 32, 512, 64
    operands = f"q, k, v = (torch.randn(1, {heads}, {rows}, {size}) for _ in range(3)); "
    computed = least(f"{operands}F.scaled_dot_product_attention(q, k, v{mask})") * slots_per_second(H200)
    exponential = H200.fp32_per_clock / H200.special_per_clock
    assert 2 * size + exponential <= computed / (heads * rows * rows) <= 2 * size + exponential + 6


@pytest.mark.parametrize(
    ("text", "moved"),
    [  # a sector for each element, and at most what there is: what lies between the elements of a row comes along
        ("torch.randn(64, 256)[::2].contiguous()", 2 * 32 * 256 * 4),
        ("torch.randn(64, 256)[:, ::2].contiguous()", 64 * 256 * 4 + 64 * 128 * 4),
        ("torch.randn(512, 3072)[:, ::3] * 2.0", 4 * 512 * 1024 * (3 + 1)),
        ("torch.randn(512, 8192)[:, ::8] * 2.0", 4 * 512 * 1024 * (8 + 1)),
        ("torch.randn(512, 16384)[:, ::16] * 2.0", 4 * 512 * 1024 * (8 + 1)),
        ("torch.randn(64, 3200)[:, ::100].contiguous()", 64 * 32 * (32 + 4)),
    ],
)
def test_a_limit_counts_the_sectors_that_are_moved(text: str, moved: int) -> None:
    assert round(least(text) * H200.dram_bytes_per_second) == moved
