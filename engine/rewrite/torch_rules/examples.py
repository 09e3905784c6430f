"""Inline examples of torch rules: a Torch IR graph, and the Tensor IR graph it gives, or the reason of a refusal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from ....codegen.target import Target
from ....ir.diagnostic import DplcError
from ....ir.tensor import TensorGraph
from ....ir.text.programs import print_unit
from ....ir.text.tensor import read_graph
from ....ir.text.torch import read_torch_graph
from ....ir.torch import TorchGraph
from ...language import core as s
from ...language.rule import Rule, RuleSet
from ..program_key import program_key
from ..statements.driver import Engine
from ..statements.examples import Failure, awaited, runs
from .lower import TorchLowering, compile_rules
from .rule import TorchRule
from .values import NotApplicable


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
