"""How long the sixteen schedule transforms are: lines of rule text with its documentation, without examples.

python examples/benches/rule_lines.py
python examples/benches/rule_lines.py --show online_tile    # a rule of schedules as it stands, with what it shares
"""

from __future__ import annotations

import re
import sys
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
# The same of the tree of 2026-11-20 (e58344f), before splits, forms, guards, folds and policy: rules shared nothing.
BEFORE = (37, 20, 42, 53, 45, 20, 39, 16, 17, 24, 23, 37, 17, 14, 30, 12)
HEAD = re.compile(r"(?:override )?(rule|guards|form) (\w+)")
USE = re.compile(r"\s*(?:guards|form) (\w+)\(.*\)$")


class Declared(NamedTuple):
    """A rule, or what rules share, with the names of the shared ones that it says."""

    kind: str
    name: str
    text: str
    uses: frozenset[str]

    @property
    def lines(self) -> int:
        return self.text.count("\n") + 1


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
            yield Declared(heads[0][1], heads[0][2], "\n".join(lines), uses)
        lines = []


def of_transform(entry: str) -> tuple[list[Declared], list[Declared]]:
    """The rules of one of the sixteen, and what they share with each other and with further rules."""
    file, _, only = entry.partition(":")
    found = list(declared_in(FOLDER / f"{file}.rw"))
    rules = [one for one in found if one.kind == "rule" and only in ("", one.name)]
    used = frozenset().union(*(rule.uses for rule in rules))
    return rules, [one for one in found if one.name in used and one.kind != "rule"]


def with_what_it_shares(name: str) -> str:
    """The text of a rule and of the forms and guards that it names. Raises SystemExit if no file has it."""
    for path in sorted(FOLDER.rglob("*.rw")):
        found = {one.name: one for one in declared_in(path)}
        if name in found:
            return "\n...\n".join(one.text for one in found.values() if one.name in {name, *found[name].uses})
    raise SystemExit(f"no rule of a schedule is called {name}")


def main() -> None:
    """Print the table, or a rule."""
    if sys.argv[1:2] == ["--show"]:
        print(with_what_it_shares(sys.argv[2]))
        return
    total, longest = 0, 0
    print("| | file | rules | before | lines | of these shared | longest rule |\n|---|---|---|---|---|---|---|")
    for number, (entry, before) in enumerate(zip(SIXTEEN, BEFORE, strict=True), 1):
        rules, shared = of_transform(entry)
        beside = sum(one.lines for one in shared)
        lines = beside + sum(rule.lines for rule in rules)
        most = max(rule.lines for rule in rules)
        total, longest = total + lines, max(longest, most)
        file = f"`{entry.partition(':')[0]}.rw`"
        print(f"| {number:03} | {file} | {len(rules)} | {before} | {lines} | {beside or ''} | {most} |")
    print(f"| | all sixteen | | {sum(BEFORE)} | {total} | | {longest} |")


if __name__ == "__main__":
    main()
