"""Every mistake: one clear message, the right exit code, no traceback (the fixture asserts that)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command_line import Command

from dplc.codegen import compiler
from dplc.engine.cli import app, programs

RELU = "torch.relu(torch.randn(16, 64))"


WRONG = [  # ADD, MATMUL: expressions, FILE: a dump of Tensor IR
    ("complie", "error: no such command 'complie'. Did you mean 'compile'?\n  help: see `dplc --help`\n"),
    ("rules shw tileify", "error: no such command 'shw'"),
    ("compile ADD --irr tile", "error: no such option: --irr"),
    ("compile", "a program is needed: `dplc compile` takes an expression (-c EXPR), a dump (FILE.ir) or "),
    ("run", "error: a program is needed: `dplc run` takes an expression (-c EXPR), a dump (FILE.ir) or "),
    ("fuse", "a program is needed"),
    ("rewrite", "a program is needed"),
    ("compile torch.ones(3)+1", "an expression needs the option -c in front of it"),
    ("run " + "torch.relu(" * 99, "an expression needs the option -c in front of it"),
    ("bench a.json b.json --without tileify", "takes one program, and 2 were given"),
    ("compile FILE ADD", "takes one program"),
    ("run FILE ADD", "takes one program"),
    ("rewrite FILE ADD", "takes one program"),
    # values
    ("compile ADD --ir tyle", "did you mean `tile`?"),
    ("compile FILE --ir torch", "the program is given in tensor IR: there is no torch IR of it"),
    ("fuse ADD --ir tensr", "there is no stage `tensr`"),
    ("run ADD --device emulater", "did you mean `emulator`?"),
    ("compile ADD --target sm_91", "`sm_91` is not an architecture that dplc knows"),
    ("run ADD --seed abc", "error: invalid value for '--seed'"),
    ("run ADD --dtype bfloat", "there is no float dtype `bfloat`"),
    ("run ADD --dtype bfloat", "did you mean `bfloat16`?"),
    ("run ADD --out out.txt", "the name must end in .npz"),
    ("run ADD --out out", "the name must end in .npz"),
    ("run ADD --check --device reference", "it cannot on `reference`"),
    ("run ADD --check --blocks 9999", "there is no block 9999"),
    ("run ADD --check --blocks middle", "no blocks are called `middle`"),
    ("fuse ADD --candidate 9 --ir tensor", "--candidate 9: there are 1"),
    ("fuse ADD --top 0", "top"),
    ("compile FILE --db none.db", "there is no such file"),
    ("run FILE --db none.db", "there is no such file"),
    ("rules fmt --check -", "--check and --diff take files"),
    ("rules fmt --diff -", "--check and --diff take files"),
    # names of rules, ops and what rules are made of
    ("rules show tilefy", "did you mean `tileify`?"),
    ("rules show 099_stage_inputs", "099_stage_inputs"),
    ("rules show 099_stage_inputs", "did you mean"),
    ("rules show nothere", "there is no rule, pass, number or fact `nothere`\n"),
    ("rules why double_negaton ADD", "rules why double_negaton: there is no such rule"),
    ("rules why double_negaton ADD", "did you mean `double_negation`?"),
    ("rules why cooperative_reduce --exact ADD", "rules why cooperative_reduce: --exact leaves it out"),
    ("rules nodes Stag", "did you mean `Stage`?"),
    ("rules facts widst", "did you mean `widest`?"),
    ("rules facts --level tiel", "did you mean `tile`?"),
    ("ops softmx", "did you mean `softmax`?"),
    ("ops --missing relu", "error: "),
    ("rewrite ADD --only tileif", "did you mean `tileify`?"),
    ("rewrite FILE --only tileif", "did you mean `tileify`?"),
    ("rewrite ADD --about fuse", "`--about` goes with `--trace`"),
    ("rewrite --trace ADD --about fuse_prolog", "--about fuse_prolog: there is no such rule or pass"),
    ("compile ADD --prefer tma_cpoy", "--prefer tma_cpoy: there is no rule `tma_cpoy`"),
    ("compile ADD --prefer tma_cpoy", "tma_copy"),
    # settings
    ("rewrite ADD --set tileify", "write RULE.PARAM=VALUE"),
    ("rewrite ADD --set chunk_matmul_q.BK=2", "did you mean `chunk_matmul_k`?"),
    ("rewrite ADD --set chunk_matmul_k.BQ=2", "its parameters are BK"),
    ("rewrite ADD --set chunk_matmul_k.BK=__import__('os')", "is not a constant of the rule language"),
    ("compile ADD --set cooperative_reduce.T=100", "the domain is {2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}"),
    ("run MATMUL --set chunk_matmul_k.BK=33", "BK=33 is not in its domain {2, 4, 8, 16, 32, 64, 128}"),
    ("compile MATMUL --set chunk_matmul_k.BK=9999", "rules/tile/blocks/chunk_matmul_k.rw:"),
    ("run ADD --set cooperative_reduce.T=0", "cooperative_reduce.T=0: the value is not in the domain of `T`"),
    ("run FILE --set cooperative_reduce.T=0", "the value is not in the domain of `T`"),
    ("compile MATMUL --set register_tile.FM=7", "FM=7 is not in its domain {1, 2, 4, 8, 16, 32}"),
    # options that change nothing
    ("compile FILE -o made", "`--out` does not apply to a dump of Tensor IR"),
    ("compile FILE --layers 1", "`--layers` does not apply"),
    ("compile FILE --rows 1", "`--rows` does not apply"),
    ("compile FILE --weights .", "`--weights` does not apply"),
    ("compile FILE --seed 1", "`--seed` does not apply"),
    ("compile ADD --layers 1", "`--layers` does not apply to an expression"),
    ("compile ADD --rows 1", "`--rows` goes with `--out`"),
    ("compile ADD --size s=3", "it applies to a dump (FILE.ir)"),
    ("compile ADD --db none.db --no-db", "`--db` does not go with `--no-db`"),
    ("run FILE --weights .", "it applies to an artefact"),
    ("run FILE --ids 1", "`--ids` does not apply"),
    ("run FILE --trust-edited-cuda", "`--trust-edited-cuda` does not apply"),
    ("run FILE --dtype f16", "`--dtype` does not apply"),
    ("run ADD --ids 1", "it applies to an artefact"),
    ("run ADD --blocks 0", "`--blocks` goes with `--check`"),
    ("run ADD --check --out x.npz", "`--out` does not go with `--check`"),
    ("doctor --layers 1", "`--layers` needs a program"),
]
GIVEN = {
    "ADD": "-c torch.ones(3)+1",
    "MATMUL": "-c torch.randn(64,64)@torch.randn(64,64)",
    "FILE": str(Path(__file__).parents[2] / "examples" / "dumps" / "scaled.ir"),
}


@pytest.mark.parametrize(("line", "said"), WRONG)
def test_wrong_usage_is_one_message(dplc: Command, line: str, said: str) -> None:
    for word, argument in GIVEN.items():
        line = line.replace(word, argument)
    done = dplc(line)
    assert (done.code, done.out) == (2, "")
    assert said in done.err and done.err.startswith("error: ") and len(done.err.splitlines()) <= 3


@pytest.mark.parametrize("line", ["", "rules"])
def test_nothing_asked_is_the_help(dplc: Command, line: str) -> None:
    done = dplc(line)
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
    ],
)
def test_a_program_that_cannot_be_compiled(dplc: Command, text: str, message: str) -> None:
    done = dplc("compile -c", text)
    assert (done.code, done.out) == (1, "")
    assert message in done.err


def test_a_broken_rule_file(dplc: Command, tmp_path: Path) -> None:
    path = tmp_path / "bad.rw"
    path.write_text("rule x on tensor\nmatch\n    y = addd(x, 0)\nrewrite\n    y = x\n")
    done = dplc(f"compile --rules {path} -c", RELU)
    assert (done.code, done.out) == (1, "")
    assert (
        f"{path}:3:9: error: rule `x`: unknown function `addd`\n 3 |     y = addd(x, 0)\n   |         ^^^^" in done.err
    )
    assert "did you mean `add`?" in done.err


@pytest.mark.parametrize("name", ["missing.rw", "missing"])
def test_no_rule_file(dplc: Command, name: str) -> None:
    done = dplc(f"compile --rules {name} -c", RELU)
    assert (done.code, done.err) == (1, f"error: no such rule file: {name}\n")


def test_no_compiler(dplc: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", "/nonexistent")
    monkeypatch.setenv("DPLC_CACHE_DIR", str(tmp_path))
    compiler.find_program.cache_clear() if hasattr(compiler.find_program, "cache_clear") else None
    done = dplc("run --device emulator -c", "torch.randn(9) * 1.375")
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
    done = dplc("compile -c", RELU)
    assert (done.code, done.err.strip()) == (130, "interrupted")
