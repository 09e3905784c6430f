"""Tensors without elements fold away: as inputs, on the way, and as results."""

from __future__ import annotations

import pytest
import torch
from capture_checks import evaluated

import dplc
from dplc.codegen.target import target
from dplc.engine.api import Compiled
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import compiler_with

SOME = torch.randn(3, 4)

# x and i have no elements, y and h have some, and l @ r is over nothing.
GIVEN = (
    "x, y, l, r = torch.randn(0, 4), torch.randn(3, 4), torch.randn(3, 0), torch.randn(0, 5)\n"
    "i, h = torch.zeros(0, dtype=torch.long), torch.randn(3, 4, dtype=torch.float16)\n"
)
REDUCTIONS = (
    "x.sum(0)", "x.sum()", "x.mean(0)", "x.prod(0)", "(x > 0).all()", "(x > 0).any()", "x.logsumexp(0)", "x.norm()", "x.amax(1)",
    "x.argmax(1)", "x.softmax(0)", "x.cumsum(0)", "F.mse_loss(x, x)",
)  # fmt: skip
READ = (
    # a vector that cat skips; of another dtype, of integers
    "torch.cat([torch.tensor([]), torch.randn(1, 2, 3, 4)], -2)",
    "torch.cat([torch.tensor([]), h])",
    "torch.cat([torch.zeros(0, 4, dtype=torch.long), h])",
    # in the middle, all of them, a part of a row
    "torch.cat([y, y[:0], y])",
    "torch.cat([y[:0], y[:0]])",
    "torch.cat([y[:, :4].sin(), y[:, 4:]], -1)",
    "[z * 2 for z in torch.split(y, [1, 0, 2])]",
    "torch.split(y, [0, 3])",
    "torch.stack([x, x])",
    "y[:, 4:]",
    "torch.slice_scatter(y, x, 0, 2, 2)",
    "F.pad(x, (0, 0, 1, 2), value=3.0)",
    "y.repeat(0, 1)",
    "x",
    "{'none': x + 1, 'some': y + 1}",
    "x + y[:1]",
    "l @ r",
    "x @ torch.randn(4, 5)",
    "F.linear(l, torch.randn(5, 0), torch.randn(5))",
    "torch.addmm(torch.randn(3, 5), l, r, beta=0.5)",
    "torch.baddbmm(torch.randn(2, 3, 5), torch.randn(2, 3, 0), torch.randn(2, 0, 5))",
    "torch.einsum('ik,kj->ij', l, r)",
    "y[i]",
    "torch.cat([F.embedding(i, y), y])",
    "y.index_add(0, i, x)",
    "y.scatter_add(0, i.reshape(0, 4), x)",
    "x.sum(0) * y + x.prod()",
    "x.bfloat16().sum(0) + 1",
    # no keys, no width
    "F.scaled_dot_product_attention(torch.randn(2, 3, 4), torch.randn(2, 0, 4), torch.randn(2, 0, 4))",
    "F.scaled_dot_product_attention(torch.randn(2, 3, 0), torch.randn(2, 3, 0), torch.randn(2, 3, 4))",
    "nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 5))(x)",
    "nn.Linear(0, 5)(l)",
    "nn.Linear(4, 0)(y)",
)  # fmt: skip


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize("text", (*REDUCTIONS, *READ))
@pytest.mark.sampled(30)
def test_what_reads_tensors_without_elements(text: str) -> None:
    captured = capture_text(GIVEN + text)
    compilation = compiler_with(target()).compile(captured)
    for device in ("emulator", "reference"):
        found = Compiled(compilation, device)(*map(captured.tensors.__getitem__, captured.inputs))
        torch.testing.assert_close(found, evaluated(GIVEN + text), equal_nan=True)


def test_an_empty_result_is_new_at_every_call() -> None:
    compiled = dplc.compile(lambda x: x[3:], (SOME,), device="emulator")
    first, second = compiled(SOME), compiled(SOME)
    assert first.shape == (0, 4) and first is not second
    assert not compiled.program.kernels


def test_a_cache_before_its_first_token_costs_nothing() -> None:
    cached = dplc.compile(lambda x: torch.cat([torch.tensor([]), x * 2]), (SOME,), device="emulator")
    assert len(cached.program.kernels) == 1


def test_nothing_of_every_size() -> None:
    """A part of a row that is empty whatever the number of rows: it is left out; as a result it is refused."""
    size = {"x": {0: dplc.Dim("s", 1, 64)}}
    kept = dplc.compile(lambda x: torch.cat([x[..., :4] * 2, x[..., 4:]], -1), (SOME,), dynamic=size)
    for rows in (1, 3, 17):
        x = torch.randn(rows, 4)
        assert torch.equal(kept(x), x * 2)
    with pytest.raises(dplc.DplcError, match="has no elements, whatever its sizes are"):
        dplc.compile(lambda x: x[..., 4:] * 2, (SOME,), dynamic=size)
