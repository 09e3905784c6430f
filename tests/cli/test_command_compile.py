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
    out = ok("compile", "-c", SOFTMAX, "--ir", stage).out
    assert out.startswith(f"## level: {stage}\n")
    level, units = read_program(out)
    assert level == stage
    assert print_program(units, stage) == out


def test_cuda_is_the_default_and_names_its_rules(ok: Command) -> None:
    out = ok("compile", "-c", SOFTMAX).out
    assert out == ok("compile", "-c", SOFTMAX, "--ir", "cuda").out
    assert out.startswith("// rules: tileify ")
    assert "__global__" in out


def test_every_kernel_of_a_split_sum_names_its_rules(ok: Command) -> None:
    out = ok("compile", "-c", "torch.randn(64, 4096) @ torch.randn(4096, 64)", "--target", "h200", "--no-db").out
    first, second = ("// rules:" + part.split("// grid")[0].replace("\n//", "") for part in out.split("// rules:")[1:])
    assert all(" tileify chunk_matmul_k split_matmul_k " in said for said in (first, second))
    assert "register_tile" in first and "column_reduce" in second  # each its own


def test_the_record(ok: Command) -> None:
    record = json.loads(ok("compile", "-c", SOFTMAX, "--json").out)
    assert record.pop("dplc") == dplc.__version__
    assert list(record["timings"]) == TIMINGS
    assert all(ms >= 0 for ms in record["timings"].values())
    (kernel,) = record["kernels"]
    assert kernel["name"] == "softmax"
    assert kernel["grid"] == [64, 1, 1]
    assert "__global__" in kernel["text"]
    assert "trace" not in record


def test_the_record_with_its_trace(ok: Command) -> None:
    record = json.loads(ok("compile", "-c", SOFTMAX, "--json", "-v", "--ir", "tile").out)
    assert {event["event"] for event in record["trace"]} == {"fired", "skipped"}
    assert record["ir"].startswith("## level: tile")


def test_v_is_a_line_a_firing(ok: Command) -> None:
    lines = ok("compile", "-c", MATMUL, "-v").err.splitlines()
    assert any(re.match(r"d:matmul \w+ at main matmul rules/torch/matmul\.rw:\d+$", line) for line in lines)
    assert any(line.startswith("f:fuse fuse_epilogue at main matmul into add_1 ") for line in lines)
    assert any(
        re.match(r"t:007_stage_inputs stage_inputs at \w+ .* rules/tile/memory/stage_inputs\.rw:\d+$", x) for x in lines
    )
    assert all(re.match(r"[daflktm]:\w+ \w+ at ", line) for line in lines)


def test_v_leaves_standard_output_to_the_result(ok: Command) -> None:
    assert ok("compile", "-c", SOFTMAX, "-vv").out == ok("compile", "-c", SOFTMAX).out


def test_json_has_the_trace_in_itself(ok: Command) -> None:
    for command in ("compile", "run"):
        assert ok(command, "-c", SOFTMAX, "-v", "--json").err == ""


def test_why_not_says_why_one_rule_or_each_did_not_match(ok: Command) -> None:
    plain = ok("compile", "-c", SOFTMAX, "-vv").err
    assert "\n--- " not in plain and re.search(r"^\d+ rules did not match: --why-not each", plain, re.MULTILINE)
    one = ok("compile", "-c", SOFTMAX, "--why-not", "split_matmul_k").err
    assert one.startswith("--- t:003_split_matmul_k skipped at softmax: ") and one.count("\n") == 1
    assert "--- t:003_split_matmul_k " in ok("compile", "-c", SOFTMAX, "-vv", "--why-not", "each").err


def test_vv_is_a_diff_between_markers_and_a_reason_for_every_refusal(ok: Command) -> None:
    out = ok("compile", "-c", MATMUL, "-vv", "--why-not", "each").err
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
        "compile",
        "-c",
        "torch.randn(300, 40) @ torch.randn(40, 50) @ torch.randn(50, 300)",
        "-vv",
        "--ir",
        "loop",
        "--why-not",
        "each",
    )
    assert done.out.count("\nkernel ") == 2
    assert re.search(r"^--- f:fuse skipped at main\.\w+: rules/fusion/fuse\.rw:\d+: \w+: .*\"", done.err, re.MULTILINE)
    fused = ok("compile", "-c", MATMUL, "-vv", "--ir", "loop").err
    assert "-matmul[i, j] = mat(Reduce(add, k, product))\n+matmul[i, j] = Reduce(add, k, product)\n" in fused


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_120", "h200"])
def test_targets(ok: Command, target: str) -> None:
    record = json.loads(ok("compile", "-c", MATMUL, "--json", "--target", target).out)
    assert record["target"] == {"h200": "sm_90a"}.get(target, target)


def test_own_rules_a_file_and_a_folder(ok: Command, tmp_path: Path) -> None:
    one = "rule {} on tensor\nmatch\n    y = {}(x)\nrewrite\n    y = add(x, 3.0)\n"
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "first.rw").write_text(one.format("first", "sin"))
    (tmp_path / "second.rw").write_text(one.format("second", "cos"))
    text = "torch.randn(8).sin().cos()"
    out = ok("compile", "-c", text, "-v", "--rules", f"{tmp_path}/folder", "--rules", f"{tmp_path}/second.rw").err
    assert f"a:first first at main sin_1 {tmp_path}/folder/first.rw:1" in out
    assert "a:second second at main cos_1" in out


def test_what_a_text_prints_is_not_our_output(ok: Command) -> None:
    done = ok("compile", "-c", "print('hello')\ntorch.randn(3) + 1", "--json")
    assert json.loads(done.out)["kernels"]
    assert done.err == "hello\n"


def test_every_kernel_of_a_split_names_the_rules_that_shaped_it(ok: Command) -> None:
    out = ok("compile", "--target", "h200", "-c", "torch.randn(64, 4096) @ torch.randn(4096, 64)").out
    comments = [" ".join(found.split()) for found in re.findall(r"^// rules: (.*(?:\n//  +.*)*)", out, re.M)]
    assert len(comments) == 2
    assert all(comment.startswith("tileify chunk_matmul_k split_matmul_k ") for comment in comments)
    assert "stage_inputs" in comments[0] and "stage_inputs" not in comments[1]
