"""Checked mode: it sees what a lucky order of threads hides, names the lines, and counts what accesses cost."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
import torch
from emulated import KernelRun, check, run

import dplc
from dplc.codegen.emulator.executor import CheckingExecutor, EmulatorExecutor
from dplc.codegen.emulator.runtime import EmulatorError
from dplc.codegen.kernel import Box, Buffer, CudaKernel, KernelParam, Program

MakeKernel = Callable[..., CudaKernel]

X = KernelParam("x", "f32", (64,))
Y = KernelParam("y", "f32", (64,), "out")
HEAD = "DPLC_DYN_SMEM(float, s); const int t = threadIdx.x; const uint32_t a = smem_addr(s), mine = a + t * 4; "


def uniform(*shape: int, seed: int = 0) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def checked(make_kernel: MakeKernel, body: str, order: int = 0, block: int = 64) -> KernelRun:
    return check(make_kernel(HEAD + body, X, Y, block=block, smem=256), {"x": uniform(64)}, order=order)


@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_right_kernels_pass(rms_norm: CudaKernel, matmul: CudaKernel, order: int) -> None:
    arrays = {"x": uniform(8, 256), "w": uniform(256, seed=1)}
    assert np.array_equal(check(rms_norm, arrays, order=order).outputs["y"], run(rms_norm, arrays)["y"])
    arrays = {"x": uniform(32, 64), "w": uniform(64, 48, seed=1)}
    assert np.array_equal(check(matmul, arrays, order=order).outputs["y"], run(matmul, arrays)["y"])


# Which of its consequences is met first depends on the order of threads.
DROPPED = {
    "the barrier before the loop body": (
        "    block_sync();\n    #pragma",
        "    #pragma",
        "reads byte .*(nothing has written|no barrier between|has not waited)",
    ),
    "the barrier after it": (
        "  }\n    block_sync();\n",
        "  }\n",
        "race: copies to byte .* which thread .* reads|reads byte .* copies asynchronously .* has not waited",
    ),
    "the wait": ("cp_async_wait<1>();", "", "copies asynchronously .* and has not waited"),
    "half of the wait": ("cp_async_wait<1>();", "cp_async_wait<2>();", "copies asynchronously .* and has not waited"),
}


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("what", DROPPED)
def test_a_ring_that_lost_something(matmul: CudaKernel, what: str, order: int) -> None:
    old, new, message = DROPPED[what]
    text = matmul.text.replace(old, new)
    assert text != matmul.text
    with pytest.raises(EmulatorError, match=message):
        check(replace(matmul, text=text), {"x": uniform(32, 64), "w": uniform(64, 48, seed=1)}, order=order)


def test_an_exchange_without_its_barrier(rms_norm: CudaKernel) -> None:
    text = rms_norm.text.replace("  block_sync();\n", "")
    with pytest.raises(EmulatorError, match=r"which nothing has written|with no barrier between"):
        check(replace(rms_norm, text=text), {"x": uniform(8, 256), "w": uniform(256)})


ERRORS = {
    "read after write by another thread": (
        "sts32(mine, 1.0f); stg32(y + t, t == 40 ? lds32(a) : 0.0f);",
        r"thread 40: line 2: race: reads byte 0 of shared memory, which thread 0 writes \(line 2\), with no barrier",
    ),
    "write after read by another thread": (
        "sts32(mine, 1.0f); block_sync();\nstg32(y + t, lds32(mine));\nif (t == 40) sts32(a, 2.0f);",
        r"thread 40: line 4: race: writes byte 0 of shared memory, which thread 0 reads \(line 3\)",
    ),
    "write after reads by two warps, one of them one's own": (
        "sts32(mine, 1.0f); block_sync();\nstg32(y + t, lds32(a));\nwarp_sync(); if (t == 40) sts32(a, 2.0f);",
        r"race: writes byte 0 of shared memory, which thread \d+ reads",
    ),
    "two writes": ("sts32(a, 1.0f);", r"thread 1: line 2: race: writes byte 0 of shared memory, which thread 0 writes"),
    "a race within a warp": (
        "sts32(mine, 1.0f); stg32(y + t, lds32(a + (t ^ 1) * 4));",
        r"race: reads|which nothing has written",
    ),
    "a shuffle orders nothing": (
        "sts32(mine, 1.0f); shfl_xor(1.0f, 1); stg32(y + t, lds32(a + (t ^ 1) * 4));",
        r"race: reads byte \d+ of shared memory, which thread \d+ writes",
    ),
    "a read of what nothing wrote": ("stg32(y + t, lds32(mine));", r"reads byte 0 of .*, which nothing has written"),
    "a read before one's own wait": (
        "cp_async4(mine, x + t); cp_async_commit();\nstg32(y + t, lds32(mine));",
        r"line 3: reads byte 0 of shared memory, to which thread 0 copies asynchronously \(line 2\) and has not waited",
    ),
    "a read after another's wait, without a barrier": (
        "cp_async4(mine, x + t); cp_async_commit(); cp_async_wait<0>();\nstg32(y + t, t == 63 ? lds32(a) : 0.0f);",
        r"line 3: race: reads byte 0 of shared memory, which thread 0 writes \(line 2\)",
    ),
    "a copy on top of a copy": (
        "cp_async4(mine, x + t); cp_async4(mine, x + t);",
        r"copies to byte 0 of shared memory, to which thread 0 copies asynchronously",
    ),
    "an access just past shared memory": ("sts32(mine + 4, 1.0f);", r"at byte 256 of shared memory, which has 256"),
    "an access before shared memory": ("sts32(mine - 4, 1.0f);", r"at byte -4 of shared memory"),
    "an access just past a buffer": ("stg32(y + t, ldg32(x + t + 1));", r"out of bounds, at byte 256 of buffer `x`"),
    "two values for one element": (
        "stg32(y + t / 2, (float)t);",
        r"race: stores element 0 of buffer `y`, where thread 0 of block number 0 stored another value",
    ),
    "a read of what the kernel writes": ("stg32(y + t, 1.0f); ldg32(y + (t ^ 1));", r"which this kernel writes"),
    "two different barriers": (
        "if (t < 32) {\nblock_sync(); } else {\nblock_sync(); }",
        r"line 4: block_sync, where other threads wait at the one of line 3",
    ),
}  # fmt: skip


@pytest.mark.parametrize("error", ERRORS)
def test_errors(make_kernel: MakeKernel, error: str) -> None:
    body, message = ERRORS[error]
    with pytest.raises(EmulatorError, match=message):
        checked(make_kernel, body)


# Thread 0 copies x, in a box, to the first 256 bytes; an mbarrier is behind them.
BOX_HEAD = """DPLC_DYN_SMEM(float, s); const int t = threadIdx.x; const uint32_t a = smem_addr(s), b = a + 512, mine = a + t * 4;
if (t == 0) { mbarrier_init(b, 1); mbarrier_fence(); }
block_sync();
"""
ISSUE = "if (t == 0) { mbarrier_expect(b, 256); copy_box_1d(a, m, b, 0); }\n"
BOX_ERRORS = {
    "no wait": (ISSUE + "stg32(y + t, lds32(mine));", r"thread 0 copies asynchronously \(line 5\)|nothing has written"),
    "a wait for the phase before": (ISSUE + "mbarrier_wait(b, 1);\nstg32(y + t, lds32(mine));", r"copies asynchronously .* has not waited|nothing has written"),
    "one thread waits, the others have no barrier": (
        ISSUE + "if (t == 0) mbarrier_wait(b, 0);\nwarp_sync();\nstg32(y + t, lds32(mine));",
        r"race: reads|copies asynchronously|nothing has written",
    ),
    "a slot used again without a barrier": (
        ISSUE + "mbarrier_wait(b, 0); stg32(y + t, lds32(mine));\n" + ISSUE + "mbarrier_wait(b, 1);",
        r"race: copies a box to byte \d+ of .*, which thread \d+ reads|copies asynchronously|deadlock: .* mbarrier",
    ),
    "a box on top of a box": (ISSUE.replace("}", "copy_box_1d(a, m, b, 0); }"), r"race: copies a box to byte 0 of shared memory, which thread 0 writes"),
    "too few bytes announced": (ISSUE.replace("256", "240") + "mbarrier_wait(b, 0);", r"deadlock: .* lacks 0 arrivals and -16 of 240 bytes"),
    "too many bytes announced": (ISSUE.replace("256", "272") + "mbarrier_wait(b, 0);", r"lacks 0 arrivals and 16 of 272 bytes"),
    "no arrival": ("if (t == 0) copy_box_1d(a, m, b, 0);\nmbarrier_wait(b, 0);", r"deadlock: .* lacks 1 arrivals"),
    "two arrivals": ("mbarrier_expect(b, 4);", r"one arrival too many in phase 0"),
    "no such mbarrier": (ISSUE + "mbarrier_wait(b + 8, 0);", r"no mbarrier has been initialised at byte 520"),
    "an mbarrier without its barrier": ("if (t == 9) mbarrier_init(b + 8, 1);\nmbarrier_wait(b + 8, 1);", r"no mbarrier has been|race: reads byte 520"),
    "no fence": ("if (t == 0) { mbarrier_init(b + 8, 1); copy_box_1d(a, m, b + 8, 0); }", r"no mbarrier_fence"),
    "misaligned": (ISSUE.replace("(a,", "(a + 64,"), r"misaligned 128-byte access, at byte 64 of shared memory"),
    "beyond shared memory": (ISSUE.replace("(a,", "(a + 384,"), r"box out of bounds, at byte 384"),
    "in flight at the end": (ISSUE, r"ends with boxes in flight to byte 0"),
}  # fmt: skip
BOX_FINE = {
    "each waits": ISSUE + "mbarrier_wait(b, 0); stg32(y + t, lds32(a + (63 - t) * 4));",
    "one waits, a barrier for the others": ISSUE + "if (t == 9) mbarrier_wait(b, 0);\nblock_sync(); stg32(y + t, lds32(mine));",
    "a slot used again": ISSUE + "mbarrier_wait(b, 0); const float v = lds32(mine); block_sync();\n" + ISSUE
    + "mbarrier_wait(b, 1); stg32(y + t, lds32(mine) + v);",
}  # fmt: skip


def boxed(body: str, order: int) -> KernelRun:
    box = KernelParam("m", "f32", (64,), "tensor_map", Box("x", (64,)))
    declarations = ", ".join(param.declaration for param in (X, Y, box))
    text = f'extern "C" __global__ void test({declarations}) {{\n{BOX_HEAD}{body}\n}}\n'
    return check(CudaKernel("test", text, (1, 1, 1), 64, 528, (X, Y, box)), {"x": uniform(64)}, order=order)


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("error", BOX_ERRORS)
@pytest.mark.sampled(6)
def test_errors_with_boxes(error: str, order: int) -> None:
    body, message = BOX_ERRORS[error]
    with pytest.raises(EmulatorError, match=message):
        boxed(body, order)


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("case", BOX_FINE)
def test_no_false_alarms_with_boxes(case: str, order: int) -> None:
    (site,) = {
        site.cost for site in boxed(BOX_FINE[case], order).sites if site.access == "box copy" and site.requests == 1
    }
    assert site == 8


FINE = {
    "the same value stored twice": "stg32(y + t / 2, 1.0f);",
    "lanes of a warp after warp_sync": "sts32(mine, 1.0f); warp_sync(); stg32(y + t, lds32(a + (t ^ 1) * 4));",
    "all read, then one writes after a barrier": """
      sts32(mine, 1.0f);
      block_sync();
      stg32(y + t, lds32(a));
      block_sync();
      if (t == 3) sts32(a, 2.0f);""",
    "a copy waited for and shared by a barrier": """
      cp_async4(mine, x + t);
      cp_async_commit();
      cp_async_wait<0>();
      block_sync();
      stg32(y + t, lds32(a + (63 - t) * 4));""",
    "threads that leave early": "if (t >= 32) return; block_sync(); stg32(y + t, 1.0f);",
    "reads and writes of one's own": """
      sts32(mine, 1.0f);
      stg32(y + t, lds32(mine));
      sts32(mine, 2.0f);
      stg32(y + t, lds32(mine));""",
}  # fmt: skip


@pytest.mark.parametrize("order", [0, 1, 5])
@pytest.mark.parametrize("case", FINE)
def test_no_false_alarms(make_kernel: MakeKernel, case: str, order: int) -> None:
    checked(make_kernel, FINE[case], order)


def test_the_message_quotes_the_lines(make_kernel: MakeKernel) -> None:
    with pytest.raises(EmulatorError) as caught:
        checked(make_kernel, "sts32(mine, 1.0f);\nstg32(y + t, t == 40 ? lds32(a) : 0.0f);")
    assert caught.value.notes == (
        "line 3: stg32(y + t, t == 40 ? lds32(a) : 0.0f);",
        "line 2: " + HEAD + "sts32(mine, 1.0f);",
    )


@pytest.mark.parametrize(
    ("body", "access", "cost", "ideal"),
    [
        ("sts32(mine, 1.0f);", "shared store", 1, 1),
        ("if (t < 8) sts32(a + t * 8, 1.0f);", "shared store", 1, 1),
        ("if (t < 2) sts32(a + t * 128, 1.0f);", "shared store", 2, 1),  # two rows of one bank
        ("sts32(mine, 1.0f); warp_sync(); stg32(y + t, lds32(a));", "shared load", 1, 1),  # a broadcast
        ("if (t < 16) sts128(a + t * 16, float4{});", "shared store", 2, 2),  # two quarters of a warp
        ("stg32(y + t, ldg32(x + t));", "global load", 4, 4),
        ("stg32(y + t, ldg32(x + t * 2));", "global load", 8, 4),  # every other element
        ("stg32(y + t, ldg32(x + t / 32));", "global load", 1, 4),
        ("float v[4]; if (t < 16) ldg128(v, x + t * 4);", "global load", 8, 8),
    ],
)  # fmt: skip
def test_costs(make_kernel: MakeKernel, body: str, access: str, cost: int, ideal: int) -> None:
    (site,) = [site for site in checked(make_kernel, body, block=32).sites if site.access == access]
    assert (site.requests, site.cost, site.ideal) == (1, cost, ideal)


def test_costs_do_not_depend_on_the_order_of_threads(matmul: CudaKernel) -> None:
    arrays = {"x": uniform(32, 64), "w": uniform(64, 48, seed=1)}
    first = check(matmul, arrays).sites
    assert all(check(matmul, arrays, order=order).sites == first for order in (1, 2, 3))
    assert {site.access for site in first} == {"global load", "async store", "shared load", "global store"}


def test_a_program_in_checked_mode(rms_norm: CudaKernel) -> None:
    x, w, y = Buffer("x", "f32", (8, 256)), Buffer("w", "f32", (256,)), Buffer("y", "f32", (8, 256))
    racy = replace(rms_norm, text=rms_norm.text.replace("  block_sync();\n", ""))
    arrays = {"x": uniform(8, 256), "w": uniform(256)}
    EmulatorExecutor(checked=True).run(Program((rms_norm,), (x,), (y,), (w,)), arrays)
    with pytest.raises(EmulatorError, match="kernel `rms_norm`"):
        EmulatorExecutor(checked=True).run(Program((racy,), (x,), (y,), (w,)), arrays)


@pytest.mark.parametrize("orders", [(0,), (0, 1), (0, 1, 2)])
def test_costs_are_those_of_the_first_order(rms_norm: CudaKernel, orders: tuple[int, ...]) -> None:
    """They are counted once; further orders of threads leave them as they are."""
    x, w, y = Buffer("x", "f32", (8, 256)), Buffer("w", "f32", (256,)), Buffer("y", "f32", (8, 256))
    executor = CheckingExecutor(orders=orders)
    executor.run(Program((rms_norm,), (x,), (y,), (w,)), {"x": uniform(8, 256), "w": uniform(256)})
    (launch,) = executor.launches
    assert launch.sites and not launch.findings


UNSTARTED = {
    "a sum": "float v[4]; for (int q = 0; q < 4; ++q) v[q] = v[q] + q;\n stg32(y + t, v[0] + v[3]);",
    "a maximum": "float v; for (int q = 0; q < 4; ++q) v = max_nan(v, q);\n stg32(y + t, v);",
    "a minimum of two": "float v[2][2]; for (int q = 0; q < 4; ++q) v[q & 1][1] = min_nan(v[q & 1][1], q);\n stg32(y + t, v[1][1]);",
    "a count": "int v; v = wrap_add(v, 1);\n stg32(y + t, (float)v);",
    "a half": "f16 v[2]; v[0] = to_f16(1.0f); stg32(y + t, to_float(v[t & 1]));",
    "a long sum": "long long v[3]; v[1] = wrap_add(v[1], 1LL);\n stg32(y + t, (float)v[1]);",
}  # fmt: skip


@pytest.mark.parametrize("what", UNSTARTED)
def test_a_register_that_nothing_started(make_kernel: MakeKernel, what: str) -> None:
    body = re.sub(r"^", "      ", HEAD + "\n" + UNSTARTED[what], flags=re.MULTILINE).replace("; ", ";\n      ")
    kernel = make_kernel(body, X, Y, block=64, smem=256)
    ((_, value),) = check(kernel, {"x": uniform(64)}).outputs.items()
    wrong = ~np.isfinite(value) | (np.abs(value) > 1e6)
    assert wrong[1::2].all(), value[:4]


def test_a_sum_that_is_always_added_to() -> None:
    """A GPU may start with what another kernel left there; a stack of zeros gives the right values."""
    compiled = dplc.compile(torch.nn.RMSNorm(2048), (torch.randn(2, 2048),), target="h200")
    (kernel,) = compiled.program.kernels
    first = "total[v] = q == 0 ? product : total[v] + product;"
    assert first in kernel.text
    broken = replace(kernel, text=kernel.text.replace(first, "total[v] = total[v] + product;"))
    arrays = {p.name: uniform(*p.shape) for p in kernel.params if p.role == "in"}
    executor = CheckingExecutor()
    program = Program((broken,), tuple(Buffer(n, "f32", a.shape) for n, a in arrays.items()), compiled.program.outputs)
    executor.run(program, arrays)
    assert any("gives other values" in finding.message for finding in executor.findings)
