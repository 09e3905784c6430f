"""The program that puts faults into the code: it finds what no test sees, goes on where it was stopped, and tells."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

BENCHES = Path(__file__).parents[2] / "examples" / "benches"
sys.path.insert(0, str(BENCHES))
from faults import faults, of_file, sample  # noqa: E402
from reach import blocks, innermost, marked  # noqa: E402

CODE = '''def larger(a, b):
    """The larger."""
    if a > b:
        return a
    return b


def unread(n):
    return n + 1


def untested(n):
    return n * 2
'''
TESTS = """from dplc.ir.small import larger, unread

def test_larger():
    assert larger(3, 1) == 3 and larger(1, 3) == 3 and larger(2, 2) == 2

def test_unread():
    unread(1)
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A project of one file, with the program in its place."""
    root = tmp_path / "tree"
    for folder in ("ir", "engine", "codegen", "tests/ir"):
        (root / folder).mkdir(parents=True)
        (root / folder / "__init__.py").touch()
    (root / "__init__.py").touch()
    (root / "ir/small.py").write_text(CODE)
    (root / "tests/ir/test_small.py").write_text(TESTS)
    (root / "examples/benches").mkdir(parents=True)
    for name in ("mutants", "broken_copies", "fault_page", "faults", "nearest_tests", "open_faults", "reach"):
        shutil.copy(BENCHES / f"{name}.py", root / "examples/benches")
    for name in ("torch", "pytest_lsp", "pytest_asyncio", "hypothesis"):  # what is slow to import, and needed by none
        (root / f"examples/benches/{name}.py").touch()
    return root


def run(tree: Path, *options: str) -> str:
    command = [sys.executable, str(tree / "examples/benches/mutants.py"), "--count", "10", *options]
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # empty files stand for some
    return subprocess.run(command, capture_output=True, text=True, check=False, env=alone).stdout


def test_a_sample_begins_with_every_folder() -> None:
    every = faults(BENCHES.parents[1])
    folders = Counter(fault.folder for fault in every)
    ordered = sample(every, 0)
    assert sorted(map(str, ordered)) == sorted(map(str, every)) and sample(every, 1) != ordered
    assert {fault.folder for fault in ordered[:200]} == folders.keys() and len(folders) > 25


def test_a_fault_is_in_its_block_and_marks_change_nothing() -> None:
    found = blocks(CODE, "small.py")
    scope: dict[str, object] = {"__reached__": (reached := bytearray(10))}
    exec(marked(CODE, 0), scope)
    assert [scope["larger"](*pair) for pair in ((3, 1), (1, 3))] == [3, 3]  # type: ignore[operator]
    inner = innermost(found, "small.py", 4)
    assert inner is not None and found[inner].first == found[inner].last == 4
    assert reached[inner] and not reached[innermost(found, "small.py", 13) or 0]
    assert innermost(found, "small.py", 1) is None
    assert {fault.at[0] for fault in of_file(CODE, "small.py")} == {3, 9, 13}


def test_what_no_test_sees_survives_until_a_test_sees_it(tree: Path) -> None:
    said = run(tree)
    for line in (
        "ir/small.py:3:8: `a > b` -> `a >= b`: SURVIVES", "`n + 1` -> `n - 1`: SURVIVES", "`1` -> `2`: SURVIVES",
        "`n * 2` -> `n + 2`: REACHED BY NONE", "5 of 5 possible faults, seed 0: 2 reached by none, 3 survives",
    ):  # fmt: skip
        assert line in said, said
    assert run(tree).splitlines() == said.splitlines()[-1:], "what is known is not done again"

    (tree / "tests/ir/test_small.py").write_text(TESTS.replace("    unread(1)", "    assert unread(1) == 2"))
    results = tree / "examples/suites/results/mutants"
    results.mkdir(parents=True)
    same = [
        {"fault": "ir/small.py: `a > b` -> `a >= b`", "on": "8: if a > b:", "why": "the larger of equal ones is either"}
    ]
    (results / "equivalent.json").write_text(json.dumps(same))
    said = run(tree, "--again", "--write", str(results))
    assert "`1` -> `2`: caught by tests/ir/test_small.py::test_unread" in said, said
    page = (results / "README.md").read_text()
    assert "| ir | 5 | 0 | 2 | 1 | 0 | 2 |" in page and "**2 survive**" in page, page
    [judged] = json.loads((results / "mutants.json").read_text())["runs"]
    assert Counter(fault["verdict"] for fault in judged["faults"]) == {"caught": 2, "the same": 1, "reached by none": 2}


def test_a_run_that_is_killed_leaves_no_fault_behind(tree: Path) -> None:
    run(tree, "--only", "engine")
    state, small = tree / "build/mutants", tree / "build/mutants/plain/dplc/ir/small.py"
    (state / "kept").write_text(CODE)
    (state / "broken").write_text("ir/small.py")
    small.write_text(CODE.replace("a > b", "a < b"))
    assert "3 survives" in run(tree) and small.read_text() == CODE


@pytest.mark.slow
def test_the_nearest_files_are_enough_and_more_are_tried_before_a_fault_survives(tree: Path) -> None:
    """Near is what imports the module; another folder's file that notices the fault by the way is tried later."""
    (tree / "ir/other.py").write_text("from dplc.ir.small import untested\n\n\ndef eight():\n    return untested(4)\n")
    (tree / "tests/engine").mkdir()
    (tree / "tests/engine/test_far.py").write_text(
        "from dplc.ir import other\n\ndef test_far():\n    assert other.eight() == 8\n"
    )
    (tree / "tests/ir/test_always.py").write_text("from dplc.ir import small\n\ndef test_red():\n    assert False\n")
    said = run(tree, "--near", "--only", "ir/small", "--write", str(tree / "found"))
    assert "`n * 2` -> `n + 2`: caught by tests/engine/test_far.py::test_far" in said, said
    assert "`a > b` -> `a >= b`: SURVIVES" in said and "test_red" not in said, "what fails always catches nothing"
    judged = {
        f["fault"].split(": ")[1]: f for f in json.loads((tree / "found/mutants.json").read_text())["runs"][0]["faults"]
    }
    assert judged["`a > b` -> `a >= b`"]["how"] == "wider"

    (tree / "tests/engine/test_equal.py").write_text(
        "from dplc.ir.small import larger\n\ndef test_equal():\n    assert type(larger(True, 1)) is int\n"
    )
    place = next(line for line in said.splitlines() if "a >= b" in line).partition("/")[0].strip("[")
    said = run(tree, "--near", "--only", "ir/small", "--again", "--tests", f"{place}=tests/engine/test_equal.py")
    assert "`a > b` -> `a >= b`: caught by tests/engine/test_equal.py::test_equal" in said, said


def test_what_is_open_meets_the_tests_that_are_named_for_it(tree: Path) -> None:
    """Also where its line has moved; what these do not notice stays open, and what is gone says so."""
    results = tree / "examples/suites/results/mutants"
    run(tree, "--write", str(results))
    small, tests = tree / "ir/small.py", tree / "tests/ir/test_small.py"
    small.write_text("# moved\n" + CODE.replace("n * 2", "2 * n"))
    tests.write_text(TESTS.replace("    unread(1)", "    assert unread(1) == 2"))
    command = [sys.executable, str(tree / "examples/benches/open_faults.py")]
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}

    def said(*words: str) -> str:
        return subprocess.run([*command, *words], capture_output=True, text=True, check=False, env=alone).stdout

    listed = said().splitlines()
    assert len(listed) == 5 and sum("its line is gone" in line for line in listed) == 2
    numbers = {line.split("`")[1]: line.split()[0] for line in listed if "gone" not in line}
    assert set(numbers) == {"a > b", "n + 1", "1"} and all(":9:" not in line for line in listed)
    told = said(*(f"{number}=tests/ir/test_small.py" for number in numbers.values()))
    assert (
        "`n + 1` -> `n - 1`: tests/ir/test_small.py::test_unread" in told and "`a > b` -> `a >= b`: NOT NOTICED" in told
    )
    records = json.loads((results / "mutants.json").read_text())["runs"][0]["faults"]
    answered = [one for one in records if one["verdict"] == "caught"]
    assert {one["how"] for one in answered} == {"named"} and {one["at first"] for one in answered} == {"survives"}
    assert "**3 survive**" in (results / "README.md").read_text() and len(said().splitlines()) == 3


@pytest.mark.slow
def test_a_fault_without_an_end_is_caught_by_the_test_that_no_longer_ends(tree: Path) -> None:
    (tree / "ir/small.py").write_text("def full(n):\n    while not n:\n        n = True\n    return n\n")
    (tree / "tests/ir/test_small.py").write_text("from dplc.ir.small import full\n\ndef test_it():\n    full(True)\n")
    said = run(tree, "--near", "--only", "ir/small")
    assert "`not n` -> `n`: caught by tests/ir/test_small.py::test_it, which no longer ends" in said, said
