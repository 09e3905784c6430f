"""Every op that dplc promises, as `-c` texts over awkward shapes: primes, ones, ragged tails. Data, no code."""

from __future__ import annotations

from nested import NESTED
from scans import SCANS
from windows import CONVOLUTIONS, POOLS

A = "torch.randn(7, 33)"
UNARY = (
    "exp", "exp2", "expm1", "tanh", "sigmoid", "sin", "cos", "tan", "atan", "sinh", "cosh", "erf", "abs", "neg", "sign", "floor", "ceil",
    "trunc", "round", "relu", "square", "negative",
)  # fmt: skip
POSITIVE = ("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal")
ACTIVATIONS = (
    "F.relu(x)", "F.relu6(x)", "F.leaky_relu(x, 0.1)", "F.elu(x)", "F.selu(x)", "F.celu(x, 0.7)", "F.silu(x)", "F.mish(x)", "F.hardtanh(x)",
    "F.hardswish(x)", "F.hardsigmoid(x)", "F.softplus(x)", "F.softsign(x)", "F.logsigmoid(x)", "F.gelu(x)", "F.gelu(x, approximate='tanh')",
    "F.tanhshrink(x)", "F.softshrink(x)", "F.hardshrink(x)", "F.threshold(x, 0.1, 2.0)", "F.glu(torch.cat([x, x * 2], -1))",
    "nn.PReLU()(x)",
)  # fmt: skip
BINARY = (
    "x + y", "x - y", "x * y", "x / y", "x ** 2", "x ** 3", "x.abs() ** 0.5", "x.abs() ** y", "2.0 ** x", "1.0 - x", "3 / x", "x + 1", "x * 2", "x // y",
    "x % y", "torch.fmod(x, y)", "torch.remainder(x, 0.7)", "torch.floor_divide(x, y)", "torch.div(x, y, rounding_mode='trunc')",
    "torch.div(x, y, rounding_mode='floor')", "torch.maximum(x, y)", "torch.minimum(x, y)", "torch.lerp(x, y, 0.3)", "torch.atan2(x, y)",
    "torch.addcmul(x, y, y, value=0.5)", "torch.addcdiv(x, y, x, value=0.5)", "torch.add(x, y, alpha=2)", "torch.sub(x, y, alpha=0.5)",
    "torch.rsub(x, y)", "x < y", "x <= y", "x > y", "x >= y", "x == y", "x != y", "(x > 0) & (y > 0)", "(x > 0) | (y > 0)", "(x > 0) ^ (y > 0)",
    "~(x > 0)", "torch.logical_and(x > 0, y > 0)", "torch.logical_not(x > 0)", "torch.where(x > 0, x, y)", "torch.where(x > 0, x, 0.0)",
    "torch.clamp(x, -0.5, 0.5)", "torch.clamp(x, min=0.1)", "torch.clamp(x, max=y)", "x.masked_fill(y > 0, -1.0)", "torch.hypot(x, y)",
)  # fmt: skip
MATMUL = (
    "torch.randn(5, 7) @ torch.randn(7, 3)", "torch.mm(torch.randn(17, 33), torch.randn(33, 65))", "torch.randn(3, 5, 7) @ torch.randn(3, 7, 4)",
    "torch.bmm(torch.randn(2, 5, 7), torch.randn(2, 7, 9))", "torch.mv(torch.randn(5, 7), torch.randn(7))", "torch.randn(7) @ torch.randn(7, 3)",
    "torch.randn(7) @ torch.randn(7)", "torch.dot(torch.randn(31), torch.randn(31))", "torch.outer(torch.randn(5), torch.randn(7))",
    "F.linear(torch.randn(4, 33), torch.randn(17, 33))", "nn.Linear(33, 17)(torch.randn(2, 5, 33))", "nn.Linear(1, 5)(torch.randn(3, 1))",
    "torch.addmm(torch.randn(5, 9), torch.randn(5, 7), torch.randn(7, 9), beta=0.5, alpha=2.0)", "torch.addmm(torch.randn(9), torch.randn(5, 7), torch.randn(7, 9))",
    "torch.baddbmm(torch.randn(2, 5, 9), torch.randn(2, 5, 7), torch.randn(2, 7, 9))", "torch.einsum('bij,bjk->bik', torch.randn(2, 5, 7), torch.randn(2, 7, 3))",
    "torch.einsum('ij->ji', torch.randn(5, 7))", "torch.einsum('ij->i', torch.randn(5, 7))", "torch.einsum('i,j->ij', torch.randn(5), torch.randn(7))",
    "torch.einsum('bhid,bhjd->bhij', torch.randn(2, 3, 5, 7), torch.randn(2, 3, 11, 7))", "torch.randn(2, 1, 5, 7) @ torch.randn(3, 7, 4)",
    "torch.relu(torch.matmul(torch.randn(16, 64) + torch.randn(64), torch.randn(64, 16)))", "torch.randn(1, 129) @ torch.randn(129, 1)",
    "torch.randn(130, 70) @ torch.randn(70, 131)", "torch.randn(64, 256).T @ torch.randn(64, 128)", "(lambda a: a @ a.T)(torch.randn(19, 23))",
    "torch.einsum('ij,jk,kl->il', torch.randn(3, 4), torch.randn(4, 5), torch.randn(5, 6))", "torch.einsum('ii->i', torch.randn(5, 5))",
)  # fmt: skip
REDUCTIONS = (
    "x.sum()", "x.sum(0)", "x.sum(-1)", "x.sum((0, 2))", "x.sum((1, 2), keepdim=True)", "x.mean()", "x.mean(1)", "x.mean((0, 1), keepdim=True)", "x.amax(-1)",
    "x.amax((0, 2))", "x.amin(1, keepdim=True)", "x.max()", "x.min()", "x.max(-1).values", "x.min(0).values", "x.prod()", "x.prod(1)", "x.var()", "x.var(-1)",
    "x.var(-1, unbiased=False)", "torch.var(x, dim=(0, 2), correction=0)", "x.std(-1)", "x.std()", "torch.std(x, dim=1, keepdim=True)", "x.norm()",
    "torch.linalg.vector_norm(x, dim=-1)", "(x > 0).all()", "(x > 0).any(-1)", "(x > 0).sum(-1)", "x.argmax(-1)", "x.argmin(0)", "x.argmax()",
    "x.argmax(1, keepdim=True)", "x.cumsum(-1)", "x.cumsum(0)", "torch.logsumexp(x, -1)", "torch.logsumexp(x, (1, 2))", "x.softmax(-1)", "x.softmax(1)",
    "F.log_softmax(x, -1)", "F.log_softmax(x, 0)", "F.softmin(x, -1)", "torch.aminmax(x, dim=-1)", "x.sum(-1).sum(-1)", "torch.count_nonzero(x > 0)",
    "torch.var_mean(x, -1)", "torch.std_mean(x, dim=1)",
)  # fmt: skip
NORMS = (
    "nn.RMSNorm(33)(torch.randn(7, 33))", "nn.RMSNorm(2048)(torch.randn(1, 32, 2048))", "F.rms_norm(torch.randn(5, 17), (17,))", "nn.RMSNorm((3, 5))(torch.randn(4, 3, 5))",
    "nn.LayerNorm(33)(torch.randn(2, 7, 33))", "nn.LayerNorm((5, 33))(torch.randn(7, 5, 33))", "nn.LayerNorm(33, elementwise_affine=False)(torch.randn(7, 33))",
    "nn.LayerNorm(1024)(torch.randn(3, 1024))", "nn.GroupNorm(3, 12)(torch.randn(2, 12, 5, 7))", "nn.GroupNorm(2, 6)(torch.randn(3, 6))",
    "nn.BatchNorm1d(7)(torch.randn(5, 7))", "nn.BatchNorm2d(3)(torch.randn(2, 3, 5, 7))", "nn.InstanceNorm1d(3)(torch.randn(2, 3, 11))",
    "F.normalize(torch.randn(5, 7), dim=-1)", "F.cosine_similarity(torch.randn(5, 7), torch.randn(5, 7))",
)  # fmt: skip
ATTENTION = (
    "F.scaled_dot_product_attention(torch.randn(1, 4, 3, 8), torch.randn(1, 2, 5, 8), torch.randn(1, 4, 5, 8), enable_gqa=True)",
    "F.scaled_dot_product_attention(torch.randn(2, 3, 17, 8), torch.randn(2, 3, 17, 8), torch.randn(2, 3, 17, 8))",
    "F.scaled_dot_product_attention(torch.randn(1, 2, 17, 8), torch.randn(1, 2, 17, 8), torch.randn(1, 2, 17, 8), is_causal=True)",
    "F.scaled_dot_product_attention(torch.randn(1, 2, 5, 8), torch.randn(1, 2, 11, 8), torch.randn(1, 2, 11, 6), scale=0.3)",
    "F.scaled_dot_product_attention(torch.randn(1, 2, 5, 8), torch.randn(1, 2, 11, 8), torch.randn(1, 2, 11, 8), attn_mask=torch.randn(5, 11))",
    "F.scaled_dot_product_attention(torch.randn(1, 2, 5, 8), torch.randn(1, 2, 11, 8), torch.randn(1, 2, 11, 8), attn_mask=torch.randn(5, 11) > 0)",
    "F.scaled_dot_product_attention(torch.randn(2, 4, 9, 8), torch.randn(2, 2, 9, 8), torch.randn(2, 2, 9, 8), is_causal=True, enable_gqa=True)",
    "F.scaled_dot_product_attention(torch.randn(3, 7, 8), torch.randn(3, 7, 8), torch.randn(3, 7, 8))",
)  # fmt: skip
VIEWS = (
    "x.view(6, 35)", "x.reshape(-1)", "x.reshape(7, 5, 6)", "x.flatten(1)", "x.unflatten(1, (1, 5))", "x.transpose(0, 2)", "x.permute(2, 0, 1)", "x.mT",
    "x[0].t()", "x.expand(6, 5, 7)", "x[:, :1].expand(6, 5, 7)", "x.repeat(2, 1, 3)", "x[1:5]", "x[:, 1:4:2]", "x[::2, :, ::3]", "x[..., -1]", "x[2]", "x[:, -2]",
    "x[1:-1, 2:]", "x.select(1, 3)", "x.narrow(0, 1, 3)", "torch.cat([x, x * 2], 0)", "torch.cat([x, x[:, :2], x], 1)", "torch.stack([x, x + 1, x + 2])",
    "torch.stack([x, x], -1)", "x.chunk(2)[1]", "x.chunk(4, -1)", "x.split(4)", "x.split([1, 2, 3])", "torch.unbind(x, 1)[2]", "x.flip(0)", "x.flip(0, 2)",
    "x.roll(2, 0)", "x.roll((1, 2), (0, 2))", "x.roll(3)", "F.pad(x, (1, 2))", "F.pad(x, (1, 2, 3, 0), value=1.5)", "F.pad(x, (-1, 1))", "x.unsqueeze(1)", "x.unsqueeze(-1).squeeze(-1)",
    "x[:, :1].squeeze()", "x[None]", "torch.tril(x)", "torch.triu(x, 1)", "torch.tril(x[0], -1)", "x.contiguous().clone()", "x.T if x.dim() == 2 else x.mT",
    "x.reshape(3, 2, 5, 7).transpose(1, 2).reshape(3, 70)", "x.movedim(0, -1)", "x.swapaxes(0, 1)", "x.diagonal()", "torch.meshgrid(x[0, 0], x[0, 1], indexing='ij')[0]",
    "x.repeat_interleave(2, 1)", "x.view_as(x)", "F.pad(x, (1, 1), mode='replicate')", "F.pad(x, (1, 1), mode='reflect')", "x.unfold(0, 3, 2)",
)  # fmt: skip
INDEXING = (
    "F.embedding(torch.randint(0, 11, (3, 5)), torch.randn(11, 7))", "nn.Embedding(11, 7)(torch.randint(0, 11, (4,)))",
    "torch.index_select(torch.randn(5, 7), 0, torch.tensor([4, 0, 2]))", "torch.randn(5, 7)[torch.tensor([4, 0, 2])]", "torch.randn(5, 7)[:, torch.tensor([1, 1, 6])]",
    "torch.randn(5, 7)[torch.tensor([0, 1]), torch.tensor([3, 6])]", "torch.gather(torch.randn(5, 7), 1, torch.randint(0, 7, (5, 3)))",
    "torch.gather(torch.randn(5, 7), 0, torch.randint(0, 5, (2, 7)))", "torch.take_along_dim(torch.randn(5, 7), torch.randint(0, 7, (5, 2)), 1)",
    "torch.randn(4, 3) + torch.arange(3)", "torch.zeros(3, 4) + torch.ones(4) * 2", "torch.full((3,), 2.5) * torch.randn(2, 3)", "torch.zeros_like(torch.randn(3)) + torch.randn(3)",
    "F.one_hot(torch.randint(0, 5, (3, 2)), 5)", "torch.eye(4) @ torch.randn(4, 3)", "torch.linspace(0, 1, 5) * torch.randn(2, 5)",
)  # fmt: skip
DTYPES = (
    "torch.randint(0, 9, (3, 5)) + torch.randint(0, 9, (5,))", "torch.randint(1, 9, (3, 5)) // 2", "torch.randint(-9, 9, (3, 5)) % 4", "torch.randint(1, 9, (3, 5)) / 2",
    "torch.randint(0, 9, (3, 5)).float() * 0.5", "torch.randint(0, 9, (3, 5)).sum(-1)", "torch.randint(0, 9, (3, 5), dtype=torch.int32).sum(-1)",
    "(torch.randn(3, 5) * 3).long()", "(torch.randn(3, 5) > 0).float()", "torch.randint(0, 2, (3, 5)).bool()", "torch.randint(0, 9, (7,)) * torch.randn(7)",
    "torch.randint(0, 9, (3, 5)).max(-1).values", "torch.randint(0, 9, (3, 5), dtype=torch.int32) * 2", "torch.randint(0, 9, (4, 4)).to(torch.int32)",
    "(torch.randn(3, 5) > 0) == (torch.randn(3, 5) > 0)", "torch.randint(0, 9, (3, 5)) ** 2", "torch.randint(0, 9, (3,)).clamp(2, 5)", "-torch.randint(0, 9, (3,))",
)  # fmt: skip
BLOCKS = (
    "(lambda x, g, u, d: (F.silu(x @ g) * (x @ u)) @ d)(torch.randn(5, 24), torch.randn(24, 40), torch.randn(24, 40), torch.randn(40, 24))",
    "x = torch.randn(6, 32)\nh = x + nn.Linear(32, 32)(nn.RMSNorm(32)(x))\nh + nn.Linear(48, 32)(F.gelu(nn.Linear(32, 48)(nn.LayerNorm(32)(h))))",
    "class Rope(nn.Module):\n    def forward(self, q):\n        n, d = q.shape[-2:]\n        inv = 1.0 / (10000 ** (torch.arange(0, d, 2) / d))\n"
    "        a = torch.outer(torch.arange(n).float(), inv)\n        a = torch.cat([a, a], -1)\n        half = torch.cat([-q[..., d // 2:], q[..., :d // 2]], -1)\n"
    "        return q * a.cos() + half * a.sin()\nRope()(torch.randn(2, 3, 7, 8))",
    "class Attention(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.qkv = nn.Linear(24, 72)\n        self.out = nn.Linear(24, 24)\n"
    "    def forward(self, x):\n        b, n, _ = x.shape\n        q, k, v = (t.view(b, n, 3, 8).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))\n"
    "        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)\n        return self.out(y.transpose(1, 2).reshape(b, n, 24))\nAttention()(torch.randn(2, 7, 24))",
    "F.mse_loss(torch.randn(5, 7), torch.randn(5, 7))", "F.l1_loss(torch.randn(5, 7), torch.randn(5, 7))", "F.cross_entropy(torch.randn(5, 7), torch.randint(0, 7, (5,)))",
    "nn.Dropout(0.5)(torch.randn(5, 7))", "nn.MultiheadAttention(16, 2, batch_first=True)(*[torch.randn(1, 5, 16)] * 3, need_weights=False)[0]",
)  # fmt: skip

NAN, BIG = (
    "torch.tensor([math.nan, 1.0, -2.0])",
    "torch.tensor([3e20, -3e20, 3.4e38, math.inf, -math.inf, math.nan, 1e-3, 4.5])",
)
WHOLE = "torch.randint(-5, 6, (4, 4))"
VALUES = (  # each was once wrong, or a crash
    "torch.tensordot(torch.randn(1, 1, 1), torch.randn(2, 1, 2), dims=([0, 1], [2, 0]))", "torch.tensordot(torch.randn(3, 1), torch.randn(4, 5), ([1], [0]))",
    "torch.tensordot(torch.randn(3, 4), torch.randn(1, 5), ([1], [0]))", "torch.einsum('ij,jk->ik', torch.randn(3, 1), torch.randn(4, 5))",
    "torch.einsum('ij,jk->ik', torch.randn(3, 4), torch.randn(1, 5))", "torch.linalg.vecdot(torch.randn(4, 1), torch.randn(4, 5))",
    "torch.take_along_dim(torch.randn(5, 5), torch.tensor([[-1], [0], [1], [2], [-5]]), 1)", "torch.index_select(torch.tensor(2.0), 0, torch.tensor([0]))",
    "torch.gather(torch.tensor(2.0), 0, torch.tensor([0, 0]))", "F.cosine_similarity(torch.tensor(2.0), torch.tensor(3.0), dim=0)",
    "torch.meshgrid(torch.randn(3), indexing='xy')[0]", "torch.movedim(torch.tensor(2.0), 0, 0)", "torch.logsumexp(torch.tensor([-2**63, 5]), 0)",
    f"torch.addmv({WHOLE}[0], {WHOLE}, {WHOLE}[0], beta=1.6, alpha=-2.7)", f"torch.addmm({WHOLE}, {WHOLE}, {WHOLE}, beta=0.6, alpha=1.6)",
    f"torch.baddbmm({WHOLE}[None], {WHOLE}[None], {WHOLE}[None], beta=-1.6, alpha=2.7)", f"torch.addbmm({WHOLE}, {WHOLE}[None], {WHOLE}[None], beta=2.2, alpha=0.5)",
    f"torch.addmm({NAN}, torch.randn(3, 4), torch.randn(4, 3), beta=0)", f"torch.baddbmm({NAN}, torch.randn(2, 3, 4), torch.randn(2, 4, 3), beta=0)",
    f"torch.addbmm({NAN}, torch.randn(2, 3, 4), torch.randn(2, 4, 3), beta=0)", f"torch.addmv({NAN}, torch.randn(3, 4), torch.randn(4), beta=0)",
    f"torch.addr({NAN}, torch.randn(3), torch.randn(3), beta=0)", "torch.tensor([-4.9, -4.4, 1.0, -1.0, math.inf]) // torch.tensor([0.1, 0.1, 0.0, -0.0, 1.0])",
    "torch.arange(-50, 51) / 10 // 0.1", "torch.hypot(torch.tensor([3e20, math.inf, 1e-30]), torch.tensor([4e20, math.nan, 1e-30]))", f"torch.asinh({BIG})", f"torch.acosh({BIG})",
    "torch.special.erfc(torch.tensor([4.5, 3.0, 9.0, -3.0]))", f"F.softshrink({BIG})", "torch.xlogy(torch.tensor([0.0, 0.0, 2.0]), torch.tensor([math.nan, 0.0, 3.0]))",
    "torch.logit(torch.tensor([0, 1, -2**63]))", "torch.diff(torch.tensor([True, False, False]))",
    *(f"torch.{fn}(torch.tensor([True, False]))" for fn in ("asinh", "sign", "sgn", "isfinite")),
    "torch.arange(5)", "torch.ones(3, dtype=torch.bfloat16)", "torch.eye(3, 4)",
    "torch.linspace(torch.tensor(-3), 8, 7, dtype=torch.int64)", "torch.logspace(torch.tensor(-1), 3, 6, dtype=torch.int16)",
    "torch.softmax(torch.randn(5, 33).double(), -1)", "torch.randn(5, 33).double() @ torch.randn(33, 7).double()",
    "torch.randint(0, 255, (5, 33)).to(torch.uint8) * 3 + 7", "torch.randint(-128, 127, (5, 33)).to(torch.int8).sum(0)",
    "(torch.randint(0, 255, (5, 33)).to(torch.uint8) >> 4) & 15", "torch.randint(-99, 99, (5, 33)).to(torch.int16) << 9",
    "torch.lgamma(torch.randn(7) * 5)", "torch.digamma(torch.tensor([-3.0, -2.5, 0.0, 0.3, 9.0, math.inf]))", "torch.polygamma(2, torch.rand(7) + 0.1)",
    "torch.special.i1(torch.randn(7) * 20)", "torch.special.i0e(torch.tensor([0.0, -49.0, 51.0, 3e5]))",
    "torch.gcd(torch.tensor([-12, 0, 2**40, -7]), torch.tensor([18, 0, 6, 0]))", "torch.lcm(torch.tensor([-12, 0, 7]), torch.tensor([18, 5, 1]))",
    "torch.cholesky_inverse(torch.randn(3, 3).tril() + 3 * torch.eye(3))",
    "torch.linalg.solve_triangular(torch.randn(5, 5) + 5 * torch.eye(5), torch.randn(5, 2), upper=True)", "torch.linalg.slogdet(torch.randn(2, 3, 3))[1]",
    "torch.linalg.inv(torch.randn(3, 3) + 2 * torch.eye(3))", "torch.index_add(torch.randn(()), 0, torch.tensor(0), torch.randn(()))",
    "torch.erfinv(torch.tensor([-1.0, -0.9999999, -0.3, 0.0, 1e-20, 0.77, 1.0, 2.0, math.nan]))", "torch.special.ndtri(torch.tensor([0.0, 1e-30, 0.2, 0.5, 0.9, 1.0]))",
    "torch.special.log_ndtr(torch.tensor([-1e4, -20.0, -1.0, 0.0, 5.0, math.inf, math.nan]))", "torch.special.erfcx(torch.tensor([-9.0, -1.0, 0.0, 3.0, 11.0, 1e9, math.inf]))",
    "torch.special.zeta(torch.tensor([1.0, 2.0, 3.5, 2.0, 2.0, math.inf]), torch.tensor([2.0, 1.0, 9.5, -1.5, math.inf, 1.0]))", "torch.polygamma(1, torch.tensor([-2.5, -3.0, 0.0, 0.3, 9.0]))",
    "torch.special.scaled_modified_bessel_k0(torch.tensor([-1.0, 0.0, 1e-9, 0.5, 2.0, 2.1, 30.0, 1e5]))", "torch.special.modified_bessel_k1(torch.tensor([0.0, 1e-9, 0.5, 1.9, 2.1, 30.0, math.nan]))",
    "torch.special.spherical_bessel_j0(torch.tensor([0.0, -0.0, 1e-9, 2.0, -30.0, math.inf, math.nan]))", "torch.nan_to_num(torch.tensor([3, -2]))",
    "torch.mode(torch.tensor([[3.0, 1.0, 3.0, 1.0, math.nan], [math.nan] * 5])).values", "torch.mode(torch.tensor([[3, 1, 3, 1], [2, 2, 2, 9]]), 0, True).indices",
    "torch.randn(5, 7).masked_scatter(torch.randn(5, 7) > 0, torch.randn(40))", "torch.randn(5, 7).masked_scatter(torch.randn(7) > 0, torch.randn(5, 7))",
    "torch.randn(5, 7).index_put((torch.randn(5) > 0,), torch.randn(7), accumulate=True)", "torch.put(torch.randn(3, 4), torch.empty(0, dtype=torch.long), torch.empty(0))",
    "torch.take_along_dim(torch.randn(3, 4), torch.tensor([[5, 0], [1, 11]]))", "torch.as_strided(torch.randn(30), (4, 3, 2), (5, 1, 2), 3)",
    "torch.as_strided(torch.randn(5, 6).t(), (4, 3), (6, 2))", "torch.as_strided_scatter(torch.randn(4, 6), torch.randn(3, 2), (3, 2), (5, 2), 1)",
    "torch.fft.irfft(torch.randn(3, 9))", "torch.fft.irfft(torch.randn(7, 3), n=9, dim=0, norm='ortho')", "torch.fft.hfft(torch.randint(-5, 5, (4, 6)))",
    "torch.fft.irfftn(torch.randn(3, 5, 4), s=(6, -1), norm='forward')", "torch.fft.hfft2(torch.randn(2, 4, 5), norm='forward')",
    "torch.view_as_real(torch.fft.fft(torch.randn(3, 128)))", "torch.view_as_real(torch.fft.ifft(torch.randn(7, 3), n=9, dim=0, norm='ortho').resolve_conj())", "torch.fft.rfft(torch.randn(3, 37)).abs()",
    "torch.fft.fftn(torch.randn(2, 3, 70)).real", "torch.fft.irfft(torch.fft.rfft(torch.randn(5, 64)) * torch.fft.rfft(torch.randn(64)))", "torch.fft.ihfft(torch.randn(1)).imag",
    "torch.view_as_real(torch.polar(torch.rand(5, 1), torch.randn(4)))", "(torch.view_as_complex(torch.randn(3, 5, 2)) * torch.view_as_complex(torch.randn(5, 2))).angle()",
    "(torch.view_as_complex(torch.randn(3, 2)) / torch.view_as_complex(torch.randn(5, 1, 2))).abs()", "torch.view_as_real(1 + torch.complex(torch.randn(4), torch.randn(4)).conj().exp())",
    "torch.view_as_real(torch.complex(torch.randn(3, 4), torch.randn(3, 4)) @ torch.complex(torch.randn(4, 5), torch.randn(4, 5)))", "torch.randn(3, dtype=torch.complex64).flip(0) - 2",
    "torch.stft(torch.randn(2, 50), 16, window=torch.hann_window(16), return_complex=True).abs()", "torch.cat([torch.randn(3, dtype=torch.complex64), torch.randn(2).to(torch.complex64)]).sum().imag",
    "F.multilabel_margin_loss(torch.randn(3, 5), torch.tensor([[3, 0, -1, 1, 2], [-1, 0, 1, 2, 3], [4, 3, 2, 1, 0]]), reduction='none')", "F.multilabel_margin_loss(torch.randn(5), torch.tensor([3, -1, 0, 0, 0]))",
    "F.ctc_loss(torch.randn(5, 2, 4).log_softmax(-1), torch.tensor([[1, 1], [3, 2]]), torch.tensor([5, 3]), torch.tensor([2, 1]), reduction='none')", "F.ctc_loss(torch.randn(4, 2, 4).log_softmax(-1), torch.tensor([1, 1, 3]), (4, 4), (2, 1), blank=2)",
    "torch.linalg.cholesky(2 * torch.eye(3) + 0.5, upper=True)",
    "torch.cov(torch.randn(5, 9), correction=0, fweights=torch.randint(0, 4, (9,)), aweights=torch.rand(9))", "torch.cov(torch.randn(7))",
    "torch.cov(torch.randn(5, 9), aweights=torch.rand(9))", "torch.cov(torch.randn(5, 9), correction=2, fweights=torch.randint(1, 4, (9,)))",
    "torch.cov(torch.randn(4, 7).t())", "torch.cov(torch.tensor([[1.0, math.nan], [2.0, 5.0]]))", "torch.corrcoef(torch.randint(-9, 9, (4, 7)))",
    "torch.corrcoef(torch.full((2, 7), 0.1))", "torch.cov(torch.randn(3, 0))", "torch.cov(torch.randn(3, 1))",
    *(f"torch.special.bessel_{fn}(torch.tensor([-5.0, 0.0, 1.0, 5.0, 1e4, math.inf, math.nan]))" for fn in ("j0", "j1", "y0", "y1")),
    *(f"torch.special.{fn}(torch.tensor({x})[:, None], torch.tensor({n}))" for fn in (
        *(f"{shifted}chebyshev_polynomial_{kind}" for shifted in ("", "shifted_") for kind in "tuvw"),
        "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p",
    ) for x, n in (  # within and beyond: where values are large they hide the others
        ("[-1.0, -0.5, 0.0, 0.3, 1.0]", "[-1.0, 0.0, 1.0, 2.9, 7.0, 9.0, math.inf]"), ("[-3.0, 2.5]", "[1.0, 2.9, 5.0]"),
    )),
    "torch.special.hermite_polynomial_he(torch.zeros(3).double(), torch.tensor([12, 512, 513]))",
    "F.grid_sample(torch.randn(2, 3, 3, 4, 5), torch.randn(2, 2, 1, 3, 3), align_corners=True)",
    "F.grid_sample(torch.randn(1, 2, 3, 4, 5), torch.randn(1, 2, 2, 3, 3) * 2, mode='nearest', padding_mode='reflection', align_corners=False)",
    "F.grid_sample(torch.randn(1, 2, 3, 4, 5), torch.tensor([math.nan, 0.0, math.inf] * 2).reshape(1, 2, 1, 1, 3), padding_mode='border', align_corners=False)",
    *(f"torch.special.{scaled}modified_bessel_{fn}(torch.tensor([-1.0, 0.0, 1e-9, 0.5, 1.5, 1.5000001, 2.1, 30.0]).double())" for scaled in ("", "scaled_") for fn in ("k0", "k1")),
    *(f"torch.special.modified_bessel_{fn}(torch.full((1,), 1.5).double())" for fn in ("k0", "k1")),
    "F.gaussian_nll_loss(torch.randn(5, 7), torch.randn(5, 7), torch.rand(5))", "F.gaussian_nll_loss(torch.randn(5, 7), torch.randn(5, 7), 0.5, full=True, reduction='sum')",
    "nn.GaussianNLLLoss(reduction='none')(torch.randn(5, 7), torch.randn(5, 7), torch.zeros(5, 1))",
    "F.interpolate(torch.randn(2, 3, 11, 9), size=(4, 5), mode='bilinear', antialias=True)", "F.interpolate(torch.randn(1, 2, 5, 6), size=(8, 13), mode='bicubic', antialias=True)",
    "F.interpolate(torch.randn(1, 2, 12, 10), scale_factor=0.5, mode='bicubic', antialias=True)", "F.interpolate(torch.randn(1, 2, 40, 31), size=(7, 31), mode='bicubic', antialias=True)",
    "torch.ops.aten._upsample_bicubic2d_aa(torch.randn(1, 1, 2, 3), (3, 4), False, 1.5, 1.4)",
    "torch.igamma(torch.rand(99) * 40, torch.rand(99) * 40)", "torch.igammac(torch.rand(99) * 4, torch.rand(99) * 9)", "torch.igammac(torch.rand(7, 1) * 5e4, torch.rand(9) * 5e4)",
    "torch.special.gammainc(torch.tensor([0.0, 0.0, 1.0, math.inf, 1.0, math.inf, -1.0, 1.0, 30.0, 1e6, 25.0, 2e5]), torch.tensor([0.0, 1.0, 0.0, 1.0, math.inf, math.inf, 1.0, -1.0, 0.0, 1e6, 1e-30, 2.01e5]))",
    "torch.special.zeta(torch.rand(200) * 60 + 1.01, torch.rand(200) * 30)", "torch.special.zeta(torch.randint(2, 9, (99,)).float(), -torch.rand(99) * 30)",
    "torch.mode(torch.randint(0, 9, (3, 40)).float().t(), 0).values", "torch.mode(torch.tensor([[math.inf, math.inf, -math.inf], [-math.inf] * 3]))",
    "torch.mode(torch.randint(0, 2, (5, 7)) > 0)",
    "torch.float_power(torch.rand(5) + 0.1, 1.5)", "torch.fft.fftshift(torch.randn(5, 4))",
    "F.interpolate(torch.randn(2, 3, 7), scale_factor=1.7, mode='linear')",
)  # fmt: skip


def _with(prefix: str, texts: tuple[str, ...]) -> list[str]:
    return [f"{prefix}\n{text}" for text in texts]


EXPRESSIONS: dict[str, list[str]] = {
    "unary": [f"torch.{fn}({A})" for fn in UNARY] + [f"torch.{fn}(torch.rand(7, 33) + 0.1)" for fn in POSITIVE]
    + ["torch.asin(torch.rand(5) - 0.5)", "torch.acos(torch.rand(5) - 0.5)", "torch.nan_to_num(torch.randn(5))"],
    "activations": _with(f"x = {A}", ACTIVATIONS),
    "binary": _with("x = torch.randn(5, 1, 7)\ny = torch.randn(3, 7)", BINARY),
    "matmul": list(MATMUL),
    "reductions": _with("x = torch.randn(5, 7, 33)", REDUCTIONS),
    "norms": list(NORMS),
    "attention": list(ATTENTION),
    "views": _with("x = torch.randn(6, 5, 7)", VIEWS),
    "indexing": list(INDEXING),
    "dtypes": list(DTYPES),
    "blocks": list(BLOCKS),
    "values": list(VALUES),
    "nested": [*NESTED],
    "scans": [*SCANS],
    "windows": [*CONVOLUTIONS, *POOLS],
}  # fmt: skip
