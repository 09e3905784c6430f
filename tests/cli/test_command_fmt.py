"""`dplc rules fmt`."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from command_line import Command

WILD = "rule r on tensor\nmatch\n  y=exp(x)\nrewrite\n  y=exp( x )\n"
NEAT = "rule r on tensor\nmatch\n    y = exp(x)\nrewrite\n    y = exp(x)\n"


def test_files_are_written(ok: Command, tmp_path: Path) -> None:
    (tmp_path / "a.rw").write_text(WILD)
    (tmp_path / "b.rw").write_text(NEAT)
    assert ok(f"rules fmt {tmp_path}").out == "1 of 2 files changed\n"
    assert (tmp_path / "a.rw").read_text() == NEAT
    assert ok(f"rules fmt {tmp_path}").out == "0 of 2 files changed\n"


def test_check_and_diff_write_nothing(dplc: Command, tmp_path: Path) -> None:
    path = tmp_path / "a.rw"
    path.write_text(WILD)
    done = dplc(f"rules fmt --check {path}")
    assert done.code == 1 and f"{path}: not laid out" in done.err and "dplc rules fmt" in done.err
    done = dplc(f"rules fmt --diff {path}")
    assert done.code == 0 and "-  y=exp(x)\n" in done.out and "+    y = exp(x)\n" in done.out
    assert path.read_text() == WILD


def test_standard_input(ok: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(WILD))
    assert ok("rules fmt -").out == NEAT


def test_all_that_is_broken_is_told_and_the_rest_is_done(dplc: Command, tmp_path: Path) -> None:
    (tmp_path / "a.rw").write_text("rule\n")
    (tmp_path / "b.rw").write_bytes(b"# caf\xe9\n")
    (tmp_path / "c.rw").write_text(WILD)
    done = dplc(f"rules fmt {tmp_path}")
    assert done.code == 1 and "a.rw:1:" in done.err
    assert "b.rw:1:6: error: byte 0xe9 is not UTF-8" in done.err and "help: save the file as UTF-8" in done.err
    assert (tmp_path / "c.rw").read_text() == NEAT
    assert dplc(f"rules fmt {tmp_path / 'none.rw'}").code == 2


def test_a_byte_order_mark_is_no_error(ok: Command, tmp_path: Path) -> None:
    path = tmp_path / "a.rw"
    path.write_bytes(b"\xef\xbb\xbf" + WILD.replace("\n", "\r\n").encode())
    assert "error" not in ok(f"rules test {path}").err
    ok(f"rules fmt {path}")
    assert path.read_text() == NEAT
