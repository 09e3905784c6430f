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
        path.write_text(ok("compile", "-c", text, "--ir", stage).out)
        return str(path)

    return write


@pytest.mark.parametrize(
    ("stage", "after"),
    [("torch", "tensor"), ("tensor", "tensor"), ("loop", "tile"), ("tile", "tile"), ("kernel", "kernel")],
)
def test_a_dump_of_every_level(ok: Command, dump, stage: str, after: str) -> None:  # type: ignore[no-untyped-def]
    out = ok("rewrite", dump(stage)).out
    level, units = read_program(out)
    assert level == after
    assert units


def test_a_loop_dump_is_scheduled_as_a_compile_schedules_it(ok: Command, dump) -> None:  # type: ignore[no-untyped-def]
    assert ok("rewrite", dump("loop")).out == ok("compile", "-c", MATMUL, "--ir", "tile").out


def test_a_rule_of_another_level_has_nothing_to_do_with_a_dump(ok: Command, dplc: Command, dump) -> None:  # type: ignore[no-untyped-def]
    assert "Reduce(add" in ok("rewrite", dump("torch"), "--only", "matmul").out
    done = dplc("rewrite", dump("tensor"), "--only", "matmul")
    assert done.code == 2 and "is on torch" in done.err and "a program of the level tensor" in done.err


def test_a_torch_dump_becomes_values_as_in_a_compile(ok: Command, dump) -> None:  # type: ignore[no-untyped-def]
    assert ok("rewrite", dump("torch")).out == ok("compile", "-c", MATMUL, "--ir", "tensor").out


@pytest.mark.parametrize(
    ("stage", "marker"), [("torch", ">>> d:matmul"), ("tensor", "--- a:exact"), ("loop", ">>> t:001_tileify")]
)
def test_the_trace_of_a_dump(ok: Command, dump, stage: str, marker: str) -> None:  # type: ignore[no-untyped-def]
    assert re.search(rf"^{marker}\b", ok("rewrite", "--trace", dump(stage)).out, re.MULTILINE)


def test_nothing_to_trace_says_so(ok: Command, dump) -> None:  # type: ignore[no-untyped-def]
    done = ok("rewrite", "--trace", dump("kernel"))
    assert done.out == "" or ">>> k:" in done.out or "--- k:" in done.out
    assert done.out or "no rule fired" in done.err


def test_of_an_expression_only_shows_one_rule_when_its_turn_comes(ok: Command) -> None:
    out = ok("rewrite", "--trace", "-c", MATMUL, "--only", "stage_inputs", "--set", "chunk_matmul_k.BK=32").out
    assert set(re.findall(r"^(?:>>>|<<<|---) (\S+)", out, re.MULTILINE)) == {"t:007_stage_inputs"}
    assert "box=(i:16@0, k:32@1)" in out


@pytest.mark.parametrize("name", ["stage_inputs", "stage_inputs"])
def test_of_an_expression_only_prints_the_program_after_its_rule(ok: Command, name: str) -> None:
    out = ok("rewrite", "-c", MATMUL, "--only", name).out
    assert "Stage(x, " in out
    assert "REG" not in out  # register_tile comes later


def test_a_rule_of_any_level(ok: Command) -> None:
    assert ok("rewrite", "--trace", "-c", MATMUL, "--only", "fuse_epilogue").out.startswith(">>> f:fuse\n")
    assert ok("rewrite", "--trace", "-c", MATMUL, "--only", "matmul").out.startswith(">>> d:matmul\n")
    assert ok("rewrite", "-c", MATMUL, "--only", "matmul").out.startswith("## level: tensor")
    assert ok("rewrite", "-c", MATMUL, "--only", "fuse_epilogue").out.startswith("## level: loop")
    assert ok("rewrite", "-c", MATMUL, "--only", "tileify").out.startswith("## level: tile")


def test_a_rule_that_fires_after_every_other_belongs_to_the_level_of_its_statements(ok: Command) -> None:
    assert ok("rewrite", "-c", MATMUL, "--only", "drop_guard").out.startswith("## level: tile")


def test_of_a_file_nothing_else_fires(ok: Command, dump) -> None:  # type: ignore[no-untyped-def]
    loop = dump("loop")
    out = ok("rewrite", loop, "--only", "tileify").out
    assert "Tile(i:16=THREAD, j:16=THREAD):" in out
    assert ok("rewrite", loop, "--only", "stage_inputs").out == Path(loop).read_text()
    assert ">>>" not in ok("rewrite", "--trace", loop, "--only", "stage_inputs").out


def test_a_rule_that_stands_in_no_pipeline_fires_on_a_file(ok: Command, dplc: Command, dump, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "less.rw").write_text("without tileify\n")
    less = ("--rules", f"{tmp_path}/less.rw", "--only", "tileify")
    assert ">>> t:001_tileify" in ok("rewrite", "--trace", dump("loop"), *less).out
    done = dplc("rewrite", "--trace", "-c", MATMUL, *less)
    assert (done.code, done.out) == (2, "")
    assert "--only tileify: `without tileify` takes it out" in done.err and "less.rw:1" in done.err


def test_a_parameter_outside_of_its_domain_is_a_reason(ok: Command) -> None:
    out = ok("rewrite", "--trace", "-c", MATMUL, "--only", "chunk_matmul_k", "--set", "chunk_matmul_k.BK=7").out
    assert "BK=7 is not in its domain {2, 4, 8, 16, 32, 64, 128}" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "a program is needed"),
        (("FILE", "-c", "torch.randn(3)"), "takes one program"),
        (("-c", "torch.randn(3)", "--only", "tileif"), "did you mean `tileify`?"),
        (("FILE", "--only", "tileif"), "did you mean `tileify`?"),
        (("FILE", "--only", "fuse_epilogue"), "it decides what is stored"),
        (("FILE", "--only", "matmul"), "it is on torch"),
        (("-c", "torch.randn(3)", "--set", "tileify"), "write RULE.PARAM=VALUE"),
        (("-c", "torch.randn(3)", "--set", "chunk_matmul_q.BK=2"), "did you mean `chunk_matmul_k`?"),
        (("-c", "torch.randn(3)", "--set", "chunk_matmul_k.BQ=2"), "its parameters are BK"),
        (
            ("-c", "torch.randn(3)", "--set", "chunk_matmul_k.BK=__import__('os')"),
            "is not a constant of the rule language",
        ),
    ],
)
def test_wrong_usage(dplc: Command, dump, arguments: tuple[str, ...], message: str) -> None:  # type: ignore[no-untyped-def]
    file = dump("tile") if "FILE" in arguments else ""
    done = dplc("rewrite", *(file if argument == "FILE" else argument for argument in arguments))
    assert (done.code, done.out) == (2, "")
    assert message in done.err


def test_files_that_are_no_dumps(dplc: Command, dump, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    missing = dplc("rewrite", "missing.ir")
    assert (missing.code, missing.err) == (1, "error: cannot read missing.ir: No such file or directory\n")
    cuda = dplc("rewrite", dump("cuda"))
    assert cuda.code == 1
    assert "is CUDA text, which no rule rewrites" in cuda.err
    broken = tmp_path / "broken.ir"
    broken.write_text("## level: tile\nkernel k(x: f32[4]) -> y: f32[4]:\n    Tile(i:4=THREADS):\n        y[i] = x\n")
    done = dplc("rewrite", str(broken))
    assert done.code == 1
    assert f"{broken}:3:" in done.err
    assert "^" in done.err
    (tmp_path / "empty.ir").write_text("")
    assert "holds no kernel" in dplc("rewrite", f"{tmp_path}/empty.ir").err


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
    for given in ((), ("--target", "h200", "--prefer", "tma_copy"), ("--prefer", "015_pipeline_k_outer")):
        out = ok("compile", "-c", MATMUL, "-vv", "--why-not", "each", *given).err
        told = re.findall(r"^(?:>>>|<<<|---) t:(\w+)", out, re.MULTILINE)
        assert told and {re.sub(r"^\d+_", "", name) for name in told} >= {*SIXTEEN}
        for name in told:
            plain = re.sub(r"^\d+_", "", name)
            assert name == (f"{SIXTEEN.index(plain) + 1:03d}_{plain}" if plain in SIXTEEN else plain)
        section = out[out.index(">>> t:007_stage_inputs\n") : out.index("<<< t:007_stage_inputs\n")]
        assert "Stage(" in section and section.count(">>> ") == 1


@pytest.mark.parametrize(
    "given",
    [
        ("rewrite", "--trace", "-c", MATMUL, "--only", "007_stage_inputs"),
        ("rewrite", "--trace", "-c", MATMUL, "--about", "007_stage_inputs"),
        ("rules", "why", "007_stage_inputs", "-c", MATMUL),
        ("rules", "show", "007_stage_inputs"),
        ("compile", "-c", MATMUL, "--set", "002_chunk_matmul_k.BK=16"),
        ("compile", "-c", MATMUL, "--target", "h200", "--prefer", "011_tma_copy"),
    ],
)
def test_commands_accept_a_pass_with_its_number_and_without(dplc: Command, given: tuple[str, ...]) -> None:
    plain = [re.sub(r"^\d{3}_", "", word) for word in given]
    numbered, named = dplc(*given), dplc(*plain)
    assert (numbered.code, numbered.out) == (named.code, named.out) and named.code == 0
    wrong = dplc(*[re.sub(r"^\d{3}_", "099_", word) for word in given])
    assert wrong.code == 2 and "099_" in wrong.err and "did you mean" in wrong.err


def test_files_accept_a_pass_with_its_number_and_without(dplc: Command, tmp_path: Path) -> None:
    told = []
    for chunk, stage in (("002_", "007_"), ("", "")):
        lines = f"without {stage}stage_inputs\npipeline tile\n    pass {chunk}chunk_matmul_k(BK=16) after {stage}stage_inputs\n"
        (tmp_path / "mine.rw").write_text(lines)
        told.append(dplc("compile", "-c", MATMUL, "--rules", str(tmp_path / "mine.rw")))
    assert told[0].code == 0 and told[0].out == told[1].out != dplc("compile", "-c", MATMUL).out
    (tmp_path / "mine.rw").write_text("pipeline tile\n    pass 008_stage_inputs\n")
    wrong = dplc("compile", "-c", MATMUL, "--rules", str(tmp_path / "mine.rw"))
    assert wrong.code == 1 and "mine.rw:2:10" in wrong.err and "write `007_stage_inputs`" in wrong.err
