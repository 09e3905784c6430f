"""Further examples of rules, in a file beside theirs: `stage.examples.rw` beside `stage.rw`.

The example that explains a rule stands in the rule. Others, and the refusals, would hide it: they stand in the file
beside it, as `examples RULE` and the examples. They are read when somebody asks for them; a compile does not.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from ...ir.diagnostic import DplcError, Source, did_you_mean
from ...ir.text import equations as eq
from ...ir.text import syntax as s
from .cache import Later
from .varied import written_out

FURTHER = ".examples.rw"


class FurtherExamples:
    """The examples of one file, by the rules of the file beside it."""

    def __init__(self, source: Source, parse: Callable[[Source], tuple[s.Syntax, ...]]):
        self.source, self._parse = source, parse
        self._rules: list[str] = []

    def after(self, rule: s.Rule) -> Sequence[s.Example]:
        """The examples of a rule with those beside it behind them."""
        self._rules.append(rule.name)
        own = rule.examples
        return Later(lambda: tuple(written_out((*own, *self._found.get(rule.name, ())))))

    @functools.cached_property
    def _found(self) -> dict[str, tuple[s.Example | eq.VariedExample, ...]]:
        found: dict[str, tuple[s.Example | eq.VariedExample, ...]] = {}
        for declaration in self._parse(self.source):
            if not isinstance(declaration, s.ExamplesOf):
                raise DplcError("a file of examples holds `examples RULE` and examples of it", declaration.span)
            name = declaration.rule
            if name not in self._rules:
                beside = self.source.name.rpartition("/")[2].removesuffix(FURTHER)
                hint = did_you_mean(name, self._rules)
                raise DplcError(f"there is no rule `{name}` in {beside}.rw", declaration.span, (), hint)
            found[name] = (*found.get(name, ()), *declaration.examples)
        return found
