"""Checks of meaning: sorts of expressions, reasons, defaults against domains, attributes, examples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...ir.diagnostic import DplcError, did_you_mean
from ...ir.text import syntax as s
from ...ir.text.programs import read_unit
from ...ir.text.read_statements import read_block
from .domains import admits, constant, shown
from .findings import WARNING, Finding
from .positions import every, names_in
from .sorts import NAMED, Inference
from .subject import CheckedRule


def sort_clashes(subject: CheckedRule) -> Iterator[Finding]:
    """A value of one sort where another is wanted: in guards, domains, facts' arguments, fields of the template."""
    found: dict[Any, Finding] = {}

    def report(what: str, node: s.Syntax, hint: str | None = None) -> None:
        found.setdefault(node.span, subject.finding(what, node.span, (), hint))

    inference = Inference(subject.facts, report)
    for node, want, what, scope, makes in subject.expressions:
        if not (makes and isinstance(node, s.NameOf)) and not _is_closed_name(node, want.kind):
            inference.want(node, want, scope, what)
    for slot in subject.pattern:
        if isinstance(slot.value, s.Number | s.Text):
            inference.want(slot.value, slot.sort, {}, slot.what)
        elif slot.sort.kind in NAMED and not slot.sort.many and not isinstance(slot.value, s.NameOf | s.Member):
            report(f"{slot.what} is a name in a pattern", slot.value)
    yield from found.values()


def _is_closed_name(node: s.Syntax, kind: str) -> bool:
    return isinstance(node, s.NameOf) and kind in (
        "role",
        "via",
        "fn",
        "dtype",
    )  # vocabulary.closed_names says it better


def unique_reasons(subject: CheckedRule) -> Iterator[Finding]:
    """`because` is the key of a refusal: no two guards of a rule share one."""
    first: dict[str, s.Guard] = {}
    for guard in subject.rule.guards:
        if guard.reason in first:
            notes = (f"the other is in line {first[guard.reason].span.line}",)
            yield subject.finding(
                f'two guards say because "{guard.reason}"', guard.span, notes, "say what is different"
            )
        elif not guard.reason.strip():
            yield subject.finding("a guard without a reason", guard.span, (), 'because "what is wrong when it fails"')
        first.setdefault(guard.reason, guard)


def defaults_in_domains(subject: CheckedRule) -> Iterator[Finding]:
    """The default of a parameter is in its domain, where both are constant."""
    for parameter in subject.rule.parameters:
        if parameter.domain is None or parameter.default is None:
            continue
        default = constant(subject.rule.level, parameter.default)
        if default is not None and not admits(subject.rule, parameter.name, default):
            what = f"the default {default} of `{parameter.name}` is not in its domain"
            domain = shown(subject.rule, parameter.name)
            yield subject.finding(what, parameter.default.span, (f"the domain is {domain}",))


def alternatives(subject: CheckedRule) -> Iterator[Finding]:
    """A `choose` has several alternatives, and they differ in what they cost."""
    for node in every(subject.rule.match, s.Chosen):
        what = "a pattern weighs nothing: `choose` stands in a clause, a default or the template"
        yield subject.finding(what, node.span)
    for node in every(subject.parts, s.Chosen):
        costs, word = node.costs, "maximising" if node.most else "minimising"
        if costs.variable not in names_in(costs.element):
            what = f"every alternative is alike: what `{word}` compares does not read `{costs.variable}`"
            yield subject.finding(what, costs.element.span, (), f"say what a value `{costs.variable}` costs")
        if isinstance(costs.domain, s.Group) and len(costs.domain.items) < 2 and not _runs(costs.domain):
            count = "one value" if costs.domain.items else "no value"
            yield subject.finding(f"nothing to choose: there is {count}", costs.domain.span)


def _runs(group: s.Group) -> bool:
    return any(isinstance(item, s.Run) for item in group.items)


def attributes(subject: CheckedRule) -> Iterator[Finding]:
    """Attributes that contradict each other."""
    held = subject.rule.attributes
    for a, b in (
        ("local", "canonical"),
        ("local", "repeat"),
        ("canonical", "repeat"),
        ("canonical", "approx"),
        ("canonical", "unstable"),
    ):
        if {a, b} <= held:
            yield subject.finding(f"@{a} and @{b} exclude each other", subject.rule.span)
    if "canonical" in held and subject.rule.parameters:
        yield subject.finding(
            "a @canonical rule has no parameters: nobody could choose them", subject.rule.parameters[0].span
        )


# ---- examples

# What matchers say where a pattern does not fit (engine/rewrite); all else is a `because`.
PATTERN_MISSES = (
    "the pattern matches nowhere", "nearest miss", "expected `", "nothing here is like its first statement",
    "is not in its domain", "the rule says nothing about", "has no field", "two values for",
    " is not ", " is no list", "a list of ",
)  # fmt: skip
# What an example may set beside the parameters of its rule.
SETTINGS = {
    "tensor": ("weights",),  # the inputs whose values are known before the program runs
    **dict.fromkeys(("module", "loop", "tile", "kernel"), ("target",)),  # the device that is compiled for, as text
}


def examples_enough(subject: CheckedRule) -> Iterator[Finding]:
    """An example that fires, and one refusal per `where`."""
    rule = subject.rule
    if subject.local:
        return  # reached through the examples of the rules that use it
    examples = list(rule.examples) or _of_family(subject)
    if not any(isinstance(example.gives, tuple) for example in examples):
        yield subject.finding("no example shows it fire", rule.span, (), 'add `example "title"` .. `gives` ..', WARNING)
    refusals = [example.gives for example in examples if isinstance(example.gives, str)]
    for guard in rule.guards:
        if guard.kind == "where" and not any(text in guard.reason for text in refusals):
            what = f'no example is refused because "{guard.reason}"'
            yield subject.finding(what, guard.span, (), f'add an example that `gives no "{guard.reason}"`', WARNING)


def _of_family(subject: CheckedRule) -> list[s.Example]:
    """What shows the other members of a rule's family fire: members differ in names only."""
    family = subject.rule.family
    members = subject.rules.rules.values() if family is not None else ()
    return [example for member in members if member.family == family for example in member.examples]


def refusals_known(subject: CheckedRule) -> Iterator[Finding]:
    """`gives no "text"`: the text of a `because` of this rule, or of a pattern that does not match."""
    reasons = [guard.reason for guard in subject.rule.guards]
    for example in subject.rule.examples:
        text = example.gives
        if (
            isinstance(text, str)
            and not any(text in reason for reason in reasons)
            and not any(miss in text for miss in PATTERN_MISSES)
        ):
            what = f'no guard says because "{text}"'
            yield subject.finding(
                what, example.span, [f'there is "{reason}"' for reason in reasons], did_you_mean(text, reasons)
            )


def example_parameters(subject: CheckedRule) -> Iterator[Finding]:
    """`example "title" (BK=16)`: parameters of the rule, each once, with constant values."""
    known = [*(parameter.name for parameter in subject.rule.parameters), *SETTINGS.get(subject.rule.level, ())]
    for example in subject.rule.examples:
        for n, argument in enumerate(example.arguments):
            if argument.name not in known:
                what = f"the example sets `{argument.name}`, which is no parameter of the rule"
                yield subject.finding(what, argument.span, (), did_you_mean(argument.name, known))
            elif argument.name in {other.name for other in example.arguments[:n]}:
                yield subject.finding(f"the example sets `{argument.name}` twice", argument.span)


def example_programs(subject: CheckedRule) -> Iterator[Finding]:
    """The programs of examples read as programs of their level; what a rule on torch gives is on tensor."""
    level = subject.rule.level if subject.dataflow else None
    for example in subject.rule.examples:
        for block, at in ((example.before, level), (example.gives, None if level == "torch" else level)):
            try:
                if subject.dataflow and isinstance(block, tuple) and isinstance(block[0], s.PassStatement):
                    what = f'example "{example.title}" does not say yet what the rule gives'
                    yield subject.finding(what, block[0].span, (), "dplc rules test --accept FILE writes it")
                elif isinstance(block, tuple):
                    _read(block, at, subject.dataflow)
            except DplcError as error:
                what = f'example "{example.title}": {error.what}'
                yield subject.finding(what, error.span or example.span, error.notes, error.hint)


def _read(block: tuple[s.Syntax, ...], level: str | None, dataflow: bool) -> None:
    if any(isinstance(statement, s.Unit) for statement in block):
        for unit in block:
            read_unit(unit, level, None)
    elif not dataflow:
        read_block(block)
    else:
        raise DplcError("the program of an example on torch or tensor is a `graph`", block[0].span)
