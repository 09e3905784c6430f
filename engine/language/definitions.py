"""The numbers and facts that choices depend on, each with a name: `rules/policy.rw`.

    number most_unrolled = 32    because "copies of an unrolled body; more miss the instruction cache"

Rules refer to a number by its name. When a rule set is built, the value replaces the name, so that every reader of the
rules reads numbers, and the digest of a rule is that of the rule with the number written out. A user's file replaces
one with `override number most_unrolled = 16`. Python reads numbers with `rule.policy(target)`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from ...ir.diagnostic import DplcError, Span, did_you_mean
from ...ir.names import unused
from ...ir.text.print_statements import print_value
from ...ir.text.syntax import (
    Apply,
    Comprehension,
    FactOf,
    Group,
    LetClause,
    LetExpression,
    NameOf,
    Number,
    NumberOf,
    Parameter,
    Syntax,
    rebuilt,
    words_in,
)
from .evaluate import FACTS, MISTAKES, RESERVED, Expressions, Value
from .sorts import READABLE
from .typed_slots import calls, every, is_variable, names, names_in, substituted

NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)+")


def refuse_override(kind: str, declared: Any, known: Mapping[str, Any], replaced: str) -> None:
    """Raise DplcError for an override of nothing, and for a second declaration that is no override.

    declared: a rule, a number or a fact. known: those above it. replaced: how a declaration says that it replaces one.
    """
    name, earlier = declared.name, known.get(declared.name)
    if earlier is None and declared.override:
        raise DplcError(
            f"`override {kind} {name}`, but there is no {kind} `{name}`",
            declared,
            did_you_mean(name, known) or "leave `override` out to declare a new one",
        )
    if earlier is not None and not declared.override:
        raise DplcError(
            f"{kind} `{name}` is declared twice", declared, replaced, (f"first at {line_of(earlier.span)}",)
        )


def line_of(span: Span) -> str:
    """Return the file and the line of a declaration."""
    return f"{span.source.name}:{span.line}"


@dataclass(frozen=True)
class PolicyNumber:
    """A number in force. overrides: what it replaces."""

    declared: NumberOf
    value: Value
    overrides: PolicyNumber | None = None

    @property
    def location(self) -> str:
        return line_of(self.declared.span)

    @property
    def literal(self) -> Syntax:
        """Its value as syntax."""
        written = self.declared.value
        if not isinstance(self.value, tuple):
            return Number(written.span, self.value)
        bracket = written.bracket if isinstance(written, Group) else "["
        return Group(written.span, bracket, tuple(Number(written.span, item) for item in self.value))


Numbers = Mapping[str, PolicyNumber]


def numbers_of(numbers: Iterable[NumberOf]) -> dict[str, PolicyNumber]:
    """Return the numbers in force, given those of all files in order.

    A number may be computed from other numbers: it then follows their overrides.
    Raises DplcError for a declaration that means nothing.
    """
    first: dict[str, NumberOf] = {}
    last: dict[str, NumberOf] = {}
    for declared in numbers:
        _check_number(declared, last)
        first.setdefault(declared.name, declared)
        last[declared.name] = declared
    before = _computed(first, {})
    return before if first == last else _computed(last, before)


def _check_number(declared: NumberOf, known: Mapping[str, NumberOf]) -> None:
    name = declared.name
    refuse_override("number", declared, known, f"write `override number {name} = ..` to replace it")
    if not NAME.fullmatch(name) or name in RESERVED:
        raise DplcError(
            f"`{name}` is not a name of a number: two words or more in lower case, joined by `_`",
            declared,
            "variables of rules have short names; these say what they are for",
        )
    if name not in known and not (declared.reason or "").strip():
        raise DplcError(f"number `{name}` has no reason", declared, 'because "why it is what it is"')


def _computed(declared: Mapping[str, NumberOf], before: Numbers) -> dict[str, PolicyNumber]:
    """Return numbers with their values. before: what they override, by name, whose kinds stay."""
    numbers: dict[str, PolicyNumber] = {}

    def value_of(name: str, above: tuple[str, ...]) -> Value:
        if name not in numbers:
            number = declared[name]
            if name in above:
                raise DplcError(f"number `{name}` is made of itself: {' -> '.join((*above, name))}", number)
            read = {word: value_of(word, (*above, name)) for word in words_in(number.value) if word in declared}
            value = _value(number, read, declared)
            if number.override and name in before:
                value = _of_kind(number, value, before[name])
            computed = PolicyNumber(number, value)
            original = before.get(name, computed)
            numbers[name] = computed if computed == original else replace(computed, overrides=original)
        return numbers[name].value

    for name in declared:
        value_of(name, ())
    return numbers


def _value(number: NumberOf, read: dict[str, Value], known: Mapping[str, NumberOf]) -> Value:
    overriding = [f"`{name}` is overridden at {line_of(known[name].span)}" for name in read if known[name].override]
    what = f"number `{number.name}` is "
    try:
        value = Expressions("tile").compile(number.value)(read)
    except (DplcError, *MISTAKES) as error:
        said, span = (error.what, error.span) if isinstance(error, DplcError) else (error, None)
        unknown = re.search(r"unbound variable `(\w+)`", str(said))
        hint = did_you_mean(unknown[1], known) if unknown else None
        raise DplcError(
            f"{what}not a constant: {said}",
            span or number.value.span,
            hint or "compute it from numbers that are declared and not 0",
            overriding,
        ) from None
    listed = value if isinstance(value, tuple) else (value,)
    if not listed or any(item.__class__ not in (int, float) for item in listed):
        raise DplcError(
            f"{what}neither a number nor a list of numbers",
            number.value,
            "write a number, as `4`, or a list, as `[2, 4]`",
        )
    return value


def _of_kind(number: NumberOf, value: Value, original: PolicyNumber) -> Value:
    """Return a value that overrides another; an integer becomes a float if the original is a float.

    Raises DplcError for another kind: a number for a list, or a float for a whole number.
    """
    kind, given = kind_of(original.value), kind_of(value)
    if given == kind:
        return value
    if given == kind.replace("float", "whole number"):
        return tuple(map(float, value)) if isinstance(value, tuple) else float(value)
    said = f"[{', '.join(map(print_value, value))}]" if isinstance(value, tuple) else print_value(value)
    what = f"number `{number.name}` is {kind}, and {said} is {given}"
    note = f"it is {print_value(original.value)} at {original.location}"
    single = isinstance(original.value, tuple) and not isinstance(value, tuple)
    raise DplcError(what, number.value, f"write {f'a list of one: `[{value}]`' if single else kind}", (note,))


def kind_of(value: Value) -> str:
    """Name the kind of a number or a list of numbers, for messages."""
    if isinstance(value, tuple):
        return f"a list of {'whole numbers' if all(item.__class__ is int for item in value) else 'floats'}"
    return "a whole number" if value.__class__ is int else "a float"


# Facts that are an expression: `fact tiles_of(axes: [axis]) -> int = ceildiv(product(extents(axes)), area_of_tile)`.
#
# dplc substitutes the arguments for the parameters where a rule calls such a fact. So one definition serves matchers,
# egglog's guards, Z3 and the static checks.


Facts = Mapping[str, FactOf]
Literals = Mapping[str, Syntax]  # the values of numbers, by name; a fact may have the name of a number
T = TypeVar("T")


_REMEMBERED: dict[tuple[str, str], tuple[tuple[Any, ...], Any]] = {}


def remembered(kind: str, name: str, parts: tuple[Any, ...], make: Callable[[], T]) -> T:
    """Return the result of `make`, or its last result of this kind and name if the parts are the same.

    One set of files shares results with the next: an editor makes a set at every key.
    """
    before = _REMEMBERED.get((kind, name))
    if before is None or before[0] != parts:
        before = _REMEMBERED[kind, name] = parts, make()
    found: T = before[1]
    return found


def facts_of_files(facts: Iterable[FactOf], literals: Literals) -> dict[str, FactOf]:
    """Return the facts of some files, each with numbers and earlier facts written out.

    A fact may use the facts above it. A fact that overrides another is declared at the position of the first.
    Raises DplcError for a fact that means nothing, or that overrides a fact with another signature.
    """
    declared: dict[str, FactOf] = {}
    for fact in facts:
        name, earlier = fact.name, declared.get(fact.name)
        refuse_override("fact", fact, declared, f"choose another name; `override fact {name}(..)` replaces it")
        if earlier is not None and _sorts(fact) != _sorts(earlier):
            raise DplcError(
                f"`override fact {name}` is `{signature(fact)}`: rules that ask it would not fit",
                fact,
                "give it the same parameters and the same result",
                (f"it is `{signature(earlier)}`, at {line_of(earlier.span)}",),
            )
        declared[name] = fact
    written: dict[str, FactOf] = {}
    for name, fact in declared.items():
        words = words_in(fact.value)
        late = (declared.keys() - written.keys()).intersection(words)  # itself, and facts below it
        key = (fact, late, *asked_of(words, written, literals))
        written[name] = remembered("fact", name, key, partial(_written, fact, late, written, literals))
    return written


def _sorts(fact: FactOf) -> list[str | None]:
    return [*(parameter.sort for parameter in fact.parameters), fact.result]


def signature(fact: FactOf) -> str:
    """Return the head of a fact: its name, its parameters with their sorts, and the sort of its result."""
    return f"{fact.name}({', '.join(f'{p.name}: {p.sort}' for p in fact.parameters)}) -> {fact.result}"


def asked_of(words: Iterable[str], facts: Facts, literals: Literals) -> list[Syntax]:
    """Return the facts and the numbers that words name."""
    return [found for word in words for found in (facts.get(word), literals.get(word)) if found is not None]


def _written(declared: FactOf, late: Collection[str], facts: Facts, literals: Literals) -> FactOf:
    """Return a fact with numbers and other facts written out. late: facts that it must not ask.

    Raises DplcError for a fact that means nothing.
    """
    name, span, bound = declared.name, declared.span, list[str]()
    if not NAME.fullmatch(name):
        raise DplcError(f"`{name}` is not a name of a fact: two words or more in lower case, joined by `_`", span)
    if any(known == name for _, known in FACTS):
        raise DplcError(f"there is a fact `{name}` already", span, "choose another name")
    value = declared.value
    lets = value.lets if isinstance(value, LetExpression) else ()
    binders: tuple[Parameter | LetClause, ...] = (*declared.parameters, *lets)
    for binder in binders:
        if binder.name in bound:
            raise DplcError(f"fact `{name}` binds `{binder.name}` twice", binder, "choose another name")
        bound.append(binder.name)
    for sort, at in [*((p.sort or "any", p.span) for p in declared.parameters), (declared.result, span)]:
        if sort.strip("[]") not in READABLE:
            raise DplcError(
                f"fact `{name}`: unknown sort `{sort}`",
                at,
                did_you_mean(sort, READABLE),
                (f"sorts are {', '.join(READABLE)}, and lists of them in brackets",),
            )
    for asked in calls(value):
        if asked.fn in late:
            who, hint = f"`{asked.fn}`, which stands below it", "put the one that is asked first"
            if asked.fn == name:
                who, hint = "itself", "it has to be an expression of what it is given"
            raise DplcError(f"fact `{name}` asks {who}", asked, hint)
    known = {"target", *(parameter.name for parameter in declared.parameters), *literals}
    for read in names(value):
        if read.text in known or not is_variable(read.text):
            continue
        if read.text in bound:
            raise DplcError(
                f"fact `{name}` reads `{read.text}` before its `let`", read, "put it after the line that it reads"
            )
        near = did_you_mean(read.text, [*bound, *facts, *literals, *known]) or "add it to the parameters of the fact"
        raise DplcError(f"fact `{name}`: unbound variable `{read.text}`", read, near)
    idle = next((let for let in lets if let.name not in names_in(value)), None)
    if idle:
        raise DplcError(f"fact `{name}` never reads `{idle.name}`", idle, "take the line out")
    return replace(declared, value=expanded(value, facts, literals))


def expanded(value: T, facts: Facts, literals: Literals) -> T:
    """Replace the names of numbers by their values and the calls of facts by their definitions.

    Returns the syntax itself if it names neither.
    """

    def written(node: Any) -> Any:
        node = rebuilt(node, written)
        match node:
            case NameOf(text=name) if name in literals:
                return replace(literals[name], span=node.span)
            case Apply(fn=name) if name in facts:
                return _answer(node, facts[name])
        return node

    found: T = written(value)
    return found


_COMPUTED = frozenset(("int", "num", "bool", "record", "axis"))  # sorts whose values are computed before a call


def _answer(asked: Apply, fact: FactOf) -> Syntax:
    """Return the value of a fact with arguments in place of parameters.

    An argument that the fact reads several times, or for each element of a list, is computed once, as a `let`.
    """
    wanted = len(fact.parameters)
    if len(asked.items) != wanted:
        note = f"it is `{signature(fact)}`"
        counted = f"{wanted} argument{'s' * (wanted != 1)}, not {len(asked.items)}"
        raise DplcError(f"fact `{fact.name}` takes {counted}", asked, "give each parameter a value", (note,))
    reads, taken = Counter(read.text for read in names(fact.value)), names_in(asked.items)
    for each in every(fact.value, Comprehension):
        reads.update(names_in((each.element, each.condition)))
    given, lets = dict[str, Syntax](), list[LetClause]()
    for parameter, item in zip(fact.parameters, asked.items, strict=True):
        name, sort = parameter.name, (parameter.sort or "any").strip("[]")
        if reads[name] > 1 and sort in _COMPUTED and not isinstance(item, NameOf | Number):
            lets.append(LetClause(item.span, unused(name, taken), item))
            item = NameOf(item.span, lets[-1].name)
        given[name] = item
    value = substituted(fact.value, given, words=False)
    if not lets:
        return replace(value, span=asked.span)
    if isinstance(value, LetExpression):
        lets, value = [*lets, *value.lets], value.value
    return LetExpression(asked.span, tuple(lets), value)
