"""Digests of the rules that a recorded schedule depends on.

An edit of a rule file invalidates the entries whose schedule it can change:

- An edit of a rule that fires in the schedule, or of a `local` rule that its template calls, does: in its pattern,
  guards, template or parameters, with the policy numbers that it reads.
- Every schedule depends on all canonical rules, because they may run after any rule; on the passes that make the first
  Tile of a kernel, because their rules fire by default and are not recorded; and on rules and passes of Kernel IR.
- An edit of a rule that was offered and did not fire does not, nor does the order of the passes of Tile IR. The
  schedule itself lists its rules in order. It may no longer be the best one, so a search starts again.
- Rules of the levels above change the kernel and so its key. A stored fusion candidate names the algebra that proves it
  and depends on all rules for stores.
- Documentation, examples, reasons, and the position in the file do not matter, nor do facts in Python, the code
  generator and the model: a replay checks every guard again.
- A user's rule that the search was never offered invalidates an entry, and so does a rule or pass that a user's file
  removes. Otherwise a new rule would never fire next to a store.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

from ..language import core as s
from ..language.rule import Rule, RuleSet, built_in_files
from ..language.typed_slots import walk
from ..rewrite.terms.rewriter import mentions_mat
from .records import Schedule, digest

LEVELS = frozenset(("module", "loop", "tile", "kernel"))
CANONICAL, TILING, LOWERING = "(canonical rules)", "(loop rules)", "(kernel rules)"
FUSING = "(fusion rules)"
_UNREAD = frozenset(("span", "reason", "docs"))


class RuleDigests:
    """Digests of the rules in force, each computed from its meaning at the first request."""

    def __init__(self, rules: RuleSet):
        self.rules = rules
        self._known: dict[str, str | None] = {}
        ours = set(map(id, built_in_files()))
        added = [file for file in rules.files if id(file) not in ours]
        self.own = frozenset(rule.name for file in added for rule in rules.in_force(file.rules) if rule.level in LEVELS)
        values = (rule for file in added for rule in rules.in_force(file.rules) if rule.level == "tensor")
        self.own_values = frozenset(rule.name for rule in values)
        names = {written.name for file in added for written in file.without}
        self.taken_out = names.union(*({rule.name for rule in rules.passes.get(name, ())} for name in names))

    def offered(self, program: bool) -> frozenset[str]:
        """Return the rules of the user that a search was offered.

        Rules on values are among them only if it chose among fusion variants.
        """
        return self.own | self.own_values if program else self.own

    def used(self, schedule: Schedule) -> dict[str, str]:
        """Return {rule: digest} of all rules that a schedule depends on, without removed rules."""
        names = (CANONICAL, TILING, LOWERING, *sorted({decision.rule for decision in schedule}))
        return {name: known for name in names if (known := self.digest(name)) is not None}

    def hold(self, used: Mapping[str, str]) -> bool:
        """Return whether the rules that an entry depends on are unchanged."""
        return all(self.digest(name) == known for name, known in used.items()) and not self.taken_out & used.keys()

    def digest(self, name: str) -> str | None:
        """Return the digest of a rule, of CANONICAL, TILING, LOWERING or FUSING, or None for an unknown rule."""
        if name not in self._known:
            self._known[name] = self._digest(name)
        return self._known[name]

    def _digest(self, name: str) -> str | None:
        if name == CANONICAL:
            return digest(*map(self._text, self.rules.canonical))
        if name == LOWERING:
            order = [p for file in self.rules.files for p in file.pipelines if p.name == "kernel"]
            on_kernels = self.rules.at("kernel")
            gone = sorted(self.taken_out & {rule.name for rule in on_kernels})
            return digest(*map(self._text, on_kernels), spelled(order), *gone)
        if name == TILING:
            return digest(*map(self._text, self._tiling()))
        if name == FUSING:
            on_stores = [rule for rule in self.rules.at("tensor") if mentions_mat(rule)]
            return digest(*map(self._text, on_stores), *sorted(self.taken_out & {rule.name for rule in on_stores}))
        rule = self.rules.rules.get(name)
        return None if rule is None else digest(self._text(rule))

    def _tiling(self) -> Iterator[Rule]:
        """Yield the rules of every pass that has a rule on loop nests without a Tile."""
        for _, members in sorted(self.rules.passes.items()):
            if any(rule.level in ("module", "loop") and not _mentions("Tile", rule.match) for rule in members):
                yield from members

    def _text(self, rule: Rule, above: frozenset[str] = frozenset()) -> str:
        """Return the text of a rule and of the local rules that it calls."""
        parts = (sorted(rule.attributes), rule.level, rule.parameters, rule.match, rule.clauses, rule.rewrite)
        called = sorted({node.fn for node in walk(rule.rewrite) if isinstance(node, s.Apply)} - above - {rule.name})
        local = [found for fn in called if (found := self.rules.rules.get(fn)) and "local" in found.attributes]
        inner = above | {rule.name}
        return "\n".join([spelled(parts), *(self._text(found, inner) for found in local)])


@functools.lru_cache(maxsize=8)
def digests_of(rules: RuleSet) -> RuleDigests:
    """Return the digests of a rule set. The last few are cached."""
    return RuleDigests(rules)


def spelled(value: Any) -> str:
    """Return syntax as text, without locations, documentation and reasons."""
    if isinstance(value, s.Syntax):
        fields = (f.name for f in dataclasses.fields(value) if f.name not in _UNREAD)
        return f"{type(value).__name__}({', '.join(spelled(getattr(value, name)) for name in fields)})"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(spelled, value))}]"
    return repr(value)


def _mentions(name: str, statements: tuple[s.Syntax, ...]) -> bool:
    return any(isinstance(node, s.Apply) and node.fn == name for node in walk(statements))
