"""How many of the ninety programs of `limits.json` are predicted near what the device can do: as many as were asked for."""

from __future__ import annotations

from pathlib import Path

from drawing import some

from dplc.codegen.target import target
from dplc.engine.bench.bench import compile_all
from dplc.engine.bench.cases import read_suite, subject_of
from dplc.engine.compiler import compiler_with

SUITE = Path(__file__).parents[2] / "examples" / "suites" / "limits.json"
NEAR, FAR = 1.3, 3.0  # times the bound; the farthest is a pad, which starts many blocks (2.7, an H200 took 3.6)
LEAST_NEAR = 80 / 90  # of the programs


def test_programs_stay_near_their_bounds() -> None:
    suite = read_suite(SUITE)
    cases = some(suite.cases, 8)
    subjects = [subject_of(suite, case) for case in cases]
    records, _, _ = compile_all(subjects, lambda: compiler_with(target("h200")), lambda text: None)
    assert not [one.error for one in records if one.error]
    ratios = {one.name: one.predicted_us / one.least_us for one in records if one.predicted_us and one.least_us}
    assert len(ratios) == len(cases) and len(suite.cases) == 90
    assert sum(ratio <= NEAR for ratio in ratios.values()) >= int(LEAST_NEAR * len(cases))
    assert [name for name, ratio in ratios.items() if ratio > FAR] == []
