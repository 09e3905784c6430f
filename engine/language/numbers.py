"""The numbers that choices depend on, each with a name and a reason: `rules/policy.rw`.

    number most_threads = 1024    because "no device starts more threads in a block"

Rules read a number where they name it: when a rule set is made, its value takes the place of the name, so that whatever
reads rules reads numbers, and a rule's digest is that of the rule with the number written out. A user's file replaces
one with `override number most_threads = 512`. How Python reads them: policy.py.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...ir.diagnostic import DplcError, Span, did_you_mean
from ...ir.text import syntax as s
from ...ir.text.syntax import words_in
from .evaluate import CONSTANTS, RESERVED, Expressions

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
    """The numbers in force, given those of each file in order. Raises DplcError for a declaration that means nothing.

    One may be made of others: it follows them where they are overridden.
    """
    first: dict[str, s.NumberOf] = {}
    last: dict[str, s.NumberOf] = {}
    for declared in (number for file in files for number in file):
        _check(declared, last)
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
            found[name] = dataclasses.replace(found[name], overrides=original)
    return found


def refuse_variables(what: str, span: Span, bound: set[str], numbers: Numbers) -> None:
    """Raises DplcError where something binds a variable that is called like a number."""
    for name in sorted(bound & numbers.keys()):
        note = f"it is declared at {numbers[name].location}"
        told = f"{what}: `{name}` is a number of the policy, and no variable"
        raise DplcError(told, span, (note,), "choose another name for the variable")


def _check(declared: s.NumberOf, known: Mapping[str, s.NumberOf]) -> None:
    name, earlier = declared.name, known.get(declared.name)
    if earlier is not None and not declared.override:
        place = f"{earlier.span.source.name}:{earlier.span.line}"
        hint = f"write `override number {name} = ..` to replace it"
        raise DplcError(f"number `{name}` is declared twice", declared.span, (f"first at {place}",), hint)
    if earlier is None and declared.override:
        what = f"`override number {name}`, but there is no number `{name}`"
        raise DplcError(what, declared.span, (), did_you_mean(name, known))
    if not NAME.fullmatch(name) or name in RESERVED or name in CONSTANTS:
        what = f"`{name}` is no name of a number: two words or more in lower case, joined by `_`"
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
    """The value of a number. before: what it overrides, by name, whose kinds stay."""
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
    """A value that overrides another; a whole number is a float where that is one. Raises DplcError for another kind:
    a number for a list, a float for a whole number."""
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
    """A number, or a list of them, as text."""
    return f"({', '.join(map(str, value))})" if isinstance(value, tuple) else str(value)
