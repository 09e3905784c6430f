"""Parsed built-in rules, written out, kept in the user's cache: reading them back takes a fifth of the time of
parsing them.

Plain JSON, so that a cache that somebody tampered with holds wrong rules at worst, never code. The name of an entry is
the digest of the text and of the parser.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ...codegen.cache import cached, digest
from ...codegen.compiler import BuildError
from ...ir.diagnostic import Source, Span
from ...ir.text import equations
from ...ir.text import parse as parser
from ...ir.text import syntax as s
from . import elaboration
from .elaboration import elaborated
from .limits import within_limits


def parse_stored(source: Source) -> tuple[s.Syntax, ...]:
    """What `parse` gives, its rules elaborated, from the store if it is there: what is there was within the
    limits. Raises DplcError as both do, and beyond a limit."""

    def build(path: Path) -> None:
        path.write_text(json.dumps(_encode(elaborated(parser.parse(within_limits(source))))), encoding="utf-8")

    try:
        path = cached("rules", (source.text, _parser_digest()), ".json", build)
        return _Decoder(source).value(json.loads(path.read_text(encoding="utf-8")))  # type: ignore[no-any-return]
    except (BuildError, OSError, ValueError, LookupError, TypeError):
        return elaborated(parser.parse(within_limits(source)))  # no place to write, or an entry that was damaged


MODULES = (
    "parse",
    "syntax",
    "equations",
)  # what reads texts


@functools.cache
def _parser_digest() -> str:
    folder = Path(inspect.getfile(s)).parent
    files = [folder / "grammar.lark", *(folder / f"{name}.py" for name in MODULES)]
    files += sorted(Path(inspect.getfile(elaboration)).parent.glob("*.py"))
    files += [folder.parent / "monoids.py", folder.parent / "monoid_texts.py"]
    return digest(file.read_bytes() for file in (*files, Path(__file__)))


_CLASSES: dict[str, Any] = {
    name: cls
    for module in (s, equations)
    for name, cls in vars(module).items()
    if isinstance(cls, type) and issubclass(cls, s.Syntax)
}
_FIELDS = {cls: tuple(f.name for f in dataclasses.fields(cls) if f.name != "span") for cls in _CLASSES.values()}


T = TypeVar("T")


class Later(Sequence[T]):
    """A sequence that is made when somebody first looks at it."""

    def __init__(self, make: Callable[[], Sequence[T]]):
        self._make = make

    @functools.cached_property
    def _items(self) -> tuple[T, ...]:
        return tuple(self._make())

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    def __getitem__(self, place: Any) -> Any:
        return self._items[place]


def _encode(value: Any) -> Any:
    """Nodes and tuples as lists: a node begins with the name of its class and its place, a tuple with none. What
    no compile reads, examples and the clauses that were elaborated, is a text of its own: the most of every file."""
    if isinstance(value, tuple):
        return [None, *map(_encode, value)]
    if isinstance(value, s.Syntax):
        span = value.span
        place = (span.line, span.column, span.end_line, span.end_column)
        fields = [
            {"later": json.dumps(_encode(tuple(getattr(value, name))))}
            if name in _LATER and isinstance(value, s.Rule | s.ExamplesOf)
            else _encode(getattr(value, name))
            for name in _FIELDS[type(value)]
        ]
        return [type(value).__name__, *place, *fields]
    return value


_LATER = ("examples", "written")


class _Decoder:
    def __init__(self, source: Source):
        self.source = source

    def value(self, data: Any) -> Any:
        if data.__class__ is not list:
            return Later(lambda: self.value(json.loads(data["later"]))) if data.__class__ is dict else data
        kind = data[0]
        if kind is None:
            return tuple([self.value(item) for item in data[1:]])
        return _CLASSES[kind](Span(self.source, *data[1:5]), *[self.value(item) for item in data[5:]])
