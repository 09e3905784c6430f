"""What is largest so far, where, and logarithms of sums so far, of dimensions that are cut into chunks.

Ragged, with ties, nan and infinities, along the first, the last and a middle dimension; the last of equal places, as PyTorch."""

from __future__ import annotations

import pytest
from test_transposed import compiled, is_right

from dplc.ir.text.programs import print_program

TEXTS = (
    "torch.cummax(torch.randn(3001), 0)",
    "torch.cummin(torch.randn(2500), 0)",
    "torch.cummax(torch.randint(-3, 9, (5, 1024)), 1)",  # ties, integers, chunks without a rest
    "torch.cummin(torch.randint(-3, 3, (1100, 4)).float(), 0)",
    "x = torch.randn(2, 1500, 3); x[0, 40, 1] = float('nan'); x[1, 1200, 2] = float('nan'); torch.cummax(x, 1)",
    "x = torch.randn(3000); x[5] = float('nan'); x[37] = float('nan'); x[2990] = float('nan'); torch.cummin(x, 0)",
    "torch.cummax(torch.full((2200,), -float('inf')), 0)",
    "torch.cummax(torch.randn(3, 1300).half(), 1)",
    "torch.cummax(torch.randn(3000) > 2, 0)",
    "torch.logcumsumexp(torch.randn(3001) * 9, 0)",
    "x = torch.randn(4, 1200); x[1, :700] = -float('inf'); x[2, 100] = float('inf'); torch.logcumsumexp(x, 1)",
    "x = torch.randn(2, 1300, 2); x[1, 900, 1] = float('nan'); torch.logcumsumexp(x, 1)",
    "torch.logcumsumexp(torch.randn(3000).bfloat16(), 0)",
    "x = torch.randn(3001); c = torch.cummax(x, 0); c.values + c.indices",
    "torch.cummax(torch.randn(20011), 0)",
    "x = torch.randn(2, 1500, 3); x[0, 40, 1] = float('nan'); x[1, 1200, 2] = float('nan'); torch.cummin(x, 1)",
    "torch.cummin(torch.randint(-9, 9, (9000,)), 0)",
    "torch.cummax(torch.randint(-9, 9, (3, 8191), dtype=torch.int32), 1)",
    "torch.cummax(torch.randn(4, 1), 0)",
    "torch.cummin(torch.randn(8, 16).bool(), 0)",
    "torch.cummax(torch.randn(3, 4096), 1)",  # places and what stands there in one launch
    "torch.cummin(torch.randint(-3, 3, (2048, 5)).double(), 0)",
    "x = torch.randn(4, 700); x[0, 9] = x[0, 80] = float('nan'); x[1] = -float('inf'); x[2] = float('nan'); torch.cummax(x, 1)",
    "x = torch.randn(1000, 3); x[7, 0] = float('inf'); x[20, 0] = float('inf'); x[900, 1] = float('nan'); torch.cummin(x, 0)",
    "torch.cummax(torch.randint(-2, 2, (37, 130)).bfloat16(), 1)",
    "torch.cummin(torch.randn(37, 130), 1).indices",
    "torch.cummax(torch.randn(5, 2049), 1).values",
    "x = torch.randn(3, 90); x[0] = torch.finfo(x.dtype).min; x[1, 4:] = float('inf'); x[2, 50] = float('nan'); torch.logcumsumexp(x, 1)",
    "x = torch.randn(300, 3); x[:, 0] = -float('inf'); x[:200, 1] = -float('inf'); torch.logcumsumexp(x, 0)",
    "torch.logcumsumexp(torch.randn(2, 2048, 3).double() * 300, 1)",
    "torch.logcumsumexp(torch.randn(4100) * 30, 0)",
    "torch.cumsum(torch.randn(4096, 33), 0)",
    "torch.cumsum(torch.randn(2, 2049, 17), 1)",
    "torch.cumprod(torch.rand(3001, 3) + 0.5, 0)",
    "torch.cumsum(torch.randn(4097, 3), 0)",
    "torch.cumsum(torch.randn(4096, 40).bfloat16(), 0)",
    "torch.cumsum(torch.randn(20011), 0)",  # a chunk folds what those before it come to: ragged, of several rows, of any dtype
    "torch.cumsum(torch.randn(3, 17001), 1)",
    "torch.cumsum(torch.randn(2, 17001).half(), -1)",
    "torch.cumsum(torch.randn(17000).bfloat16(), 0)",
    "torch.cumsum(torch.randint(-9, 9, (9001,)), 0)",
    "torch.cumsum(torch.randn(10000).double(), 0)",
    "torch.cumprod(torch.rand(17001) * 0.2 + 0.9, 0)",
    "x = torch.randn(17001); x[3] = float('inf'); x[5000] = -float('inf'); torch.cumsum(x, 0)",
    "x = torch.rand(17001); x[4000] = 0; x[16000] = float('inf'); torch.cumprod(x, 0)",
    "x = torch.randn(17001); torch.cumsum(x, 0).relu() * 2 + x",
    "torch.cumsum(torch.randn(3, 2, 17001), -1).transpose(0, 2)",
    "x = torch.randn(17001); c = torch.cumsum(x, 0); c, c[-1]",
    "torch.cumsum(torch.randn(17000).expand(3, 17000), 1)",
    "x = torch.randn(5, 700); x.cumsum(1) / x.sum(1, keepdim=True)",
    "x = torch.randn(701); x.cumsum(0) - x.mean()",
    "x = torch.randn(4, 300); x.cumsum(1) * x.amax(1, keepdim=True)",
    "x = torch.randn(4, 300); (x.cumsum(1) * x.sum(1, keepdim=True)).t()",
    "x = torch.randn(4, 300); x.cumsum(1) * x.var(1, keepdim=True)",
    "x = torch.randn(4, 300); x.cumsum(1) * x.cumprod(1)",
    "torch.logcumsumexp(torch.randn(4, 300).double() * 300, 1)",
    "torch.cumsum(torch.randn(1024).repeat(4), 0)",  # what repeats is folded at each of its places
    "torch.cumsum(torch.randn(64, 40).repeat_interleave(32, 0), 0)",
    "torch.cumsum(torch.randn(512).repeat_interleave(4), 0)",
    "torch.logcumsumexp(torch.randn(1024).repeat(4), 0)",
    "x = torch.randn(256).repeat(8); torch.randn(2048).cumsum(0) / x.sum()",
    "torch.randn(3, 700).cumsum(1) * torch.randn(3, 1).expand(3, 500).sum(1, keepdim=True)",
    "torch.cumsum(torch.randn(33, 32768), 1)",  # as long as a block holds
    "torch.cumprod(torch.rand(3, 16383) * 0.2 + 0.9, 1)",
    "torch.cumsum(torch.randn(32, 16384).double(), 1)",
    "torch.cummax(torch.randn(33, 16001), 1)",
    "x = torch.randn(33, 20000); (x * (torch.randn(33, 20000) > 0)).flip(1).cumsum(1)",
)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.sampled(3)
def test_what_runs_by_chunks_is_right(text: str) -> None:
    is_right(text)


@pytest.mark.parametrize("text, launches", [
    ("torch.cumsum(torch.randn(5, 3001), 1)", 1), ("x = torch.randn(64, 5000); (x * x).flip(1).cumsum(1)", 1),
    ("x = torch.randn(33, 32768); (x * (x > 0)).cumsum(1)", 1), ("torch.cumsum(torch.randn(3, 16384), 1)", 1),
    ("torch.cumsum(torch.randn(900, 70), 0)", 1), ("torch.cummax(torch.randn(3001), 0)", 1),
    ("torch.cumprod(torch.randn(5000, 3), 0)", 3), ("torch.cumsum(torch.randn(4, 300).double(), 1)", 1),
    ("torch.logcumsumexp(torch.randn(4, 300).double(), 1)", 1), ("x = torch.randn(4, 300); x.cumsum(1) * x.var(1, keepdim=True)", 2),
    ("torch.cumsum(torch.randn(4096, 33), 0)", 1), ("torch.cummin(torch.randn(2000, 70), 0)", 1), ("torch.cummin(torch.randn(8192), 0).values", 1),
    ("torch.cummax(torch.randn(6000), 0)", 1), ("torch.logcumsumexp(torch.randn(3001), 0)", 1), ("torch.logcumsumexp(torch.randn(9, 2000, 8), 1)", 1),
    ("torch.logcumsumexp(torch.randn(20011), 0)", 3),
])  # fmt: skip
@pytest.mark.sampled(2)
def test_what_stands_before_is_never_looked_at_again(text: str, launches: int) -> None:
    """Whatever folds so far is a Scan; no comparison of two places is left."""
    made = compiled(text)
    tiles = [print_program((kernel,)) for kernel in made.tile]
    assert len(tiles) == launches
    assert any("Scan" in tile for tile in tiles) and not any("chosen" in tile for tile in tiles), tiles


@pytest.mark.parametrize("text, launches", [
    ("torch.cumsum(torch.randn(20011), 0)", 2), ("torch.cumsum(torch.randn(2, 17000).bfloat16(), 1)", 2), ("torch.cumprod(torch.rand(17001), 0)", 2),
    ("torch.cumsum(torch.randn(10000).double(), 0)", 2), ("x = torch.randn(17001); torch.cumsum(x, 0).relu() * 2 + x", 2),
    ("x = torch.randn(5, 700); x.cumsum(1) / x.sum(1, keepdim=True)", 1), ("x = torch.randn(4, 300); x.cumsum(1) * x.amax(1, keepdim=True)", 1),
])  # fmt: skip
def test_what_a_row_shares_is_folded_beside_its_scan(text: str, launches: int) -> None:
    """The threads of a row fold what all its places need, a sum of its own or of the chunks before, then what stands before each."""
    made = compiled(text)
    last = print_program((made.tile[-1],))
    assert len(made.tile) == launches
    assert last.count("Combine(") == last.count("Scan(") == 1 and " reduce" not in last, last


def test_places_are_stored_by_vectors() -> None:
    """Four i64 of a thread are two vectors of 16 bytes."""
    compilation = compiled("torch.cummax(torch.randn(5, 4096), 1)")
    cuda = compilation.ir("cuda")
    assert cuda.count("stg128(getitem_1_at") == 2 and "stg(getitem_1_at" not in cuda
