"""Expressions in the vocabulary that dplc supports, over shapes with primes, ones and ragged tails."""

from __future__ import annotations

# Functions of one tensor of floating point numbers, as they are written.
UNARY = """
    torch.exp(x); torch.exp2(x); torch.expm1(x); torch.log(x.abs() + 1); torch.log2(x.abs() + 1); torch.log10(x.abs() + 1)
    torch.log1p(x.abs()); torch.sqrt(x.abs()); torch.rsqrt(x.abs() + 1); torch.reciprocal(x.abs() + 1); torch.sin(x); torch.cos(x)
    torch.tan(x); torch.asin(torch.tanh(x)); torch.acos(torch.tanh(x)); torch.atan(x); torch.sinh(x); torch.cosh(x); torch.tanh(x)
    torch.asinh(x); torch.acosh(x.abs() + 1.5); torch.atanh(torch.tanh(x) * 0.9); torch.erf(x); torch.special.erfc(x); torch.sigmoid(x)
    torch.abs(x); -x; +x; torch.sign(x); torch.sgn(x); torch.floor(x * 3); torch.ceil(x * 3); torch.trunc(x * 3); torch.round(x * 3)
    torch.frac(x); torch.square(x); x ** 2; x ** 3; x.abs() ** 0.5; (x.abs() + 1) ** -0.5; (x.abs() + 1) ** -1; (x.abs() + 1) ** 1.7
    2 ** x; 2.5 - x; 1 / (x.abs() + 1); x + 1; x * 2; x / 3; x // 0.7; x % 0.7; x > 0; x >= 0; x < 0.5; x <= 0.5; x == x; x != 0
    torch.isnan(x / 0); torch.isinf(x / 0); torch.isfinite(x / 0); torch.logical_not(x > 0); ~(x > 0); torch.nan_to_num(x / 0, 1.0, 9.0, -9.0)
    torch.logit(torch.sigmoid(x)); torch.logit(torch.sigmoid(x), eps=0.2); torch.special.expit(x);
    torch.fmod(x, 0.7); torch.remainder(x, -0.7); torch.floor_divide(x, 0.7); torch.clamp(x, -0.5, 0.5); x.clamp(min=0.1); x.clamp(max=0.1)
    x.clamp_min(0.1); x.clamp_max(0.2); torch.rsub(x, 3, alpha=2); x.add(1, alpha=3); x.deg2rad(); torch.sinc(x + 3)
    x.float(); x.to(torch.int64); (x * 4).int(); (x > 0).float(); (x * 3).long() // 2; (x * 5).int() % 3; (x > 0) + 1; (x * 4).int() / 3
    F.relu(x); F.relu6(x * 5); F.leaky_relu(x); F.leaky_relu(x, 0.3); F.elu(x); F.elu(x, 0.5); F.selu(x); F.celu(x, 2.0); F.silu(x); F.mish(x)
    F.hardtanh(x); F.hardtanh(x, -0.3, 0.6); F.hardswish(x * 3); F.hardsigmoid(x * 3); F.softplus(x); F.softplus(x * 30, 2, 10); F.softsign(x)
    F.logsigmoid(x); F.gelu(x); F.gelu(x, approximate='tanh'); F.tanhshrink(x); F.hardshrink(x); F.softshrink(x); F.threshold(x, 0.1, 20.0)
    F.dropout(x, 0.5, training=False); nn.Dropout(0.3)(x);
    F.dropout(x, 0.0); F.dropout(x, 1.0); F.dropout2d(x[None, None], 1.0); torch.zeros_like(x); torch.ones_like(x) * x; torch.full_like(x, 2.5); x.new_zeros(3, 2)
    torch.where(x > 0, x, 0.1 * x); torch.where(x > 0, 1.0, 2.0); x.masked_fill(x > 0, 7.0); torch.maximum(x, x * x); torch.minimum(x, x * x)
    torch.lerp(x, x * x, 0.3); torch.addcmul(x, x, x, value=0.5); torch.addcdiv(x, x, x.abs() + 1, value=0.5); torch.hypot(x, x + 1)
    torch.logaddexp(x, -x); torch.atan2(x, x + 1); torch.xlogy(x.abs(), x.abs() + 1); torch.heaviside(x, torch.tensor(0.5)); x.type_as(x)
    x.contiguous().clone(); x.sum(); x.mean(); x.prod(); x.max(); x.min(); x.amax(); x.var(); x.std(); x.var(unbiased=False); x.std(unbiased=False)
    (x > 0).all(); (x > 0).any(); x.argmax(); x.argmin(); (x > 0).sum(); torch.count_nonzero(x > 0); x.norm(); torch.linalg.vector_norm(x, 1)
    torch.linalg.vector_norm(x, 3); torch.linalg.vector_norm(x, float('inf')); x.norm(p=1); torch.logsumexp(x, tuple(range(x.dim()))); torch.var_mean(x)
    torch.std_mean(x, correction=0); x.flatten(); x.ravel(); x.reshape(-1); x.view(-1, 1); x.unsqueeze(0); x.unsqueeze(-1) * 2; x.squeeze(); x[None]
    x.flip(0); x.roll(1); x.expand(3, *x.shape); x.repeat(2, *[1] * x.dim()); x.repeat_interleave(2); x.bool(); (x > 0) & (x < 1); (x > 0) | (x < -1)
    (x > 0) ^ (x < 1); torch.logical_and(x, x > 0); torch.logical_xor(x > 0, x > 1); F.normalize(x, dim=0); x.softmax(0); x.log_softmax(-1)
    F.softmin(x, 0); x.cumsum(0); x.cumprod(-1); (x > 0).cumsum(0); x.sum(0); x.sum(-1, keepdim=True); x.mean(0); x.mean(-1, keepdim=True)
    x.prod(0); x.amax(0); x.amin(-1, keepdim=True); x.max(0).values; x.max(-1)[1]; x.min(0, keepdim=True)[1]; x.argmax(-1); x.argmin(0, keepdim=True)
    x.var(0); x.std(-1, keepdim=True); x.var(0, unbiased=False); x.var(-1, correction=0); (x > 0).all(0); (x > 0).any(-1, keepdim=True); x.logsumexp(0)
    x.norm(dim=-1); x.norm(p=1, dim=0, keepdim=True); torch.linalg.norm(x, dim=0); torch.std_mean(x, 0); torch.var_mean(x, -1, keepdim=True)
    x.split(2)[0]; x.chunk(2)[-1]; x.unbind(0)[0]; x.tensor_split(2)[0]; torch.cat([x, x * 2]); torch.cat([x, x + 1, x * 2, -x, x], -1)
    torch.stack([x, x * 2, x + 1]); torch.stack([x, -x], -1); torch.hstack([x, x]); torch.vstack([x, -x]); x[0]; x[-1]; x[..., 0]; x[::2]; x[..., 1:]
    x.narrow(0, 0, 1); x.select(-1, 0); x.movedim(0, -1); x.transpose(0, -1); F.pad(x, (1, 2)); F.pad(x, (1, 0), value=-1.0); F.pad(x, (-1, 1))
    x.diff(); x.unfold(0, 1, 1); torch.atleast_2d(x); torch.broadcast_to(x, (2, *x.shape)); torch.tile(x, (2,)); x.sum(dtype=torch.float32)
    F.mse_loss(x, x * 2); F.l1_loss(x, x * 2, reduction='sum'); F.smooth_l1_loss(x, x * 2, reduction='none'); F.huber_loss(x, x * 3)
    F.binary_cross_entropy(torch.sigmoid(x), torch.sigmoid(-x)); F.binary_cross_entropy_with_logits(x, torch.sigmoid(-x)); F.kl_div(x, x.exp(), reduction='sum')
    F.one_hot((x * 2).long().clamp(0, 4), 5); F.glu(torch.cat([x, x * 2], 0), 0); torch.softmax(x, -1, dtype=torch.float32); x.logsumexp(-1, keepdim=True)
    torch.where(x > 0)[0] if False else x; x.index_select(0, torch.zeros(2, dtype=torch.long)); x.gather(0, x.argsort(0) * 0) if False else x
""".replace("\n", ";").split(";")

# Whole expressions with their own shapes. Every run of the tests lowers the first.
WHOLE = (
    "torch.column_stack([torch.randn(3, 2), torch.randn(3), torch.randn(3, 1)])",
    "nn.RMSNorm(48)(torch.randn(1, 6, 48))",
    "F.rms_norm(torch.randn(5, 7), (7,))",
    "F.rms_norm(torch.randn(3, 5, 7), (5, 7), torch.randn(5, 7), 1e-3)",
    "torch.relu(torch.matmul(torch.randn(16, 64) + torch.randn(64), torch.randn(64, 16)))",
    "nn.LayerNorm((5, 7))(torch.randn(3, 5, 7))",
    "F.layer_norm(torch.randn(3, 13), (13,), eps=1e-3)",
    "nn.LayerNorm(7, bias=False)(torch.randn(3, 7))",
    "nn.GroupNorm(2, 6)(torch.randn(3, 6, 5, 2))",
    "F.group_norm(torch.randn(2, 6), 3)",
    "nn.BatchNorm2d(3)(torch.randn(2, 3, 4, 5))",
    "nn.BatchNorm1d(7, affine=False)(torch.randn(5, 7))",
    "F.batch_norm(torch.randn(5, 7), None, None, training=True)",
    "nn.InstanceNorm2d(3, affine=True)(torch.randn(2, 3, 4, 5))",
    "torch.softmax(torch.randn(4, 9, 5), 1)",
    "F.log_softmax(torch.randn(6, 10) * 9, 0)",
    "torch.softmax(torch.randn(()), 0)",
    "torch.logsumexp(torch.randn(3, 4, 5), (0, 2), keepdim=True)",
    "(lambda x: x @ x.T)(torch.randn(5, 7))",
    "(lambda x: x + x.T)(torch.randn(5, 5))",
    "(lambda x: x.relu() * x.relu().T + x)(torch.randn(5, 5))",
    "(lambda x, w: (x @ w) @ w)(torch.randn(5, 7), torch.randn(7, 7))",
    "nn.Linear(13, 7)(torch.randn(2, 3, 13))",
    "nn.Linear(13, 7, bias=False)(torch.randn(5, 13))",
    "nn.Linear(13, 7)(torch.randn(13))",
    "nn.Linear(1, 1)(torch.randn(4, 1))",
    "(lambda x, f, g: x + g(F.gelu(f(x))))(torch.randn(3, 8), nn.Linear(8, 12), nn.Linear(12, 8))",
    "torch.randn(2, 1, 7) * torch.randn(3, 1) - torch.randn(1, 1, 1)",
    "(lambda a: a[:, None] * a[None, :])(torch.randn(6))",
    "torch.matmul(torch.randn(3, 1, 4, 5), torch.randn(2, 5, 3))",
    "torch.randn(3, 1) @ torch.randn(1, 5)",
    "torch.randn(6) @ torch.randn(6, 4)",
    "torch.randn(6) @ torch.randn(2, 6, 4)",
    "torch.randn(2, 3, 5) @ torch.randn(5)",
    "torch.randn(5) @ torch.randn(5)",
    "torch.mm(torch.randn(3, 5), torch.randn(5, 2))",
    "torch.bmm(torch.randn(3, 4, 2), torch.randn(3, 2, 5))",
    "torch.mv(torch.randn(3, 5), torch.randn(5))",
    "torch.dot(torch.randn(7), torch.randn(7))",
    "torch.vdot(torch.randn(7), torch.randn(7))",
    "torch.outer(torch.randn(4), torch.randn(5))",
    "torch.inner(torch.randn(2, 3, 5), torch.randn(4, 5))",
    "torch.addmm(torch.randn(4, 6), torch.randn(4, 3), torch.randn(3, 6), alpha=3.0)",
    "torch.addmm(torch.randn(6), torch.randn(4, 3), torch.randn(3, 6), beta=0.5)",
    "torch.baddbmm(torch.randn(2, 4, 6), torch.randn(2, 4, 3), torch.randn(2, 3, 6), beta=0.5, alpha=2)",
    "torch.addbmm(torch.randn(4, 6), torch.randn(2, 4, 3), torch.randn(2, 3, 6))",
    "torch.addmv(torch.randn(4), torch.randn(4, 3), torch.randn(3), alpha=2)",
    "torch.addr(torch.randn(4, 3), torch.randn(4), torch.randn(3))",
    "nn.Bilinear(3, 5, 4)(torch.randn(2, 3), torch.randn(2, 5))",
    "torch.einsum('nchw,kc->nkhw', torch.randn(2, 3, 4, 2), torch.randn(5, 3))",
    "torch.einsum('ij->', torch.randn(3, 5))",
    "torch.einsum('ij->ji', torch.randn(3, 5))",
    "torch.einsum('ii->i', torch.randn(5, 5))",
    "torch.einsum('ii', torch.randn(5, 5))",
    "torch.einsum('bi,ij,bj->b', torch.randn(3, 4), torch.randn(4, 5), torch.randn(3, 5))",
    "torch.einsum('...ij,...jk->...ik', torch.randn(2, 1, 3, 4), torch.randn(5, 4, 2))",
    "torch.einsum('i...,j...->ij...', torch.randn(5, 2, 3, 4), torch.randn(3, 4))",
    "torch.einsum('ij,jk', torch.randn(3, 4), torch.randn(4, 5))",
    "torch.einsum('ij,ij->i', torch.randn(3, 1), torch.randn(3, 4))",
    "F.scaled_dot_product_attention(torch.randn(1, 2, 6, 4), torch.randn(1, 2, 5, 4), torch.randn(1, 2, 5, 3), scale=0.7)",
    "F.scaled_dot_product_attention(torch.randn(2, 3, 5, 4), torch.randn(2, 3, 5, 4), torch.randn(2, 3, 5, 4), is_causal=True)",
    "F.scaled_dot_product_attention(torch.randn(2, 3, 4, 4), torch.randn(2, 3, 6, 4), torch.randn(2, 3, 6, 4), attn_mask=torch.randn(2, 1, 4, 6))",
    "F.scaled_dot_product_attention(torch.randn(2, 3, 5, 4), torch.randn(2, 3, 7, 4), torch.randn(2, 3, 7, 4), attn_mask=torch.rand(5, 7) > 0.4)",
    "F.scaled_dot_product_attention(torch.randn(2, 5, 4), torch.randn(2, 7, 4), torch.randn(2, 7, 4), attn_mask=torch.rand(5, 7) > 2)",
    "F.scaled_dot_product_attention(torch.randn(2, 5, 4), torch.randn(2, 7, 4), torch.randn(2, 7, 4), attn_mask=torch.zeros(5, 7) + torch.tensor([[0.0], [float('-inf')], [0.0], [0.0], [0.0]]))",
    "F.scaled_dot_product_attention(torch.randn(2, 6, 5, 4), torch.randn(2, 3, 5, 4), torch.randn(2, 3, 5, 4), is_causal=True, enable_gqa=True)",
    "F.scaled_dot_product_attention(torch.randn(2, 4, 5, 4), torch.randn(2, 1, 5, 4), torch.randn(2, 1, 5, 4), enable_gqa=True)",
    "F.scaled_dot_product_attention(torch.randn(1, 4, 1, 8), torch.randn(1, 4, 7, 8), torch.randn(1, 4, 7, 8))",
    "(lambda x, f: f(x).view(2, 5, 3, 4).transpose(1, 2).reshape(2, 3, 20))(torch.randn(2, 5, 12), nn.Linear(12, 12))",
    "torch.tanh(torch.randn(4, 3, 2).transpose(0, 1).reshape(6, 4))",
    "torch.randn(6, 4).reshape(8, 3) * 2",
    "torch.randn(6, 1, 4).reshape(1, 8, 3, 1) * 2",
    "torch.randn(6, 4).unflatten(0, (2, 3)).flatten(1)",
    "torch.randn(2, 3, 5).permute(2, 0, 1) + torch.randn(5, 1, 3)",
    "torch.randn(2, 3, 5).swapaxes(0, 2).mT",
    "torch.randn(3, 4, 5).var((0, 2)) * torch.randn(4)",
    "torch.randn(3, 4, 5).mean((0, 2), keepdim=True)",
    "torch.randn(3, 4, 5).sum((-1, 0))",
    "torch.randint(0, 9, (3, 4)).sum(1)",
    "(torch.randn(3, 4) > 0).sum(0)",
    "torch.randn(()).sum()",
    "(torch.randn(3, 4, 2) > -1).all(0).any(-1)",
    "torch.randint(0, 3, (5, 7)).argmax(1)",
    "torch.where(torch.randn(5, 7) > 1.0, float('nan'), torch.randn(5, 7)).argmax(1)",
    "torch.where(torch.randn(5, 7) > 1.0, float('nan'), torch.randn(5, 7)).amax(1)",
    "torch.maximum(torch.where(torch.randn(5) > 0, float('nan'), 1.0), torch.randn(5))",
    "torch.cat([torch.randn(2, 3), torch.randn(4, 3), torch.randn(1, 3)]).exp()",
    "torch.cat([torch.randn(3, 2), torch.randn(3, 1), torch.randn(3, 4), torch.randn(3, 1), torch.randn(3, 5)], 1)",
    "torch.cat([torch.randint(0, 5, (2,)), torch.randint(0, 5, (3,))])",
    "torch.cat([torch.randint(0, 5, (2,)), torch.randn(3)])",
    "torch.randn(9, 12)[2:, 1:11:4] * 3",
    "torch.randn(9, 12)[-3:, :-2]",
    "torch.randn(3, 4, 5).flip((0, 2))",
    "torch.fliplr(torch.randn(3, 4)) + torch.flipud(torch.randn(3, 4))",
    "torch.randn(3, 5).roll((1, -2), (0, 1))",
    "torch.rot90(torch.randn(3, 5), 1, (0, 1)) + torch.rot90(torch.randn(5, 3), 2) + torch.rot90(torch.randn(3, 5), 3)",
    "F.pad(torch.randn(3, 4), (2, 0, 1, 1), value=-1.0)",
    "F.pad(torch.randn(2, 3, 5), (2, 1), mode='reflect')",
    "F.pad(torch.randn(2, 3, 4, 5), (2, 1, 1, 2), mode='replicate')",
    "F.pad(torch.randn(2, 3, 4, 5), (2, 1, 1, 2), mode='circular')",
    "torch.stack([torch.randn(2, 5), torch.randn(2, 5), torch.randn(2, 5)], -1).mean(-1)",
    "torch.randn(4, 5, 6)[:, -2] - 1",
    "(lambda a: a[0] * a[1] + a[2].sum())(torch.randn(4, 8).split(3, 1))",
    "(lambda a: a[0].sum() + a[1])(torch.randn(4, 8).split([3, 5], 1))",
    "[p * 2 for p in torch.randn(7, 2).chunk(3)][2]",
    "(lambda a, b, c: a * b - c)(*torch.randn(4, 3).unbind(1))",
    "(lambda a, b: a * 2 + b)(*torch.meshgrid(torch.randn(3), torch.randn(4), indexing='ij'))",
    "(lambda a, b: a * 2 + b)(*torch.meshgrid(torch.randn(3), torch.randn(4), indexing='xy'))",
    "torch.randn(4, 6).diagonal(1) * 2",
    "torch.randn(2, 5, 3).diagonal(-1, 1, 2)",
    "torch.diag(torch.randn(4), 1) + torch.diag(torch.randn(5)).sum() + torch.diag(torch.randn(5, 4)).sum()",
    "torch.diag_embed(torch.randn(2, 3))",
    "torch.trace(torch.randn(4, 6))",
    "torch.tril(torch.randn(5, 7), 1) + torch.triu(torch.randn(5, 7), -1)",
    "torch.tril(torch.randn(2, 5, 5) > 0)",
    "torch.randn(2, 9).unfold(1, 4, 2)",
    "F.pixel_shuffle(torch.randn(1, 8, 3, 2), 2)",
    "torch.randn(3, 2).repeat(2, 1, 3)",
    "torch.randn(3, 2).repeat_interleave(3, 1)",
    "torch.randn(4, 1, 3).expand(4, 5, 3).amax(0)",
    "torch.randn(4, 1).expand(4, 5)",
    "nn.Embedding(9, 4)(torch.randint(0, 9, (2, 6))) + torch.randn(4)",
    "nn.Embedding(9, 4, padding_idx=0)(torch.randint(0, 9, (5,)))",
    "torch.index_select(torch.randn(4, 7, 3), 1, torch.randint(0, 7, (5,)))",
    "torch.gather(torch.randn(4, 7), 1, torch.randint(0, 7, (4, 3)))",
    "torch.gather(torch.randn(4, 7), 1, torch.randint(0, 7, (2, 3)))",
    "torch.gather(torch.randn(4, 7), 0, torch.randint(0, 4, (6, 7)))",
    "torch.take_along_dim(torch.randn(4, 7), torch.randn(4, 7).argmax(1, keepdim=True), 1)",
    "torch.randn(9, 4)[torch.randint(-9, 9, (2, 3))]",
    "torch.randn(9, 4)[torch.randint(0, 9, (5,)), torch.randint(0, 4, (5,))]",
    "torch.randn(9, 4, 2)[torch.randint(0, 9, (5, 1)), torch.randint(0, 4, (3,))]",
    "torch.randn(3, 9, 2)[:, torch.randint(0, 9, (5,))]",
    "torch.randn(2, 3, 9)[..., torch.randint(0, 9, (5,))]",
    "torch.randn(5, 3, 6)[torch.randint(0, 5, (4,)), :, torch.randint(0, 6, (4,))]",
    "torch.randn(5, 3)[[0, 2, 2]]",
    "F.one_hot(torch.randint(0, 5, (2, 3)), 5) * 2",
    "torch.scatter_add(torch.randn(4, 5), 1, torch.randint(0, 5, (4, 7)), torch.randn(4, 7))",
    "torch.index_add(torch.randn(4, 5), 0, torch.randint(0, 4, (6,)), torch.randn(6, 5), alpha=2)",
    "torch.randn(3, 7, 2).cumsum(1)",
    "(lambda a: torch.where(a < 0.2, -a, a + 1).clamp(max=0.9))(torch.randn(7, 3))",
    "torch.where(torch.randn(5) > 0, torch.randint(0, 5, (5,)), torch.randn(5))",
    "torch.randn(6, 6).masked_fill(torch.ones(6, 6).triu(1) > 0, float('-inf')).softmax(-1)",
    "torch.randint(0, 9, (4,)) * 0.5 + torch.randint(0, 9, (4,), dtype=torch.int32)",
    "torch.randint(0, 9, (4,), dtype=torch.int32) + torch.tensor(3)",
    "torch.randint(-9, 9, (20,)) // torch.randint(1, 5, (20,)) + torch.randint(-9, 9, (20,)) % 4",
    "torch.div(torch.randn(9) * 5, 0.7, rounding_mode='floor') + torch.div(torch.randn(9) * 5, 0.7, rounding_mode='trunc')",
    "torch.div(torch.randint(-9, 9, (20,)), 4, rounding_mode='trunc') * 100 + torch.div(torch.randint(-9, 9, (20,)), 4, rounding_mode='floor')",
    "(lambda q, c, s: q * c + torch.cat((-q[..., 3:], q[..., :3]), -1) * s)(torch.randn(2, 4, 6), torch.randn(4, 6), torch.randn(4, 6))",
    "nn.MultiheadAttention(8, 2, batch_first=True)(torch.randn(2, 5, 8), torch.randn(2, 4, 8), torch.randn(2, 4, 8))[0]",
    "nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)(torch.randn(2, 5, 8))",
    "nn.PReLU(3)(torch.randn(2, 3, 5)) + nn.PReLU()(torch.randn(5))",
    "F.glu(torch.randn(3, 8), -1)",
    "F.cosine_similarity(torch.randn(4, 7), torch.randn(1, 7), dim=1)",
    "F.pairwise_distance(torch.randn(4, 7), torch.randn(4, 7))",
    "torch.cdist(torch.randn(4, 7), torch.randn(5, 7))",
    "F.cross_entropy(torch.randn(4, 9), torch.randint(0, 9, (4,)))",
    "F.cross_entropy(torch.randn(2, 5, 3), torch.randint(0, 5, (2, 3)), reduction='sum')",
    "F.cross_entropy(torch.randn(4, 9), torch.tensor([1, -100, 3, 4]))",
    "F.nll_loss(torch.randn(4, 9), torch.randint(0, 9, (4,)), reduction='none')",
    "torch.tensordot(torch.randn(3, 4, 5), torch.randn(5, 3, 2), dims=([0, 2], [1, 0]))",
    *(f"torch.kron(torch.randn({a}), torch.randn({b}))" for a in ("()", "3", "2, 3") for b in ("()", "4", "4, 1, 5")),
    "torch.linalg.vecdot(torch.randn(4, 7), torch.randn(4, 7))",
    "(lambda p: p[0] + p[1])(torch.aminmax(torch.randn(4, 7), dim=1))",
    "(lambda x: torch.nansum(x, 1) + torch.nanmean(x, 1))(torch.where(torch.randn(4, 7) > 0, float('nan'), 2.0))",
    "torch.dstack([torch.randn(3, 4), torch.randn(3, 4)])",
    "torch.column_stack([torch.randn(3), torch.randn(3)])",
    "torch.vstack([torch.randn(3), torch.randn(2, 3), torch.randn(1, 3)])",
    "torch.dstack([torch.randn(3, 2), torch.randn(3, 2, 4)])",
    "torch.dstack([torch.randn(3), torch.randn(3)]), torch.dstack([torch.randn(3), torch.randn(1, 3, 2)])",
    "torch.hstack([torch.randn(()), torch.randn(3)]), torch.column_stack([torch.randn(()), torch.randn(())])",
    "torch.vstack([torch.randn(()), torch.randn(1)]), torch.dstack([torch.randn(()), torch.randn(())])",
    "torch.take(torch.randn(3, 4), torch.randint(0, 12, (5,)))",
    "torch.isclose(torch.randn(9).round(), torch.randn(9).round())",
    "torch.fmax(torch.where(torch.randn(9) > 0, float('nan'), 1.0), torch.randn(9)) + torch.fmin(torch.randn(9), torch.randn(9))",
    "x = torch.randn(3, 4)\nx = x * 2\nx[1] = 7.0\nx[:, 1:3] += 1\nx.relu_()",
    "(lambda x, a, b, c: c(F.silu(a(x)) * b(x)))(torch.randn(3, 8), nn.Linear(8, 12, bias=False), nn.Linear(8, 12, bias=False), nn.Linear(12, 8, bias=False))",
    "(lambda x: (x, x.T, x.T, x + 1, torch.tensor(3.0) * 2))(torch.randn(2, 3))",
    "class LN(nn.Module):\n    def forward(self, x):\n        m = x.mean(-1, keepdim=True)\n        v = ((x - m) ** 2).mean(-1, keepdim=True)\n        return (x - m) * torch.rsqrt(v + 1e-6)\nLN()(torch.randn(6, 40))",
    "2 / (torch.rand(7) + 1) ** 1.5",
    "(lambda x: x.masked_fill(torch.arange(x.shape[1])[None] > torch.arange(x.shape[0])[:, None], 0.0))(torch.randn(5, 7))",
    "(lambda x: x + torch.full((5, 7), float('-inf')).triu(1))(torch.randn(5, 7))",
    "(lambda x: x + torch.arange(7))(torch.randn(5, 7))",
    "(lambda x: x * torch.tensor([0.5, 0.25, 2.0, 7.0, 1.0]))(torch.randn(3, 5))",
    "(lambda x: x * torch.linspace(0, 1, 5))(torch.randn(3, 5))",
    "(lambda x: x + torch.eye(4))(torch.randn(4, 4))",
)  # fmt: skip
