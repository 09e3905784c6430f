"""What a split says without a word: that its parts are all values of what is split. Asked of every firing."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ....ir.diagnostic import DplcError
from ....ir.expr import only_sizes
from ....ir.sizes import sizes_in, telling, value_of
from ...language import core as s
from ...language.questions import Closure, Environment
from ...language.rule import Rule
from ...language.spelling import expression
from .expressions import RuleExpressions


@dataclass(frozen=True)
class AskedCover:
    """A cover, and how its numbers are computed."""

    rule: str
    cover: s.Cover
    size: Closure
    parts: tuple[Closure, ...]

    def check(self, env: Environment) -> None:
        """Raises DplcError where the parts are fewer values than what is split; more, where they divide it."""
        size = self.size(env)
        counts = [part(env) for part in self.parts]
        for whole, total in _pairs(size, functools.reduce(operator.mul, counts)):
            if total < whole or (self.cover.divide and total != whole):
                raise DplcError(self._what(whole, total), self.cover.span, (), self._remedy())

    def _what(self, whole: int, total: int) -> str:
        said = " * ".join(f"({text})" if " " in text else text for text in map(expression, self.cover.parts))
        left = "leave values out" if total < whole else "are more"
        return f"rule `{self.rule}`: the parts of `{self.cover.what}` {left}: {said} is {total}, of {whole}"

    def _remedy(self) -> str:
        if not self.cover.divide:
            return f"round up: `ceildiv({expression(self.cover.size)}, ..)`"
        whole = expression(self.cover.size)
        return f"a `//` says that the parts divide it: ask for that in a `where`, or write `ceildiv({whole}, ..)`"


def _pairs(size: Any, total: Any) -> Iterator[tuple[int, int]]:
    """(how many values are split, how many there are in the parts), for numbers that tell most of the sizes; none
    where a loop ends where an axis says."""
    if size.__class__ is int and total.__class__ is int:
        yield size, total
        return
    if not all(number.__class__ is int or only_sizes(number) for number in (size, total)):
        return
    for values in telling(sizes_in((size, total))):
        yield value_of(size, values), value_of(total, values)


def asked_covers(rule: Rule, expressions: RuleExpressions) -> tuple[AskedCover, ...]:
    """The covers of a rule."""
    return tuple(
        AskedCover(rule.name, cover, expressions.compile(cover.size), tuple(map(expressions.compile, cover.parts)))
        for cover in rule.covers
    )
