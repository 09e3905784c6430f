"""Programs of the suites over a length S and a length T, as `-c` texts. Data, no code."""

from __future__ import annotations

RANGES = {"S": "dim(s, 1..144, hint=64)", "T": "dim(t, 1..96, hint=32)"}

ELEMENTS = (
    "F.gelu(torch.randn(S, 300)) * 2 + 1", "torch.randn(S) * torch.randn(S) + torch.randn(())",
    "torch.relu(torch.randn(S, 1, 33) + torch.randn(T, 33))", "torch.sigmoid(torch.randn(3, S, 5).transpose(0, 1))",
    "torch.where(torch.randn(S, 7) > 0, torch.randn(S, 7), torch.randn(7))", "F.silu(torch.randn(S, 40)) * torch.randn(S, 40)",
    "torch.randn(S, 12, dtype=torch.bfloat16) * torch.randn(12, dtype=torch.bfloat16)", "torch.randint(-9, 9, (S, 5)) // 3",
)  # fmt: skip
ROWS = (
    "F.rms_norm(torch.randn(S, 256), (256,), torch.randn(256))", "F.layer_norm(torch.randn(S, 300), (300,), torch.randn(300), torch.randn(300))",
    "torch.softmax(torch.randn(S, 96), -1)", "F.log_softmax(torch.randn(5, S, 17), -1)", "F.normalize(torch.randn(S, 33), dim=-1)",
    "torch.randn(S, 50).amax(-1)", "torch.randn(S, 50).argmax(-1)", "torch.randn(S, 7, 9).mean((1, 2))", "torch.randn(S, 64).var(-1)",
    "torch.logsumexp(torch.randn(S, 130), -1)", "torch.randn(S, 6, 4).prod(1)", "torch.randn(S, 33).cumsum(-1)",
)  # fmt: skip
ALONG = (
    "torch.randn(16, S).softmax(-1)", "torch.randn(S, 40).sum(0)", "torch.randn(3, S).cumsum(-1)", "torch.randn(7, S).amax(-1)",
    "torch.randn(5, S).mean(-1)", "torch.randn(5, S).argmin(-1)", "torch.randn(S, T).sum()", "(lambda x: F.layer_norm(x, (x.shape[-1],)))(torch.randn(9, S))",
    "torch.randn(S, 8, T).softmax(0)", "(torch.randn(4, S) > 0).any(-1)", "torch.logsumexp(torch.randn(S, 12), 0)", "torch.randn(6, S).norm(dim=-1)",
)  # fmt: skip
PRODUCTS = (
    "F.linear(torch.randn(S, 96), torch.randn(64, 96), torch.randn(64))", "torch.randn(S, 64) @ torch.randn(64, T)",
    "torch.randn(17, S) @ torch.randn(S, 33)", "torch.randn(2, S, 32) @ torch.randn(2, 32, T)", "torch.randn(S, 48) @ torch.randn(48)",
    "torch.outer(torch.randn(S), torch.randn(T))", "torch.relu(F.linear(F.rms_norm(torch.randn(S, 64), (64,)), torch.randn(80, 64)))",
    "(lambda x, a, b, c: (F.silu(x @ a) * (x @ b)) @ c)(torch.randn(S, 32), torch.randn(32, 48), torch.randn(32, 48), torch.randn(48, 32))",
    "torch.einsum('bij,bjk->bik', torch.randn(2, S, 7), torch.randn(2, 7, T))",
    "(torch.randn(S, 64, dtype=torch.bfloat16) @ torch.randn(64, 32, dtype=torch.bfloat16))",
)  # fmt: skip
ATTENTION = (
    "F.scaled_dot_product_attention(torch.randn(1, 2, S, 32), torch.randn(1, 2, S, 32), torch.randn(1, 2, S, 32))",
    "F.scaled_dot_product_attention(torch.randn(1, 2, S, 32), torch.randn(1, 2, S, 32), torch.randn(1, 2, S, 32), is_causal=True)",
    "F.scaled_dot_product_attention(torch.randn(2, S, 16), torch.randn(2, T, 16), torch.randn(2, T, 16))",
    "F.scaled_dot_product_attention(torch.randn(1, 4, S, 16), torch.randn(1, 2, S, 16), torch.randn(1, 2, S, 16), enable_gqa=True)",
    "F.scaled_dot_product_attention(torch.randn(1, 2, S, 16), torch.randn(1, 2, T, 16), torch.randn(1, 2, T, 16), attn_mask=torch.randn(S, T))",
    "(lambda x: ((x @ x.mT) * 0.25 + torch.triu(torch.full((x.shape[0], x.shape[0]), -1e9), 1)).softmax(-1) @ x)(torch.randn(S, 16))",
)  # fmt: skip
PLACES = (
    "torch.cat([torch.randn(S, 40), torch.randn(T, 40)], 0)", "F.embedding(torch.randint(0, 50, (S,)), torch.randn(50, 24))",
    "torch.randn(S, 10, 4).reshape(-1, 4) * 2", "torch.randn(S, 24).view(-1, 3, 8).transpose(1, 2).contiguous()",
    "torch.randn(S, 24)[:, ::3].flip(0)", "torch.randn(S, 9)[-1]", "(lambda x: x + torch.arange(x.shape[0])[:, None])(torch.randn(S, 40))",
    "torch.tril(torch.ones(S, T) * torch.randn(T))", "torch.randn(4, S).index_select(0, torch.randint(0, 4, (T,)))",
    "torch.gather(torch.randn(S, 30), 1, torch.randint(0, 30, (S, 5)))", "(lambda x: torch.cat([x, x.roll(1, 0)], -1))(torch.randn(S, 6))",
    "(lambda x, t: torch.stack([x * t.cos(), x * t.sin()], -1).flatten(-2))(torch.randn(2, S, 8), torch.randn(S, 8))",
)  # fmt: skip

PROGRAMS = (*ELEMENTS, *ROWS, *ALONG, *PRODUCTS, *ATTENTION, *PLACES)
