"""What canonical forms fold away is told with the firing whose template asked for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dplc.codegen.target import target
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import Compiler
from dplc.engine.rewrite.trace import Trace
from dplc.engine.ruleset import toolchain

RULE = """
rule {name} on tensor
match
    y = tanh(x)
rewrite
    y = {template}
"""


def folded(text: str, rules: list[Path] | None = None) -> tuple[dict[str, list[str]], str]:
    """What was folded, by rule; and the trace of `-vv`."""
    trace = Trace()
    Compiler(toolchain(rules), target(), trace).compile(capture_text(text))
    return {event.rule: event.record()["folded"] for event in trace.firings}, trace.render(2)


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("add(x, multiply(2, 3))", ["multiply(2, 3) to 6"]),
        ("add(x, f32(3))", ["f32(3) to 3.0"]),
        ("f32(exp(x))", ["f32(exp(x)) to exp(x)"]),
        ("add(x, maximum(f32(2), f32(5)))", ["f32(2) to 2.0", "f32(5) to 5.0", "maximum(2.0, 5.0) to 5.0"]),
        ("multiply(x, 2)", []),
    ],
)
def test_a_template_on_tensor_says_what_was_folded(template: str, told: list[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.rw"
    file.write_text(RULE.format(name="mine", template=template))
    found, text = folded("torch.tanh(torch.randn(8))", [file])
    assert found["mine"] == told
    assert [line.removeprefix("# folded ") for line in text.splitlines() if line.startswith("# folded ")] == told


def test_a_torch_rule_says_what_was_folded_and_the_rule_beside_it_does_not() -> None:
    found, text = folded("torch.mean(torch.randn(4, 8) * 6.0, -1) * torch.exp(torch.randn(4))")
    assert found["mean"] == ["f32(multiply(x, 6.0)) to multiply(x, 6.0)"]
    assert [rule for rule, told in found.items() if told] == ["mean"]
    assert text.count("# folded ") == 1
