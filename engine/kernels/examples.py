"""Inline examples of rules: one runner, one try for each kind of level, a located failure with a diff.

On tensor an input called `weight..` is a weight. An example of a fusion rule marks the values in question with `mat`;
its result keeps the `mat`s that the rule did not drop.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from operator import attrgetter
from typing import Any, NamedTuple

from ...codegen.target import Target, target as target_named
from ...ir.compose import rebuilt
from ...ir.diagnostic import DplcError
from ...ir.expr import Var
from ...ir.node import immutable
from ...ir.program import Kernel
from ...ir.tensor import Mat, Output, TensorGraph, Term, terms
from ...ir.text.print_statements import print_block
from ...ir.text.programs import print_program, print_unit, read_unit
from ...ir.text.read_statements import read_block
from ...ir.text.tensor import read_graph
from ...ir.text.torch import read_torch_graph
from ...ir.torch import TorchGraph
from ..language.core import Example, NameOf, Nodes, PassStatement, Unit
from ..language.evaluate import MISTAKES, mistaken
from ..language.rule import Rule, RuleSet
from ..rewrite.statements.compiled import Program
from ..rewrite.statements.driver import LEVELS, Engine
from ..rewrite.statements.pattern import RuleExpressions
from ..rewrite.statements.site import Site
from ..rewrite.terms.rewriter import TermEvidence, TermRules, mentions_mat, rewrite_graph
from ..rewrite.torch_rules.lower import RuleTable, TorchLowering, TorchRule, compile_rules
from ..rewrite.torch_rules.pattern import NotApplicable
from ..rewrite.trace import program_key
from .fusion_pass import Fusion, FusionRules
from .kernels import Kernels
from .sharing import key


@immutable
class Failure:
    """An example that does not hold. got: what the rule gives, as text, where it fires."""

    rule: Rule
    example: Example
    problem: str
    details: tuple[str, ...] = ()
    got: str = ""

    def error(self) -> DplcError:
        what = f'example "{self.example.title}" of rule `{self.rule.name}` {self.problem}'
        hint = "change the rule or the example; `dplc rules test --accept FILE` writes what a rule gives"
        return DplcError(what, self.example, hint, self.details)

    def render(self) -> str:
        return self.error().render()

    @classmethod
    def different(cls, rule: Rule, example: Example, wanted: str, got: str) -> Failure:
        """Return the failure of a rule that gives something else than the example says; both as text."""
        names = "the example says", "the rule gives"
        diff = tuple(difflib.unified_diff(wanted.splitlines(), got.splitlines(), *names, lineterm="", n=9))
        alike = "both read alike: a field holds a value where a name belongs, or a number of another type"
        return cls(rule, example, "gives something else", diff or (alike,), got)


class ExampleOutcome(NamedTuple):
    """Result of a rule on the program of an example.

    got: the resulting program, None if the rule did not fire; reasons: why not; read: reads the program that the
    example gives; text: prints one; key: equal for equals.
    """

    got: Any
    reasons: Iterable[str]
    read: Callable[[Nodes], Any]
    text: Callable[[Any], str] = print_unit
    key: Callable[[Any], Any] = attrgetter("outs")


def run_examples(
    engine: Engine, rules: Iterable[Rule] | None = None, only: str | None = None
) -> tuple[int, list[Failure]]:
    """Return (how many examples ran, those that failed), in file order. only: the title of those that run."""
    ran = [
        run_example(engine, rule, example, target_named(rule.device.text if rule.device else None))
        for rule in (engine.rules.rules.values() if rules is None else rules)
        for example in rule.examples
        if only in (None, example.title)
    ]
    return len(ran), [failure for failure in ran if failure is not None]


def run_example(engine: Engine, rule: Rule, example: Example, target: Target) -> Failure | None:
    """Return the failure of an example of a rule, None if the example holds."""
    tried = TRIES[rule.level](engine, rule, example, target)
    if tried is None:
        return None
    gives, reasons = example.gives, tuple(dict.fromkeys(tried.reasons))
    if isinstance(gives, str):
        if tried.got is not None:
            return Failure(rule, example, f'fires, but should refuse with "{gives}"')
        refused = any(gives in reason for reason in reasons)
        return None if refused else Failure(rule, example, f'refuses, but not with "{gives}"', reasons)
    if tried.got is None:
        return Failure(rule, example, "did not fire", reasons)
    if all(isinstance(one, PassStatement) for one in gives):  # it does not say yet what the rule gives
        return Failure.different(rule, example, "", tried.text(tried.got))
    wanted = tried.read(gives)
    if tried.key(wanted) == tried.key(tried.got):
        return None
    return Failure.different(rule, example, tried.text(wanted), tried.text(tried.got))


def _graph(block: Nodes, example: Example, what: str) -> Unit:
    """Return the graph that an example consists of."""
    if len(block) != 1 or not isinstance(block[0], Unit) or block[0].kind != "graph":
        raise DplcError(f"an example {what} is one `graph`", example.span)
    return block[0]


# ---- rules on statements


def _try_statements(engine: Engine, rule: Rule, example: Example, target: Target) -> ExampleOutcome:
    """Run a rule on statements: a block, wrapped in a kernel of its own, or whole kernels."""
    program = read_subject(example.before)
    pinned = arguments(example, rule)
    if "target" in pinned and all(parameter.name != "target" for parameter in rule.parameters):
        target = target_named(pinned.pop("target"))

    def normal(units: Program) -> Program:
        return engine.normal(units, target, rule.level)

    refused, reasons = isinstance(example.gives, str), list[str]()
    if not refused and "local" in rule.attributes:
        kernel, *others = program
        compiled = engine.rule(rule)
        given = tuple(pinned[name] for name in compiled.given if name in pinned)
        body = compiled.everywhere(kernel.body, given, {"target": target, "@site": Site(program, (0,), target)})
        got: Program | None = (Kernel(kernel.name, kernel.ins, kernel.outs, body), *others)
    elif not refused and (match := next(engine.sites(rule, program, target, pinned), None)) is not None:
        got, _ = engine.rewrite(rule, match)
    else:
        reasons = [reason.render() for reason in engine.why_not(rule, program, target, pinned)]
        got = program if refused and not reasons else None
    return ExampleOutcome(got and normal(got), reasons, lambda block: normal(read_subject(block)), _text, tuple)


def read_subject(block: Nodes) -> Program:
    """Read kernels as they are; wrap statements in a kernel without a name of its own."""
    if any(isinstance(statement, Unit) for statement in block):
        return tuple(read_unit(statement, sizes=None) for statement in block)  # type: ignore[misc]
    return (Kernel("example", (), (), read_block(block)),)


def arguments(example: Example, rule: Rule) -> dict[str, Any]:
    """Return the values in the parentheses of an example; a bare name is a name of its program.

    Raises DplcError for what is not an expression of numbers and texts alone.
    """
    found: dict[str, Any] = {}
    for argument in example.arguments:
        value = argument.value
        try:
            if isinstance(value, NameOf):
                found[argument.name] = Var(value.text)
            else:
                found[argument.name] = RuleExpressions(rule.level).compile(value)({})
        except MISTAKES as error:
            raise mistaken(value, error) from error
    return found


def _text(program: Program) -> str:
    if len(program) == 1 and program[0].name == "example" and not program[0].outs:
        return print_block(program[0].body)
    return print_program(program)


# Examples of torch rules: a Torch IR graph, and the Tensor IR graph it gives or the reason of a refusal.


def _try_torch(engine: Engine, rule: Rule, example: Example, target: Target) -> ExampleOutcome | None:
    """Run a rule on a Torch IR graph, and compare the Tensor IR graph. Other rules lower what the rule leaves."""
    table = compile_rules(engine.rules)
    compiled = next(each for group in table.values() for each in group if each.rule.name == rule.name)
    subject, reasons = torch_subject(example), list[str]()
    if rule.family is not None and all(statement.op != compiled.key for statement in subject.body):
        return None  # an example of another member of the family
    refused = isinstance(example.gives, str)
    got, fired = (None, False) if refused else lower_with(compiled, subject, engine.rules)
    for error in () if fired else attempts(compiled, subject, table):
        if error is None:
            fired, reasons = refused, []
            break
        if not isinstance(error, NotApplicable):
            raise error
        reasons.append(str(error))
    return ExampleOutcome(
        (got or subject) if fired else None, reasons, lambda block: read_graph(_graph(block, example, "on torch")),
        key=lambda graph: ([one.name for one in (*graph.ins, *graph.outs)], program_key(graph, ())),
    )  # fmt: skip


def torch_subject(example: Example) -> TorchGraph:
    """Return the program of an example."""
    return read_torch_graph(_graph(example.before, example, "on torch"))


def lower_with(compiled: TorchRule, subject: TorchGraph, rules: RuleSet) -> tuple[TensorGraph, bool]:
    """Return the Tensor IR of a program with one rule tried before all others, and whether it fired."""
    table = dict(compile_rules(rules))
    table[compiled.key] = (compiled, *(r for r in table[compiled.key] if r is not compiled))
    lowering = TorchLowering(subject, table, {}, trace=True)
    lowered = lowering.run()
    return lowered.graph, any(fired.rule is compiled.rule for fired in lowered.firings)


def attempts(rule: TorchRule, graph: TorchGraph, others: RuleTable) -> Iterator[Exception | None]:
    """Yield the error of a rule at each op that it is for, None if it fires. others: rules that lower its operands."""
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


# ---- rules on tensor; of fusion: one rule, run over a program whose open values are marked with `mat`


def fused_alone(
    rule: Rule, graph: TensorGraph, target: Target, parameters: dict[str, Any]
) -> tuple[list[Kernel] | TensorGraph, list[str]]:
    """Return what one fusion rule makes of a program, and why it did not fire.

    For a rule of two kernels that is the kernels of a program in which nothing else is in question, for any other the
    program with the `mat`s that are left.
    """
    plain, marked = materialised(graph)
    rules = FusionRules([rule], parameters)
    if rules.siblings:
        builder = Kernels(plain, Fusion(plain, rules, target, frozenset()).decide(), rules, target, {})
        return builder.build(), [refusal.because for refusal in builder.refusals]
    fusion = Fusion(plain, rules, target, frozenset(marked))
    stored = fusion.decide().stored - {*plain.roots}
    return materialised(plain, stored)[0], [refusal.because for refusal in fusion.refusals.values()]


def alone(rule: Rule, parameters: dict[str, Any] | None = None) -> TermRules:
    """Return one rule on tensor as a set of rules."""
    return TermRules([rule], (rule.name,), parameters=parameters)


def fired(graph: TensorGraph, rules: TermRules, target: Target | None = None) -> tuple[TensorGraph, TermEvidence]:
    """Return the program after some rules, and what they say of it."""
    evidence = TermEvidence()
    return rewritten(graph, rules, target, evidence), evidence


def rewritten(
    graph: TensorGraph, rules: TermRules, target: Target | None = None, evidence: TermEvidence | None = None
) -> TensorGraph:
    """Return the program after some rules; inputs that are called `weight..` are weights."""
    weights = tuple(x.name for x in graph.ins if x.name.startswith("weight"))
    return rewrite_graph(graph, rules, target, evidence, weights=weights)


def materialised(graph: TensorGraph, stored: Collection[Term] = ()) -> tuple[TensorGraph, set[Term]]:
    """Return a program with a `mat` of the `stored` values alone, and the operands of the `mat`s that it had."""
    done: dict[Term, Term] = {}
    marked: set[Term] = set()
    for term in terms(graph):
        if isinstance(term, Mat):
            done[term] = done[term.x]
            marked.add(done[term])
        else:
            built = rebuilt(term, done.__getitem__)
            done[term] = Mat(built) if term in stored else built
    outs = tuple(Output(out.name, out.axes, done[out.value]) for out in graph.outs)
    return TensorGraph(graph.name, graph.ins, outs), marked


def _try_terms(engine: Engine, rule: Rule, example: Example, target: Target) -> ExampleOutcome:
    """Run a rule on whole graphs, before and after; a rule of two kernels gives one kernel of Loop IR."""

    def read(block: Nodes) -> TensorGraph:
        graph = read_graph(_graph(block, example, "of a rule on tensor"))
        return TensorGraph(graph.name, graph.ins, graph.outs)  # without names of values

    before, parameters = read(example.before), settings_of(example, rule)
    after: list[Kernel] | TensorGraph
    if mentions_mat(rule):
        after, refusals = fused_alone(rule, before, target, parameters)
        if isinstance(after, list):
            got = after[0] if len(after) == 1 else None
            return ExampleOutcome(got, refusals, lambda block: read_unit(block[0]), key=key)
    else:
        after, evidence = fired(before, alone(rule, parameters), target)
        refusals = [refusal.because for refusal in evidence.refusals]
    return ExampleOutcome(None if after.outs == before.outs else after, refusals, read)


def settings_of(example: Example, rule: Rule) -> dict[str, Any]:
    """Return the values in the parentheses of an example, by RULE.PARAMETER; a bare name is its text."""
    values = arguments(example, rule)
    return {f"{rule.name}.{name}": value.name if isinstance(value, Var) else value for name, value in values.items()}


TRIES: dict[str, Callable[[Engine, Rule, Example, Target], ExampleOutcome | None]] = {
    **dict.fromkeys(LEVELS, _try_statements), "torch": _try_torch, "tensor": _try_terms,
}  # fmt: skip
