"""Every mistake: one clear message, the right exit code, no traceback (the fixture asserts that)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from command_line import Command

from dplc.codegen import compiler
from dplc.engine.cli import app, programs

RELU = "torch.relu(torch.randn(16, 64))"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("complie",), "error: no such command 'complie'. Did you mean 'compile'?\n  help: see `dplc --help`\n"),
        (("compile", "-c", RELU, "--irr", "tile"), "error: no such option: --irr"),
        (
            ("compile",),
            "error: a program is needed: `dplc compile` takes an expression (-c EXPR), a dump (FILE.ir) or ",
        ),
        (("run",), "error: a program is needed: `dplc run` takes an expression (-c EXPR), a dump (FILE.ir) or "),
        (("compile", "-c", RELU, "--ir", "tyle"), "did you mean `tile`?"),
        (("run", "-c", RELU, "--device", "emulater"), "did you mean `emulator`?"),
        (("compile", "-c", RELU, "--target", "sm_91"), "`sm_91` is not an architecture that dplc knows"),
        (("run", "-c", RELU, "--seed", "abc"), "error: invalid value for '--seed'"),
        (("rules", "show", "tilefy"), "did you mean `tileify`?"),
        (("rules", "show", "nothere"), "there is no rule, pass, number or fact `nothere`\n"),
        (("rules", "shw", "tileify"), "error: no such command 'shw'"),
        (("bench", "a.json", "b.json", "--without", "tileify"), "takes one program, and 2 were given"),
    ],
)
def test_usage(dplc: Command, arguments: tuple[str, ...], message: str) -> None:
    done = dplc(*arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert done.err.startswith("error: ")
    assert len(done.err.splitlines()) <= 3


@pytest.mark.parametrize("arguments", [(), ("rules",)])
def test_nothing_asked_is_the_help(dplc: Command, arguments: tuple[str, ...]) -> None:
    done = dplc(*arguments)
    assert done.code == 2
    assert "Usage: dplc" in done.out + done.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "torch.matrix_exp(torch.randn(3, 3))",
            "-c:1:1: error: torch op 'matrix_exp' is not supported\n 1 | torch.matrix_exp(torch.randn(3, 3))\n   | ^^^^^",
        ),
        ("x =", "-c:1:4: error: syntax error: invalid syntax\n 1 | x =\n   |    ^"),
        ("", "error: the text is empty"),
        ("3", "error: the expression gives int, not a tensor"),
        ("x = torch.randn(3)\ny = x + torch.rand(4)\ny", "-c:2:5: error: "),
        ("torhc.randn(3)", "did you mean `torch`?"),
        ("torch.ones(3).to(torch.uint16) * torch.randn(3)", "gives u16, which is not supported"),
    ],
)
def test_a_program_that_cannot_be_compiled(dplc: Command, text: str, message: str) -> None:
    done = dplc("compile", "-c", text)
    assert (done.code, done.out) == (1, "")
    assert message in done.err


def test_a_broken_rule_file(dplc: Command, tmp_path: Path) -> None:
    path = tmp_path / "bad.rw"
    path.write_text("rule x on tensor\nmatch\n    y = addd(x, 0)\nrewrite\n    y = x\n")
    done = dplc("compile", "-c", RELU, "--rules", str(path))
    assert (done.code, done.out) == (1, "")
    assert (
        f"{path}:3:9: error: rule `x`: unknown function `addd`\n 3 |     y = addd(x, 0)\n   |         ^^^^" in done.err
    )
    assert "did you mean `add`?" in done.err


def test_a_rule_file_that_does_not_parse(dplc: Command, tmp_path: Path) -> None:
    path = tmp_path / "bad.rw"
    path.write_text("rule x on tensor\nmatch\n    y = add(x,\nrewrite\n    y = x\n")
    done = dplc("compile", "-c", RELU, "--rules", str(path))
    assert done.code == 1
    assert re.search(rf"{path}:\d:\d+: error: ", done.err)
    assert "^" in done.err


@pytest.mark.parametrize("name", ["missing.rw", "missing"])
def test_no_rule_file(dplc: Command, name: str) -> None:
    done = dplc("compile", "-c", RELU, "--rules", name)
    assert (done.code, done.err) == (1, f"error: no such rule file: {name}\n")


def test_no_compiler(dplc: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", "/nonexistent")
    monkeypatch.setenv("DPLC_CACHE_DIR", str(tmp_path))
    compiler.find_program.cache_clear() if hasattr(compiler.find_program, "cache_clear") else None
    done = dplc("run", "-c", "torch.randn(9) * 1.375", "--device", "emulator")
    assert (done.code, done.out) == (1, "")
    assert (
        "error: no C++ compiler for the emulator\n  note: `/nonexistent` is not on PATH\n  help: install g++"
        in done.err
    )


def test_our_own_mistake(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> None:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(programs, "compile_program", broken)
    for arguments in (
        ["compile", "-c", RELU],
        ["--traceback", "compile", "-c", RELU],
        ["compile", "-c", RELU, "--traceback"],
    ):
        with pytest.raises(SystemExit) as stop:
            app.main(arguments)
        assert stop.value.code == 3
        err = capsys.readouterr().err
        assert "internal error: ZeroDivisionError: by nothing\n  help: this is a defect of dplc" in err
        assert ("Traceback" in err) == ("--traceback" in arguments)


def test_an_interrupt(dplc: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(programs, "compile_program", interrupted)
    done = dplc("compile", "-c", RELU)
    assert (done.code, done.err.strip()) == (130, "interrupted")
