"""Integers at the edges of their ranges: they wrap around as torch's do, on the emulator, in the meanings, on a GPU."""

from __future__ import annotations

import contextlib
import itertools
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from drawing import draws
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
    compiled, wanted = emulated(texts, inputs)
    for stage, results in meanings(compiled, inputs).items():
        for text, result, want in zip(texts, results, wanted, strict=True):
            same(f"{text} as {stage}", torch.as_tensor(result.copy()).reshape(want.shape).to(want.dtype), want)


def emulated(texts: tuple[str, ...], inputs: tuple[torch.Tensor, ...]) -> tuple[dplc.Compiled, list[torch.Tensor]]:
    """The emulator against torch, to the last bit."""
    table = Table(texts)
    compiled = dplc.compile(table, inputs)
    wanted = table(*inputs)
    for text, got, want in zip(texts, compiled(*inputs), wanted, strict=True):
        assert got.dtype == want.dtype
        same(f"{text} on the emulator", got, want)
    return compiled, wanted


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


FORMS = (
    "({x} + {y})", "({x} - {y})", "({x} * {y})", "(-{x})", "({x}).abs()", "torch.sign({x})", "({x}).relu()",
    "({x} + {c})", "({c} - {x})", "({x} * {c})", "({x} // {c})", "({x} % {c})", "torch.fmod({x}, {c})",
    "({x} ** 2)", "({x}).clamp(-{k}, {k})", "torch.maximum({x}, {y})", "torch.minimum({x}, {y})",
    "torch.where({x} > {y}, {x}, {y})", "torch.where({x} + {c} <= {x}, {y}, {x})", "({x} % n)", "({x} // n)",
)  # fmt: skip
NUMBERS = (1, 2, 3, -1, -2, 7, 1000, 46341, 2**31 - 1)


def drawn(
    dice: random.Random, depth: int, leaves: Any = "ab", numbers: Any = NUMBERS, forms: tuple[str, ...] = FORMS
) -> str:
    """A random integer expression."""
    if depth == 0:
        return dice.choice(leaves)
    x, y = (drawn(dice, d, leaves, numbers, forms) for d in (depth - 1, dice.randrange(depth)))
    c = dice.choice(numbers)
    return dice.choice(forms).format(x=x, y=y, c=c, k=abs(eval(str(c))))


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


# Positions, by the names of `Table`: a is a mask, b are indices, n are floats.
POSITIONS = """
torch.arange(6); torch.where(a, torch.arange(6), 1); torch.arange(6).masked_fill(a, 5); n.argmax(1); n.argmin(1)
n.max(1).indices; n.min(1).indices; n.sort(0).indices[:, 0]; n.argsort(0)[:, 1]; n.topk(2, 1).indices[:, 1]
torch.searchsorted(torch.arange(-1.0, 2.0, 0.3), n[:, 0].clone()); torch.bucketize(n[:, 0].clone(), torch.arange(3.0))
a.cumsum(0); (n > 0).sum(1); a.long(); n.cummax(0).indices[:, 1]; torch.arange(9)[b]; torch.arange(9).gather(0, b)
torch.arange(9).take(b); torch.nn.functional.one_hot(b, 6)[:, 5]; torch.arange(-9, 9, 3); b.argsort()
torch.where(a, torch.arange(300, 306).to(torch.uint8), 7).long(); torch.cat([b[:3], torch.arange(3)]).roll(2)
torch.where(a, torch.arange(6) * n.shape[0], n.shape[1]); torch.where(a, torch.arange(6), b.to(torch.uint8))
torch.where(a, torch.arange(2**31 - 3, 2**31 + 3), 1); torch.where(a, torch.arange(-(2**31) - 3, -(2**31) + 3), 1)
"""
WIDE = ("2**40", "2**32", "2**31", "(-2**31 - 1)", "(2**63 - 1)", "(-2**63)", "6364136223846793005", "(-4000000000)")
OF_POSITIONS = """
P + W; P - W; W - P; P * W; P // W; P % W; W // (P * 2 + 1); W % (P * 2 + 1); torch.fmod(P, W); W - P * W; P ** 7 * W
torch.div(P, W, rounding_mode='trunc'); P == W; P != W; P < W; P <= W; P > W; P >= W; (P < W).sum() * W; ~P * W; P << P
torch.where(a, P, W); torch.where(a, W, P); torch.where(P > 1, P * W, P); torch.where(P == 2, W, P); P.eq(2).long() * W
torch.maximum(P, torch.tensor(W)); torch.minimum(P, torch.tensor(W)); P.clamp(min=W); P.clamp(max=W); P & W; P | W; P ^ W
P << 33; (P + 40) << 20; P * W >> 3; W >> P.abs(); P >> 40; torch.gcd(P, torch.tensor(W)); P * W + P; (P * W).abs(); -(P * W)
torch.sign(P * W); (P * W).relu(); (P * W).float(); (P + W).double(); (P + W).to(torch.int32); (P * W).to(torch.uint8)
(P + W).to(torch.int16); (P * W).bool(); P.to(torch.int32) * 65537 * 65537; P.to(torch.uint8) * 77; P.int() + W % 2**31
(P * W).sum(); (P + W).prod(); (P * W).cumsum(0); (P + W).amax(); F.amin(); F.argmax(); F.cumsum(0); F.sort().values
F.argsort(stable=True); F.topk(2).values; F.cummax(0).values; F.max(0).indices; F.prod(); F.all(); F.roll(1); F[b]; F // 7
F % 7; F >> 5; F == W; F.float(); F.view(2, 3).amax(1); torch.diff(F); torch.searchsorted(F.sort().values, P)
torch.zeros_like(b).scatter(0, b, F); torch.zeros_like(b).index_add(0, b, F); torch.zeros_like(b).scatter_reduce(0, b, F, 'amax')
torch.zeros_like(b).index_put((b,), P * W, accumulate=True); torch.isin(P, torch.tensor([1, W])); F.take(b); torch.full_like(P, W) - P
((P * 6364136223846793005 + 1442695040888963407) ^ (P >> 7)) % W; torch.cat([P, P * W]); P @ (P * W); torch.outer(P, P + W)
P * (b.int() * 2**29); P + (b.int() * 2**29); torch.where(a, P, b.int() * 2**29) * 9; P * b.to(torch.uint8) * 9999999
P * (P * 1000000) * 5000; torch.add(P, P, alpha=2**33); P.addcmul(P, P, value=9999999999); torch.lcm(P, torch.tensor(W)); P * n.shape[0] * 2**33
"""


def parts(texts: str) -> list[str]:
    return [text.strip() for text in texts.replace("\n", ";").split(";") if text.strip()]


def masked() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A mask, indices and floats."""
    draw = torch.Generator().manual_seed(4)
    return torch.tensor([1, 0, 1, 1, 0, 1]) > 0, torch.tensor([3, 0, 2, 5, 5, 1]), torch.randn(6, 5, generator=draw)


def accepted_by_torch(texts: list[str]) -> tuple[str, ...]:
    """The texts that eager computes: it refuses a zero divisor, and numbers that a dtype lacks."""
    found = []
    for text in texts:
        with contextlib.suppress(RuntimeError, OverflowError, ZeroDivisionError):
            Table((text,))(*masked())
            found.append(text)
    assert len(found) > len(texts) / 2
    return tuple(found)


@pytest.mark.parametrize("turn", range(24))
@pytest.mark.sampled(1)
def test_positions_are_integers_of_64_bits(turn: int) -> None:
    """Every operator on values that come from indices, with numbers that an int does not hold."""
    positions, numbers = itertools.cycle(parts(POSITIONS)), itertools.cycle(WIDE)
    chosen = itertools.islice(zip(positions, numbers, strict=False), turn, None)
    texts = [
        text.replace("F", "P.masked_fill(a, W)").replace("P", f"({position})").replace("W", number)
        for text, (position, number) in zip(parts(OF_POSITIONS), chosen, strict=False)
    ]
    emulated(accepted_by_torch(texts), masked())


OF_DRAWN = (
    "({x} & {y})", "({x} | {c})", "({x} ^ {y})", "(~{x})", "({x} << {k} % 63)", "({x} >> {k} % 63)", "({c} - {x} * {y})",
    "torch.where(a, {x}, {c})", "({x}).masked_fill(a, {c})", "({x} == {y}).long()", "({x} < {c}).long()", "({x}).int().long()",
    "(({x}).to(torch.uint8) + {y})", "({x}).cumsum(0)", "({x})[b]", "(({x}).sum() + {y})", "(({x}).amin() ^ {y})",
    "torch.zeros_like(b).index_add(0, b, {x})", "torch.gcd({x}, {y})", "({x}).to(torch.int16)", "(n > 0).sum(1) * {x}",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(draws(1)))
def test_random_programs_of_positions(seed: int) -> None:
    dice = random.Random(seed)
    numbers = (*WIDE, "1", "-1", "3", "46341", "(2**31 - 1)", "(-2**31)", "7000000000")
    few, found = parts(POSITIONS), ()
    while len(found) < 25:
        texts = [
            drawn(dice, dice.randint(1, 3), few, numbers, (*FORMS[:-2], *OF_DRAWN)) for _ in range(25 - len(found))
        ]
        found += accepted_by_torch(texts)
    emulated(found, masked())
