"""How long the compile of a loop over a state takes: process CPU seconds for a number of steps.

    python examples/benches/repeated_steps.py [--steps 100] [--only NAME ..] [--profile]

A compile is linear if its time for 2n steps is at most twice its time for n steps, and if the text is, too.
`tests/programs/test_repeated_steps.py` counts the calls of the same loops.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from dplc.codegen.target import target
from dplc.engine.capture.capture import capture
from dplc.engine.capture.signature import Capture
from dplc.engine.compiler import Compilation, compiler_with

Step = Callable[[Any, int, torch.Tensor], Any]  # (state, number of the step, weights) -> state


@dataclass(frozen=True)
class Loop:
    """A loop over a state of some shape, and weights of another."""

    step: Step
    state: tuple[int, ...]
    weights: tuple[int, ...] = (8,)

    def repeated(self, steps: int) -> Callable[[Any, Any], Any]:
        """Return the function of a state and weights that takes these steps."""

        def run(x: Any, w: Any) -> Any:
            for number in range(steps):
                x = self.step(x, number, w)
            return x

        return run

    def inputs(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a state and weights, which are the same for each call."""
        torch.manual_seed(0)
        return torch.randn(self.state), torch.randn(self.weights) / 4

    def capture(self, steps: int) -> Capture:
        """Return the loop as PyTorch exports it."""
        return capture(self.repeated(steps), self.inputs())


def _assigned(x: torch.Tensor, place: Any, value: Any) -> torch.Tensor:
    x = x.clone()
    x[place] = value
    return x


def _stacked_rolls(x: torch.Tensor, i: int, w: torch.Tensor) -> torch.Tensor:
    return torch.stack([torch.roll(r, k, 0) for k, r in enumerate((x - x.sum(0) / 9).unbind(0))])


def _heat(x: torch.Tensor, i: int, w: torch.Tensor) -> torch.Tensor:
    padded = F.pad(x, (1, 1, 1, 1))
    around = padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:]
    return x + 0.1 * (around - 4 * x)


def _wave(x: torch.Tensor, i: int, w: torch.Tensor) -> torch.Tensor:
    now, before = x.unbind(0)
    return torch.stack([2 * now - before + 0.1 * (now.roll(1, 0) + now.roll(-1, 0) - 2 * now), now])


def _butterfly(x: torch.Tensor, i: int, w: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2)
    return torch.cat([a + b * w[i % 8], a - b * w[i % 8]])


def _leapfrog(x: torch.Tensor, i: int, w: torch.Tensor) -> torch.Tensor:
    position, speed = x.unbind(-1)
    speed = speed - 0.1 * torch.sin(position)
    return torch.stack([position + 0.1 * speed, speed], -1)


def _lattice(x: torch.Tensor, i: int, w: torch.Tensor) -> torch.Tensor:
    moved = torch.stack([x[k].roll((k % 3 - 1, k // 3 - 1), (0, 1)) for k in range(9)])
    density = moved.sum(0)
    return moved - 0.5 * (moved - density[None] * torch.softmax(w, 0)[:, None, None])


def _life(x: torch.Tensor, i: int, w: torch.Tensor) -> torch.Tensor:
    near = sum(x.roll((a, b), (0, 1)) for a in (-1, 0, 1) for b in (-1, 0, 1) if (a, b) != (0, 0))
    return torch.where((near > 2) & (near < 4), 1.0, torch.where(near > 3, 0.0, x))


def _sorted_pairs(x: torch.Tensor, i: int, w: torch.Tensor) -> torch.Tensor:
    a, b = x[..., i % 2 : x.shape[-1] - i % 2].unflatten(-1, (-1, 2)).unbind(-1)
    inner = torch.stack([torch.minimum(a, b), torch.maximum(a, b)], -1).flatten(-2)
    return torch.cat([x[..., :1], inner, x[..., -1:]], -1) if i % 2 else inner


def _fibonacci(x: torch.Tensor, i: int, w: torch.Tensor) -> torch.Tensor:
    return torch.stack([x[1], 0.5 * (x[0] + x[1])])


def _quarters(x: torch.Tensor, i: int, w: torch.Tensor) -> torch.Tensor:
    a, b, c, d = x.split(2, 1)
    return torch.cat([b + a.mean(1, keepdim=True), c * 0.5, d, a.tanh()], 1)


def _scanned_rows(x: torch.Tensor, i: int, w: torch.Tensor) -> torch.Tensor:
    return torch.stack([r.cumsum(0) / 8 for r in x.unbind(0)]).roll(1, 0)


LOOPS = {
    "stacked rolls": Loop(_stacked_rolls, (9, 8)),
    "lattice Boltzmann": Loop(_lattice, (9, 6, 6), (9,)),
    "life": Loop(_life, (8, 8)),
    "heat by pads": Loop(_heat, (8, 8)),
    "wave of two states": Loop(_wave, (2, 16)),
    "butterfly": Loop(_butterfly, (16,)),
    "leapfrog": Loop(_leapfrog, (16, 2)),
    "sorting network": Loop(_sorted_pairs, (4, 8)),
    "Fibonacci of rows": Loop(_fibonacci, (2, 8)),
    "quarters": Loop(_quarters, (4, 8)),
    "cumsum of rows": Loop(_scanned_rows, (4, 8)),
    "cat of halves": Loop(lambda x, i, w: torch.cat([x[4:] * 0.5, x[:4] + x[4:]]), (8,)),
    "cat of pads in 3d": Loop(lambda x, i, w: torch.cat([x[:, 1:], x[:, :1] * w[i % 8]], 1) + x, (2, 4, 8)),
    "rolls": Loop(lambda x, i, w: x.roll(i, 0) - 0.5 * x.roll(-1, 1), (8, 8)),
    "where": Loop(lambda x, i, w: torch.where(x > 0, x * 0.5, x + w), (4, 8)),
    "scatter": Loop(lambda x, i, w: x.scatter(0, torch.arange(8)[None] % 4, x[:1] * 0.5 + w), (4, 8)),
    "scatter_add": Loop(lambda x, i, w: x.scatter_add(1, torch.arange(8).expand(4, 8).flip(1), x * 0.1), (4, 8)),
    "index_put": Loop(lambda x, i, w: x.index_put((torch.arange(3),), x[:3].tanh() + w), (6, 8)),
    "select_scatter": Loop(lambda x, i, w: x.select_scatter(x[(i + 1) % 4] * 0.5 + x.mean(0), 0, i % 4), (4, 8)),
    "slice_scatter": Loop(lambda x, i, w: x.slice_scatter(x[1:3] + 0.1 * x[2:4], 0, 1, 3), (4, 8)),
    "rows in place": Loop(lambda x, i, w: _assigned(x, i % 4, x[(i + 1) % 4] * 0.9 + x[i % 4]), (4, 8)),
    "strided slices": Loop(lambda x, i, w: torch.stack([x[::2] + x[1::2], x[::2] - x[1::2]], 1).flatten(0, 1), (8,)),
    "permutes": Loop(lambda x, i, w: x.permute(1, 2, 0) * 0.5 + x.permute(2, 0, 1), (4, 4, 4)),
    "flips": Loop(lambda x, i, w: x.flip(0) * 0.5 + x.flip(1).tanh(), (4, 8)),
    "gathers": Loop(lambda x, i, w: x.gather(1, (torch.arange(8) * 3 % 8).expand(4, 8)) + 0.5 * x, (4, 8)),
    "index_select": Loop(lambda x, i, w: x[torch.tensor([2, 0, 3, 1])] - 0.5 * x[:, torch.arange(7, -1, -1)], (4, 8)),
    "cumsum": Loop(lambda x, i, w: x.cumsum(1) / 8 + x, (4, 8)),
    "matmul chain": Loop(lambda x, i, w: torch.relu(x @ w) + x, (4, 8), (8, 8)),
    "softmax and matmul": Loop(lambda x, i, w: torch.softmax(x @ x.T, -1) @ (x + w), (4, 8)),
    "windows": Loop(lambda x, i, w: x + F.avg_pool1d(F.pad(x, (1, 1)), 3, 1).tanh(), (2, 16)),
    "unfold": Loop(lambda x, i, w: F.pad(x, (2, 2)).unfold(-1, 5, 1).amax(-1) * 0.5 + x, (2, 12)),
    "convolution": Loop(lambda x, i, w: torch.tanh(F.conv1d(x, w, padding=1)) + x, (2, 2, 12), (2, 2, 3)),
    "layer norm": Loop(lambda x, i, w: x + F.layer_norm(x, (8,)).tanh() * w, (4, 8)),
    "self product": Loop(lambda x, i, w: x * x + 0.1 * x, (16,)),
    "turned cube": Loop(lambda x, i, w: x.permute(1, 2, 0).reshape(4, 3, 2).flip(i % 3) * 0.9 + w[i % 3], (4, 3, 2)),
    "reshape": Loop(lambda x, i, w: (x.reshape(8, 4) * 0.5 + x.T).reshape(4, 8), (4, 8)),
    "stacks of turned columns": Loop(lambda x, i, w: torch.stack(x.unbind(1), 0).flip(2) * 0.9 + w, (4, 4, 8)),
    "cat of rolled pieces": Loop(
        lambda x, i, w: torch.cat([x.roll(1, 1)[:, :3], x[:, 3:] + x[:, :5]], 1) * 0.7, (4, 8)
    ),
    "where by place": Loop(
        lambda x, i, w: torch.where(torch.arange(8) < i % 8, x.roll(1, -1), x.flip(-1)) * 0.9, (4, 8)
    ),
    "scatter of a turned row": Loop(
        lambda x, i, w: x.scatter(1, ((torch.arange(8) * 3 + i) % 8).expand(4, 8), x.flip(1) * 0.5 + w), (4, 8)
    ),
    "halves of a turned cube": Loop(
        lambda x, i, w: torch.cat([x[:, ::2], x[:, 1::2]], 1).permute(2, 1, 0) * 0.9, (4, 4, 4)
    ),
    "pads of a transpose": Loop(lambda x, i, w: F.pad(x, (1, 0, 0, 1))[1:, :-1].T * 0.9 + w, (8, 8)),
    "reshape, permute, flip": Loop(
        lambda x, i, w: (x.reshape(2, 4, 4).permute(2, 0, 1).flip(1).reshape(8, 4) + x) * 0.5, (8, 4)
    ),
    "gathers by values": Loop(lambda x, i, w: x.gather(1, (x.abs() * 7).long() % 8) + w, (4, 8)),
    "cumsum of turned rows": Loop(lambda x, i, w: x.flip(0).cumsum(0) / 4 - 0.5 * x.T, (8, 8)),
    "pieces of repeats": Loop(
        lambda x, i, w: x.repeat(2, 1)[i % 4 : i % 4 + 4] * 0.5 + x.repeat_interleave(2, 0)[1::2], (4, 8)
    ),
    "reversed digits": Loop(
        lambda x, i, w: x.view(2, 2, 2, 2).permute(3, 2, 1, 0).reshape(16) + 0.5 * x.roll(i), (16,)
    ),
    "diagonals": Loop(lambda x, i, w: x.tril() * 0.5 + torch.diag_embed(x.diagonal().flip(0)) + x.triu().T, (8, 8)),
}  # fmt: skip


def compiled(captured: Capture) -> tuple[Compilation, float]:
    """Return a compile and its seconds of CPU."""
    gc.collect()
    start = time.process_time()
    made = compiler_with(target()).compile(captured)
    assert made.cuda
    return made, time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--only", nargs="*", default=LOOPS)
    parser.add_argument("--profile", action="store_true", help="print the functions with the most time of their own")
    options = parser.parse_args()
    print(f"{'CPU seconds':20} {options.steps:>5} steps  KB of CUDA  kernels")
    for name in options.only:
        captured = LOOPS[name].capture(options.steps)
        profile = cProfile.Profile()
        if options.profile:
            profile.enable()
        made, seconds = compiled(captured)
        profile.disable()
        print(f"{name:20} {seconds:>11.2f}  {len(made.cuda) / 1e3:>10.1f} {len(made.kernels):>8}", flush=True)
        if options.profile:
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
