"""Scenarios for the real PyCUDA on the mock driver; run_on_mock.py runs them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from dplc.codegen.build import build_host, host_text
from dplc.codegen.cuda import print_cuda
from dplc.codegen.kernel import Buffer, CudaKernel, KernelParam, Program
from dplc.codegen.launch import CudaExecutor, DeviceError
from dplc.codegen.materialise import materialise
from dplc.codegen.target import target
from dplc.ir.text.programs import read_program

SIZE = 4096
AXPY = """\
extern "C" __global__ void axpy(const float* __restrict__ x, const float* __restrict__ a, float* __restrict__ y) {
  DPLC_DYN_SMEM(float, s);
  const int t = threadIdx.x;
  const uint32_t at = smem_addr(s) + t * 16;
  cp_async16(at, x + (blockIdx.x * 128 + t) * 4);
  cp_async_commit();
  cp_async_wait<0>();
  float v[4];
  lds128(v, at);
  const float k = ldg32(a);
  stg128(y + (blockIdx.x * 128 + t) * 4, float4{k * v[0] + 1.0f, k * v[1] + 1.0f, k * v[2] + 1.0f, k * v[3] + 1.0f});
}
"""


TRANSPOSE = """
kernel transpose(x: f32[30, 36]) -> y: f32[32, 32]:
    Tile(t:32=THREAD):
        xs = Stage(x, origin=(0, 0), box=(i:32@0, j:32@1), via=TMA, swizzle=128)
        Wait()
        for i in 0..32 free:
            a = load xs[t, i]
            y[i, t] = a
"""


ROWS = """
kernel rows(s: 1..4096, x: f32[s, 64]) -> y: f32[s, 64]:
    Tile(i_o:-(-s // 4)=BLOCK, i:4=THREAD, t:32=THREAD, v:2=VEC):
        if i_o*4 + i < s:
            a = load x[i_o*4 + i, t*2 + v]
            y[i_o*4 + i, t*2 + v] = add(a, a)
"""


class MockedExecutor(CudaExecutor):
    """The executor under test, given what the mock driver takes for a cubin."""

    def __init__(self, **options: Any) -> None:
        super().__init__(memory="cpu", **options)

    def _images_of(self, kernel: CudaKernel) -> Iterator[bytes]:
        yield build_host(host_text([kernel])).read_bytes()


def program(smem: int = 2048) -> Program:
    x, a, y = Buffer("x", "f32", (SIZE,)), Buffer("a", "f32", ()), Buffer("y", "f32", (SIZE,))
    params = (KernelParam("x", "f32", (SIZE,)), KernelParam("a", "f32", ()), KernelParam("y", "f32", (SIZE,), "out"))
    kernel = CudaKernel("axpy", AXPY, (8, 1, 1), 128, smem, params)
    return Program((kernel,), (x,), (y,), (a,))


def tensors_are_used_in_place() -> None:
    executor = MockedExecutor()
    assert executor.target == "sm_90a"
    x, a = torch.randn(SIZE), torch.tensor(3.0)
    assert torch.allclose(executor.run(program(), {"x": x, "a": a})["y"], 3 * x + 1)
    assert executor.notes == ()


def numpy_arrays_are_carried_both_ways() -> None:
    x = np.random.default_rng(0).standard_normal(SIZE).astype(np.float32)
    y = MockedExecutor().run(program(), {"x": x, "a": np.float32(2)})["y"]
    assert isinstance(y, np.ndarray) and np.allclose(y, 2 * x + 1)


def a_misaligned_tensor_is_copied_and_noted() -> None:
    executor = MockedExecutor()
    x = torch.randn(SIZE + 1)[1:]
    assert torch.allclose(executor.run(program(), {"x": x, "a": torch.tensor(3.0)})["y"], 3 * x + 1)
    assert executor.notes == ("`x` is 4 bytes off 16-byte alignment: copied",), executor.notes


def a_tensor_that_its_memory_does_not_say_is_copied_and_noted() -> None:
    """A negated view, and zeros without memory: a kernel reads the memory at an address."""
    executor, memory, a = MockedExecutor(), torch.randn(SIZE), torch.tensor(3.0)
    assert torch.equal(executor.run(program(), {"x": memory, "a": torch._neg_view(a)})["y"], -3 * memory + 1)
    for x in (torch._neg_view(memory), torch._efficientzerotensor((SIZE,))):
        assert torch.equal(executor.run(program(), {"x": x, "a": a})["y"], 3 * x.clone() + 1)
        assert executor.notes == ("`x` is not in memory as it is read: copied",), executor.notes
    beside = executor.prepare(program(), {"a": a})
    session = executor.prepare(program(), {"a": torch._neg_view(a)}, beside)
    assert torch.equal(session.run({"x": memory})["y"], -3 * memory + 1)


def a_kernel_is_loaded_once() -> None:
    """However many executors launch it; it is unloaded when nobody holds it any more."""
    gc.collect()  # what other scenarios have left
    builds = 0

    class Counting(MockedExecutor):
        def _images_of(self, kernel: CudaKernel) -> Iterator[bytes]:
            nonlocal builds
            builds += 1
            return super()._images_of(kernel)

    arrays, kept = {"x": torch.randn(SIZE), "a": torch.tensor(3.0)}, [Counting(), Counting()]
    for executor in (*kept, *kept, *kept):
        executor.run(program(), arrays)
    assert builds == 1, builds
    kept.clear()
    del executor
    gc.collect()
    Counting().run(program(), arrays)
    assert builds == 2, builds


def a_size_is_passed_behind_the_buffers() -> None:
    """One text, loaded once, at several numbers of rows; the guard of the last block reads the size."""
    builds = 0

    class Counting(MockedExecutor):
        def _images_of(self, kernel: CudaKernel) -> Iterator[bytes]:
            nonlocal builds
            builds += 1
            return super()._images_of(kernel)

    (unit,) = read_program(ROWS, sizes=None)[1]
    executor, kept, made = Counting(), [], materialise(unit, target("h200"))
    for rows in (1, 4, 31, 200, 31):
        kernel = print_cuda(made, sizes={"s": rows})
        x, y = (Buffer(name, "f32", (rows, 64)) for name in "xy")
        values = torch.randn(rows, 64)
        kept.append(executor.prepare(Program((kernel,), (x,), (y,)), {}))
        assert torch.equal(kept[-1].run({"x": values})["y"], values + values), rows
    assert builds == 1, builds
    kept.clear()
    gc.collect()


def large_shared_memory_is_asked_for() -> None:
    """The mock, like a driver, refuses a launch with more than 48 KB that has not been announced."""
    x = torch.randn(SIZE)
    y = MockedExecutor().run(program(smem=96 << 10), {"x": x, "a": torch.tensor(3.0)})["y"]
    assert torch.allclose(y, 3 * x + 1)


def too_much_shared_memory_is_refused() -> None:
    try:
        MockedExecutor().run(program(smem=228 << 10), {"x": torch.randn(SIZE), "a": torch.tensor(3.0)})
    except DeviceError as error:
        assert "needs 233472 bytes of shared memory per block; dplc mock GPU has 232448" in str(error), error
    else:
        raise AssertionError("not refused")


def boxes_are_found_through_tensor_maps() -> None:
    """A kernel that TMA feeds: the map is encoded by the driver and passed in the parameters."""
    (unit,) = read_program(TRANSPOSE)[1]
    kernel = print_cuda(materialise(unit, target("h200")))
    assert [param.role for param in kernel.params] == ["in", "out", "tensor_map"]
    x, y = Buffer("x", "f32", (30, 36)), Buffer("y", "f32", (32, 32))
    values = torch.randn(30, 36)
    made = MockedExecutor().run(Program((kernel,), (x,), (y,), bindings=(("x", "y", "x"),)), {"x": values})["y"]
    whole = torch.zeros(32, 32)
    whole[:, :30] = values[:, :32].T
    assert torch.equal(made, whole)


def an_output_takes_the_memory_of_an_input() -> None:
    executor, x, a = MockedExecutor(), torch.randn(SIZE), torch.tensor(3.0)
    session = executor.prepare(replace(program(), aliases={"y": "x"}), {"a": a})
    want, made = 3 * x + 1, session.run({"x": x})["y"]
    assert made.data_ptr() == x.data_ptr() and torch.allclose(x, want)
    assert torch.allclose(session.run({"x": made})["y"], 3 * want + 1)
    array = np.ones(SIZE, np.float32)
    assert np.allclose(executor.run(replace(program(), aliases={"y": "x"}), {"x": array, "a": np.float32(2)})["y"], 3)
    assert np.all(array == 1)


def constants_are_placed_once_for_sessions_beside_each_other() -> None:
    executor, a = MockedExecutor(), torch.randn(2)[1:].reshape(())  # misaligned: the first session makes a copy
    first = executor.prepare(program(), {"a": a})
    second = executor.prepare(program(), {"a": a}, beside=first)
    assert second._constants["a"].data_ptr() == first._constants["a"].data_ptr() != a.data_ptr()
