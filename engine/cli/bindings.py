"""`--size s=1,7,100`: the numbers that the sizes of a program are bound to."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...ir.diagnostic import UsageError, did_you_mean
from ...ir.expr import Size
from ..capture.capture import Capture
from ..compiler import Compilation
from ..run.binding import at_binding
from .show import print_remark

MOST_RUNS = 1000


def bindings(sizes: Mapping[str, Size], subject: str, asked: Sequence[str] | None) -> list[dict[str, int]]:
    """The numbers of the sizes of a program: of `--size`, every combination; else hints, and a note says so.

    asked: what `--size` says; subject: what declares them, for messages. Raises UsageError for what is no size of it.
    """
    given: dict[str, list[int]] = {}
    for written in asked or ():
        name, _, numbers = (part.strip() for part in written.partition("="))
        if not re.fullmatch(r"\d{1,15}(\s*,\s*\d{1,15})*", numbers):
            raise UsageError(f"--size {written}: write NAME=7 or NAME=1,7,100")
        if name not in sizes:
            has = f"it has {', '.join(sizes)}" if sizes else "it has none"
            raise UsageError(
                f"--size {written}: {subject} has no size `{name}`", notes=(has,), hint=did_you_mean(name, sizes)
            )
        given[name] = list(dict.fromkeys(map(int, numbers.split(","))))
    for name, size in sizes.items():
        if name not in given:
            print_remark(f"`{name}` is {size.hint}, its hint; --size {name}=N for another number")
    values = [given.get(name, [size.hint]) for name, size in sizes.items()]
    if math.prod(map(len, values)) > MOST_RUNS:
        raise UsageError(f"--size: more than {MOST_RUNS} combinations")
    return [dict(zip(sizes, point, strict=True)) for point in itertools.product(*values)]


def alone(found: Sequence[Mapping[str, int]], wanted: bool, why: str) -> None:
    """Raises UsageError where something is wanted of one binding, and there are several."""
    if wanted and len(found) > 1:
        raise UsageError(f"{why}: give one number of each size")


def drawn_at(made: Compilation, drawn: Capture, binding: Mapping[str, int]) -> Compilation:
    """A text that was compiled with sizes, at a binding. drawn: the text evaluated there, for its inputs."""
    tensors = {**made.captured.tensors, **drawn.tensors}
    return at_binding(made, binding, replace(made.captured, tensors=tensors, reference=drawn.reference))


def told(binding: Mapping[str, int]) -> str:
    """`s=7, t=9:`, before what belongs to it."""
    return ", ".join(f"{name}={value}" for name, value in binding.items()) + ":\n"
