"""Agreement of predictions, device files, `dplc model fit`. The figures of the example are synthetic."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import Command

from dplc.codegen.target import DEVICES, Target, target
from dplc.engine.cost.instruction_counts import counts_of
from dplc.engine.cost.predict import Agreement, MeasuredVariant, agreement, kendall, predict
from dplc.engine.tune import fit
from dplc.ir.diagnostic import UsageError

EXAMPLE = Path(__file__).with_name("synthetic_measurements.jsonl")


# ---- agreement


def test_tau_by_hand() -> None:
    assert kendall([4, 1, 3, 2], [3, 1, 4, 2]) == pytest.approx(4 / 6)
    assert kendall([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(5 / (5 * 6) ** 0.5)  # 5 pairs agree, one ties


def test_the_whole_of_an_agreement_is_the_mean_of_its_kernels() -> None:
    """tau: of one kernel -1, of the other 1; loss: twofold, and nothing. A kernel of one variant has no tau."""
    bad = [MeasuredVariant("a", 1.0, 2.0), MeasuredVariant("a", 2.0, 1.0)]
    good = [MeasuredVariant("b", 1e3, 1e3), MeasuredVariant("b", 2e3, 3e3)]
    single = MeasuredVariant("c", 1.0, 1.0)
    assert agreement([good[0], *bad, good[1]]) == Agreement("all", 4, 0.0, 0.5, 1.25, pytest.approx(2**0.5))
    assert agreement([single]).tau is None and agreement([single, *good]).tau == 1.0


# ---- device files


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("sm = 90\n", "", "`sm` is not there"),
        ("sm = 90\n", 'sm = "90"\n', "`sm` is '90'; it must be a number above 0"),
        ("blocks = 32", "blocks = 0", "`blocks` is 0"),
        ("blocks = 32", "blocks = true", "`blocks` is True"),
        ('name = "NVIDIA H200"', "name = 200", "`name` is 200; it must be a text"),
        ("blocks = 32", "blocks = ", "is not TOML"),
        (None, "", "cannot read the device file"),
    ],
)
def test_a_device_file_that_is_wrong_is_told(tmp_path: Path, old: str | None, new: str, said: str) -> None:
    path = tmp_path / "mine.toml"
    if old is not None:
        path.write_text((DEVICES / "h200.toml").read_text().replace(old, new, 1))
    with pytest.raises(UsageError) as wrong:
        target(str(path))
    assert said in wrong.value.render() and str(path) in wrong.value.render()


# ---- fitting


RESULTS = """{"format": "dplc results 1", "pack": {}, "device": {"name": "NVIDIA H200"}, "seconds": 1.0, "left": 0,
"faults": [], "sanitizer": [], "cases": [{"suite": "s", "dtype": "float32", "rules": [], "same": "", "texts": "",
"candidate": null, "status": "ok", "predicted_us": 1.0, "least_us": 1.0, "dplc": {"low_us": 1.0, "high_us": 1.0,
"warm_us": 1.0, "runs": 20, "within": 0.01, "launched": "CUDA graph"}}]}"""


def measured_by(path: Path, device: Target) -> Path:
    """Results of a pack: the example's kernels, as a device with these constants would measure them."""
    results = json.loads(RESULTS)
    (case,) = results.pop("cases")
    results["cases"] = cases = []
    for one in map(json.loads, EXAMPLE.read_text().splitlines()):
        seconds = sum(predict(counts_of(launch), device).seconds for launch in one["launches"])
        times = {**case["dplc"], "median_us": seconds * 1e6}
        cases.append({**case, "name": one["kernel"], "launches": one["launches"], "dplc": times})
    path.write_text(json.dumps(results))
    return path


def test_fit_brings_predictions_near_a_slower_device(
    tmp_path: Path, dplc: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = target("h200")
    slower = replace(base, dram_share=0.7, clock=base.clock * 0.8, launch_seconds=3.1e-6)
    results, out = measured_by(tmp_path / "results.json", slower), tmp_path / "fitted.toml"
    found = dplc("model fit", results, "--out", out, "--json").json
    rows = {(row["points"], row["constants"]): row for row in found["rows"]}
    assert rows["all", "published"]["error"] > 0.1 > 0.02 > rows["all", "fitted to all"]["error"]
    assert rows["the rest", "published"]["error"] > 0.1 > rows["the rest", "fitted to one half"]["error"]
    assert rows["all", "fitted to all"]["tau"] > 0.99
    assert target(str(out)).launch_seconds == pytest.approx(3.1e-6, rel=0.1)
    assert out.read_text().startswith("# Fitted by `dplc model fit` on NVIDIA H200: dram_share")
    monkeypatch.setattr(fit, "STEPS", (1.25,))
    dplc("model fit", results, "--out", out).shows("fitted to all", "launch_seconds")
