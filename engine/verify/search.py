"""Drawing subjects with Hypothesis, and making the first wrong one small.

Hypothesis draws, varies what it drew and shrinks by choosing simpler values; what is left is made smaller piece by
piece (a statement less, a smaller extent) for as long as the rule is still wrong on it.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ...ir.diagnostic import DplcError
from ..language import core as s
from ..language.rule import Rule
from ..language.typed_slots import walk
from .outcome import HypothesisDice, PlainDice, Subject, Wrong

SHRINKING = 4.0  # seconds for one counterexample
TRIES = 600


def available() -> None:
    """Raise DplcError if Hypothesis is missing."""
    try:
        import hypothesis  # noqa: F401
    except ImportError:
        raise DplcError("checking rules needs Hypothesis", hint="pip install 'dplc[check]'") from None


def search(
    draw: Callable[[Any], Subject | None], check: Callable[[Subject], None], examples: int, seed: int,
    named: Sequence[int | float] = (),
) -> Wrong | None:  # fmt: skip
    """Draw subjects and check them; return the simplest counterexample, or None. The seed determines the subjects.

    named: numbers to draw in addition to others.
    """
    if examples == 0:
        return None
    import hypothesis
    from hypothesis import strategies

    found: list[Wrong] = []
    started: list[float] = []

    def attempt(data: Any) -> None:
        if started and time.monotonic() - started[0] > SHRINKING:
            return  # simple enough: Hypothesis sees that nothing fails any more and stops
        subject = draw(HypothesisDice(data, named))
        if subject is None:
            return
        try:
            check(subject)
        except Wrong as wrong:
            started.append(time.monotonic())
            found.append(wrong)
            raise

    settings = hypothesis.settings(
        max_examples=examples, database=None, deadline=None, print_blob=False, report_multiple_bugs=False,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink), suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    run = hypothesis.seed(seed)(settings(hypothesis.given(strategies.data())(attempt)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            run()
        except Wrong:
            pass
        except Exception:
            if not found:
                raise
    return min(found, key=lambda wrong: len(wrong.subject.text)) if found else None


def draw_until(
    enough: Callable[[], bool], draw: Callable[[Any], Subject | None], check: Callable[[Subject], None], most: int,
    seed: int, named: Sequence[int | float] = (),
) -> None:  # fmt: skip
    """Draw more subjects and check them until there are enough, `most` at most. Raises Wrong."""
    for turn in range(most):
        if enough():
            return
        subject = draw(PlainDice((seed, turn), named))
        if subject is not None:
            check(subject)


def smaller(
    wrong: Wrong, candidates: Callable[[Subject], Iterable[Subject]], check: Callable[[Subject], object]
) -> Wrong:
    """Return a smaller counterexample for the same rule, if there is one.

    candidates: subjects that are a little smaller, the smallest first.
    """
    until = time.monotonic() + SHRINKING
    tries = 0
    progress = True
    while progress:
        progress = False
        for subject in candidates(wrong.subject):
            tries += 1
            if tries > TRIES or time.monotonic() > until:
                return wrong
            if len(subject.text) > len(wrong.subject.text) or subject.text == wrong.subject.text:
                continue
            try:
                check(subject)
            except Wrong as other:
                wrong = other
                progress = True
                break
    return wrong


# ---- The numbers that the text of a rule names: what its guards compare with is where it may be wrong.


def named_numbers(rule: Rule) -> tuple[int | float, ...]:
    """Return every number of the pattern, the guards and the domains; for an integer also n + 1, n - 1 and 2 * n."""
    found: dict[int | float, None] = {}
    for value in _numbers((rule.match, rule.clauses, rule.parameters)):
        near = (value, value + 1, value - 1, 2 * value) if type(value) is int else (value,)
        found |= dict.fromkeys(near)
    return tuple(found)


def _numbers(node: Any) -> Iterator[int | float]:
    nodes = list(walk(node))
    negative = {id(one.a) for one in nodes if isinstance(one, s.Prefix) and one.op == "-"}
    for one in nodes:
        if isinstance(one, s.Number) and type(one.value) in (int, float) and math.isfinite(one.value):
            yield -one.value if id(one) in negative else one.value
