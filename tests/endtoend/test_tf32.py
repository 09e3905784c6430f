"""TF32: torch's settings decide, `--tf32` overrides them, and results have the error that TF32 explains, no more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from command_line import Command
from drawing import draws
from hypothesis import given, settings, strategies as st
from torch.nn import functional

import dplc as package
from dplc.codegen.target import target
from dplc.engine.capture.capture import capture
from dplc.engine.compiler import compiler_with
from dplc.engine.ruleset import toolchain
from dplc.engine.run.calls import judge_program, run_eager, run_reference
from dplc.ir.diagnostic import DplcError, UsageError
from dplc.ir.interp.torch import TF32_ROUNDOFF, in_tf32
from dplc.ir.node import nodes
from dplc.ir.text.programs import print_program, read_program
from dplc.ir.tile import Mma

Kernel = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
CONVOLUTION, PRODUCT = "convolution", "product"
PROGRAMS: dict[str, tuple[Kernel, tuple[int, ...], tuple[int, ...]]] = {
    CONVOLUTION: (lambda x, w: functional.conv2d(x, w), (2, 16, 18, 18), (32, 16, 3, 3)),
    PRODUCT: (lambda x, w: x @ w, (96, 64), (64, 64)),
}
backends = torch.backends


def legacy(convolutions: bool, products: bool) -> None:
    backends.cudnn.allow_tf32, backends.cuda.matmul.allow_tf32 = convolutions, products


def by_precision(convolutions: str, products: str) -> None:
    backends.cudnn.conv.fp32_precision, backends.cuda.matmul.fp32_precision = convolutions, products


# what a user sets -> whether convolutions and products use tensor cores
SETTINGS: dict[str, tuple[Callable[[], object], bool, bool]] = {
    "defaults": (lambda: None, True, False),
    "no convolutions": (lambda: legacy(False, False), False, False),
    "products": (lambda: legacy(True, True), True, True),
    "products alone": (lambda: by_precision("ieee", "tf32"), False, True),
    "convolutions alone": (lambda: by_precision("tf32", "ieee"), True, False),
    "high": (lambda: torch.set_float32_matmul_precision("high"), True, True),
    "highest": (lambda: torch.set_float32_matmul_precision("highest"), True, False),
    "without cuDNN": (lambda: setattr(backends.cudnn, "enabled", False), False, False),
}


@pytest.fixture(autouse=True)
def torch_settings() -> Iterator[None]:
    """The settings that torch begins with."""
    kept = backends.cudnn.allow_tf32
    legacy(True, False)
    yield
    backends.cudnn.enabled = True
    torch.set_float32_matmul_precision("highest")
    legacy(kept, False)


def operands(kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    dice = torch.Generator().manual_seed(1)
    _, left, right = PROGRAMS[kind]
    return torch.randn(left, generator=dice), torch.randn(right, generator=dice)


def uses_tensor_cores(kind: str, **options: object) -> bool:
    inputs = operands(kind)
    made = package.compile(PROGRAMS[kind][0], inputs, target="h100", device="emulator", db=False, **options)
    return any(True for kernel in made.compilation.tile for _ in nodes(kernel, Mma))


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_torch_choose_the_precision(name: str) -> None:
    change, convolutions, products = SETTINGS[name]
    change()
    assert (uses_tensor_cores(CONVOLUTION), uses_tensor_cores(PRODUCT)) == (convolutions, products)


def test_tensors_on_the_cpu_are_multiplied_as_the_cpu_does() -> None:
    """A program that is compiled for no GPU in particular is as exact as eager on the CPU."""
    legacy(True, True)
    inputs = operands(CONVOLUTION)
    made = package.compile(PROGRAMS[CONVOLUTION][0], inputs, db=False)
    assert {kernel.precision for kernel in made.compilation.kernels} == {"f32"}
    made = package.compile(PROGRAMS[CONVOLUTION][0], inputs, db=False, tf32="on")
    assert {kernel.precision for kernel in made.compilation.kernels} == {"tf32"}


@pytest.mark.parametrize("kind", PROGRAMS)
def test_option_overrides_settings_of_torch(kind: str) -> None:
    legacy(False, False)
    assert uses_tensor_cores(kind, tf32="on")
    legacy(True, True)
    assert not uses_tensor_cores(kind, tf32="off")
    assert not uses_tensor_cores(kind, exact=True)
    assert not uses_tensor_cores(kind, exact=True, tf32="on")


def test_rule_file_wins_over_settings_of_torch(tmp_path: Path) -> None:
    rules = tmp_path / "mine.rw"
    rules.write_text("override number tf32_products = 1\n")
    assert uses_tensor_cores(PRODUCT, rules=str(rules))
    assert not uses_tensor_cores(PRODUCT, rules=str(rules), tf32="off")


def test_keys_depend_on_the_precision() -> None:
    assert toolchain() is toolchain(tf32="auto")
    assert len({toolchain(tf32=choice).rules.digest for choice in ("auto", "on", "off")}) == 3
    plain, rounded = (
        compiler_with(target("h100"), tf32=choice).cut(capture(PROGRAMS[CONVOLUTION][0], operands(CONVOLUTION)))[1]
        for choice in ("off", "on")
    )
    assert [kernel.precision for kernel in (*plain.kernels, *rounded.kernels)] == ["f32", "tf32"]
    assert plain.kernels != rounded.kernels


def test_unknown_choice_lists_the_choices(dplc: Command) -> None:
    for refused in (lambda: package.compile(torch.relu, (torch.ones(2),), tf32="fast"), lambda: toolchain(tf32="fast")):
        with pytest.raises(UsageError) as error:
            refused()
        assert "auto, on, off" in str(error.value.render())
    dplc("compile --tf32 fast -c 'torch.relu(torch.randn(4))'", code=2).shows("TF32 choices are auto, on, off")
    with pytest.raises(UsageError, match="auto, on or off"):
        package.compile(torch.relu, (torch.ones(2),), tf32=True)  # type: ignore[arg-type]


def test_verbose_names_the_precision(dplc: Command) -> None:
    text = "F.conv2d(torch.randn(1, 4, 8, 8), torch.randn(4, 4, 3, 3)).flatten(1) @ torch.randn(144, 8)"
    dplc(f"compile -v --target h100 -c '{text}'").shows("convolutions in TF32, products in f32 (--tf32)")
    dplc(f"compile -v --tf32 off --target h100 -c '{text}'").shows("convolutions in f32, products in f32 (--tf32)")
    assert "TF32" not in dplc("compile -v --target h100 -c 'torch.relu(torch.randn(4))'").err


def test_precision_of_a_kernel_is_part_of_its_text() -> None:
    made = package.compile(PROGRAMS[CONVOLUTION][0], operands(CONVOLUTION), target="h100", device="emulator", db=False)
    for level in ("loop", "tile", "kernel"):
        text = made.ir(level)
        assert " in tf32:" in text
        assert print_program(read_program(text)[1], level) == text
    for wrong in ("kernel f(x: f32[4]) -> y: f32[4] in f16:", "graph f(x: f32[4]) -> y: f32[4] in tf32:"):
        with pytest.raises(DplcError, match="is no precision"):
            read_program(f"{wrong}\n    pass\n")


# ---- errors: operands are rounded to the nearest of TF32, and nothing else is


@given(st.data())
@settings(max_examples=draws(6))
def test_result_is_that_of_operands_rounded_to_nearest(data: st.DataObject) -> None:
    dice = torch.Generator().manual_seed(data.draw(st.integers(0, 99), "seed"))
    draw = lambda *values: data.draw(st.sampled_from(values))  # noqa: E731
    channels, filters, window = draw(8, 16, 40), draw(16, 33, 64), draw(1, 3)
    if draw(True, False):
        function: Kernel = lambda x, w: functional.conv2d(x, w, stride=1, padding=window // 2)  # noqa: E731
        shapes = (2, channels, 9, draw(8, 13)), (filters, channels, window, window)
    else:
        function, shapes = (lambda x, w: x @ w), ((draw(32, 70), channels * 4), (channels * 4, filters))
    x, w = (torch.randn(shape, generator=dice) for shape in shapes)
    made = package.compile(function, (x, w), target="h100", device="emulator", db=False, tf32="on")
    got, exact = made(x, w).double(), function(x.double(), w.double())
    bound = (2 * TF32_ROUNDOFF + TF32_ROUNDOFF**2) * function(x.double().abs(), w.double().abs())
    assert ((got - exact).abs() <= bound * (1 + 1e-3)).all()
    if any(True for kernel in made.compilation.tile for _ in nodes(kernel, Mma)):
        nearest = function(in_tf32(x).double(), in_tf32(w).double())
        assert (got - nearest).abs().max() <= 1e-5 * nearest.abs().max()


def test_rounding_keeps_what_is_not_finite() -> None:
    x = torch.tensor([1 + 2.0**-11, -1 - 2.0**-11, 1 + 2.0**-12, float("inf"), float("-inf"), 3e38, 0.0])
    assert in_tf32(x).tolist()[:5] == [1 + 2.0**-10, -1 - 2.0**-10, 1.0, float("inf"), float("-inf")]
    assert in_tf32(torch.tensor([float("nan")])).isnan().all()


@pytest.mark.parametrize("kind", PROGRAMS)
def test_judge_accepts_the_error_of_tf32_and_no_more(kind: str) -> None:
    function, inputs = PROGRAMS[kind][0], operands(kind)
    captured = capture(function, inputs)
    tensors = dict(zip(captured.inputs, inputs, strict=True))
    rounded, plain = (compiler_with(target("h100"), tf32=choice).target for choice in ("on", "off"))
    exact = run_reference(captured, tensors)[0].float()
    nearest = function(*(in_tf32(x).double() for x in inputs)).float()
    halves = function(*(x.bfloat16().double() for x in inputs)).float()
    eager = run_eager(captured, tensors, plain)
    for result, machine, accepted in (
        (exact, rounded, True), (nearest, rounded, True), (halves, rounded, False),
        (exact, plain, True), (nearest, plain, False),
    ):  # fmt: skip
        assert judge_program(captured, tensors, [result], eager, machine).ok is accepted
