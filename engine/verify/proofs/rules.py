"""All that can be proved of a rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...language.rule import Rule
from .equations import of_terms
from .integers import Unknown, solver_module
from .loops import of_loops
from .outcome import Proof, Refuted
from .slabs import of_slabs
from .solver import SolverEffort

STATEMENTS = ("module", "loop", "tile")
Claims = Iterator[tuple[str, Refuted | None]]


def available() -> bool:
    """Whether Z3 is installed."""
    return solver_module() is not None


def prove(rule: Rule) -> Proof:
    """The claims of a rule about integers, each proved, refuted or left open. A local rule has none of its own: the
    names in it come from the rules that use it.
    """
    sources: tuple[Callable[[Rule, SolverEffort], Claims], ...] = (of_terms,)
    if rule.level in STATEMENTS:
        sources = (of_loops, of_slabs)
    if "local" in rule.attributes:
        return Proof()
    proved: list[str] = []
    left: list[str] = []
    refuted: Refuted | None = None
    for source in sources:
        try:
            for text, wrong in source(rule, SolverEffort()):
                if wrong is None:
                    proved.append(text)
                elif refuted is None:
                    refuted = wrong
        except Unknown as unknown:
            left.append(str(unknown))
    return Proof(tuple(dict.fromkeys(proved)), refuted, tuple(left))
