"""Products and attention whose results are stored in whatever order a model asks for, and whose rows come in batches: each
is run whole in checked mode and compared with float64."""

from __future__ import annotations

import pytest
import torch
from test_transposed import run_right

from dplc.codegen.target import target
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import Compilation, Compiler
from dplc.engine.ruleset import toolchain

SDPA = "F.scaled_dot_product_attention"


def heads(rows: int, queries: int, keys: int, size: int, batch: int = 1) -> str:
    """Attention as a decoder layer writes it: projections, rotations by places, grouped heads, results by row."""
    return f"""
D = {size}
def rotated(x, c, s): return x * c + torch.cat((-x[..., D // 2:], x[..., :D // 2]), -1) * s
q, k, v = (torch.randn({batch}, {rows}, n, D).transpose(1, 2) for n in ({queries}, {keys}, {keys}))
c, s = torch.randn({rows}, D), torch.randn({rows}, D)
o = {SDPA}(rotated(q, c, s), rotated(k, c, s), v, is_causal=True, enable_gqa=True)
o.transpose(1, 2).reshape({batch}, {rows}, {queries} * D)
"""


CASES = {
    "batch": "nn.Linear(40, 24)(torch.randn(2, 17, 40))",
    "batch of one row": "nn.Linear(36, 24)(torch.randn(13, 1, 36))",
    "four dimensions": "nn.Linear(36, 20)(torch.randn(2, 3, 5, 36))",
    "transposed rows": "nn.Linear(40, 24)(torch.randn(17, 3, 40).transpose(0, 1))",
    "the first rows": "nn.Linear(40, 24)(torch.randn(3, 19, 40)[:, :17])",
    "heads of a weight": "torch.einsum('bsd,dhk->bhsk', torch.randn(2, 17, 40), torch.randn(40, 3, 8))",
    "heads of both": "torch.einsum('bshd,hdk->bhsk', torch.randn(2, 17, 3, 40), torch.randn(3, 40, 8))",
    "batches in between": "torch.einsum('mbk,bkn->mbn', torch.randn(17, 3, 40), torch.randn(3, 40, 24))",
    "an embedding, batched": "nn.Linear(40, 24)(nn.Embedding(11, 40)(torch.randint(0, 11, (2, 7))))",
    "a residual": "torch.randn(2, 5, 24) + nn.Linear(520, 24)(torch.randn(2, 5, 520))",
    "two sums": "x = torch.randn(5, 520); F.silu(nn.Linear(520, 24)(x)) * nn.Linear(520, 24)(x)",
    "whole numbers": "torch.randint(-9, 9, (5, 520)) @ torch.randint(-9, 9, (520, 24))",
    "attention by rows": heads(17, 2, 1, 64),
    "attention by rows, batched": heads(33, 2, 2, 64, 2),
}
MORE = {
    "prime": "nn.Linear(37, 23)(torch.randn(3, 31, 37))",
    "halves": "nn.Linear(40, 24, dtype=torch.bfloat16)(torch.randn(2, 17, 40, dtype=torch.bfloat16))",
    "attention, four heads": heads(65, 4, 2, 64),
    "attention of 128": heads(37, 4, 1, 128),
    "attention, transposed results": f"{SDPA}(*(torch.randn(2, 3, 29, 64) for _ in range(3))).transpose(-1, -2)",
    "attention, masked": f"q = torch.randn(2, 3, 29, 64); {SDPA}(q, q + 1, q, attn_mask=torch.randn(29, 29)).transpose(1, 2)",
    "sums of 4096": "r = torch.randn(3, 40); r + nn.Linear(4096, 40)(torch.randn(3, 4096))",
    "residual of two": "x = torch.randn(2, 3, 1032); x[..., :24] + nn.Linear(1032, 24)(x) * nn.Linear(1032, 24)(x)",
}
FORMS = ("online_attention", "online_attention_masked", "online_attention_weights")
ALWAYS = {rule: {"SLOWER": 1000} for rule in FORMS}  # so few rows are faster in three kernels


def compiled(text: str, device: str, one_pass: bool) -> Compilation:
    torch.set_num_threads(1)
    return Compiler(toolchain(None, ALWAYS if one_pass else {}), target(device)).compile(capture_text(text))


def check(text: str, device: str, one_pass: bool) -> None:
    run_right(compiled(text, device, one_pass))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.sampled(2)
def test_right_in_checked_mode(name: str) -> None:
    check(CASES[name], "h200", True)


@pytest.mark.slow
@pytest.mark.parametrize("device", ("a100", "rtx5090", "h200"))
@pytest.mark.parametrize("name", (*CASES, *MORE))
def test_right_on_every_device(name: str, device: str) -> None:
    for one_pass in (True, False):
        check({**CASES, **MORE}[name], device, one_pass)
