"""Packs are made here and measured on the mock driver by a process without the compiler, which reports planted faults."""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from mock_driver import environment

from dplc.codegen.build import build_host, host_text
from dplc.codegen.compiler import find_nvrtc
from dplc.codegen.driver import Driver, DriverError, Loaded
from dplc.codegen.kernel import CudaKernel
from dplc.codegen.pack.contents import OpenPack
from dplc.codegen.pack.runner import ResultsFile, plan, sanitized
from dplc.codegen.pack.worker import load
from dplc.codegen.target import target
from dplc.engine.bench.bench import Assembled
from dplc.engine.bench.cases import Suite, read_suite
from dplc.engine.bench.records import comparison, read_results
from dplc.engine.cli.app import main
from dplc.engine.compiler import compiler_with
from dplc.engine.models.benching import PackReport, PickedSuite, pack
from dplc.ir.diagnostic import DplcError

OPERATIONS = {
    "relu": {"expression": "torch.relu(x)", "inputs": {"x": "rows 64"}},
    "masked": {"expression": "m = torch.arange(64) % 7; (x * m) @ w", "inputs": {"x": "rows 64", "w": "64 32"}},
    "product": {"expression": "x @ w", "inputs": {"x": "rows 128", "w": "128 128"}},
    "two": {"expression": "y = x * 2; (y, y.sum(-1).to(torch.bfloat16))", "inputs": {"x": "rows 64"}},
}
OVERRIDES = Path(__file__).resolve().parents[2] / "examples" / "overrides"
# What is not there on the machine with the GPU.
BLOCKED = ("dplc.engine", "dplc.codegen.build", "msgspec", "lark", "typer", "rich", "platformdirs", "pycuda")
BLOCKER = f"""
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if any(name == one or name.startswith(one + ".") for one in {BLOCKED!r}):
            raise ImportError(name + " is not on this machine")

sys.meta_path.insert(0, Blocked())
"""
SANITIZER = """#!/bin/sh
[ "$1 $3 $4" = "--tool --error-exitcode 86" ] || exit 99
shift 4
exec "$@"
"""
SPOILED = {
    "wrong": ("max_nan(", "fminf("),
    "traps": (") {\n", ") {\n  __builtin_trap();\n"),
    "crashes": (") {\n", ") {\n  *(volatile int*)8 = 1;\n"),
    "hangs": (
        ") {\n",
        ') {\n  long pause = 34;\n  asm volatile("syscall" : "+a"(pause) : : "rcx", "r11", "memory");\n',
    ),
}


def suite(folder: Path, *cases: dict[str, Any], name: str = "small") -> PickedSuite:
    """A suite of cases, each with at least a name, an operation and sizes."""
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"operations": OPERATIONS, "cases": cases}))
    made: Suite = read_suite(path)
    return PickedSuite(path, made, made.cases, name)


def case(name: str, operation: str = "relu", rows: int = 8, **more: Any) -> dict[str, Any]:
    return {"name": name, "operation": operation, "sizes": {"rows": rows}, **more}


def packed(path: Path, *suites: PickedSuite, spoiled: Sequence[str] = (), candidates: int = 0) -> PackReport:
    """A pack for the mock driver. spoiled: the n-th kernel gets the n-th fault, "" for none."""
    left = list(spoiled)

    def build(kernel: CudaKernel, arch: str) -> Assembled:
        old, new = SPOILED.get(left.pop(0) if left else "", ("", ""))
        assert old in kernel.text
        text = kernel.text.replace(old, new, 1) if old else kernel.text
        image = build_host(host_text([replace(kernel, text=text)])).read_bytes()
        return Assembled(cubin=image, registers=32, spill_bytes=0)

    with path.open("wb") as file, mock.patch("dplc.engine.bench.bench.assembled", build):
        return pack(file, suites, compiler_with(target("h200")), "dplc bench", candidates)


def unpacked(
    driver: Path, path: Path, *arguments: str, sanitizer: bool = True
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Run a pack as on another machine. Returns the process and its results."""
    lean = path.parent / "lean"
    lean.mkdir(exist_ok=True)
    (lean / "sitecustomize.py").write_text(BLOCKER)
    if sanitizer:
        (lean / "compute-sanitizer").write_text(SANITIZER)
        (lean / "compute-sanitizer").chmod(0o755)
    found = {**os.environ, **environment(driver), "PYTHONPATH": str(lean), "PATH": f"{lean}:/usr/bin:/bin"}
    found["CUDA_HOME"] = str(lean)
    out = path.parent / "results.json"
    command = [sys.executable, str(path), "--memory", "cpu", "-o", str(out), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=found, timeout=300, check=False)
    return done, json.loads(out.read_text()) if out.exists() else {}


def test_pack_is_measured_without_the_compiler(driver: Path, tmp_path: Path) -> None:
    path = tmp_path / "small.dplc"
    boxes = case("boxes", "product", 128, dtype="bfloat16", rules=[str(OVERRIDES / "copies_by_tma.rw")])
    cases = case("relu.f32"), case("again"), case("masked", "masked"), case("two.bf16", "two", dtype="bfloat16"), boxes
    made = packed(path, suite(tmp_path, *cases), candidates=1)
    assert made.cases >= 6 and not made.refused
    copied = next(one for one in OpenPack(path).cases if one.name == "boxes").program.kernels
    assert any(param.role == "tensor_map" for kernel in copied for param in kernel.params)
    done, results = unpacked(driver, path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert results["faults"] == [] and results["left"] == 0 and results["device"]["name"] == "dplc mock GPU"
    assert "bytes of other data" in results["device"]["l2"]
    for one in results["cases"]:
        assert one["status"] == "ok" and one["repeatable"] and one["error"] < 1e-2, one
        assert one["dplc"]["launched"] == "CUDA graph" and one["dplc"]["runs"] >= 10
        if one["candidate"] is None:
            assert one["eager"]["median_us"] > 0 and one["torch_compile"]["compile_seconds"] > 0
    again = next(one for one in results["cases"] if one["name"] == "again")
    assert again["same"] == "relu.f32" and again["dplc"] == results["cases"][0]["dplc"]
    assert {(one["tool"], one["status"]) for one in results["sanitizer"]} == {
        (tool, "ok") for tool in ("memcheck", "racecheck", "synccheck")
    }
    shown = comparison(read_results(tmp_path / "results.json"))
    assert "| relu.f32 |" in shown and "5 of 5 right" in shown and "12 of 12 runs clean" in shown


def test_faults_are_reported_and_the_next_cases_are_measured(driver: Path, tmp_path: Path) -> None:
    path = tmp_path / "faults.dplc"
    rows = {"good": 8, "wrong": 9, "traps": 10, "hangs": 11, "crashes": 12, "last": 13}
    chosen = suite(tmp_path, *(case(name, rows=n) for name, n in rows.items()))
    packed(path, chosen, spoiled=["", "wrong", "traps", "hangs", "crashes"])
    done, results = unpacked(driver, path, "--limit", "9", sanitizer=False)
    assert done.returncode == 1, done.stdout + done.stderr
    found = {one["name"]: one for one in results["cases"]}
    assert [found[name]["status"] for name in rows] == ["ok", "wrong", "failed", "timeout", "failed", "ok"]
    assert "WRONG at" in found["wrong"]["detail"] and "dplc" not in found["wrong"]
    assert re.search("error 700|died of", found["traps"]["detail"])
    assert found["hangs"]["detail"] == "no result after 9 seconds: killed"
    assert found["last"]["dplc"]["median_us"] > 0
    assert sum("(measure)" in fault for fault in results["faults"]) == 4
    assert "small, memcheck: compute-sanitizer is not here" in results["faults"] and results["sanitizer"] == []


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("echo 0 errors", "ok"),
        ("echo Invalid write; exit 86", "wrong"),
        ("echo no; exit 1", "failed"),
        ("sleep 60 & sleep 60", "timeout"),
        ("echo Device not supported; exit 1", "unusable"),
    ],
)
def test_sanitizer_reports_what_its_exit_code_says(script: str, status: str) -> None:
    assert sanitized(["/bin/sh", "-c", script], 2.0)["status"] == status


def test_results_are_kept_when_the_minutes_are_over(driver: Path, tmp_path: Path) -> None:
    path = tmp_path / "small.dplc"
    packed(path, suite(tmp_path, case("one"), case("two", rows=9)))
    done, results = unpacked(driver, path, "--minutes", "0.01")
    assert done.returncode == 0 and results["cases"] == [] and results["left"] == 2 + 6 + 2
    (tmp_path / "results.json").write_text("mine")
    command = [sys.executable, str(path), "-o", str(tmp_path / "results.json")]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 1 and "holds no results" in refused.stderr


def test_plan_adds_up_and_puts_the_first_suites_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "four.dplc"
    suites = [suite(tmp_path, case("a", rows=n), name=f"s{n}") for n in (1, 2, 3, 4)]
    packed(path, *suites, candidates=1)
    shown = plan(OpenPack(path))
    order = [line.split("  ")[0] for line in shown.splitlines()[:-1]]
    assert order == [
        "s1, measure", "s1, memcheck", "s2, measure", "s3, measure", "s2, compile", "s3, compile", "candidates, measure",
        "s1, racecheck", "s1, synccheck", "s4, measure", "s1, compile", "s4, compile",
    ]  # fmt: skip
    chosen = plan(OpenPack(path), ["candidates", "synccheck"]).splitlines()[:-1]  # as --only
    assert [line.split("  ")[0] for line in chosen] == ["candidates, measure", "s1, synccheck"]
    with pytest.raises(SystemExit) as stop:
        main(["bench", "--unpack", str(path), "--plan"])
    assert not stop.value.code and capsys.readouterr().out == shown + "\n"


def test_pack_holds_what_its_runner_imports(tmp_path: Path) -> None:
    """And the same suites make the same file."""
    one, other = tmp_path / "one.dplc", tmp_path / "other.dplc"
    for path in (one, other):
        packed(path, suite(tmp_path, case("a")))
    assert one.read_bytes() == other.read_bytes()
    names = zipfile.ZipFile(one).namelist()
    assert names[0] == "pack.json" and not [name for name in names if "engine" in name]
    program = "import dplc.codegen.pack.runner, sys; print('torch' in sys.modules, 'numpy' in sys.modules)"
    (tmp_path / "sitecustomize.py").write_text(BLOCKER)
    found = {**os.environ, "PYTHONPATH": f"{tmp_path}:{one}"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=found, check=False)
    assert done.stdout.split()[0] == "False", done.stderr


@pytest.mark.skipif(find_nvrtc() is None, reason="NVRTC is not here")
def test_text_is_compiled_where_the_driver_rejects_a_cubin(tmp_path: Path) -> None:
    """The driver is older than the assembler of the pack: the NVRTC of the machine gets the text and the headers."""
    path = tmp_path / "small.dplc"
    packed(path, suite(tmp_path, case("a")))
    made, images = OpenPack(path), list[bytes]()
    (kernel,) = made.cases[0].program.kernels

    class Rejecting(Driver):
        version = 13000

        def __init__(self) -> None: ...

        def load(self, kernel: CudaKernel, image: bytes) -> Loaded:
            images.append(image)
            if len(images) == 1:
                raise DriverError("cuModuleLoadDataEx: error 209 of the driver", 209)
            return Loaded(ctypes.c_void_p(), kernel, 32, 0)

    assert load(Rejecting(), made, kernel).kernel == kernel
    assert images[0] == made.cubin(kernel) != images[1] and images[1][:4] == b"\x7fELF" and b"sm_90a" in images[1]


def test_files_that_are_no_packs_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "no.dplc"
    path.write_text("no")
    with pytest.raises(DplcError, match="is not a pack"):
        OpenPack(path)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("pack.json", '{"format": 99}')
    with pytest.raises(DplcError, match="is of format 99; this dplc reads 1"):
        OpenPack(path)


def test_results_are_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "small.dplc"
    packed(path, suite(tmp_path, case("a")))
    results = ResultsFile(OpenPack(path), tmp_path / "results.json")
    results.check()
    results.check()
    assert read_results(results.path).cases == [] and [p.name for p in tmp_path.glob(".results*")] == []
