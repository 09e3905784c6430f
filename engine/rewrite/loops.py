"""Rules that undo one another: which they are, where they stand, and two steps of the way round."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...ir.compose import Folded
from ...ir.diagnostic import DplcError
from ...ir.tensor import Case, Const, Elementwise, Fold, Index, Input, Mat, Reduce, Remap
from ...ir.text.programs import print_unit
from ..language.rule import Rule

RECENT = 64  # firings that are remembered
STEPS = 2  # of a loop that are shown
DEPTH = 4  # of a term that is shown
LINES = 8  # of a step on statements


@dataclass(frozen=True)
class RewriteStep:
    """A rule made one program, or one term, of another."""

    rule: Rule
    before: Any
    after: Any
    bound: Mapping[str, Any] = field(default_factory=dict, compare=False)  # by the pattern, where somebody traces
    folded: tuple[Folded, ...] = field(default=(), compare=False)  # of its template, where somebody traces


def endless(what: str, fired: Sequence[RewriteStep]) -> DplcError:
    """The error for firings that come to no end. fired: the last of them, in order."""
    loop = around(fired)
    rules = list({step.rule.name: step.rule for step in loop}.values())
    names = [f"`{rule.name}`" for rule in rules]
    if len(names) == 1:
        said = f"{names[0]} fires on what it made"
    else:
        said = f"{', '.join(names[:-1])} and {names[-1]} undo one another"
    notes = [f"`{rule.name}` is at {rule.location}" for rule in rules]
    for step in loop[:STEPS]:
        notes += [f"{step.rule.name}:", *(f"  {line}" for line in _shown(step))]
    hint = "a guard must see that the other one fired, or something get less with every firing"
    return DplcError(f"{what}: {said}", rules[-1].span if rules else None, tuple(notes), hint)


def around(fired: Sequence[RewriteStep]) -> Sequence[RewriteStep]:
    """The firings of one way round: from what the last one came back to; where nothing comes back but all grows, one
    of each rule that fires again and again."""
    last = fired[-1].after
    for place in range(len(fired) - 1, -1, -1):
        if fired[place].before == last:
            return _linked(fired[place:])
    often = Counter(step.rule.name for step in fired[-RECENT:])
    chosen = {step.rule.name: step for step in fired[-RECENT:] if often[step.rule.name] > 1}
    return tuple(chosen.values()) or fired[-1:]


def _linked(fired: Sequence[RewriteStep]) -> Sequence[RewriteStep]:
    """Of firings between, those that lead on from one to the next, where they do so all the way."""
    found, at = [], fired[0].before
    for step in fired:
        if step.before == at:
            found.append(step)
            at = step.after
    return found if at == fired[-1].after else fired


def _shown(step: RewriteStep) -> list[str]:
    if isinstance(step.before, tuple):
        before, after = ("\n".join(map(print_unit, units)).splitlines() for units in (step.before, step.after))
        lines = difflib.unified_diff(before, after, n=0, lineterm="")
        changed = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
        return changed[:LINES] + (["..."] if len(changed) > LINES else [])
    return [f"{written(step.before)}  =>  {written(step.after)}"]


def written(term: Any, depth: int = DEPTH) -> str:
    """A term on one line."""
    kind = term.__class__
    if kind is Input:
        return str(term.name)
    if kind is Const:
        return str(term.value).lower() if isinstance(term.value, bool) else str(term.value)
    if depth == 0:
        return ".."
    if kind is Elementwise or kind is Fold:
        name = term.fn if kind is Elementwise else f"Fold({term.part})"
        return f"{name}({', '.join(written(x, depth - 1) for x in term.args)})"
    if kind is Reduce:
        axes = ", ".join(axis.name for axis in term.over)
        return f"Reduce({term.fn}, {axes}, {written(term.x, depth - 1)})"
    if kind is Remap:
        return f"{written(term.x, depth - 1)}[..]"
    if kind is Case:
        return f"Case(.., {written(term.a, depth - 1)}, {written(term.b, depth - 1)})"
    return "Index(..)" if kind is Index else f"mat({written(term.x, depth - 1)})" if kind is Mat else str(term)
