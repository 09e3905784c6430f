"""Integers at the edges of their ranges: they wrap around as torch's do, on the emulator, in the meanings, on a GPU."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import dplc
from dplc.codegen.build import assemble, device_text
from dplc.codegen.compiler import find_nvrtc, find_program
from dplc.codegen.emulator.executor import run_kernels
from dplc.codegen.emulator.runtime import DataError
from dplc.codegen.sass import disassemble, find_nvdisasm
from dplc.ir.interp import loop, tensor, tile

DTYPES = {"i32": torch.int32, "i64": torch.int64}
OPS = {
    "arithmetic": ("a + b", "a - b", "a * b", "-a", "a + 1", "a - 1", "a * 3", "1 - a", "a * a", "a + 2**31", "a - 2**62"),
    "quotients": (
        "a // n", "a % n", "torch.fmod(a, n)", "a // -1", "a % -1", "torch.fmod(a, -1)", "a * 3 // 3", "a * 4 % 4",
        "a // 7", "a % 7", "torch.fmod(a, 7)", "a // -7", "a % -7", "torch.fmod(a, -7)", "a * b % 1000",
    ),
    "signs": (
        "a.abs()", "a.abs() < 0", "-a < 0", "torch.sign(a)", "a.relu()", "(a * b).relu()", "(a * b).abs()",
        "torch.sign(a * b)", "(a - b).clamp(-7, 7)", "(a * b).clamp(min=-5)", "torch.maximum(a + 1, b)",
        "torch.minimum(a - 1, b)", "a.neg().neg()",
    ),
    "comparisons": (
        "a + 1 > a", "a - 1 < a", "a - b > 0", "a + b < b", "a * 2 == b * 2", "a * 2 // 2 == a", "a + a != 2 * a",
        "torch.where(a + 1 > a, a, b)", "(a + b >= a) & (b > 0)",
    ),
    "powers and conversions": (
        "a ** 2", "a ** 3", "a.to(torch.int32)", "a.to(torch.int64) * 3", "(a * b).to(torch.int32) + 1", "(a + 1).float()",
        "(a * b).bool()", "(a * b).to(torch.int64) - a", "(a != b) + a",
    ),
}  # fmt: skip
REDUCTIONS = (
    "a.sum(0, dtype=a.dtype)", "a.sum(1)", "a.prod(1, dtype=a.dtype)", "a.cumsum(1, dtype=a.dtype)", "(a + 1).amax(1)",
    "(a * a).amin(0)", "(a + 1).argmax(1)", "a @ b", "(a * b).sum()",
)  # fmt: skip


def edges(dtype: str) -> list[int]:
    """The numbers at which something may go wrong, with their neighbours."""
    info = torch.iinfo(DTYPES[dtype])
    near = {m + d for m in (0, 46341, 2**16, 2**31, 2**32, 2**62, 3037000500) for d in (-1, 0, 1)}
    chosen = near | {-n for n in near} | {info.min, info.min + 1, info.max, info.max - 1, 7, -7, 3, 1000}
    return sorted(n for n in chosen if info.min <= n <= info.max)


def pairs(dtype: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Every edge beside every other."""
    numbers = edges(dtype)
    a, b = zip(*itertools.product(numbers, numbers), strict=True)
    return torch.tensor(a, dtype=DTYPES[dtype]), torch.tensor(b, dtype=DTYPES[dtype])


class Table(nn.Module):
    """Some expressions of a and b; n is b without zeros."""

    def __init__(self, texts: tuple[str, ...]):
        super().__init__()
        self.texts = [compile(text, text, "eval") for text in texts]

    def forward(self, a: torch.Tensor, b: torch.Tensor, n: torch.Tensor) -> list[torch.Tensor]:
        return [eval(text, {"torch": torch}, {"a": a, "b": b, "n": n}) for text in self.texts]


def compare(texts: tuple[str, ...], inputs: tuple[torch.Tensor, ...]) -> None:
    """The emulator, and every meaning on the way, against torch, to the last bit."""
    table = Table(texts)
    compiled = dplc.compile(table, inputs)
    wanted = table(*inputs)
    for text, got, want in zip(texts, compiled(*inputs), wanted, strict=True):
        assert got.dtype == want.dtype
        same(f"{text} on the emulator", got, want)
    for stage, results in meanings(compiled, inputs).items():
        for text, result, want in zip(texts, results, wanted, strict=True):
            same(f"{text} as {stage}", torch.as_tensor(result.copy()).reshape(want.shape).to(want.dtype), want)


def same(what: str, got: torch.Tensor, want: torch.Tensor) -> None:
    wrong = got != want
    assert not wrong.any(), f"{what}: {got[wrong][:4]} for {want[wrong][:4]}"


def meanings(compiled: dplc.Compiled, inputs: tuple[torch.Tensor, ...]) -> dict[str, list[np.ndarray]]:
    """The results by each IR's own meaning."""
    compilation = compiled.compilation
    arrays = {
        p.name: (t.float() if t.is_floating_point() else t).numpy()
        for p, t in zip(compilation.captured.graph.ins, inputs, strict=True)
    }
    found = {"tensor": tensor.run(compilation.tensor, arrays)}
    stages = {
        "loop": (loop.run, compilation.plan.kernels),
        "tile": (tile.run, compilation.tile),
        "kernel": (run_kernels, compilation.kernels),
    }
    for stage, (run, kernels) in stages.items():
        memory = run(kernels, arrays)
        found[stage] = [memory[param.name] for param in compilation.plan.outputs]
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("group", OPS)
@pytest.mark.sampled(3)
def test_integers_wrap_as_torch_does(group: str, dtype: str) -> None:
    a, b = pairs(dtype)
    compare(OPS[group], (a, b, torch.where(b == 0, 5, b)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_and_products_wrap(dtype: str) -> None:
    numbers = torch.tensor(edges(dtype), dtype=DTYPES[dtype])
    a = numbers[torch.arange(24 * 24).reshape(24, 24) * 7 % len(numbers)]
    compare(REDUCTIONS, (a, a.T.contiguous() + 3, torch.ones(())))


PLACES = (
    "t[(a * BIG) // SOME % 10]", "t.flip(0)[(a + BIG) * 3 % 10]", "t.view(2, 5)[a * b % 2, (a - b) % 5]",
    "torch.take(t, (a * BIG // 7 % 10).long())", "t[2:][(a * b + BIG) % 8]",
    "torch.arange(5, dtype=a.dtype)[a % 5] * BIG > 0", "(torch.arange(4, dtype=a.dtype) * -BIG > 0)[a % 4]", "torch.arange(4, dtype=a.dtype)[a % 4, None] + BIG + BIG > b",
)  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_places_wrap_before_they_are_places(dtype: str) -> None:
    """Index arithmetic on data is a value's until it is looked at whether the place exists."""
    numbers = torch.tensor(edges(dtype), dtype=DTYPES[dtype])
    a, b, t = numbers, numbers.flip(0), torch.arange(10.0)
    big = 2**62 if dtype == "i64" else 2**30
    for text in PLACES:
        code = compile(text.replace("BIG", str(big)).replace("SOME", str(big // 4)), text, "eval")

        def picked(a: torch.Tensor, b: torch.Tensor, t: torch.Tensor, code: Any = code) -> Any:
            return eval(code, {"torch": torch}, {"a": a, "b": b, "t": t})

        assert torch.equal(dplc.compile(picked, (a, b, t))(a, b, t), picked(a, b, t)), text


FLOATS = (
    0.0, 0.5, -0.9, 1e9, 2147483520.0, 2147483648.0, -2147483648.0, -2147483904.0, 3e9, -3e9, 9.2e18,
    9223372036854775808.0, -9223372036854775808.0, 1e20, -1e20, float("inf"), -float("inf"), float("nan"),
)  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_float_without_an_integer_becomes_the_least_one(dtype: torch.dtype) -> None:
    """Torch leaves it to the device: x86 says the least integer, NVIDIA the nearest. Ours is the same everywhere."""
    x = torch.tensor(FLOATS).to(dtype)
    texts = ("a.to(torch.int32)", "a.to(torch.int64)", "a.to(torch.int32) - 1", "a.trunc().to(torch.int64) + 1")
    compare(texts, (x, x, x))


needs_assembler = pytest.mark.skipif(
    (find_program("nvcc") is None and find_nvrtc() is None) or find_nvdisasm() is None,
    reason="needs NVRTC or nvcc, and nvdisasm",
)


@needs_assembler
def test_machine_code_does_not_assume_that_nothing_overflows() -> None:
    """`a + 1 > a` was the constant true: nothing was read."""
    kernels = {}
    for dtype, text in itertools.product(
        DTYPES, ("a + 1 > a", "a * 3 // 3 == a", "(a * a).relu() == a * a", "a.abs() >= 0")
    ):
        a, b = pairs(dtype)
        (kernel,) = dplc.compile(Table((text,)), (a, b, b), target="h200").program.kernels
        name = f"kernel_{len(kernels)}"
        kernels[name] = text, replace(kernel, name=name, text=kernel.text.replace(kernel.name, name))
    listings = disassemble(assemble(device_text([kernel for _, kernel in kernels.values()]), "sm_90a").cubin)
    for name, (text, _) in kernels.items():
        assert any(op.startswith("LDG") for op in listings[name].opcodes), (text, listings[name].opcodes)


DIVISIONS = (
    "a // b",
    "a % b",
    "torch.fmod(a, b)",
    "(a // b).sum()",
    "(a % b).sum(0)",
    "torch.fmod(a, b).amax(1)",
    "(a // b).cumsum(1)",
)


@pytest.mark.parametrize("shape", [(3, 5), (7, 129), (2, 4099)])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.sampled(2)
def test_threads_that_divide_nothing_divide_by_nothing(dtype: str, shape: tuple[int, int]) -> None:
    """Beyond a ragged edge there are zeros: no thread divides by them."""
    a = torch.arange(shape[0] * shape[1], dtype=DTYPES[dtype]).reshape(shape)
    table = Table(DIVISIONS)
    b = a % 11 + 1
    for got, want in zip(dplc.compile(table, (a, b, b))(a, b, b), table(a, b, b), strict=True):
        assert torch.equal(got, want)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("text", DIVISIONS[:3])
def test_a_division_by_zero_is_the_users_error(text: str, dtype: str) -> None:
    a, b = torch.tensor([5, 7], dtype=DTYPES[dtype]), torch.tensor([2, 3], dtype=DTYPES[dtype])
    compiled = dplc.compile(Table((text,)), (a, b, b))
    with pytest.raises(DataError, match="integer division by zero") as caught:
        compiled(a, torch.tensor([2, 0], dtype=DTYPES[dtype]), b)
    assert caught.value.exit_code == 1


def drawn(dice: random.Random, depth: int) -> str:
    """A random integer expression of a and b."""
    if depth == 0:
        return dice.choice("ab")
    x, y = drawn(dice, depth - 1), drawn(dice, dice.randrange(depth))
    c = dice.choice((1, 2, 3, -1, -2, 7, 1000, 46341, 2**31 - 1))
    forms = (
        "({x} + {y})", "({x} - {y})", "({x} * {y})", "(-{x})", "({x}).abs()", "torch.sign({x})", "({x}).relu()",
        "({x} + {c})", "({c} - {x})", "({x} * {c})", "({x} // {c})", "({x} % {c})", "torch.fmod({x}, {c})",
        "({x} ** 2)", "({x}).clamp(-{k}, {k})", "torch.maximum({x}, {y})", "torch.minimum({x}, {y})",
        "torch.where({x} > {y}, {x}, {y})", "torch.where({x} + {c} <= {x}, {y}, {x})", "({x} % n)", "({x} // n)",
    )  # fmt: skip
    return dice.choice(forms).format(x=x, y=y, c=c, k=abs(c))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 25))])
def test_random_expressions(seed: int) -> None:
    dice = random.Random(seed)
    dtype = ("i32", "i64")[seed % 2]
    a, b = pairs(dtype)
    compare(tuple(drawn(dice, dice.randint(2, 4)) for _ in range(20)), (a, b, torch.where(b == 0, 5, b)))


def test_an_index_expression_that_leaves_its_range_is_a_value_and_wraps() -> None:
    """3 * -2**62 is 2**62 in i64: a comparison of it is not settled by the range that its factors say."""

    def turned(a: torch.Tensor) -> torch.Tensor:
        return torch.where(torch.arange(4) * -(2**62) > 0, a, -a)

    a = torch.arange(1.0, 5.0)
    assert torch.equal(dplc.compile(turned, (a,))(a), turned(a))
