"""Guards that no known program violates: they may ask nothing, or nobody has shown what they are for."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ..kernels import examples as term_examples
from ..language import core as s
from ..language.rule import Rule
from ..language.rule_scope import WARNING, Finding
from ..rewrite import examples as torch_examples
from ..rewrite.examples import RUNNERS
from ..rewrite.statements.driver import Engine

TESTERS = (torch_examples, term_examples)  # of examples: known once these are imported


def unviolated(engine: Engine, rules: Iterable[Rule], target: Target) -> Iterator[Finding]:
    """The guards that refuse none of the example programs of the rule's level, those of other rules among them."""
    programs = {level: _programs(engine, level) for level in RUNNERS}
    for rule in rules:
        if "local" in rule.attributes or rule.family is not None:
            continue
        shown = [example.gives for example in rule.examples if isinstance(example.gives, str)]
        for guard in rule.guards:
            if any(text in guard.reason for text in shown) or _refused(engine, rule, guard, programs, target):
                continue
            what = f'no known program is refused because "{guard.reason}"'
            note = f"{len(programs[rule.level])} programs of examples were tried"
            hint = f'add an example that `gives no "{guard.reason}"`, or take the guard out'
            what = f"rule `{rule.name}`: {what}"
            yield Finding(what, guard.span, (note,), hint, WARNING, "unviolated")


def _programs(engine: Engine, level: str) -> list[tuple[Rule, s.Example]]:
    """The examples that the runner of a level can read."""
    runner = RUNNERS[level]
    alike = [rule for rule in engine.rules.rules.values() if RUNNERS.get(rule.level) is runner]
    return [(rule, example) for rule in alike for example in rule.examples]


def _refused(
    engine: Engine,
    rule: Rule,
    guard: s.Guard,
    programs: dict[str, list[tuple[Rule, s.Example]]],
    target: Target,
) -> bool:
    """Whether the guard refuses the program of an example, the nearest ones first."""
    near = sorted(programs[rule.level], key=lambda known: (known[0] is not rule, known[0].file != rule.file))
    for owner, example in near:
        tried = dataclasses.replace(example, gives=guard.reason, arguments=example.arguments if owner is rule else ())
        try:
            if RUNNERS[rule.level](engine, rule, tried, target) is None:
                return True
        except DplcError:  # the program of another rule, which this one cannot start from
            continue
    return False
