"""A small decoder of Llama's kind is served at forty prompt lengths by one compile."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dplc
from dplc.engine.run.calls import accepted


class Decoder(nn.Module):
    """[s] tokens to [s, 53] logits: embedding, RMSNorm, rotary places, grouped heads, SwiGLU, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(53, 32)
        self.first, self.second, self.last = nn.RMSNorm(32), nn.RMSNorm(32), nn.RMSNorm(32)
        self.q, self.kv, self.out = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 32)
        self.gate, self.up, self.down = nn.Linear(32, 48), nn.Linear(32, 48), nn.Linear(48, 32)
        self.head = nn.Linear(32, 53)

    def forward(self, tokens: Any) -> Any:
        x = self.words(tokens)
        h = self.first(x)
        places = torch.arange(tokens.shape[0], dtype=x.dtype)[:, None] * 10.0 ** -torch.arange(4, dtype=x.dtype)
        q = self.rotated(self.q(h).unflatten(-1, (4, 8)).transpose(0, 1), places)
        k, v = self.kv(h).unflatten(-1, (4, 8)).transpose(0, 1).chunk(2, 0)
        k, v = self.rotated(k, places).repeat_interleave(2, 0), v.repeat_interleave(2, 0)
        heads = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
        x = x + self.out(heads.transpose(0, 1).flatten(1))
        h = self.second(x)
        return self.head(self.last(x + self.down(F.silu(self.gate(h)) * self.up(h))))

    @staticmethod
    def rotated(x: Any, places: Any) -> Any:
        a, b = x.chunk(2, -1)
        return torch.cat((a * places.cos() - b * places.sin(), b * places.cos() + a * places.sin()), -1)


@pytest.mark.parametrize("count", [3, pytest.param(40, marks=pytest.mark.slow)])
def test_prompt_lengths_are_one_compile(count: int) -> None:
    torch.manual_seed(0)
    decoder = Decoder().eval()
    size = dplc.Dim("s", 1, 128, hint=64)
    served = dplc.compile(decoder, (torch.randint(0, 53, (9,)),), dynamic={"tokens": {0: size}}, rows=())
    texts = {kernel.text for kernel in served.program.kernels}
    exact = Decoder().double().eval()
    exact.load_state_dict(decoder.state_dict())
    for length in (1, 128, *random.Random(0).choices(range(1, 129), k=count - 2)):
        tokens = torch.randint(0, 53, (length,))
        assert accepted([served(tokens)], [exact(tokens).detach()]), length
        assert {kernel.text for kernel in served.compilation.at({"s": length}).kernels} == texts
