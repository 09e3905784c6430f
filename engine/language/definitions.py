"""The numbers that choices depend on, each with a name and a reason: `rules/policy.rw`.

    number most_unrolled = 32    because "copies of an unrolled body; more miss the instruction cache"

Rules refer to a number by its name. When a rule set is built, the value replaces the name, so that every reader of the
rules reads numbers, and the digest of a rule is that of the rule with the number written out. A user's file replaces
one with `override number most_unrolled = 16`. How Python reads them: policy.py.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from ...ir.diagnostic import DplcError, Span, did_you_mean
from ...ir.text import syntax as s
from ...ir.text.syntax import words_in
from .evaluate import CONSTANTS, FACTS, RESERVED, Expressions
from .sorts import READABLE
from .typed_slots import children, is_variable, names, substituted, walk

Value = Any  # a number, or a tuple of numbers
NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)+")


@dataclass(frozen=True)
class PolicyNumber:
    """A number in force. literal: its value as syntax; overrides: what it replaces."""

    declared: s.NumberOf
    value: Value
    literal: s.Syntax
    overrides: PolicyNumber | None = None

    @property
    def name(self) -> str:
        return self.declared.name

    @property
    def location(self) -> str:
        return f"{self.declared.span.source.name}:{self.declared.span.line}"


Numbers = Mapping[str, PolicyNumber]


def numbers_of(files: Iterable[tuple[s.NumberOf, ...]]) -> dict[str, PolicyNumber]:
    """Return the numbers in force, given those of each file in order.

    A number may be computed from other numbers: it then follows their overrides.
    Raises DplcError for a declaration that means nothing.
    """
    first: dict[str, s.NumberOf] = {}
    last: dict[str, s.NumberOf] = {}
    for declared in (number for file in files for number in file):
        _check_number(declared, last)
        first.setdefault(declared.name, declared)
        last[declared.name] = declared
    overridden = {name for name, declared in first.items() if declared is not last[name]}
    before: dict[str, PolicyNumber] = {}
    for name in first if overridden else ():
        _resolve(name, first, before, (), {})
    found: dict[str, PolicyNumber] = {}
    for name in last:
        _resolve(name, last, found, (), before)
    for name, original in before.items():
        if found[name].value != original.value or name in overridden:
            found[name] = replace(found[name], overrides=original)
    return found


def refuse_variables(what: str, span: Span, bound: set[str], numbers: Numbers) -> None:
    """Raise DplcError if something binds a variable with the name of a number."""
    for name in sorted(bound & numbers.keys()):
        note = f"it is declared at {numbers[name].location}"
        told = f"{what}: `{name}` is a number of the policy, and no variable"
        raise DplcError(told, span, (note,), "choose another name for the variable")


def _check_number(declared: s.NumberOf, known: Mapping[str, s.NumberOf]) -> None:
    name, earlier = declared.name, known.get(declared.name)
    if earlier is not None and not declared.override:
        place = f"{earlier.span.source.name}:{earlier.span.line}"
        hint = f"write `override number {name} = ..` to replace it"
        raise DplcError(f"number `{name}` is declared twice", declared.span, (f"first at {place}",), hint)
    if earlier is None and declared.override:
        what = f"`override number {name}`, but there is no number `{name}`"
        raise DplcError(what, declared.span, (), did_you_mean(name, known))
    if not NAME.fullmatch(name) or name in RESERVED or name in CONSTANTS:
        what = f"`{name}` is not a name of a number: two words or more in lower case, joined by `_`"
        raise DplcError(what, declared.span, (), "variables of rules have short names; these say what they are for")
    if earlier is None and not (declared.reason or "").strip():
        raise DplcError(f"number `{name}` has no reason", declared.span, (), 'because "why it is what it is"')


def _resolve(
    name: str,
    declared: Mapping[str, s.NumberOf],
    found: dict[str, PolicyNumber],
    above: tuple[str, ...],
    before: Mapping[str, PolicyNumber],
) -> Value:
    """Return the value of a number. before: what it overrides, by name, whose kinds stay."""
    if name in found:
        return found[name].value
    number = declared[name]
    if name in above:
        raise DplcError(f"number `{name}` is made of itself: {' -> '.join((*above, name))}", number.span)
    values: dict[str, Value] = {}
    for word in words_in(number.value):
        if word in declared:
            values[word] = _resolve(word, declared, found, (*above, name), before)
    value = _value(number, values, declared)
    if number.override and name in before:
        value = _of_kind(number, value, before[name])
    found[name] = PolicyNumber(number, value, _literal(value, number.value))
    return value


def _value(number: s.NumberOf, values: dict[str, Value], known: Iterable[str]) -> Value:
    if isinstance(number.value, s.Number):
        return number.value.value
    try:
        value = Expressions("tile").compile(number.value)(values)
    except DplcError as error:
        unknown = re.search(r"unbound variable `(\w+)`", error.what)
        hint = did_you_mean(unknown[1], known) if unknown else None
        what = f"number `{number.name}` is not a constant: {error.what}"
        raise DplcError(what, error.span or number.value.span, (), hint) from None
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise DplcError(f"number `{number.name}` is not a constant: {error}", number.value.span) from None
    if not _is_number(value) and not (isinstance(value, tuple) and value and all(map(_is_number, value))):
        raise DplcError(f"number `{number.name}` is neither a number nor a list of numbers", number.value.span)
    return value


def _is_number(value: Any) -> bool:
    return value.__class__ in (int, float)


def _of_kind(number: s.NumberOf, value: Value, original: PolicyNumber) -> Value:
    """Return a value that overrides another; an integer becomes a float if the original is a float.

    Raises DplcError for another kind: a number for a list, or a float for a whole number.
    """
    kind, given = kind_of(original.value), kind_of(value)
    if given == kind:
        return value
    if given == kind.replace("float", "whole number"):
        return tuple(map(float, value)) if isinstance(value, tuple) else float(value)
    what = f"number `{number.name}` is {kind}, and {format_value(value)} is {given}"
    note = f"it is {format_value(original.value)} at {original.location}"
    single = isinstance(original.value, tuple) and not isinstance(value, tuple)
    raise DplcError(what, number.value.span, (note,), f"a list of one is written `[{value}]`" if single else None)


def kind_of(value: Value) -> str:
    """Name the kind of a number or a list of numbers, for messages."""
    each = value if isinstance(value, tuple) else (value,)
    number = "whole number" if all(item.__class__ is int for item in each) else "float"
    return f"a list of {number}s" if isinstance(value, tuple) else f"a {number}"


def _literal(value: Value, written: s.Syntax) -> s.Syntax:
    if not isinstance(value, tuple):
        return s.Number(written.span, value)
    bracket = written.bracket if isinstance(written, s.Group) else "("
    return s.Group(written.span, bracket, tuple(s.Number(written.span, item) for item in value))


def format_value(value: Value) -> str:
    """Return a number, or a list of them, as text."""
    return f"({', '.join(map(str, value))})" if isinstance(value, tuple) else str(value)


# Facts that are an expression: `fact tiles_of(axes: [axis]) -> int = ceildiv(product(extents(axes)), area_of_tile)`.
#
# dplc substitutes the arguments for the parameters where a rule calls such a fact. So one definition serves matchers,
# egglog's guards, Z3 and the static checks.


Facts = Mapping[str, s.FactOf]
GIVEN = ("target",)  # what every expression of a rule may name
T = TypeVar("T")


class Remembered:
    """Results that one set of files shares with the next: an editor makes a set at every key."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], tuple[tuple[Any, ...], Any]] = {}

    def made(self, kind: str, name: str, parts: tuple[Any, ...], make: Callable[[], T]) -> T:
        """Return the result of `make`, or its last result if the parts are the same."""
        before = self._made.get((kind, name))
        if before is None or before[0] != parts:
            before = self._made[kind, name] = parts, make()
        found: T = before[1]
        return found


def facts_of_files(
    files: Iterable[tuple[s.FactOf, ...]], literals: Mapping[str, s.Syntax], remembered: Remembered
) -> dict[str, s.FactOf]:
    """Return the facts of some files, each with numbers and earlier facts written out.

    A fact may use the facts above it. A fact that overrides another is declared at the position of the first.
    Raises DplcError for a fact that means nothing.
    """
    found: dict[str, s.FactOf] = {}
    every = _overridden(fact for file in files for fact in file)
    for place, declared in enumerate(every):
        _check_fact(declared, found)
        _asks_above(declared, {fact.name for fact in every[place:]})
        told = (declared, *asked_of(words_in(declared.value), found, literals))
        written = partial(_written, declared, found, literals)
        found[declared.name] = remembered.made("fact", declared.name, told, written)
    return found


def _overridden(declared: Iterable[s.FactOf]) -> list[s.FactOf]:
    """Return the facts in force, each at the position of its first declaration.

    Raises DplcError if a fact overrides nothing, or if its signature differs from that of the fact that it overrides.
    """
    found: dict[str, s.FactOf] = {}
    kept: list[s.FactOf] = []
    for fact in declared:
        earlier = found.setdefault(fact.name, fact)
        if not fact.override:
            kept.append(fact)
            continue
        if earlier is fact:
            what = f"`override fact {fact.name}`, but there is no fact `{fact.name}`"
            raise DplcError(what, fact.span, (), did_you_mean(fact.name, [name for name in found if name != fact.name]))
        if (_sorts(fact), fact.result) != (_sorts(earlier), earlier.result):
            note = f"it is {_signature(earlier)}, at {earlier.span.source.name}:{earlier.span.line}"
            what = f"`override fact {fact.name}` is {_signature(fact)}: rules that ask it would not fit"
            raise DplcError(what, fact.span, (note,), "give it the same parameters and the same result")
        kept = [fact if one is earlier else one for one in kept]
        found[fact.name] = fact
    return kept


def _sorts(fact: s.FactOf) -> tuple[str | None, ...]:
    return tuple(parameter.sort for parameter in fact.parameters)


def _signature(fact: s.FactOf) -> str:
    return f"`{fact.name}({', '.join(f'{p.name}: {p.sort}' for p in fact.parameters)}) -> {fact.result}`"


def asked_of(words: Iterable[str], facts: Facts, literals: Mapping[str, s.Syntax]) -> list[s.Syntax]:
    """Return the facts and the numbers that words name."""
    return [found for word in words if (found := facts.get(word) or literals.get(word)) is not None]


def _written(declared: s.FactOf, facts: Facts, literals: Mapping[str, s.Syntax]) -> s.FactOf:
    """Return a fact with numbers and other facts written out. Raises DplcError for a name that is not a parameter."""
    value = expanded(declared.value, facts, literals)
    bound = frozenset(parameter.name for parameter in declared.parameters)
    for name in names(declared.value, bound):
        if is_variable(name.text) and name.text not in (*GIVEN, *literals):
            hint = did_you_mean(name.text, [*bound, *{*facts, *literals}])
            raise DplcError(f"fact `{declared.name}`: unbound variable `{name.text}`", name.span, (), hint)
    return replace(declared, value=value)


def _check_fact(declared: s.FactOf, known: Facts) -> None:
    name = declared.name
    if name in known:
        earlier = known[name].span
        note = f"first at {earlier.source.name}:{earlier.line}"
        hint = f"choose another name; `override fact {name}(..)` replaces it"
        raise DplcError(f"fact `{name}` is declared twice", declared.span, (note,), hint)
    if not NAME.fullmatch(name):
        what = f"`{name}` is not a name of a fact: two words or more in lower case, joined by `_`"
        raise DplcError(what, declared.span)
    if any(known_name == name for _, known_name in FACTS):
        raise DplcError(f"there is a fact `{name}` already", declared.span, (), "choose another name")
    seen: set[str] = set()
    for parameter in declared.parameters:
        if parameter.name in seen:
            raise DplcError(f"fact `{name}` has two parameters `{parameter.name}`", parameter.span)
        seen.add(parameter.name)
    for sort, span in [(p.sort or "any", p.span) for p in declared.parameters] + [(declared.result, declared.span)]:
        if sort.strip("[]") not in READABLE:
            notes = (f"sorts are {', '.join(READABLE)}, and lists of them in brackets",)
            raise DplcError(f"fact `{name}`: unknown sort `{sort}`", span, notes, did_you_mean(sort, READABLE))


def _asks_above(declared: s.FactOf, below: Collection[str]) -> None:
    """Raise DplcError if a fact uses itself, or a fact below it."""
    for asked in walk(declared.value):
        if isinstance(asked, s.Apply) and asked.fn in below:
            itself = asked.fn == declared.name
            what = f"fact `{declared.name}` asks {'itself' if itself else f'`{asked.fn}`, which stands below it'}"
            hint = "it has to be an expression of what it is given" if itself else "put the one that is asked first"
            raise DplcError(what, asked.span, (), hint)


def expanded(value: Any, facts: Facts, literals: Mapping[str, s.Syntax]) -> Any:
    """Replace the names of numbers by their values and the calls of facts by their definitions.

    Returns the syntax itself if it names neither. It is one walk without a lambda for each part, because an editor
    calls it for all rules whenever the user edits a number.
    """
    kind: Any = value.__class__
    if kind is s.NameOf:
        literal = literals.get(value.text)
        return value if literal is None else replace(literal, span=value.span)
    if kind is tuple:
        items = tuple([expanded(item, facts, literals) for item in value])
        return items if any(map(operator.is_not, items, value)) else value
    if kind is s.Number or not isinstance(value, s.Syntax):
        return value
    before = children(value)
    after = [part if part.__class__ is str else expanded(part, facts, literals) for part in before]
    made = kind(value.span, *after) if any(map(operator.is_not, after, before)) else value
    return _answer(made, facts[made.fn]) if isinstance(made, s.Apply) and made.fn in facts else made


def _answer(asked: s.Apply, fact: s.FactOf) -> s.Syntax:
    wanted = len(fact.parameters)
    if len(asked.items) != wanted:
        note = f"it is {_signature(fact)}"
        counted = f"{wanted} argument{'s' * (wanted != 1)}, not {len(asked.items)}"
        raise DplcError(f"fact `{fact.name}` takes {counted}", asked.span, (note,))
    given = {p.name: item for p, item in zip(fact.parameters, asked.items, strict=True)}
    made = substituted(fact.value, given, words=False)
    return replace(made, span=asked.span) if isinstance(made, s.Syntax) else made
