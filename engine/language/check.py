"""Static checks of rules: at load for users' files, in the tests for ours. Nothing in a rule is executed.

Each check is a function of a `CheckedRule` (the scope of one rule); its name is the name of its findings. Errors stop
a file from loading, warnings do not.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import pkgutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...codegen.target import devices, load_device
from ...ir import schemas
from ...ir.diagnostic import Diagnostics, DplcError, Span, did_you_mean
from ...ir.functions import FUNCTIONS
from ...ir.names import sort_word
from ...ir.text import syntax as s
from ...ir.text.programs import read_unit
from ...ir.text.read_statements import CLOSED, VALUE_CLASSES, owners, read_block
from ...ir.text.syntax import words_in
from .core import OPERATIONS, says_slices
from .definitions import remembered
from .evaluate import FACTS, Fact, facts_of
from .name_checks import NAME_CHECKS, changes_nothing
from .pipeline import pipelines
from .rule import Rule, RuleSet, admits, built_in_files, constant, pass_name, shown
from .rule_scope import ERROR, WARNING, CheckedRule, Finding, Findings
from .sorts import CLOSED_SORTS, NAMED, PARAMETER_SORTS, TARGET, Inference, sort_of
from .spelling import expression
from .typed_slots import calls, children, every, is_variable, names, names_in, targets, walk

# Checks of axes on torch: every axis of a value is in the bracket of the result or reduced.


Axes = dict[str, s.Syntax]  # free axes, and one location of each


def dangling_axes(subject: CheckedRule) -> Findings:
    """Report kk in `y[i, j] = Reduce(add, k, multiply(x[i, k], w[j, kk]))`: neither an axis of y nor reduced."""
    if subject.rule.level != "torch":
        return
    free = subject.axes.keys() - subject.bound.keys() - subject.lets.keys()
    made: dict[str, Axes] = {}
    for statement in subject.rule.rewrite:
        if not isinstance(statement, s.Assign) or says_slices(statement):
            continue
        items = statement.target.items if isinstance(statement.target, s.Subscript) else ()
        left = [item.base if isinstance(item, s.Run) else item for item in items]
        found = {name: place for name, place in _axes(statement.value, made).items() if name in free}
        if isinstance(statement.target, s.NameOf):
            made[statement.target.text] = found
            continue
        if not all(isinstance(item, s.NameOf) for item in left):
            continue  # a fact makes some of them
        for name in (name for name in found if name not in names_in(tuple(left))):
            result = next(iter(targets(statement)))
            what = f"axis `{name}` is neither in the bracket of `{getattr(result, 'text', 'the result')}` nor folded"
            yield subject.finding(what, found[name].span)


def _axes(node: s.Syntax | None, made: dict[str, Axes]) -> Axes:
    """Return the axes that a value runs over: those of its brackets, less those it folds."""
    if isinstance(node, s.NameOf):
        return dict(made.get(node.text, {}))
    if isinstance(node, s.Subscript):
        return _bracket(node.items, made)
    if isinstance(node, s.Apply) and node.fn == "Index":
        return {name.text: name for name in names(node.items)}
    if isinstance(node, s.Choice):
        return _axes(node.a, made) | _axes(node.b, made)
    if not isinstance(node, s.Apply | s.Group):
        return {}
    items, folded = node.items, set[str]()
    if isinstance(node, s.Apply) and node.fn in ("Reduce", "Fold") and len(items) > 1:
        items, folded = items[-1:], {name.text for name in names(items[1:-1])}
    found = {name: place for item in items for name, place in _axes(item, made).items()}
    return {name: place for name, place in found.items() if name not in folded}


def _bracket(items: s.Nodes, made: dict[str, Axes]) -> Axes:
    found: Axes = {}
    for item in items:
        base = item.base if isinstance(item, s.Run) else item
        if isinstance(base, s.NameOf) and base.text in made:
            found |= made[base.text]  # a gather: a value of integers says where
        elif isinstance(base, s.NameOf):
            found[base.text] = base
        elif isinstance(base, s.Subscript):
            found |= _bracket(base.items, made)
    return found


def whole_axes(subject: CheckedRule) -> Findings:
    """Report `Tile(outer.., i):` where i is the name of an axis: a new Tile needs extents and roles."""
    for node, want, what, scope, _ in subject.expressions if not subject.dataflow else ():
        if want.kind != "axis":
            continue
        have = subject.quiet.sort(node.base if isinstance(node, s.Run) else node, scope)
        if have.kind not in ("axis", "any", "value"):
            shown = node.text if isinstance(node, s.NameOf) else "i"
            hint = f"write `{shown}:M=THREAD`: its name, its extent and its role"
            yield subject.finding(f"{what} are axes, and this is {have}", node.span, (), hint)


# Checks of meaning: sorts of expressions, reasons, defaults against domains, attributes, examples.


def sort_clashes(subject: CheckedRule) -> Findings:
    """Report a value of one sort where another is required: in guards, domains, arguments of facts, and fields."""
    found: dict[Any, Finding] = {}

    def report(what: str, node: s.Syntax, hint: str | None = None) -> None:
        found.setdefault(node.span, subject.finding(what, node.span, (), hint))

    inference = Inference(subject.facts, report)
    for node, want, what, scope, makes in subject.expressions:
        if not isinstance(node, s.NameOf) or not (makes or want.kind in ("role", "via", "fn", "dtype")):
            inference.want(node, want, scope, what)
    for slot in subject.pattern:
        if isinstance(slot.value, s.Number | s.Text):
            inference.want(slot.value, slot.sort, {}, slot.what)
        elif slot.sort.kind in NAMED and not slot.sort.many and not isinstance(slot.value, s.NameOf | s.Member):
            report(f"{slot.what} is a name in a pattern", slot.value)
    yield from found.values()


def unique_reasons(subject: CheckedRule) -> Findings:
    """Check that no two guards of a rule share a reason: it is the key of a refusal."""
    first: dict[str, s.Guard] = {}
    for guard in subject.rule.guards:
        if guard.reason in first:
            notes = (f"the other is in line {first[guard.reason].span.line}",)
            yield subject.finding(
                f'two guards give the reason "{guard.reason}"', guard.span, notes, "say what is different"
            )
        elif not guard.reason.strip():
            yield subject.finding("a guard without a reason", guard.span, (), 'else "what is wrong when it fails"')
        first.setdefault(guard.reason, guard)


def defaults_in_domains(subject: CheckedRule) -> Findings:
    """Check that the default of a parameter is in its domain, if both are constant."""
    for parameter in subject.rule.parameters:
        if parameter.domain is None or parameter.default is None:
            continue
        default = constant(subject.rule.level, parameter.default)
        if default is not None and not admits(subject.rule, parameter.name, default):
            what = f"the default {default} of `{parameter.name}` is not in its domain"
            domain = shown(subject.rule, parameter.name)
            yield subject.finding(what, parameter.default.span, (f"the domain is {domain}",))


def alternatives(subject: CheckedRule) -> Findings:
    """Check that a `choose` has several alternatives, and that their costs differ."""
    for node in every(subject.rule.match, s.Chosen):
        what = "a pattern weighs nothing: `choose` stands in a clause, a default or the template"
        yield subject.finding(what, node.span)
    for node in every(subject.parts, s.Chosen):
        costs, word = node.costs, "maximising" if node.most else "minimising"
        if costs.variable not in names_in(costs.element):
            what = f"every alternative is alike: what `{word}` compares does not read `{costs.variable}`"
            yield subject.finding(what, costs.element.span, (), f"say what a value `{costs.variable}` costs")
        if (
            isinstance(costs.domain, s.Group)
            and len(costs.domain.items) < 2
            and not (any(isinstance(item, s.Run) for item in costs.domain.items))
        ):
            count = "one value" if costs.domain.items else "no value"
            yield subject.finding(f"nothing to choose: there is {count}", costs.domain.span)


def attributes(subject: CheckedRule) -> Findings:
    """Report attributes that contradict each other."""
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


# Checks of examples.

# What matchers say where a pattern does not fit (engine/rewrite); all else is the reason of a guard.
PATTERN_MISSES = (
    "the pattern matches nowhere", "nearest miss", "expected `", "nothing here is like its first statement",
    "is not in its domain", "the rule says nothing about", "has no field", "two values for",
    " is not ", "a list of ",
)  # fmt: skip
# What an example may set in addition to the parameters of its rule.
SETTINGS = {
    "tensor": ("weights",),  # the inputs whose values are known before the program runs
    **dict.fromkeys(("module", "loop", "tile", "kernel"), ("target",)),  # the device that is compiled for, as text
}


def examples_enough(subject: CheckedRule) -> Findings:
    """Check that a rule has an example that fires, and one refusal per `require`.

    Rules that share a group of guards share its refusals.
    """
    rule = subject.rule
    if subject.local:
        return  # reached through the examples of the rules that use it
    if not any(isinstance(example.gives, tuple) for example in subject.rules.examples_at(rule.span)):
        yield subject.finding("no example shows it fire", rule.span, (), 'add `example "title"` .. `gives` ..', WARNING)
    for guard in rule.guards:
        if guard.kind == "require" and not subject.rules.shows_refusal(guard):
            what = f'no example is refused because "{guard.reason}"'
            yield subject.finding(what, guard.span, (), f'add an example that `gives no "{guard.reason}"`', WARNING)


def refusals_known(subject: CheckedRule) -> Findings:
    """Check that `gives no "text"` has the text of a reason of this rule, or of a pattern that does not match."""
    reasons = [guard.reason for guard in subject.rule.guards]
    for example in subject.rule.examples:
        text = example.gives
        if (
            isinstance(text, str)
            and not any(text in reason for reason in reasons)
            and not any(miss in text for miss in PATTERN_MISSES)
        ):
            what = f'no guard gives the reason "{text}"'
            yield subject.finding(
                what, example.span, [f'there is "{reason}"' for reason in reasons], did_you_mean(text, reasons)
            )


def example_parameters(subject: CheckedRule) -> Findings:
    """Check that `example "title" (BK=16)` sets parameters of the rule, each once, to constant values."""
    known = [*(parameter.name for parameter in subject.rule.parameters), *SETTINGS.get(subject.rule.level, ())]
    for example in subject.rule.examples:
        for n, argument in enumerate(example.arguments):
            if argument.name not in known:
                what = f"the example sets `{argument.name}`, which is not a parameter of the rule"
                yield subject.finding(what, argument.span, (), did_you_mean(argument.name, known))
            elif argument.name in {other.name for other in example.arguments[:n]}:
                yield subject.finding(f"the example sets `{argument.name}` twice", argument.span)


def example_programs(subject: CheckedRule) -> Findings:
    """Check that the programs of examples are programs of their level; the result of a torch rule is on tensor."""
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


def _read(block: s.Nodes, level: str | None, dataflow: bool) -> None:
    if any(isinstance(statement, s.Unit) for statement in block):
        for unit in block:
            read_unit(unit, level, None)
    elif not dataflow:
        read_block(block)
    else:
        raise DplcError("the program of an example on torch or tensor is a `graph`", block[0].span)


# Checks of words: ops, fields, roles, transports, functions, dtypes, facts, local rules and their arguments.


_WORDS = {kind: sort_word(sort) for sort, kind in CLOSED_SORTS.items()}
_OPTIONS: dict[str, tuple[str, ...]] = {sort: CLOSED[kind] for kind, sort in CLOSED_SORTS.items()}


def placed(subject: CheckedRule) -> Findings:
    """Report unknown ops and fields, and statements of the wrong form: found while the rule was laid out."""
    yield from subject.problems


def closed_names(subject: CheckedRule) -> Findings:
    """Report a role, transport, function or dtype that does not exist.

    In a pattern such a name is a variable, unless it is a slip of a real one.
    """
    seen = set()
    places = [(slot.value, slot.sort.kind, True) for slot in subject.pattern]
    places += [
        (e.node, e.want.kind, isinstance(e.node, s.NameOf) and e.node.text in e.scope) for e in subject.expressions
    ]
    for node, kind, is_bound in places:
        if not isinstance(node, s.NameOf) or kind not in _WORDS:
            continue
        if node.text in (*_OPTIONS[kind], "_") or node.span in seen:
            continue
        if kind == "fn" and subject.dataflow and (node.text in subject.facts or not subject.facts):
            continue
        hint = did_you_mean(node.text, _options(subject, kind))
        if (
            not is_variable(node.text)
            or not is_bound
            or (hint and not _meant(subject, node.text, _options(subject, kind)))
        ):
            seen.add(node.span)
            yield subject.finding(f"unknown {_WORDS[kind]} `{node.text}`", node.span, (), hint)


def _meant(subject: CheckedRule, name: str, options: Iterable[str]) -> bool:
    """Return whether a variable that looks like a real word is intended: it is read, and not too similar to it."""
    again = sum(occurrence.text == name for occurrence, _ in subject.occurrences) > 1
    read = again or name in subject.used or any(name == p.name for p in subject.rule.parameters)
    return read and not difflib.get_close_matches(name, options, 1, 0.85)


def _options(subject: CheckedRule, kind: str) -> tuple[str, ...]:
    return (*_OPTIONS[kind], *subject.facts, *OPERATIONS) if kind == "fn" and subject.dataflow else _OPTIONS[kind]


def known_calls(subject: CheckedRule) -> Findings:
    """Report a call of a name that is not a fact of this level, a scalar function or a variable."""
    if not subject.facts:
        return
    known = (*subject.facts, *FUNCTIONS)
    for asked in subject.expressions:
        for call in calls(asked.node):
            if call.fn in (*known, *asked.scope, *VALUE_CLASSES, "_"):
                continue
            elsewhere = sorted(level for level, name in FACTS if name == call.fn)
            notes = (f"`{call.fn}` is a fact on level {', '.join(elsewhere)}",) if elsewhere else ()
            yield subject.finding(
                f"unknown fact or function `{call.fn}`",
                call.span,
                notes,
                did_you_mean(call.fn, (*known, *subject.rules.facts)),
            )


def argument_counts(subject: CheckedRule) -> Findings:
    """Check that facts and scalar functions have as many arguments as they declare."""
    for call in calls(subject.parts):
        if any(isinstance(item, s.Run) for item in call.items):
            continue
        fact = subject.facts.get(call.fn)
        if fact is not None and not (fact.least <= len(call.items) <= (fact.most or len(call.items))):
            signature = f"{call.fn}({', '.join(fact.arguments)}) -> {fact.result}"
            yield subject.finding(f"`{call.fn}` takes {_count(fact)}, not {len(call.items)}", call.span, (signature,))
        elif fact is None and call.fn in FUNCTIONS and len(call.items) != FUNCTIONS[call.fn].arity:
            what = f"`{call.fn}` takes {_plural(FUNCTIONS[call.fn].arity)}, not {len(call.items)}"
            yield subject.finding(what, call.span)


def _count(fact: Fact) -> str:
    if fact.most is None:
        return f"at least {_plural(fact.least)}"
    return _plural(fact.least) if fact.least == fact.most else f"{fact.least} to {fact.most} arguments"


def _plural(n: int) -> str:
    return f"{n} argument{'' if n == 1 else 's'}"


def local_rules(subject: CheckedRule) -> Findings:
    """Check that `with rule r(args)` names an `@local` rule of this level and gives it its parameters."""
    for use in walk(subject.rule.rewrite):
        if not isinstance(use, s.UseRule):
            continue
        rule = subject.rules.rules.get(use.call.fn)
        if rule is None or "local" not in rule.attributes:
            local = [other.name for other in subject.rules.rules.values() if "local" in other.attributes]
            notes = (f"`{rule.name}` at {rule.location} is not marked @local",) if rule else ()
            what = f"there is no @local rule `{use.call.fn}`"
            yield subject.finding(what, use.span, notes, did_you_mean(use.call.fn, local))
        elif len(rule.parameters) != len(use.call.items):
            what = f"`{rule.name}` takes {_plural(len(rule.parameters))}, not {len(use.call.items)}"
            yield subject.finding(what, use.span, (f"it is declared at {rule.location}",))


def changed_fields(subject: CheckedRule) -> Findings:
    """Check that the captured statement has the fields of `s.. with depth=2`."""
    classes = owners()
    for node in walk(subject.rule.rewrite):
        if not isinstance(node, s.RunStatement):
            continue
        base = node.run.base
        while isinstance(base, s.Subscript):
            base = base.base
        sort = subject.scope.get(base.text) if isinstance(base, s.NameOf) else None
        among = [classes[sort.node]] if sort is not None and sort.node in classes else list(classes.values())
        for change in node.changes:
            if isinstance(change, s.Keyword) and not any(change.name in cls.by_name for cls in among):
                who = f"`{among[0].__name__}` has no" if len(among) == 1 else "no statement has a"
                what = f"{who} field `{change.name}`"
                options = {name for cls in among for name in cls.by_name}
                yield subject.finding(what, change.span, (), did_you_mean(change.name, options))


def parameter_sorts(subject: CheckedRule) -> Findings:
    """Check that the sort of a parameter (`N: int`) exists."""
    for parameter in subject.rule.parameters:
        if parameter.sort is not None and parameter.sort not in PARAMETER_SORTS:
            notes = (f"sorts are {', '.join(PARAMETER_SORTS)}",)
            hint = did_you_mean(parameter.sort, PARAMETER_SORTS)
            yield subject.finding(f"unknown sort `{parameter.sort}` of `{parameter.name}`", parameter.span, notes, hint)


def torch_forms(subject: CheckedRule) -> Findings:
    """Check that a pattern on torch is closed: some overload has the mentioned fields and requires no others."""
    if subject.rule.level != "torch":
        return
    for statement in subject.rule.match:
        call = statement.value if isinstance(statement, s.Assign) else None
        if not isinstance(call, s.Apply) or any(isinstance(item, s.Run) for item in call.items):
            continue
        known = schemas.overloads(call.fn)
        mentioned = {item.name for item in call.items if isinstance(item, s.Keyword)}
        every = {argument.name for overload in known for argument in overload.arguments}
        places = len(call.items) - len(mentioned)
        if known and mentioned <= every and not any(_form_fits(overload, mentioned, places) for overload in known):
            shown = ((one.name, [a.name + "?" * (not a.required) for a in one.arguments]) for one in known[:6])
            notes = tuple(f"{name}({', '.join(fields)})" for name, fields in shown)
            yield subject.finding(
                f"no form of `{call.fn}` has exactly these fields", call.span, notes, "`rest..` leaves the others open"
            )


def _form_fits(overload: schemas.Overload, mentioned: set[str], places: int) -> bool:
    free = [argument for argument in overload.arguments if argument.name not in mentioned]
    enough = len(free) >= places and mentioned <= {argument.name for argument in overload.arguments}
    return enough and not any(argument.required for argument in free[places:])


def torch_ignored(subject: CheckedRule) -> Findings:
    """Report `dtype=_` on torch if the rule never reads the result's dtype: it would ignore the requested dtype."""
    if subject.rule.level != "torch" or any(call.fn == "dtype" for call in calls(subject.parts)):
        return
    for statement in subject.rule.match:
        call = statement.value if isinstance(statement, s.Assign) else None
        for item in call.items if isinstance(call, s.Apply) else ():
            if (
                isinstance(item, s.Keyword)
                and item.name == "dtype"
                and isinstance(item.value, s.NameOf)
                and item.value.text == "_"
            ):
                hint = "bind it and use it, or leave it out to match its default only"
                yield subject.finding("`dtype=_` ignores what the user asked for", item.span, (), hint, WARNING)


# Lets that grow: each reads the preceding let twice, so after forty lets no memory holds the value.


MOST = 1 << 12  # uses of what a pattern binds, all lets of a clause written out; our own rules have 40


def grown_values(subject: CheckedRule) -> Findings:
    """Report a `let` that, with those it reads written out, uses what the pattern binds more than MOST times."""
    for clause in subject.rule.clauses:
        if isinstance(clause, s.LetClause) and growth_of(subject.rule)[clause.name] > MOST:
            what = f"`{clause.name}`, written out, is more than {MOST:,} values: every `let` before it doubles it"
            yield subject.finding(what, clause.span, (), "read a `let` once, or take fewer of them")
            return


def growth_of(rule: Rule) -> dict[str, int]:
    """Return, for each let, the number of values that its expansion uses (lets that it reads are expanded too)."""
    found: dict[str, int] = {}
    for clause in rule.clauses:
        if isinstance(clause, s.LetClause):
            uses = Counter(node.text for node in walk(clause.value) if isinstance(node, s.NameOf))
            total = sum(count * found.get(name, 1) for name, count in uses.items())
            found[clause.name] = min(total, MOST * 2)
    return found


# Rules that cannot fire: an earlier rule has the same pattern and no guard.


def shadowed(subject: CheckedRule) -> Findings:
    """Report a rule with the pattern of an earlier rule that has no guard.

    The earlier rule is in the same pass. On torch and tensor, where every rule is tried at every value, the earlier
    rule may be in any file (a warning).
    """
    rule = subject.rule
    position = _positions(subject.rules)
    for earlier in _unguarded(subject.rules).get(_pattern_key(rule), ()):
        if position[earlier.name] >= position.get(rule.name, 0) or not _tried_together(earlier, rule):
            continue
        same_file = earlier.file == rule.file
        what = f"can never fire: `{earlier.name}` matches everything it matches, without a guard"
        hint = "put the special rule first"
        if not same_file:
            hint = f"say `pass {pass_name(rule.file)} before {pass_name(earlier.file)} ..` in a pipeline"
        place = rule.span if same_file else rule.match[-1].span
        notes = (f"`{earlier.name}` is at {earlier.location}",)
        yield subject.finding(what, place, notes, hint, ERROR if same_file else WARNING)
        return


def _pattern_key(rule: Rule) -> Any:
    """Return the pattern with numbered variables, the level, and the file or level whose rules are tried in order."""
    numbers: dict[str, str] = {}

    def key(value: Any, owner: type | None = None) -> Any:
        if isinstance(value, tuple):
            return tuple(key(item) for item in value)
        if isinstance(value, s.NameOf):
            return key(value.text)
        if isinstance(value, s.Syntax):
            return (type(value).__name__, *(key(child, type(value)) for child in children(value)))
        if not isinstance(value, str) or value == "_" or not is_variable(value) or owner in _FIELDS_OF_TEXT:
            return value
        if owner is s.Apply and value[:1].isupper():
            return value
        return numbers.setdefault(value, f"{len(numbers)}")

    return rule.level if rule.level in ("torch", "tensor") else rule.file, rule.level, key(rule.match)


_FIELDS_OF_TEXT = (s.Keyword, s.Member, s.Text)  # names of fields, texts


@functools.lru_cache(maxsize=4)
def _unguarded(rules: RuleSet) -> dict[Any, list[Rule]]:
    """Return the rules that fire wherever they match, by pattern."""
    found: dict[Any, list[Rule]] = {}
    for rule in rules.rules.values():
        if not rule.parameters and not any(isinstance(c, s.Guard | s.PickClause) for c in rule.clauses):
            found.setdefault(_pattern_key(rule), []).append(rule)
    return found


@functools.lru_cache(maxsize=4)
def _positions(rules: RuleSet) -> dict[str, int]:
    """Return the positions of rules in the order of the pipelines, or of declaration if these are not sound."""
    try:
        steps = [step for steps in pipelines(rules).values() for step in steps]
    except DplcError:
        steps = []
    named = [rule.name for step in steps for rule in step.rules] or list(rules.rules)
    return {name: n for n, name in enumerate(dict.fromkeys((*named, *rules.rules)))}


def _tried_together(a: Rule, b: Rule) -> bool:
    """Return whether two rules are both tried by the pass, or both by the canonical fixpoint."""
    reach = ({"local", "canonical", "unstable"} & rule.attributes for rule in (a, b))
    return all(found in (set(), {"canonical"}) for found in reach) and ("canonical" in a.attributes) is (
        "canonical" in b.attributes
    )


Check = Callable[[CheckedRule], Findings]

CHECKS: tuple[Check, ...] = (
    placed,
    closed_names,
    known_calls,
    argument_counts,
    local_rules,
    changed_fields,
    parameter_sorts,
    torch_forms,
    torch_ignored,
    *NAME_CHECKS,
    dangling_axes,
    whole_axes,
    sort_clashes,
    unique_reasons,
    defaults_in_domains,
    alternatives,
    attributes,
    examples_enough,
    refusals_known,
    example_parameters,
    example_programs,
    grown_values,
    shadowed,
    changes_nothing,
)


@functools.cache
def load_facts() -> None:
    """Import the modules that register facts."""
    facts = importlib.import_module("..facts", __package__)
    for module in pkgutil.iter_modules(facts.__path__):
        importlib.import_module(f"{facts.__name__}.{module.name}")
    importlib.import_module("..rewrite.statements.site", __package__)


def check_rule(rule: Rule, rules: RuleSet) -> list[Finding]:
    """Return everything that is wrong with one rule, errors and warnings, in the order of the text."""
    subject = CheckedRule(rule, rules)
    found: dict[object, Finding] = {}
    for check in CHECKS:
        for finding in check(subject):
            finding.check, finding.rule = check.__name__, rule.family or rule.name
            found.setdefault(
                (finding.span, finding.severity), finding
            )  # one problem for each location: the first is the clearest
    return sorted(found.values(), key=lambda f: (f.span.line, f.span.column) if f.span else (0, 0))


def check(rules: RuleSet, only: Iterable[str] | None = None) -> list[Finding]:
    """Return everything that is wrong with the rules. only: names of source files; None means all of them.

    The members of a family share their text, hence their findings: each is reported once.
    """
    load_facts()
    wanted = None if only is None else set(only)
    found: dict[object, Finding] = {}
    for each in for_every_device(rules):
        for number in unread_numbers(each, wanted):
            found[number.span] = number
        for kind in kinds_of_facts(each, wanted):
            found.setdefault(kind.span, kind)
        for rule in each.rules.values():
            for finding in check_rule(rule, each) if wanted is None or rule.span.source.name in wanted else ():
                key = finding.what.replace(f"`{rule.name}`", "") if rule.family else finding.what
                found.setdefault((finding.check, finding.span, key), finding)
    return list(found.values())


def for_every_device(rules: RuleSet) -> tuple[RuleSet, ...]:
    """Return the rules, and the rules with the declarations for each device that some declaration names."""
    return (rules, *(rules.on_device(name) for name in rules.devices if name != rules.device))


def kinds_of_facts(rules: RuleSet, wanted: set[str] | None) -> Findings:
    """Report facts of files whose value has another sort than they declare. A fact that stays the same is kept."""
    for fact in rules.facts.values():
        if wanted is None or fact.span.source.name in wanted:
            yield from remembered("kind", fact.name, (fact,), functools.partial(_kind_of_fact, fact))


def _kind_of_fact(fact: s.FactOf) -> list[Finding]:
    found: list[Finding] = []

    def report(what: str, node: s.Syntax, hint: str | None = None) -> None:
        found.append(Finding(f"fact `{fact.name}`: {what}", node.span, (), hint))

    scope = {"target": TARGET, **{p.name: sort_of(p.sort or "any") for p in fact.parameters}}
    Inference(facts_of("tile"), report).want(fact.value, sort_of(fact.result), scope, "what it gives")
    return found


def unread_numbers(rules: RuleSet, wanted: set[str] | None) -> Findings:
    """Report numbers and facts of users' files that nothing reads. Python reads some numbers of ours, in copies too."""
    ours = {number.name for file in built_in_files() for number in file.numbers}
    written = {word for file in rules.files for rule in file.rules for word in rule.words}
    written |= {word for file in rules.files for fact in file.facts for word in words_in(fact.value)}
    for name, fact in rules.facts.items():
        if wanted and fact.span.source.name in wanted and name not in written:
            yield Finding(f"fact `{name}` is never asked", fact.span, (), "ask it in a rule, or take it out")
    written |= {word for number in rules.numbers.values() for word in words_in(number.declared.value)}
    for name, number in rules.numbers.items():
        span = number.declared.span
        if wanted and span.source.name in wanted and number.overrides is None and name not in written | ours:
            hint = did_you_mean(name, [known for known in rules.numbers if known != name])
            yield Finding(f"number `{name}` is never read", span, (), hint or "name it in a rule, or take it out")


def errors(findings: Iterable[Finding], enforce: Iterable[str] = ()) -> list[Finding]:
    """Return the findings that forbid loading. enforce: checks whose warnings count too, or `all`."""
    strict = set(enforce)
    return [f for f in findings if f.severity == ERROR or strict & {f.check, "all"}]


def warnings(findings: Iterable[Finding]) -> list[Finding]:
    return [f for f in findings if f.severity == WARNING]


def require(rules: RuleSet, only: Iterable[str] | None = None, enforce: Iterable[str] = ()) -> list[Finding]:
    """Check the rules, raise all errors at once, and return the warnings."""
    findings = check(rules, only)
    broken = errors(findings, enforce)
    if broken:
        raise broken[0] if len(broken) == 1 else Diagnostics(broken)
    return warnings(findings)


# ---- Findings that `dplc rules lint` and editors report, but no compile: the rule is legal, and a part has no effect.


def lint_rule(rule: Rule, rules: RuleSet) -> list[Finding]:
    """Return the parts of one rule that have no effect."""
    subject = CheckedRule(rule, rules)
    found = []
    for lint in (unused_local, idle_guards, unknown_devices):
        for what, span, hint in lint(subject):
            found.append(subject.finding(what, span, (), hint, WARNING))
            found[-1].check = lint.__name__
    return found


Lint = Iterator[tuple[str, Span, str | None]]


def unused_local(subject: CheckedRule) -> Lint:
    """Report a @local rule that no rule uses."""
    rule = subject.rule
    if not subject.local:
        return
    users = (other for other in subject.rules.rules.values() if other is not rule)
    if not any(node.call.fn == rule.name for other in users for node in every(other.rewrite, s.UseRule)):
        yield "no rule says `with rule " + rule.name + "(..)`", rule.span, "use it, or take it out"


def idle_guards(subject: CheckedRule) -> Lint:
    """Report a guard that has the same value for all programs."""
    for guard in subject.rule.guards:
        value = constant(subject.rule.level, guard.condition)
        if value is not None:
            holds = "always holds: no program violates it" if value else "never holds: the rule cannot fire"
            hint = "leave it out" if value else "ask something of the program"
            yield f"`{expression(guard.condition)}` {holds}", guard.condition.span, hint


def unknown_devices(subject: CheckedRule) -> Lint:
    """Report a text that is compared with `target.name` or `target.arch`, and that no device file has."""
    for node in every((subject.rule.clauses, subject.rule.parameters), s.Operation):
        sides = (node.a, node.b) if node.op in ("==", "!=", "in", "not in") else ()
        fields = [
            side.field
            for side in sides
            if isinstance(side, s.Member) and (isinstance(side.base, s.NameOf) and side.base.text == "target")
        ]
        known = {getattr(load_device(name), field) for name in devices() for field in fields if field in _TEXTS}
        for text in every(sides, s.Text) if known else ():
            if text.value not in known:
                what = f'no device has the {fields[0]} "{text.value}": the comparison is never equal'
                yield what, text.span, did_you_mean(text.value, sorted(known))


_TEXTS = ("name", "arch")
