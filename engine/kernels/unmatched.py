"""Why a rule of fusion says nothing of a program: the nearest operation at which it could be asked, and what became of
the values that it would have taken in there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...ir.tensor import TensorGraph, Term, operands, postorder
from ...ir.text.tensor import print_lines
from ..language.rule import Rule
from ..rewrite.seen import written
from ..rewrite.terms.nearest import LEAVES, begins_at
from .decisions import FusionDecisions
from .rules import kind_of

NOWHERE = "the pattern matches nowhere"
NOTHING = "it reads nothing that is computed"


class Unmatched:
    """Answers of one program: who took what in, and who is stored for whom."""

    def __init__(self, graph: TensorGraph, decisions: FusionDecisions, names: Mapping[Term, str]):
        self.graph, self.decisions, self.names = graph, decisions, names
        self.taken: dict[tuple[Term, Term | None], Rule] = {}
        for fused in decisions.firings:
            self.taken.setdefault((fused.value, fused.reader), fused.rule)

    def told(self, rule: Rule) -> tuple[Term | None, str]:
        """The value at which a rule came nearest, None where there is none, and why it did not fire there."""
        kind = kind_of(rule)
        if kind == "siblings":
            several = len(self.decisions.stored) > 1
            return None, f"{NOWHERE}: {'no two stored values are left for it' if several else 'one value is stored'}"
        outs = tuple(out.value for out in self.graph.outs)
        readers = [term for term in postorder(outs) if begins_at(rule, term)]
        if not readers:
            return None, f"{NOWHERE}: no value here is made as its last, `{written(list(rule.left.values())[-1].node)}`"
        if kind == "share":
            return None, f"{NOWHERE}: what is made as its last is computed by one kernel, and once there"
        if kind == "climb" and not any(one.reader for one in self.decisions.why.values()):
            return None, f"{NOWHERE}: no value is stored because of who reads it, so no `mat` climbs"
        return max((self._at(term) for term in readers), key=lambda found: found[0])[1:]

    def _at(self, reader: Term) -> tuple[int, Term, str]:
        """How near a rule came at an operation, and what became of the values of its kernel."""
        told = [self._value(value, reader) for value in self._below(reader)]
        near, text = max(told, key=lambda found: found[0], default=(0, NOTHING))
        return near, reader, f"{NOWHERE}; nearest at `{self._line(reader)}`: {text}"

    def _below(self, reader: Term) -> Iterator[Term]:
        """What an operation reads, and what its kernel computes for that."""
        waiting, seen = [*operands(reader)], set[Term]()
        while waiting:
            value = waiting.pop(0)
            if value not in seen and not isinstance(value, LEAVES):
                seen.add(value)
                yield value
                waiting += () if value in self.decisions.stored else operands(value)

    def _value(self, value: Term, reader: Term) -> tuple[int, str]:
        """How near a value was to being taken in, and what became of it."""
        called = f"`{self.names.get(value) or self._line(value)}`"
        here, anywhere = self.taken.get((value, reader)), self.taken.get((value, None))
        if here is not None:
            return 3, f"`{here.name}`, which is asked before it, takes {called} in"
        if value in self.decisions.stored:
            return 1, f"{called} is stored{self._because(value)}"
        if anywhere is not None:
            return 2, f"{called} is not stored there: `{anywhere.name}` dropped its `mat` before"
        return 0, NOTHING

    def _because(self, value: Term) -> str:
        stored = self.decisions.why.get(value)
        if stored is None or stored.reader is None:
            return ""
        return f" for `{self.names.get(stored.reader) or self._line(stored.reader)}`: {stored.reason}"

    def _line(self, value: Term) -> str:
        return print_lines(self.graph, value, operands(value)).split("\n")[-1]
