"""`dplc rewrite`: rules over an expression or a dump of every level."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_line import MATMUL, Command

from dplc.engine.language.pipeline import pipelines
from dplc.engine.language.rule import load
from dplc.ir.text.programs import read_program


@pytest.fixture
def dump(ok: Command, tmp_path: Path):  # type: ignore[no-untyped-def]
    """A dump of a stage, as a file."""

    def write(stage: str, text: str = MATMUL) -> str:
        path = tmp_path / f"{stage}.ir"
        path.write_text(ok(f"compile --ir {stage} -c", text).out)
        return str(path)

    return write


@pytest.mark.parametrize(
    ("stage", "after"),
    [("torch", "tensor"), ("tensor", "tensor"), ("loop", "tile"), ("tile", "tile"), ("kernel", "kernel")],
)
def test_a_dump_of_every_level(ok: Command, dump, stage: str, after: str) -> None:  # type: ignore[no-untyped-def]
    out = ok("rewrite", dump(stage)).out
    level, units = read_program(out)
    assert level == after and units
    if stage != after:  # as in a compile
        assert out == ok(f"compile --ir {after} -c", MATMUL).out


def test_a_rule_of_another_level_has_nothing_to_do_with_a_dump(ok: Command, dplc: Command, dump) -> None:  # type: ignore[no-untyped-def]
    assert "Reduce(add" in ok(f"rewrite {dump('torch')} --only matmul").out
    done = dplc(f"rewrite {dump('tensor')} --only matmul")
    assert done.code == 2 and "is on torch" in done.err and "a program of the level tensor" in done.err


@pytest.mark.parametrize(
    ("stage", "marker"), [("torch", ">>> d:matmul"), ("tensor", "--- a:exact"), ("loop", ">>> t:001_tileify")]
)
def test_the_trace_of_a_dump(ok: Command, dump, stage: str, marker: str) -> None:  # type: ignore[no-untyped-def]
    assert re.search(rf"^{marker}\b", ok("rewrite --trace", dump(stage)).out, re.MULTILINE)


def test_nothing_to_trace_says_so(ok: Command, dump) -> None:  # type: ignore[no-untyped-def]
    done = ok("rewrite --trace", dump("kernel"))
    assert done.out == "" or ">>> k:" in done.out or "--- k:" in done.out
    assert done.out or "no rule fired" in done.err


def test_of_an_expression_only_shows_one_rule_when_its_turn_comes(ok: Command) -> None:
    out = ok("rewrite --trace --only stage_inputs --set chunk_matmul_k.BK=32 -c", MATMUL).out
    assert set(re.findall(r"^(?:>>>|<<<|---) (\S+)", out, re.MULTILINE)) == {"t:007_stage_inputs"}
    assert "box=(i:16@0, k:32@1)" in out


def test_of_an_expression_only_prints_the_program_after_its_rule(ok: Command) -> None:
    out = ok("rewrite --only stage_inputs -c", MATMUL).out
    assert "Stage(x, " in out
    assert "REG" not in out  # register_tile comes later


@pytest.mark.parametrize(
    ("options", "begins"),
    [
        ("--trace --only fuse_epilogue", ">>> f:fuse\n"),
        ("--trace --only matmul", ">>> d:matmul\n"),
        ("--only matmul", "## level: tensor"),
        ("--only fuse_epilogue", "## level: loop"),
        ("--only tileify", "## level: tile"),
        ("--only drop_guard", "## level: tile"),  # it fires after every other rule
    ],
)
def test_a_rule_of_any_level(ok: Command, options: str, begins: str) -> None:
    assert ok(f"rewrite {options} -c", MATMUL).out.startswith(begins)


def test_of_a_file_nothing_else_fires(ok: Command, dump) -> None:  # type: ignore[no-untyped-def]
    loop = dump("loop")
    out = ok(f"rewrite {loop} --only tileify").out
    assert "Tile(i:16=THREAD, j:16=THREAD):" in out
    assert ok(f"rewrite {loop} --only stage_inputs").out == Path(loop).read_text()
    assert ">>>" not in ok(f"rewrite --trace {loop} --only stage_inputs").out


def test_a_rule_that_stands_in_no_pipeline_fires_on_a_file(ok: Command, dplc: Command, dump, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "less.rw").write_text("without tileify\n")
    less = f"rewrite --trace --rules {tmp_path}/less.rw --only tileify"
    assert ">>> t:001_tileify" in ok(less, dump("loop")).out
    done = dplc(less, "-c", MATMUL)
    assert (done.code, done.out) == (2, "")
    assert "--only tileify: `without tileify` takes it out" in done.err and "less.rw:1" in done.err


def test_a_parameter_outside_of_its_domain_is_a_reason(ok: Command) -> None:
    out = ok("rewrite --trace --only chunk_matmul_k --set chunk_matmul_k.BK=7 -c", MATMUL).out
    assert "BK=7 is not in its domain {2, 4, 8, 16, 32, 64, 128}" in out


def test_a_rule_that_no_dump_of_tile_ir_can_show_is_told(dplc: Command, dump) -> None:  # type: ignore[no-untyped-def]
    for rule, message in {"fuse_epilogue": "it decides what is stored", "matmul": "it is on torch"}.items():
        done = dplc(f"rewrite {dump('tile')} --only {rule}")
        assert (done.code, done.out) == (2, "") and message in done.err


def test_files_that_are_no_dumps(dplc: Command, dump, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    missing = dplc("rewrite missing.ir")
    assert (missing.code, missing.err) == (1, "error: cannot read missing.ir: No such file or directory\n")
    cuda = dplc("rewrite", dump("cuda"))
    assert cuda.code == 1
    assert "is CUDA text, which no rule rewrites" in cuda.err
    broken = tmp_path / "broken.ir"
    broken.write_text("## level: tile\nkernel k(x: f32[4]) -> y: f32[4]:\n    Tile(i:4=THREADS):\n        y[i] = x\n")
    done = dplc(f"rewrite {broken}")
    assert done.code == 1
    assert f"{broken}:3:" in done.err
    assert "^" in done.err
    (tmp_path / "empty.ir").write_text("")
    assert "holds no kernel" in dplc(f"rewrite {tmp_path}/empty.ir").err


SIXTEEN = [
    "tileify",
    "chunk_matmul_k",
    "split_matmul_k",
    "cooperative_reduce",
    "blockify_launch",
    "chunk_reduce",
    "stage_inputs",
    "register_tile",
    "permute_register_tile",
    "double_buffer",
    "tma_copy",
    "split_inner_for_swizzle",
    "async_copy",
    "pad_smem",
    "pipeline_k_outer",
    "mark_unroll",
]


def test_sixteen_passes_have_a_number_and_no_other() -> None:
    rules = load()
    numbered = [step.numbered for step in pipelines(rules)["tile"] if step.numbered]
    assert sorted(numbered) == [f"{n:03d}_{name}" for n, name in enumerate(SIXTEEN, 1)]
    assert not [step for name, steps in pipelines(rules).items() for step in steps if step.numbered and name != "tile"]


def test_a_trace_names_numbered_passes_by_their_number(ok: Command) -> None:
    for given in ("", "--target h200 --prefer tma_copy", "--prefer 015_pipeline_k_outer"):
        out = ok(f"compile -vv --why-not each {given} -c", MATMUL).err
        told = re.findall(r"^(?:>>>|<<<|---) t:(\w+)", out, re.MULTILINE)
        assert told and {re.sub(r"^\d+_", "", name) for name in told} >= {*SIXTEEN}
        for name in told:
            plain = re.sub(r"^\d+_", "", name)
            assert name == (f"{SIXTEEN.index(plain) + 1:03d}_{plain}" if plain in SIXTEEN else plain)
        section = out[out.index(">>> t:007_stage_inputs\n") : out.index("<<< t:007_stage_inputs\n")]
        assert "Stage(" in section and section.count(">>> ") == 1


@pytest.mark.parametrize(
    "line",
    [
        "rewrite --trace --only 007_stage_inputs -c",
        "rewrite --trace --about 007_stage_inputs -c",
        "rules why 007_stage_inputs -c",
        "compile --set 002_chunk_matmul_k.BK=16 -c",
        "compile --target h200 --prefer 011_tma_copy -c",
    ],
)
def test_commands_accept_a_pass_with_its_number_and_without(dplc: Command, line: str) -> None:
    numbered, named = (dplc(re.sub(r"\d{3}_", number, line), MATMUL) for number in (r"\g<0>", ""))
    assert (numbered.code, numbered.out) == (named.code, named.out) and named.code == 0
    wrong = dplc(re.sub(r"\d{3}_", "099_", line), MATMUL)
    assert wrong.code == 2 and "099_" in wrong.err and "did you mean" in wrong.err


def test_show_accepts_a_pass_with_its_number(ok: Command) -> None:
    assert ok("rules show 007_stage_inputs").out == ok("rules show stage_inputs").out


def test_files_accept_a_pass_with_its_number_and_without(dplc: Command, tmp_path: Path) -> None:
    told = []
    for chunk, stage in (("002_", "007_"), ("", "")):
        lines = f"without {stage}stage_inputs\npipeline tile\n    pass {chunk}chunk_matmul_k(BK=16) after {stage}stage_inputs\n"
        (tmp_path / "mine.rw").write_text(lines)
        told.append(dplc(f"compile --rules {tmp_path / 'mine.rw'} -c", MATMUL))
    assert told[0].code == 0 and told[0].out == told[1].out != dplc("compile -c", MATMUL).out
    (tmp_path / "mine.rw").write_text("pipeline tile\n    pass 008_stage_inputs\n")
    wrong = dplc(f"compile --rules {tmp_path / 'mine.rw'} -c", MATMUL)
    assert wrong.code == 1 and "mine.rw:2:10" in wrong.err and "write `007_stage_inputs`" in wrong.err
