"""Monoids over tuples, as data: the state of a reduction that needs more than one number.

A monoid defines one element of the reduction (`lift`, over the operands), the combination of two partial results
(`combine`, over the parts of the left, `m1`, and of the right, `m2`), and the empty reduction (`identity`). lift and
combine are sequences of Loop IR's own definitions, so every level reads, prints, computes and lowers them like other
code.

    online   sum of exp(x - m)*v, m the largest x: the running form of a softmax and of its weighted sum
             (Milakov and Gimelshein, Online normalizer calculation for softmax, 2018)
    online_pair  two such sums, s and l, with one maximum: the weighted sum of a softmax, and its own sum
    log_sum  like online, for any numbers, including infinities and the least float: log(s) + m needs it
    last_largest  the largest, and the last index of it, a float
    affine   steps of a recurrence, h = a*h + b: the product of the factors, and the result of the steps from h = 0
             (Blelloch, "Prefix Sums and Their Applications", 1990, section 1.4). The order of the elements matters.
    welford  count, mean and sum of squared distances from the mean (Chan, Golub and LeVeque, 1979);
             the first element, which is as far from no mean as it is large, is not squared

`X_parts` is the monoid X over partial results of it: its operands are the parts, and lifting changes nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from .diagnostic import Source
from .expr import Var, free_names
from .loop import Let
from .monoid_texts import PARTS, TEXTS
from .substitute import substitute
from .text.parse import parse
from .text.read_statements import read_block
from .text.syntax import Unit

Definitions = tuple[Let, ...]
T = TypeVar("T")


class Monoid(NamedTuple):
    """A monoid over tuples.

    operands: inputs of an element. parts: components of the state. lift, combine: definitions of the parts.
    step: the parts after one more element, over the operands and the parts so far, `m1`, composed of lift and combine.
    """

    name: str
    operands: tuple[str, ...]
    parts: tuple[str, ...]
    identity: tuple[float, ...]
    lift: Definitions
    combine: Definitions
    step: Definitions

    def reads(self, part: str) -> tuple[str, ...]:
        """Return the operands on which a part depends, in order: a running maximum needs no weights."""
        return tuple(operand for operand in self.operands if operand in self._behind(part, (self.lift, self.combine)))

    def beside(self, part: str) -> frozenset[str]:
        """Return the parts on which this part of a combined result depends: a maximum does not need the sum."""
        return frozenset(self._behind(part, (self.combine,)).intersection(self.parts))

    def sides(self, left: Iterable[T], right: Iterable[T] = ()) -> dict[str, T]:
        """Return the values that `combine` reads, by name, from the parts of two partial results (`m1`, `m2`)."""
        both = [(f"{part}1", value) for part, value in zip(self.parts, left)]
        return dict([*both, *((f"{part}2", value) for part, value in zip(self.parts, right))])

    def _behind(self, part: str, blocks: tuple[Definitions, ...]) -> set[str]:
        """Return all names on which a part depends through definitions."""
        tables = [{stmt.dst: free_names(stmt.val) for stmt in block} for block in blocks]
        todo, seen = [part], set()
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                todo += [other for table in tables for other in table.get(name, ())]
                todo += [own for own in self.parts if name in (f"{own}1", f"{own}2")]
        return seen


@functools.cache
def monoid(name: str) -> Monoid:
    """Return a monoid by its name. Raises KeyError for an unknown name."""
    text = TEXTS[name]
    identity, lift, combine = text["identity"], _read(text["lift"]), _read(text["combine"])
    step = _read(text["step"]) if "step" in text else _after_lifting(lift, combine)
    return Monoid(name, tuple(text["operands"]), tuple(identity), tuple(identity.values()), lift, combine, step)


def _after_lifting(lift: Definitions, combine: Definitions) -> Definitions:
    """Return the step that lifts the element, names the result as the right side, and combines."""
    own = {stmt.dst: Var(f"{stmt.dst}2") for stmt in lift}
    lifted = tuple(Let(f"{stmt.dst}2", substitute(stmt.val, own)) for stmt in lift)
    return (*lifted, *combine)


def _read(text: str) -> Definitions:
    lines = "\n".join(f"    {line}" for line in text.splitlines())
    (unit,) = parse(Source("ir/monoids.toml", f"kernel definitions() -> none_: f32[1]:\n{lines}\n"))
    assert isinstance(unit, Unit)
    return tuple(stmt for stmt in read_block(unit.body) if isinstance(stmt, Let))


def of_part(part: str) -> tuple[Monoid, str]:
    """Return the monoid and the part that `online.s` names. Raises KeyError for an unknown part."""
    name, own = PARTS[part]
    return monoid(name), own
