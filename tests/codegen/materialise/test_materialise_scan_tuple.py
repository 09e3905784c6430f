"""Scans of tuples: recurrences, whose elements may not change places, along threads, registers and both."""

from __future__ import annotations

import numpy as np
import pytest
from lowering_oracle import check, read

from dplc.ir.interp import tile

RNG = np.random.default_rng(6)


def factors(*shape: int) -> np.ndarray:
    """Of both signs, around one, so that far places still count."""
    return (RNG.uniform(0.8, 1.1, shape) * RNG.choice((-1, 1), shape)).astype(np.float32)


def means(text: str, wanted: np.ndarray, **arrays: np.ndarray) -> None:
    """A program means what is wanted, and its CUDA computes what it means."""
    np.testing.assert_allclose(tile.run(read(text), arrays)["y"], wanted, rtol=1e-6, atol=1e-6)
    check(text, **arrays)


def recurrence(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """h = a*h + b along the last dimension, in float64."""
    h, out = np.zeros(a.shape[:-1]), []
    for place in range(a.shape[-1]):
        h = a[..., place].astype(float) * h + b[..., place]
        out.append(h)
    return np.stack(out, -1)


@pytest.mark.parametrize("extents", [
    (64, 1, 1), (1, 7, 1), (1, 32, 1), (3, 32, 1), (4, 8, 1), (2, 64, 1), (1, 16, 4), (2, 8, 8), (1, 12, 5), (3, 4, 64), (1, 96, 2),
])  # fmt: skip
@pytest.mark.sampled(6)
def test_thread_axes(extents):
    """The axis stands between others: lanes only, exchange only, or both."""
    i, t, j = extents
    a, b = factors(i, t, j), factors(i, t, j)
    means(
        f"""
kernel steps(a: f32[{i}, {t}, {j}], b: f32[{i}, {t}, {j}]) -> y: f32[{i}, {t}, {j}]:
    Tile(i:{i}=THREAD, t:{t}=THREAD, j:{j}=THREAD):
        p = load a[i, t, j]
        q = load b[i, t, j]
        (f, h) <- affine((f, h), (p, q))
        ScanTuple(accs=(f, h), fn=affine, over=[t])
        y[i, t, j] = h
""",
        np.moveaxis(recurrence(np.moveaxis(a, 1, 2), np.moveaxis(b, 1, 2)), 2, 1), a=a, b=b,
    )  # fmt: skip


@pytest.mark.parametrize("over, place", [
    ("q, t, v", "q*256 + t*4 + v"), ("t, q, v", "t*16 + q*4 + v"), ("q, v, t", "q*256 + v*64 + t"), ("v, t, q", "v*256 + t*4 + q"),
])  # fmt: skip
@pytest.mark.sampled(2)
def test_registers(over, place):
    """Registers before, between and behind threads."""
    a, b = factors(1024), factors(1024)
    means(
        f"""
kernel steps(a: f32[1024], b: f32[1024]) -> y: f32[1024]:
    Tile(q:4=REG, t:64=THREAD, v:4=REG):
        p = load a[{place}]
        s = load b[{place}]
        (f, h) <- affine((f, h), (p, s))
        ScanTuple(accs=(f, h), fn=affine, over=({over}))
        y[{place}] = h
""",
        recurrence(a, b), a=a, b=b,
    )  # fmt: skip


def test_in_a_loop_and_ragged():
    """The areas of the exchange are written again in every turn; threads beyond the end hold what changes nothing."""
    a, b = factors(5, 83), factors(5, 83)
    means(
        """
kernel steps(a: f32[5, 83], b: f32[5, 83]) -> y: f32[5, 83]:
    Tile(t:96=THREAD):
        for k in 0..5 serial:
            if t < 83:
                p = load a[k, t]
                q = load b[k, t]
                (f, h) <- affine((f, h), (p, q))
            ScanTuple(accs=(f, h), fn=affine, over=[t])
            if t < 83:
                y[k, t] = h
""",
        recurrence(a, b), a=a, b=b,
    )  # fmt: skip


def test_sums_relative_to_a_running_maximum():
    """Whatever monoid: the running form of a softmax up to each place."""
    x = RNG.standard_normal(200).astype(np.float32) * 9
    means(
        """
kernel running(x: f32[200]) -> y: f32[200]:
    Tile(t:50=THREAD, v:4=REG):
        a = load x[t*4 + v]
        (m, s) <- online((m, s), (a, 1.0))
        ScanTuple(accs=(m, s), fn=online, over=(t, v))
        l = log(s)
        z = add(l, m)
        y[t*4 + v] = z
""",
        np.logaddexp.accumulate(x.astype(float)), x=x,
    )  # fmt: skip
