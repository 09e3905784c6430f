"""Static checks of rules: at load for users' files, in the tests for ours. Nothing in a rule is executed.

Each check is a function of a `CheckedRule` (the scope of one rule); its name is the name of its findings unless they
say another. Errors stop a file from loading, warnings do not.
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
from ...ir.diagnostic import Diagnostics, DplcError, did_you_mean
from ...ir.functions import FUNCTIONS
from ...ir.names import sort_word
from ...ir.text.programs import read_unit
from ...ir.text.read_statements import CLOSED, STATEMENT_CLASSES, VALUE_CLASSES, owners, read_block
from ...ir.text.syntax import walk, words_in
from . import core as s
from .definitions import remembered
from .elaborate import BINDERS
from .evaluate import FACTS, facts_of
from .pipeline import pipelines
from .rule import Rule, RuleSet, admits, built_in_files, constant, pass_name, shown
from .rule_scope import ERROR, OTHER_FIELDS, VALUE, WARNING, CheckedRule, Finding
from .sorts import (
    ANY,
    CLOSED_SORTS,
    INDEX,
    NAMED,
    PARAMETER_SORTS,
    TARGET,
    TERM,
    Inference,
    kind_of_word,
    sort_of,
    told_of_a_word,
)
from .spelling import expression
from .typed_slots import calls, every, is_variable, names, names_in, plain, targets

Findings = Iterator[Finding]

# Checks of words: ops, fields, roles, transports, functions, dtypes, facts, local rules and their arguments.


def placed(subject: CheckedRule) -> Findings:
    """Report unknown ops and fields, and statements of the wrong form: found while the rule was laid out."""
    yield from subject.problems


_WORDS = {kind: (sort_word(sort), CLOSED[sort]) for sort, kind in CLOSED_SORTS.items()}


def closed_names(subject: CheckedRule) -> Findings:
    """Report a role, transport, function or dtype that does not exist.

    In a pattern such a name is a variable, unless it is a slip of a real one: it is like one, and read nowhere.
    """
    texts = [name.text for name, _ in subject.occurrences]
    read = {*subject.used, *(parameter.name for parameter in subject.rule.parameters)}
    for n, one in enumerate((*subject.pattern, *subject.expressions)):
        if not isinstance(one.node, s.NameOf) or one.want.kind not in _WORDS:
            continue
        name, (word, options) = one.node.text, _WORDS[one.want.kind]
        known = {*options, "_"}
        if one.want.kind == "fn" and subject.dataflow:
            known |= subject.facts.keys()
            options = (*options, *subject.facts, *s.OPERATIONS)
        if name in known:
            continue
        hint, bound = did_you_mean(name, options), n < len(subject.pattern) or name in one.scope
        unread = texts.count(name) < 2 and name not in read
        slip = hint and (unread or difflib.get_close_matches(name, options, 1, 0.85))
        if slip or not bound or not is_variable(name):
            yield subject.finding(f"unknown {word} `{name}`", one.node, hint)


def known_calls(subject: CheckedRule) -> Findings:
    """Report a call of a name that is not a fact of this level, a scalar function or a variable."""
    known = {*subject.facts, *FUNCTIONS, *VALUE_CLASSES, "_"}
    for one in subject.expressions:
        for call in calls(one.node):
            if call.fn not in known and call.fn not in one.scope:
                elsewhere = sorted(level for level, name in FACTS if name == call.fn)
                notes = [f"`{call.fn}` is a fact on level {', '.join(elsewhere)}"] if elsewhere else ()
                hint = did_you_mean(call.fn, (*subject.facts, *FUNCTIONS, *subject.rules.facts))
                yield subject.finding(f"unknown fact or function `{call.fn}`", call, hint, notes)


def argument_counts(subject: CheckedRule) -> Findings:
    """Check that facts and scalar functions have as many arguments as they declare."""
    for call in calls(subject.parts):
        fact, given = subject.facts.get(call.fn), len(call.items)
        if any(isinstance(item, s.Run) for item in call.items):
            continue
        if fact is not None and not fact.least <= given <= (given if fact.most is None else fact.most):
            count = _arguments(fact.least) if fact.least == fact.most else f"{fact.least} to {fact.most} arguments"
            count = f"at least {_arguments(fact.least)}" if fact.most is None else count
            signature = f"{call.fn}({', '.join(fact.arguments)}) -> {fact.result}"
            yield subject.finding(f"`{call.fn}` takes {count}, not {given}", call, None, (signature,))
        elif fact is None and call.fn in FUNCTIONS and given != FUNCTIONS[call.fn].arity:
            yield subject.finding(f"`{call.fn}` takes {_arguments(FUNCTIONS[call.fn].arity)}, not {given}", call)


def _arguments(n: int) -> str:
    return f"{n} argument{'' if n == 1 else 's'}"


def local_rules(subject: CheckedRule) -> Findings:
    """Check that `with rule r(args)` names an `@local` rule of this level and gives it its parameters."""
    for use in every(subject.rule.rewrite, s.UseRule):
        rule = subject.rules.rules.get(use.call.fn)
        if rule is None or "local" not in rule.attributes:
            hint = did_you_mean(use.call.fn, [other.name for other in subject.rules.locals])
            notes = [f"`{rule.name}` at {rule.location} is not marked @local"] if rule else ()
            yield subject.finding(f"there is no @local rule `{use.call.fn}`", use, hint, notes)
        elif len(rule.parameters) != len(use.call.items):
            what = f"`{rule.name}` takes {_arguments(len(rule.parameters))}, not {len(use.call.items)}"
            yield subject.finding(what, use, None, (f"it is declared at {rule.location}",))


def changed_fields(subject: CheckedRule) -> Findings:
    """Check that the captured statement has the fields of `s.. with depth=2`."""
    for node in every(subject.rule.rewrite, s.RunStatement):
        base = node.run.base
        while isinstance(base, s.Subscript):
            base = base.base
        captured = subject.scope.get(base.text, ANY).node if isinstance(base, s.NameOf) else None
        among = [owners()[captured]] if captured in owners() else [*owners().values()]
        options = {name for cls in among for name in cls.by_name}
        for change in node.changes:
            if isinstance(change, s.Keyword) and change.name not in options:
                who = f"`{among[0].__name__}` has no" if len(among) == 1 else "no statement has a"
                yield subject.finding(f"{who} field `{change.name}`", change, did_you_mean(change.name, options))


def parameter_sorts(subject: CheckedRule) -> Findings:
    """Check that the sort of a parameter (`N: int`) exists."""
    for parameter in subject.rule.parameters:
        if parameter.sort is not None and parameter.sort not in PARAMETER_SORTS:
            what = f"unknown sort `{parameter.sort}` of `{parameter.name}`"
            hint = did_you_mean(parameter.sort, PARAMETER_SORTS)
            yield subject.finding(what, parameter, hint, (f"sorts are {', '.join(PARAMETER_SORTS)}",))


def torch_ignored(subject: CheckedRule) -> Findings:
    """Report `dtype=_` on torch if the rule never reads the result's dtype: it would ignore the requested dtype."""
    if subject.rule.level != "torch" or any(call.fn == "dtype" for call in calls(subject.parts)):
        return
    for line in subject.rule.match:
        for item in line.value.items if isinstance(line, s.Assign) and isinstance(line.value, s.Apply) else ():
            match item:
                case s.Keyword(name="dtype", value=s.NameOf(text="_")):
                    hint = "bind it and use it, or leave it out to match its default only"
                    yield subject.finding("`dtype=_` ignores what the user asked for", item, hint, (), WARNING)


# Checks of names: each is bound before it is read, and read after it is bound.


def words_of_the_language(subject: CheckedRule) -> Findings:
    """Report a function, dtype or role where the pattern or the template gives a name: it would not be a variable."""
    for one in (*subject.pattern, *(one for one in subject.template if one.makes)):
        inner = one.node.base if isinstance(one.node, s.Run) else one.node
        if not isinstance(inner, s.NameOf) or one.want.kind in _WORDS:
            continue
        kind = kind_of_word(inner.text)
        if kind not in (None, "a constant", "the machine") and not (kind in ("a dtype", "a role") and one.want == ANY):
            what, note, hint = told_of_a_word(inner.text, str(kind))
            yield subject.finding(what, inner, hint, (note,))


def unbound(subject: CheckedRule) -> Findings:
    """Report a name that is read where nothing has bound it, and `_`, which binds nothing."""
    later = {clause.name: clause.span.line for clause in subject.rule.clauses if isinstance(clause, BINDERS)}
    for one in subject.expressions:
        for name in names(one.node):
            if name.text == "_":
                what = "`_` matches anything and binds nothing: there is no value to read"
                yield subject.finding(what, name, "give it a name in the pattern", check="wildcards")
            elif (
                is_variable(name.text)
                and name.text not in one.scope
                and not (name is one.node and one.want.kind in _WORDS)  # closed_names reports it
            ):
                notes = [f"it is bound later, in line {later[name.text]}"] if name.text in later else ()
                hint = did_you_mean(name.text, {*one.scope, *subject.rules.numbers} - {name.text})
                yield subject.finding(f"unbound variable `{name.text}`", name, hint, notes)


def substitutions(subject: CheckedRule) -> Findings:
    """Report a substitution such as `body[4 := e]`, which replaces neither a variable nor a sum of variables."""
    for one in subject.expressions:
        for node in every(one.node, s.Substitution):
            if not names_in(node.left):
                what = "a substitution replaces a variable, or a sum that is computed from variables"
                yield subject.finding(what, node.left, "write `body[i := e]..`, or `body[i*F + r := e]..`")


def unused_variables(subject: CheckedRule) -> Findings:
    """Report a variable that the pattern binds once and nothing reads."""
    times = Counter(name.text for name, _ in subject.occurrences)
    free = {parameter.name for parameter in subject.rule.parameters} | subject.used
    free |= {node.base.text for node in every(subject.rule.match, s.Member) if isinstance(node.base, s.NameOf)}
    free |= {getattr(one.node, "text", "") for one in subject.pattern if one.what == OTHER_FIELDS}
    for name, _ in subject.occurrences:
        if times[name.text] == 1 and name.text not in free:
            yield subject.finding(f"`{name.text}` is bound but never used; write `_`", name)


def unused_clauses(subject: CheckedRule) -> Findings:
    """Report a `let`, a `pick` or a parameter that nothing reads."""
    for clause in subject.rule.clauses:
        if isinstance(clause, BINDERS) and clause.name not in subject.used:
            kind = "let" if isinstance(clause, s.LetClause) else "pick"
            yield subject.finding(f"`{kind} {clause.name}` is never used", clause)
    for parameter in subject.rule.parameters:
        if parameter.name not in subject.used | subject.bound.keys():
            yield subject.finding(f"parameter `{parameter.name}` is never used", parameter, check="unused_parameters")


def bound_twice(subject: CheckedRule) -> Findings:
    """Report a parameter, `let` or `pick` under a name that is taken. A local rule may match its parameters."""
    rule = subject.rule
    given = {parameter.name for parameter in rule.parameters if subject.local}
    taken = {name.text: name.span.line for name, _ in reversed(subject.occurrences) if name.text not in given}
    for binder in (*rule.parameters, *rule.clauses):
        if isinstance(binder, BINDERS):
            if binder.name in taken:
                note = f"first in line {taken[binder.name]}"
                yield subject.finding(f"`{binder.name}` is bound twice", binder, None, (note,))
            taken[binder.name] = binder.span.line


def dropped_runs(subject: CheckedRule) -> Findings:
    """Report matched statements that the template does not emit: their stores and sums would be lost."""
    kept = set[str]()  # put back, dropped on purpose, or read field by field
    for node in walk(subject.rule.rewrite):
        match node:
            case s.RunStatement(run=run) | s.DropStatement(run=run):
                kept |= {name.text for name in names(run)}
            case s.InsideBlock():
                kept.add(node.name)
            case s.Member(base=s.NameOf(text=name)):
                kept.add(name)
            case s.EachBlock():
                kept |= {name.text for name in names(node.domain)}
    for let, value in reversed(subject.lets.items()):  # `let new = body[..]`, then `new..`
        if let in kept:
            kept |= {name.text for name in names(value)}
    for node in walk(subject.rule.match):
        match node:
            case s.RunStatement(run=s.Run(base=s.NameOf(text=name))):
                dots = ".."
            case s.CaptureStatement(name=name) | s.InsideBlock(name=name):
                dots = ""
            case _:
                continue
        if name == "_":
            yield subject.finding("`_..` takes statements that the template cannot put back; give it a name", node)
        elif name not in kept:
            what = f"the template drops `{name}{dots}`, with the accumulators and stores in it"
            yield subject.finding(what, node, f"write `drop {name}..` in the template if that is meant")


def reset_fields(subject: CheckedRule) -> Findings:
    """Check that a rewritten statement gives every field that the pattern left open: it would be reset."""
    made = _ops(subject.rule.rewrite)
    for key, before in dict(_ops(subject.rule.match)).items():
        for after in (call for written, call in made if written == key):
            cls = STATEMENT_CLASSES[after.fn]
            said = {item.name for item in (*before.items, *after.items) if isinstance(item, s.Keyword)}
            said.update(getattr(cls, "sticky", ()))
            lost = [f"`{field.name}`" for field in cls.fields if not field.required and field.name not in said]
            if lost:
                what = f"the template resets {', '.join(lost)} of `{cls.__name__}`, which the pattern left open"
                hint = "name it in the pattern, or capture the statement and use `with`"
                yield subject.finding(what, after, hint)


def _ops(statements: s.Nodes) -> list[tuple[tuple[str, str | None], s.Apply]]:
    """Return the calls of ops, each with its name and the name that it defines."""
    found = []
    for node in every(statements, s.Assign | s.Statement):
        target, call = (node.target, node.value) if isinstance(node, s.Assign) else (None, node.call)
        if isinstance(call, s.Apply) and call.fn in STATEMENT_CLASSES and isinstance(target, s.NameOf | None):
            found.append(((call.fn, target.text if target else None), call))
    return found


# Checks of the lines of values on torch and tensor.


def _lines(statements: Iterable[s.Syntax]) -> dict[str, s.Assign]:
    """Return the lines that define values, by the names of these."""
    lines = (line for line in statements if isinstance(line, s.Assign))
    return {name: line for line in lines for name in _defined(line)}


def _defined(line: s.Syntax) -> list[str]:
    return [getattr(target, "text", "") for target in targets(line)] if isinstance(line, s.Assign) else []


def root_defined(subject: CheckedRule) -> Findings:
    """Check on torch and tensor that the template defines the value that the pattern ends with."""
    rule, root = subject.rule, subject.rule.match[-1]
    name = next(iter(targets(root)), None) if isinstance(root, s.Assign) and subject.dataflow else None
    made = _lines(every(rule.rewrite, s.Assign))
    dropped = all(isinstance(node, s.PassStatement | s.DropStatement) for node in rule.rewrite)
    if isinstance(name, s.NameOf) and name.text not in made and not dropped:
        what = f"the template does not define `{name.text}`, the root of the pattern"
        yield subject.finding(what, name, did_you_mean(name.text, made))


def unreached(subject: CheckedRule) -> Findings:
    """Report a line of a torch or tensor pattern that the root value is not computed from."""
    rule, lines, ends = subject.rule, _lines(subject.rule.match), _defined(subject.rule.match[-1])
    joined = [line for line in rule.rewrite if isinstance(line, s.Assign) and isinstance(line.target, s.Group)]
    needed = {*ends, *_lines(joined)}  # `(a, b) = mat(v, w)` has several roots
    needed |= {name.text for name in names(getattr(rule.match[-1], "value", ()))}
    while more := {name.text for one in needed & lines.keys() for name in names(lines[one].value)} - needed:
        needed |= more
    lost = [name for name, line in lines.items() if needed.isdisjoint(_defined(line))]
    if lost and subject.dataflow:
        notes = (f"a pattern on {rule.level} is its last value, and those that it is computed from",)
        hint = f"leave {', '.join(f'`{name}`' for name in lost)} out, or write another rule"
        what = f"`{''.join(ends[:1])}` is not computed from `{lost[0]}`"
        yield subject.finding(what, lines[lost[0]], hint, notes)


def reads_itself(subject: CheckedRule) -> Findings:
    """Report a torch or tensor template that reads the value that it defines; facts about its shape are allowed.

    On torch, a tensor is read with brackets: they name its axes.
    """
    rule = subject.rule
    ends = _defined(rule.match[-1]) if subject.dataflow else []
    sliced = {id(node) for line in filter(s.says_slices, rule.rewrite) for node in walk(line)}
    for one in subject.template:
        name = one.node.text if isinstance(one.node, s.NameOf) else ""
        if name and one.want in (TERM, INDEX) and name in ends and id(one.node) not in sliced:
            yield subject.finding(f"the template reads `{name}`, which it defines", one.node)
        elif rule.level == "torch" and one.what == VALUE and subject.bound.get(name) == TERM:
            yield subject.finding(f"a tensor is read with brackets: `{name}[..]`", one.node, check="bare_tensors")


def made_in_order(subject: CheckedRule) -> Findings:
    """Check that a template of values defines each value before it reads it; on tensor its left sides are names."""
    lines = [line for line in subject.rule.rewrite if isinstance(line, s.Assign) and subject.dataflow]
    places = {name: n for n, line in enumerate(lines) for name in _defined(line)}
    for n, line in enumerate(lines):
        for name in names(line.value):
            if n < places.get(name.text, -1) and name.text not in subject.bound:
                note = f"line {lines[places[name.text]].span.line} makes it"
                yield subject.finding(f"`{name.text}` is read before it is made", name, "write it above", (note,))
        if isinstance(line.target, s.Subscript) and subject.rule.level == "tensor":
            hint = "write the name alone: what it varies with follows from what it is made of"
            yield subject.finding("on tensor a template has no axes on the left", line.target, hint)


def dangling_axes(subject: CheckedRule) -> Findings:
    """Report kk in `y[i, j] = Reduce(add, k, multiply(x[i, k], w[j, kk]))`: neither an axis of y nor reduced."""
    if subject.rule.level != "torch":
        return
    free = subject.axes.keys() - subject.bound.keys() - subject.lets.keys()
    made: dict[str, list[s.NameOf]] = {}
    for line in subject.rule.rewrite:
        if not isinstance(line, s.Assign) or s.says_slices(line):
            continue
        found = [name for name in _axes(line.value, made) if name.text in free]
        if isinstance(line.target, s.NameOf):
            made[line.target.text] = found
            continue
        items = line.target.items if isinstance(line.target, s.Subscript) else ()
        left = [item.base if isinstance(item, s.Run) else item for item in items]
        if all(isinstance(item, s.NameOf) for item in left):  # else a fact makes some of them
            result, there = getattr(next(iter(targets(line)), None), "text", "the result"), names_in(tuple(left))
            for axis in {name.text: name for name in found if name.text not in there}.values():
                yield subject.finding(f"axis `{axis.text}` is neither in the bracket of `{result}` nor folded", axis)


def _axes(node: s.Syntax, made: dict[str, list[s.NameOf]]) -> Iterator[s.NameOf]:
    """Yield the axes that a value runs over: those of its brackets, less those it folds.

    made: the axes of the values that lines above define.
    """
    match node:
        case s.NameOf():
            yield from made.get(node.text, ())
        case s.Subscript():
            for item in node.items:
                base = item.base if isinstance(item, s.Run) else item
                if isinstance(base, s.NameOf) and base.text not in made:
                    yield base
                elif isinstance(base, s.NameOf | s.Subscript):  # a gather: a value of integers says where
                    yield from _axes(base, made)
        case s.Apply(fn="Index"):
            yield from names(node.items)
        case s.Apply(fn="Reduce" | "Fold", items=(_, *over, value)):
            folded = {name.text for name in names(tuple(over))}
            yield from (name for name in _axes(value, made) if name.text not in folded)
        case s.Choice():
            yield from _axes(node.a, made)
            yield from _axes(node.b, made)
        case s.Apply() | s.Group():
            for item in node.items:
                yield from _axes(item, made)


def whole_axes(subject: CheckedRule) -> Findings:
    """Report `Tile(outer.., i):` where i is the name of an axis: a new Tile needs extents and roles."""
    for one in subject.expressions:
        if one.want.kind == "axis" and not subject.dataflow:
            have = subject.quiet.sort(one.node.base if isinstance(one.node, s.Run) else one.node, one.scope)
            if have.kind not in ("axis", "any", "value"):
                hint = f"write `{getattr(one.node, 'text', 'i')}:M=THREAD`: its name, its extent and its role"
                yield subject.finding(f"{one.what} are axes, and this is {have}", one.node, hint)


# Checks of meaning: sorts of expressions, reasons, defaults against domains, attributes.


def sort_clashes(subject: CheckedRule) -> Findings:
    """Report a value of one sort where another is required: in guards, domains, arguments of facts, and fields."""
    inference = Inference(subject.facts)
    for node, want, what, makes, _, scope in subject.expressions:
        if not isinstance(node, s.NameOf) or not (makes or want.kind in ("role", "via", "fn", "dtype")):
            inference.want(node, want, scope, what)
    for node, want, what, *_ in subject.pattern:
        if isinstance(node, s.Number | s.Text):
            inference.want(node, want, {}, what)
        elif want.kind in NAMED and not want.many and not isinstance(node, s.NameOf | s.Member):
            inference.report(f"{what} is a name in a pattern", node)
    yield from (subject.finding(*clash) for clash in inference.clashes)


def unique_reasons(subject: CheckedRule) -> Findings:
    """Check that no two guards of a rule share a reason: it is the key of a refusal."""
    first: dict[str, s.Guard] = {}
    for guard in subject.rule.guards:
        if guard.reason in first:
            what = f'two guards give the reason "{guard.reason}"'
            notes = (f"the other is in line {first[guard.reason].span.line}",)
            yield subject.finding(what, guard, "say what is different", notes)
        elif not guard.reason.strip():
            yield subject.finding("a guard without a reason", guard, 'else "what is wrong when it fails"')
        first.setdefault(guard.reason, guard)


def defaults_in_domains(subject: CheckedRule) -> Findings:
    """Check that the default of a parameter is in its domain, if both are constant."""
    rule = subject.rule
    for parameter in rule.parameters:
        if parameter.domain is not None and parameter.default is not None:
            default = constant(rule.level, parameter.default)
            if default is not None and not admits(rule, parameter.name, default):
                what = f"the default {default} of `{parameter.name}` is not in its domain"
                notes = (f"the domain is {shown(rule, parameter.name)}",)
                yield subject.finding(what, parameter.default, None, notes)


def alternatives(subject: CheckedRule) -> Findings:
    """Check that a `choose` has several alternatives, and that their costs differ."""
    for node in every(subject.rule.match, s.Chosen):
        yield subject.finding("a pattern weighs nothing: `choose` stands in a clause, a default or the template", node)
    for node in every(subject.parts, s.Chosen):
        costs, word = node.costs, "maximising" if node.most else "minimising"
        if costs.variable not in names_in(costs.element):
            what = f"every alternative is alike: what `{word}` compares does not read `{costs.variable}`"
            yield subject.finding(what, costs.element, f"say what a value `{costs.variable}` costs")
        match costs.domain:
            case s.Group(items=()):
                yield subject.finding("nothing to choose: there is no value", costs.domain)
            case s.Group(items=(one,)) if not isinstance(one, s.Run):
                yield subject.finding("nothing to choose: there is one value", costs.domain)


def attributes(subject: CheckedRule) -> Findings:
    """Report attributes that contradict each other."""
    rule = subject.rule
    for a, others in (("local", ("canonical", "repeat")), ("canonical", ("repeat", "approx", "unstable"))):
        for b in others:
            if {a, b} <= rule.attributes:
                yield subject.finding(f"@{a} and @{b} exclude each other", rule)
    if "canonical" in rule.attributes and rule.parameters:
        what = "a @canonical rule has no parameters: nobody could choose them"
        yield subject.finding(what, rule.parameters[0])


MOST = 1 << 12  # uses of what a pattern binds, all lets of a clause written out; our own rules have 40


def grown_values(subject: CheckedRule) -> Findings:
    """Report a `let` that, with those it reads written out, uses what the pattern binds more than MOST times.

    Each may read the preceding one twice: after forty, no memory holds the value.
    """
    uses: dict[str, int] = {}
    for clause in subject.rule.clauses:
        if isinstance(clause, s.LetClause):
            uses[clause.name] = sum(uses.get(name.text, 1) for name in every(clause.value, s.NameOf))
            if uses[clause.name] > MOST:
                what = f"`{clause.name}`, written out, is more than {MOST:,} values: every `let` before it doubles it"
                yield subject.finding(what, clause, "read a `let` once, or take fewer of them")
                return


# Checks of examples.

# What matchers say where a pattern does not fit (engine/rewrite); all else is the reason of a guard.
PATTERN_MISSES = (
    "the pattern matches nowhere", "nearest miss", "expected `", "nothing here is like its first statement",
    "is not in its domain", "the rule says nothing about", "has no field", "two values for",
    " is not ", "a list of ",
)  # fmt: skip
# What an example may set in addition to the parameters of its rule: the inputs whose values are known before the
# program runs, and the device that is compiled for, as text.
SETTINGS = {"torch": (), "tensor": ("weights",)}


def examples_enough(subject: CheckedRule) -> Findings:
    """Check that a rule has an example that fires, and one refusal per `require`.

    Rules that share a group of guards share its refusals. A local rule is reached through the examples of its users.
    """
    rule = subject.rule
    if not subject.local and not any(isinstance(one.gives, tuple) for one in subject.rules.examples_at(rule.span)):
        yield subject.finding("no example shows it fire", rule, 'add `example "title"` .. `gives` ..', (), WARNING)
    for guard in rule.guards if not subject.local else ():
        if guard.kind == "require" and not subject.rules.shows_refusal(guard):
            what, hint = (
                f'no example is refused because "{guard.reason}"',
                f'add an example that `gives no "{guard.reason}"`',
            )
            yield subject.finding(what, guard, hint, (), WARNING)


def refusals_known(subject: CheckedRule) -> Findings:
    """Check that `gives no "text"` has the text of a reason of this rule, or of a pattern that does not match."""
    reasons = [guard.reason for guard in subject.rule.guards]
    for example in subject.rule.examples:
        text = example.gives
        known = isinstance(text, tuple) or any(text in reason for reason in reasons)
        if not known and not any(miss in text for miss in PATTERN_MISSES):
            notes = [f'there is "{reason}"' for reason in reasons]
            yield subject.finding(f'no guard gives the reason "{text}"', example, did_you_mean(text, reasons), notes)


def example_parameters(subject: CheckedRule) -> Findings:
    """Check that `example "title" (BK=16)` sets parameters of the rule, each once, to constant values."""
    rule = subject.rule
    known = [*(parameter.name for parameter in rule.parameters), *SETTINGS.get(rule.level, ("target",))]
    for example in rule.examples:
        seen = set[str]()
        for argument in example.arguments:
            if argument.name not in known:
                what = f"the example sets `{argument.name}`, which is not a parameter of the rule"
                yield subject.finding(what, argument, did_you_mean(argument.name, known))
            elif argument.name in seen:
                yield subject.finding(f"the example sets `{argument.name}` twice", argument)
            seen.add(argument.name)


def example_programs(subject: CheckedRule) -> Findings:
    """Check that the programs of examples are programs of their level; the result of a torch rule is on tensor."""
    level = subject.rule.level if subject.dataflow else None
    for example in subject.rule.examples:
        for block, at in ((example.before, level), (example.gives, None if level == "torch" else level)):
            if not isinstance(block, tuple):
                continue
            if subject.dataflow and isinstance(block[0], s.PassStatement):
                what = f'example "{example.title}" does not say yet what the rule gives'
                yield subject.finding(what, block[0], "dplc rules test --accept FILE writes it")
                continue
            try:
                if any(isinstance(statement, s.Unit) for statement in block):
                    for unit in block:
                        read_unit(unit, at, None)
                elif subject.dataflow:
                    raise DplcError("the program of an example on torch or tensor is a `graph`", block[0].span)
                else:
                    read_block(block)
            except DplcError as error:
                what, place = f'example "{example.title}": {error.what}', error if error.span else example
                yield subject.finding(what, place, error.hint, error.notes)


# Rules that cannot fire: an earlier rule has the same pattern and no guard, or the template is the pattern.


def shadowed(subject: CheckedRule) -> Findings:
    """Report a rule with the pattern of an earlier rule that has no guard.

    The earlier rule is in the same pass. On torch and tensor, where every rule is tried at every value, the earlier
    rule may be in any file (a warning).
    """
    rule = subject.rule
    position, unguarded = _tried(subject.rules)
    for earlier in unguarded.get(_pattern_key(rule), ()):
        reach, own = ({"local", "canonical", "unstable"} & one.attributes for one in (earlier, rule))
        if position[earlier.name] < position.get(rule.name, 0) and reach == own <= {"canonical"}:
            what = f"can never fire: `{earlier.name}` matches everything it matches, without a guard"
            notes = (f"`{earlier.name}` is at {earlier.location}",)
            if earlier.file == rule.file:
                yield subject.finding(what, rule, "put the special rule first", notes)
            else:
                hint = f"say `pass {pass_name(rule.file)} before {pass_name(earlier.file)} ..` in a pipeline"
                yield subject.finding(what, rule.match[-1], hint, notes, WARNING)
            return


def _pattern_key(rule: Rule) -> Any:
    """Return the pattern with numbered variables, the level, and the file or level whose rules are tried in order."""
    numbers: dict[str, str] = {}

    def word(text: str, owner: type) -> str:
        is_op = owner is s.Apply and text[:1].isupper()
        if is_op or owner in (s.Keyword, s.Member, s.Text) or not is_variable(text):
            return text
        return numbers.setdefault(text, f"{len(numbers)}")

    return rule.level if rule.level in ("torch", "tensor") else rule.file, rule.level, plain(rule.match, word)


@functools.lru_cache(maxsize=4)
def _tried(rules: RuleSet) -> tuple[dict[str, int], dict[Any, list[Rule]]]:
    """Return the positions of rules, and by pattern the rules that fire wherever they match.

    The order is that of the pipelines, or of declaration if these are not sound.
    """
    unguarded: dict[Any, list[Rule]] = {}
    for rule in rules.rules.values():
        if not rule.parameters and not any(isinstance(clause, s.Guard | s.PickClause) for clause in rule.clauses):
            unguarded.setdefault(_pattern_key(rule), []).append(rule)
    try:
        named = [rule.name for steps in pipelines(rules).values() for step in steps for rule in step.rules]
    except DplcError:
        named = []
    return {name: n for n, name in enumerate(dict.fromkeys((*named, *rules.rules)))}, unguarded


def changes_nothing(subject: CheckedRule) -> Findings:
    """Report a template that is the pattern: the rule fires nowhere."""
    rule = subject.rule
    if plain(rule.match) == plain(rule.rewrite):
        what = "the template is the pattern: the rule changes nothing, so it never fires"
        yield subject.finding(what, rule.rewrite[0], "change what stands behind `rewrite`", (), WARNING)


Check = Callable[[CheckedRule], Findings]

CHECKS: tuple[Check, ...] = (
    placed,
    closed_names,
    known_calls,
    argument_counts,
    local_rules,
    changed_fields,
    parameter_sorts,
    torch_ignored,
    words_of_the_language,
    unbound,
    substitutions,
    root_defined,
    unreached,
    unused_variables,
    unused_clauses,
    bound_twice,
    dropped_runs,
    reset_fields,
    reads_itself,
    made_in_order,
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


def _found(rule: Rule, rules: RuleSet, checks: Iterable[Check]) -> Findings:
    """Yield what some checks find in a rule, signed."""
    subject = CheckedRule(rule, rules)
    for check in checks:
        for finding in check(subject):
            finding.check, finding.rule = finding.check or check.__name__, rule.family or rule.name
            yield finding


def check_rule(rule: Rule, rules: RuleSet) -> list[Finding]:
    """Return everything that is wrong with one rule, errors and warnings, in the order of the text."""
    found: dict[object, Finding] = {}
    for finding in _found(rule, rules, CHECKS):  # one problem for each location: the first is the clearest
        found.setdefault((finding.span, finding.severity), finding)
    return sorted(found.values(), key=lambda f: (f.span.line, f.span.column) if f.span else (0, 0))


def check(rules: RuleSet, only: Iterable[str] | None = None) -> list[Finding]:
    """Return everything that is wrong with the rules. only: names of source files; None means all of them.

    The members of a family share their text, hence their findings: each is reported once.
    """
    load_facts()
    wanted = None if only is None else set(only)
    found: dict[object, Finding] = {}
    for each in for_every_device(rules):
        found |= {number.span: number for number in unread_numbers(each, wanted)}
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
    inference = Inference(facts_of("tile"))
    scope = {"target": TARGET, **{p.name: sort_of(p.sort or "any") for p in fact.parameters}}
    inference.want(fact.value, sort_of(fact.result), scope, "what it gives")
    return [Finding(f"fact `{fact.name}`: {what}", node.span, (), hint) for what, node, hint in inference.clashes]


def unread_numbers(rules: RuleSet, wanted: set[str] | None) -> Findings:
    """Report numbers and facts of users' files that nothing reads. Python reads some numbers of ours, in copies too."""
    if not wanted:
        return
    read = {word for file in rules.files for rule in file.rules for word in rule.words}
    read |= {word for file in rules.files for fact in file.facts for word in words_in(fact.value)}
    for name, fact in rules.facts.items():
        if fact.span.source.name in wanted and name not in read:
            yield Finding(f"fact `{name}` is never asked", fact.span, (), "ask it in a rule, or take it out")
    read |= {word for number in rules.numbers.values() for word in words_in(number.declared.value)}
    read |= {number.name for file in built_in_files() for number in file.numbers}
    for name, number in rules.numbers.items():
        span = number.declared.span
        if span.source.name in wanted and number.overrides is None and name not in read:
            hint = did_you_mean(name, rules.numbers.keys() - {name}) or "name it in a rule, or take it out"
            yield Finding(f"number `{name}` is never read", span, (), hint)


def errors(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that forbid loading."""
    return [finding for finding in findings if finding.severity == ERROR]


def warnings(findings: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.severity == WARNING]


def require(rules: RuleSet, only: Iterable[str] | None = None) -> list[Finding]:
    """Check the rules, raise all errors at once, and return the warnings."""
    findings = check(rules, only)
    if broken := errors(findings):
        raise broken[0] if len(broken) == 1 else Diagnostics(broken)
    return warnings(findings)


# ---- Findings that `dplc rules lint` and editors report, but no compile: the rule is legal, and a part has no effect.


def lint_rule(rule: Rule, rules: RuleSet) -> list[Finding]:
    """Return the parts of one rule that have no effect."""
    return list(_found(rule, rules, (unused_local, idle_guards, unknown_devices)))


def unused_local(subject: CheckedRule) -> Findings:
    """Report a @local rule that no rule uses."""
    rule = subject.rule
    users = (other.rewrite for other in subject.rules.rules.values() if subject.local and other is not rule)
    if subject.local and not any(use.call.fn == rule.name for rewrite in users for use in every(rewrite, s.UseRule)):
        yield subject.finding(f"no rule says `with rule {rule.name}(..)`", rule, "use it, or take it out", (), WARNING)


def idle_guards(subject: CheckedRule) -> Findings:
    """Report a guard that has the same value for all programs."""
    for condition in (guard.condition for guard in subject.rule.guards):
        value = constant(subject.rule.level, condition)
        if value is not None:
            holds = "always holds: no program violates it" if value else "never holds: the rule cannot fire"
            hint = "leave it out" if value else "ask something of the program"
            yield subject.finding(f"`{expression(condition)}` {holds}", condition, hint, (), WARNING)


def unknown_devices(subject: CheckedRule) -> Findings:
    """Report a text that is compared with `target.name` or `target.arch`, and that no device file has."""
    for node in every((subject.rule.clauses, subject.rule.parameters), s.Operation):
        for side, other in ((node.a, node.b), (node.b, node.a)):
            match side:
                case s.Member(base=s.NameOf(text="target"), field="name" | "arch" as field) if node.op in EQUALITIES:
                    known = sorted({getattr(load_device(name), field) for name in devices()})
                    for text in (text for text in every(other, s.Text) if text.value not in known):
                        what = f'no device has the {field} "{text.value}": the comparison is never equal'
                        yield subject.finding(what, text, did_you_mean(text.value, known), (), WARNING)


EQUALITIES = ("==", "!=", "in", "not in")
