"""`dplc rules`: list, show, test, fmt, facts, nodes; and `dplc ops`. `rules why` is in test_command_rewrite.py."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from command_line import MINE, Command

from dplc.codegen.target import devices, load_device
from dplc.engine.language.rule import BUILT_IN
from dplc.engine.language.sorts import TARGET_FIELDS

HALVES = "rule halves on tensor\nmatch\n    y = divide(x, 2.0)\nrewrite\n    y = multiply(x, 0.5)\n"
HALF = (
    'example "half"\n    graph g(x: f32[4]) -> y: f32[4]:\n        y[i:4] = divide(x[i], 2.0)\n'
    "gives\n    graph g(x: f32[4]) -> y: f32[4]:\n        y[i:4] = multiply(x[i], {})\n"
)
TILEIFY = BUILT_IN / "tile" / "axes" / "tileify.rw"

# ---- rules list


def test_list_shows_what_a_file_adds_replaces_and_takes_out(dplc: Command) -> None:
    MINE.write_text(
        f"{HALVES.replace('rule halves', 'override rule double_negation')}\nwithout drop_guard\n\n"
        f'pipeline tile\n    without xor_smem because "registers are reused"\n{HALVES}'
    )
    dplc("rules list --rules mine.rw").shows(
        "pipeline torch\n", "pipeline tensor\n", "override rule double_negation  mine.rw:1 ", "in the place of the library's own\n",
        " mine ", "mine.rw:11", "in no pipeline",
        "pipeline fusion\n", " share ", "fuse and climb decide which values several kernels compute\n", "pipeline loop\n",
        "pipeline tile\n", "- without xor_smem", "mine.rw:10", "registers are reused\n", "pipeline kernel\n",
        "- without drop_guard  mine.rw:7",
    )  # fmt: skip
    record = dplc("rules list --rules mine.rw --json").json
    assert record["tensor"][-1]["rules"] == ["halves"]
    assert [step.get("overrides") for step in record["tensor"] if step["pass"] == "exact"] == [
        {"double_negation": "mine.rw:1"}
    ]
    (out_,) = record["without"]
    assert (out_["name"], out_["pipeline"], out_["because"]) == ("xor_smem", "tile", "registers are reused")


# ---- rules show


@pytest.mark.parametrize(
    ("name", "begins", "rules"),
    [("stage_inputs", "# rules/tile/memory/stage_inputs.rw:", 1), ("reuse", "", 2), ("unary", "", 11)],
)
def test_show_prints_a_rule_a_pass_or_a_family(dplc: Command, name: str, begins: str, rules: int) -> None:
    out = dplc(f"rules show {name}").out
    assert out.startswith(begins) and out.count("\nrule ") >= rules and "example" in out


def test_show_prints_the_matcher_with_its_constants(dplc: Command) -> None:
    dplc("rules show mark_unroll --python").shows("# c0 = For\n", "if x2.__class__ is not c0")


def test_show_prints_a_rule_before_a_fact_of_its_name_and_a_number_for_each_device(dplc: Command) -> None:
    dplc("rules show half_tile").shows("fact half_tile(")
    MINE.write_text(
        "rule half_tile on tensor\nmatch\n    y = negative(negative(x))\nrewrite\n    y = x\n"
        "override number most_unrolled = 5 for h200\n"
    )
    dplc("rules show half_tile --rules mine.rw").shows("rule half_tile on tensor")
    dplc("rules show most_unrolled --rules mine.rw").shows(
        "number most_unrolled = 32", "override number most_unrolled = 5 for h200"
    )


# ---- rules facts, rules nodes


def test_facts_and_nodes_are_described(dplc: Command) -> None:
    dplc("rules facts --level tile").shows(
        "facts on every level", "ceildiv(int, int) -> int        ", "  Divide a by b and round up.\n"
    )
    dplc("rules nodes Stage").shows("ir/tile.py:", "depth    an integer, else 1")
    (record,) = dplc("rules nodes Sync --json").json
    assert (record["fields"], record["kind"]) == ([], "statement")
    dplc("rules facts half_tile").shows("rules/policy.rw:")
    lines = dict(re.findall(r"^ *- (\w+)(:.*)", dplc("rules facts target").out, re.MULTILINE))
    assert TARGET_FIELDS.keys() <= lines.keys()
    assert all(load_device(name).name in lines[name] for name in devices())


# ---- rules test


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (HALVES + HALF.format(0.5), 0, ("1 rules, 1 examples, 0 failed, 0 errors, 0 warnings\n",)),
        (HALVES + HALF.format(0.25), 1, ("1 rules, 1 examples, 1 failed", "half")),
        (TILEIFY.read_text(), 0, ("2 rules, 4 examples, 0 failed", "tested in the place of rules/tile/axes/tileify.rw")),
        (TILEIFY.read_text().replace("rewrite", "rewrites", 1), 1, ("mine.rw:",)),
        (
            "pipeline tile\n    pass nonsense after tileify\n", 1,
            ("mine.rw:2:10: error: pipeline `tile`: there is no pass or rule `nonsense`",),
        ),
    ],
)  # fmt: skip
def test_test_runs_the_examples_of_a_file(dplc: Command, text: str, code: int, said: tuple[str, ...]) -> None:
    MINE.write_text(text)
    dplc("rules test mine.rw", code=code).shows(*said)


def test_test_takes_a_built_in_file_and_a_compile_no_copy_of_one(dplc: Command) -> None:
    assert dplc(f"rules test {TILEIFY}").out.startswith("2 rules, 4 examples, 0 failed")
    MINE.write_text(TILEIFY.read_text())
    dplc("compile -c torch.sin(torch.randn(3)) --rules mine.rw", code=1).shows("rule `tileify` is declared twice")


def test_test_runs_examples_of_a_rule_for_one_device_there(dplc: Command) -> None:
    own = (BUILT_IN.parent / "examples/overrides/copies_by_tma.rw").read_text().replace("on tile", "on tile for h200")
    example = """\
example "a single buffer"
    for k in 0..4 serial:
        s = Stage(a, origin=(k), box=(i:16), depth=1)
        Sync()
        y = load s[0]
        t <- add(t, y)
        Sync()
gives no "{}"
"""
    MINE.write_text(own + example.format("single-buffered"))
    dplc("rules test mine.rw").shows("1 rules, 1 examples, 0 failed, 0 errors")
    assert re.search(r"override rule tma_copy for h200 .*mine.rw:\d+", dplc("rules list --rules mine.rw").out)
    MINE.write_text(own + example.format("no such reason"))
    dplc("rules test mine.rw", code=1)


# ---- rules test --accept writes what rules give, or leaves a file byte for byte as it was

TOTAL = """\
## A sum of one op.
rule total on torch
match
    y = {op}(x, dim=d)
let os = axes(x)
rewrite
    y[reduced_axes(os, d, false)..] = Reduce(add, at(os, d).., x[os..])
example "of columns"
    graph f(a: f32[2, 3]) -> y: f32[3]:
        y: f32[3] = {op}(a, dim=(0))
{columns}example "of rows"
    graph f(a: f32[2, 3]) -> y: f32[2]:
        y: f32[2] = {said}(a, dim=(1))
{rows}"""
SUMS = {"op": "Sum", "said": "Sum"}
TOTALS = TOTAL.format(
    **SUMS,
    columns="gives\n    graph f(a: f32[2, 3]) -> y: f32[3]:\n        y[i:3] = Reduce(add, j:2, a[j, i])\n",
    rows="gives\n    graph f(a: f32[2, 3]) -> y: f32[2]:\n        y[i:2] = Reduce(add, j:3, a[i, j])\n",
)
DOUBLE = """\
## A sum with itself is a double.
rule twice on tensor
match
    y = add(x, x)
rewrite
    y = multiply(x, 2.0)
example "eight"
    graph f(x: f32[i:8]) -> y: f32[8]:
        y[i] = add(x[i], x[i])
gives
    graph f(x: f32[8]) -> y: f32[8]:
        y[i:8] = multiply(x[i], 3.0)
"""
RIGHT = DOUBLE.replace("3.0", "2.0")
HEAD, _, GIVEN = RIGHT.partition("gives\n")
REFUSED = """\
example "refused"
    graph f(x: f32[8]) -> y: f32[8]:
        y[i:8] = add(x[i], 1.0)
gives no "expected"

"""
REST = REFUSED + RIGHT.replace("twice", "again")  # both are errors, which keep no result from being written
SEVEN = RIGHT[RIGHT.index("example") :].replace("eight", "seven").replace("8", "7")
REMARKED = (DOUBLE.replace("example", f"{SEVEN}example")).replace("gives\n    graph f(x: f32[8])", "gives  # all\n    graph f(x: f32[8])")  # fmt: skip
NOTHING_YET = ("", "gives\n", "gives\n\n")


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        # The program is not Tensor IR: nothing stands for what it gives until the rule has fired.
        *((TOTAL.format(**SUMS, columns=gives, rows=gives), TOTALS, 0) for gives in (*NOTHING_YET, "\ngives\n")),
        *((HEAD + gives + REST, f"{HEAD}gives\n{GIVEN}{REST}", 1) for gives in NOTHING_YET),
        (REMARKED, REMARKED.replace("3.0", "2.0"), 0),
    ],
)
def test_accept_writes_results_and_nothing_else(dplc: Command, before: str, after: str, code: int) -> None:
    MINE.write_text(before)
    dplc("rules test --accept mine.rw", code=code).shows("examples rewritten")
    assert MINE.read_text() == after
    dplc("rules test --accept mine.rw", code=code).shows("0 examples rewritten")
    assert MINE.read_text() == after


@pytest.mark.parametrize("gives", ["", "gives\n"])
def test_accept_of_a_rule_that_does_not_fire_leaves_the_file(dplc: Command, gives: str) -> None:
    """The error stands where the example stands in the file that the user has."""
    text = TOTAL.format(op="Sum", said="Mean", columns=gives, rows=gives)
    before = f"\ufeff{text}".replace("\n", "\r\n").encode()
    MINE.write_bytes(before)
    line = text.split("\n").index('example "of rows"') + 1
    dplc("rules test --accept mine.rw", code=1).shows(
        f'mine.rw:{line}:1: error: example "of rows" of rule `total` did not fire'
    )
    assert MINE.read_bytes() == before


def test_accept_of_a_program_that_cannot_be_read_leaves_every_file(dplc: Command, tmp_path: Path) -> None:
    mine = TOTAL.format(**SUMS, columns="", rows="")
    texts = {"mine.rw": mine, "other.rw": mine.replace("Sum", "Prod").replace("rule total", "rule other").replace("(1)", "(x=1)")}  # fmt: skip
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    dplc("rules test --accept mine.rw other.rw", code=1).shows("other.rw:")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == texts


GUARDED = """\
## Two turns of a loop at once.
rule two_turns on tile
match
    for k in 0..K serial:
        body..
require K % 2 == 0                               else "a turn is left over"
rewrite
    for k in 0..K serial unroll=2:
        body..
example "eight turns"
    for k in 0..8 serial:
        a = load x[k]
        s <- add(s, a)
gives
    for k in 0..8 serial unroll=2:
        a = load x[k]
        s <- add(s, a)
"""


def test_accept_draws_a_program_that_each_guard_refuses(dplc: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dplc.engine.verify.run.SHRINKING_TRIES", 5)
    MINE.write_text(GUARDED)
    dplc("rules test mine.rw").shows('no example is refused because "a turn is left over"')
    dplc("rules test --accept mine.rw").shows("refusals drawn into 1 files")
    drawn = Path("refusals/mine.examples.rw")
    assert "examples two_turns\nexample" in drawn.read_text() and MINE.read_text() == GUARDED
    dplc("rules test --accept mine.rw").shows(
        "2 examples, 0 failed, 0 errors, 0 warnings", "refusals drawn into 0 files"
    )
    MINE.write_text(GUARDED.replace("K % 2 == 0", "K > 0"))  # as good as no guard
    dplc("rules test mine.rw", code=1).shows("refusals/mine.examples.rw:4:", "fires, but should refuse")


# ---- rules fmt

WILD = "rule r on tensor\nmatch\n  y=exp(x)\nrewrite\n  y=exp( x )\n"
NEAT = "rule r on tensor\nmatch\n    y = exp(x)\nrewrite\n    y = exp(x)\n"


def test_fmt_writes_files_and_reports_every_broken_one(dplc: Command, tmp_path: Path) -> None:
    for name, data in {"a.rw": b"rule\n", "b.rw": b"# caf\xe9\n", "c.rw": WILD.encode(), "d.rw": NEAT.encode()}.items():
        (tmp_path / name).write_bytes(data)
    assert dplc("rules fmt c.rw d.rw").out == "1 of 2 files changed\n"
    assert dplc("rules fmt c.rw d.rw").out == "0 of 2 files changed\n"
    (tmp_path / "c.rw").write_text(WILD)
    err = dplc("rules fmt .", code=1).err
    assert (
        "a.rw:1:" in err and "b.rw:1:6: error: byte 0xe9 is not UTF-8" in err and "help: save the file as UTF-8" in err
    )
    assert (tmp_path / "c.rw").read_text() == NEAT


def test_fmt_with_check_writes_nothing(dplc: Command) -> None:
    MINE.write_text(WILD)
    dplc("rules fmt --check mine.rw", code=1).shows("mine.rw: not laid out", "dplc rules fmt")
    assert MINE.read_text() == WILD


def test_fmt_reads_standard_input_and_byte_order_marks(dplc: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(WILD))
    assert dplc("rules fmt -").out == NEAT
    MINE.write_bytes(b"\xef\xbb\xbf" + WILD.replace("\n", "\r\n").encode())
    assert "error" not in dplc("rules test mine.rw").err
    dplc("rules fmt mine.rw")
    assert MINE.read_text() == NEAT


# ---- ops


def test_ops_lists_the_rules_of_each_op_and_what_is_missing_by_cause(dplc: Command) -> None:
    rules = ["linear", "linear_bias", "linear_vector"]
    dplc("ops").shows(f"{', '.join(rules)}\n")
    assert [entry["rule"] for entry in dplc("ops linear --json").json["linear"]] == rules
    taken, record = dplc("ops --json").json.keys(), dplc("ops --missing --json").json
    missing = record["missing"]
    assert "nonzero" in missing["give a shape that depends on values"] and "randn" in missing["draw random numbers"]
    assert not taken & {name for names in missing.values() for name in names}
    assert len(taken) > 300 and "lgamma" in taken and record["by rule"] >= len(taken) - 1
