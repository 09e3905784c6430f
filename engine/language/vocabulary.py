"""Checks of words: ops, fields, roles, transports, functions, dtypes, facts, local rules, and their arguments."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from ...ir import schemas
from ...ir.diagnostic import did_you_mean
from ...ir.functions import FUNCTIONS
from ...ir.names import sort_word
from ...ir.text import syntax as s
from ...ir.text.read_statements import CLOSED, value_classes
from .core import OPERATIONS
from .facts import FACTS, Fact
from .findings import WARNING, Finding
from .positions import calls, is_variable, walk
from .sorts import CLOSED_SORTS, PARAMETER_SORTS, owners
from .subject import CheckedRule

_WORDS = {kind: sort_word(sort) for sort, kind in CLOSED_SORTS.items()}
_OPTIONS: dict[str, tuple[str, ...]] = {sort: CLOSED[kind] for kind, sort in CLOSED_SORTS.items()}


def placed(subject: CheckedRule) -> Iterator[Finding]:
    """Unknown ops and fields, and statements of the wrong form: found while the rule was laid out."""
    yield from subject.problems


def closed_names(subject: CheckedRule) -> Iterator[Finding]:
    """A role, transport, function or dtype that does not exist.

    In a pattern such a name is a variable, unless it is a slip of a real one.
    """
    seen = set()
    for node, kind, is_bound in _closed_places(subject):
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


def _closed_places(subject: CheckedRule) -> Iterator[tuple[s.NameOf, str, bool]]:
    """The names that stand where a role, transport, function or dtype does, and whether something binds them there."""
    for slot in subject.pattern:
        if isinstance(slot.value, s.NameOf) and slot.sort.kind in _WORDS:
            yield slot.value, slot.sort.kind, True
    for e in subject.expressions:
        if isinstance(e.node, s.NameOf) and e.want.kind in _WORDS:
            yield e.node, e.want.kind, e.node.text in e.scope


def _meant(subject: CheckedRule, name: str, options: Iterable[str]) -> bool:
    """Whether a variable that looks like a real word is one all the same: it is read, and not all that like."""
    again = sum(occurrence.text == name for occurrence, _ in subject.occurrences) > 1
    read = again or name in subject.used or any(name == p.name for p in subject.rule.parameters)
    return read and not difflib.get_close_matches(name, options, 1, 0.85)


def _options(subject: CheckedRule, kind: str) -> tuple[str, ...]:
    return (*_OPTIONS[kind], *subject.facts, *OPERATIONS) if kind == "fn" and subject.dataflow else _OPTIONS[kind]


def known_calls(subject: CheckedRule) -> Iterator[Finding]:
    """A call of something that is no fact of this level, no scalar function and no variable."""
    if not subject.facts:
        return
    known = (*subject.facts, *FUNCTIONS)
    for expression in subject.expressions:
        for call in calls(expression.node):
            if call.fn in known or call.fn in expression.scope or call.fn in value_classes() or call.fn == "_":
                continue
            elsewhere = sorted(level for level, name in FACTS if name == call.fn)
            notes = (f"`{call.fn}` is a fact on level {', '.join(elsewhere)}",) if elsewhere else ()
            yield subject.finding(
                f"unknown fact or function `{call.fn}`",
                call.span,
                notes,
                did_you_mean(call.fn, (*known, *subject.rules.facts)),
            )


def argument_counts(subject: CheckedRule) -> Iterator[Finding]:
    """Facts and scalar functions take as many arguments as they say."""
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


def local_rules(subject: CheckedRule) -> Iterator[Finding]:
    """`with rule r(args)` names an `@local` rule of this level and gives it its parameters."""
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


def changed_fields(subject: CheckedRule) -> Iterator[Finding]:
    """`s.. with depth=2`: a field that the captured statement has."""
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


def parameter_sorts(subject: CheckedRule) -> Iterator[Finding]:
    """`N: int`: a sort that exists."""
    for parameter in subject.rule.parameters:
        if parameter.sort is not None and parameter.sort not in PARAMETER_SORTS:
            notes = (f"sorts are {', '.join(PARAMETER_SORTS)}",)
            hint = did_you_mean(parameter.sort, PARAMETER_SORTS)
            yield subject.finding(f"unknown sort `{parameter.sort}` of `{parameter.name}`", parameter.span, notes, hint)


def torch_forms(subject: CheckedRule) -> Iterator[Finding]:
    """Patterns on torch are closed: some overload must have the fields that are mentioned and require no others."""
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
            notes = tuple(f"{overload.name}({', '.join(map(_shown, overload.arguments))})" for overload in known[:6])
            yield subject.finding(
                f"no form of `{call.fn}` has exactly these fields", call.span, notes, "`rest..` leaves the others open"
            )


def _form_fits(overload: schemas.Overload, mentioned: set[str], places: int) -> bool:
    free = [argument for argument in overload.arguments if argument.name not in mentioned]
    enough = len(free) >= places and mentioned <= {argument.name for argument in overload.arguments}
    return enough and not any(argument.required for argument in free[places:])


def _shown(argument: schemas.Argument) -> str:
    return argument.name if argument.required else f"{argument.name}?"


def torch_ignored(subject: CheckedRule) -> Iterator[Finding]:
    """`dtype=_` on torch, without a look at the dtype of the result: what the user asked for would be ignored."""
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
