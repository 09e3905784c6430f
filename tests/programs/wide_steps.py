"""The operations that random programs are made of: each writes one line over a value, or nothing where it does not fit."""

from __future__ import annotations

import math
from typing import Any

import torch

Maker = Any
WHOLE = (torch.int32, torch.int64)


def is_float(m: Maker, v: str) -> bool:
    return bool(m.kinds[v].is_floating_point)


def is_whole(m: Maker, v: str) -> bool:
    return m.kinds[v] in WHOLE


# ---- values of elements
def unary(m: Maker, v: str) -> str:
    if not is_float(m, v):
        return f"{v}.float() * 1e-9" if m.dice.random() < 0.1 else f"{v}.float()"
    forms = (
        "torch.tanh({})", "{}.relu()", "torch.sigmoid({})", "{} * 0.5", "F.silu({})", "1 - {}", "{}.abs().sqrt()", "-{}",
        "{}.exp()", "F.gelu({})", "{}.square()", "torch.clamp({}, -1.0, 0.7)", "1 / (2 + {}.abs())", "{}.sin()",
        "torch.log1p({}.abs())", "{}.clone().mul_(0.5)", "torch.erf({})", "F.softplus({})", "torch.rsqrt({}.abs() + 1)",
    )  # fmt: skip
    return str(m.of(forms)).format(v)


def binary(m: Maker, v: str) -> str:
    other = m.like(v)
    if m.kinds[v] is torch.bool:
        return f"{v} {m.of('&|^')} {other}"
    if is_float(m, v):
        return str(m.of((f"{v} + {other}", f"{v} - {other}", f"{v} * {other}", f"torch.maximum({v}, {other})")))
    return f"{v} {m.of('+-*')} {other}"


def mixed(m: Maker, v: str) -> str:
    """Of values of different dtypes: torch promotes."""
    same = [n for n in m.exact if m.shape(n) == m.shape(v)]
    return f"{v} {m.of('+*')} {m.of(same)}"


def broadcast(m: Maker, v: str) -> str:
    s = m.shape(v)
    other = m.floats(*[n if m.dice.random() < 0.5 else 1 for n in s][m.of(range(len(s) + 1)) :])
    return f"{v} {m.of('+*')} {other}"


def whole(m: Maker, v: str) -> str:
    """Integer arithmetic, near the limits too."""
    if not is_whole(m, v):
        return f"({v} * 4).round().long()" if is_float(m, v) else f"{v}.long()"
    top = 2**31 if m.kinds[v] is torch.int32 else 2**63
    forms = (
        f"{v} * {m.of((3, -7, 46341, top // 3))}", f"{v} + {m.of((1, top - 1, -top // 2))}", f"{v} // {m.of((3, -5, 7))}",
        f"{v} % {m.of((3, -5, 64))}", f"-{v}", f"{v}.abs()", f"torch.clamp({v}, -100, 100)", f"{v} > {m.of((0, 5))}",
        f"{v}.to(torch.int32)", f"{v}.to(torch.int64)",
        f"torch.fmod({v}, {m.of((3, 7))})", f"{v} * {v}", f"{v}.sign()", f"{v} == {m.like(v)}",
    )  # fmt: skip
    return str(m.of(forms))


def compared(m: Maker, v: str) -> str:
    return f"{v} {m.of(('>', '<', '>=', '!='))} {m.of((0, 0.3, -0.5)) if is_float(m, v) else m.of((0, 1, 2))}"


def chosen(m: Maker, v: str) -> str:
    truths = [n for n in m.exact if m.kinds[n] is torch.bool and m.shape(n) == m.shape(v)]
    condition = m.of(truths) if truths else f"{v} > 0"
    return f"torch.where({condition}, {v}, {m.of((m.like(v), f'{v} * 2' if m.kinds[v] is not torch.bool else v))})"


def half(m: Maker, v: str) -> str:
    return f"{v}.bfloat16()" if m.dice.random() < 0.5 else f"{v}.float()"


# ---- places
def sliced(m: Maker, v: str) -> str:
    s = m.shape(v)
    if not s:
        return ""
    parts = [":"] * len(s)
    for _ in range(m.of((1, 1, 2))):
        d = m.of(range(len(s)))
        a, step = m.of(range(s[d])), m.of((1, 1, 2, 3))
        parts[d] = m.of((f"{a}::{step}", f":{m.of(range(a + 1, s[d] + 1))}:{step}", f"{a - s[d]}:", f"{a}:{a + 1}"))
    return f"{v}[{', '.join(parts)}]"


def transposed(m: Maker, v: str) -> str:
    rank = len(m.shape(v))
    order = list(range(rank))
    m.dice.shuffle(order)
    forms = (
        f"{v}.permute({tuple(order)})", f"{v}.flip({m.dim(v)})", f"{v}.roll({m.of(range(-3, 4))}, {m.dim(v)})",
        f"{v}.flip({tuple(range(rank))})", f"{v}.transpose({m.dim(v)}, {m.dim(v)})",
    )  # fmt: skip
    return str(m.of(forms)) if rank else ""


def reshaped(m: Maker, v: str) -> str:
    s = m.shape(v)
    total = math.prod(s)
    a = m.of(n for n in range(1, total + 1) if total % n == 0)
    b = m.of(n for n in range(1, total // a + 1) if (total // a) % n == 0)
    forms = ((a, total // a), (a, b, total // a // b), (total,), (1, *s), (*s, 1), (-1, 1), (a, 1, total // a))
    return f"{v}.reshape({m.of(forms)})"


def selected(m: Maker, v: str) -> str:
    s = m.shape(v)
    if not s:
        return f"{v}[None]"
    d = m.dim(v)
    place = m.of(range(-s[d], s[d]))
    return str(m.of((f"{v}.select({d}, {place})", f"{v}.unsqueeze({d})", f"{v}.squeeze()", f"{v}.diagonal()")))


def expanded(m: Maker, v: str) -> str:
    s = m.shape(v)
    forms = (
        f"{v}.expand({m.of((1, 3))}, {', '.join(map(str, s))})" if s else f"{v}.expand(3)",
        f"{v}.repeat({', '.join(['2'] * max(1, len(s)))})",
    )
    return str(m.of(forms))


def padded(m: Maker, v: str) -> str:
    return f"F.pad({v}, ({m.of((0, 1, 2))}, {m.of((-1, 0, 3))}))" if m.shape(v) and is_float(m, v) else ""


def outer(m: Maker, v: str) -> str:
    return f"{v}[:, None] {m.of('*+')} {v}[None]" if m.shape(v) and m.kinds[v] is not torch.bool else ""


def triangle(m: Maker, v: str) -> str:
    return f"torch.{m.of(('tril', 'triu'))}({v}, {m.of((-1, 0, 1))})" if len(m.shape(v)) >= 2 else ""


# ---- joins
def joined(m: Maker, v: str) -> str:
    """Pieces of one extent and of others, some of a single element, sometimes cut again."""
    s = m.shape(v)
    if not s:
        return f"torch.stack([{v}, {v}])"
    d = m.of(range(len(s)))
    others = [n for n, x in m.exact.items() if x.dim() == len(s) and m.kinds[n] == m.kinds[v]
              and all(a == b or place == d for place, (a, b) in enumerate(zip(x.shape, s)))]  # fmt: skip
    pieces = [m.of((m.of(others), v, f"{v}[{':, ' * d}:1]")) for _ in range(m.of((1, 1, 2, 3)))]
    made = f"torch.cat([{', '.join((v, *pieces))}], {d})"
    if m.dice.random() < 0.3:
        made = f"torch.stack([{v}, {m.like(v)}], {m.dim(v)})"
    elif m.dice.random() < 0.4:
        made = f"{made}[{':, ' * d}{m.of(('1:', '::2', ':-1', f'{s[d]}:'))}]"
    return made


# ---- values at computed places
def gathered(m: Maker, v: str) -> str:
    s = m.shape(v)
    if not s:
        return ""
    d = m.of(range(len(s)))
    few = m.of((1, 2, 3, *m.pool))
    way = m.of(("select", "take_along", "gather", "index", "last", "two", "embedding", "argmax", "shifted"))
    if way == "select":
        return f"torch.index_select({v}, {d}, {m.indices(s[d], few, exactly=False)})"
    if way in ("take_along", "gather"):
        shape = [few if place == d else n for place, n in enumerate(s)]
        op = "torch.take_along_dim({}, {}, {})" if way == "take_along" else "torch.gather({0}, {2}, {1})"
        return op.format(v, m.indices(s[d], *shape), d)
    if way == "index" and d <= 2:
        shape = m.of(((few,), (2, few)))
        return f"{v}[{':, ' * d}{m.indices(s[d], *shape, exactly=False)}]"
    if way == "shifted":  # places below zero count from the end
        return f"{v}[{m.indices(s[0], few, exactly=False)} - {s[0]}]"
    if way == "two" and len(s) > 1:
        return f"{v}[{m.indices(s[0], few)}, {m.indices(s[1], few)}]"
    if way == "embedding" and len(s) == 2 and is_float(m, v):
        return f"F.embedding({m.indices(s[0], few, exactly=False)}, {v})"
    if way == "argmax" and is_float(m, v):
        return f"torch.gather({v}, {d}, {v}.argmax({d}, keepdim=True))"
    return f"{v}[{':, ' * d}{[int(m.of(range(s[d]))) for _ in range(few)]}]" if d <= 2 else ""


def arranged(m: Maker, v: str) -> str:
    """Places that are computed, to be read at."""
    s = m.shape(v)
    if not s or m.kinds[v] is torch.bool:
        return f"{v}.long()" if not is_float(m, v) else ""
    d = m.dim(v)
    return str(m.of((f"{v}.argmax({d})", f"{v}.argmin({d}, keepdim=True)", f"torch.arange({s[d]}) * 3 % {s[d]}")))


# ---- reductions
def reduced(m: Maker, v: str) -> str:
    s = m.shape(v)
    if not s:
        return f"{v}.sum()"
    if m.dice.random() < 0.15:
        return f"{v}.{m.of(('sum', 'amax', 'mean') if is_float(m, v) else ('sum', 'any'))}()"
    d, keep = m.dim(v), m.of((True, False))
    if not is_float(m, v):
        return f"{v}.{m.of(('sum', 'amax', 'any', 'all', 'prod') if is_whole(m, v) else ('sum', 'any', 'all'))}({d}, keepdim={keep})"
    name = m.of(("sum", "mean", "amax", "amin", "prod", "logsumexp", "var", "std", "norm"))
    if name == "norm":
        return f"{v}.norm(dim={d}, keepdim={keep})"
    if name in ("var", "std"):
        return f"{v}.{name}({d}, unbiased={s[d] > 1}, keepdim={keep})"
    if len(s) > 1 and name in ("sum", "mean", "amax") and m.dice.random() < 0.4:
        return f"{v}.{name}({tuple(sorted(m.dice.sample(range(len(s)), m.of(range(2, len(s) + 1)))))}, keepdim={keep})"
    return f"{v}.{name}({d}, keepdim={keep})"


def scanned(m: Maker, v: str) -> str:
    return f"{v}.cumsum({m.dim(v)})" if m.shape(v) and m.kinds[v] is not torch.bfloat16 else ""


def rows(m: Maker, v: str) -> str:
    s = m.shape(v)
    if not s or not is_float(m, v):
        return ""
    forms = (
        f"{v}.softmax({m.dim(v)})", f"{v}.log_softmax({m.dim(v)})", f"F.rms_norm({v}, ({s[-1]},), eps=1e-5)",
        f"F.layer_norm({v}, ({s[-1]},), eps=1e-3)", f"F.normalize({v}, dim={m.dim(v)})",
    )  # fmt: skip
    return str(m.of(forms))


# ---- products
def product(m: Maker, v: str) -> str:
    s = m.shape(v)
    if len(s) < 2 or m.kinds[v] is not torch.float32:
        return ""
    new = m.of((1, 5, 100, *m.pool))
    forms = (
        f"{v} @ {m.floats(s[-1], new)}",
        f"F.linear({v}, {m.floats(new, s[-1])}, {m.floats(new)})",
        f"{v} @ {v}.transpose(-1, -2)",
    )
    return str(m.of(forms))


def itself(m: Maker, v: str) -> str:
    """A value that meets itself under other axes: a tower of scores, a layer, an attention of it."""
    s = m.shape(v)
    if len(s) < 2 or m.kinds[v] is not torch.float32:
        return ""
    w = m.floats(s[-1], m.of(m.pool))
    forms = (
        f"({v} @ {w}) @ ({v} @ {w}).transpose(-1, -2)", f"(({v} @ {w}) @ ({v} @ {w}).transpose(-1, -2)).softmax(-1) @ {v}",
        f"{v}[..., None, :] * {v}[..., None, :, :]", f"({v}[..., None, :] - {v}[..., None, :, :]).square().sum(-1)",
        f"{v} + {v}.transpose(-1, -2)", f"{v} * {v}.mean(-1, keepdim=True) + {v}.amax(0)", f"{v} @ {v}.mT @ {v}",
    )  # fmt: skip
    return str(m.of(forms))


def met(m: Maker, v: str) -> str:
    """Any two values that broadcast."""
    other = m.of(n for n in m.exact if m.kinds[n] is not torch.bool or m.kinds[v] is not torch.bool)
    return f"{v} {m.of('+*-')} {other}{m.of(('', '', '[..., None]', '[None]', '.mT'))}"


def looked_up(m: Maker, v: str) -> str:
    """A value at places that it decides itself, or that decide where something else is read; beside what it was."""
    s = m.shape(v)
    if not s or m.kinds[v] is torch.bool:
        return ""
    whole = v if m.kinds[v] is torch.int64 else f"{v}.argmax({m.dim(v)}, keepdim={len(s) == 1})"
    table = m.of([n for n, x in m.exact.items() if x.dim()])
    n = m.shape(table)[0]
    found = f"{table}[{whole} % {n}]"
    return str(m.of((found, f"{table}[{whole} % {n} - {n}]", f"torch.cat([{found}, {table}])", f"{found} + {table}")))


def attention(m: Maker, v: str) -> str:
    s = m.shape(v)
    if len(s) < 2 or m.kinds[v] is not torch.float32:
        return ""
    return f"({v} @ {v}.transpose(-1, -2)).softmax(-1) @ {v}"


STEPS = (
    unary, unary, unary, binary, binary, mixed, broadcast, whole, whole, whole, compared, chosen, half,
    sliced, sliced, transposed, transposed, reshaped, reshaped, selected, expanded, padded, outer, triangle, joined, joined,
    gathered, gathered, gathered, arranged, looked_up, looked_up, reduced, reduced, scanned, rows, rows,
    met, met, product, product, itself, itself, attention,
)  # fmt: skip
