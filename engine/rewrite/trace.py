"""What happened: every firing, and every refusal with its reason. One record type for all levels.

`-v` prints a line for each firing. `-vv` prints a diff between `>>> t:007_stage_inputs` and `<<< t:007_stage_inputs`,
then how many rules did not match. `--why-not` prints `--- t:003_split_matmul_k skipped at NAME: reason` for those. The
letter is the level: d torch to tensor, a algebra, f fusion, l loop, t tile, k kernel.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...ir.compose import Folded
from ...ir.node import Node
from ...ir.text.programs import print_program

PREFIXES = {
    "torch": "d", "tensor": "a", "fusion": "f", "loop": "l", "module": "t", "tile": "t", "launches": "t", "kernel": "k",
}  # fmt: skip


class Reason(Protocol):
    def render(self) -> str: ...


class Weighed(Protocol):
    def line(self) -> str: ...
    def record(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class TextReason:
    """A reason that is text already."""

    text: str

    def render(self) -> str:
        return self.text


@dataclass(frozen=True)
class Firing:
    """A rule that fired. before, after: what it changed (anything that prints); cleaned: canonical rules after it;
    weighed: what each `choose` of the rule weighed; bound: the values of its pattern's names and `let`s; folded: what
    its template asked for that canonical forms of values made simpler; held: its guards, with what they saw."""

    prefix: str
    label: str
    rule: str
    location: str
    unit: str
    where: str
    parameters: dict[str, Any]
    before: tuple[Any, ...]
    after: tuple[Any, ...]
    cleaned: tuple[str, ...] = ()
    weighed: tuple[Weighed, ...] = ()
    bound: Mapping[str, Any] = field(default_factory=dict, compare=False)
    folded: tuple[Folded, ...] = field(default=(), compare=False)
    held: Callable[[], tuple[str, ...]] = field(default=tuple, compare=False)

    @property
    def marker(self) -> str:
        return f"{self.prefix}:{self.label}"

    def line(self) -> str:
        """`t:007_stage_inputs stage_inputs at mm 0/0/1 (N=2) rules/tile/memory/stage_inputs.rw:3`"""
        from .seen import show

        values = ", ".join(f"{name}={show(value)}" for name, value in self.parameters.items())
        shown = f" ({values})" if values else ""
        return f"{self.marker} {self.rule} at {self.unit} {self.where}{shown} {self.location}"

    def diff(self) -> Iterator[str]:
        """The lines of a unified diff, without file headers."""
        before, after = (_text(units).splitlines() for units in (self.before, self.after))
        for number, line in enumerate(difflib.unified_diff(before, after, "before", "after", lineterm="", n=2)):
            if number > 1:
                yield line

    def record(self) -> dict[str, Any]:
        """For `--json`."""
        from .seen import bound, folds, show

        return {
            "event": "fired", "level": self.prefix, "pass": self.label, "rule": self.rule, "location": self.location,
            "unit": self.unit, "site": self.where, "canonical": list(self.cleaned),
            "parameters": {name: show(value) for name, value in self.parameters.items()},
            "bound": bound(self.bound, self.parameters),
            "weighed": [choice.record() for choice in self.weighed],
            "folded": folds(self.folded),
            "diff": "\n".join(self.diff()),
        }  # fmt: skip


@dataclass(frozen=True)
class Skip:
    """A pass that found nothing to do in a unit, and why."""

    prefix: str
    label: str
    rule: str
    unit: str
    reason: Reason

    @property
    def marker(self) -> str:
        return f"{self.prefix}:{self.label}"

    def line(self) -> str:
        return f"--- {self.marker} skipped at {self.unit}: {self.reason.render()}"

    def record(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "event": "skipped", "level": self.prefix, "pass": self.label, "rule": self.rule, "unit": self.unit,
            "reason": self.reason.render(),
        }  # fmt: skip


@dataclass(frozen=True)
class Remark:
    """What decided, where it was no rule: a schedule out of the store."""

    prefix: str
    label: str
    unit: str
    text: str

    @property
    def rule(self) -> str:
        return ""

    @property
    def marker(self) -> str:
        return f"{self.prefix}:{self.label}"

    def line(self) -> str:
        return f"{self.marker} {self.unit}: {self.text}"

    def record(self) -> dict[str, Any]:
        """For `--json`."""
        return {"event": "remark", "level": self.prefix, "pass": self.label, "unit": self.unit, "text": self.text}


@dataclass(frozen=True)
class LeftOpen(Remark):
    """A condition of a rule that sizes leave undecided, so that the rule did not fire; with numbers it might have."""

    def line(self) -> str:
        return f"{self.marker} left open by a size at {self.unit}: {self.text}"

    def record(self) -> dict[str, Any]:
        """For `--json`."""
        return super().record() | {"event": "left open"}


Event = Firing | Skip | Remark


EACH = "each"  # of `--why-not`: all rules
SHOWN = 100  # lines of a trace that is printed


@dataclass(repr=False)
class Trace:
    """Events in the order they happened. No trace at all (None) is what costs nothing.

    Printed, it is a line for each of the first SHOWN firings; `render` gives all of it.
    """

    prefix: str = "t"
    events: list[Event] = field(default_factory=list)
    asked: frozenset[str] = frozenset()  # rules whose refusals are told, whatever else happened in their pass

    def at(self, stage: str) -> Trace:
        """From now on, events of this stage (torch, tensor, fusion, loop, tile, kernel)."""
        self.prefix = PREFIXES.get(stage, stage)
        return self

    def add(self, event: Event) -> None:
        self.events.append(event)

    @property
    def firings(self) -> tuple[Firing, ...]:
        return tuple(event for event in self.events if isinstance(event, Firing))

    @property
    def skips(self) -> tuple[Skip, ...]:
        return tuple(event for event in self.events if isinstance(event, Skip))

    @property
    def left_open(self) -> tuple[LeftOpen, ...]:
        """The conditions that sizes left undecided."""
        return tuple(event for event in self.events if isinstance(event, LeftOpen))

    def __repr__(self) -> str:
        open_ = f", {len(self.left_open)} left open by sizes" if self.left_open else ""
        return f"<dplc.Trace: {len(self.firings)} firings, {len(self.skips)} refusals{open_}>"

    def __str__(self) -> str:
        lines = list(lines_of(self.events, 1))
        more = [f".. and {len(lines) - SHOWN} more: .render(1) is all of it"] if len(lines) > SHOWN else []
        return "\n".join(
            (
                *lines[:SHOWN],
                *more,
                "what every rule changed: .render(2); and why others did not match: .render(2, ['each'])",
            )
        )

    def render(self, verbosity: int = 2, why_not: Collection[str] | None = None) -> str:
        """The text of `-v` (1) or `-vv` (2), ending in a newline if there is any.

        Args:
            why_not: the rules whose refusals are printed with their reasons, `each` for all; `-vv` counts the others.
                None: the rules that the trace was asked for.
        """
        why_not = self.asked if why_not is None else why_not
        told = [e for e in self.events if not isinstance(e, Skip) or not {EACH, e.rule, e.label}.isdisjoint(why_not)]
        lines = list(lines_of(told, verbosity)) if verbosity else []
        if verbosity < 2:
            lines += [event.line() for event in told if isinstance(event, Skip)]
        untold = len(self.events) - len(told)
        if untold and verbosity > 1:
            lines.append(f"{untold} rules did not match: --why-not each says why, --why-not RULE for one of them")
        return "\n".join(lines) + "\n" if lines else ""


def lines_of(events: Iterable[Event], verbosity: int, diffs: bool = True) -> Iterator[str]:
    """The lines of `-v` (1) or `-vv` (2); without diffs a firing has the guards that held instead."""
    for event in events:
        if isinstance(event, Remark):
            yield event.line()
        elif verbosity < 2:
            if isinstance(event, Firing):
                yield event.line()
        elif isinstance(event, Skip):
            yield event.line()
        elif not diffs:
            yield _then(event)
            yield from (f"    {line}" for line in (*_beside(event), *event.held()))
        else:
            yield f">>> {event.marker}"
            yield f"# {_then(event)}"
            yield from (f"# {line}" for line in _beside(event))
            yield from event.diff()
            yield f"<<< {event.marker}"


def _then(event: Firing) -> str:
    """The line of a firing, with the canonical rules that fired after it."""
    return event.line() + (f"; then {', '.join(event.cleaned)}" if event.cleaned else "")


def _beside(event: Firing) -> Iterator[str]:
    """What a firing weighed, and what was folded."""
    from .seen import folds

    yield from (f"choose {choice.line()}" for choice in event.weighed)
    yield from (f"folded {line}" for line in folds(event.folded))


def _text(units: tuple[Any, ...]) -> str:
    return "\n".join(print_program(unit) if isinstance(unit, Node) else str(unit) for unit in units)
