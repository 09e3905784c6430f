"""The GPU path without a GPU: the real PyCUDA loads and launches emulated kernels through a mock of the CUDA driver.

Needs CUDA headers (found through nvcc) and PyCUDA; `sh tests/gpu/build_pycuda.sh` builds the latter without a driver.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from mock_driver import environment

HERE = Path(__file__).parent
SCENARIOS = [
    f"{module}.{name}"
    for module in (
        "on_mock_driver",
        "graphs_on_mock",
        "devices_on_mock",
        "families_on_mock",
        "benches_on_mock",
        "lengths_on_mock",
    )
    for name in re.findall(r"^def ([a-z]\w+)\(\) -> None:", (HERE / f"{module}.py").read_text(), re.MULTILINE)
    if name != "every_family"
]


def run(driver: Path, *scenarios: str) -> dict[str, str]:
    """What went wrong with each scenario, "" if nothing."""
    command = [sys.executable, str(HERE / "run_on_mock.py"), *scenarios]
    found = {**os.environ, **environment(driver)}
    done = subprocess.run(command, capture_output=True, text=True, env=found, timeout=900, check=False)
    assert (done.returncode, done.stderr) == (0, "")  # all is given back before torch's context goes
    results: dict[str, str] = json.loads(done.stdout)
    return results


@pytest.fixture(scope="module")
def outcomes(driver: Path) -> dict[str, str]:
    """One process runs them all: importing torch takes its time."""
    return run(driver, *SCENARIOS)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_pycuda_on_the_mock_driver(outcomes: dict[str, str], scenario: str) -> None:
    assert outcomes[scenario] == ""


@pytest.mark.slow
def test_every_family(driver: Path) -> None:
    assert run(driver, "families_on_mock.every_family") == {"families_on_mock.every_family": ""}
