"""Integers at the edges of their ranges: they wrap around as torch's do, on the emulator, in the meanings, on a GPU."""

from __future__ import annotations

import contextlib
import itertools
import math
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
from dplc.codegen.materialise import materialise
from dplc.codegen.sass import disassemble, find_nvdisasm
from dplc.codegen.target import target
from dplc.ir.facts.structure import value_dtypes
from dplc.ir.interp import loop, tensor, tile
from dplc.ir.text.programs import read_program

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
    accepted = accepted_by_torch(texts)
    assert len(accepted) > len(texts) / 2
    emulated(accepted, masked())


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
    few = parts(POSITIONS)
    texts = [drawn(dice, dice.randint(1, 3), few, numbers, (*FORMS[:-2], *OF_DRAWN)) for _ in range(30)]
    accepted = accepted_by_torch(texts)
    assert len(accepted) > len(texts) / 2
    emulated(accepted, masked())


EXACT = """
F.avg_pool1d(a, 2); F.avg_pool2d(a, 2); F.avg_pool2d(a, 3, 1, 1, False, False); F.avg_pool2d(a, 2, divisor_override=3); F.avg_pool3d(a[None], 2)
A.avg_pool2d_backward(b, a, [2, 2], [], [0, 0], False, True, None); A.avg_pool2d_backward(b, a, [2, 2], [], [0, 0], False, True, 3)
A.avg_pool3d_backward(b[None], a[None], [1, 2, 2], [], [0, 0, 0], False, True, None); F.pad(a, (1, 2), value=2**40)
"""


def test_integers_of_windows_are_exact() -> None:
    """What pools and pads integers never goes through a float."""
    a, b = (
        (torch.arange(math.prod(shape)).reshape(shape) * 37 % 101 - 50) * (2**33 + 1)
        for shape in ((4, 6, 8), (4, 3, 4))
    )
    texts = EXACT.replace("F.", "torch.nn.functional.").replace("A.", "torch.ops.aten.")
    emulated(tuple(parts(texts)), (a, b, b))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
@pytest.mark.sampled(2)
def test_common_divisors_and_multiples_wrap_as_torch_does(dtype: torch.dtype) -> None:
    info = torch.iinfo(dtype)
    numbers = torch.tensor(
        [*range(info.min, info.min + 9), *range(-9, 13), 90, 100, info.max - 1, info.max, info.max // 3]
    ).to(dtype)
    a, b = torch.meshgrid(numbers, numbers, indexing="ij")
    emulated(("torch.gcd(a, b)",), (a, b, b))
    if dtype.itemsize >= 4:  # multiples of the least number stop PyTorch itself
        a, b = a[1:, 1:], b[1:, 1:]
    emulated(("torch.lcm(a, b)",), (a, b, b))


TILE = """
kernel k{n}(w: b8[64], c: i32[64], u: u8[64], l: i64[64]) -> y{n}: {dtype}[64]:
    Tile(t:64={role}):
        a = load w[t]
        b = load c[t]
        d = load u[t]
        e = load l[t]
        z = {text}
        y{n}[t] = z
"""
OF_INDICES = """
where(a, t, 1099511627776); where(a, t*4294967296, 5); add(where(a, t, 5), 1099511627776); add(t, b); multiply(t, multiply(b, t))
multiply(d, multiply(t, 100000000)); less(t, 4294967296); equal(t, 4294967296); remainder(t, 8589934592); floor_divide(8589934592, t + 1)
shift_left(t, 40); shift_right(t - 32, 40); shift_left(1, t); bits_and(t, 4294967295); bits_xor(where(a, t, 1), -1099511627776)
pow(where(a, t, 3), 9); gcd(t, 1099511627776); negative(where(a, t, -2147483648)); floor_divide(where(a, t, -2147483648), -1)
(t*-100000000 + 5)//7; where(a, (t*-100000000 - 5)%7, 1); add((t*-100000000 + 5)//7, 3); where((t*-100000000 + 5)//7 < -4, t, 7)
add(d, 300); less(d, 300); add(b, 1099511627776); less(b, 1099511627776); where(a, b, 1099511627776); multiply(i32(t), 65536)
multiply(multiply(i32(t), 65536), 65536); u8(t*5); add(u8(t*5), 100); add(i64(u8(t*5)), t); f64(t*4294967296 + 1); i16(t*1000)
add(maximum(where(a, t, 5), 2147483647), 1); multiply(where(a, t, 46341), where(a, t, 46341)); where(e < 2000000000000, t, 7)
where(e > -2000000000000000000, t, 7); b*2//2; (b + t)%7; (b*3)//2; where(t < 32, b, t); multiply(where(t < 32, b, t), 3); d*t*100000000
"""


@pytest.mark.parametrize("role", ["THREAD", "REG", "VEC"])
def test_indices_of_a_text_are_integers_of_64_bits(role: str) -> None:
    """Tile IR means i64 by an index, however narrow what it meets is, and so do kernels."""
    arrays = {
        "w": np.arange(64) % 3 == 0, "u": np.arange(64).astype(np.uint8) * 5,
        "c": np.resize(np.array([2**31 - 1, -(2**31), 5, -7, 2**30, 0], np.int32), 64),
        "l": np.resize([2**40, -3, 2**63 - 1, -(2**63), 2**41], 64),
    }  # fmt: skip
    texts, kernels = parts(OF_INDICES), []
    for n, text in enumerate(texts):
        draft: Any = read_program(TILE.format(n=n, dtype="i64", role=role, text=text))[1][0]
        kernels += read_program(TILE.format(n=n, dtype=value_dtypes(draft)["z"], role=role, text=text))[1]
    want = tile.run(tuple(kernels), arrays)
    got = run_kernels(tuple(materialise(kernel, target("sm_80")) for kernel in kernels), arrays)
    for n, text in enumerate(texts):
        assert np.array_equal(got[f"y{n}"], want[f"y{n}"]), (text, got[f"y{n}"], want[f"y{n}"])
