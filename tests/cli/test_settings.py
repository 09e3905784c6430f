"""A parameter that somebody sets is heard, or they are told why it is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from command_line import Command

import dplc as package
from dplc.engine.api import compile_options
from dplc.engine.rewrite.statements.driver import SettingWarning
from dplc.ir.diagnostic import DplcError, UsageError

ROWS = "torch.randn(64, 512).sum(1)"
MATMUL = "torch.randn(64, 64) @ torch.randn(64, 64)"
FOR_NOTHING = (
    (ROWS, "chunk_matmul_k.BK=32", "not matmul-shaped"),
    (MATMUL, "chunk_matmul_k.BK=64", 'into one chunk" [1 < BK and BK < highest(K); BK=64, K=64, highest(K)=64]'),
    (MATMUL, "split_matmul_k.S=2", "`split_matmul_k` fires nowhere in this program: rules/tile/blocks/split_k.rw"),
)


@pytest.mark.parametrize(("text", "setting", "message"), FOR_NOTHING)
def test_without_effect(dplc: Command, text: str, setting: str, message: str) -> None:
    done = dplc(f"compile --set {setting} -c", text)
    assert done.code == 0
    assert f"warning: --set {setting}: " in done.err
    assert message in done.err


OF_ANOTHER_KIND = (
    ("chunk_matmul_k.BK=32.0", "`BK` is an integer, and 32.0 is a number"),
    ("chunk_matmul_k.BK=true", "`BK` is an integer, and true is true or false"),
    ("chunk_matmul_k.BK=[32]", "`BK` is an integer, and (32) is a list"),
    ('chunk_matmul_k.BK="32"', '`BK` is an integer, and "32" is a text'),
    ("stage_inputs.which=(1,)", "a list of one is written `[1]`"),
)


@pytest.mark.parametrize(("setting", "message"), OF_ANOTHER_KIND)
def test_a_value_of_another_kind_is_an_error(dplc: Command, setting: str, message: str, mine: Path) -> None:
    done = dplc(f"compile --set {setting} -c", MATMUL)
    assert done.code == 2 and f"--set {setting}: " in done.err and message in done.err
    rule, value = setting.split("=")
    mine.write_text(f"pipeline tile\n    pass {rule.replace('.', '(')}={value})\n")
    told = dplc(f"compile --rules {mine} -c", MATMUL)
    assert told.code == 1 and message in told.err and "mine.rw:2:" in told.err


def test_a_value_of_another_kind_is_an_error_from_python() -> None:
    x = torch.randn(16, 64)
    for value in (32.0, True, [32], "32"):
        with pytest.raises(UsageError, match="`BK` is an integer"):
            package.compile(torch.relu, (x,), device="emulator", settings={"chunk_matmul_k": {"BK": value}})


def test_settings_from_python_accept_the_number_of_a_pass() -> None:
    assert compile_options(None, None, None, {"002_chunk_matmul_k": {"BK": 16}})[1].tools.settings == {
        "chunk_matmul_k": {"BK": 16}
    }
    assert "002_chunk_matmul_k" in package.Rules() and "003_chunk_matmul_k" not in package.Rules()
    with pytest.raises(UsageError, match="no rule `003_chunk_matmul_k`"):
        compile_options(None, None, None, {"003_chunk_matmul_k": {"BK": 16}})


def test_what_is_heard_is_not_mentioned(dplc: Command) -> None:
    done = dplc("compile --set chunk_matmul_k.BK=32 --set fuse_epilogue.TILE=1 -c", MATMUL)
    assert (done.code, done.err) == (0, "")
    assert done.out != dplc("compile -c", MATMUL).out


def test_from_python() -> None:
    x = torch.randn(16, 64)
    with pytest.warns(SettingWarning, match="`chunk_matmul_k` fires nowhere"):
        package.compile(torch.relu, (x,), device="emulator", settings={"chunk_matmul_k": {"BK": 32}})


def test_in_a_pipeline(mine: Path) -> None:
    mine.write_text("pipeline tile\n    pass blockify_flat(T=9)\n")
    with pytest.raises(DplcError, match="9 is not in the domain of `T`") as caught:
        package.compile(torch.relu, (torch.randn(16),), device="emulator", rules=mine)
    assert "mine.rw:2:26" in caught.value.render()


def test_a_suite_is_told_once(dplc: Command, tmp_path: Path) -> None:
    """Many rules fire in some cases of a suite only: what no case heard is mentioned."""
    file = tmp_path / "suite.json"
    operations = {
        "relu": {"expression": "torch.relu(x)", "inputs": {"x": "n"}},
        "matmul": {"expression": "x @ w", "inputs": {"x": "n n", "w": "n n"}},
    }
    cases = [{"name": name, "operation": name, "sizes": {"n": 64}} for name in operations]
    file.write_text(json.dumps({"about": "two", "operations": operations, "cases": cases}))
    bench = f"bench {file} --no-run --no-assemble --set"
    assert dplc(bench, "chunk_matmul_k.BK=32").code == 0
    with pytest.warns(SettingWarning, match="fires nowhere"):
        assert dplc(bench, "chunk_matmul_k.BK=64").code == 0
