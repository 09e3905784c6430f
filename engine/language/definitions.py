"""Facts that are an expression: `fact tiles_of(axes: [axis]) -> int = ceildiv(product(extents(axes)), area_of_tile)`.

A rule that asks one reads as if the expression stood there, with what it gave in the place of the parameters: so one
definition serves matchers, egglog's guards and Z3, and static checks see what is really asked.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from ...ir.diagnostic import DplcError, did_you_mean
from ...ir.text import syntax as s
from ...ir.text.syntax import words_in
from .facts import FACTS
from .numbers import NAME
from .positions import is_variable, names, names_in, parts, rebuilt, walk
from .sorts import READABLE

Facts = Mapping[str, s.FactOf]
GIVEN = ("target",)  # what every expression of a rule may name
T = TypeVar("T")


class Remembered:
    """What was made of what, from one set of files to the next: an editor makes one at every key."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], tuple[tuple[Any, ...], Any]] = {}

    def made(self, kind: str, name: str, parts: tuple[Any, ...], make: Callable[[], T]) -> T:
        """What `make` gives; what it gave last where its parts are the same."""
        before = self._made.get((kind, name))
        if before is None or before[0] != parts:
            before = self._made[kind, name] = parts, make()
        found: T = before[1]
        return found


def facts_of_files(
    files: Iterable[tuple[s.FactOf, ...]], literals: Mapping[str, s.Syntax], remembered: Remembered
) -> dict[str, s.FactOf]:
    """The facts of some files, each with numbers and earlier facts written out. Raises DplcError for one that means
    nothing. One may ask those above it; one that overrides another stands in its place."""
    found: dict[str, s.FactOf] = {}
    every = _overridden(fact for file in files for fact in file)
    for place, declared in enumerate(every):
        _check(declared, found)
        _asks_above(declared, {fact.name for fact in every[place:]})
        told = (declared, *asked_of(words_in(declared.value), found, literals))
        written = partial(_written, declared, found, literals)
        found[declared.name] = remembered.made("fact", declared.name, told, written)
    return found


def _overridden(declared: Iterable[s.FactOf]) -> list[s.FactOf]:
    """The facts in force, each where its name stands first. Raises DplcError for one that overrides nothing, or is
    asked otherwise than what it overrides."""
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
    """The facts and the numbers that words name."""
    return [found for word in words if (found := facts.get(word) or literals.get(word)) is not None]


def _written(declared: s.FactOf, facts: Facts, literals: Mapping[str, s.Syntax]) -> s.FactOf:
    value = expanded(declared.value, facts, literals)
    names = {parameter.name for parameter in declared.parameters}
    _closed(declared, value, frozenset(names), {*facts, *literals})
    return dataclasses.replace(declared, value=value)


def _check(declared: s.FactOf, known: Facts) -> None:
    name = declared.name
    if name in known:
        earlier = known[name].span
        note = f"first at {earlier.source.name}:{earlier.line}"
        hint = f"choose another name; `override fact {name}(..)` replaces it"
        raise DplcError(f"fact `{name}` is declared twice", declared.span, (note,), hint)
    if not NAME.fullmatch(name):
        what = f"`{name}` is no name of a fact: two words or more in lower case, joined by `_`"
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
    """Raises DplcError where a fact asks itself, or one below it."""
    for asked in walk(declared.value):
        if isinstance(asked, s.Apply) and asked.fn in below:
            itself = asked.fn == declared.name
            what = f"fact `{declared.name}` asks {'itself' if itself else f'`{asked.fn}`, which stands below it'}"
            hint = "it has to be an expression of what it is given" if itself else "put the one that is asked first"
            raise DplcError(what, asked.span, (), hint)


def _closed(declared: s.FactOf, value: Any, bound: frozenset[str], known: Iterable[str]) -> None:
    """Raises DplcError for a name that is no parameter."""
    for name in names(value, bound):
        if is_variable(name.text) and name.text not in GIVEN:
            hint = did_you_mean(name.text, [*bound, *known])
            raise DplcError(f"fact `{declared.name}`: unbound variable `{name.text}`", name.span, (), hint)


def expanded(value: Any, facts: Facts, literals: Mapping[str, s.Syntax]) -> Any:
    """Some syntax with values in the place of the names of numbers, and facts written out where they are asked; itself
    where it names none.

    One walk, without a lambda for each part: an editor asks it of all rules whenever a number is typed.
    """
    kind: Any = value.__class__
    if kind is s.NameOf:
        literal = literals.get(value.text)
        return value if literal is None else dataclasses.replace(literal, span=value.span)
    if kind is tuple:
        items = tuple([expanded(item, facts, literals) for item in value])
        return items if any(map(operator.is_not, items, value)) else value
    if kind is s.Number or not isinstance(value, s.Syntax):
        return value
    before = [getattr(value, part) for part in parts(kind)]
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
    made = _given(fact.value, given, frozenset(names_in(asked.items)))
    return dataclasses.replace(made, span=asked.span) if isinstance(made, s.Syntax) else made


def _given(value: Any, given: Mapping[str, s.Syntax], taken: frozenset[str]) -> Any:
    """An expression with arguments for parameters. taken: names in the arguments, which nothing in it may catch."""
    if isinstance(value, s.NameOf):
        return given.get(value.text, value)
    if isinstance(value, s.Comprehension):
        variable = value.variable
        while variable in taken:
            variable += "_"
        inner = {**given, value.variable: s.NameOf(value.span, variable)}
        condition = None if value.condition is None else _given(value.condition, inner, taken)
        domain, element = _given(value.domain, given, taken), _given(value.element, inner, taken)
        return dataclasses.replace(value, element=element, variable=variable, domain=domain, condition=condition)
    return rebuilt(value, lambda part: _given(part, given, taken))
