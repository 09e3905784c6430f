"""`dplc rewrite` and `dplc rules why`: rules over an expression or a dump of every level, and why they fire or not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_line import MATMUL, MINE, SOFTMAX, Command

from dplc.codegen.target import target
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import compiler_with
from dplc.engine.language.pipeline import pipelines
from dplc.engine.language.rule import load
from dplc.engine.ruleset import toolchain
from dplc.ir.program import LEVELS


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """The dumps of each stage."""
    compilation = compiler_with(target()).compile(capture_text(MATMUL))
    return {stage: compilation.ir(stage) for stage in LEVELS}


@pytest.fixture
def dumps(texts: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """The same, in files: tile.ir holds that of Tile IR."""
    for stage, text in texts.items():
        (tmp_path / f"{stage}.ir").write_text(text)
    return texts


def test_rewrite_of_a_file_fires_all_rules_or_one_alone(dplc: Command, dumps: dict[str, str]) -> None:
    assert (dplc("rewrite torch.ir").out, dplc("rewrite loop.ir").out) == (dumps["tensor"], dumps["tile"])
    dplc("rewrite loop.ir --only tileify").shows("Tile(i:16=THREAD, j:16=THREAD):")
    assert dplc("rewrite loop.ir --only stage_inputs").out == dumps["loop"]
    MINE.write_text("without tileify\n")  # a rule that is in no pipeline fires on a file
    dplc("rewrite --trace loop.ir --rules mine.rw --only tileify").shows(">>> t:001_tileify")


def test_rewrite_of_an_expression_shows_one_rule_when_its_turn_comes(dplc: Command) -> None:
    traced = dplc(f"rewrite --trace --only stage_inputs --set chunk_matmul_k.BK=32 -c '{MATMUL}'").out
    assert set(re.findall(r"^(?:>>>|<<<|---) (\S+)", traced, re.MULTILINE)) == {"t:007_stage_inputs"}
    assert "box=(i:16@0, k:32@1)" in traced
    out = dplc(f"rewrite --only stage_inputs -c '{MATMUL}'").out
    assert "Stage(x, " in out and "REG" not in out  # register_tile comes later


# ---- the numbers of passes

SIXTEEN = [
    "tileify", "chunk_matmul_k", "split_matmul_k", "cooperative_reduce", "blockify_launch",
    "chunk_reduce", "stage_inputs", "register_tile", "permute_register_tile", "double_buffer",
    "tma_copy", "split_inner_for_swizzle", "async_copy", "pad_smem", "pipeline_k_outer",
    "mark_unroll",
]  # fmt: skip
NUMBERED = {name: f"{number:03d}_{name}" for number, name in enumerate(SIXTEEN, 1)}


def test_sixteen_passes_have_a_number_and_no_other() -> None:
    numbered = {level: {step.numbered for step in steps} - {""} for level, steps in pipelines(load()).items()}
    assert numbered.pop("tile") == set(NUMBERED.values()) and not any(numbered.values())


def test_a_trace_names_numbered_passes_by_their_number(dplc: Command) -> None:
    for given in ("", "--target h200 --prefer tma_copy", "--prefer 015_pipeline_k_outer"):
        out = dplc(f"compile -vv --why-not each {given} -c '{MATMUL}'").err
        passes_shown = set(re.findall(r"^(?:>>>|<<<|---) t:(\w+)", out, re.MULTILINE))
        assert passes_shown >= {*NUMBERED.values()} and all(name not in passes_shown for name in SIXTEEN)


@pytest.mark.parametrize(
    "line",
    [
        "rewrite --trace --only 007_stage_inputs",
        "rewrite --trace --about 007_stage_inputs",
        "rules why 007_stage_inputs",
        "compile --set 002_chunk_matmul_k.BK=8",
        "compile --target h200 --prefer 011_tma_copy",
        "compile --rules mine.rw",
    ],
)
def test_commands_and_files_take_a_pass_with_its_number_and_without(dplc: Command, line: str) -> None:
    rules = "without 007_stage_inputs\npipeline tile\n    pass 002_chunk_matmul_k(BK=8) after 007_stage_inputs\n"
    outs = []
    for number in (r"\g<0>", ""):
        MINE.write_text(re.sub(r"\d{3}_", number, rules))
        outs.append(dplc(re.sub(r"\d{3}_", number, line), "-c", MATMUL).out)
    assert outs[0] == outs[1] != dplc(f"compile -c '{MATMUL}'").out
    if "mine.rw" not in line:
        dplc(re.sub(r"\d{3}_", "099_", line), "-c", MATMUL, code=2).shows("099_", "did you mean")


# ---- why

PRODUCT = "torch.relu(torch.randn(256, 256) @ torch.randn(256, 256))"
TWO = "x = torch.randn(64, 64); (x @ torch.randn(64, 32), x @ torch.randn(64, 32))"
APART = "x, y = torch.randn(64, 64), torch.randn(64, 64); (x @ torch.randn(64, 32), y @ torch.randn(64, 32))"
LONG_ROWS = "torch.softmax(torch.randn(4, 70000), -1)"
LAYER = "nn.Linear(4, 4)(torch.randn(4, 4))"
EXPONENTIALS = "torch.exp(torch.randn(512))"
HELD = (  # a rule of each kind, where it fires, and what one of its guards saw there
    ("double_buffer", PRODUCT, "require not compiled(K) or K >= N; K=8, N=4, compiled(K)=true"),
    ("stage_inputs", PRODUCT, "require size(shared) > 0; size(shared)=2"),
    ("chunk_matmul_k", PRODUCT, "require 1 < BK and BK < highest(K); BK=32, K=256, highest(K)=256"),
    ("fuse_epilogue", SOFTMAX, "prefer row(v, y) <= ROW or rows(v) >= ROWS; ROW=32768, ROWS=256"),
    ("inline", SOFTMAX, "require not reduction(v); v=difference"),
    ("siblings", TWO, "prefer distance(a, b) <= NEAR; NEAR=3, a=matmul, b=matmul_1, distance(a, b)=1"),
    ("online_rows", LONG_ROWS, "prefer extent(n) > ROW; ROW=32768, extent(n)=70000"),
    ("linear_bias", LAYER, "require rank(w) == 2; rank(w)=2"),
)


@pytest.mark.parametrize(("rule", "text", "expected"), HELD)
@pytest.mark.sampled(4)
def test_a_firing_tells_the_guards_that_held_with_their_values(
    dplc: Command, rule: str, text: str, expected: str
) -> None:
    out = dplc(f"rules why {rule} -c '{text}'").out
    guards = re.findall(r"^    ((?:require|prefer) .*)", out.split(f" {rule} at ")[1], re.MULTILINE)
    assert len(guards) == len(toolchain().rules.rule(rule).guards) and any(
        line.startswith(expected) for line in guards
    ), out
    assert dplc(f"rules why {rule} --json -c '{text}'").json[0]["held"] == guards
    assert expected not in dplc(f"compile -vv -c '{text}'").err  # only who asks for the rule gets it


@pytest.mark.parametrize(
    ("rule", "text", "expected"),
    [
        (
            "fuse_prologue", "torch.relu(torch.randn(16, 64) @ torch.randn(64, 16))",
            "main.matmul: rules/fusion/fuse.rw:201: fuse_prologue: the pattern matches nowhere; nearest at "
            "`matmul[i, j] = Reduce(add, k, product)`: `product` is not stored there: `inline` dropped its `mat` before",
        ),
        ("fuse_beside", "nn.RMSNorm(64)(torch.randn(32, 64))", "`fuse_epilogue`, which is asked before it, takes `total` in"),
        ("fuse_epilogue", "torch.relu(torch.randn(16))", "nearest at `relu_1[i] = relu(x[i])`: it reads nothing that is computed"),
        ("fuse_fold", SOFTMAX, "no value here is made as its last, `Fold("),
        ("climb", SOFTMAX, "no value is stored because of who reads it, so no `mat` climbs"),
        ("siblings", SOFTMAX, "the pattern matches nowhere: one value is stored"),
        ("share_reduction", "torch.randn(64, 64).sum(1)", "is computed by one kernel, and once there"),
        (
            "online_attention", SOFTMAX,
            "nearest miss after 1 operation: expected `Reduce(add, n, multiply(p, v))`, found `e[i, j] = exp(difference)`",
        ),
        ("double_negation", SOFTMAX, "no value here is made as its last, `negative(n)`"),
        ("online_rows", SOFTMAX, "[extent(n) > ROW; ROW=32768, extent(n)=512]"),
    ],
)  # fmt: skip
def test_a_rule_that_fires_nowhere_has_one_line_with_its_nearest_site(
    dplc: Command, rule: str, text: str, expected: str
) -> None:
    out = dplc(f"rules why {rule} -c '{text}'").out
    assert expected in out and out.count("\n") == 1, out
    assert expected not in dplc(f"compile -vv -c '{text}'").err  # only who asks for the rule gets it


FUSION = (
    "override rule inline on tensor\nmatch\n    h = mat(v)\n"
    'require not reduction(v) else "a reduction"\nrewrite\n    h = v\n'
)
ORDERS = "rule mine on tensor\nmatch\n    y = multiply(a, add(x, z))\nrewrite\n    y = add(a, multiply(x, z))\n"
AXES = "rule mine on tensor\nmatch\n    y = Reduce(add, k:77, exp(x))\nrewrite\n    y = Reduce(add, k, x)\n"
NOTHING = "rule mine on {}\nmatch\n    {}\nrewrite\n    {}\n"
TILES = "Tile(pre.., a:N=THREAD):\n        body.."
CHANGES_NOTHING = "mine: matched, but \nit changes nothing: what it gives is what stands there"


@pytest.mark.usefixtures("dumps")
@pytest.mark.parametrize(
    ("line", "said"),
    {
        "rewrite --trace torch.ir": ">>> d:matmul\n",
        "rewrite --trace tensor.ir": "--- a:exact",
        "rewrite --trace loop.ir": ">>> t:001_tileify\n",
        "rewrite --trace kernel.ir": "--- k:guards skipped at matmul_add_relu: ",
        "rewrite --trace loop.ir --only stage_inputs": "--- t:007_stage_inputs skipped at matmul_add_relu: ",
        "rewrite torch.ir --only matmul": "Reduce(add",
        f"rewrite --only matmul -c '{MATMUL}'": "## level: tensor",
        f"rewrite --only fuse_epilogue -c '{MATMUL}'": "## level: loop",
        f"rewrite --only tileify -c '{MATMUL}'": "## level: tile",
        f"rewrite --only drop_guard -c '{MATMUL}'": "## level: tile",  # it fires after every other rule
        f"rewrite --trace --only fuse_epilogue -c '{MATMUL}'": ">>> f:fuse\n",
        f"rewrite --trace --only matmul -c '{MATMUL}'": ">>> d:matmul\n",
        f"rewrite --trace --only chunk_matmul_k --set chunk_matmul_k.BK=7 -c '{MATMUL}'": "BK=7 is not in its domain {2, 4, 8, 16, 32, 64, 128}",
        "rules show 007_stage_inputs": "# rules/tile/memory/stage_inputs.rw:",
        "rules show inline --python": "def attempt(t, site):",
        f"rewrite --trace --about fuse -c '{SOFTMAX}'": "-e[i, j] = mat(exp(difference))\n+e[i, j] = exp(difference)",
        f"rewrite --trace --about siblings -c '{TWO}'": ("# f:siblings siblings at main matmul and matmul_1 rules/fusion/siblings.rw:\n"
            "+(matmul[i, j], matmul_1[i, l]) = mat(Reduce(add, k, product), Reduce(add, k, product2))"),
        f"rules why siblings -c '{APART}'": '"not reductions over the same axes" [folds_once(v, w); v=matmul, w=matmul_1]',
        f"rules why fuse_epilogue -c '{LONG_ROWS}'": "row(v, y)=70000, rows(v)=4]",
        "rules why fuse_epilogue -c 'torch.relu(torch.randn(300, 40) @ torch.randn(40, 50)) @ torch.randn(50, 300)'": "v=matmul, y=product2, recompute(v, y, columns)=3, target.recompute=1]",
        f"rules why online_attention -c '{SOFTMAX}'": "--- a:online skipped at main.softmax: rules/tensor/online.rw:",
        f"compile --why-not each -c '{SOFTMAX}'": "expected `Reduce(add, n, multiply(p, v))`",  # nothing else of its file was there
        f"rules why double_negation -c '{SOFTMAX}'": "--- a:exact skipped at main: rules/tensor/exact.rw:",  # at no value of it
        f"rules why reassociate -c '{SOFTMAX}'": "`reassociate` is @off",
        "rules why sink_guard -c 'torch.randn(100, 100) @ torch.randn(100, 77)'": "t:005_blockify_launch \n; then sink_guard",
        f"rules why sink_guard -c '{EXPONENTIALS}'": "`sink_guard` is asked after every firing of a rule on tile, and fired after none",
        f"rules why linear -c '{LAYER}'": "linear: bias: linear_bias is not none",
        f"rules why linear_bias -c '{LAYER}'": "d:matmul linear_bias at main linear ",
        f"rules why linear -c '{SOFTMAX}'": "it starts from `Linear`, and here stand\n  softmax: f32[64, 512] = Softmax(x, dim=-1)",
        "rules why linear -c 'F.linear(torch.randn(4), torch.randn(4))'": "linear: the weight is a vector [rank(w) == 2; rank(w)=1]",
        f"rules why matmul_vector_matmul -c '{MATMUL}'": "matmul_vector_matmul: `matmul_matmul` took it before",
        "rewrite --trace --about views -c 'torch.randn(512).float()'": "-to: f32[512] = To(\n, f32)\n+x[i]",
    }.items(),
)  # fmt: skip
def test_rewrite_and_why_show(dplc: Command, line: str, said: str) -> None:
    dplc(line).shows(*said.split("\n"))


@pytest.mark.parametrize(
    ("rules", "line", "text", "said"),
    [
        (FUSION, "rules why inline", SOFTMAX, "f:fuse inline at main e mine.rw:1"),
        (
            FUSION, "rules why inline", SOFTMAX,
            'mine.rw:4: inline: matched, but "a reduction" [not reduction(v); v=top]',
        ),
        # of two orders of a sum the one that meets an operation is nearest
        (
            ORDERS, "rules why mine", "torch.randn(4) * (torch.randn(4) - torch.randn(4))",
            "expected `add(x, z)`, found `sub[i] = subtract(y[i], z[i])`",
        ),
        (
            AXES, "rules why mine", SOFTMAX.replace("-1", "0"),
            "nearest miss after 1 operation: expected `k:77`, found `i:64`",
        ),
        (NOTHING.format("tile", TILES, TILES), "rules why mine", EXPONENTIALS, CHANGES_NOTHING),
        # which is x, by the canonical form
        (NOTHING.format("tensor", "y = exp(x)", "y = exp(f32(x))"), "rules why mine", EXPONENTIALS, CHANGES_NOTHING),
    ],
)  # fmt: skip
def test_why_with_rules_of_ones_own(dplc: Command, rules: str, line: str, text: str, said: str) -> None:
    MINE.write_text(rules)
    dplc(f"{line} --rules mine.rw -c '{text}'").shows(*said.split("\n"))


@pytest.mark.parametrize(
    ("text", "rule", "line"),
    [
        ("torch.exp(torch.randn(512) * 1)", "multiply_one", "multiply(x[i], 1.0)"),
        ("torch.exp(torch.randn(512) - 0)", "subtract_zero", "subtract(x[i], 0.0)"),
        ("torch.ones(512).to(torch.int16) + 0", "add_zero_i16", "add(to, 0)"),
    ],
)
def test_what_is_no_canonical_form_is_a_rule_that_can_be_left_out(
    dplc: Command, text: str, rule: str, line: str
) -> None:
    dplc(f"rules why {rule} -c '{text}'").shows(f"a:exact {rule} at main")
    assert line not in dplc(f"compile --ir tensor -c '{text}'").out
    MINE.write_text(f"without {rule}\n")
    dplc(f"compile --ir tensor --rules mine.rw -c '{text}'").shows(line)


def test_what_fires_and_what_is_shown_are_two_things(dplc: Command) -> None:
    full, fused, shown = (
        dplc(f"rewrite --trace {about} -c '{SOFTMAX}'").out
        for about in ("", "--about fuse", "--about vector_axis --about fuse_prologue")
    )
    fired = re.findall(r"^# f:fuse (\w+ at main .+) rules/fusion/fuse\.rw:\d+$", fused, re.MULTILINE)
    assert sorted(set(fired)) == [
        "fuse_epilogue at main top into difference", "fuse_epilogue at main total into softmax",
        "fuse_prologue at main top into total", "inline at main difference", "inline at main e",
    ]  # fmt: skip
    assert set(re.findall(r"^>>> (\S+)", shown, re.MULTILINE)) == {"t:vector_axis", "f:fuse"}
    assert "fuse_prologue" in shown and "inline" not in shown and all(line in full for line in shown.splitlines())
