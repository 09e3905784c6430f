"""The definitions of the tuple monoids, as text: their parts, the lift of an element, the combination of two parts.

Many modules need the names alone; `ir/monoids.py` reads the definitions.
"""

from __future__ import annotations

INFINITY = float("inf")

# Scores are compared with 0 where all of them are -inf: the exponential of one is 0 then; of -inf - -inf it is NaN.
TEXTS = {
    "online": (
        ("x", "v"), {"m": -INFINITY, "s": 0.0},
        "m = x\n"
        "base = where(equal(m, -inf), 0.0, m)\n"
        "d = subtract(x, base)\n"
        "s = multiply(exp(d), v)",
        "m = maximum(m1, m2)\n"
        "base = where(equal(m, -inf), 0.0, m)\n"
        "a = subtract(m1, base)\n"
        "b = subtract(m2, base)\n"
        "s = add(multiply(s1, exp(a)), multiply(s2, exp(b)))",
    ),
    "online_pair": (
        ("x", "v", "w"), {"m": -INFINITY, "s": 0.0, "l": 0.0},
        "m = x\n"
        "base = where(equal(m, -inf), 0.0, m)\n"
        "d = subtract(x, base)\n"
        "p = exp(d)\n"
        "s = multiply(p, v)\n"
        "l = multiply(p, w)",
        "m = maximum(m1, m2)\n"
        "base = where(equal(m, -inf), 0.0, m)\n"
        "a = subtract(m1, base)\n"
        "b = subtract(m2, base)\n"
        "f = exp(a)\n"
        "g = exp(b)\n"
        "s = add(multiply(s1, f), multiply(s2, g))\n"
        "l = add(multiply(l1, f), multiply(l2, g))",
    ),
    "welford": (
        ("x",), {"n": 0.0, "mean": 0.0, "q": 0.0},
        "n = 1.0\n"
        "mean = x\n"
        "q = 0.0",
        "n = add(n1, n2)\n"
        "d = subtract(mean2, mean1)\n"
        "w = divide(n2, maximum(n, 1.0))\n"
        "mean = add(mean1, multiply(d, w))\n"
        "q = add(add(q1, q2), multiply(multiply(d, multiply(n1, w)), d))",
    ),
    "log_sum": (  # of any numbers: what is as large as the maximum stays as it is, be it infinite or the least float
        ("x", "v"), {"m": -INFINITY, "s": 0.0},
        "m = x\n"
        "s = v",
        "m = maximum(m1, m2)\n"
        "d = where(equal(m1, m2), 0.0, subtract(minimum(m1, m2), m))\n"
        "e = exp(d)\n"
        "s = where(less(m1, m2), add(multiply(s1, e), s2), add(s1, multiply(s2, e)))",
    ),
    "last_largest": (  # a NaN counts as the largest
        ("x", "at"), {"m": -INFINITY, "p": -INFINITY},
        "m = x\n"
        "p = at",
        "m = maximum(m1, m2)\n"
        "p = maximum(where(logical_or(equal(m1, m), not_equal(m1, m1)), p1, -inf), "
        "where(logical_or(equal(m2, m), not_equal(m2, m2)), p2, -inf))",
    ),
    "affine": (  # steps h = f*h + b one after the other: the order of two matters
        ("a", "b"), {"f": 1.0, "h": 0.0},
        "f = a\n"
        "h = b",
        "f = multiply(f1, f2)\n"
        "h = add(multiply(f2, h1), h2)",
    ),
}  # fmt: skip

# What one element does to a running tuple, where that takes less than to lift it and to combine two: it means the same.
STEPS = {
    "online": (
        "m = maximum(m1, x)\n"
        "base = where(equal(m, -inf), 0.0, m)\n"
        "a = subtract(m1, base)\n"
        "b = subtract(x, base)\n"
        "s = add(multiply(s1, exp(a)), multiply(exp(b), v))"
    ),
    "online_pair": (
        "m = maximum(m1, x)\n"
        "base = where(equal(m, -inf), 0.0, m)\n"
        "a = subtract(m1, base)\n"
        "b = subtract(x, base)\n"
        "f = exp(a)\n"
        "p = exp(b)\n"
        "s = add(multiply(s1, f), multiply(p, v))\n"
        "l = add(multiply(l1, f), multiply(p, w))"
    ),
    "welford": (  # Welford, Note on a method for calculating corrected sums of squares and products, 1962
        "n = add(n1, 1.0)\n"
        "d = subtract(x, mean1)\n"
        "w = reciprocal(n)\n"
        "mean = add(mean1, multiply(d, w))\n"
        "e = subtract(x, mean)\n"
        "q = add(q1, multiply(d, e))"
    ),
}  # fmt: skip

OVER_PARTS = "_parts"
TEXTS |= {
    name + OVER_PARTS: (
        tuple(f"{part}0" for part in identity), identity, "\n".join(f"{part} = {part}0" for part in identity), combine
    )
    for name, (_, identity, _, combine) in TEXTS.items()
}  # fmt: skip
NAMES = tuple(TEXTS)
ORDERED = ("affine", f"affine{OVER_PARTS}")  # of which the elements may not be reordered
PARTS: dict[str, tuple[str, str]] = {f"{name}.{part}": (name, part) for name, text in TEXTS.items() for part in text[1]}


def part_identity(part: str) -> float:
    """Return the identity of a part such as `online.s`. Raises KeyError for an unknown part."""
    name, own = PARTS[part]
    return TEXTS[name][1][own]
