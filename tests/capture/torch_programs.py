"""Random torch programs, as `-c` texts: shapes with ones and primes, broadcasting, views, joins, gathers, reductions."""

from __future__ import annotations

import functools
import itertools
import math
import re
from typing import Any

import torch
from hypothesis import strategies as st

EXTENTS = (1, 2, 3, 4, 5, 6)
LARGEST = 2000  # elements of a value
DEEPEST = 5  # dimensions of a value

# The least rank of a value v, and the text of a step from it. `{a|b}` is one of several texts; other braces are below.
OFTEN = (
    (0, "{torch.tanh({v})|{v}.relu()|torch.sigmoid({v})|{v} * 0.5|F.silu({v})|1 - {v}|{v}.abs().sqrt()|-{v}}"),
    (0, "{v} {+|-|*} {same}"),
    (1, "{v}.{sum|mean|amax|prod}({dim}, keepdim={True|False})"),
)
SELDOM = (
    (0, "{v}.unsqueeze(0).expand({1|3}, *{v}.shape)"),
    (0, "torch.where({v} > {-1.0|0.0|0.5}, {v}, {v} * 0.1)"),
    (0, "(({v} * 4).long() {// 3|% 3|* 2|+ 0.5|> 1}) + {v}"),
    (1, "{v} {+|*} torch.randn({broadcast})"),
    (1, "{v}.{reshape({two})|reshape({three})|flatten()|unsqueeze(-2)}"),
    (1, "{v}.{softmax|log_softmax|cumsum}({dim})"),
    (1, "{v}[{start}::{1|2|3}]"),
    (1, "{v}.select({place})"),
    (1, "torch.{cat|stack}([{{v}, {v} * 2|{v}, {v}.relu(), -{v}|{v}.exp(), {v}, {v}, {v} + 1}], {dim})"),
    (1, "{{v}.flip({dim})|{v}.roll({-3|-2|-1|0|1|2}, {dim})|F.pad({v}, ({0|1|2}, {after}))}"),
    (1, "F.{rms_norm|layer_norm}({v}, ({last},), eps=1e-5)"),
    (1, "{torch.gather({v}, {dim}, {v}.argmax({dim}, keepdim=True))|{v}[[{row}, 0, {row}]]}"),
    (2, "{v} @ torch.randn({last}, {1|2|5})"),
    (2, "{v} @ {v}.transpose(-1, -2)"),
    (2, "{v}.transpose({dim}, {other})"),
    (2, "{v}[:, None] * {v}[None]"),
    (2, "torch.{tril|triu}({v}, {-1|0|1})"),
)


def braces(v: str, values: dict[str, torch.Tensor]) -> dict[str, Any]:
    """What may stand for a word in braces in a step from a value v."""
    shape = tuple(values[v].shape)
    total, dims = math.prod(shape), range(-len(shape), len(shape))
    two = [(a, total // a) for a in range(1, total + 1) if total % a == 0]
    return {
        "v": [v],
        "same": [name for name, value in values.items() if tuple(value.shape) == shape],
        "dim": dims,
        "other": dims,
        "place": [f"{dim}, {n}" for dim in dims for n in range(-shape[dim], shape[dim])],
        "start": [":, " * dim + str(n) for dim, length in enumerate(shape) for n in range(length)],
        "row": range(shape[0]) if shape else (),
        "last": shape[-1:],
        "after": (-1, 0, 3) if shape[-1:] != (1,) else (1,),
        "two": two,
        "three": [(a, b, rest // b) for a, rest in two for b in range(1, rest + 1) if rest % b == 0],
        "broadcast": [kept[n:] for kept in itertools.product(*({n, 1} for n in shape)) for n in range(len(shape))],
    }


@st.composite
def torch_programs(draw: Any, most: int = 9) -> str:
    """A `-c` text of one or two results. Every line is run at once, so that shapes are torch's own."""
    lines: list[str] = []
    values: dict[str, torch.Tensor] = {}

    def of(options: Any) -> Any:
        return draw(st.sampled_from(tuple(options)))

    def add(text: str) -> None:
        value = eval(text, {"torch": torch, "F": torch.nn.functional}, dict(values))
        if 0 < value.numel() <= LARGEST and value.dim() <= DEEPEST:
            values[name := f"v{len(values)}"] = value
            lines.append(f"{name} = {text}")

    add(f"torch.randn({draw(st.lists(st.sampled_from(EXTENTS), min_size=1, max_size=3))})")
    for _ in range(draw(st.integers(1, most))):
        v = of([*values][-4:])
        rank, text = of(OFTEN * 2 + SELDOM)
        if values[v].dim() >= rank:
            options = braces(v, values)
            chosen = functools.cache(lambda word, options=options: str(of(options.get(word, word.split("|")))))
            while "{" in text:  # those within others first
                text = re.sub(r"\{([^{}]*)\}", lambda found, chosen=chosen: chosen(found[1]), text)
            add(text)
    return "\n".join([*lines, ", ".join(dict.fromkeys(([*values][-1], of(values))))])
