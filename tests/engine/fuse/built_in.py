"""The built-in fusion rules, compiled once for each set of parameters."""

from __future__ import annotations

import functools

from dplc.engine.fuse.rules import FusionRules
from dplc.engine.rw.rule import BUILT_IN, Rule, read_rules, rule_paths
from dplc.ir.diagnostic import Source


def rules_in(folder: str) -> list[Rule]:
    """The rules of one folder of ours."""
    paths = rule_paths(BUILT_IN / folder)
    sources = (Source(str(path.relative_to(BUILT_IN.parent)), path.read_text()) for path in paths)
    return [rule for source in sources for rule in read_rules(source).rules]


@functools.cache
def compiled(tile: int | None) -> FusionRules:
    """The rules with another tile limit; 0 is no rules at all, so that everything is stored."""
    if tile == 0:
        return FusionRules([])
    bounded = ("fuse_epilogue", "fuse_prologue", "fuse_beside", "store_operand")
    limits = {} if tile is None else {f"{rule}.TILE": tile for rule in bounded}
    return FusionRules(rules_in("fusion"), limits)
