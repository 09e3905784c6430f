"""Facts of level torch about the equations of einsum."""

from __future__ import annotations

from ..rewrite.torch_rules.firing import TorchSite
from ..rewrite.torch_rules.values import View
from .torch_shapes import Axes, torch_fact


@torch_fact("letters(text, [value]) -> any")
def letters(site: TorchSite, equation: str, operands: tuple[View, ...]) -> dict[str, Axes]:
    """The axes of every letter of an equation, and of its `...`."""
    terms, _ = _equation(equation)
    found: dict[str, Axes] = {}
    for term, x in zip(terms, operands, strict=True):
        names = _split_letters(term)
        spare = len(x.shape) - (len(names) - ("..." in names))
        at_ = 0
        for name in names:
            width = spare if name == "..." else 1
            extents = x.shape[at_ : at_ + width]
            have = found.get(name, ())
            fresh = tuple(site.axis(n) for n in extents[: len(extents) - len(have)]) + have
            for o, n in zip(reversed(fresh), reversed(extents), strict=False):
                site.slots[o].extent = max(site.extent(o), n)
            found[name] = fresh
            at_ += width
    return found


@torch_fact("subscript(text, int, any) -> [axis]")
def subscript(site: TorchSite, equation: str, n: int, found: dict[str, Axes]) -> Axes:
    """The axes of the n-th operand; of the result for -1."""
    terms, result = _equation(equation)
    names = _split_letters(result if n == -1 else terms[n])
    return tuple(o for name in names for o in found.get(name, ()))


@torch_fact("summed(text, any) -> [axis]")
def summed(site: TorchSite, equation: str, found: dict[str, Axes]) -> Axes:
    """The axes of the letters that the result lacks."""
    kept = _split_letters(_equation(equation)[1])
    return tuple(o for name, run in found.items() if name not in kept for o in run)


def _equation(equation: str) -> tuple[list[str], str]:
    left, arrow, right = equation.replace(" ", "").partition("->")
    if not arrow:  # torch's implicit output: letters that occur once, in alphabetical order
        plain = left.replace("...", "").replace(",", "")
        once = "".join(sorted(c for c in set(plain) if plain.count(c) == 1))
        right = ("..." if "..." in left else "") + once
    return left.split(","), right


def _split_letters(term: str) -> list[str]:
    head_, dots, rest = term.partition("...")
    return [*head_, *([dots] if dots else []), *rest]
