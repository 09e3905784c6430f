"""Products of 16 bits on tensor cores: right at every shape and in every order of operands, and clean in checked mode."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from products_of_halves import heads, same_places

import dplc
from dplc.codegen.emulator.executor import CheckingExecutor
from dplc.engine.rewrite.statements.driver import Settings
from dplc.ir.node import nodes
from dplc.ir.tile import Mma

HALVES = (torch.bfloat16, torch.float16)
FORMS = ("nn", "nt", "tn", "tt")
# whole tiles; ragged in all three; primes; a single atom; a long sum (split over blocks); one row of tiles
SHAPES = ((64, 128, 64), (200, 72, 136), (97, 131, 67), (16, 8, 32), (48, 40, 1024), (130, 9, 257))


def operands(form: str, shape: tuple[int, int, int], dtype: torch.dtype, *batch: int) -> tuple[torch.Tensor, ...]:
    m, n, k = shape
    dice = torch.Generator().manual_seed(m + n + k)
    left, right = (m, k) if form[0] == "n" else (k, m), (k, n) if form[1] == "n" else (n, k)
    return tuple(torch.randn(*batch, *size, generator=dice).to(dtype) for size in (left, right))


def product(form: str) -> Callable[..., torch.Tensor]:
    return lambda x, y: (x if form[0] == "n" else x.mT) @ (y if form[1] == "n" else y.mT)


def right(
    f: Callable[..., torch.Tensor], *inputs: torch.Tensor, target: str = "h200", settings: Settings | None = None
) -> dplc.Compiled:
    """Compiled, run, and within twice PyTorch's own error of float64."""
    compiled = dplc.compile(f, inputs, target=target, settings=settings, device="emulator", db=False)
    want = f(*(x.double() if x.is_floating_point() else x for x in inputs))
    own = (f(*inputs).double() - want).abs().max().item()
    error = (compiled(*inputs).double() - want).abs().max().item()
    assert error <= 2 * own, f"off by {error:.2e}, PyTorch by {own:.2e}"
    return compiled


def products(compiled: dplc.Compiled) -> int:
    return sum(1 for kernel in compiled.compilation.tile for _ in nodes(kernel, Mma))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.sampled(2)
def test_products(shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    assert products(right(product("nn"), *operands("nn", shape, dtype)))


@pytest.mark.parametrize("form", FORMS[1:])
@pytest.mark.sampled(1)
def test_orders_of_operands(form: str) -> None:
    for shape in ((96, 64, 64), (97, 131, 67)):
        assert products(right(product(form), *operands(form, shape, torch.bfloat16)))


def bytes_of(m: int, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    dice = torch.Generator().manual_seed(m + n + k)
    return tuple(torch.randint(-128, 128, size, dtype=torch.int8, generator=dice) for size in ((m, k), (k, n)))


# whole tiles; ragged in all three; primes; a sum of a single atom, which is not a loop of atoms; a long sum; one atom
@pytest.mark.parametrize("shape", [*SHAPES[:3], (16, 8, 64), (48, 40, 1024), (19, 9, 67), (33, 24, 31)], ids=str)
@pytest.mark.sampled(2)
def test_bytes_are_summed_exactly(shape: tuple[int, int, int]) -> None:
    x, y = bytes_of(*shape)
    compiled = dplc.compile(torch._int_mm, (x, y), target="h200", device="emulator", db=False)
    assert products(compiled) == (shape[2] > 32)
    got = compiled(x, y)
    assert got.dtype == torch.int32
    assert torch.equal(got, (x.long() @ y.long()).int())


def test_bytes_of_a_linear_come_by_ldmatrix() -> None:
    x, y = bytes_of(64, 64, 128)
    f = lambda x, w: torch._int_mm(x, w.mT).float() * 0.5  # noqa: E731  # as quantised layers have it
    tile = {"blockify_launch": {"BM": 32, "BN": 64}}
    compiled = dplc.compile(f, (x, y.mT.contiguous()), target="h200", device="emulator", db=False, settings=tile)
    (kernel,) = compiled.compilation.cuda_kernels
    assert kernel.text.count("ldmatrix_x4(") == 2
    assert "mma_m16n8k32_i8" in kernel.text
    assert torch.equal(compiled(x, y.mT.contiguous()), (x.long() @ y.long()).float() * 0.5)
    compiled.executor = checker = CheckingExecutor(("all",))
    compiled(x, y.mT.contiguous())
    assert checker.findings == ()


def test_bytes_that_are_not_widened_wrap_around_elsewhere() -> None:
    x, y = bytes_of(32, 32, 64)
    f = lambda x, y: (x[:, :, None] * y).sum(1, dtype=torch.int32)  # noqa: E731
    compiled = dplc.compile(f, (x, y), target="h200", device="emulator", db=False)
    assert products(compiled) == 0
    assert torch.equal(compiled(x, y), f(x, y))


def test_operands_that_were_widened_before() -> None:
    x, y = operands("nn", (64, 48, 64), torch.float16)
    assert products(right(lambda x, y: x.float() @ y.float(), x, y))


def test_batches() -> None:
    assert products(right(torch.bmm, *operands("nn", (50, 40, 64), torch.float16, 3)))


EPILOGUES = {
    "relu": lambda x, y: torch.relu(x @ y),
    "bias and gelu": lambda x, y: torch.nn.functional.gelu(x @ y + y[0]),
    "residual": lambda x, y: x @ y + x[:, :1],
    "of f32": lambda x, y: (x @ y).float() * 2,
    "its operand again": lambda x, y: (x @ y) * x[:, :72],
}


@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.sampled(2)
def test_epilogues_run_on_fragments(name: str) -> None:
    compiled = right(EPILOGUES[name], *operands("nn", (80, 72, 96), torch.bfloat16))
    assert products(compiled) == 1
    assert len(compiled.compilation.cuda_kernels) == 1


def test_two_products_of_one_operand() -> None:
    x, y = operands("nn", (64, 48, 64), torch.bfloat16)
    right(lambda x, y, z: torch.nn.functional.silu(x @ y) * (x @ z), x, y, y.flip(1).contiguous())


def test_not_a_number_and_infinity_stay_in_their_rows() -> None:
    x, y = operands("nn", (64, 48, 64), torch.bfloat16)
    x[5, 7], x[9, 3] = float("nan"), float("inf")
    compiled = dplc.compile(product("nn"), (x, y), target="h200", device="emulator", db=False)
    assert products(compiled)
    got, want = compiled(x, y).double(), x.double() @ y.double()
    same_places(got, want)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.sampled(2)
def test_checked_mode_finds_nothing(form: str) -> None:
    inputs = operands(form, (40, 48, 96), torch.bfloat16)
    compiled = dplc.compile(product(form), inputs, target="h200", device="emulator", db=False)
    assert products(compiled)
    compiled.executor = checker = CheckingExecutor(("all",))
    compiled(*inputs)
    assert checker.launches
    assert checker.findings == ()


def test_f32_is_left_alone() -> None:
    x, y = (x.float() for x in operands("nn", (64, 64, 64), torch.bfloat16))
    assert products(dplc.compile(product("nn"), (x, y), target="h200", device="emulator", db=False)) == 0


@pytest.mark.parametrize(("device", "rows", "columns"), [("a100", 128, 256), ("h200", 128, 256), ("rtx5090", 64, 64)])
def test_large_products_have_large_tiles_where_shared_memory_has_room(device: str, rows: int, columns: int) -> None:
    """Of an RTX 5090 it holds one block of 128 x 128, which waits at each barrier, or three of 64 x 64."""
    inputs = tuple(torch.empty(4096, 4096, dtype=torch.bfloat16) for _ in "xy")
    compiled = dplc.compile(product("nn"), inputs, target=device, device="emulator", db=False)
    (kernel,) = compiled.compilation.cuda_kernels
    assert sorted(kernel.grid[:2]) == sorted((4096 // columns, 4096 // rows))
    assert products(compiled)


def test_a_ragged_tile_of_128_by_256_is_right() -> None:
    x, y = operands("nn", (150, 300, 72), torch.bfloat16)
    sizes = {"blockify_launch": {"BM": 128, "BN": 256}}
    compiled = dplc.compile(product("nn"), (x, y), target="h200", device="emulator", db=False, settings=sizes)
    assert products(compiled)
    want = x.double() @ y.double()
    own = ((x @ y).double() - want).abs().max()
    assert (compiled(x, y).double() - want).abs().max() <= 2 * own


sdpa = torch.nn.functional.scaled_dot_product_attention
ATTENTION: dict[str, tuple[Callable[..., torch.Tensor], tuple[int, ...], tuple[int, ...], torch.dtype]] = {
    "whole chunks": (sdpa, (2, 128, 64), (2, 128, 64), torch.bfloat16),
    "ragged": (sdpa, (2, 50, 64), (2, 90, 64), torch.bfloat16),
    "heads of 80": (sdpa, (2, 50, 80), (2, 90, 80), torch.bfloat16),
    "heads of 72": (sdpa, (2, 50, 72), (2, 90, 72), torch.bfloat16),
    "of 100, f16": (sdpa, (1, 40, 100), (1, 70, 100), torch.float16),
    "of 36, causal": (lambda q, k, v: sdpa(q, k, v, is_causal=True), (2, 40, 36), (2, 40, 36), torch.bfloat16),
    "of 45": (sdpa, (1, 20, 45), (1, 33, 45), torch.bfloat16),
    "of 128, f16": (sdpa, (1, 40, 128), (1, 77, 128), torch.float16),
    "causal": (lambda q, k, v: sdpa(q, k, v, is_causal=True), (2, 100, 64), (2, 100, 64), torch.bfloat16),
    "causal prime": (lambda q, k, v: sdpa(q, k, v, is_causal=True), (1, 127, 128), (1, 127, 128), torch.float16),
    "scale": (lambda q, k, v: sdpa(q, k, v, scale=0.7), (1, 33, 64), (1, 65, 64), torch.bfloat16),
    "one chunk": (sdpa, (1, 17, 64), (1, 9, 64), torch.bfloat16),
}


@pytest.mark.parametrize("name", ATTENTION)
@pytest.mark.sampled(2)
def test_attention_is_one_kernel_of_fragments(name: str) -> None:
    f, rows, columns, dtype = ATTENTION[name]
    compiled = right(f, *heads(rows, columns, dtype))
    assert len(compiled.compilation.cuda_kernels) == 1
    assert products(compiled) == 2


@pytest.mark.parametrize(("size", "matrices"), [(64, 2), (72, 1)])
def test_heads_that_lie_beside_each_other(size: int, matrices: int) -> None:
    """What follows a head of 72 is the next head, no zeros: its keys are read under a guard, all else by ldmatrix."""

    def f(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return sdpa(*(x.view(1, 70, 2, size).transpose(1, 2) for x in (q, k, v)), is_causal=True)

    two_warps = {"online_fragments": {"BM": 32}}  # which share keys and values
    compiled = right(f, *heads((70, 2 * size), (70, 2 * size), torch.bfloat16), settings=two_warps)
    (kernel,) = compiled.compilation.cuda_kernels
    assert products(compiled) == 2
    assert kernel.text.count("ldmatrix_x") == matrices


def test_infinite_keys_of_the_next_head_do_not_matter() -> None:
    q, k, v = heads((70, 144), (70, 144), torch.bfloat16)
    k[0, :, 72:80] = float("inf")
    f = lambda *x: sdpa(*(x.view(1, 70, 2, 72).transpose(1, 2) for x in x))  # noqa: E731
    compiled = dplc.compile(f, (q, k, v), target="h200", device="emulator", db=False)
    assert products(compiled) == 2
    got, want = compiled(q, k, v)[:, 0].double(), f(q.double(), k.double(), v.double())[:, 0]
    assert (got - want).abs().max() < 0.02


def test_attention_under_masks() -> None:
    q, k, v = heads((2, 40, 64), (2, 70, 64), torch.bfloat16)
    seen = torch.rand(40, 70, generator=torch.Generator().manual_seed(0)) > 0.4
    added = torch.randn(40, 70, generator=torch.Generator().manual_seed(1)).bfloat16()
    for mask in (seen, added, torch.ones(40, 70, dtype=torch.bool).tril()):
        compiled = right(lambda q, k, v, m: sdpa(q, k, v, attn_mask=m), q, k, v, mask)
        assert len(compiled.compilation.cuda_kernels) == 1
        assert products(compiled) == 2


def test_rows_that_are_hidden_whole_and_infinities() -> None:
    q, k, v = heads((1, 40, 64), (1, 70, 64), torch.bfloat16)
    mask = torch.ones(40, 70, dtype=torch.bool)
    mask[7], mask[20, :64] = False, False  # all of a row; all of a chunk
    v[0, 0, 3, 5] = float("inf")
    f = lambda q, k, v, m: sdpa(q, k, v, attn_mask=m)  # noqa: E731
    compiled = dplc.compile(f, (q, k, v, mask), target="h200", device="emulator", db=False)
    assert products(compiled) == 2
    got, want = compiled(q, k, v, mask).double(), f(q.double(), k.double(), v.double(), mask)
    same_places(got, want)
    finite = want.isfinite()
    assert (got - want)[finite].abs().max() < 0.02


@pytest.mark.parametrize("name", ["ragged", "causal", "heads of 72", "of 100, f16", "of 45"])
@pytest.mark.sampled(2)
def test_attention_in_checked_mode(name: str) -> None:
    f, rows, columns, dtype = ATTENTION[name]
    inputs = heads(rows, columns, dtype)
    compiled = dplc.compile(f, inputs, target="h200", device="emulator", db=False)
    compiled.executor = checker = CheckingExecutor(("all",))
    compiled(*inputs)
    assert checker.launches
    assert checker.findings == ()


@pytest.mark.parametrize("length", [128, 1024, 16384])
@pytest.mark.parametrize("device", ["a100", "h200", "rtx5090"])
@pytest.mark.sampled(2)
def test_attention_is_one_kernel_at_every_length(device: str, length: int) -> None:
    inputs = tuple(torch.empty(1, 32, length, 128, dtype=torch.bfloat16) for _ in "qkv")
    compiled = dplc.compile(sdpa, inputs, target=device, device="emulator", db=False)
    assert len(compiled.compilation.cuda_kernels) == 1
    assert products(compiled) == 2


@pytest.mark.parametrize("form", ["nn", "nt"])
def test_tf32_where_somebody_asks_for_it(form: str, tmp_path: Path) -> None:
    rules = tmp_path / "tf32.rw"
    rules.write_text("override number tf32_products = 1\n")
    x, y = (x.float() for x in operands(form, (97, 72, 67), torch.bfloat16))  # of which tf32 loses nothing
    compiled = dplc.compile(product(form), (x, y), target="h200", device="emulator", db=False, rules=str(rules))
    assert products(compiled)
    assert (compiled(x, y) - product(form)(x.double(), y.double())).abs().max() < 1e-4
