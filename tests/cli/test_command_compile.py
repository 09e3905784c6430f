"""`dplc compile` of expressions and dumps: every stage, the trace's markers, the record of --json; and `dplc fuse`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_line import MATMUL, SOFTMAX, Command

from dplc.ir.program import LEVELS
from dplc.version import __version__

TIMINGS = ["capture", "torch", "tensor", "fusion", "tile", "kernel", "cuda"]


def test_every_kernel_of_a_split_sum_names_its_rules(dplc: Command) -> None:
    out = dplc("compile --target h200 --no-db -c 'torch.randn(64, 4096) @ torch.randn(4096, 64)'").out
    assert out.startswith("// rules: tileify ") and "__global__" in out
    first, second = (part.split("// grid")[0].replace("\n//", "").split() for part in out.split("// rules:")[1:])
    shared = {"tileify", "chunk_matmul_k", "split_matmul_k"}
    assert {*first} >= shared | {"register_tile", "stage_inputs"} and {*second} >= shared | {"column_reduce"}
    assert "stage_inputs" not in second  # each its own


def test_json_is_the_record(dplc: Command) -> None:
    done = dplc("compile --json --target h200 -c", f"print('hello')\n{SOFTMAX}")
    assert done.err == "hello\n"  # what a text prints is not our output
    (kernel,) = done.json["kernels"]
    assert (kernel["name"], kernel["grid"]) == ("softmax", [64, 1, 1]) and "__global__" in kernel["text"]
    assert (done.json["dplc"], done.json["target"]) == (__version__, "sm_90a") and "trace" not in done.json
    assert list(done.json["timings"]) == TIMINGS and min(done.json["timings"].values()) >= 0
    traced = dplc(f"compile --json -v --ir tile -c '{SOFTMAX}'")
    assert {event["event"] for event in traced.json["trace"]} == {"fired", "skipped"}
    assert traced.json["ir"].startswith("## level: tile") and traced.err == ""


def test_why_not_says_why_one_rule_or_each_did_not_match(dplc: Command) -> None:
    plain = dplc(f"compile -vv -c '{SOFTMAX}'")
    assert (
        plain.out == dplc(f"compile --ir cuda -c '{SOFTMAX}'").out
    )  # the trace is among the errors, and CUDA the default
    assert "\n--- " not in plain.err and re.search(r"^\d+ rules did not match: --why-not each", plain.err, re.MULTILINE)
    one = dplc(f"compile --why-not split_matmul_k -c '{SOFTMAX}'").err
    assert one.startswith("--- t:003_split_matmul_k skipped at softmax: ") and one.count("\n") == 1


def test_vv_is_a_diff_between_markers_and_a_reason_for_every_refusal(dplc: Command) -> None:
    out = dplc(f"compile -vv --why-not each -c '{MATMUL}'").err
    opened, closed = (re.findall(rf"^{marker} (\S+)$", out, re.MULTILINE) for marker in (">>>", "<<<"))
    assert opened == closed
    assert {"d:matmul", "f:fuse", "t:001_tileify", "t:007_stage_inputs", "t:spread_rows"} <= set(opened)
    assert "-matmul[i, j] = mat(Reduce(add, k, product))\n+matmul[i, j] = Reduce(add, k, product)\n" in out
    (body,) = re.findall(r"^>>> t:007_stage_inputs\n(.*?)^<<< t:007_stage_inputs$", out, re.MULTILINE | re.DOTALL)
    for line in (r"@@ -\d+,\d+ \+\d+,\d+ @@$", r"\+ +x_smem = Stage\(x, ", r"- +x1 = load x\["):
        assert re.search(rf"^{line}", body, re.MULTILINE)
    assert re.search(r"^--- t:003_split_matmul_k skipped at matmul_add_relu: .+", out, re.MULTILINE)
    done = dplc(
        "compile -vv --ir loop --why-not each -c 'torch.randn(300, 40) @ torch.randn(40, 50) @ torch.randn(50, 300)'"
    )
    assert done.out.count("\nkernel ") == 2
    assert re.search(r"^--- f:fuse skipped at main\.\w+: rules/fusion/fuse\.rw:\d+: \w+: .*\"", done.err, re.MULTILINE)


def test_own_rules_a_file_and_a_folder(dplc: Command, tmp_path: Path) -> None:
    one = "rule {} on tensor\nmatch\n    y = {}(x)\nrewrite\n    y = add(x, 3.0)\n"
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "first.rw").write_text(one.format("first", "sin"))
    (tmp_path / "second.rw").write_text(one.format("second", "cos"))
    dplc("compile -v --rules folder --rules second.rw -c 'torch.randn(8).sin().cos()'").shows(
        "a:first first at main sin_1 folder/first.rw:1", "a:second second at main cos_1"
    )


# ---- dumps, edited or written by hand

FILE = Path("program.ir")
PROGRAMS = (
    "torch.softmax(torch.randn(8, 16) @ torch.randn(16, 5), -1)",
    "torch.randn(17, 33)[torch.randint(0, 17, (9,))].sum(-1)",
    "(lambda x: (x.sum(0), torch.cat([x, x * 2])[1:]))(torch.randn(3, 4))",
    "torch.randn(8, 4096) @ torch.randn(4096, 8)",  # two kernels: the sum is split
)
BY_HAND = """\
## level: tensor
graph scaled(x: f32[6, 35], w: f32[35]) -> y: f32[6]:
    product[i:6, k:35] = multiply(x[i, k], w[k])
    total[i] = Reduce(add, k, product)
    y[i] = tanh(total)
"""
LOOKED_UP = """\
## level: torch
graph main(t: f32[5, 4], i: i64[3]) -> y: f32[3, 4]:
    y: f32[3, 4] = Embedding(t, i)
"""
TWO_KERNELS = """\
## level: loop
kernel f(x: f32[6, 4]) -> sums: f32[6]:
    for i in 0..6 free:
        for k in 0..4 reduce:
            a = load x[i, k]
            s <- add(s, a)
        sums[i] = s

kernel g(sums: f32[6]) -> y: f32[6]:
    for i in 0..6 free:
        a = load sums[i]
        y[i] = exp(a)
"""


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("text", PROGRAMS)
@pytest.mark.sampled(4)
def test_a_dump_goes_on_to_the_same_cuda(dplc: Command, text: str, level: str) -> None:
    FILE.write_text(dplc(f"compile --ir {level} -c '{text}'").out)
    if level in ("loop", "tile", "kernel"):  # before, names come from where ops stood
        again, once = (
            re.sub(r"(?m)^//.*\n", "", dplc(*line).out) for line in ((f"compile {FILE}",), ("compile -c", text))
        )
        assert again == once
    dplc(f"run {FILE}").shows(": ok")


@pytest.mark.parametrize("text", [LOOKED_UP, BY_HAND, BY_HAND.replace("tanh", "exp"), TWO_KERNELS])
def test_dumps_of_ones_own_compile_and_run(dplc: Command, text: str) -> None:
    FILE.write_text(text)
    assert ("tanhf(" in dplc(f"compile {FILE}").out) == ("tanh" in text)
    dplc(f"run {FILE}").shows(": ok")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BY_HAND.replace("## level: tensor\n", ""), "does not say its level"),
        (BY_HAND.replace("tensor", "tensr", 1), "unknown level `tensr`"),
        ("## level: tensor\n", "holds no program"),
        ("## level: loop\nkernel f(x: f32[i]) -> y: f32[4]:\n    y[0] = 1.0\n", "neither a number nor made of sizes"),
        (BY_HAND.replace("x[i, k]", "x[i, q]"), "q"),
        (BY_HAND.replace("x[i, k]", "x[i, k + 9]"), "an index in 9..44 reads axis"),
        (BY_HAND.replace("multiply(x[i, k], w[k])", "Case(k < 1.5, x[i, k], w[k])"), "which are whole numbers"),
        (BY_HAND + BY_HAND.split("\n", 1)[1].replace("scaled", "again"), "one graph"),
        (LOOKED_UP.replace("y: f32[3, 4] = ", "y: f32[9, 4] = "), "torch gives float32[3, 4]"),
        (LOOKED_UP.replace("i: i64", "i: f32"), "torch refuses it"),
        (TWO_KERNELS.replace("sums: f32[6]) -> y", "sums: f32[7]) -> y"), "`sums` is f32[7] to kernel `g`"),
    ],
)
def test_what_is_wrong_in_a_dump_is_said(dplc: Command, text: str, said: str) -> None:
    FILE.write_text(text)
    for command in ("compile", "run"):
        dplc(f"{command} {FILE}", code=1).shows(said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (LOOKED_UP.replace("t: f32[5, 4]", "t: f32[1, 4]"), "error: "),  # values decide: torch refuses the drawn places
        (LOOKED_UP.replace("5, 4", "68719476736, 4"), "this machine has"),  # it fits no memory
        (BY_HAND.replace("6", "68719476736"), "this machine has"),
    ],
)
def test_what_compiles_and_cannot_run_is_said(dplc: Command, text: str, said: str) -> None:
    FILE.write_text(text)
    dplc(f"compile {FILE}")
    dplc(f"run {FILE}", code=1).shows(said)


# ---- fuse, and --explore

PAIR = "x = torch.randn(8, 16)\nx.mean(1), x.var(1, unbiased=False)"


def test_fuse_shows_candidates_best_first(dplc: Command) -> None:
    pytest.importorskip("egglog.bindings")
    record = dplc(f"fuse --explore --top 3 --json -c '{PAIR}'").json
    times, kernels = ([one[name] for one in record["candidates"]] for name in ("predicted_us", "kernels"))
    assert record["basis"] == "predicted" and times == sorted(times) and kernels[0] == 1 < kernels[-1]
    assert {"bytes", "rules"} <= record["candidates"][0].keys()
    for number, count in enumerate(kernels, 1):
        assert (
            dplc(f"fuse --explore --top 3 --candidate {number} --ir loop -c '{PAIR}'").out.count("\nkernel ") == count
        )
    assert [one["label"] for one in dplc(f"fuse --json -c '{PAIR}'").json["candidates"]] == ["rules"]


def test_a_candidate_runs(dplc: Command) -> None:
    pytest.importorskip("egglog.bindings")
    text = "nn.Sequential(nn.RMSNorm(32), nn.Linear(32, 24, bias=False))(torch.randn(20, 32))"
    dplc(f"fuse --explore --run --device emulator -c '{text}'").shows(": ok")
    record = dplc(f"run --explore --json --device emulator -c '{PAIR}'").json
    assert record["ok"] and len(record["kernels"]) == 1
