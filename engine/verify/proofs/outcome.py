"""What proving says about a rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Refuted:
    """numbers: extents, parameters and values for which a claim fails, by name; problem: how, in words."""

    numbers: dict[str, int] = field(hash=False)
    problem: str


@dataclass(frozen=True)
class Proof:
    """One rule. proved: its claims that hold; refuted: a claim that does not; open: why others are not decided."""

    proved: tuple[str, ...] = ()
    refuted: Refuted | None = None
    open: tuple[str, ...] = ()

    @property
    def result(self) -> str:
        """proved, refuted, not provable, or none: it has no arithmetic of indices."""
        if self.refuted is not None:
            return "refuted"
        return "not provable" if self.open else "proved" if self.proved else "none"

    def record(self) -> dict[str, Any]:
        """For --json."""
        found: dict[str, Any] = {"result": self.result, "proved": list(self.proved), "open": list(self.open)}
        if self.refuted is not None:
            found |= {"problem": self.refuted.problem, "numbers": self.refuted.numbers}
        return found


def shown(numbers: Mapping[str, int]) -> dict[str, int]:
    """The numbers of what a rule names: not what facts answer, not single turns."""
    return {name: value for name, value in numbers.items() if name.isidentifier()}


def told(proofs: Iterable[tuple[str, Proof]], each: bool) -> list[str]:
    """Lines for people: how many rules are proved, and for each of them what and why not."""
    known = [(rule, proof) for rule, proof in proofs if proof.result != "none"]
    if not known:
        return []
    counts = {result: sum(p.result == result for _, p in known) for result in ("proved", "not provable", "refuted")}
    lines = ["index arithmetic, over all integers: " + ", ".join(f"{n} {result}" for result, n in counts.items())]
    for rule, proof in known:
        if each or proof.result == "refuted":
            lines += [f"  {rule}: proved: {text}" for text in proof.proved]
            lines += [f"  {rule}: not provable: {text}" for text in proof.open]
            if proof.refuted is not None:
                lines.append(f"  {rule}: refuted: {proof.refuted.problem}")
    return lines
