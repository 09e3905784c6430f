"""Every number that a choice depends on has a name and a reason in rules/policy.rw: neither a clause of a rule nor a fact
holds another one than 0, 1 and 2."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dplc.codegen.kernel import MAX_THREADS_PER_BLOCK
from dplc.codegen.target import Target
from dplc.engine.cost import memory_model
from dplc.engine.language.rule import built_in_files, load
from dplc.ir.facts import layout, warp_accesses
from dplc.ir.kernel import WARPGROUP
from dplc.ir.text import syntax as s
from dplc.ir.text.syntax import walk, words_in
from dplc.ir.verify import kernel as verify_kernel

ROOT = Path(__file__).resolve().parents[2]
PLAIN = (0, 1, 2)  # nothing, the next one, and there and back: numbers that no choice depends on
FACTS = sorted(
    path for path in (ROOT / "engine").rglob("*.py") if re.search(r"^@(?!torch)\w*fact\b", path.read_text(), re.M)
)
# What Python weighs besides facts, where it has given its numbers to the policy: definitions by file.
WEIGHING = {
    "engine/cost/limits.py": (
        "blocks_across issue_seconds traffic_seconds fixed_seconds parts slots_of bytes_of blocks"
    ),
    "engine/kernels/fusion_pass.py": "Fusion is_renaming",
    "engine/kernels/kernels.py": "Plan Kernels in_memory _merges compile_graph",
    "engine/store/store.py": (
        "digest Decision TuningKey Score Tuned Entry Evaluator key_of family "
        "extents written_extents distance tools_of scored_key"
    ),
    "engine/explore/explore.py": "Cutting is_leaf",
}
# Numbers of facts that are not a choice, each with the reason.
UNITS = {
    ("engine/facts/tensor.py", "MOST"): "how large a power of two a rule may ask for: a limit of the language",
    ("engine/facts/tensor.py", "SUBSETS"): "how many subsets a rule may ask for: a limit of the language",
    ("engine/facts/tensor.py", "EXPONENTS"): "of f32: reciprocals of powers of two in this range are exact",
    ("engine/facts/tensor.py", "HALF"): "what `frexp` gives for a power of two",
}


def clauses(rule: s.Rule) -> Iterator[tuple[int, str]]:
    """The numbers of a rule's guards, lets and defaults, with the line."""
    defaults = [p.default for p in rule.parameters if p.default is not None]
    for node in walk((*rule.clauses, *defaults)):
        if isinstance(node, s.Number) and abs(node.value) not in PLAIN:
            yield node.span.line, str(node.value)


def test_no_clause_of_a_rule_holds_a_number() -> None:
    levels = ("tensor", "module", "loop", "tile", "kernel")  # on torch numbers are what PyTorch's ops mean
    rules = [rule for file in built_in_files() for rule in file.rules if rule.level in levels]
    found = [f"{rule.location}: line {line} of {rule.name}: {n}" for rule in rules for line, n in clauses(rule)]
    assert found == [], "give it a name and a reason in rules/policy.rw"


def test_no_fact_of_a_rule_file_holds_a_number() -> None:
    facts = [fact for file in built_in_files() for fact in file.facts]
    found = [(f.name, n.value) for f in facts for n in walk(f.value) if isinstance(n, s.Number)]
    assert facts and [pair for pair in found if abs(pair[1]) not in PLAIN] == []


def literals(path: Path) -> Iterator[str]:
    """The numbers of a Python file that are neither plain nor a unit."""
    name, tree = str(path.relative_to(ROOT)), ast.parse(path.read_text())
    named = [node for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)]
    units = [node for node in named if (name, ast.unparse(node.targets[0])) in UNITS]
    exempt = {id(below) for node in units for below in ast.walk(node)}
    chosen = set(WEIGHING.get(name, "").split())
    if chosen:
        defined = {getattr(node, "name", ""): node for node in tree.body}
        tree.body = [defined[one] for one in sorted(chosen)]
    for node in ast.walk(tree):
        number = isinstance(node, ast.Constant) and type(node.value) in (int, float)
        if number and id(node) not in exempt and abs(node.value) not in PLAIN:  # type: ignore[attr-defined]
            yield f"{name}:{node.lineno}: {node.value}"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "path", [*FACTS, *(ROOT / name for name in WEIGHING)], ids=lambda path: str(path.relative_to(ROOT))
)
def test_no_fact_holds_a_number(path: Path) -> None:
    assert list(literals(path)) == [], "read it from the policy: `policy(site.target).name`"


# Constants of the machine in the model and the analyses, and the field of the target that rules read.
OF_THE_MACHINE = {
    "warp_lanes": (memory_model.LANES, warp_accesses.WARP, layout.BANKS),
    "most_threads": (MAX_THREADS_PER_BLOCK, verify_kernel.MOST_THREADS),
    "word_bytes": (layout.WORD, memory_model.WORD),
    "vector_bytes": (layout.CHUNK, max(layout.VECTOR_BYTES)),
    "sector_bytes": (layout.SECTOR,),
    "swizzle_bytes": (layout.ROW, max(warp_accesses.SPANS)),
    "warpgroup": (WARPGROUP,),
}


@pytest.mark.parametrize("name", OF_THE_MACHINE)
def test_python_and_the_target_agree_on_the_machine(name: str) -> None:
    assert {getattr(Target, name)} == {*OF_THE_MACHINE[name]}


def test_no_fraction_of_the_policy_is_written_again() -> None:
    """A fraction that has a name (1.5 latencies) is read by its name, also by the model."""
    named = {n.value for n in load().numbers.values() if isinstance(n.value, float) and n.value != int(n.value)}
    folders = ("engine/cost", "engine/facts", "engine/kernels", "engine/explore", "engine/schedule", "ir/facts")
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.value}"
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, float) and node.value in named
    ]
    assert named and found == [], "read it from the policy: `policy(target).name`"


def test_units_are_there() -> None:
    for name, unit in UNITS:
        assert re.search(rf"^{unit} = ", (ROOT / name).read_text(), re.M), (name, unit)


def test_every_number_of_the_policy_is_read_and_every_one_that_is_read_is_there() -> None:
    rules = load()
    written = {word for file in rules.files for rule in file.rules for word in rule.words}
    written |= {word for number in rules.numbers.values() for word in words_in(number.declared.value)}
    written |= {word for file in rules.files for fact in file.facts for word in words_in(fact.value)}
    assert rules.facts.keys() <= written, "nothing asks these"
    python: set[str] = set()
    for path in (ROOT / "engine").rglob("*.py"):
        text = path.read_text()
        if re.search(r"import [^)]*\bpolicy(?:_with)?\b", text):
            python |= set(re.findall(r"\bpolicy\([\w.]+\)\.(\w+)", text))
            python |= set(re.findall(r"(?:\bself\.policy|\bpolicy_with\([\w.()]*\)+)\.([a-z]+_\w+)", text))
            short = set(re.findall(r"\b(?:numbers|p)\.([a-z]+_\w+)", text))  # `p` names other things, too
            python |= short & rules.numbers.keys()
    assert {name for name in python if "_" in name} <= rules.numbers.keys(), "not in rules/policy.rw"
    assert rules.numbers.keys() - written - python == set(), "nothing reads these"


def test_every_number_has_a_reason_of_some_words() -> None:
    short = [n.name for n in load().numbers.values() if len((n.declared.reason or "").split()) < 4]
    assert short == []
