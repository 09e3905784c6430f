"""Inline examples of rules: one runner, one try for each kind of level, a located failure with a diff.

On tensor an input called `weight..` is a weight. An example of a fusion rule marks the values in question with `mat`;
its result keeps the `mat`s that the rule did not drop.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...codegen.target import Target
from ...codegen.target import target as target_named
from ...ir.compose import rebuilt
from ...ir.diagnostic import DplcError
from ...ir.expr import Var
from ...ir.program import Kernel
from ...ir.tensor import Mat, Output, TensorGraph, postorder
from ...ir.text.print_statements import print_block
from ...ir.text.programs import print_program, print_unit, read_unit
from ...ir.text.read_statements import read_block
from ...ir.text.tensor import print_graph, read_graph
from ...ir.text.torch import read_torch_graph
from ...ir.torch import TorchGraph
from ..language import core as s
from ..language.evaluate import MISTAKES, mistaken
from ..language.rule import Rule, RuleSet
from ..rewrite.statements.compiled import Program
from ..rewrite.statements.driver import Engine
from ..rewrite.statements.pattern import RuleExpressions
from ..rewrite.terms.rewriter import TermEvidence, TermRules, mentions_mat, rewrite_graph
from ..rewrite.torch_rules.lower import TorchLowering, TorchRule, compile_rules
from ..rewrite.torch_rules.pattern import NotApplicable
from ..rewrite.trace import program_key
from .fusion_pass import Fusion, FusionRules, kind_of
from .kernels import Kernels
from .sharing import key


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
        """Return the failure of a rule that gives something else than the example says; both as text."""
        names = "the example says", "the rule gives"
        diff = tuple(difflib.unified_diff(wanted.splitlines(), got.splitlines(), *names, lineterm="", n=9))
        alike = "both read alike: a field holds a value where a name belongs, or a number of another type"
        return cls(rule, example, "gives something else", diff or (alike,), got)

    @classmethod
    def of_refusal(cls, rule: Rule, example: s.Example, fires: bool, reasons: Iterable[str]) -> Failure | None:
        """Return the failure of an example that says why the rule refuses. reasons: those that the rule gives."""
        if fires:
            return cls(rule, example, f'fires, but should refuse with "{example.gives}"')
        texts = tuple(dict.fromkeys(reasons))
        if any(str(example.gives) in text for text in texts):
            return None
        return cls(rule, example, f'refuses, but not with "{example.gives}"', texts)


def awaited(example: s.Example) -> bool:
    """Return whether an example does not say yet what the rule gives: `gives` and `pass`."""
    return isinstance(example.gives, tuple) and all(isinstance(one, s.PassStatement) for one in example.gives)


def run_examples(
    engine: Engine,
    rules: Iterable[Rule] | None = None,
    target: Target | None = None,
    only: str | None = None,
) -> tuple[int, list[Failure]]:
    """Return (how many examples ran, those that failed), in file order. only: the title of those that run."""
    count, failures = 0, []
    for rule in engine.rules.rules.values() if rules is None else rules:
        for example in rule.examples:
            if only is not None and example.title != only:
                continue
            count += 1
            failure = run_example(engine, rule, example, target or target_named())
            if failure is not None:
                failures.append(failure)
    return count, failures


class ExampleOutcome(NamedTuple):
    """Result of a rule on the program of an example.

    fired: whether it fired; reasons: why not; got: the resulting program; wanted: reads the program that the example
    gives; text: prints one; key: equal for equals.
    """

    fired: bool
    reasons: Iterable[str]
    got: Any
    wanted: Callable[[], Any]
    text: Callable[[Any], str]
    key: Callable[[Any], Any]


def run_example(engine: Engine, rule: Rule, example: s.Example, target: Target) -> Failure | None:
    """Return the failure of an example of a rule, None if the example holds."""
    tried = TRIES[rule.level](engine, rule, example, target)
    if tried is None:
        return None
    if isinstance(example.gives, str):
        return Failure.of_refusal(rule, example, tried.fired, tried.reasons)
    if not tried.fired:
        return Failure(rule, example, "did not fire", tuple(dict.fromkeys(tried.reasons)))
    if awaited(example):
        return Failure.different(rule, example, "", tried.text(tried.got))
    wanted = tried.wanted()
    if tried.key(wanted) == tried.key(tried.got):
        return None
    return Failure.different(rule, example, tried.text(wanted), tried.text(tried.got))


# ---- rules on statements


def _try_statements(engine: Engine, rule: Rule, example: s.Example, target: Target) -> ExampleOutcome:
    """Run a rule on statements: a block, wrapped in a kernel of its own, or whole kernels."""
    program = read_subject(example.before)
    pinned = arguments(example, rule)
    if "target" not in (parameter.name for parameter in rule.parameters):
        target = target_named(pinned.pop("target")) if "target" in pinned else target
    refused = isinstance(example.gives, str)
    match = None if refused or "local" in rule.attributes else next(engine.sites(rule, program, target, pinned), None)
    if match is not None:
        got = engine.rewrite(rule, program, match, target)[0]
    elif "local" in rule.attributes and not refused:
        got = _local(engine, rule, program, pinned, target)
    else:
        reasons = [reason.render() for reason in engine.why_not(rule, program, target, pinned)]
        return ExampleOutcome(refused and not reasons, reasons, program, tuple, _text, tuple)

    def wanted() -> Program:
        return engine.normal(read_subject(example.gives), target, rule.level)  # type: ignore[arg-type]

    return ExampleOutcome(True, (), engine.normal(got, target, rule.level), wanted, _text, tuple)


def _local(engine: Engine, rule: Rule, program: Program, pinned: dict[str, Any], target: Target) -> Program:
    from ..rewrite.statements.site import Site

    kernel = program[0]
    given = tuple(pinned[name] for name in engine.rule(rule).given if name in pinned)
    env = {"target": target, "@site": Site(program, (0,), target)}
    body = engine.rule(rule).everywhere(kernel.body, given, env)
    return (Kernel(kernel.name, kernel.ins, kernel.outs, body), *program[1:])


def read_subject(block: tuple[s.Syntax, ...]) -> Program:
    """Read kernels as they are; wrap statements in a kernel without a name of its own."""
    if any(isinstance(statement, s.Unit) for statement in block):
        return tuple(read_unit(statement, sizes=None) for statement in block)  # type: ignore[misc]
    return (Kernel("example", (), (), read_block(block)),)


def arguments(example: s.Example, rule: Rule) -> dict[str, Any]:
    """Return the values in the parentheses of an example; a bare name is a name of its program."""
    return {
        a.name: Var(a.value.text) if isinstance(a.value, s.NameOf) else _constant(a.value, rule)
        for a in example.arguments
    }


def _constant(value: s.Syntax, rule: Rule) -> Any:
    """Return the value of an expression of numbers and texts alone. Raises DplcError if there is none."""
    try:
        return RuleExpressions(rule.level).compile(value)({})
    except MISTAKES as error:
        raise mistaken(value, error) from error


def _text(program: Program) -> str:
    if len(program) == 1 and program[0].name == "example" and not program[0].outs:
        return print_block(program[0].body)
    return print_program(program)


# Examples of torch rules: a Torch IR graph, and the Tensor IR graph it gives or the reason of a refusal.


def _try_torch(engine: Engine, rule: Rule, example: s.Example, target: Target) -> ExampleOutcome | None:
    """Run a rule on a Torch IR graph, and compare the Tensor IR graph. Other rules lower what the rule leaves."""
    rules = engine.rules
    compiled = next(r for group in compile_rules(rules).values() for r in group if r.rule.name == rule.name)
    subject = torch_subject(example)
    if rule.family is not None and all(statement.op != compiled.key for statement in subject.body):
        return None  # an example of another member of the family
    got, fired, reasons = None, False, list[str]()
    if not isinstance(example.gives, str):
        got, fired = lower_with(compiled, subject, rules)
    if not fired:
        fires, reasons = _refusals(compiled, subject, rules)
        fired = fires and isinstance(example.gives, str)
    return ExampleOutcome(
        fired, reasons, got, lambda: read_graph(_unit(example.gives, example)), print_unit,  # type: ignore[arg-type]
        lambda graph: (_named(graph), program_key(graph, ())),
    )  # fmt: skip


def _named(graph: TensorGraph) -> list[str]:
    """Return the names that a caller uses: of inputs and outputs. Values and axes may have any names."""
    return [*(str(getattr(one, "name", "")) for one in graph.ins), *(out.name for out in graph.outs)]


def torch_subject(example: s.Example) -> TorchGraph:
    """Return the program of an example."""
    return read_torch_graph(_unit(example.before, example))


def _unit(block: tuple[s.Syntax, ...], example: s.Example) -> s.Unit:
    if len(block) != 1 or not isinstance(block[0], s.Unit) or block[0].kind != "graph":
        raise DplcError("an example on torch is one `graph`", example.span)
    return block[0]


def lower_with(compiled: TorchRule, subject: TorchGraph, rules: RuleSet) -> tuple[TensorGraph, bool]:
    """Return the Tensor IR of a program with one rule tried before all others, and whether it fired."""
    table = dict(compile_rules(rules))
    table[compiled.key] = (compiled, *(r for r in table[compiled.key] if r is not compiled))
    lowering = TorchLowering(subject, table, {}, trace=True)
    lowering.run()
    return lowering.finish(), any(fired.rule is compiled.rule for fired in lowering.fired)


def attempts(rule: TorchRule, graph: TorchGraph, others: Any) -> Iterator[Exception | None]:
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


def _refusals(compiled: TorchRule, subject: TorchGraph, rules: RuleSet) -> tuple[bool, list[str]]:
    """Return whether the rule fires somewhere, and why it refuses each op before that it might start from."""
    found: list[str] = []
    for error in attempts(compiled, subject, compile_rules(rules)):
        if error is None:
            return True, []
        if not isinstance(error, NotApplicable):
            raise error
        found.append(str(error))
    return False, found


# ---- rules on tensor; of fusion: one rule, run over a program whose open values are marked with `mat`


def sibling_kernels(
    rule: Rule, graph: TensorGraph, target: Target, parameters: dict[str, Any]
) -> tuple[list[Kernel], list[str]]:
    """Return the kernels of a program in which nothing else is in question, and why two of them were kept apart."""
    rules = FusionRules([rule], parameters)
    builder = Kernels(graph, Fusion(graph, rules, target, frozenset()).decide(), rules, target, {})
    kernels = builder.build()
    return kernels, [refusal.because for refusal in builder.refusals]


def fuse_marked(
    rule: Rule, graph: TensorGraph, target: Target, parameters: dict[str, Any]
) -> tuple[TensorGraph, list[str]]:
    """Return the program with the `mat`s that are left, and why."""
    marked: set[Any] = set()
    plain = _rebuilt(graph, lambda term, built: built, marked)
    rules = FusionRules([rule], parameters)
    fusion = Fusion(plain, rules, target, frozenset(marked))
    decisions = fusion.decide()
    stored = decisions.stored - {out.value for out in plain.outs}
    result = _rebuilt(plain, lambda term, built: Mat(built) if term in stored else built, set())
    return result, [refusal.because for refusal in fusion.refusals.values()]


def _rebuilt(graph: TensorGraph, finish: Any, marked: set[Any]) -> TensorGraph:
    """Return the program without its `mat`s (their operands go to `marked`), every term passed through `finish`."""
    done: dict[Any, Any] = {}
    for term in postorder(out.value for out in graph.outs):
        if term.__class__ is Mat:
            done[term] = done[term.x]
            marked.add(done[term])
            continue
        built = rebuilt(term, done.__getitem__)
        done[term] = finish(term, built)
    outs = tuple(Output(out.name, out.axes, done[out.value]) for out in graph.outs)
    return TensorGraph(graph.name, graph.ins, outs)


def _try_terms(engine: Any, rule: Rule, example: s.Example, target: Target) -> ExampleOutcome:
    """Run a rule on whole graphs, before and after; a rule of two kernels gives one kernel of Loop IR."""
    before = _graph(example.before, example)
    parameters = settings_of(example, rule)
    if mentions_mat(rule) and kind_of(rule) == "siblings":
        kernels, refusals = sibling_kernels(rule, before, target, parameters)
        return ExampleOutcome(
            len(kernels) == 1, refusals, kernels[0], lambda: read_unit(example.gives[0]), print_unit, key
        )  # type: ignore[index]
    if mentions_mat(rule):
        got, refusals = fuse_marked(rule, before, target, parameters)
    else:
        evidence = TermEvidence()
        weights = tuple(x.name for x in before.ins if x.name.startswith("weight"))
        got = rewrite_graph(
            before, TermRules([rule], (rule.name,), parameters=parameters), target, evidence, weights=weights
        )
        refusals = [refusal.because for refusal in evidence.refusals]
    return ExampleOutcome(
        _outs(got) != _outs(before), refusals, got, lambda: _graph(example.gives, example),  # type: ignore[arg-type]
        lambda graph: print_graph(TensorGraph(graph.name, graph.ins, graph.outs)), _outs,
    )  # fmt: skip


def _outs(graph: TensorGraph) -> list[Any]:
    return [(out.name, out.axes, out.value) for out in graph.outs]


def _graph(block: tuple[s.Syntax, ...], example: s.Example) -> TensorGraph:
    if len(block) != 1 or not isinstance(block[0], s.Unit):
        raise DplcError("an example of a rule on tensor is one `graph`", example.span)
    return read_graph(block[0])


def settings_of(example: s.Example, rule: Rule) -> dict[str, Any]:
    """Return the values in the parentheses of an example, by RULE.PARAMETER; a bare name is its text."""
    values = arguments(example, rule)
    return {f"{rule.name}.{name}": value.name if isinstance(value, Var) else value for name, value in values.items()}


TRIES: dict[str, Callable[[Any, Rule, s.Example, Target], ExampleOutcome | None]] = {
    **dict.fromkeys(("module", "loop", "tile", "kernel"), _try_statements), "torch": _try_torch, "tensor": _try_terms,
}  # fmt: skip
