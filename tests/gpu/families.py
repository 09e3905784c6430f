"""Every family of kernels once or twice, small: what must be right on a device before anything on it is timed.

The cases are those of `examples/suites/families.json`. `check` runs one three times, so that launches, a capture and a
replay are all looked at, and compares each with float64. test_on_gpu.py does so on a GPU, families_on_mock.py on the
mock driver.
"""

from __future__ import annotations

from pathlib import Path

from dplc.codegen.judge import judge
from dplc.codegen.launch import CudaExecutor
from dplc.codegen.target import Target
from dplc.engine.api import Compiled
from dplc.engine.bench.cases import read_suite, subject_of
from dplc.engine.compiler import compiler_with
from dplc.engine.run.calls import run_eager, run_reference

SUITE = read_suite(Path(__file__).resolve().parents[2] / "examples" / "suites" / "families.json")
CASES = {case.name: case for case in SUITE.cases}


def check(name: str, target: Target, executor: CudaExecutor, place: str) -> str:
    """What is wrong with a case on a device, "" if nothing. place: of its tensors, for torch."""
    subject = subject_of(SUITE, CASES[name])
    captured = subject.capture()
    compiled = Compiled(compiler_with(target).compile(captured), "cuda")
    compiled.executor = executor
    given = {**captured.tensors, **dict(zip(captured.inputs, subject.inputs().values(), strict=True))}
    tensors = {key: tensor.to(place) for key, tensor in given.items()}
    reference, eager = run_reference(captured, given), run_eager(captured, given, target)
    for turn in ("launched", "captured", "replayed"):
        results = [result.cpu() for result in compiled.run(tensors)]
        if compiled.notes:
            return f"{turn}: {compiled.notes}"
        found = judge(results, reference, eager)
        if not found.ok:
            return f"{turn}: {found}"
    return ""
