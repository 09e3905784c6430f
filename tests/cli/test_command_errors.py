"""Every mistake: one clear message, the right exit code, no traceback (the fixture asserts that)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest
from command_line import Command
from small_configs import SMALL

from dplc.engine.cli import programs
from dplc.engine.cli.app import main

CONFIG = {"model_type": "qwen2", **SMALL}
BROKEN_RULE = "rule x on tensor\nmatch\n    y = addd(x, 0)\nrewrite\n    y = x\n"
BROKEN_DUMP = "## level: tile\nkernel k(x: f32[4]) -> y: f32[4]:\n    Tile(i:4=THREADS):\n        y[i] = x\n"
LONG = "a" * 300
GIVEN = {"ADD": "-c torch.ones(3)+1", "MATMUL": "-c torch.randn(64,64)@torch.randn(64,64)"}

USAGE = {  # of each command line, what must be said; scaled.ir is a dump of Tensor IR
    "complie": "error: no such command 'complie'. Did you mean 'compile'?\n  help: see `dplc --help`",
    "rules shw tileify": "error: no such command 'shw'",
    "compile ADD --irr tile": "error: no such option: --irr",
    "compile": "error: a program is needed: `dplc compile` takes an expression (-c EXPR), a dump (FILE.ir) or ",
    "compile torch.ones(3)+1": "an expression needs the option -c in front of it",
    "run " + "torch.relu(" * 99: "an expression needs the option -c in front of it",
    "compile tiny.json ADD": "`dplc compile` takes one program: `-c` and `MODEL` were given",
    "run empty ADD": "`dplc run` takes one program: `-c` and `DIR` were given",
    "bench a.json b.json --without tileify": "takes one program, and 2 were given",
    "bench a.json --without xor_smems": "there is no rule `xor_smems`",
    "bench a.json --number most_thread=3": "there is no number `most_thread`",
    # values
    "compile scaled.ir --ir torch": "the program is given in tensor IR: there is no torch IR of it",
    "run ADD --device emulater": "did you mean `emulator`?",
    "compile ADD --target sm_91": "`sm_91` is not an architecture that dplc knows",
    "run ADD --seed abc": "error: invalid value for '--seed'",
    "run ADD --dtype bfloat": "there is no float dtype `bfloat`\ndid you mean `bfloat16`?",
    "run ADD --out out.txt": "the name must end in .npz",
    "run ADD --check --device reference": "it cannot on `reference`",
    "run ADD --check --blocks 9999": "there is no block 9999",
    "run ADD --check --blocks middle": "no blocks are called `middle`",
    "run scaled.ir --db none.db": "there is no such file",
    "fuse ADD --candidate 9 --ir tensor": "--candidate 9: there are 1",
    "fuse ADD --top 0": "top",
    "rules fmt --check -": "--check and --diff take files",
    "rules fmt --diff -": "--check and --diff take files",
    "rules fmt none.rw": "none.rw",
    "compile tiny.json --seq-len 0": "at least one token",
    "run scaled.ir --size s=3": "there is no size `s`",
    "run scaled.ir --size s=x": "write NAME=7 or NAME=1,7,100",
    # names of rules, ops and what rules are made of
    "rules show tilefy": "did you mean `tileify`?",
    "rules show 099_stage_inputs": "099_stage_inputs\ndid you mean",
    "rules show nothere": "there is no rule, pass, number or fact `nothere`\n",
    "rules show unary_relu --python": "closures compare patterns on torch",
    "rules show siblings --python": "it only has guards, on two stored values",
    "rules show most_unrolled --python": "`most_unrolled` is not a rule",
    "rules why double_negaton ADD": "rules why double_negaton: there is no such rule\ndid you mean `double_negation`?",
    "rules why cooperative_reduce --exact ADD": "cooperative_reduce: --exact leaves it out, for it is @approx",
    "rules nodes Stag": "did you mean `Stage`?",
    "rules facts widst": "did you mean `widest`?",
    "rules facts --level tiel": "did you mean `tile`?",
    "ops softmx": "did you mean `softmax`?",
    "ops --missing relu": "error: ",
    "rewrite ADD --only tileif": "did you mean `tileify`?",
    "rewrite scaled.ir --only tileif": "did you mean `tileify`?",
    "rewrite scaled.ir --only matmul": "it is on torch, and scaled.ir holds a program of the level tensor",
    "rewrite tile.ir --only matmul": "it is on torch",
    "rewrite tile.ir --only fuse_epilogue": "it decides what is stored",
    "rewrite ADD --rules less.rw --only tileify": "--only tileify: `without tileify` takes it out (less.rw:2)",
    "compile ADD --why-not fuse_prolog": "there is no rule `fuse_prolog`\ndid you mean `fuse_prologue`?",
    "rewrite --trace ADD --about fuse_prolog": "--about fuse_prolog: there is no such rule or pass",
    "rules why tileify ADD --rules less.rw": "`without tileify` takes it out (less.rw:2)",
    "compile ADD --prefer tma_cpoy": "--prefer tma_cpoy: there is no rule `tma_cpoy`\ntma_copy",
    # settings
    "rewrite ADD --set tileify": "write RULE.PARAM=VALUE",
    "rewrite ADD --set chunk_matmul_q.BK=2": "did you mean `chunk_matmul_k`?",
    "rewrite ADD --set chunk_matmul_k.BQ=2": "its parameters are BK",
    "rewrite ADD --set \"chunk_matmul_k.BK=__import__('os')\"": "is not a constant of the rule language",
    "compile ADD --set cooperative_reduce.T=100": "the domain is {2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}",
    "compile MATMUL --set chunk_matmul_k.BK=33": "chunk_matmul_k.rw:\nBK=33 is not in its domain {2, 4, 8, 16, 32, 64, 128}",
    "run scaled.ir --set cooperative_reduce.T=0": "the value is not in the domain of `T`",
    "tune ADD --grid Q=1": "--grid Q: the text does not name it",
    "tune ADD --set cooperative_reduce.T=3": "the value is not in the domain of `T`",
    # options that change nothing
    "compile ADD --size s=3": "it applies to a dump (FILE.ir)",
    "compile ADD --db none.db --no-db": "`--db` does not go with `--no-db`",
    "run ADD --check --out x.npz": "`--out` does not go with `--check`",
    "run ADD --check --bench": "`--bench` does not go with `--check`",
    "bench tiny.json --only linear": "it applies to a suite (SUITE.json)",
    "doctor --layers 1": "`--layers` needs a program",
    "rewrite scaled.txt --seed 1": "`--seed` does not apply to a dump",
    # tokens
    "run made --device reference --ids 1,2": "compiled for 3",
    "run made --device reference --ids 1,2,99": "numbers from 0 to 49",
    "run made --device reference --ids a,b,c": "numbers from 0 to 49",
    "generate tiny.json": "a prompt is needed",
    "generate tiny.json --prompt a --ids 1": "a prompt is needed",
    "generate tiny.json --ids 1,50": "numbers from 0 to 49",
    "generate tiny.json --ids ²": "numbers from 0 to 49",
    "generate tiny.json --ids 1 --device reference": "on cuda and on the emulator",
}
WRONG = {  # the command line is right, and its program or file is not
    "compile -c x=": "-c:1:3: error: syntax error: invalid syntax\n 1 | x=\n   |   ^",
    "compile -c torch.matrix_exp(x)": "-c:1:18: error: ",
    "compile -c torch.matrix_exp(torch.ones(3,3))": (
        "-c:1:1: error: torch op 'matrix_exp' is not supported\n 1 | torch.matrix_exp(torch.ones(3,3))\n   | ^^^^^"
    ),
    "compile ADD --rules bad.rw": (
        "bad.rw:3:9: error: rule `x`: unknown function `addd`\n 3 |     y = addd(x, 0)\n   |         ^^^^\ndid you mean `add`?"
    ),
    "compile ADD --rules number.rw": "number.rw:2:10\nwrite `007_stage_inputs`",
    "compile ADD --rules domain.rw": "domain.rw:2:26\n9 is not in the domain of `T`",
    "compile ADD --rules missing.rw": "error: no such rule file: missing.rw",
    "compile ADD --rules missing": "error: no such rule file: missing",
    "run --device emulator -c torch.ones(9)*1.375": (
        "error: no C++ compiler for the emulator\n  note: `/nonexistent` is not on PATH\n  help: install g++"
    ),
    "run --device cuda ADD": "error: torch finds no CUDA device here\n  help: run with --device emulator\n",
    "run --out scaled.ir/out.npz --device reference ADD": "error: cannot write scaled.ir/out.npz: ",
    "rewrite missing.ir": "error: cannot read missing.ir: No such file or directory\n",
    "rewrite made.cu": "is CUDA text, which no rule rewrites",
    "rewrite bad.ir": "bad.ir:3:\n^",
    "rewrite empty.ir": "holds no kernel",
    **{f"{command} {LONG}": f"cannot read {LONG}: File name too long" for command in ("compile", "check --subject")},
    # models
    "compile gone/config.json": "there is no model `gone/config.json`: neither a file, nor a folder, nor an id of the hub",
    "compile empty": "has no config.json",
    "compile unknown.json": "`qwen22` is not an architecture that transformers knows",
    "compile tiny.json --layers 9": "--layers 9: tiny has 2 layers",
    "compile tiny.json --weights no": "there is no such folder",
    "compile Qwen/Qwen2.5-7B --layers 99": "note: the configuration of Qwen/Qwen2.5-7B comes with dplc\n--layers 99: Qwen2.5-7B has 28 layers",
    "run made --device reference --weights no": "there is no such folder",
    "bench made --weights no": "there is no such folder",
    "run no": "is not there",
    "run empty": "is not an artefact",
    "generate tiny.json --device emulator --prompt hello": "has no tokenizer beside it",
    "generate tiny.json --device emulator --ids 1,2,3 --max-length 3": "the prompt has 3 tokens; with a maximum length of 3",
    "generate tiny.json --device emulator --ids 1,2,3 --max-length 99": "this model has 64 positions",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("mistakes")
    for name in ("scaled.ir", "scaled.txt"):
        shutil.copy(Path(__file__).parents[2] / "examples" / "dumps" / "scaled.ir", made / name)
    for name, text in {
        "tiny.json": json.dumps(CONFIG), "unknown.json": json.dumps(CONFIG | {"model_type": "qwen22"}),
        "bad.rw": BROKEN_RULE, "less.rw": "# For a while.\nwithout tileify\n", "number.rw": "pipeline tile\n    pass 008_stage_inputs\n",
        "domain.rw": "pipeline tile\n    pass blockify_flat(T=9)\n", "made.cu": '// grid\nextern "C" __global__\n',
        "bad.ir": BROKEN_DUMP, "empty.ir": "", "tile.ir": BROKEN_DUMP.replace("THREADS", "THREAD").replace("= x", "= 1.0"),
    }.items():  # fmt: skip
        (made / name).write_text(text)
    (made / "empty").mkdir()
    with pytest.raises(SystemExit):
        main(f"compile {made}/tiny.json --layers 1 --seq-len 3 --no-cubins -o {made}/made".split())
    return made


@pytest.mark.parametrize(
    ("code", "line", "said"), [(2, *row) for row in USAGE.items()] + [(1, *row) for row in WRONG.items()]
)
def test_mistake_is_one_message(
    dplc: Command, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, line: str, said: str
) -> None:
    before = sorted(folder.rglob("*"))
    monkeypatch.chdir(folder)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    if code == 1:
        monkeypatch.setenv("CXX", "/nonexistent")
        monkeypatch.setenv("DPLC_CACHE_DIR", str(tmp_path))
    for word, argument in GIVEN.items():
        line = line.replace(word, argument)
    done = dplc(line, code=code).shows(*said.split("\n"))
    first, *more = (text for text in done.err.splitlines() if not text.startswith("note: "))
    assert done.out == "" and "error: " in first and all(text.startswith(" ") for text in more)
    assert len(more) <= 2 or code == 1
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("line", "code", "said"), [("", 2, "Usage: dplc"), ("rules", 2, "Usage: dplc rules"), ("--version", 0, "dplc ")]
)
def test_nothing_asked_is_the_help(dplc: Command, line: str, code: int, said: str) -> None:
    dplc(line, code=code).shows(said)


@pytest.mark.parametrize("line", ["compile -c 1", "--traceback compile -c 1", "compile -c 1 --traceback"])
def test_our_own_mistake_shows_a_traceback_on_demand(dplc: Command, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.setattr(programs, "compile_program", Mock(side_effect=ZeroDivisionError("by nothing")))
    err = dplc(line, code=3).err
    assert "internal error: ZeroDivisionError: by nothing\n  help: this is a defect of dplc" in err
