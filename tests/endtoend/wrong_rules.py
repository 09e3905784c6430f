"""A rule that is wrong at every element, for those who must find it, and a program of which eager overflows at one."""

from __future__ import annotations

EVERYWHERE = """
@approx
rule everywhere_wrong on tensor
match
    z = log(exp(x))
rewrite
    z = add(x, 1000.0)
"""


def overflowing(count: int | str) -> str:
    """Text of 100 and of so many drawn numbers."""
    return f"torch.log(torch.exp(torch.cat([torch.full((1,), 100.0), torch.randn({count})])))"
