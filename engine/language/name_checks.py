"""Checks of names: each is bound before it is read, and read after it is bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from ...ir.diagnostic import did_you_mean
from ...ir.text import syntax as s
from ...ir.text.read_statements import STATEMENT_CLASSES
from .core import says_slices
from .rule_scope import WARNING, CheckedRule, Findings
from .sorts import ANY, INDEX, TERM, kind_of_word, told_of_a_word
from .typed_slots import OTHER_FIELDS, VALUE, every, is_variable, names, names_in, plain, targets, walk

_CLOSED = ("role", "via", "fn", "monoid", "atom", "dtype")  # unknown ones are reported by vocabulary.closed_names


def unbound(subject: CheckedRule) -> Findings:
    """Report a name that is read where nothing has bound it."""
    later = {c.name: c for c in subject.rule.clauses if isinstance(c, s.LetClause | s.PickClause)}
    seen = set()
    for expression in subject.expressions:
        if expression.want.kind in _CLOSED and isinstance(expression.node, s.NameOf):
            continue
        for name in names(expression.node):
            if name.text in expression.scope or not is_variable(name.text) or name.span in seen:
                continue
            seen.add(name.span)
            notes = (f"it is bound later, in line {later[name.text].span.line}",) if name.text in later else ()
            known = [*expression.scope, *subject.rules.numbers]
            hint = did_you_mean(name.text, [other for other in known if other != name.text])
            yield subject.finding(f"unbound variable `{name.text}`", name.span, notes, hint)


def words_of_the_language(subject: CheckedRule) -> Findings:
    """Report a function, dtype or role where the pattern or the template gives a name: it would not be a variable."""
    for slot in (*subject.pattern, *subject.template):
        inner = slot.value.base if isinstance(slot.value, s.Run) else slot.value
        if (
            not isinstance(inner, s.NameOf)
            or slot.sort.kind in _CLOSED
            or (slot in subject.template and not slot.makes)
        ):
            continue
        kind = kind_of_word(inner.text)
        if kind not in (None, "a constant", "the machine") and not (kind in ("a dtype", "a role") and slot.sort == ANY):
            what, note, hint = told_of_a_word(inner.text, str(kind))
            yield subject.finding(what, inner.span, (note,), hint)


def substitutions(subject: CheckedRule) -> Findings:
    """Report a substitution such as `body[4 := e]`, which replaces neither a variable nor a sum of variables."""
    for expression in subject.expressions:
        for node in every(expression.node, s.Substitution):
            if not names_in(node.left):
                what = "a substitution replaces a variable, or a sum that is computed from variables"
                yield subject.finding(what, node.left.span, (), "write `body[i := e]..`, or `body[i*F + r := e]..`")


def wildcards(subject: CheckedRule) -> Findings:
    """Report `_` where a value is needed: it binds nothing."""
    for expression in subject.expressions:
        for name in names(expression.node):
            if name.text == "_":
                yield subject.finding(
                    "`_` matches anything and binds nothing: there is no value to read",
                    name.span,
                    (),
                    "give it a name in the pattern",
                )


def unused_variables(subject: CheckedRule) -> Findings:
    """Report a variable that the pattern binds once and nothing reads."""
    times = Counter(name.text for name, _ in subject.occurrences)
    held = {
        node.base.text
        for node in walk(subject.rule.match)
        if isinstance(node, s.Member) and isinstance(node.base, s.NameOf)
    }
    free = {parameter.name for parameter in subject.rule.parameters} | subject.used | held
    free |= {
        slot.value.text for slot in subject.pattern if slot.what == OTHER_FIELDS and isinstance(slot.value, s.NameOf)
    }
    for name, _ in subject.occurrences:
        if times[name.text] == 1 and name.text not in free:
            yield subject.finding(f"`{name.text}` is bound but never used; write `_`", name.span)


def unused_clauses(subject: CheckedRule) -> Findings:
    """Report a `let` or `pick` that nothing reads."""
    for clause in subject.rule.clauses:
        if isinstance(clause, s.LetClause | s.PickClause) and clause.name not in subject.used:
            kind = "let" if isinstance(clause, s.LetClause) else "pick"
            yield subject.finding(f"`{kind} {clause.name}` is never used", clause.span)


def unused_parameters(subject: CheckedRule) -> Findings:
    """Report a parameter that nothing reads."""
    for parameter in subject.rule.parameters:
        if parameter.name not in subject.used and parameter.name not in subject.bound:
            yield subject.finding(f"parameter `{parameter.name}` is never used", parameter.span)


def bound_twice(subject: CheckedRule) -> Findings:
    """Report a parameter, `let` or `pick` under a name that is taken."""
    places = {name.text: name.span for name, _ in reversed(subject.occurrences)}
    taken: dict[str, Any] = dict(places)
    parameters: dict[str, Any] = {}
    for parameter in subject.rule.parameters:
        if parameter.name in parameters or (parameter.name in taken and not subject.local):
            first = parameters.get(parameter.name) or taken[parameter.name]
            yield subject.finding(
                f"`{parameter.name}` is bound twice", parameter.span, (f"first in line {first.line}",)
            )
        parameters[parameter.name] = parameter.span
    taken |= parameters
    for clause in subject.rule.clauses:
        if isinstance(clause, s.LetClause | s.PickClause):
            if clause.name in taken:
                yield subject.finding(
                    f"`{clause.name}` is bound twice", clause.span, (f"first in line {taken[clause.name].line}",)
                )
            taken[clause.name] = clause.span


def dropped_runs(subject: CheckedRule) -> Findings:
    """Report matched statements that the template does not emit: their stores and sums would be lost."""
    kept = _kept(subject)
    for node in walk(subject.rule.match):
        name = _captured(node)
        if name == "_":
            yield subject.finding("`_..` takes statements that the template cannot put back; give it a name", node.span)
        elif name is not None and name not in kept:
            dots = ".." if isinstance(node, s.RunStatement) else ""
            what = f"the template drops `{name}{dots}`, with the accumulators and stores in it"
            yield subject.finding(what, node.span, (), f"write `drop {name}..` in the template if that is meant")


def _captured(node: object) -> str | None:
    """Return the name of a run, capture or context of a pattern."""
    if isinstance(node, s.RunStatement) and isinstance(node.run.base, s.NameOf):
        return node.run.base.text
    return node.name if isinstance(node, s.CaptureStatement | s.InsideBlock) else None


def _kept(subject: CheckedRule) -> set[str]:
    """Return the names whose statements reach the template: put back, dropped on purpose, or read field by field."""
    kept: set[str] = set()
    for node in walk(subject.rule.rewrite):
        if isinstance(node, s.RunStatement):
            kept |= {name.text for name in names(node.run.base)}
        elif isinstance(node, s.DropStatement):
            kept |= {name.text for name in names(node.run)}
        elif isinstance(node, s.InsideBlock):
            kept.add(node.name)
        elif isinstance(node, s.Member) and isinstance(node.base, s.NameOf):
            kept.add(node.base.text)
        elif isinstance(node, s.EachBlock):
            kept |= {name.text for name in names(node.domain)}
    for let in reversed(list(subject.lets)):  # `let new = body[..]`, then `new..`
        if let in kept:
            kept |= {name.text for name in names(subject.lets[let])}
    return kept


def root_defined(subject: CheckedRule) -> Findings:
    """Check on torch and tensor that the template defines the value that the pattern ends with."""
    root = subject.rule.match[-1]
    name = next(iter(targets(root)), None) if isinstance(root, s.Assign) else None
    if not subject.dataflow or not isinstance(name, s.NameOf):
        return
    if all(isinstance(node, s.PassStatement | s.DropStatement) for node in subject.rule.rewrite):
        return
    assigned = (node for node in walk(subject.rule.rewrite) if isinstance(node, s.Assign))
    made = {target.text for node in assigned for target in targets(node) if isinstance(target, s.NameOf)}
    if name.text not in made:
        what = f"the template does not define `{name.text}`, the root of the pattern"
        yield subject.finding(what, name.span, (), did_you_mean(name.text, made))


def unreached(subject: CheckedRule) -> Findings:
    """Report a line of a torch or tensor pattern that the root value is not computed from."""
    if not subject.dataflow:
        return
    root = subject.rule.match[-1]
    lines = {
        getattr(t, "text", ""): one for one in subject.rule.match if isinstance(one, s.Assign) for t in targets(one)
    }
    joined = [one for one in subject.rule.rewrite if isinstance(one, s.Assign) and isinstance(one.target, s.Group)]
    roots = {getattr(target, "text", "") for one in joined for target in targets(one)}  # `(a, b) = mat(v, w)`
    reached, waiting = set(), [root, *(line for name, line in lines.items() if name in roots)]
    while waiting:
        line = waiting.pop()
        if id(line) not in reached:
            reached.add(id(line))
            read = names(line.value) if isinstance(line, s.Assign) else ()
            waiting += [lines[name.text] for name in read if name.text in lines]
    last = getattr(next(iter(targets(root)), None), "text", "") if isinstance(root, s.Assign) else ""
    lost = [(name, line) for name, line in lines.items() if id(line) not in reached]
    if lost:
        name, line = lost[0]
        notes = (f"a pattern on {subject.rule.level} is its last value, and those that it is computed from",)
        hint = f"leave {', '.join(f'`{name}`' for name, _ in lost)} out, or write another rule"
        yield subject.finding(f"`{last}` is not computed from `{name}`", line.span, notes, hint)


def reads_itself(subject: CheckedRule) -> Findings:
    """Report a torch or tensor template that reads the value that it defines; facts about its shape are allowed."""
    root = subject.rule.match[-1]
    if not subject.dataflow or not isinstance(root, s.Assign):
        return
    roots = {target.text for target in targets(root) if isinstance(target, s.NameOf)}
    said = {id(node) for line in filter(says_slices, subject.rule.rewrite) for node in walk((line,))}
    for slot in subject.template:
        if id(slot.value) in said:
            continue
        if slot.sort in (TERM, INDEX) and isinstance(slot.value, s.NameOf) and slot.value.text in roots:
            yield subject.finding(f"the template reads `{slot.value.text}`, which it defines", slot.value.span)


def made_in_order(subject: CheckedRule) -> Findings:
    """Check that a template of values defines each value before it reads it; on tensor its left sides are names."""
    if subject.rule.level not in ("tensor", "torch"):
        return
    lines = [one for one in subject.rule.rewrite if isinstance(one, s.Assign)]
    places = {target.text: n for n, one in enumerate(lines) for target in targets(one) if isinstance(target, s.NameOf)}
    for n, line in enumerate(lines):
        for name in names(line.value):
            if n < places.get(name.text, -1) and name.text not in subject.bound:
                note = f"line {lines[places[name.text]].span.line} makes it"
                yield subject.finding(f"`{name.text}` is read before it is made", name.span, (note,), "write it above")
        if isinstance(line.target, s.Subscript) and subject.rule.level == "tensor":
            hint = "write the name alone: what it varies with follows from what it is made of"
            yield subject.finding("on tensor a template has no axes on the left", line.target.span, (), hint)


def changes_nothing(subject: CheckedRule) -> Findings:
    """Report a template that is the pattern: the rule fires nowhere."""
    rule = subject.rule
    if plain(rule.match) == plain(rule.rewrite):
        what = "the template is the pattern: the rule changes nothing, so it never fires"
        yield subject.finding(what, rule.rewrite[0].span, (), "change what stands behind `rewrite`", WARNING)


def bare_tensors(subject: CheckedRule) -> Findings:
    """Check on torch that a tensor is read with brackets: they name its axes."""
    if subject.rule.level != "torch":
        return
    for slot in subject.template:
        name = slot.value.text if isinstance(slot.value, s.NameOf) else ""
        if slot.what == VALUE and subject.bound.get(name) == TERM:
            yield subject.finding(f"a tensor is read with brackets: `{name}[..]`", slot.value.span)


def reset_fields(subject: CheckedRule) -> Findings:
    """Check that a rewritten statement gives every field that the pattern left open: it would be reset."""
    open_ = dict(_ops(subject.rule.match))
    for key, (cls, said, _) in list(open_.items()):
        for written, (_, again, node) in _ops(subject.rule.rewrite):
            if written != key:
                continue
            sticky = getattr(cls, "sticky", ())
            lost = [f.name for f in cls.fields if not f.required and f.name not in {*said, *again, *sticky}]
            if lost:
                fields = ", ".join(f"`{name}`" for name in lost)
                what = f"the template resets {fields} of `{cls.__name__}`, which the pattern left open"
                yield subject.finding(
                    what, node.span, (), "name it in the pattern, or capture the statement and use `with`"
                )


def _ops(statements: s.Nodes) -> Iterator[tuple[tuple[str, str | None], tuple[Any, set[str], s.Syntax]]]:
    """Yield ops by class and the name they define, with the fields they mention."""
    classes = STATEMENT_CLASSES
    for node in walk(statements):
        target = node.target if isinstance(node, s.Assign) else None
        call = node.value if isinstance(node, s.Assign) else node.call if isinstance(node, s.Statement) else None
        if (
            not isinstance(call, s.Apply)
            or call.fn not in classes
            or (target is not None and not isinstance(target, s.NameOf))
        ):
            continue
        said = {item.name for item in call.items if isinstance(item, s.Keyword)}
        yield (call.fn, target.text if target is not None else None), (classes[call.fn], said, call)


NAME_CHECKS = (
    words_of_the_language,
    unbound,
    wildcards,
    substitutions,
    root_defined,
    unreached,
    unused_variables,
    unused_clauses,
    unused_parameters,
    bound_twice,
    dropped_runs,
    reset_fields,
    reads_itself,
    bare_tensors,
    made_in_order,
)
