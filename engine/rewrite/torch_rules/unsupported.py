"""What is said of a torch op that no rule takes: its name, the user's place, every candidate's reason, what to do."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from ....ir.diagnostic import DplcError, Span
from ....ir.ranges import where_decided
from ....ir.schemas import aten_name, names
from ....ir.torch import TorchOp
from ...language.rule import Rule
from .values import NotApplicable

TOLD_TEXT = 200  # characters of a program that a message repeats

Refusals = Sequence[tuple[Rule, NotApplicable]]


def unsupported(op: TorchOp, origin: TorchOp, refusals: Refusals, found: Span | str | None) -> DplcError:
    """The error for an op. origin: the user's op that it is part of; found: where that is written, or in which module.

    Where a size left something open, it says for which part of the range a rule would take the op.
    """
    name = aten_name(op.op) if op.op in names() else op.op
    notes = [f"{rule.location}: {rule.name}: {refusal.told}" for rule, refusal in refusals]
    if origin.op not in (op.op, "Getitem"):
        notes.insert(0, f"it is part of `{aten_name(origin.op)}`")
    if isinstance(found, str):
        notes.append(f"in {found}")
    place, what = found if isinstance(found, Span) else None, f"torch op '{name}' is not supported"
    narrower = where_decided(what, [refusal.undecided for _, refusal in refusals], place, notes)
    return narrower or DplcError(what, place, notes, _how_to_write(op.op, place))


def _how_to_write(op: str, place: Span | None) -> str | None:
    """The command that begins a rule for an op: a program that is a line of text goes with it."""
    if op not in names() or op == "Getitem":
        return None
    name = aten_name(op)
    text = place.source.text.strip() if place is not None else ""
    told = f" -c {shlex.quote(text)}" if text and "\n" not in text and len(text) < TOLD_TEXT else ""
    return f"begin its rule: dplc rules new {name.strip('_')} --op {name}{told} -o {name.strip('_')}.rw"
