"""How much the tests see: faults put into engine, codegen and ir, one at a time, and the nearest tests run on each.

    python examples/benches/mutants.py --count 200 --seed 0

A mutant is one small change of meaning: a comparison flipped, a number off by one, a condition dropped or negated,
operands exchanged, a function for its opposite. What no test notices is printed with its place; a test that can fail
answers it, or the code says less than it seems to. Works on a copy of the tree; the seed decides which faults.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("engine", "codegen", "ir")
LIMIT = 240  # seconds for the tests of one mutant: a loop without an end is noticed
# The tests nearest to a module: those of the longest prefix of its path.
NEAREST = {
    "ir": "tests/ir",
    "ir/interp/torch.py": "tests/capture",
    "ir/interp/tensor.py": "tests/ir/test_tensor_meaning.py tests/kernels/test_lift.py",
    "ir/facts/staging.py": "tests/ir tests/rules/tile/test_default_schedules.py",
    "codegen": "tests/codegen",
    "codegen/materialise": "tests/codegen/materialise",
    "codegen/emulator": "tests/codegen/test_emulator.py tests/codegen/test_checked.py tests/codegen/test_redzones.py",
    "codegen/launch.py": "tests/codegen/test_launch.py tests/gpu",
    "codegen/graphs.py": "tests/gpu",
    "engine": "tests/api tests/kernels/test_sharing.py tests/run/test_aliasing.py tests/endtoend/test_attention.py",
    "engine/run/judge.py": "tests/run/test_judge.py",
    "engine/verify": "tests/verify",
    "engine/verify/torch_rules.py": "tests/verify/test_torch_checker.py",
    "engine/verify/reals.py": "tests/verify/test_what_checks_see.py",
    "engine/cli": "tests/cli",
    "engine/explore": "tests/explore",
    "engine/facts": "tests/rules/tile tests/rewrite",
    "engine/capture": "tests/capture",
    "engine/kernels": "tests/kernels tests/endtoend/test_norm_linear.py",
    "engine/models": "tests/models",
    "engine/rewrite/statements": "tests/rewrite",
    "engine/cost": "tests/bench/test_analytic_model.py tests/store/test_model_validation.py",
    "engine/verify/proofs": "tests/verify/test_proofs.py",
    "engine/language": "tests/language",
    "engine/bench": "tests/bench",
    "engine/tune": "tests/tune tests/store",
    "engine/tune/mcts.py": "tests/tune/test_tree_search.py",
    "engine/tune/search_log.py": "tests/tune/test_tree_search.py tests/tune/test_tune_command.py",
}
FLIPPED: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
OTHER: dict[type, type] = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult}
EXCHANGED = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod)
OPPOSITE = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """A change of a piece of text. file: from the root; at: (line, column, end line, end column), columns in bytes."""

    file: str
    at: tuple[int, int, int, int]
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.file}:{self.at[0]}: `{self.before}` -> `{self.after}`"

    def applied(self, text: str) -> str:
        """The text of the file with the change."""
        lines = text.encode().splitlines(keepends=True)
        first, start, last, end = self.at[0] - 1, self.at[1], self.at[2] - 1, self.at[3]
        changed = lines[first][:start] + f"({self.after})".encode() + lines[last][end:]
        return b"".join([*lines[:first], changed, *lines[last + 1 :]]).decode()


def mutants(root: Path) -> list[Mutant]:
    """Every change that can be made, in order."""
    files = sorted(path for part in PARTS for path in (root / part).rglob("*.py"))
    return [mutant for path in files for mutant in of_file(path.read_text(), str(path.relative_to(root)))]


def of_file(text: str, file: str) -> Iterator[Mutant]:
    """The changes of one file."""
    tree = ast.parse(text)
    quiet = {id(inner) for node in ast.walk(tree) for part in _said(node) for inner in ast.walk(part)}
    for node in ast.walk(tree):
        if id(node) in quiet or not hasattr(node, "end_col_offset"):
            continue
        for other in changes(node):
            before, after = ast.unparse(node), ast.unparse(other)
            if before != after and len(before) < 200:
                at = (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
                yield Mutant(file, at, before, after)


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


def nearest(file: str) -> list[str]:
    """The tests that are run on a change of a file."""
    return NEAREST[max((key for key in NEAREST if file.startswith(key)), key=len)].split()


class Copy:
    """A copy of the tree, called as the package is, in which faults are put."""

    def __init__(self, folder: Path):
        self.root = folder / "dplc"
        kept = shutil.ignore_patterns(
            ".git", ".venv*", "__pycache__", ".mypy_cache", ".ruff_cache", ".typecheck", "build"
        )
        shutil.copytree(ROOT, self.root, ignore=kept)
        self.environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}

    def passes(self, tests: list[str], seconds: float = LIMIT) -> bool:
        """Whether the tests pass; those that do not end, do not."""
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:randomly", *tests]
        with tempfile.TemporaryDirectory() as folder:
            process = subprocess.Popen(
                [*command, "--basetemp", folder], cwd=self.root, env=self.environment, start_new_session=True,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            try:
                return process.wait(seconds) == 0
            except subprocess.TimeoutExpired:
                return False
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, 9)
                    process.wait()

    def survives(self, mutant: Mutant) -> bool:
        """Whether no test notices a fault."""
        path = self.root / mutant.file
        text = path.read_text()
        try:
            path.write_text(mutant.applied(text))
            return self.passes(nearest(mutant.file))
        finally:
            path.write_text(text)


def main() -> None:
    """Sample, run, tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="how many faults")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--only", default="", metavar="PREFIX", help="of files whose path begins with this")
    parser.add_argument("--minutes", type=float, default=None, help="stop after so long")
    options = parser.parse_args()
    every = [mutant for mutant in mutants(ROOT) if mutant.file.startswith(options.only)]
    chosen = random.Random(options.seed).sample(every, min(options.count, len(every)))
    until = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    sound: dict[str, bool] = {}
    counts: Counter[str] = Counter()
    survivors: list[Mutant] = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder))
        for mutant in chosen:
            if until is not None and time.monotonic() > until:
                break
            tests = nearest(mutant.file)
            key = " ".join(tests)
            if key not in sound:
                sound[key] = copy.passes(tests, 4 * LIMIT)
                if not sound[key]:
                    print(f"not judged, for they fail as it is: {key}", flush=True)
            if not sound[key]:
                counts["not judged"] += 1
                continue
            if copy.survives(mutant):
                survivors.append(mutant)
                print(f"survives: {mutant}", flush=True)
            counts["survived" if survivors and survivors[-1] is mutant else "caught"] += 1
    said = ", ".join(f"{n} {what}" for what, n in sorted(counts.items()))
    print(f"{sum(counts.values())} of {len(every)} possible faults, seed {options.seed}: {said}")


if __name__ == "__main__":
    main()
