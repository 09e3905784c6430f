"""Shared tiles whose rows are several spans of a swizzle: `ldmatrix` reads them as it reads rows that are whole."""

from __future__ import annotations

import torch

import dplc
from dplc.ir.expr import Var, add, floordiv, modulo, multiply
from dplc.ir.ranges import by_steps, simplify


def test_steps_within_a_span() -> None:
    a, c, r = Var("a"), Var("c"), Var("r")
    place, ranges = add(add(multiply(a, 16), multiply(c, 8)), r), {"a": (0, 7), "c": (0, 1), "r": (0, 7)}
    assert by_steps(floordiv(place, 64), ranges) == floordiv(a, 4)
    want = add(add(multiply(modulo(a, 4), 16), multiply(c, 8)), r)
    assert by_steps(modulo(place, 64), ranges) == want
    assert by_steps(floordiv(place, 64), {**ranges, "r": (0, 8)}) == floordiv(place, 64)  # a step may be left
    assert by_steps(floordiv(place, 64), {**ranges, "r": (-1, 7)}) == floordiv(place, 64)  # or entered from below
    chunk = add(multiply(a, 32), add(r, 64))  # a digit of a place of which the last one is known
    assert simplify(floordiv(chunk, 288), ranges) == floordiv(add(a, 2), 9)


def test_keys_that_tma_copies() -> None:
    """Found by reading the kernel of 256 queries: 256 loads of 2 bytes where 8 of 16 bytes a lane do."""
    dice = torch.Generator().manual_seed(128)
    q, k, v = (torch.randn(1, 256, 128, generator=dice).bfloat16() for _ in "qkv")
    sdpa = torch.nn.functional.scaled_dot_product_attention
    made = dplc.compile(sdpa, (q, k, v), target="h200", device="emulator", db=False)
    (kernel,) = made.compilation.cuda_kernels
    assert "copy_box" in kernel.text
    assert kernel.text.count("ldmatrix_x4") == 2
    assert "lds<" not in kernel.text
    want, own = sdpa(q.double(), k.double(), v.double()), sdpa(q, k, v)
    assert (made(q, k, v).double() - want).abs().max() <= 2 * (own.double() - want).abs().max()
