"""Scenarios of several GPUs, threads, captures and faults on the mock driver; run_on_mock.py runs them."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from graphs_on_mock import GLOBAL, MOCK, A, OnStream, counted, prepared, refused, right, two_layers
from on_mock_driver import SIZE, MockedExecutor, program

from dplc.codegen.arrays import LaunchError
from dplc.codegen.launch import DeviceError
from dplc.ir.diagnostic import DplcError


def told(run: Callable[[], Any]) -> str:
    """The error that a call ends with, as a user reads it."""
    try:
        run()
    except DplcError as error:
        return error.render()
    raise AssertionError("not refused")


def two_gpus_share_nothing() -> None:
    """The mock refuses a kernel or a stream in another device's context."""
    executors = [MockedExecutor(ordinal=ordinal) for ordinal in (0, 1)]
    x = torch.randn(SIZE)
    sessions = [executor.prepare(two_layers(), {"a": A}) for executor in executors]
    for _ in range(3):
        x.normal_()
        assert all(right(session.run({"x": x})["y"], x) for session in sessions)
    first, second = (executor.gpu for executor in executors)
    assert first is not second and first is MockedExecutor(ordinal=0).gpu
    assert MockedExecutor().gpu is first  # who names none gets the first


class OnOther(MockedExecutor):
    """For which every tensor of a name lies on the second GPU."""

    def device_of(self, tensor: Any) -> Any:
        return torch.device("cpu", 1 if getattr(tensor, "far", False) else 0)


def a_tensor_on_another_gpu_is_refused_by_name() -> None:
    x, a = torch.randn(SIZE), torch.tensor(3.0)
    x.far = True  # type: ignore[attr-defined]
    message = told(lambda: OnOther(ordinal=0).run(program(), {"x": x, "a": a}))
    assert "`x` is on cpu:1, but the program runs on GPU 0" in message, message
    assert "all tensors of a call must be on one GPU" in message
    a.far = True  # type: ignore[attr-defined]
    OnOther(ordinal=1).run(program(), {"x": x, "a": a})
    assert issubclass(LaunchError, DplcError)


def a_gpu_that_is_not_there() -> None:
    message = told(lambda: MockedExecutor(ordinal=2))
    assert "there is no GPU 2: the driver sees 2" in message, message


def nothing_is_loaded_inside_of_a_capture() -> None:
    """It would spoil the capture: refused before the driver is asked, with what to do; then it can be done."""
    executor, x, graph = OnStream(), torch.randn(SIZE), ctypes.c_void_p()
    current, arrays, made = ctypes.c_void_p(executor.current.handle), {"x": x, "a": A}, two_layers()
    assert MOCK.cuStreamBeginCapture_v2(current, GLOBAL) == 0
    with counted(cuModuleLoadDataEx=0):
        message = told(lambda: executor.run(made, arrays))
    assert "kernels cannot be loaded while a stream is captured" in message and "warm_up()" in message, message
    assert MOCK.cuStreamEndCapture(current, ctypes.byref(graph)) == 0
    with counted(cuModuleLoadDataEx=1):
        executor.warm_up(made)
    assert MOCK.cuStreamBeginCapture_v2(current, GLOBAL) == 0
    with counted(cuModuleLoadDataEx=0, cuLaunchKernel=2):
        executor.run(made, arrays)
    assert MOCK.cuStreamEndCapture(current, ctypes.byref(graph)) == 0


def kernels_in_a_graph_of_the_users_stay() -> None:
    executor, graph = OnStream(), ctypes.c_void_p()
    stream, current = executor.current, ctypes.c_void_p(executor.current.handle)
    session = prepared(executor)
    assert MOCK.cuStreamBeginCapture_v2(current, GLOBAL) == 0
    session.run({"x": torch.randn(SIZE)})
    assert MOCK.cuStreamEndCapture(current, ctypes.byref(graph)) == 0
    gpu = executor.gpu
    with counted(cuModuleUnload=0):
        del session, executor
        gc.collect()
    with gpu.context(), counted(cuModuleUnload=1):  # what this scenario alone has kept
        gpu._kept.clear()
        gc.collect()
    assert MOCK.cuGraphDestroy(graph) == 0
    del stream


def threads_do_not_meet() -> None:
    """Each on a stream of its own, capturing and replaying; and several on one executor."""

    streams = [OnStream() for _ in range(8)]

    def alone(seed: int) -> bool:
        generator = torch.Generator().manual_seed(seed)
        session = prepared(streams[seed])
        x = torch.randn(SIZE, generator=generator)
        return all(right(session.run({"x": x.normal_(generator=generator)})["y"], x) for _ in range(5))

    shared, made = MockedExecutor(), two_layers()

    def together(seed: int) -> bool:
        x = torch.randn(SIZE, generator=torch.Generator().manual_seed(seed))
        return all(right(shared.run(made, {"x": x, "a": A})["y"], x) for _ in range(5))

    with ThreadPoolExecutor(4) as pool:
        for work in (alone, together):
            assert all(pool.map(work, range(8))), work


def debugging_names_the_kernel_of_a_fault() -> None:
    os.environ["DPLC_DEBUG"] = "1"
    try:
        executor, x = MockedExecutor(), torch.randn(SIZE)
        assert not executor.graphs
        with counted(cuCtxSynchronize=2):
            assert right(executor.run(two_layers(), {"x": x, "a": A})["y"], x)
        with refused(b"cuCtxSynchronize", after=1):
            message = told(lambda: executor.run(two_layers(), {"x": x, "a": A}))
    finally:
        del os.environ["DPLC_DEBUG"]
    assert "kernel `axpy` failed" in message, message
    with counted(cuCtxSynchronize=0):
        MockedExecutor().run(two_layers(), {"x": x, "a": A})


def an_image_that_the_driver_does_not_take_is_built_by_another_compiler() -> None:
    class Several(MockedExecutor):
        def _images_of(self, kernel: Any) -> Any:
            yield b"not an image"
            yield from super()._images_of(kernel)

    class Stale(MockedExecutor):
        def _images_of(self, kernel: Any) -> Any:
            yield b"not an image"

    arrays = {"x": torch.randn(SIZE), "a": A}
    message = told(lambda: Stale().run(program(), arrays))
    assert "kernel `axpy` cannot be loaded" in message and "this driver is for CUDA" in message, message
    assert torch.allclose(Several().run(program(), arrays)["y"], 3 * arrays["x"] + 1)
    assert isinstance(DeviceError("x"), DplcError)
