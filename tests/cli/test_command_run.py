"""`dplc run`: the exact record, outputs that anyone can recompute, devices, --size, --check."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import MATMUL, MINE, SOFTMAX, Command
from wrong_rules import EVERYWHERE, overflowing

from dplc.codegen.emulator.executor import chosen_blocks
from dplc.codegen.kernel import CudaKernel
from dplc.engine.api import Compiled
from dplc.engine.capture import decompositions
from dplc.engine.cli.programs import bindings
from dplc.ir.diagnostic import UsageError
from dplc.ir.expr import Size
from dplc.version import __version__


def test_the_record_has_exactly_these_keys(dplc: Command) -> None:
    record = dplc(f"run --device emulator --bench --json -c '{SOFTMAX}'").json
    assert list(record) == ["dplc", "ok", "device", "kernels", "max_abs_err", "max_rel_err", "bench"]
    assert (record["ok"], record["device"]) == (True, "emulator")
    assert [list(kernel) for kernel in record["kernels"]] == [["name", "grid", "block", "smem"]]
    assert 0 < record["max_rel_err"] <= 1e-5 and 0 < record["max_abs_err"] < 1
    dplc(f"run --device emulator -c '{SOFTMAX}'").shows("grid 64 x 1 x 1, 32 threads, 0 bytes of shared memory\n")
    assert dplc(f"run --device reference --json -c '{SOFTMAX}'").json == {
        "dplc": __version__, "ok": True, "device": "reference", "kernels": [], "max_abs_err": 0.0, "max_rel_err": 0.0
    }  # fmt: skip


SEVERAL = "(torch.randn(5, 8) + 1, torch.randint(0, 9, (2, 1)), torch.ones(3, dtype=torch.float32) * 2)"


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        (f"({MATMUL},)", torch.float32),
        ("(nn.Linear(33, 17)(torch.randn(5, 33)),)", torch.float32),
        (SEVERAL, torch.float32),
        (SEVERAL, torch.float16),
        (SEVERAL, torch.bfloat16),
    ],
)
def test_the_seed_and_the_dtype_make_the_inputs(dplc: Command, text: str, dtype: torch.dtype) -> None:
    """torch.manual_seed(seed), then the text: that is the reference, for anyone. bf16, which numpy lacks, is saved as f32."""
    name = str(dtype).removeprefix("torch.")
    printed = dplc(f"run --device emulator --seed 7 --dtype {name} --out out.npz -c '{text}'").out
    assert torch.get_default_dtype() is torch.float32
    torch.manual_seed(7)
    torch.set_default_dtype(dtype)
    try:
        with torch.no_grad():
            expected = eval(text, {"torch": torch, "nn": torch.nn})
    finally:
        torch.set_default_dtype(torch.float32)
    saved = np.load("out.npz")
    assert list(saved) == [f"out{place}" for place in range(len(expected))]
    for place, value in enumerate(expected):
        assert f"out{place}: {str(value.dtype).removeprefix('torch.')}{list(value.shape)}" in printed
        found, wide = torch.from_numpy(saved[f"out{place}"]), torch.float32
        assert found.dtype is (wide if value.dtype is torch.bfloat16 else value.dtype)
        near = 1e-5 if value.dtype is wide else 0
        torch.testing.assert_close(found.to(value.dtype), value, rtol=near, atol=near)


def test_a_wrong_result_is_an_error(dplc: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Compiled.run
    monkeypatch.setattr(Compiled, "run", lambda self, inputs: [value * 1.001 for value in real(self, inputs)])
    done = dplc(f"run --device emulator --json -c '{SOFTMAX}'", code=1)
    assert done.json["ok"] is False
    assert "error: the result is off by 1.00e-03 of the largest value" in done.err


def test_where_eager_overflows_the_others_are_judged_still(dplc: Command) -> None:
    text = overflowing(1000)
    out = dplc(f"run -c '{text}'").out
    assert "inf" not in out and out.rstrip().endswith("ok")
    MINE.write_text(EVERYWHERE)
    dplc(f"run --rules mine.rw -c '{text}'", code=1).shows("WRONG at 1,000 of 1,001 elements")
    MINE.write_text(EVERYWHERE.replace("add(x, 1000.0)", "minimum(x, 88.0)").replace("everywhere", "there"))
    dplc(f"run --rules mine.rw -c '{text}'").shows("note: 1 of 1,001 elements were not judged: eager overflows there")


# ops of the table by their overloads, with a program of each
PLANTED = {
    "upsample_nearest2d.vec": "F.interpolate(torch.randn(1, 2, 5, 4), scale_factor=1.5)",
    "upsample_bilinear2d.vec": "F.interpolate(torch.randn(1, 2, 5, 4), size=(7, 3), mode='bilinear')",
    "grid_sampler_2d.default": "F.grid_sample(torch.randn(1, 2, 5, 4), torch.rand(1, 3, 3, 2), align_corners=False)",
    "im2col.default": "F.unfold(torch.randn(1, 2, 5, 4), 3)",
    "pixel_unshuffle.default": "F.pixel_unshuffle(torch.randn(1, 2, 4, 6), 2).clone().add_(1)",
    "renorm.default": "torch.renorm(torch.randn(4, 5), 2, 0, 1.0)",
    "channel_shuffle.default": "torch.channel_shuffle(torch.randn(1, 6, 2, 2), 3)",
    "logaddexp2.default": "torch.logaddexp2(torch.randn(7), torch.randn(7))",
    "linalg_cross.default": "torch.linalg.cross(torch.randn(4, 3), torch.randn(4, 3))",
    "soft_margin_loss.default": "F.soft_margin_loss(torch.randn(9), torch.ones(9))",
    "trapezoid.dx": "torch.trapezoid(torch.randn(3, 8))",
    "gru.input": "nn.GRU(3, 4)(torch.randn(5, 2, 3))[0]",
}


def wrong(formula: Any, *arguments: Any, **options: Any) -> Any:
    """One more than the formula says."""
    result = formula(*arguments, **options)
    return (result[0] + 1, *result[1:]) if isinstance(result, (tuple, list)) else result + 1


@pytest.mark.parametrize("name", PLANTED)
@pytest.mark.sampled(3)
def test_run_finds_a_wrong_decomposition(name: str, dplc: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The float64 reference is the program of the user's own ops."""
    packet, _, overload = name.partition(".")
    op, known = getattr(getattr(torch.ops.aten, packet), overload), decompositions._own()
    dplc("run -c", PLANTED[name])
    monkeypatch.setitem(known, op, functools.partial(wrong, known[op]))
    dplc("run -c", PLANTED[name], code=1).shows("the result is off by")


# ---- --size

SIZES = {"s": Size("s", 1, 100, 1, 7), "t": Size("t", 1, 100, 1, 9)}
HUNDRED = "s=" + ",".join(map(str, range(1, 101)))
TENS = "t=1,2,3,4,5,6,7,8,9,10"


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (["s=1,2", "t=5"], [{"s": 1, "t": 5}, {"s": 2, "t": 5}]),
        (["t=3 , 4"], [{"s": 7, "t": 3}, {"s": 7, "t": 4}]),  # s as its hint says
        (["s=2,2,1"], [{"s": 2, "t": 9}, {"s": 1, "t": 9}]),
        ([], [{"s": 7, "t": 9}]),
        ([HUNDRED, TENS], [{"s": s, "t": t} for s in range(1, 101) for t in range(1, 11)]),
    ],
)
def test_sizes_are_bound_in_every_combination(asked: list[str], found: list[dict[str, int]]) -> None:
    assert bindings(SIZES, asked) == found


def test_there_are_a_thousand_bindings_at_most() -> None:
    with pytest.raises(UsageError, match="more than 1000 combinations"):
        bindings(SIZES, [HUNDRED, f"{TENS},11"])


@pytest.mark.parametrize(
    "written", ["x.index_fill(0, i, 2.0)", "x.index_add(0, i.abs(), x[:3])", "x.index_put((i, i.abs()), x[0, 0])"]
)
@pytest.mark.sampled(2)
def test_places_are_looked_at_where_sizes_are_numbers(dplc: Command, written: str) -> None:
    """What an op takes for a place ends with the length: 5 is one of 7 rows, and none of 4."""
    text = f"x = torch.randn(dim(s, 4..40), 9); i = torch.tensor([0, 5, 3]); {written}"
    assert dplc(f"run --size s=6,7,40 -c '{text}'").out.count("ok") == 3
    assert "internal" not in dplc(f"run --size s=7,4 -c '{text}'", code=1).shows("out of ").err


# ---- --check

RACY = """
@repeat
override rule async_copy on tile
match
    for k in 0..K serial:
        stages: Stage(depth=N, via=SYNC)+
        Sync()
        rest..
require N >= 2                                   else "single-buffered: nothing to overlap"
rewrite
    for k in 0..K serial:
        stages.. with via=ASYNC
        Sync()
        rest..
"""


def test_check_has_a_record(dplc: Command) -> None:
    record = dplc(f"run --check --json -c '{MATMUL}'").json
    assert list(record) == ["dplc", "ok", "findings", "kernels", "orders", "max_abs_err", "max_rel_err"]
    assert (record["ok"], record["findings"], record["orders"]) == (True, [], [0, 1, 2])
    (kernel,) = record["kernels"]
    assert kernel["whole"] and kernel["blocks"] == list(range(len(kernel["blocks"])))
    assert {site["unit"] for site in kernel["sites"]} == {"sectors", "wavefronts"}
    assert all(site["text"] and site["cost"] >= 0 and site["requests"] > 0 for site in kernel["sites"])


@pytest.mark.parametrize(
    ("line", "said"),
    {
        f"run --check -c '{SOFTMAX}'": "all 64 blocks of 32 threads, 3 orders of threads\nldg128(",
        "run --check -c 'torch.relu(torch.randn(4000, 300))'": "grids of more than 4096 threads: first, last, ragged blocks; `--blocks all` checks every one",
        "run --check --blocks 0,3 -c 'torch.relu(torch.randn(4000, 300))'": "blocks 0, 3 of ",
    }.items(),
)  # fmt: skip
def test_check_shows(dplc: Command, line: str, said: str) -> None:
    dplc(line).shows(*said.split("\n"))


def test_check_finds_a_race_and_quotes_it(dplc: Command) -> None:
    MINE.write_text(RACY)
    dplc("run --check --rules mine.rw -c 'torch.randn(64, 64) @ torch.randn(64, 64)'", code=1).shows(
        "FOUND kernel `matmul`, block (", "copies asynchronously", ": cp_async16(", "checked mode found"
    )


def test_check_of_boxes(dplc: Command) -> None:
    """tma_copy, swizzles and the peeled ring, from a user's rules to checked kernels."""
    rules = Path(__file__).parents[2] / "examples" / "overrides" / "copies_by_tma.rw"
    for text in ("torch.randn(64, 96) @ torch.randn(96, 128)", "torch.randn(50, 100) @ torch.randn(100, 200)"):
        record = dplc(f"run --check --rules {rules} --target h200 --json -c '{text}'").json
        assert record["ok"] and "box copy" in {site["access"] for site in record["kernels"][0]["sites"]}


@pytest.mark.parametrize(
    ("asked", "blocks"), [(None, (0, 3, 8, 11)), (("1", "last"), (1, 11)), (("all",), tuple(range(12)))]
)
def test_ragged_blocks_are_the_far_ends(asked: tuple[str, ...] | None, blocks: tuple[int, ...]) -> None:
    assert chosen_blocks(CudaKernel("k", "", (4, 3, 1), 1024, 0, ()), asked) == blocks
