"""An example that is another one but for a few edits: `example "one chunk" as "two chunks"`, `"0..2" => "0..1"`.

What a refusal shows is what differs from the example that explains the rule. Of an example that fires, what it gives
is edited in the same way. Edits are of the program as it is spelled: a whole line becomes the lines on the right, where
it stands; a part of lines becomes the right side.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ...ir.diagnostic import DplcError, Source, Span, did_you_mean
from ...ir.text import equations as eq
from ...ir.text import syntax as s
from ...ir.text.parse import parse
from .positions import rebuilt
from .spelling import INDENT, block


def written_out(examples: Iterable[s.Example | eq.VariedExample]) -> Iterator[s.Example]:
    """Examples of a rule, each as one may read it by itself."""
    known: dict[str, s.Example] = {}
    for example in examples:
        if isinstance(example, eq.VariedExample):
            example = _varied(example, known)
        known[example.title] = example
        yield example


def _varied(node: eq.VariedExample, known: dict[str, s.Example]) -> s.Example:
    other = known.get(node.other)
    if other is None:
        what = f'no example before this one is called "{node.other}"'
        raise DplcError(what, node.span, (), did_you_mean(node.other, known))
    program = _edited_program(other.before, node.edits, node)
    gives: Any = node.gives
    if not isinstance(gives, str):
        if isinstance(other.gives, str):
            what = f'"{node.other}" gives no program that could be edited'
            raise DplcError(what, node.span, (), "write out what this example gives, or refer to one that fires")
        gives = _edited_program(other.gives, gives, node)
    return s.Example(node.span, node.title, node.arguments or other.arguments, program, gives)


def _edited_program(program: Any, edits: Sequence[eq.Edit], node: eq.VariedExample) -> tuple[s.Syntax, ...]:
    lines = block(program, 1)
    for edit in edits:
        lines = list(_edited(lines, edit))
    return _at(_read(lines, node), node.span)  # type: ignore[no-any-return]


def _edited(lines: Sequence[str], edit: eq.Edit) -> Iterator[str]:
    whole = any(line.strip() == edit.before for line in lines)
    if not any(edit.before in line for line in lines):
        raise DplcError(f"no line of the example says `{edit.before}`", edit.span)
    if not whole and len(edit.after) > 1:
        raise DplcError("several lines take the place of a whole line", edit.span)
    for line in lines:
        if whole and line.strip() == edit.before:
            lead = line[: len(line) - len(line.lstrip())]
            yield from (lead + text for text in edit.after if text)
        else:
            yield line if whole else line.replace(edit.before, edit.after[0])


def _read(lines: Sequence[str], node: eq.VariedExample) -> tuple[s.Syntax, ...]:
    text = "\n".join(["examples edited", 'example "edited"', *lines, 'gives no "edited"', ""])
    try:
        return _program(text)
    except DplcError as error:
        line = text.splitlines()[error.span.line - 1] if error.span is not None else ""
        note = f"the line is `{line.removeprefix(INDENT)}`"
        raise DplcError(f"edited, the example is no program: {error.what}", node.span, (note,)) from None


@functools.lru_cache(maxsize=512)  # an editor asks again at every key
def _program(text: str) -> tuple[s.Syntax, ...]:
    (found,) = parse(Source("edited", text))
    assert isinstance(found, s.ExamplesOf)
    program: tuple[s.Syntax, ...] = found.examples[0].before
    return program


def _at(value: Any, span: Span) -> Any:
    """Syntax that stands where the example does."""
    moved = rebuilt(value, lambda part: _at(part, span))
    return dataclasses.replace(moved, span=span) if isinstance(moved, s.Syntax) else moved
