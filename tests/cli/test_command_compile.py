"""`dplc compile`: every stage, the trace's markers, the record of --json."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from command_line import MATMUL, SOFTMAX, Command

import dplc
from dplc.ir.text.programs import print_program, read_program

TIMINGS = ["capture", "torch", "tensor", "fusion", "tile", "kernel", "cuda"]


@pytest.mark.parametrize("stage", ["torch", "tensor", "loop", "tile", "kernel"])
def test_a_stage_is_a_dump_that_reads_back(ok: Command, stage: str) -> None:
    out = ok(f"compile --ir {stage} -c", SOFTMAX).out
    assert out.startswith(f"## level: {stage}\n")
    level, units = read_program(out)
    assert level == stage
    assert print_program(units, stage) == out


def test_cuda_is_the_default_and_names_its_rules(ok: Command) -> None:
    out = ok("compile -c", SOFTMAX).out
    assert out == ok("compile --ir cuda -c", SOFTMAX).out
    assert out.startswith("// rules: tileify ")
    assert "__global__" in out


def test_every_kernel_of_a_split_sum_names_its_rules(ok: Command) -> None:
    out = ok("compile --target h200 --no-db -c", "torch.randn(64, 4096) @ torch.randn(4096, 64)").out
    first, second = ("// rules:" + part.split("// grid")[0].replace("\n//", "") for part in out.split("// rules:")[1:])
    assert all(" tileify chunk_matmul_k split_matmul_k " in said for said in (first, second))
    assert "register_tile" in first and "column_reduce" in second  # each its own
    assert "stage_inputs" in first and "stage_inputs" not in second


def test_the_record(ok: Command) -> None:
    record = json.loads(ok("compile --json -c", SOFTMAX).out)
    assert record.pop("dplc") == dplc.__version__
    assert list(record["timings"]) == TIMINGS
    assert all(ms >= 0 for ms in record["timings"].values())
    (kernel,) = record["kernels"]
    assert kernel["name"] == "softmax"
    assert kernel["grid"] == [64, 1, 1]
    assert "__global__" in kernel["text"]
    assert "trace" not in record


def test_the_record_with_its_trace(ok: Command) -> None:
    done = ok("compile --json -v --ir tile -c", SOFTMAX)
    record = json.loads(done.out)
    assert {event["event"] for event in record["trace"]} == {"fired", "skipped"}
    assert record["ir"].startswith("## level: tile")
    assert done.err == ok("run --json -v -c", SOFTMAX).err == ""


def test_v_is_a_line_a_firing(ok: Command) -> None:
    lines = ok("compile -v -c", MATMUL).err.splitlines()
    assert any(re.match(r"d:matmul \w+ at main matmul rules/torch/matmul\.rw:\d+$", line) for line in lines)
    assert any(line.startswith("f:fuse fuse_epilogue at main matmul into add_1 ") for line in lines)
    assert any(
        re.match(r"t:007_stage_inputs stage_inputs at \w+ .* rules/tile/memory/stage_inputs\.rw:\d+$", x) for x in lines
    )
    assert all(re.match(r"[daflktm]:\w+ \w+ at ", line) for line in lines)


def test_v_leaves_standard_output_to_the_result(ok: Command) -> None:
    assert ok("compile -vv -c", SOFTMAX).out == ok("compile -c", SOFTMAX).out


def test_why_not_says_why_one_rule_or_each_did_not_match(ok: Command) -> None:
    plain = ok("compile -vv -c", SOFTMAX).err
    assert "\n--- " not in plain and re.search(r"^\d+ rules did not match: --why-not each", plain, re.MULTILINE)
    one = ok("compile --why-not split_matmul_k -c", SOFTMAX).err
    assert one.startswith("--- t:003_split_matmul_k skipped at softmax: ") and one.count("\n") == 1
    assert "--- t:003_split_matmul_k " in ok("compile -vv --why-not each -c", SOFTMAX).err


def test_vv_is_a_diff_between_markers_and_a_reason_for_every_refusal(ok: Command) -> None:
    out = ok("compile -vv --why-not each -c", MATMUL).err
    opened = re.findall(r"^>>> (\S+)$", out, re.MULTILINE)
    closed = re.findall(r"^<<< (\S+)$", out, re.MULTILINE)
    assert opened == closed
    assert {"d:matmul", "f:fuse", "t:001_tileify", "t:007_stage_inputs", "t:spread_rows"} <= set(opened)
    body = re.search(r"^>>> t:007_stage_inputs\n(.*?)^<<< t:007_stage_inputs$", out, re.MULTILINE | re.DOTALL)
    assert body is not None
    assert re.search(r"^@@ -\d+,\d+ \+\d+,\d+ @@$", body[1], re.MULTILINE)
    assert re.search(r"^\+ +x_smem = Stage\(x, ", body[1], re.MULTILINE)
    assert re.search(r"^- +x1 = load x\[", body[1], re.MULTILINE)
    assert re.search(r"^--- t:003_split_matmul_k skipped at matmul_add_relu: .+", out, re.MULTILINE)


def test_a_fusion_that_fires_and_one_that_does_not(ok: Command) -> None:
    done = ok(
        "compile -vv --ir loop --why-not each -c", "torch.randn(300, 40) @ torch.randn(40, 50) @ torch.randn(50, 300)"
    )
    assert done.out.count("\nkernel ") == 2
    assert re.search(r"^--- f:fuse skipped at main\.\w+: rules/fusion/fuse\.rw:\d+: \w+: .*\"", done.err, re.MULTILINE)
    fused = ok("compile -vv --ir loop -c", MATMUL).err
    assert "-matmul[i, j] = mat(Reduce(add, k, product))\n+matmul[i, j] = Reduce(add, k, product)\n" in fused


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_120", "h200"])
def test_targets(ok: Command, target: str) -> None:
    record = json.loads(ok(f"compile --json --target {target} -c", MATMUL).out)
    assert record["target"] == {"h200": "sm_90a"}.get(target, target)


def test_own_rules_a_file_and_a_folder(ok: Command, tmp_path: Path) -> None:
    one = "rule {} on tensor\nmatch\n    y = {}(x)\nrewrite\n    y = add(x, 3.0)\n"
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "first.rw").write_text(one.format("first", "sin"))
    (tmp_path / "second.rw").write_text(one.format("second", "cos"))
    text = "torch.randn(8).sin().cos()"
    out = ok(f"compile -v --rules {tmp_path}/folder --rules {tmp_path}/second.rw -c", text).err
    assert f"a:first first at main sin_1 {tmp_path}/folder/first.rw:1" in out
    assert "a:second second at main cos_1" in out


def test_what_a_text_prints_is_not_our_output(ok: Command) -> None:
    done = ok("compile --json -c", "print('hello')\ntorch.randn(3) + 1")
    assert json.loads(done.out)["kernels"]
    assert done.err == "hello\n"
