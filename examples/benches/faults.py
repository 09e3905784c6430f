"""Faults that can be put into Python text: small changes of meaning, in an order that soon reaches every folder."""

from __future__ import annotations

import ast
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PARTS = ("engine", "codegen", "ir")
LONGEST = 200  # characters of what is changed
FLIPPED: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
OTHER: dict[type, type] = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult}
EXCHANGED = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod)
OPPOSITE = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Fault:
    """A change of a piece of text. file: from the root; at: (line, column, end line, end column), columns in bytes."""

    file: str
    at: tuple[int, int, int, int]
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.file}:{self.at[0]}:{self.at[1] + 1}: `{self.before}` -> `{self.after}`"

    @property
    def folder(self) -> str:
        return str(Path(self.file).parent)

    def line(self, root: Path) -> str:
        """The column and the line of text at which it begins."""
        return f"{self.at[1] + 1}: {(root / self.file).read_text().splitlines()[self.at[0] - 1].strip()}"

    def applied(self, text: str) -> str:
        """The text of the file with the change."""
        lines = text.encode().splitlines(keepends=True)
        first, start, last, end = self.at[0] - 1, self.at[1], self.at[2] - 1, self.at[3]
        changed = lines[first][:start] + f"({self.after})".encode() + lines[last][end:]
        return b"".join([*lines[:first], changed, *lines[last + 1 :]]).decode()


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for part in PARTS for path in (root / part).rglob("*.py"))


def faults(root: Path) -> list[Fault]:
    """Every change that can be made, in order."""
    return [fault for file in files(root) for fault in of_file((root / file).read_text(), file)]


def sample(every: list[Fault], seed: int) -> list[Fault]:
    """All of them in an order whose beginnings hold every folder, in proportion to the root of what it has."""
    groups: dict[str, list[Fault]] = defaultdict(list)
    for fault in every:
        groups[fault.folder].append(fault)
    placed = []
    for folder, group in sorted(groups.items()):
        random.Random(f"{folder} {seed}").shuffle(group)
        placed += [((n + 0.5) / len(group) ** 0.5, folder, fault) for n, fault in enumerate(group)]
    return [fault for *_, fault in sorted(placed, key=lambda one: one[:2])]


def of_file(text: str, file: str) -> Iterator[Fault]:
    """The changes of one file."""
    tree = ast.parse(text)
    quiet = {id(inner) for node in ast.walk(tree) for part in _said(node) for inner in ast.walk(part)}
    for node in ast.walk(tree):
        if id(node) in quiet or not hasattr(node, "end_col_offset"):
            continue
        for other in changes(node):
            before, after = ast.unparse(node), ast.unparse(other)
            if before != after and len(before) < LONGEST:
                at = (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
                yield Fault(file, at, before, after)


def _said(node: ast.AST) -> list[ast.AST]:
    """What is text for people or for a type checker, below a node."""
    found: list[ast.AST | None] = [getattr(node, "annotation", None), getattr(node, "returns", None)]
    if isinstance(node, ast.Raise):
        found.append(node.exc)
    if isinstance(node, ast.JoinedStr):
        found += node.values
    return [one for one in found if one is not None]


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """One node with a change of meaning."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield ast.Compare(node.left, [FLIPPED[type(node.ops[0])]()], node.comparators)
    elif isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield ast.BoolOp(other, node.values)
        for n in range(len(node.values)):
            rest = node.values[:n] + node.values[n + 1 :]
            yield rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
    elif isinstance(node, ast.BinOp):
        if type(node.op) in OTHER:
            yield ast.BinOp(node.left, OTHER[type(node.op)](), node.right)
        if isinstance(node.op, EXCHANGED):
            yield ast.BinOp(node.right, node.op, node.left)
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield ast.Constant(node.value + 1)
    elif isinstance(node, ast.IfExp):
        yield ast.IfExp(node.test, node.orelse, node.body)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in OPPOSITE:
        yield ast.Call(ast.Name(OPPOSITE[node.func.id]), node.args, node.keywords)
