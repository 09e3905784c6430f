"""`dplc db`, and the switches of compile and run."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Command
from entries import OTHER, key, tuned

from dplc.engine.ruleset import toolchain
from dplc.engine.store.store import SqliteStore, key_of
from dplc.version import __version__
from tests.tune.subjects import MACHINE, drawn, kernels, space

NVRTC = {"assembler": "nvrtc 13.5", "l2": "cold"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with two kernels, one of them measured, too."""
    file = tmp_path / "t.sqlite"
    with SqliteStore(file) as store:
        store.put(key(0), tuned())
        store.put(key(0), tuned(8e-6, "measured", OTHER, details=NVRTC))
        store.put(key(1, device="other GPU", ranges=((9, 64, 2),)), tuned(3e-6))
    return file


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    file = tmp_path / "broken.sqlite"
    file.write_bytes(b"no database" * 1000)
    return file


FOUND = [("GPU", "measured"), ("GPU", "predicted"), ("other GPU", "predicted")]
LISTED = """\
kernel0  GPU                8 us measured    2.50x of default  64x2048                 hill, 100 tries
kernel0  GPU               10 us predicted   2.00x of default  64x2048                 hill, 100 tries
kernel1  other GPU          3 us predicted   6.67x of default  64x2048 for 9..64 by 2  hill, 100 tries
"""
SHOWN = """\
kernel kernel0, family family, extents 64 2048
  GPU (sm_90a), dplc 1; nvrtc 13.5
  8 us measured; default order 20 us
  found by hill, seed 0, 100 tries; checked: emulator, whole
  assembler: nvrtc 13.5
  l2: cold
    mark_unroll: mark_unroll at 0/0 (U=2)

kernel kernel0, family family, extents 64 2048
  GPU (sm_90a), dplc 1; model 1
  10 us predicted; default order 20 us
  found by hill, seed 0, 100 tries; checked: emulator, whole
    chunk_matmul_k: chunk_matmul_k at 0/0/0 (BK=32)
    xor_smem: xor_smem at 0/0
"""


def test_a_store_is_listed_and_shown(dplc: Command, path: Path) -> None:
    """As text, and the counts as data."""
    size, stored = path.stat().st_size, ("--db", path)
    assert dplc("db stats", *stored).out == (
        f"{path}: {size} bytes\n2 kernels, 3 schedules\n"
        "  GPU: 1 measured\n  GPU: 1 predicted\n  other GPU: 1 predicted\n"
    )
    devices = [{"device": name, "basis": basis, "entries": 1} for name, basis in FOUND]
    record = {"dplc": __version__, "file": str(path), "bytes": size, "kernels": 2, "devices": devices}
    assert dplc("db stats --json", *stored).json == record
    assert dplc("db list", *stored).out == LISTED
    assert dplc("db list --device OTHER", *stored).out.split() == LISTED.splitlines()[-1].split()
    assert dplc("db show kernel0", *stored).out == SHOWN


def test_a_kernel_that_is_not_there_is_a_usage_error(dplc: Command, path: Path) -> None:
    err = dplc("db show ernel0 --db", path, code=2).err
    assert "no kernel of the store begins with `ernel0`" in err and "did you mean `kernel0`" in err


@pytest.mark.parametrize("command", ["stats", "list", "show k"])
def test_a_store_that_is_absent_or_broken_is_an_error(
    dplc: Command, broken: Path, tmp_path: Path, command: str
) -> None:
    before = broken.read_bytes()
    for store, said in ((tmp_path / "absent", "there is no tuning store"), (broken, "the file is damaged")):
        out, err = dplc(f"db {command} --db", store, code=1)
        assert said in err and err.count("error: ") == 1 and not out
    assert broken.read_bytes() == before


# ---- compile, run and tune

TEXT = "torch.relu(torch.randn(64, 96) @ torch.randn(96, 80))"
ASKED = ("-c", TEXT, "--target", "h200")


def test_compile_and_run_replay_and_say_so(dplc: Command, tmp_path: Path) -> None:
    file, rules = tmp_path / "t.sqlite", toolchain().rules
    with SqliteStore(file, rules) as store:
        store.put(key_of(*kernels(TEXT), MACHINE, rules), tuned(schedule=next(drawn(space(TEXT))).schedule))
    stored = (*ASKED, "--db", file)
    default, err = dplc("compile", *ASKED)
    assert "note" not in err
    out, err = dplc("compile", *stored)
    origin = "from the store, predicted for NVIDIA H200: 10 us, default order 20 us, predicted"
    assert out != default and f"note: schedule of `matmul_relu`: {origin}" in err
    assert dplc("compile", *stored, "-v").err.count(f"t:store matmul_relu: {origin}") == 1
    record = {"kernel": "matmul_relu", "source": "store", "basis": "predicted", "microseconds": 10.0, "about": origin}
    assert dplc("compile", *stored, "--json").json["schedules"] == [record]
    found = dplc("run --device emulator --json", *stored).json
    assert found["ok"] and found["schedules"] == [record]
    dplc("compile", *stored, "--set", "mark_unroll.U=2", code=2).shows("`--db` does not go with `--set`")


@pytest.mark.parametrize("command", ["compile", "tune --tries 2 --top 1"])
def test_a_broken_store_stops_nobody(dplc: Command, broken: Path, command: str) -> None:
    out, err = dplc(command, *ASKED, "--db", broken)
    assert "__global__" in out or "us tuned" in out
    assert err.count("warning: ") == err.count("going on without it") == 1
