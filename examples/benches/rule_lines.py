"""How long the sixteen schedule transforms are: lines of rule text with its documentation, without examples.

python examples/benches/rule_lines.py
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import dplc

FOLDER = Path(dplc.__file__).parent / "rules" / "tile"
SIXTEEN = (  # in the order of the passes they are named after: a file, or one rule of it
    "axes/tileify", "blocks/chunk_matmul_k", "blocks/split_k:split_matmul_k", "rows/cooperative_reduce",
    "blocks/blockify_launch",
    "blocks/chunk_reduce", "memory/stage_inputs", "registers/register_tile", "registers/permute_register_tile",
    "pipelines/double_buffer", "memory/tma_copy", "memory/split_inner_for_swizzle", "memory/async_copy",
    "memory/pad_smem", "pipelines/rings:pipeline_k_outer", "axes/mark_unroll",
)  # fmt: skip
HEAD = re.compile(r"(?:override )?(rule|guards|form) (\w+)")
USE = re.compile(r"\s*(?:guards|form) (\w+)\(.*\)$")


class Declared(NamedTuple):
    """A rule, or what rules share, with the names of the shared ones that it says."""

    kind: str
    name: str
    lines: int
    uses: frozenset[str]


def declared_in(path: Path) -> Iterator[Declared]:
    """What a file declares. A blank line or an example ends a declaration."""
    lines: list[str] = []
    for line in (*path.read_text().splitlines(), ""):
        if line.strip() and not line.startswith("example "):
            lines.append(line)
            continue
        heads = [found for found in map(HEAD.match, lines) if found and not USE.match(found.string)]
        if heads:
            uses = frozenset(found[1] for found in map(USE.match, lines) if found)
            yield Declared(heads[0][1], heads[0][2], len(lines), uses)
        lines = []


def of_transform(entry: str) -> tuple[list[Declared], list[Declared]]:
    """The rules of one of the sixteen, and what they share with each other and with further rules."""
    file, _, only = entry.partition(":")
    found = list(declared_in(FOLDER / f"{file}.rw"))
    rules = [one for one in found if one.kind == "rule" and only in ("", one.name)]
    used = frozenset().union(*(rule.uses for rule in rules))
    return rules, [one for one in found if one.name in used and one.kind != "rule"]


def main() -> None:
    """Print the table."""
    total, longest = 0, 0
    print("| | file | rules | lines | of these shared | longest rule |\n|---|---|---|---|---|---|")
    for number, entry in enumerate(SIXTEEN, 1):
        rules, shared = of_transform(entry)
        beside = sum(one.lines for one in shared)
        lines = beside + sum(rule.lines for rule in rules)
        most = max(rule.lines for rule in rules)
        total, longest = total + lines, max(longest, most)
        print(f"| {number:03} | `{entry.partition(':')[0]}.rw` | {len(rules)} | {lines} | {beside or ''} | {most} |")
    print(f"| | all sixteen | | {total} | | {longest} |")


if __name__ == "__main__":
    main()
