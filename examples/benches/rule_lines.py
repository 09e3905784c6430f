"""How long the sixteen schedule transforms are: lines of rule text with its documentation, without examples.

python examples/benches/rule_lines.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dplc

FOLDER = Path(dplc.__file__).parent / "rules" / "tile"
SIXTEEN = (  # in the order of the passes they are named after
    "axes/tileify", "blocks/chunk_matmul_k", "blocks/split_matmul_k", "rows/cooperative_reduce",
    "blocks/blockify_launch",
    "blocks/chunk_reduce", "memory/stage_inputs", "registers/register_tile", "registers/permute_register_tile",
    "pipelines/double_buffer", "memory/tma_copy", "memory/split_inner_for_swizzle", "memory/async_copy",
    "memory/pad_smem", "pipelines/pipeline_k_outer", "axes/mark_unroll",
)  # fmt: skip


def rules_of(path: Path) -> Iterator[list[str]]:
    """The lines of each rule of a file: documentation, pattern, clauses, template."""
    lines: list[str] = []
    in_example = False
    for line in (*path.read_text().splitlines(), "##"):
        if line.startswith(("##", "@", "rule ")) and in_example:
            yield lines
            lines, in_example = [], False
        in_example = in_example or line.startswith("example ")
        if line.strip() and not in_example:
            lines.append(line)
    if len(lines) > 1:
        yield lines[:-1]  # without the mark of the end


def main() -> None:
    """Print the table."""
    total, longest = 0, 0
    print("| | file | rules | lines | longest rule |\n|---|---|---|---|---|")
    for number, name in enumerate(SIXTEEN, 1):
        found = list(rules_of(FOLDER / f"{name}.rw"))
        counts = [len(lines) for lines in found]
        total, longest = total + sum(counts), max(longest, *counts)
        print(f"| {number:03} | `{name}.rw` | {len(found)} | {sum(counts)} | {max(counts)} |")
    print(f"| | all sixteen | | {total} | {longest} |")


if __name__ == "__main__":
    main()
