"""--set, --prefer, --exact, and rules left out: what a user asks of rules is heard and is right, or they are told why not."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from command_line import MINE, SOFTMAX, Command

import dplc as package
from dplc.engine.api import compile_options
from dplc.engine.rewrite.statements.driver import SettingWarning
from dplc.engine.ruleset import exactly, toolchain
from dplc.ir.diagnostic import UsageError

MATMUL = "torch.randn(64, 64) @ torch.randn(64, 64)"
SUM = "torch.randn(4, 4096).sum(-1)"


def test_setting_that_is_heard_is_not_mentioned(dplc: Command) -> None:
    done = dplc(f"compile --set chunk_matmul_k.BK=32 --set fuse_epilogue.TILE=1 -c '{MATMUL}'")
    assert done.err == "" and done.out != dplc(f"compile -c '{MATMUL}'").out


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("chunk_matmul_k.BK=32.0", "`BK` is an integer, and 32.0 is a number"),
        ("chunk_matmul_k.BK=true", "`BK` is an integer, and true is true or false"),
        ("chunk_matmul_k.BK=[32]", "`BK` is an integer, and (32) is a list"),
        ('chunk_matmul_k.BK="32"', '`BK` is an integer, and "32" is a text'),
        ("stage_inputs.which=(1,)", "a list of one is written `[1]`"),
    ],
)
def test_value_of_another_kind_is_an_error(dplc: Command, setting: str, message: str) -> None:
    dplc(f"compile --set '{setting}' -c '{MATMUL}'", code=2).shows(f"--set {setting}: ", message)
    rule, value = setting.split("=")
    MINE.write_text(f"pipeline tile\n    pass {rule.replace('.', '(')}={value})\n")
    dplc(f"compile --rules mine.rw -c '{MATMUL}'", code=1).shows("mine.rw:2:", message)


def compiled(value: object, rule: str = "chunk_matmul_k") -> package.Compiled:
    return package.compile(torch.relu, (torch.randn(16, 64),), device="emulator", settings={rule: {"BK": value}})


def test_settings_from_python_are_checked_and_heard() -> None:
    for value in (32.0, True, [32], "32"):
        with pytest.raises(UsageError, match="`BK` is an integer"):
            compiled(value)
    with pytest.warns(SettingWarning, match="`chunk_matmul_k` fires nowhere"):
        compiled(32)
    numbered, heard = {"002_chunk_matmul_k": {"BK": 16}}, {"chunk_matmul_k": {"BK": 16}}
    assert compile_options(None, None, None, numbered)[1].tools.settings == heard
    assert "002_chunk_matmul_k" in package.Rules() and "003_chunk_matmul_k" not in package.Rules()
    with pytest.raises(UsageError, match="no rule `003_chunk_matmul_k`"):
        compiled(16, "003_chunk_matmul_k")
    x, settings = torch.randn(64, 64), {"tma_copy": {"prefer": False}}
    made = package.compile(torch.matmul, (x, x), target="h200", settings=settings, device="emulator")
    assert "via=TMA" in made.ir("tile")


def test_a_suite_is_told_once(dplc: Command, tmp_path: Path) -> None:
    """Many rules fire in some cases of a suite only: what no case heard is mentioned."""
    operations = {
        "relu": {"expression": "torch.relu(x)", "inputs": {"x": "n"}},
        "matmul": {"expression": "x @ w", "inputs": {"x": "n n", "w": "n n"}},
    }
    cases = [{"name": name, "operation": name, "sizes": {"n": 64}} for name in operations]
    (tmp_path / "suite.json").write_text(json.dumps({"about": "two", "operations": operations, "cases": cases}))
    bench = "bench suite.json --no-run --no-assemble --set"
    dplc(bench, "chunk_matmul_k.BK=32")
    with pytest.warns(SettingWarning, match="fires nowhere"):
        dplc(bench, "chunk_matmul_k.BK=64")


# ---- --prefer: what is legal fires though it would not pay, and is right; what cannot fire says why

RECOMPUTED = "torch.randn(4, 64).sum(-1, keepdim=True) * torch.randn(4, 4096)"


@pytest.mark.parametrize(
    ("given", "rule", "text", "without", "with_it"),
    [
        ("--target h200", "tma_copy", MATMUL, "", "copy_box_2d("),
        # by default a value outside of the domain says `not here`: it must not keep away what somebody asks for
        ("", "split_matmul_k", MATMUL, "", "matmul_partial"),
        ("--set split_matmul_k.S=2", "split_matmul_k", MATMUL, "", "matmul_partial"),
        # of several ways the one that is asked for: the ring is peeled, though a predicated one comes first by default
        ("--target sm_80", "pipeline_k_outer", MATMUL, "pipeline_predicated", "pipeline_k_outer"),
        # one kernel, whose every block adds the row up again
        ("", "fuse_epilogue", RECOMPUTED, "\nsum(", "\nsum_mul("),
    ],
)
def test_preferred_rule_fires_and_is_right(
    dplc: Command, given: str, rule: str, text: str, without: str, with_it: str
) -> None:
    before, after = dplc(f"compile {given} -c '{text}'").out, dplc(f"compile {given} --prefer {rule} -c '{text}'")
    assert without in before and with_it not in before
    assert with_it in after.out and after.err == "" and (not without or without not in after.out)
    dplc(f"run {given} --prefer {rule} --device emulator -c '{text}'").shows("against float64", ": ok")
    dplc(f"run --check {given} --prefer {rule} -c '{text}'").shows("no findings")


@pytest.mark.parametrize(
    ("line", "said"),
    {
        "compile --set chunk_matmul_k.BK=32 -c 'torch.randn(64, 512).sum(1)'": "warning: --set chunk_matmul_k.BK=32: \nnot matmul-shaped",
        f"compile --set chunk_matmul_k.BK=64 -c '{MATMUL}'": 'into one chunk" [1 < BK and BK < highest(K); BK=64, K=64, highest(K)=64]',
        "compile --prefer coarsen_rows -c 'torch.randn(5, 7, 640) + torch.randn(7, 640)'": ("warning: --prefer coarsen_rows: rule `coarsen_rows` fires nowhere\n"
            '"the rows do not divide" [N % R == 0; N=5, R=2'),
        "compile --prefer pad_smem -c 'torch.randn(8) + 1'": "warning: --prefer pad_smem: rule `pad_smem` fires nowhere",
        f"compile --set split_matmul_k.S=2 -c '{MATMUL}'": ("`split_matmul_k` fires nowhere in this program: rules/tile/blocks/split_k.rw\n"
            'not preferred: matched, but "the sum is short"'),
        f"rewrite --trace --only tma_copy --target h200 -c '{MATMUL}'": "not preferred",
        f"rewrite --trace --only tma_copy --target h200 --prefer tma_copy -c '{MATMUL}'": "via=TMA",
        f"rules why fuse_epilogue -c '{RECOMPUTED}'": 'not preferred: matched, but "recomputation exceeds the bound"\nrecompute(v, y, columns)=32',
    }.items(),
)  # fmt: skip
def test_what_has_no_effect_says_why(dplc: Command, line: str, said: str) -> None:
    dplc(line).shows(*said.split("\n"))


# ---- --exact: no rule that reorders floating point fires, on any level, and what comes out is right


@pytest.fixture
def approximate() -> set[str]:
    return {rule.name for rule in toolchain().rules.rules.values() if "approx" in rule.attributes}


@pytest.mark.parametrize(
    "program",
    [SOFTMAX, SUM, "torch.randn(128, 512) @ torch.randn(512, 64)", "F.rms_norm(torch.randn(32, 64), (64,))"],
)
def test_nothing_approximate_fires(dplc: Command, approximate: set[str], program: str) -> None:
    plain, exact = (
        {
            event["rule"]
            for event in dplc(f"compile --json -v {option} -c '{program}'").json["trace"]
            if event["event"] == "fired"
        }
        for option in ("", "--exact")
    )
    assert plain & approximate and exact and not exact & approximate
    dplc(f"run --exact --device emulator -c '{program}'").shows(": ok")


def test_exact_rules_are_made_once_and_traced(dplc: Command) -> None:
    assert "cooperative_reduce" not in dplc(f"rewrite --trace --exact -c '{SUM}'").out
    rules = toolchain().rules
    assert exactly(rules) is exactly(rules) and exactly(rules).digest != rules.digest


def test_python_and_models_take_exact(approximate: set[str]) -> None:
    x = torch.randint(-8, 8, (4, 4096)).float()  # whose sums are exact in any order
    config = Path(__file__).resolve().parents[2] / "examples" / "models" / "tinyllama-1.1b.json"
    for exact in (False, True):
        of_sum = package.compile(lambda x: x.sum(-1), (x,), exact=exact).cuda
        for cuda in (of_sum, package.compile_model(config, layers=1, seq_len=4, exact=exact).cuda):
            words = set(re.findall(r"\w+", cuda))  # each kernel names the rules that shaped it
            assert bool(words & approximate) != exact
    made = torch.compile(lambda x: x.sum(-1), backend="dplc", options={"exact": True, "device": "emulator"})
    assert torch.equal(made(x), x.sum(-1))


# ---- without: a rule that is left out makes a kernel slower, never an error: what its neighbours need, they see to

LEFT_OUT = ("blockify_launch",), ("register_tile",), ("blockify_launch", "register_tile")


def without(names: tuple[str, ...]) -> None:
    MINE.write_text("".join(f"without {name}\n" for name in names))


@pytest.mark.parametrize("names", LEFT_OUT)
@pytest.mark.parametrize(
    "program",
    [
        "torch.randn(128, 96) @ torch.randn(96, 130)",
        "torch.exp(torch.randn(97, 300))",
        "F.conv2d(torch.randn(1, 8, 12, 12), torch.randn(8, 8, 3, 3))",
    ],
)
@pytest.mark.sampled(5)
def test_kernel_without_a_rule_is_right_and_a_launch(dplc: Command, program: str, names: tuple[str, ...]) -> None:
    without(names)
    record = dplc(f"run --rules mine.rw --target h200 --json --device emulator -c '{program}'").json
    assert record["ok"] and all(kernel["block"] <= 1024 for kernel in record["kernels"])


def test_product_without_a_rule_is_slower(dplc: Command) -> None:
    bench = "bench --target h200 --no-run --no-assemble --json --rules mine.rw -c"
    times = []
    for names in ((), *LEFT_OUT):
        without(names)
        cases = dplc(bench, "torch.randn(512, 512) @ torch.randn(512, 512)").json["cases"]
        times.append(cases[-1]["predicted_us"])
    assert min(times[1:]) > 1.5 * times[0]
