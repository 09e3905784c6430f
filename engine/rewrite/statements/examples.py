"""Inline examples: the same engine, the same canonical form, a located failure with a diff.

A level whose rules another matcher runs registers its own runner with `runs("torch")`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ....codegen.target import Target
from ....codegen.target import target as target_named
from ....ir.diagnostic import DplcError
from ....ir.expr import Var
from ....ir.program import Kernel
from ....ir.text.print_statements import print_block
from ....ir.text.programs import print_program, read_unit
from ....ir.text.read_statements import read_block
from ...language import core as s
from ...language.questions import MISTAKES, mistaken
from ...language.rule import Rule
from .compiled import Program
from .driver import Engine
from .expressions import RuleExpressions

Runner = Callable[[Engine, Rule, s.Example, Target], "Failure | None"]
RUNNERS: dict[str, Runner] = {}


@dataclass(frozen=True)
class Failure:
    """An example that does not hold. got: what the rule gives, as text, where it fires."""

    rule: Rule
    example: s.Example
    problem: str
    details: tuple[str, ...] = ()
    got: str = ""

    def error(self) -> DplcError:
        what = f'example "{self.example.title}" of rule `{self.rule.name}` {self.problem}'
        return DplcError(what, self.example.span, self.details)

    def render(self) -> str:
        return self.error().render()

    @classmethod
    def different(cls, rule: Rule, example: s.Example, wanted: str, got: str) -> Failure:
        """The rule gives something else than the example says; both as text."""
        names = "the example says", "the rule gives"
        diff = tuple(difflib.unified_diff(wanted.splitlines(), got.splitlines(), *names, lineterm="", n=9))
        alike = "both read alike: a field holds a value where a name belongs, or a number of another type"
        return cls(rule, example, "gives something else", diff or (alike,), got)

    @classmethod
    def of_refusal(cls, rule: Rule, example: s.Example, fires: bool, reasons: Iterable[str]) -> Failure | None:
        """What is wrong with an example that says why the rule refuses. reasons: those that it gives."""
        if fires:
            return cls(rule, example, f'fires, but should refuse with "{example.gives}"')
        texts = tuple(dict.fromkeys(reasons))
        if any(str(example.gives) in text for text in texts):
            return None
        return cls(rule, example, f'refuses, but not with "{example.gives}"', texts)


def runs(*levels: str) -> Callable[[Runner], Runner]:
    """Register what runs the examples of these levels."""

    def register(runner: Runner) -> Runner:
        for level in levels:
            RUNNERS[level] = runner
        return runner

    return register


def awaited(example: s.Example) -> bool:
    """Whether an example does not say yet what the rule gives: `gives` and `pass`."""
    return isinstance(example.gives, tuple) and all(isinstance(one, s.PassStatement) for one in example.gives)


def run_examples(
    engine: Engine,
    rules: Iterable[Rule] | None = None,
    target: Target | None = None,
    only: str | None = None,
) -> tuple[int, list[Failure]]:
    """(how many examples ran, those that failed), in file order. only: the title of those that run. Levels without a
    runner are left out."""
    count, failures = 0, []
    for rule in engine.rules.rules.values() if rules is None else rules:
        runner = RUNNERS.get(rule.level)
        for example in rule.examples if runner else ():
            assert runner is not None
            if only is not None and example.title != only:
                continue
            count += 1
            failure = runner(engine, rule, example, target or target_named())
            if failure is not None:
                failures.append(failure)
    return count, failures


@runs("module", "loop", "tile", "kernel")
def run_statement_example(engine: Engine, rule: Rule, example: s.Example, target: Target) -> Failure | None:
    """One example of a statement rule. Its program is a block, wrapped in a kernel of its own, or whole kernels."""
    program = read_subject(example.before)
    pinned = arguments(example, rule)
    if "target" not in (parameter.name for parameter in rule.parameters):
        target = target_named(pinned.pop("target")) if "target" in pinned else target
    if isinstance(example.gives, str):
        reasons = engine.why_not(rule, program, target, pinned)
        return Failure.of_refusal(rule, example, not reasons, [reason.render() for reason in reasons])
    if "local" in rule.attributes:
        got = _local(engine, rule, program, pinned, target)
    else:
        match = next(engine.sites(rule, program, target, pinned), None)
        if match is None:
            reasons = engine.why_not(rule, program, target, pinned)
            return Failure(rule, example, "did not fire", tuple(dict.fromkeys(r.render() for r in reasons)))
        got = engine.rewrite(rule, program, match, target)[0]
    wanted = engine.normal(read_subject(example.gives), target, rule.level)
    got = engine.normal(got, target, rule.level)
    if got == wanted:
        return None
    return Failure.different(rule, example, _text(wanted), _text(got))


def _local(engine: Engine, rule: Rule, program: Program, pinned: dict[str, Any], target: Target) -> Program:
    from .site import Site

    kernel = program[0]
    given = tuple(pinned[name] for name in engine.rule(rule).given if name in pinned)
    env = {"target": target, "@site": Site(program, (0,), target)}
    body = engine.rule(rule).everywhere(kernel.body, given, env)
    return (Kernel(kernel.name, kernel.ins, kernel.outs, body), *program[1:])


def read_subject(block: tuple[s.Syntax, ...]) -> Program:
    """Kernels as they are; statements wrapped in a kernel without a name of its own."""
    if any(isinstance(statement, s.Unit) for statement in block):
        return tuple(read_unit(statement, sizes=None) for statement in block)  # type: ignore[misc]
    return (Kernel("example", (), (), read_block(block)),)


def arguments(example: s.Example, rule: Rule) -> dict[str, Any]:
    """The values in the parentheses of an example; a bare name is a name of its program."""
    return {
        a.name: Var(a.value.text) if isinstance(a.value, s.NameOf) else _constant(a.value, rule)
        for a in example.arguments
    }


def _constant(value: s.Syntax, rule: Rule) -> Any:
    """What an expression of numbers and texts alone comes to. Raises DplcError where it has no value."""
    try:
        return RuleExpressions(rule.level).compile(value)({})
    except MISTAKES as error:
        raise mistaken(value, error) from error


def _text(program: Program) -> str:
    if len(program) == 1 and program[0].name == "example" and not program[0].outs:
        return print_block(program[0].body)
    return print_program(program)
