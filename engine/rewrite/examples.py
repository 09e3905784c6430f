"""Inline examples: the same engine, the same canonical form, a located failure with a diff.

A level whose rules another matcher runs registers its own runner with `runs("torch")`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ...codegen.target import Target
from ...codegen.target import target as target_named
from ...ir.diagnostic import DplcError
from ...ir.expr import Var
from ...ir.program import Kernel
from ...ir.tensor import TensorGraph
from ...ir.text.print_statements import print_block
from ...ir.text.programs import print_program, print_unit, read_unit
from ...ir.text.read_statements import read_block
from ...ir.text.tensor import read_graph
from ...ir.text.torch import read_torch_graph
from ...ir.torch import TorchGraph
from ..language import core as s
from ..language.evaluate import MISTAKES, mistaken
from ..language.rule import Rule, RuleSet
from .statements.compiled import Program
from .statements.driver import Engine
from .statements.expressions import RuleExpressions
from .torch_rules.lower import TorchLowering, TorchRule, compile_rules
from .torch_rules.pattern import NotApplicable
from .trace import program_key

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
    from .statements.site import Site

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


# Examples of torch rules: a Torch IR graph, and the Tensor IR graph it gives or the reason of a refusal.


@runs("torch")
def run_torch_example(engine: Engine, rule: Rule, example: s.Example, target: Target) -> Failure | None:
    """One example, for `dplc rules test`."""
    return run_example(rule, example, engine.rules)


def run_example(rule: Rule, example: s.Example, rules: RuleSet) -> Failure | None:
    """What is wrong with an example of a torch rule, None if it holds. Other rules lower what the rule leaves."""
    compiled = next(r for group in compile_rules(rules).values() for r in group if r.rule.name == rule.name)
    subject = torch_subject(example)
    if rule.family is not None and all(statement.op != compiled.key for statement in subject.body):
        return None  # an example of another member of the family
    if isinstance(example.gives, str):
        return Failure.of_refusal(rule, example, *_refusals(compiled, subject, rules))
    got, fired = lower_with(compiled, subject, rules)
    if not fired:
        return Failure(rule, example, "did not fire", tuple(_refusals(compiled, subject, rules)[1]))
    found = print_unit(got)
    if awaited(example):
        return Failure.different(rule, example, "", found)
    says = read_graph(_unit(example.gives, example))
    wanted = print_unit(says)
    if wanted == found or (_named(says) == _named(got) and program_key(says, ()) == program_key(got, ())):
        return None
    return Failure.different(rule, example, wanted, found)


def _named(graph: TensorGraph) -> list[str]:
    """What a caller names: inputs and outputs. Values and axes may have any names."""
    return [*(str(getattr(one, "name", "")) for one in graph.ins), *(out.name for out in graph.outs)]


def torch_subject(example: s.Example) -> TorchGraph:
    """The program of an example."""
    return read_torch_graph(_unit(example.before, example))


def _unit(block: tuple[s.Syntax, ...], example: s.Example) -> s.Unit:
    if len(block) != 1 or not isinstance(block[0], s.Unit) or block[0].kind != "graph":
        raise DplcError("an example on torch is one `graph`", example.span)
    return block[0]


def lower_with(compiled: TorchRule, subject: TorchGraph, rules: RuleSet) -> tuple[TensorGraph, bool]:
    """The Tensor IR of a program with one rule tried before all others, and whether it fired."""
    table = dict(compile_rules(rules))
    table[compiled.key] = (compiled, *(r for r in table[compiled.key] if r is not compiled))
    lowering = TorchLowering(subject, table, {}, trace=True)
    lowering.run()
    return lowering.finish(), any(fired.rule is compiled.rule for fired in lowering.fired)


def attempts(rule: TorchRule, graph: TorchGraph, others: Any) -> Iterator[Exception | None]:
    """What a rule raises at each op that it is for, None where it fires. others: the rules that lower its operands."""
    lowering = TorchLowering(graph, others, {})
    for statement in graph.body:
        if statement.op == rule.root.op:
            try:
                rule.fire(lowering, lowering.call(statement))
                yield None
            except Exception as error:  # any: another rule would have to go first
                yield error
        if others:
            with suppress(DplcError):  # what reads it finds no value then
                lowering.lower_statement(statement)


def _refusals(compiled: TorchRule, subject: TorchGraph, rules: RuleSet) -> tuple[bool, list[str]]:
    """Whether the rule fires somewhere, and why it refuses each op before that it might start from."""
    found: list[str] = []
    for error in attempts(compiled, subject, compile_rules(rules)):
        if error is None:
            return True, []
        if not isinstance(error, NotApplicable):
            raise error
        found.append(str(error))
    return False, found
