"""Inline examples of torch rules: a Torch IR graph, and the Tensor IR graph it gives, or the reason of a refusal."""

from __future__ import annotations

from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ...ir.tensor import TensorGraph
from ...ir.text import syntax as s
from ...ir.text.print import print_unit
from ...ir.text.tensor import read_graph
from ...ir.text.torch import read_torch_graph
from ...ir.torch import TorchGraph
from ..match.driver import Engine
from ..match.examples import Failure, runs
from ..rw.rule import Rule, RuleSet
from .lower import Lowering, compile_rules
from .torch_rules.rule import TorchRule
from .torch_rules.values import Refusal


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
        return _refusal(compiled, example, subject, rules)
    got, fired = lower_with(compiled, subject, rules)
    if not fired:
        return Failure(rule, example, "did not fire", tuple(_reasons(compiled, subject, rules)))
    wanted, found = print_unit(read_graph(_unit(example.gives, example))), print_unit(got)
    if wanted == found:
        return None
    return Failure.different(rule, example, wanted, found)


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
    lowering = Lowering(subject, table, {}, trace=True)
    lowering.run()
    return lowering.finish(), any(fired.rule is compiled.rule for fired in lowering.fired)


def _refusal(compiled: TorchRule, example: s.Example, subject: TorchGraph, rules: RuleSet) -> Failure | None:
    reasons = _reasons(compiled, subject, rules)
    if None in reasons:
        return Failure(compiled.rule, example, f'fires, but should refuse with "{example.gives}"')
    texts = tuple(reason for reason in reasons if reason is not None)
    if any(example.gives in text for text in texts):
        return None
    return Failure(compiled.rule, example, f'refuses, but not with "{example.gives}"', texts)


def _reasons(compiled: TorchRule, subject: TorchGraph, rules: RuleSet) -> list[str]:
    """Why the rule refuses each op that it might start from; None where it fires."""
    lowering = Lowering(subject, {}, {})
    found: list[str] = []
    for statement in subject.body:
        if statement.op == compiled.root.op:
            try:
                compiled.fire(lowering, lowering.call(statement))
            except Refusal as refusal:
                found.append(str(refusal))
            else:
                return [None]  # type: ignore[list-item]
    return found
