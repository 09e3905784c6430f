"""Fusion rules as edge permissions: which operations may compute what they read.

A rule `op(.., mat(v), ..) => op(.., v, ..)` permits the operation to take in a value that folds something;
`mat(v) => v` permits every reader to take in a value that does not. Extraction decides where that pays.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..kernels.rules import FusionRules, kind_of
from ..language import core as s
from ..language.rule import Rule

CONSTRUCTORS: dict[type[s.ValueTerm], str] = {
    s.ReduceTerm: "Red", s.CaseTerm: "Case", s.FoldTerm: "Fold", s.MappedTerm: "Map", s.ReadTerm: "Map",
    s.FunctionTerm: "E",
}  # fmt: skip


@dataclass(frozen=True)
class Permissions:
    """folding: the constructors that may take in a value with a reduction in it; plain: whether others are inlined."""

    folding: frozenset[str]
    plain: bool

    def allows(self, reader: str, folds: bool) -> bool:
        """Whether an operation may compute an operand, which `folds` something or does not."""
        return reader in self.folding if folds else self.plain

    @classmethod
    def of(cls, fusion: FusionRules) -> Permissions:
        return cls(frozenset(_readers(fusion.rules)), any(kind_of(rule) == "inline" for rule in fusion.rules))


def _readers(rules: Iterable[Rule]) -> Iterable[str]:
    for rule in rules:
        if kind_of(rule) == "fuse":
            yield CONSTRUCTORS[type(list(rule.left.values())[-1])]
