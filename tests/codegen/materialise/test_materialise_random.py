"""Random tiles: roles, extents, orders, guards, loops and reductions nobody wrote by hand."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings, strategies as st

EXAMPLES = int(os.environ.get("DPLC_RANDOM_TILES", "30"))
FUNCTIONS = {"f32": ("add", "maximum", "minimum"), "i64": ("add", "maximum", "minimum", "multiply")}


@st.composite
def tiles(draw: Any) -> tuple[str, dict[str, Any]]:
    """A program and its inputs: one index space, cut into axes of every role, some of them reduced."""
    roles = draw(st.lists(st.sampled_from(("BLOCK", "THREAD", "THREAD", "REG", "VEC")), min_size=1, max_size=5))
    extents = [
        draw(st.sampled_from({"VEC": (2, 4), "REG": (1, 2, 3)}.get(role, (1, 2, 4, 5, 8, 32)))) for role in roles
    ]
    names = [f"a{n}" for n in range(len(roles))]
    while np.prod([e for e, r in zip(extents, roles, strict=True) if r == "THREAD"]) > 256:
        extents[roles.index("THREAD")] = 1
        roles[roles.index("THREAD")] = "BLOCK"
    order = draw(st.permutations(range(len(roles))))
    kept = [n for n in order if roles[n] == "BLOCK" or draw(st.booleans())]
    over = [n for n in order if n not in kept]
    index, total = flat(names, extents, [*kept, *over])
    dtype = draw(st.sampled_from(("f32", "i64")))
    lines = draw(
        body(index, total, dtype, [names[n] for n in over], extents_of(extents, over), flat(names, extents, kept))
    )
    axes = ", ".join(f"{names[n]}:{extents[n]}={roles[n]}" for n in range(len(roles)))
    guard = [f"{names[n]} < 1" for n in over if roles[n] != "BLOCK" and extents[n] > 1]
    target, size = flat(names, extents, kept)
    depth = "        "
    for condition in guard:
        lines.append(f"{depth}if {condition}:")
        depth += "    "
    lines.append(f"{depth}y[{target}] = r")
    snake = draw(st.sampled_from(("", ", snake=1")))
    text = f"kernel k(x: {dtype}[{total}], z: {dtype}[{total}, 3]) -> y: {dtype}[{size}]:\n    Tile({axes}{snake}):\n"
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    return text + "\n".join(lines) + "\n", {"x": numbers(rng, dtype, (total,)), "z": numbers(rng, dtype, (total, 3))}


def flat(names: list[str], extents: list[int], order: list[int]) -> tuple[str, int]:
    """The row-major index over some axes, and its range."""
    terms, size = [], 1
    for n in reversed(order):
        terms.append(f"{names[n]}*{size}")
        size *= extents[n]
    return " + ".join(reversed(terms)) or "0", size


def extents_of(extents: list[int], chosen: list[int]) -> int:
    return int(np.prod([extents[n] for n in chosen], initial=1))


def numbers(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Any:
    return rng.standard_normal(shape).astype(np.float32) if dtype == "f32" else rng.integers(-2, 3, shape)


@st.composite
def body(
    draw: Any, index: str, total: int, dtype: str, over: list[str], folded: int, kept: tuple[str, int]
) -> list[str]:
    """Loads, a few values, a reduction or none; the value to store is `r`."""
    lead = "        "
    loop = draw(
        st.sampled_from(("", "0..3 reduce", "0..3 by 2 reduce", "0..3 reduce unroll=3", "0..2 VEC", "1..3 serial"))
    )
    column = "k" if loop else str(draw(st.integers(0, 2)))
    limit = draw(st.sampled_from((total, total, total - 1, max(total - 4, 1))))
    when = draw(st.sampled_from(("", f" if {index} < {limit} else 1")))
    lines = [f"a = load x[{index}]{when}", f"b = load z[{index}, {column}]", "c = multiply(a, b)"]
    if draw(st.booleans()):
        lines.append("d = subtract(c, a)")
        lines.append(draw(st.sampled_from(("e = maximum(d, b)", "e = add(d, d)", "e = where(less(d, b), d, a)"))))
    else:
        lines.append("e = add(c, 2)")
    fn = draw(st.sampled_from(FUNCTIONS[dtype]))
    if not loop and not over:
        return [f"{lead}{line}" for line in lines] + [f"{lead}r = negative(e)"]
    out = []
    if loop:
        out.append(f"{lead}for k in {loop}:")
        lead += "    "
    if draw(st.booleans()):
        out.append(f"{lead}if {index} < {limit}:")
        lead += "    "
    out += [f"{lead}{line}" for line in lines] + [f"{lead}s <- {fn}(s, e)"]
    if over:
        out.append(f"        Combine(s, {fn}, over=({', '.join(over)}))")
    return [*out, "        r = negative(s)"]


@settings(
    max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(tiles())
def test_random_tiles(check, tile):
    text, arrays = tile
    check(text, **arrays)
