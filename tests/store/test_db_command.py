"""`dplc db`, and the switches of compile and run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from entries import OTHER, key, tuned
from schedules import H200, loops, written_down

from dplc.engine.cli.app import main
from dplc.engine.ruleset import toolchain
from dplc.engine.store.store import Attempt, Decision, Score, SqliteStore, key_of

Dplc = Callable[..., tuple[int, str, str]]
TEXT = "torch.relu(torch.randn(64, 96) @ torch.randn(96, 80))"


@pytest.fixture
def dplc(capsys: pytest.CaptureFixture[str]) -> Dplc:
    def call(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        return int(stop.value.code or 0), printed.out, printed.err

    return call


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with two kernels, one of them measured, too."""
    file = tmp_path / "t.sqlite"
    with SqliteStore(file) as store:
        store.put(key(0), tuned())
        store.put(key(0), tuned(8e-6, "measured", OTHER, details={"assembler": "nvrtc 13.5", "l2": "cold"}))
        store.put(key(1, device="other GPU"), tuned(3e-6))
        launch = {"blocks": 1.0, "threads": 32.0, "registers": None}
        good = Score(9e-6, "measured", "ok", "", {"assembler": "nvrtc 13.5", "launches": [launch]})
        store.record(key(0), [Attempt(OTHER, "p", score, "hill", 0, 1) for score in (good, Score(1.0, "predicted"))])
    return file


def test_stats(dplc: Dplc, path: Path) -> None:
    code, out, _ = dplc("db", "stats", "--db", path)
    assert code == 0 and "2 kernels, 3 schedules, 2 attempts" in out and "GPU: 1 measured" in out
    record = json.loads(dplc("db", "stats", "--db", path, "--json")[1])
    assert (record["entries"], record["version"], record["file"]) == (3, 1, str(path))


def test_list_and_show(dplc: Dplc, path: Path) -> None:
    code, out, _ = dplc("db", "list", "--db", path)
    assert code == 0 and len(out.splitlines()) == 3
    assert "8 us measured" in out and "2.50x of default" in out
    assert len(dplc("db", "list", "--db", path, "--device", "OTHER")[1].splitlines()) == 1
    assert [row["basis"] for row in json.loads(dplc("db", "list", "--db", path, "--json")[1])].count("measured") == 1
    code, out, _ = dplc("db", "show", "kernel0", "--db", path)
    assert code == 0 and "mark_unroll: mark_unroll at 0/0 (U=2)" in out and "l2: cold" in out
    assert len(json.loads(dplc("db", "show", "kernel0", "--db", path, "--json")[1])) == 2
    code, _, err = dplc("db", "show", "kernal0", "--db", path)
    assert code == 2 and "did you mean `kernel0`" in err


def test_export_and_import(dplc: Dplc, path: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "share.jsonl", tmp_path / "other.sqlite"
    assert dplc("db", "export", file, "--db", path)[0] == 0
    assert dplc("db", "export", "--db", path)[1] == file.read_text()
    code, out, _ = dplc("db", "import", file, "--db", other)
    assert code == 0 and "3 of 3 schedules" in out
    assert "0 of 3 schedules" in dplc("db", "import", file, "--db", other)[1]
    assert dplc("db", "export", "--db", other)[1] == file.read_text()
    lines = dplc("db", "export", "--attempts", "--db", path)[1].splitlines()
    assert [json.loads(line)["seconds"] for line in lines] == [9e-6]


def test_prune(dplc: Dplc, tmp_path: Path) -> None:
    file, rules = tmp_path / "t.sqlite", toolchain().rules
    with SqliteStore(file, rules) as store:
        store.put(key(0, rules=rules.digest), tuned())
        store.record(key(0), [Attempt(OTHER, "p", Score(1.0, "predicted"), "hill", 0, 1)])
    with SqliteStore(file) as store:  # without rules in force, it is kept for those of its key only
        store.put(key(1, rules="of last year"), tuned(schedule=(Decision("gone", "gone", "0"),)))
    assert "1 schedules and 0 attempts would be removed" in dplc("db", "prune", "--dry-run", "--db", file)[1]
    assert "1 schedules and 1 attempts removed" in dplc("db", "prune", "--attempts", "--db", file)[1]
    assert "0 schedules" in dplc("db", "prune", "--db", file)[1]
    assert len(dplc("db", "list", "--db", file)[1].splitlines()) == 1


@pytest.mark.parametrize("command", [["stats"], ["list"], ["show", "k"], ["export"], ["prune"]])
def test_what_is_not_there_or_broken_is_said(dplc: Dplc, tmp_path: Path, command: list[str]) -> None:
    code, _, err = dplc("db", *command, "--db", tmp_path / "absent.sqlite")
    assert code == 1 and "there is no tuning store" in err
    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(b"no database" * 1000)
    code, out, err = dplc("db", *command, "--db", broken)
    assert code == 1 and "the file is damaged" in err and not out
    assert len(err.splitlines()) == 1


def test_an_import_that_cannot_be_written(dplc: Dplc, path: Path, tmp_path: Path) -> None:
    file = tmp_path / "share.jsonl"
    dplc("db", "export", file, "--db", path)
    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(b"no database" * 1000)
    code, _, err = dplc("db", "import", file, "--db", broken)
    assert code == 1 and "the file is damaged" in err
    assert broken.read_bytes() == b"no database" * 1000


# ---- compile and run


@pytest.fixture
def remembered(tmp_path: Path) -> Path:
    tools, file = toolchain(), tmp_path / "t.sqlite"
    (kernel,) = loops(tools, lambda x, w: (x @ w).relu(), (64, 96), (96, 80))
    with SqliteStore(file, tools.rules) as store:
        store.put(key_of(kernel, H200, tools.rules), tuned(schedule=written_down(tools, kernel, 2)[0]))
    return file


def test_compile_replays_and_says_so(dplc: Dplc, remembered: Path) -> None:
    options = ("-c", TEXT, "--target", "h200")
    code, default, err = dplc("compile", *options)
    assert code == 0 and "note" not in err
    code, out, err = dplc("compile", *options, "--db", remembered)
    assert code == 0 and out != default
    assert "note: schedule of `matmul_relu`: from the store, predicted for NVIDIA H200: 10 us" in err
    assert dplc("compile", *options, "--no-db")[1] == default
    code, _, err = dplc("compile", *options, "--db", remembered, "--set", "mark_unroll.U=2")
    assert code == 2 and "--db" in err and "--set" in err
    assert dplc("compile", *options, "--db", remembered, "-v")[2].count("t:store matmul_relu: from the store") == 1
    record = json.loads(dplc("compile", *options, "--db", remembered, "--json")[1])
    assert [(one["source"], one["basis"]) for one in record["schedules"]] == [("store", "predicted")]
    code, _, err = dplc("compile", *options, "--db", remembered.parent / "absent")
    assert code == 2 and "there is no such file" in err


def test_run_replays(dplc: Dplc, remembered: Path) -> None:
    options = ("-c", TEXT, "--target", "h200", "--db", remembered, "--device", "emulator")
    code, out, err = dplc("run", *options)
    assert code == 0 and ": ok" in out and "from the store" in err
    record = json.loads(dplc("run", *options, "--json")[1])
    assert record["ok"] and record["schedules"][0]["source"] == "store"


def test_a_broken_store_does_not_stop_a_compile(dplc: Dplc, tmp_path: Path) -> None:
    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(b"no database" * 1000)
    code, out, err = dplc("compile", "-c", TEXT, "--db", broken)
    assert code == 0 and "__global__" in out
    assert err.count("warning: ") == 1 and "going on without it" in err
