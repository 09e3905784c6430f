"""What is checked in f16 and in bf16, as `-c` texts whose floats have the default dtype. Data, no code."""

from __future__ import annotations

F16, BF16 = "dtype=torch.float16", "dtype=torch.bfloat16"

GROUPS = {
    "matmul": (
        "torch.randn(130, 72) @ torch.randn(72, 136)", "torch.mm(torch.randn(17, 33), torch.randn(33, 65))",
        "torch.randn(64, 256).T @ torch.randn(64, 128)", "torch.bmm(torch.randn(2, 5, 130), torch.randn(2, 130, 9))",
        "torch.randn(64, 2048) @ torch.randn(2048, 64)", "F.linear(torch.randn(40, 1030), torch.randn(66, 1030))",
    ),
    "linear, bias, gelu": (
        "F.gelu(nn.Linear(128, 96)(torch.randn(48, 128)))", "nn.Linear(33, 17)(torch.randn(2, 5, 33)).relu() + torch.randn(17)",
    ),
    "rows": (
        "torch.softmax(torch.randn(6, 1000), -1)", "torch.softmax(torch.randn(5, 97), -1)", "F.log_softmax(torch.randn(4, 33), -1)",
        "nn.RMSNorm(2048)(torch.randn(4, 2048))", "nn.RMSNorm(33)(torch.randn(7, 33))", "nn.LayerNorm(768)(torch.randn(5, 768))",
        "nn.LayerNorm(33)(torch.randn(2, 7, 33) + 3)", "F.normalize(torch.randn(5, 70), dim=-1)",
    ),
    "attention": (
        "F.scaled_dot_product_attention(torch.randn(1, 2, 33, 16), torch.randn(1, 2, 40, 16), torch.randn(1, 2, 40, 16))",
        "F.scaled_dot_product_attention(torch.randn(1, 2, 17, 8), torch.randn(1, 2, 17, 8), torch.randn(1, 2, 17, 8), is_causal=True)",
        "F.scaled_dot_product_attention(torch.randn(1, 2, 5, 8), torch.randn(1, 2, 11, 8), torch.randn(1, 2, 11, 8), "
        "attn_mask=torch.randn(5, 11) > 0)",
    ),
    "elementwise": (
        "F.silu(torch.randn(16, 512)) * torch.randn(16, 512)", "(torch.randn(7, 33) * 1.1 + 0.3).tanh() / 3", "torch.randn(7, 33) ** 2",
        "torch.where(torch.randn(7, 40) > 0, torch.randn(7, 40), -1.5)", "torch.randn(7, 33).masked_fill(torch.randn(33) > 0, float('-inf'))",
        "torch.randn(3, 1, 40) + torch.randn(5, 1)", "torch.clamp(torch.randn(7, 33), -0.5, 0.5)", "torch.maximum(torch.randn(9), torch.randn(9))",
    ),
    "embedding": (
        "nn.Embedding(50, 64)(torch.randint(0, 50, (3, 7)))", "torch.randn(20, 33)[torch.randint(0, 20, (6,))] + torch.randn(33)",
    ),
    "reductions": (
        "torch.randn(7, 1025).sum(-1)", "torch.randn(300).mean()", "torch.randn(5, 33).var(-1)", "torch.randn(5, 33).amax(-1)",
        "torch.randn(33, 5).sum(0)", "torch.randn(5, 200).argmax(-1)", "torch.randn(5, 33).sum(-1, dtype=torch.float32)",
        "torch.logsumexp(torch.randn(5, 33), -1)", "(torch.randn(5, 33) > 0).sum(-1)", "torch.randn(4, 33).cumsum(-1)",
    ),
    "conversions": (
        "torch.randn(7, 33).float() * 2", "torch.randn(7, 33, dtype=torch.float32).to(torch.get_default_dtype())",
        "torch.randint(-9, 9, (7, 33)) * torch.randn(7, 33)", "(torch.randn(7, 33) * 100).int()", "(torch.randn(7, 33) * 100).long() + 1",
        "torch.randint(-90000, 90000, (200,)).to(torch.bfloat16)", "torch.randn(40).to(torch.bfloat16).half()", "torch.randn(7, 33).bool()",
        "(torch.randn(99) > 0).to(torch.get_default_dtype()) * 3", "torch.arange(0, 2, 0.1).exp()",
    ),
    "mixed": (
        "torch.randn(7, 40) * torch.randn(7, 40, dtype=torch.float32)", f"torch.randn(7, 33, {F16}) + torch.randn(33, {BF16})",
        "torch.randn(48, 96).float() @ torch.randn(96, 64, dtype=torch.float32)", "torch.randn(64, 64).float() + torch.randn(64)",
        "(torch.randn(24, 64) @ torch.randn(64, 48)).float() + torch.randn(48, dtype=torch.float32)",
        "torch.randn(7, 33) * torch.tensor(1.5, dtype=torch.float32)",
    ),
    "blocks": (
        "(lambda x, g, u, d: x + d(F.silu(g(x)) * u(x)))(torch.randn(9, 32), nn.Linear(32, 48, bias=False), nn.Linear(32, 48, bias=False), "
        "nn.Linear(48, 32, bias=False))",
        "nn.Linear(64, 40, bias=False)(nn.RMSNorm(64)(torch.randn(20, 64)))",
        "(lambda x: (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * torch.randn(96))(torch.randn(5, 96))",
    ),
}  # fmt: skip
