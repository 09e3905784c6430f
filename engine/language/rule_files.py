"""Rule files as text and as syntax: paths, bounds, families, examples next to them, and the cache of parsed rules.

Python's garbage collector pauses while dplc compiles: most objects of a compile live until its end, and a collection
costs a quarter of a cold start. An exploration collects young objects kernel by kernel (`explore/explore.py`).
"""

from __future__ import annotations

import gc
import inspect
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from ...codegen.cache import cached, digest
from ...codegen.compiler import BuildError
from ...ir.diagnostic import DplcError, Source, Span, did_you_mean
from ...ir.text import equations as eq, syntax as s
from ...ir.text.parse import parse
from ...ir.text.syntax import children, parts
from .elaborate import elaborated
from .typed_slots import plain, substituted

T = TypeVar("T")


@contextmanager
def collections_paused() -> Iterator[None]:
    """Pause garbage collection in all threads; later collections find the garbage."""
    if not gc.isenabled():  # by the user, or by a compile around this one
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


# Bounds on size and nesting of a rule file, so that no file makes dplc slow or overflows a stack.
#
# Our longest file has 20 kB, our deepest expression 8 brackets. dplc checks the bare text before it parses.


SIZE = 256 * 1024  # characters in a file
NESTING = 40  # brackets in brackets, blocks in blocks
OPERATORS = 200  # in one line, brackets that span lines included

TOKEN = re.compile(
    r'(?P<comment>#.*)|(?P<text>"[^"\n]*")|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<comma>,)'
    r"|(?P<line>\n[ \t]*(?!(?:and|or)\b|=>)(?=[^\s#]))"  # a line that begins with these words continues the one above
    r"|(?P<operator>\.(?!\.)|//|=>|[-+*%^<>]|==|!=|\b(?:and|or|not|if|in|else|for)\b)"
)


def within_limits(source: Source) -> Source:
    """Return the source itself. Raises DplcError if it exceeds a limit."""
    if len(source.text) > SIZE:
        raise DplcError(
            f"{source.name} has {len(source.text):,} characters; a rule file may have {SIZE:,}",
            hint="split it: a file is a pass",
        )
    depth = operators = 0
    indents = [0]
    for token in TOKEN.finditer(source.text):
        match token.lastgroup:
            case "open":
                depth, operators = depth + 1, operators + 1
            case "close":
                depth = max(depth - 1, 0)
            case "operator":
                operators += 1
            case "line" if not depth:
                operators, width = 0, len(token[0].expandtabs(8)) - 1
                indents = [*(outer for outer in indents if outer < width), width]
        if depth > NESTING or len(indents) > NESTING:
            raise DplcError(
                f"more than {NESTING} levels of nesting", _place(source, token.end() - 1), "define parts of it by `let`"
            )
        if operators > OPERATORS:
            raise DplcError(
                f"more than {OPERATORS} operators in one line",
                _place(source, token.start()),
                "define parts of it by `let`",
            )
    return source


def _place(source: Source, position: int) -> Span:
    line = source.text.count("\n", 0, position) + 1
    column = position - (source.text.rfind("\n", 0, position) + 1)
    return Span(source, line, column, line, column + 1)


def parse_rules(source: Source) -> s.Nodes:
    """Return the declarations of a text within the limits, its rules written out."""
    return elaborated(parse(within_limits(source)))


# A cache of parsed and elaborated built-in rules. Reading it takes a fifth of the time of parsing.
#
# The format is JSON, so a tampered cache holds wrong rules at worst, never code. The name of an entry is the digest of
# the text and of what reads texts.


def parse_stored(source: Source) -> s.Nodes:
    """Parse a text and elaborate its rules, from the store if the result is there.

    A stored result was within the limits when it was stored. Raises DplcError as `parse_rules` does.
    """

    def build(path: Path) -> None:
        path.write_text(json.dumps(_encode(parse_rules(source))), encoding="utf-8")

    try:
        path = cached("rules", (source.text, _parser_digest()), ".json", build)
        found: s.Nodes = _decoded(json.loads(path.read_text(encoding="utf-8")), source)
        return found
    except (BuildError, OSError, ValueError, LookupError, TypeError):
        return parse_rules(source)  # no writable folder, or a damaged entry


@cache
def _parser_digest() -> str:
    language, text = Path(__file__).parent, Path(inspect.getfile(s)).parent
    files = (*language.glob("*.py"), *text.glob("*.py"), text / "grammar.lark", *text.parent.glob("monoid*.py"))
    return digest(file.read_bytes() for file in sorted(files))


_CLASSES: dict[str, Any] = {
    name: cls
    for module in (s, eq)
    for name, cls in vars(module).items()
    if isinstance(cls, type) and issubclass(cls, s.Syntax)
}


class Later(Sequence[Any]):
    """Sequence that is computed at its first use."""

    def __init__(self, make: Callable[[], Iterable[Any]]):
        self._make = make

    @cached_property
    def _items(self) -> tuple[Any, ...]:
        return tuple(self._make())

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, place: Any) -> Any:
        return self._items[place]


def _encode(value: object) -> object:
    """Encode nodes and tuples as lists.

    A node begins with the name of its class and its span, a tuple with None. Examples and the clauses as written before
    elaboration are a text of their own: no compile reads them, and they are most of every file.
    """
    if isinstance(value, tuple):
        return [None, *map(_encode, value)]
    if not isinstance(value, s.Syntax):
        return value
    span = value.span
    fields = [
        {"later": json.dumps(_encode(part))} if name in _LATER else _encode(part)
        for name, part in zip(parts(type(value)), children(value), strict=True)
    ]
    return [type(value).__name__, span.line, span.column, span.end_line, span.end_column, *fields]


_LATER = ("examples", "written")


def _decoded(data: Any, source: Source) -> Any:
    if data.__class__ is not list:
        return Later(lambda: _decoded(json.loads(data["later"]), source)) if data.__class__ is dict else data
    kind = data[0]
    if kind is None:
        return tuple([_decoded(item, source) for item in data[1:]])
    return _CLASSES[kind](Span(source, *data[1:5]), *[_decoded(item, source) for item in data[5:]])


# Further examples of rules. `stage.examples.rw` next to `stage.rw` holds those that an author wrote; the file of this
# name in the folder `refusals` holds refusals that `dplc rules test --accept` drew.
#
# The rule file holds the example that explains a rule. The other files hold the rest, as `examples RULE` and the
# examples. dplc reads them on demand; a compile does not.


FURTHER = ".examples.rw"
REFUSALS = "refusals"


def with_further(declarations: s.Nodes, sources: Iterable[Source], parse: Callable[[Source], s.Nodes]) -> s.Nodes:
    """Return the declarations of a rule file, whose rules have the examples of other files as well."""
    rules = [declared.name for declared in declarations if isinstance(declared, s.Rule)]

    @cache
    def further() -> dict[str, list[s.Example]]:
        examples_of = defaultdict[str, list[s.Example]](list)
        for declaration in chain.from_iterable(map(parse, sources)):
            if not isinstance(declaration, s.ExamplesOf):
                raise DplcError(
                    "a file of examples holds `examples RULE` and examples of it",
                    declaration,
                    "write the declaration into the rule file",
                )
            name = declaration.rule
            if name not in rules:
                beside = declaration.span.source.name.rpartition("/")[2].removesuffix(FURTHER)
                raise DplcError(f"there is no rule `{name}` in {beside}.rw", declaration, did_you_mean(name, rules))
            examples_of[name] += declaration.examples
        return examples_of

    def examples(rule: s.Rule) -> Iterator[s.Example]:
        yield from (*rule.examples, *further().get(rule.name, ()))

    return tuple(
        replace(declared, examples=Later(partial(examples, declared))) if isinstance(declared, s.Rule) else declared
        for declared in declarations
    )


# Paths and texts of rule files.


def rule_paths(folder_or_file: Path) -> tuple[Path, ...]:
    """Return the `.rw` files of a folder (sorted, recursive) or the file itself, without the files of examples.

    Raises DplcError if there is none.
    """
    if folder_or_file.is_dir():
        found = tuple(sorted(path for path in folder_or_file.rglob("*.rw") if not path.name.endswith(FURTHER)))
        if not found:
            raise DplcError(f"no .rw files in {folder_or_file}")
        return found
    if not folder_or_file.is_file():
        raise DplcError(f"no such rule file: {folder_or_file}")
    if folder_or_file.name.endswith(FURTHER):
        rules = folder_or_file.name.removesuffix(FURTHER) + ".rw"
        raise DplcError(f"{folder_or_file} holds examples only", hint=f"give `{rules}`: its examples are read with it")
    return (folder_or_file,)


def rule_source(path: Path, name: str = "") -> Source:
    """Return a rule file as a source: name is what messages call it, its path if none is given.

    Raises DplcError for a file that cannot be read, with a caret if it is not UTF-8.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DplcError(f"cannot read {path}: {error.strerror}") from None
    try:
        return Source(name or str(path), data.decode("utf-8-sig").replace("\r\n", "\n"))
    except UnicodeDecodeError as error:
        source = Source(str(path), data.decode("utf-8", "replace"))
        place = _place(source, len(data[: error.start].decode("utf-8")))
        raise DplcError(f"byte {data[error.start]:#04x} is not UTF-8", place, "save the file as UTF-8") from None


def refusals_of(path: Path) -> Path:
    """Return the file of drawn refusals of a rule file: in the nearest folder `refusals`, or in one next to it."""
    root = next((folder for folder in path.parents if (folder / REFUSALS).is_dir()), path.parent)
    return root / REFUSALS / path.relative_to(root).with_name(path.stem + FURTHER)


def further_of(path: Path, name: str = "") -> tuple[Source, ...]:
    """Return the files of further examples of a rule file that exist. name: what messages call the rule file."""
    files = [file for file in (path.with_name(path.stem + FURTHER), refusals_of(path)) if file.is_file()]
    folder = str(path).removesuffix(name)
    return tuple(rule_source(file, str(file).removeprefix(folder)) for file in files)


# Families of rules: one rule for each row of names.


def members(declared: s.Rule) -> Iterator[tuple[s.Rule, str | None]]:
    """Yield a rule, or the members of a family: `rule activation(T, fn) for (Exp, exp), (Tanh, tanh) on torch`.

    The name of a member contains the leading values of its row that distinguish it from the others.
    """
    if not declared.rows:
        yield declared, None
        return
    rows = [row.items if isinstance(row, s.Group) else (row,) for row in declared.rows]
    words = [tuple(str(getattr(cell, "text", getattr(cell, "value", "row"))) for cell in row) for row in rows]
    most = max(map(len, words))
    length = next((n for n in range(1, most + 1) if len({row[:n] for row in words}) == len(words)), 1)
    given = [parameter.name for parameter in declared.parameters]
    for row, cells, said in zip(declared.rows, rows, words, strict=True):
        if len(cells) != len(given):
            raise DplcError(
                f"family `{declared.name}` has {len(given)} parameters, this row has {len(cells)} values",
                row,
                f"write a value for each of {', '.join(given)}",
            )
        yield _member(declared, said[:length], dict(zip(given, cells, strict=True))), declared.name


def _member(declared: s.Rule, leading: Iterable[str], names: Mapping[str, s.Syntax]) -> s.Rule:
    """Return a member of a family. leading: the words of its name. names: the values of the parameters."""

    def renamed(nodes: Sequence[T]) -> tuple[T, ...]:
        return substituted(tuple(nodes), names, here=True)

    def examples() -> Iterator[s.Example]:
        """Yield the examples of all members, and of this one: an example that says `(Op=Conv2d)` is of one."""
        for example in declared.examples:
            chosen = {item.name: item.value for item in example.arguments if item.name in names}
            if all(plain(value) == plain(names[name]) for name, value in chosen.items()):
                rest = tuple(item for item in example.arguments if item.name not in chosen)
                yield from renamed((replace(example, arguments=rest),))

    words = (re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", word).lower() for word in leading)
    return replace(
        declared, name="_".join((declared.name, *words)), parameters=(), rows=(),
        clauses=renamed(declared.clauses), covers=renamed(declared.covers),
        examples=Later(examples), written=Later(lambda: renamed(declared.written)),
    )  # fmt: skip
