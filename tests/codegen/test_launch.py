"""Programs on the executors that need no GPU, and what is said where there is none."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
import torch

from dplc.codegen.arrays import LaunchError
from dplc.codegen.kernel import Buffer, CudaKernel, KernelParam, Program
from dplc.codegen.launch import CudaExecutor, DeviceError, EmulatorExecutor, executor

X = Buffer("x", "f32", (8, 256))
W = Buffer("w", "f32", (256,))
Y = Buffer("y", "f32", (8, 256))
H = Buffer("h", "f32", (8, 256))


@pytest.fixture
def twice(rms_norm: CudaKernel) -> Program:
    """Two layers of one kernel through a temporary."""
    return Program((rms_norm, rms_norm), (X,), (Y,), (W,), (H,), (("x", "w", "h"), ("h", "w", "y")))


def reference(x: npt.NDArray[np.float32], w: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    value = x.astype(np.float64)
    for _ in range(2):
        value = value / np.sqrt((value**2).mean(axis=1, keepdims=True) + 1e-6) * w
    return value


def arrays() -> dict[str, npt.NDArray[np.float32]]:
    rng = np.random.default_rng(0)
    return {name: rng.uniform(-1, 1, shape).astype(np.float32) for name, shape in (("x", (8, 256)), ("w", (256,)))}


def test_numpy_in_numpy_out(twice: Program) -> None:
    given = arrays()
    runner = EmulatorExecutor()
    got = runner.run(twice, given)
    assert list(got) == ["y"] and isinstance(got["y"], np.ndarray)
    np.testing.assert_allclose(got["y"], reference(given["x"], given["w"]), rtol=1e-5, atol=1e-6)
    assert runner.notes == ()


def test_torch_in_torch_out(twice: Program) -> None:
    given = arrays()
    got = EmulatorExecutor().run(twice, {name: torch.from_numpy(value) for name, value in given.items()})
    assert isinstance(got["y"], torch.Tensor)
    np.testing.assert_allclose(got["y"].numpy(), reference(given["x"], given["w"]), rtol=1e-5, atol=1e-6)


def test_torch_out_where_the_weights_are_torch(twice: Program) -> None:
    """Inputs as numpy, weights as tensors: what comes out is a tensor; with neither it is an array."""
    given = arrays()
    weights = {"w": torch.from_numpy(given["w"])}
    got = EmulatorExecutor().prepare(twice, weights).run({"x": given["x"]})["y"]
    assert isinstance(got, torch.Tensor)
    got = EmulatorExecutor().prepare(twice, {"w": given["w"]}).run({"x": given["x"]})["y"]
    assert isinstance(got, np.ndarray)


def test_bf16_tensors_keep_their_bits() -> None:
    params = (KernelParam("x", "bf16", (32,)), KernelParam("y", "bf16", (32,), "out"))
    declarations = ", ".join(param.declaration for param in params)
    text = f'extern "C" __global__ void copy({declarations}) {{ stg(y + threadIdx.x, ldg(x + threadIdx.x)); }}'
    program = Program((CudaKernel("copy", text, (1, 1, 1), 32, 0, params),), params[:1], params[1:])
    x = torch.randn(32, dtype=torch.bfloat16)
    got = EmulatorExecutor().run(program, {"x": x})["y"]
    assert got.dtype == torch.bfloat16 and torch.equal(got, x)


def test_arrays_a_gpu_could_not_use_in_place_are_noted(twice: Program) -> None:
    given = arrays()
    shifted = np.empty(8 * 256 + 64, np.float32)
    start = (-shifted.ctypes.data // 4) % 4 + 1  # one element past a 16-byte boundary
    x = shifted[start : start + 8 * 256].reshape(8, 256)
    x[...] = given["x"]
    runner = EmulatorExecutor()
    got = runner.run(twice, {"x": x, "w": given["w"]})
    assert runner.notes == ("`x` is 4 bytes off 16-byte alignment: copied",)
    transposed = np.asfortranarray(given["x"])
    again = runner.run(twice, {"x": transposed, "w": given["w"]})
    assert runner.notes == ("`x` is not contiguous: copied",)
    assert np.array_equal(got["y"], again["y"])


def test_inputs_are_left_alone(twice: Program) -> None:
    given = arrays()
    before = {name: value.copy() for name, value in given.items()}
    EmulatorExecutor().run(twice, given)
    assert all(np.array_equal(given[name], before[name]) for name in given)


def test_arrays_that_do_not_fit_are_refused(twice: Program) -> None:
    given = arrays()
    runner = EmulatorExecutor()
    with pytest.raises(LaunchError, match="no array given for `w`"):
        runner.run(twice, {"x": given["x"]})
    with pytest.raises(LaunchError, match=r"`x` is f32\[8, 256\], but the array given is f32\[256, 8\]"):
        runner.run(twice, {**given, "x": given["x"].reshape(256, 8)})
    with pytest.raises(LaunchError, match=r"`w` is f32\[256\], but the array given is i64\[256\]"):
        runner.run(twice, {**given, "w": torch.ones(256, dtype=torch.int64)})


def test_an_output_nobody_writes_is_nan(rms_norm: CudaKernel) -> None:
    half = replace(rms_norm, grid=(4, 1, 1))
    got = EmulatorExecutor().run(Program((half,), (X,), (Y,), (W,)), arrays())["y"]
    assert not np.isnan(got[:4]).any() and np.isnan(got[4:]).all()


def in_place() -> Program:
    """y takes the memory of x, of which it changes the first half."""
    params = (KernelParam("x", "f32", (64,)), KernelParam("a", "f32", (1,)), KernelParam("y", "f32", (64,), "out"))
    declarations = ", ".join(param.declaration for param in params)
    text = f'extern "C" __global__ void half({declarations}) {{ stg(y + threadIdx.x, ldg(x + threadIdx.x) + ldg(a)); }}'
    kernel = CudaKernel("half", text, (1, 1, 1), 32, 0, params)
    return Program((kernel,), params[:1], params[2:], params[1:2], aliases={"y": "x"})


@pytest.mark.parametrize("arena", [False, True])
@pytest.mark.parametrize("checked", [False, True])
def test_an_output_takes_the_memory_of_an_input(arena: bool, checked: bool) -> None:
    x = torch.arange(64.0)
    session = EmulatorExecutor(arena=arena, checked=checked).prepare(in_place(), {"a": torch.tensor([1.0])})
    want = torch.cat([x[:32] + 1, x[32:]])  # what nobody writes is what was there
    assert torch.equal(session.run({"x": x})["y"], want)
    assert torch.equal(session.run({"x": want})["y"], torch.cat([x[:32] + 2, x[32:]]))


def test_constants_are_placed_once_for_sessions_beside_each_other(twice: Program) -> None:
    given = arrays()
    runner = EmulatorExecutor()
    first = runner.prepare(twice, given)
    second = runner.prepare(twice, given, beside=first)
    other = runner.prepare(twice, {"w": given["w"] * 2}, beside=first)
    assert second._constants["w"] is first._constants["w"] is not other._constants["w"]
    results = [session.run({"x": given["x"]})["y"] for session in (first, second, other)]
    assert np.array_equal(results[0], results[1]) and not np.array_equal(results[0], results[2])


def test_executors_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert executor("emulator").device == "emulator"
    with pytest.raises(DeviceError, match="no device `tpu`: choose emulator, cuda or cuda:N"):
        executor("tpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_no_gpu_is_explained() -> None:
    with pytest.raises(DeviceError, match="no CUDA device here\n  help: run with --device emulator"):
        CudaExecutor()


def test_no_pycuda_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycuda.driver", None)
    with pytest.raises(
        DeviceError, match=r"needs pycuda.driver, which cannot be imported here\n.*\n  help: pip install"
    ):
        CudaExecutor("cpu")
