"""Why rules fire and why not, on the levels of values: `dplc rewrite --trace` and `dplc rules why`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from command_line import SOFTMAX, Command

from dplc.engine.ruleset import toolchain


def test_the_rules_that_made_one_kernel_of_a_softmax_are_in_its_trace(ok: Command) -> None:
    out = ok("rewrite --trace --about fuse -c", SOFTMAX).out
    fired = set(re.findall(r"^# f:fuse (\w+ at main .+) rules/fusion/fuse\.rw:\d+$", out, re.MULTILINE))
    assert fired == {
        "inline at main difference", "inline at main e", "fuse_epilogue at main top into difference",
        "fuse_prologue at main top into total", "fuse_epilogue at main total into softmax",
    }  # fmt: skip
    assert "-e[i, j] = mat(exp(difference))\n+e[i, j] = exp(difference)\n" in out


def test_a_users_own_rule_of_fusion_is_in_the_trace(ok: Command, mine: Path) -> None:
    mine.write_text(
        "override rule inline on tensor\nmatch\n    h = mat(v)\n"
        'require not reduction(v) else "a reduction"\nrewrite\n    h = v\n'
    )
    out = ok(f"rules why inline --rules {mine} -c", SOFTMAX).out
    assert f"f:fuse inline at main e {mine}:1\n" in out
    assert f'{mine}:4: inline: matched, but "a reduction" [not reduction(v); v=top]' in out


PRODUCT = "torch.relu(torch.randn(256, 256) @ torch.randn(256, 256))"
TWO = "x = torch.randn(64, 64); (x @ torch.randn(64, 32), x @ torch.randn(64, 32))"
HELD = (  # a rule of each kind, where it fires, and what one of its guards saw there
    ("double_buffer", PRODUCT, "require not compiled(K) or K >= N; K=8, N=4, compiled(K)=true"),
    ("stage_inputs", PRODUCT, "require size(shared) > 0; size(shared)=2"),
    ("chunk_matmul_k", PRODUCT, "require 1 < BK and BK < highest(K); BK=32, K=256, highest(K)=256"),
    ("fuse_epilogue", SOFTMAX, "prefer row(v, y) <= ROW or rows(v) >= ROWS; ROW=32768, ROWS=256"),
    ("inline", SOFTMAX, "require not reduction(v); v=difference"),
    ("siblings", TWO, "prefer distance(a, b) <= NEAR; NEAR=3, a=matmul, b=matmul_1, distance(a, b)=1"),
    ("online_rows", "torch.softmax(torch.randn(4, 70000), -1)", "prefer extent(n) > ROW; ROW=32768, extent(n)=70000"),
    ("linear_bias", "nn.Linear(64, 64)(torch.randn(4, 64))", "require rank(w) == 2; rank(w)=2"),
)


@pytest.mark.parametrize(("rule", "text", "told"), HELD)
@pytest.mark.sampled(4)
def test_a_firing_tells_the_guards_that_held_with_their_values(ok: Command, rule: str, text: str, told: str) -> None:
    out = ok(f"rules why {rule} -c", text).out
    _, *guards = out.split(f" {rule} at ")[1].split("\n")
    guards = [line.strip() for line in guards if re.match(r"    (require|prefer) ", line)]
    declared = toolchain().rules.rule(rule).guards
    assert len(guards) == len(declared) and any(line.startswith(told) for line in guards), out
    (record, *_) = json.loads(ok(f"rules why {rule} --json -c", text).out)
    assert record["held"] == guards
    assert told not in ok("compile -vv -c", text).err  # only who asks for the rule is told


def test_kernels_that_a_rule_joined_are_in_the_trace(ok: Command) -> None:
    out = ok("rewrite --trace --about siblings -c", TWO).out
    assert "# f:siblings siblings at main matmul and matmul_1 rules/fusion/siblings.rw:" in out
    assert "+(matmul[i, j], matmul_1[i, l]) = mat(Reduce(add, k, product), Reduce(add, k, product2))\n" in out
    apart = "x, y = torch.randn(64, 64), torch.randn(64, 64); (x @ torch.randn(64, 32), y @ torch.randn(64, 32))"
    told = ok("rules why siblings -c", apart).out
    assert '"not reductions over the same axes" [folds_once(v, w); v=matmul, w=matmul_1]' in told


@pytest.mark.parametrize(
    ("rule", "text", "told"),
    [
        ("online_rows", SOFTMAX, "[extent(n) > ROW; ROW=32768, extent(n)=512]"),
        ("fuse_epilogue", "torch.softmax(torch.randn(4, 70000), -1)", "row(v, y)=70000, rows(v)=4]"),
        (
            "fuse_epilogue",
            "torch.relu(torch.randn(300, 40) @ torch.randn(40, 50)) @ torch.randn(50, 300)",
            "v=matmul, y=product2, recompute(v, y, columns)=3, target.recompute=1]",
        ),
    ],
)
def test_a_guard_that_compares_tells_both_numbers(ok: Command, rule: str, text: str, told: str) -> None:
    out = ok(f"rules why {rule} -c", text).out
    assert told in out, out


def test_the_nearest_miss_of_a_rule_on_values(ok: Command) -> None:
    out = ok("rules why online_attention -c", SOFTMAX).out
    near = (
        "nearest miss after 1 operation: expected `Reduce(add, n, multiply(p, v))`, found `e[i, j] = exp(difference)`"
    )
    assert out.startswith("--- a:online skipped at main.softmax: rules/tensor/online.rw:") and near in out
    assert near in ok("compile --why-not each -c", SOFTMAX).err  # nothing else of its file was there
    nowhere = ok("rules why double_negation -c", SOFTMAX).out
    assert "no value here is made as its last, `negative(n)`" in nowhere
    assert nowhere.startswith("--- a:exact skipped at main: rules/tensor/exact.rw:")  # at no value of it


@pytest.mark.parametrize(
    ("rule", "text", "told"),
    [
        (
            "fuse_prologue", "torch.relu(torch.randn(16, 64) @ torch.randn(64, 16))",
            "main.matmul: rules/fusion/fuse.rw:150: fuse_prologue: the pattern matches nowhere; nearest at "
            "`matmul[i, j] = Reduce(add, k, product)`: `product` is not stored there: `inline` dropped its `mat` before",
        ),
        ("fuse_beside", "nn.RMSNorm(64)(torch.randn(32, 64))", "`fuse_epilogue`, which is asked before it, takes `total` in"),
        ("fuse_epilogue", "torch.relu(torch.randn(16))", "nearest at `relu_1[i] = relu(x[i])`: it reads nothing that is computed"),
        ("fuse_fold", SOFTMAX, "no value here is made as its last, `Fold("),
        ("climb", SOFTMAX, "no value is stored because of who reads it, so no `mat` climbs"),
        ("siblings", SOFTMAX, "the pattern matches nowhere: one value is stored"),
        ("share_reduction", "torch.randn(64, 64).sum(1)", "is computed by one kernel, and once there"),
    ],
)  # fmt: skip
def test_the_nearest_site_of_a_rule_of_fusion(ok: Command, rule: str, text: str, told: str) -> None:
    out = ok(f"rules why {rule} -c", text).out
    assert told in out and out.count("\n") == 1, out
    assert told not in ok("compile -vv -c", text).err  # only who asks for the rule is told


def test_of_two_orders_the_one_that_meets_an_operation_is_nearest(ok: Command, mine: Path) -> None:
    mine.write_text(
        "rule mine on tensor\nmatch\n    y = multiply(a, add(x, z))\nrewrite\n    y = add(a, multiply(x, z))\n"
    )
    out = ok(f"rules why mine --rules {mine} -c", "torch.randn(4) * (torch.randn(4) - torch.randn(4))").out
    assert "expected `add(x, z)`, found `sub[i] = subtract(y[i], z[i])`" in out, out


def test_why_a_rule_that_was_left_out_is_not_asked(ok: Command, dplc: Command, tmp_path: Path) -> None:
    mine, gone = tmp_path / "mine.rw", tmp_path / "gone.rw"
    mine.write_text("@approx\nrule mine on tensor\nmatch\n    y = exp(x)\nrewrite\n    y = tanh(x)\n")
    gone.write_text("# For a while.\nwithout mine\n")
    why = f"rules why mine -c torch.exp(torch.randn(64)) --rules {mine}"
    exact = dplc(f"{why} --exact")
    assert exact.code == 2 and "--exact leaves it out, for it is @approx" in exact.err
    without = dplc(f"{why} --rules {gone}")
    assert without.code == 2 and f"`without mine` takes it out ({gone}:2)" in without.err
    assert "`reassociate` is @unstable" in ok("rules why reassociate -c", SOFTMAX).err


def test_where_a_canonical_rule_fired(ok: Command) -> None:
    ragged = ok("rules why sink_guard -c", "torch.randn(100, 100) @ torch.randn(100, 77)").out
    assert re.search(r"^t:005_blockify_launch .*; then sink_guard", ragged, re.MULTILINE), ragged
    told = ok("rules why sink_guard -c torch.exp(torch.randn(64))").err
    assert "`sink_guard` is asked after every firing of a rule on tile, and fired after none" in told


def test_a_pattern_whose_operations_are_there_differs_in_axes(ok: Command, mine: Path) -> None:
    mine.write_text(
        "rule mine on tensor\nmatch\n    y = Reduce(add, k:77, exp(x))\nrewrite\n    y = Reduce(add, k, x)\n"
    )
    out = ok(f"rules why mine --rules {mine} -c", SOFTMAX.replace("-1", "0")).out
    assert "nearest miss after 1 operation: expected `k:77`, found `i:64`" in out


def test_why_a_torch_rule_did_not_take_an_op(ok: Command) -> None:
    layer = "nn.Linear(4, 4)(torch.randn(4, 4))"
    assert "linear: bias: linear_bias is not none" in ok("rules why linear -c", layer).out
    assert ok("rules why linear_bias -c", layer).out.startswith("d:matmul linear_bias at main linear ")
    other = ok("rules why linear -c", SOFTMAX).err
    assert "it starts from `Linear`, and here stand\n  softmax: f32[64, 512] = Softmax(x, dim=-1)" in other
    taken = ok("rules why matmul_vector_matmul -c", "torch.randn(4, 4) @ torch.randn(4, 4)").out
    assert "matmul_vector_matmul: `matmul_matmul` took it before" in taken
    vector = ok("rules why linear -c", "F.linear(torch.randn(4), torch.randn(4))").out
    assert "linear: the weight is a vector [rank(w) == 2; rank(w)=1]" in vector


def test_why_a_rule_for_exploration_is_not_asked(ok: Command) -> None:
    assert "is @unstable" in ok("rules why hoist_factor -c", "(torch.randn(8, 8) * 2.0).sum(-1)").err


NOTHING = {
    "tile": "Tile(pre.., a:N=THREAD):\n        body..\nrewrite\n    Tile(pre.., a:N=THREAD):\n        body..\n",
    "tensor": "y = exp(x)\nrewrite\n    y = exp(f32(x))\n",  # which is x, by the canonical form
}


@pytest.mark.parametrize("level", NOTHING)
def test_a_rule_that_changes_nothing_says_so(ok: Command, mine: Path, level: str) -> None:
    mine.write_text(f"rule mine on {level}\nmatch\n    {NOTHING[level]}")
    out = ok(f"rules why mine -c torch.exp(torch.randn(512)) --rules {mine}").out
    assert "mine: matched, but" in out and "it changes nothing: what it gives is what stands there" in out


def test_what_fires_and_what_is_shown_are_two_things(ok: Command) -> None:
    shown = ok("rewrite --trace --about vector_axis --about fuse_prologue -c", SOFTMAX).out
    assert set(re.findall(r"^>>> (\S+)", shown, re.MULTILINE)) <= {"t:vector_axis", "f:fuse"}
    assert "fuse_prologue" in shown and "inline" not in shown and "tileify" not in shown
    full = ok("rewrite --trace -c", SOFTMAX).out
    assert all(line in full for line in shown.splitlines())


def test_canonical_forms_are_seen_where_an_op_becomes_values(ok: Command) -> None:
    out = ok("rewrite --trace -c torch.exp(torch.randn(512).float()) --about views").out
    assert re.search(r"^-to: f32\[512\] = To\(\w+, f32\)\n\+x\[i\]$", out, re.MULTILINE), out


@pytest.mark.parametrize(
    ("text", "rule", "line"),
    [
        ("torch.exp(torch.randn(512) * 1)", "multiply_one", "multiply(x[i], 1.0)"),
        ("torch.exp(torch.randn(512) - 0)", "subtract_zero", "subtract(x[i], 0.0)"),
        ("torch.ones(512).to(torch.int16) + 0", "add_zero_i16", "add(to, 0)"),
    ],
)
def test_what_is_no_canonical_form_is_a_rule_that_one_can_leave_out(
    ok: Command, mine: Path, text: str, rule: str, line: str
) -> None:
    assert f"a:exact {rule} at main" in ok(f"rules why {rule} -c", text).out
    assert line not in ok("compile --ir tensor -c", text).out
    mine.write_text(f"without {rule}\n")
    assert line in ok(f"compile --ir tensor --rules {mine} -c", text).out
