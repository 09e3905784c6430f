"""Asking Z3. Its effort is limited by what it does, not by the clock: a question has the same answer anywhere."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from .integers import Integers, Unknown

FIRST = 200_000  # Z3's units for a question as it stands, about a tenth of a second
EACH = 2_000_000  # for a question about one choice of parameters
ALL = 20_000_000  # for one rule
SMALL = 9  # extents of a counterexample, if there is one so small


class SolverEffort:
    """What has been spent on a rule."""

    def __init__(self) -> None:
        self.first: int | None = None

    def spend(self, statistics: Any) -> None:
        """Count one question. Raises Unknown when it was too much. Z3 counts from the start of the process."""
        units = next((int(n) for key, n in statistics if key == "rlimit count"), self.first or 0)
        self.first = units if self.first is None else self.first
        if units - self.first > ALL:
            raise Unknown("it takes Z3 too long")


class Solver:
    """Questions about one rule. premises: what is known."""

    def __init__(self, integers: Integers, premises: Sequence[Any], effort: SolverEffort):
        self.z3, self.integers, self.effort = integers.z3, integers, effort
        self.premises = list(premises)

    def counterexample(self, premises: Sequence[Any], conclusions: Sequence[Any]) -> dict[str, int] | None:
        """None if the conclusions follow; numbers for which one does not. Raises Unknown where Z3 gives up.

        Where it gives up at first, parameters take each of their values in turn: most products then have a number as
        one factor.
        """
        given, wanted = [*self.premises, *premises], [c for c in conclusions if c is not True]
        if not wanted or any(p is False for p in given):
            return None
        broken = self.z3.Or([self.z3.BoolVal(True) if c is False else self.z3.Not(c) for c in wanted])
        asked = [*(p for p in given if p is not True), *self._few(), broken]
        try:
            return self._model(asked, FIRST)
        except Unknown:
            choices = list(self._choices(asked))
            if len(choices) < 2:
                return self._model(asked, EACH)
        for chosen in choices:
            found = self._model([self.z3.substitute(part, *chosen) for part in asked], EACH)
            if found is not None:
                return {**found, **{str(name): value.as_long() for name, value in chosen}}
        return None

    def _few(self) -> list[Any]:
        """That what has few values has one of them."""
        found = ((unknown, self.integers.values(name)) for name, unknown in self.integers.unknowns.items())
        return [self.z3.Or([unknown == v for v in values]) for unknown, values in found if values]

    def _choices(self, asked: Sequence[Any]) -> Iterator[list[tuple[Any, Any]]]:
        """The values of the parameters that are asked about."""
        used = {str(x) for part in asked for x in self.z3.z3util.get_vars(part)}
        few = [(n, values) for n in self.integers.unknowns if n in used and (values := self.integers.values(n))]
        for values in itertools.product(*(values for _, values in few)):
            yield [(self.z3.Int(name), self.z3.IntVal(v)) for (name, _), v in zip(few, values, strict=True)]

    def _model(self, asked: Sequence[Any], units: int) -> dict[str, int] | None:
        """Numbers for which everything that is asked holds, small ones if there are any."""
        whole = self._checked(asked, units)
        if whole is None:
            return None
        small = [self.z3.And(x <= SMALL, x >= -SMALL) for x in self.integers.unknowns.values()]
        try:
            model = self._checked([*asked, *small], units) or whole
        except Unknown:
            model = whole
        return {str(d): model[d].as_long() for d in model.decls() if self.z3.is_int_value(model[d])}

    def _checked(self, asked: Sequence[Any], units: int) -> Any:
        solver = self.z3.Solver()
        solver.set("rlimit", units)
        solver.set("random_seed", 0)
        solver.add(*asked)
        answer = solver.check()
        self.effort.spend(solver.statistics())
        if answer == self.z3.unknown:
            raise Unknown("Z3 gives up")
        return solver.model() if answer == self.z3.sat else None
