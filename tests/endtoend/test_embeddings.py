"""Nets whose input is an embedding: what a table is read at is itself read from memory, often under several axes."""

from __future__ import annotations

import pytest
import torch

from dplc.codegen.judge import judge
from dplc.codegen.target import target
from dplc.engine.api import Compiled
from dplc.engine.capture.capture import capture, capture_text
from dplc.engine.compiler import compiler_with
from dplc.engine.run.calls import run_reference

ROWS = "i = torch.randint(0, 10, (5,))\nx = F.embedding(i, torch.randn(10, 8))\n"
BATCH = "i = torch.randint(0, 10, (2, 5))\nx = F.embedding(i, torch.randn(10, 8))\n"
TOWERS = "a, b = nn.Linear(8, 8, bias=False)(x), nn.Linear(8, 8, bias=False)(x)\n"
QKV = "q, k, v = nn.Linear(8, 8)(x), nn.Linear(8, 8)(x), nn.Linear(8, 8)(x)\n"
SPLIT = QKV + "q, k, v = (t.view(*t.shape[:-1], 2, 4).transpose(-2, -3) for t in (q, k, v))\n"
NETS = {
    "scores": ROWS + TOWERS + "a @ b.T",
    "one tower": ROWS + "a = nn.Linear(8, 8)(x)\na @ x.T",
    "attention": ROWS + TOWERS + "x + torch.softmax(a @ b.T, -1) @ x",
    "attention of three": ROWS + QKV + "torch.softmax(q @ k.T * 0.3, -1) @ v",
    "sdpa": BATCH + SPLIT + "x + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 5, 8)",
    "sdpa, causal": ROWS + SPLIT + "F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)",
    "attention of a batch": BATCH + QKV + "torch.softmax(q @ k.transpose(1, 2), -1) @ v",
    "pair MLP": ROWS + TOWERS + "nn.Linear(8, 3)(torch.relu(a[:, None] + b[None]))",
    "pairwise distances": ROWS + "a = nn.Linear(8, 8)(x)\n((a[:, None] - x[None]) ** 2).sum(-1)",
    "DLRM": (
        "d = nn.Linear(4, 8)(torch.randn(6, 4))\nt = [nn.Embedding(7, 8)(torch.randint(0, 7, (6,))) for _ in range(3)]\n"
        "z = torch.stack([torch.relu(d), *t], 1)\ns = z @ z.transpose(1, 2)\n"
        "nn.Linear(24, 1)(torch.cat([d, s.flatten(1)], 1))"
    ),
    "two reads": ROWS + "torch.exp(x)[:, None] * torch.tanh(x)[None]",
    "post-norm block": (
        BATCH + SPLIT + "h = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 5, 8)\n"
        "h = F.layer_norm(x + nn.Linear(8, 8)(h), (8,))\nF.layer_norm(h + nn.Linear(12, 8)(F.gelu(nn.Linear(8, 12)(h))), (8,))"
    ),
    "norm first": ROWS + "x = F.rms_norm(x, (8,))\n" + TOWERS + "torch.softmax(a @ b.T, -1) @ x",
    "scores of a norm, values as they are": (
        ROWS + "h = F.rms_norm(x, (8,))\nF.scaled_dot_product_attention(h[None], h[None], x[None], is_causal=True)"
    ),
    "a query over keys that are looked up": (
        "i = torch.randint(0, 40, (33,))\nk, v = torch.randn(40, 64), torch.randn(40, 64)\nq = torch.randn(4, 1, 64)\n"
        "torch.softmax(q @ k[i].T * 0.1, -1) @ v[i]"
    ),
    "tables that batches choose": (
        "c = torch.randint(0, 5, (2,))\nk, v = torch.randn(5, 12, 8), torch.randn(5, 12, 8)\n"
        "F.scaled_dot_product_attention(torch.randn(2, 9, 8), k[c], v[c])"
    ),
    "positions": ROWS + "x = x + torch.randn(5, 8)\n" + TOWERS + "torch.softmax(a @ b.T, -1) @ x",
    "contrast of two tables": (
        "i, j = torch.randint(0, 9, (4,)), torch.randint(0, 9, (6,))\nt = torch.randn(9, 8)\n"
        "F.normalize(t[i], dim=-1) @ F.normalize(t[j], dim=-1).T"
    ),
    "tied head": BATCH.replace("torch.randn(10, 8)", "t") .replace("x =", "t = torch.randn(10, 8)\nx =") + "nn.Linear(8, 8)(x) @ t.T",
    "ragged, 50 wide": "nn.Linear(64, 50)(nn.Embedding(9, 64)(torch.randint(0, 9, (7,))))",
    "ragged, 72 wide": "nn.Linear(72, 72, bias=False)(nn.Embedding(9, 72)(torch.randint(0, 9, (13,))))",
    "ragged, twice looked up": (
        "i = torch.randint(0, 9, (4,))[torch.randint(0, 4, (50,))]\nnn.Linear(36, 100)(torch.randn(9, 36)[i])"
    ),
    "bag": BATCH + "a = x.mean(1)\nnn.Linear(8, 8)(a) @ a.T",
    "graph": ROWS + "e = torch.randint(0, 5, (2, 7))\na = nn.Linear(8, 1)(torch.tanh(x[e[0]] * nn.Linear(8, 8)(x)[e[1]]))\na * x[e[0]]",
}  # fmt: skip


ALWAYS = (
    "scores", "attention", "sdpa", "attention of a batch", "DLRM", "post-norm block", "ragged, 72 wide", "ragged, twice looked up",
    "scores of a norm, values as they are",
)  # fmt: skip
CASES = [pytest.param(text, id=name, marks=() if name in ALWAYS else pytest.mark.slow) for name, text in NETS.items()]


@pytest.mark.parametrize("text", CASES)
@pytest.mark.sampled(2)
def test_net(text: str) -> None:
    torch.set_num_threads(1)
    captured = capture_text(text)
    compilation = compiler_with(target()).compile(captured)
    results = Compiled(compilation, "emulator").run({})
    references = run_reference(compilation.captured, compilation.captured.tensors)
    assert captured.reference is not None
    found = judge(results, references, captured.reference)
    assert found.ok, f"{text}\n{found}"


class Rows(torch.nn.Module):
    def __init__(self, width: int, columns: int):
        super().__init__()
        self.table, self.linear = torch.nn.Embedding(9, width), torch.nn.Linear(width, columns)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.linear(self.table(ids))
        return result


WIDTHS = [(width, width) for width in range(24, 101, 4)] + [(64, 100), (96, 50)]
FEW = [(1, 24, 24), (7, 64, 50), (13, 72, 72), (40, 36, 100)]
MANY = [(rows, *widths) for rows in range(1, 41) for widths in WIDTHS]


@pytest.mark.parametrize("shapes", [FEW, pytest.param(MANY, marks=pytest.mark.slow)], ids=["few", "many"])
def test_every_shape_compiles(shapes: list[tuple[int, int, int]]) -> None:
    for rows, width, columns in shapes:
        captured = capture(Rows(width, columns), [torch.zeros(rows, dtype=torch.long)])
        for device in ("sm_80", "sm_90a", "sm_120"):
            compiler_with(target(device)).compile(captured)
