"""CUDA text on the CPU: right results, and every way in which hardware would punish a wrong kernel."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pytest
from emulated import run, run_with

from dplc.codegen.emulator.runtime import EmulatorError, LaunchOptions, LineCost, LoadedKernels
from dplc.codegen.kernel import CudaKernel, KernelParam
from dplc.ir.dtypes import DTYPES, DtypeName

MakeKernel = Callable[..., CudaKernel]
Floats = npt.NDArray[np.float32]

X32 = KernelParam("x", "f32", (32,))
Y32 = KernelParam("y", "f32", (32,), "out")


def uniform(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def relative_error(got: npt.NDArray[np.generic], want: npt.NDArray[np.float64]) -> float:
    return float(np.max(np.abs(got.astype(np.float64) - want)) / np.max(np.abs(want)))


@pytest.mark.parametrize("order", [0, 1, 7])
@pytest.mark.parametrize("workers", [1, 3])
def test_rms_norm_agrees_with_float64(rms_norm: CudaKernel, order: int, workers: int) -> None:
    x, w = uniform(8, 256), uniform(256, seed=1)
    got = run_with(rms_norm, {"x": x, "w": w}, LaunchOptions(workers=workers, order=order)).outputs["y"]
    exact = x.astype(np.float64)
    want = exact / np.sqrt((exact**2).mean(axis=1, keepdims=True) + 1e-6) * w
    assert relative_error(got, want) <= 1e-6


@pytest.mark.parametrize("order", [0, 1, 7])
def test_ring_of_asynchronous_copies_agrees_with_float64(matmul: CudaKernel, order: int) -> None:
    x, w = uniform(32, 64), uniform(64, 48, seed=1)
    got = run_with(matmul, {"x": x, "w": w}, LaunchOptions(order=order)).outputs["y"]
    assert relative_error(got, x.astype(np.float64) @ w.astype(np.float64)) <= 1e-6


def test_some_blocks_only(matmul: CudaKernel) -> None:
    x, w = uniform(32, 64), uniform(64, 48, seed=1)
    whole = run(matmul, {"x": x, "w": w})["y"]
    some = run(matmul, {"x": x, "w": w}, blocks=[1, 3])["y"]
    written = np.zeros((32, 48), bool)
    written[:16, 16:32] = True  # block 1 of a grid three wide
    written[16:, :16] = True  # block 3
    assert np.array_equal(some[written], whole[written])
    assert np.isnan(some[~written].astype(np.float32)).all()


@pytest.mark.parametrize("broken", ["cp_async_wait<1>();", "cp_async_commit();\n    cp_async_wait"])
def test_a_dropped_wait_or_commit_shows(matmul: CudaKernel, broken: str) -> None:
    text = matmul.text.replace(broken, "cp_async_wait" if "commit" in broken else "")
    assert text != matmul.text
    x, w = uniform(32, 64), uniform(64, 48, seed=1)
    got = run(replace(matmul, text=text), {"x": x, "w": w})["y"]
    assert np.isnan(got.astype(np.float32)).any()


def test_a_dropped_barrier_shows(matmul: CudaKernel) -> None:
    text = matmul.text.replace("    block_sync();\n    #pragma", "    #pragma")
    assert text != matmul.text
    x, w = uniform(32, 64), uniform(64, 48, seed=1)
    got = run(replace(matmul, text=text), {"x": x, "w": w})["y"]
    assert not np.allclose(got.astype(np.float32), x @ w, atol=1e-3)


def test_shared_memory_starts_as_poison(make_kernel: MakeKernel) -> None:
    body = (
        "DPLC_DYN_SMEM(float, s); const uint32_t a = smem_addr(s); stg32(y + threadIdx.x, lds32(a + threadIdx.x * 4));"
    )
    got = run(make_kernel(body, Y32, smem=128), {})["y"]
    assert np.isnan(got.astype(np.float32)).all()


def test_shared_memory_is_poisoned_again_for_every_block(make_kernel: MakeKernel) -> None:
    y = KernelParam("y", "f32", (4, 32), "out")
    body = """
      DPLC_DYN_SMEM(float, s);
      const uint32_t a = smem_addr(s) + threadIdx.x * 4;
      stg32(y + blockIdx.x * 32 + threadIdx.x, lds32(a));
      sts32(a, 1.0f);"""
    got = run(make_kernel(body, y, smem=128, blocks=4), {}, workers=1)["y"]
    assert np.isnan(got.astype(np.float32)).all()


def test_zero_filled_copies_land_zeros_and_read_nothing(make_kernel: MakeKernel) -> None:
    body = """
      DPLC_DYN_SMEM(float, s);
      const int t = threadIdx.x;
      const uint32_t a = smem_addr(s) + t * 4;
      cp_async4_zfill(t < 20, a, t < 20 ? x + t : x + 100000);
      cp_async_commit();
      cp_async_wait<0>();
      stg32(y + t, lds32(a));"""
    x = uniform(32)
    got = run(make_kernel(body, X32, Y32, smem=128), {"x": x})["y"]
    assert np.array_equal(got, np.where(np.arange(32) < 20, x, 0))


@pytest.mark.parametrize("value", (-1.4426950408889634, 0.3, 2.7))
def test_value_that_the_compiler_knows_is_rounded_like_others(make_kernel: MakeKernel, value: float) -> None:
    body = f"y[threadIdx.x] = tanhf(log1pf(exp2f(x[threadIdx.x]))) - tanhf(log1pf(exp2f({value}f)));"
    assert not run(make_kernel(body, X32, Y32, block=32), {"x": np.full(32, value, np.float32)})["y"].any()


def test_lanes_that_are_not_there_say_nan(make_kernel: MakeKernel) -> None:
    y = KernelParam("y", "f32", (24,), "out")
    got = run(make_kernel("stg32(y + threadIdx.x, shfl_xor(1.0f, 16));", y, block=24), {})["y"].astype(np.float32)
    assert np.array_equal(np.isnan(got), np.arange(24) ^ 16 >= 24)


@pytest.mark.parametrize("way", ["load", "store"])
def test_shared_memory_is_counted_in_wavefronts_and_global_memory_in_sectors(way: Literal["load", "store"]) -> None:
    assert LineCost(1, f"shared {way}", 4, 1, 1, 1).unit == "wavefronts"
    assert LineCost(1, f"global {way}", 4, 1, 4, 4).unit == "sectors"


def test_kernels_that_nothing_holds_are_unloaded(make_kernel: MakeKernel) -> None:
    loaded = LoadedKernels((make_kernel("stg32(y + threadIdx.x, 4321.0f);", Y32),), False)
    library = loaded._library._name
    del loaded
    with pytest.raises(OSError):
        ctypes.CDLL(library, os.RTLD_NOLOAD | os.RTLD_NOW)


def test_exited_threads_are_not_waited_for(make_kernel: MakeKernel) -> None:
    y = KernelParam("y", "f32", (64,), "out")
    body = "if (threadIdx.x >= 40) return; block_sync(); stg32(y + threadIdx.x, 1.0f);"
    got = run(make_kernel(body, y, block=64), {})["y"].astype(np.float32)
    assert np.array_equal(np.isnan(got), np.arange(64) >= 40)


def test_many_threads_with_deep_frames(make_kernel: MakeKernel) -> None:
    """1024 threads alive at once, each with kilobytes of locals that must survive the barrier."""
    y = KernelParam("y", "f32", (1024,), "out")
    body = """
      float v[2000];
      for (int i = 0; i < 2000; ++i) v[i] = threadIdx.x + i;
      block_sync();
      float sum = 0;
      for (int i = 0; i < 2000; ++i) sum += v[i] - i;
      stg32(y + threadIdx.x, sum / 2000);"""
    got = run(make_kernel(body, y, block=1024), {})["y"].astype(np.float64)
    assert np.allclose(got, np.arange(1024), rtol=1e-4)


SMEM = "DPLC_DYN_SMEM(float, s); "
FAULTS = {
    "read past a buffer": (
        "stg32(y + threadIdx.x, ldg32(x + 32 + threadIdx.x));",
        r"byte 128 of buffer `x`, which has 128 bytes",
    ),
    "write before a buffer": ("stg32(y + threadIdx.x - 4000, 1.0f);", r"byte -16000 of buffer `y`"),
    "write to an input": ("stg32((float*)x + threadIdx.x, 1.0f);", r"write to byte 0 of buffer `x`.*read-only"),
    "shared memory too small": (
        SMEM + "sts32(smem_addr(s) + 128, 1.0f);",
        r"byte 128 of shared memory, which has 128 bytes",
    ),
    "misaligned vector": (
        "float v[4]; ldg128(v, x + threadIdx.x);",
        r"misaligned 16-byte access, at byte 4 of buffer `x`",
    ),
    "misaligned copy": (
        SMEM + "cp_async16(smem_addr(s) + 4, x);",
        r"misaligned 16-byte access, at byte 4 of shared memory",
    ),
    "stack overflow": (
        "volatile float v[100000]; v[threadIdx.x] = 1; stg32(y, v[3]);",
        r"stack overflow: a thread has 128 KB",
    ),
    "division by zero": ("stg32(y, (float)(5 / (int)ldg32(x)));", r"integer division by zero"),
    "barrier not reached by all": (
        "if (threadIdx.x < 7) block_sync(); else shfl_xor(1.0f, 1);",
        r"deadlock: 7 threads wait at block_sync and 25 at a warp operation",
    ),
    "pointer from nowhere": ("stg32((float*)8, 1.0f);", r"address 0x8, which is near none of its buffers"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_explained_and_survived(make_kernel: MakeKernel, fault: str) -> None:
    body, message = FAULTS[fault]
    x = np.zeros(32, np.float32)
    with pytest.raises(EmulatorError, match=r"kernel `test`, block \(0, 0, 0\), thread \d+: .*" + message):
        run(make_kernel(body, X32, Y32, smem=128), {"x": x})
    fine = run(make_kernel("stg32(y + threadIdx.x, ldg32(x + threadIdx.x));", X32, Y32), {"x": x})
    assert np.array_equal(fine["y"], x)


def test_a_write_between_the_elements_and_the_guard_page_is_noticed(make_kernel: MakeKernel) -> None:
    y = KernelParam("y", "f32", (30,), "out")
    with pytest.raises(EmulatorError, match="wrote 8 bytes beside buffer `y`"):
        run(make_kernel("stg32(y + threadIdx.x, 1.0f);", y), {})


def test_the_first_failing_block_is_reported_however_many_workers(make_kernel: MakeKernel) -> None:
    body = "if (blockIdx.x >= 37) stg32((float*)x, 1.0f); stg32(y + threadIdx.x, 1.0f);"
    kernel = make_kernel(body, X32, Y32, blocks=300)
    for workers in (1, 2, 5):
        with pytest.raises(EmulatorError, match=r"block \(37, 0, 0\)"):
            run(kernel, {"x": np.zeros(32, np.float32)}, workers=workers)


def test_a_stack_overflow_on_a_worker_thread(make_kernel: MakeKernel) -> None:
    """The signal must find another stack to run on there too."""
    body = "if (blockIdx.x == 1) { volatile float v[100000]; v[threadIdx.x] = 1; stg32(y, v[3]); }"
    with pytest.raises(EmulatorError, match=r"block \(1, 0, 0\), thread 0: stack overflow"):
        run(make_kernel(body, Y32, blocks=2), {}, workers=2)


def test_copies_of_a_block_that_failed_do_not_land_in_the_next(make_kernel: MakeKernel) -> None:
    """The machine that ran the failing block is used again; what its threads left in flight points to freed memory."""
    body = (
        SMEM
        + """
      const uint32_t a = smem_addr(s) + threadIdx.x * 4;
      cp_async4(a, x + threadIdx.x);
      cp_async_commit();
      if (FAILS && threadIdx.x == 31) stg32((float*)x, 1.0f);
      cp_async_wait<0>();
      stg32(y + threadIdx.x, lds32(a));"""
    )
    x = uniform(32)
    for _ in range(20):
        with pytest.raises(EmulatorError):
            run(make_kernel(body.replace("FAILS", "true"), X32, Y32, smem=128), {"x": x}, workers=1)
        fine = run(make_kernel(body.replace("FAILS", "false"), X32, Y32, smem=128), {"x": x}, workers=1)
        assert np.array_equal(fine["y"], x)


def test_results_do_not_depend_on_the_number_of_workers(rms_norm: CudaKernel) -> None:
    arrays = {"x": uniform(8, 256), "w": uniform(256, seed=1)}
    results = [run(rms_norm, arrays, workers=workers)["y"] for workers in (1, 2, 8)]
    assert all(np.array_equal(result, results[0]) for result in results)


def test_an_array_that_does_not_fit_is_refused(rms_norm: CudaKernel) -> None:
    with pytest.raises(Exception, match=r"`x` is f32\[8, 256\], but the array given is f32\[8, 255\]"):
        run(rms_norm, {"x": uniform(8, 255), "w": uniform(256)})
    with pytest.raises(Exception, match=r"`x` is f32\[8, 256\], but the array given is float64\[8, 256\]"):
        run(rms_norm, {"x": uniform(8, 256).astype(np.float64), "w": uniform(256)})


PORTABLE = '''
import numpy as np
from dplc.codegen import build
build.RUNTIME_FLAGS += ("-DDPLC_UCONTEXT",)
from emulated import run
from dplc.codegen.kernel import CudaKernel, KernelParam
text = """extern "C" __global__ void test(float* y) {
  block_sync();
  stg32(y + threadIdx.x, shfl_xor((float)threadIdx.x, 5));
}"""
y = run(CudaKernel("test", text, (3, 1, 1), 64, 0, (KernelParam("y", "f32", (64,), "out"),)), {})["y"]
assert np.array_equal(y, np.arange(64) ^ 5), y
'''


OUT_OF_MEMORY = """
import resource
from emulated import run
from dplc.codegen.emulator.runtime import EmulatorError, load
from dplc.codegen.kernel import CudaKernel, KernelParam
y = KernelParam("y", "f32", (64,), "out")
kernel = CudaKernel("test", 'extern "C" __global__ void test(float* y) { y[threadIdx.x] = 1; }', (2, 1, 1), 64, 0, (y,))
load((kernel,), False)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), resource.RLIM_INFINITY))
for workers in (1, 2):
    try:
        run(kernel, {}, workers=workers)
    except EmulatorError as error:
        print(error.what)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(run(kernel, {})["y"].sum())
"""


def test_memory_that_runs_out_is_no_stack_overflow() -> None:
    """There is room for the buffers, and none for the stacks. With room again, the kernel runs."""
    tests, said = (
        Path(__file__).parents[1],
        "kernel `test`, out of memory: this process may not have more for the stacks",
    )
    done = subprocess.run([sys.executable, "-c", OUT_OF_MEMORY], capture_output=True, text=True, check=False, cwd=tests)
    assert done.stdout == f"{said} of threads\n" * 2 + "64.0\n", done.stderr


@pytest.mark.slow
def test_the_portable_stack_switch_works_too() -> None:
    tests = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", PORTABLE], capture_output=True, text=True, check=False, cwd=tests)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("dtype", ["f32", "i32", "i64", "b8"])
def test_what_the_compiler_reads_besides_is_no_fault(dtype: DtypeName, shared: bool, make_kernel: MakeKernel) -> None:
    """Of every other element g++ makes wide loads, the last of them past the end of what is there."""
    size, ctype = DTYPES[dtype].item_bytes, DTYPES[dtype].c_type
    read = f"lds<{ctype}>(a + q * {2 * size})" if shared else "ldg(x_at + q * 2)"
    x, y = KernelParam("x", dtype, (16,)), KernelParam("y", dtype, (32, 64), "out")
    body = f"""
      DPLC_DYN_SMEM(float, s);
      const int t = threadIdx.x, i = t >> 4, l = t & 15;
      if (t < 16) sts(smem_addr(s) + t * {size}, ldg(x + t));
      block_sync();
      const {ctype}* x_at = x + i;
      const uint32_t a = smem_addr(s) + i * {size};
      {ctype} v[8][2][4];
      for (int q = 0; q < 8; ++q)
        for (int k = 0; k < 2; ++k)
          for (int e = 0; e < 4; ++e) v[q][k][e] = k * 64 + l * 4 + e < 96 ? {read} : 0;
      block_sync();
      for (int n = 0; n < 64; ++n) stg(y + t * 64 + n, v[n / 8][n / 4 % 2][n % 4]);"""
    values = (np.arange(16) % 3).astype(DTYPES[dtype].numpy)
    got = run(make_kernel(body, x, y, smem=16 * size), {"x": values})["y"].reshape(2, 16, 8, 8)
    assert np.array_equal(got[0, 0, :, 0], values[::2]) and np.array_equal(got[1, 7, :, 7], values[1::2])
