"""A fold that blocks share is put together by the kernels that read it, not by one between: two launches, not three.

Ragged and prime extents; each is run whole, checked, and compared with float64."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from drawing import draws
from hypothesis import given, settings
from hypothesis import strategies as st

import dplc
from dplc.codegen.emulator.executor import CheckingExecutor
from dplc.codegen.target import target
from dplc.engine.api import Compiled
from dplc.engine.capture.text import capture_text
from dplc.engine.compiler import Compilation, Compiler
from dplc.engine.rewrite.statements.driver import Settings
from dplc.engine.ruleset import toolchain
from dplc.engine.run.aliasing import with_aliases
from dplc.engine.run.judge import accepted, run_reference
from dplc.engine.schedule.scheduling import seconds_of
from dplc.ir.diagnostic import DplcError

X = "x = torch.randn({n}, {m}{t}); "
TWO_LAUNCHES = {
    "softmax of few long rows": X + "torch.softmax(x, 1)",
    "its logarithm": X + "torch.log_softmax(x, 1)",
    "layer norm of few long rows": X + "F.layer_norm(x, ({m},))",
    "RMS norm of few long rows": X + "F.rms_norm(x, ({m},))",
    "batch norm in training": "c = {n}; x = torch.randn(7, c, {m} // 99 + 1, 77{t}) + 3; "
    "F.batch_norm(x, None, None, torch.randn(c{t}), torch.randn(c{t}), True)",
    "instance norm": "F.instance_norm(torch.randn(1, {n}, {m} // 99 + 1, 99{t}))",
    "all over the largest": X + "torch.round(x / (x.abs().max() / 127.0))",
    "all over their length": X + "x / x.norm()",
    "without the mean of channels": "x = torch.randn(5, {n}, {m} // 99 + 1, 99{t}); x - x.mean((0, 2, 3), keepdim=True)",
    "scaled by what rows sum up to": X + "x * torch.sigmoid(x.mean(1, keepdim=True))",
}
SAVED = (
    "c = {n}; x = torch.randn(7, c, {m} // 99 + 1, 77{t}) + 3; "
    "torch.native_batch_norm(x, torch.randn(c), torch.randn(c), None, None, True, .1, 1e-5)"
)
OTHERS = {
    "columns without their means": "x = torch.randn({m}, {n}{t}); x - x.mean(0)",
    "between the least and the largest": X + "(x - x.min()) / (x.max() - x.min())",
    "two readers": X + "m = x.mean(1, keepdim=True); (x - m, torch.exp(x.t().contiguous() * 1e-3) + m.t())",
    "a sum that is given as well": X + "s = x.sum(1, keepdim=True); (x / s, s)",
    "a sum that is given as well, and its root": X + "s = (x * x).sum(); (x / s.sqrt(), s, s.sqrt())",
    "a length before a product": "x = torch.randn({n}, {m} // 9 + 1); (x / x.norm()) @ torch.randn({m} // 9 + 1, 33)",
    "sums of one group of rows": "x = torch.randn(2, {n} * 4, {m} // 9 + 1); F.group_norm(x, {n}, torch.randn({n} * 4))",
    "saved for the backward pass": SAVED,
}
APART = "without parts_by_lanes\nwithout parts_by_threads\nwithout stored_by_lanes\nwithout stored_by_threads\n"


def compiled(text: str, given: Settings | None = None, rules: Path | None = None, device: str = "h200") -> Compilation:
    tools = toolchain([rules] if rules else None, given)
    return Compiler(tools, target(device)).compile(capture_text(text))


def is_right(compilation: Compilation) -> None:
    """Raises AssertionError for a finding of checked mode, or a result that is off float64."""
    checker, run = CheckingExecutor(("all",)), Compiled(compilation, "emulator")
    run.executor = checker
    results = run.run({})
    assert not checker.findings, checker.findings[0].describe()
    captured = compilation.captured
    assert accepted(results, run_reference(captured, captured.tensors), captured.reference)


def put_together(compilation: Compilation) -> int:
    """How many launches do the work of another as well."""
    assert compilation.steps is not None
    return sum(len(step.also) for step in compilation.steps.steps)


@pytest.mark.parametrize("name", TWO_LAUNCHES)
@pytest.mark.parametrize("dtype", ["", ",dtype=torch.bfloat16"], ids=["f32", "bf16"])
@pytest.mark.sampled(8)
def test_it_takes_two_launches(name: str, dtype: str) -> None:
    made = compiled(TWO_LAUNCHES[name].format(n=3, m=40040, t=dtype))
    assert (len(made.launched), put_together(made)) == (2, 1)
    is_right(made)


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("dtype", ["", ",dtype=torch.bfloat16"], ids=["f32", "bf16"])
@pytest.mark.parametrize("n, m", [(3, 40040), (16, 20020)])
@pytest.mark.sampled(10)
def test_others_are_right(name: str, dtype: str, n: int, m: int) -> None:
    is_right(compiled(OTHERS[name].format(n=n, m=m, t=dtype)))


@settings(max_examples=draws(3), deadline=None)
@given(
    st.sampled_from(sorted({**TWO_LAUNCHES, **OTHERS})), st.sampled_from(["", ",dtype=torch.bfloat16"]),
    st.integers(1, 9), st.integers(2, 40), st.integers(60, 400),
)  # fmt: skip
def test_it_is_right_at_any_size(name: str, dtype: str, n: int, a: int, b: int) -> None:
    is_right(compiled({**TWO_LAUNCHES, **OTHERS}[name].format(n=n, m=16 * a * b, t=dtype)))


@settings(max_examples=draws(3), deadline=None)
@given(
    st.sampled_from(["softmax of few long rows", "batch norm in training", "saved for the backward pass"]),
    st.sampled_from([2, 3, 4, 6, 8, 12, 24, 33]), st.sampled_from([2, 4, 8, 16, 32]), st.integers(1, 5),
)  # fmt: skip
def test_it_is_right_with_any_parts_and_lanes(name: str, parts: int, lanes: int, n: int) -> None:
    text = {**TWO_LAUNCHES, **OTHERS}[name].format(n=n, m=100 * 264, t="")
    is_right(compiled(text, {"split_fold": {"S": parts}, "parts_by_lanes": {"W": lanes}}))


@pytest.mark.parametrize("rule", ["parts_by_lanes", "parts_by_threads"])
def test_each_rule_alone_is_right(rule: str, tmp_path: Path) -> None:
    (tmp_path / "alone.rw").write_text(f"without {rule}\n")
    made = compiled(
        TWO_LAUNCHES["batch norm in training"].format(n=5, m=9900, t=""),
        {"split_fold": {"S": 7}},
        tmp_path / "alone.rw",
    )
    assert put_together(made) == 1
    is_right(made)


def test_nobody_takes_longer(tmp_path: Path) -> None:
    (tmp_path / "apart.rw").write_text(APART)
    texts = {**TWO_LAUNCHES, **OTHERS}
    for device in ("h200", "a100", "rtx5090"):
        for name, text in texts.items():
            apart, new = (
                compiled(text.format(n=4, m=152064, t=""), None, rules, device)
                for rules in (tmp_path / "apart.rw", None)
            )
            took, takes = (seconds_of(tuple(c.kernels[k] for k in c.launched), c.target) for c in (apart, new))
            assert takes <= took, (name, device)
            assert takes < took or not put_together(new), (name, device)


@pytest.mark.parametrize("n", [1, 7])
def test_all_readers_or_none(n: int) -> None:
    """What a kernel reads that cannot put parts together is stored for it, and so nobody puts them together."""
    made = compiled(f"x = torch.randn({n}, 40040); s = x.sum(1, keepdim=True); (x / s, torch.randn(9, {n}) @ s)")
    is_right(made)
    read = {name for step in made.steps.steps for name in step.buffers.values()}  # type: ignore[union-attr]
    written = {p.name for p in (*made.plan.inputs, *made.plan.outputs)}
    for step in made.steps.steps:  # type: ignore[union-attr]
        written |= {step.buffers[p.name] for p in made.tile[step.index].outs}
    assert read <= written


def test_nan_and_infinities_are_pytorch_s() -> None:
    x = torch.randn(4, 40040)
    x[0, 17], x[1, 40039], x[2, 5] = math.nan, math.inf, -math.inf
    for f in (
        lambda x: torch.softmax(x, 1),
        lambda x: x / x.abs().amax(1, keepdim=True),
        lambda x: x - x.mean(1, keepdim=True),
        lambda x: F.layer_norm(x, (40040,)),
    ):
        torch.testing.assert_close(dplc.compile(f, (x,))(x), f(x), equal_nan=True, rtol=1e-4, atol=1e-5)


def test_rows_of_any_number() -> None:
    dynamic = {"x": {0: dplc.Dim("s", 1, 64, hint=4)}}

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, 1)

    made = dplc.compile(f, (torch.randn(4, 40040),), dynamic=dynamic, rows=(), target="h200")
    assert put_together(made.compilation) == 1
    for s in (1, 3, 4, 64):
        x = torch.randn(s, 40040)
        torch.testing.assert_close(made(x), f(x))


def test_an_output_does_not_take_the_memory_that_others_read_first() -> None:
    """Every block reads the first element of a channel; in the input's memory, another may have overwritten it."""
    text = "x = torch.randn(7, 3, 81, 77); F.batch_norm(x, None, None, None, None, True)"
    made = compiled(text)
    assert put_together(made) == 1
    (source,) = made.captured.inputs
    with pytest.raises(DplcError, match="cannot take the memory"):
        with_aliases(made, {0: source})


def test_it_is_seen_in_the_trace() -> None:
    x = torch.randn(3, 40040)
    trace = dplc.compile(lambda x: torch.softmax(x, 1), (x,), target="h200").trace.render(1)
    assert "t:parts_by_" in trace


@pytest.mark.usefixtures("fresh_dynamo")
def test_a_small_network_with_batch_norm_is_trained_as_in_eager() -> None:
    def network() -> torch.nn.Module:
        torch.manual_seed(0)
        return torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3),
            torch.nn.BatchNorm2d(8),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.LazyLinear(5),
        )

    x, y = torch.randn(16, 3, 40, 40), torch.randint(0, 5, (16,))
    found = []
    for compile in (False, True):
        model = network()
        model(x)
        step = torch.compile(model, backend="dplc") if compile else model
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(2):
            optimizer.zero_grad()
            F.cross_entropy(step(x), y).backward()
            optimizer.step()
        found.append({**dict(model.named_parameters()), **dict(model.named_buffers())})
    eager, ours = found
    for name, value in eager.items():
        torch.testing.assert_close(ours[name], value, rtol=1e-4, atol=1e-5)
