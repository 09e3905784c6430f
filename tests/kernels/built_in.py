"""The built-in fusion rules, compiled once for each set of parameters."""

from __future__ import annotations

import functools

from dplc.engine.kernels.fusion_pass import FusionRules
from dplc.engine.language.rule import Rule, load


def rules_in(folder: str) -> list[Rule]:
    """The rules of one folder of ours."""
    return [rule for rule in load().rules.values() if rule.span.source.name.startswith(f"rules/{folder}/")]


@functools.cache
def compiled(tile: int | None) -> FusionRules:
    """The rules with another tile limit; 0 is no rules at all, so that everything is stored."""
    if tile == 0:
        return FusionRules([])
    bounded = ("fuse_epilogue", "fuse_prologue", "fuse_beside", "store_operand")
    limits = {} if tile is None else {f"{rule}.TILE": tile for rule in bounded}
    return FusionRules(rules_in("fusion"), limits)
