"""Which rules a recorded schedule depends on, and whether they still say what they said.

Which edits of rule files can change what an entry of the store means?

- A rule that fires in the schedule, in its pattern, guards or template; also a `local` rule that its template calls:
  yes.
- A canonical rule: it may run after any firing, so every schedule depends on all of them.
- A rule that makes the first Tile of a kernel, or changes its loops before: they fire by default and are not listed.
- A rule on Kernel IR, or the order of those passes: they run after every schedule.
- A rule that was offered and did not fire, or the order of the passes of Tile IR: no. The schedule says itself what
  fires, in which order, and nothing else does; it may no longer be the best one, so a search looks again
  (`TuningKey.rules`).
- Rules on the levels above: they change the kernel itself, and with it the key. A remembered candidate of fusion
  (`candidates.py`) names the algebra that proves it, and depends on the rules for stores as a whole.
- Documentation, examples, the texts of reasons, the place in the file: no.
- A user's rule that the search was never offered, a rule or pass that a user's file takes out: the entry is not about
  this rule set. Otherwise nobody who writes a rule would see it fire where a store is.

An edit of a fact or of the code generator comes with another version of dplc, which the key holds.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...ir.text import syntax as s
from ..match.terms import mentions_mat
from ..rw.positions import walk
from ..rw.rule import Rule, RuleSet, built_in_files
from .protocol import Schedule

LEVELS = frozenset(("module", "loop", "tile", "kernel"))
CANONICAL, TILING, LOWERING = "(canonical rules)", "(loop rules)", "(kernel rules)"
FUSING = "(fusion rules)"
_UNREAD = frozenset(("span", "reason", "docs"))


class RuleDigests:
    """The rules in force, each as a digest of what it means; computed when asked for."""

    def __init__(self, rules: RuleSet):
        self.rules = rules
        self._known: dict[str, str | None] = {}
        ours = set(map(id, built_in_files()))
        added = [file for file in rules.files if id(file) not in ours]
        self.own = frozenset(rule.name for file in added for rule in file.rules if rule.level in LEVELS)
        self.own_values = frozenset(rule.name for file in added for rule in file.rules if rule.level == "tensor")
        names = {written.name for file in added for written in file.without}
        self.taken_out = names.union(*({rule.name for rule in rules.passes.get(name, ())} for name in names))

    def offered(self, program: bool) -> frozenset[str]:
        """Rules of users that a search was offered: those on values only where it chose among ways of fusing."""
        return self.own | self.own_values if program else self.own

    def used(self, schedule: Schedule) -> dict[str, str]:
        """{rule: digest} of all that a schedule depends on. Rules that are not there (any more) are left out."""
        names = (CANONICAL, TILING, LOWERING, *sorted({decision.rule for decision in schedule}))
        return {name: digest for name in names if (digest := self.digest(name)) is not None}

    def hold(self, used: Mapping[str, str]) -> bool:
        """Whether the rules that an entry depends on still say the same."""
        return all(self.digest(name) == digest for name, digest in used.items()) and not self.taken_out & used.keys()

    def digest(self, name: str) -> str | None:
        """The digest of a rule, of CANONICAL, TILING or LOWERING; None for a rule that is not there."""
        if name not in self._known:
            self._known[name] = self._digest(name)
        return self._known[name]

    def _digest(self, name: str) -> str | None:
        if name == CANONICAL:
            return _hash(map(self._text, self.rules.canonical))
        if name == LOWERING:
            order = [p for file in self.rules.files for p in file.pipelines if p.name == "kernel"]
            on_kernels = self.rules.at("kernel")
            gone = sorted(self.taken_out & {rule.name for rule in on_kernels})
            return _hash([*map(self._text, on_kernels), spelled(order), *gone])
        if name == TILING:
            return _hash(map(self._text, self._tiling()))
        if name == FUSING:
            on_stores = [rule for rule in self.rules.at("tensor") if mentions_mat(rule)]
            return _hash([*map(self._text, on_stores), *sorted(self.taken_out & {rule.name for rule in on_stores})])
        rule = self.rules.rules.get(name)
        return None if rule is None else _hash([self._text(rule)])

    def _tiling(self) -> Iterator[Rule]:
        """The rules of every pass that has one on loop nests without a Tile."""
        for members in self.rules.passes.values():
            if any(rule.level in ("module", "loop") and not _mentions("Tile", rule.match) for rule in members):
                yield from members

    def _text(self, rule: Rule, above: frozenset[str] = frozenset()) -> str:
        """What a rule says, and what the local rules say that it calls."""
        parts = (sorted(rule.attributes), rule.level, rule.parameters, rule.match, rule.clauses, rule.rewrite)
        called = sorted({node.fn for node in walk(rule.rewrite) if isinstance(node, s.Apply)} - above - {rule.name})
        local = [found for fn in called if (found := self.rules.rules.get(fn)) and "local" in found.attributes]
        inner = above | {rule.name}
        return "\n".join([spelled(parts), *(self._text(found, inner) for found in local)])


@functools.lru_cache(maxsize=8)
def digests_of(rules: RuleSet) -> RuleDigests:
    """The digests of a rule set; the last few are kept."""
    return RuleDigests(rules)


def spelled(value: Any) -> str:
    """Syntax as text, without places, documentation and reasons."""
    if isinstance(value, s.Syntax):
        fields = (f.name for f in dataclasses.fields(value) if f.name not in _UNREAD)
        return f"{type(value).__name__}({', '.join(spelled(getattr(value, name)) for name in fields)})"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(spelled, value))}]"
    return repr(value)


def _mentions(name: str, statements: tuple[s.Syntax, ...]) -> bool:
    return any(isinstance(node, s.Apply) and node.fn == name for node in walk(statements))


def _hash(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
