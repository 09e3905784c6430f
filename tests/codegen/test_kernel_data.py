"""A launch plan that cannot be right is refused when it is made."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dplc.codegen.kernel import Buffer, CudaKernel, KernelParam, Program
from dplc.ir.diagnostic import DplcError

X = Buffer("x", "f32", (8, 256))
W = Buffer("w", "f32", (256,))
Y = Buffer("y", "f32", (8, 256))


def test_parameters_as_kernel_text() -> None:
    assert KernelParam("x", "f32", (4,)).declaration == "const float* __restrict__ x"
    assert KernelParam("ids", "i64", (4,)).declaration == "const long long* __restrict__ ids"
    assert KernelParam("mask", "b8", (4,), "out").declaration == "bool* __restrict__ mask"


def test_sizes() -> None:
    assert (X.size, X.nbytes) == (2048, 8192)
    assert (Buffer("s", "bf16", ()).size, Buffer("s", "bf16", ()).nbytes) == (1, 2)
    assert Buffer("e", "i64", (0, 3)).nbytes == 0


def test_a_program_lists_its_launches(rms_norm: CudaKernel) -> None:
    program = Program((rms_norm,), (X,), (Y,), (W,))
    assert [launch.buffers for launch in program.launches()] == [("x", "w", "y")]


def test_one_kernel_serves_two_launches(rms_norm: CudaKernel) -> None:
    h = replace(Y, name="h")
    program = Program((rms_norm, rms_norm), (X,), (Y,), (W,), (h,), (("x", "w", "h"), ("h", "w", "y")))
    assert program.distinct_kernels() == (rms_norm,)
    assert [launch.buffers for launch in program.launches()] == [("x", "w", "h"), ("h", "w", "y")]


def test_refusals(rms_norm: CudaKernel) -> None:
    with pytest.raises(ValueError, match="takes `w`, which is not a buffer"):
        Program((rms_norm,), (X,), (Y,))
    with pytest.raises(ValueError, match=r"takes `w` as f32\[256\], but the buffer is f32\[8\]"):
        Program((rms_norm,), (X, replace(W, shape=(8,))), (Y,))
    with pytest.raises(ValueError, match="writes `y`, which is an input or a constant"):
        Program((rms_norm,), (X, W, Y), ())
    with pytest.raises(ValueError, match="declared twice in one program: x"):
        Program((rms_norm,), (X, X, W), (Y,))
    with pytest.raises(ValueError, match="two different kernels of one program are named `rms_norm`"):
        Program((rms_norm, replace(rms_norm, text=rms_norm.text + " ")), (X, W), (Y,))
    one = replace(X, name="one")
    for aliases, said in (
        ({"x": "y"}, "an output and an input are needed"),
        ({"y": "w"}, "an output and an input are needed"),
        ({"y": "one"}, "which is of another dtype or shape"),
    ):
        with pytest.raises(ValueError, match=said):
            Program((rms_norm,), (X, replace(one, shape=(4, 512))), (Y,), (W,), aliases=aliases)
    with pytest.raises(ValueError, match="two outputs take the memory of one input"):
        Program((rms_norm,), (X,), (Y, replace(Y, name="z")), (W,), aliases={"y": "x", "z": "x"})
    with pytest.raises(DplcError, match="2048 threads per block"):
        replace(rms_norm, block=2048)
    with pytest.raises(DplcError, match="70000 blocks in y"):
        replace(rms_norm, grid=(1, 70000, 1))
    with pytest.raises(ValueError, match="dtype `f8`"):
        Buffer("x", "f8", ())  # type: ignore[arg-type]
