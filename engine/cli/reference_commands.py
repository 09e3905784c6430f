"""`dplc rules facts|nodes`: what a rule may name."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ...ir import schemas
from ...ir.diagnostic import UsageError, did_you_mean
from ..language.rule import LEVELS, load
from ..workbench import reference
from ..workbench.reference import Word
from .show import print_json, print_text

WIDTH = 44  # the column of sentences, where a signature is shorter


def show_facts(name: str | None, level: str | None, paths: list[Path], as_json: bool) -> None:
    """All facts and functions, or those of a name in full; of `target`, what it has."""
    entries = [reference.machine()] if name == "target" else reference.facts(load(paths))
    _show(entries, name, level, as_json, "fact or function")


def show_nodes(name: str | None, level: str | None, as_json: bool) -> None:
    """All statements and values, or one in full. Torch IR has too many ops to list unasked."""
    entries = list(reference.nodes())
    if name is None and level == "torch":
        entries += [entry for op in sorted(schemas.names()) if (entry := reference.op(op)) is not None]
    found = reference.op(name) if name is not None and level in (None, "torch") else None
    _show([*entries, found] if found is not None else entries, name, level, as_json, "node")


def _show(entries: list[Word], name: str | None, level: str | None, as_json: bool, what: str) -> None:
    if level is not None and level not in LEVELS:
        raise UsageError(
            f"unknown level `{level}`", None, (f"levels are {', '.join(LEVELS)}",), did_you_mean(level, LEVELS)
        )
    listed = [entry for entry in entries if name in (None, entry.name) and (level is None or level in entry.levels)]
    if not listed and name is not None:
        options = {*(entry.name for entry in entries), *(schemas.names() if what == "node" else ())}
        raise UsageError(f"there is no {what} `{name}`", hint=did_you_mean(name, options))
    if as_json:
        print_json([entry.record() for entry in listed])
    else:
        print_text("\n\n".join(map(_whole, listed)) if name is not None else "\n".join(_lines(listed)), "rw")


def _lines(entries: Iterable[Word]) -> Iterable[str]:
    """A line each, under its levels."""
    groups: dict[str, list[Word]] = {}
    for entry in entries:
        where = "every level" if set(entry.levels) == set(LEVELS) else ", ".join(entry.levels)
        groups.setdefault(f"{entry.kind}s on {where}", []).append(entry)
    for title, members in groups.items():
        yield f"# {title}"
        for entry in members:
            yield f"{entry.signature:{WIDTH}} {entry.sentence}".rstrip()
        yield ""


def _whole(entry: Word) -> str:
    lines = [f"# {entry.kind} on {', '.join(entry.levels)}; {entry.place}", entry.signature, ""]
    lines += [f"    {line}".rstrip() for line in entry.says.splitlines()]
    if entry.fields:
        width = max(len(name) for name, _, _ in entry.fields)
        lines += ["", *(f"    {name:{width}}  {_sort(sort)}{_given(default)}" for name, sort, default in entry.fields)]
    return "\n".join(lines)


def _sort(sort: str) -> str:
    words = reference.sorts()
    return f"a list ({words.get(sort[1:-1], sort[1:-1])} each)" if sort.startswith("[") else words.get(sort, sort)


def _given(default: str) -> str:
    return f", else {default}" if default else ""
