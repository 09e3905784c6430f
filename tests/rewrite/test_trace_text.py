"""What a trace says when it is printed: what fired, and how to see the rest."""

from __future__ import annotations

from dplc.codegen.target import target
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import compiler_with
from dplc.engine.rewrite.trace import Trace


def test_a_trace_prints_what_fired_and_no_refusal() -> None:
    trace = Trace()
    compiler_with(target(), trace=trace).compile(capture_text("torch.relu(torch.randn(33, 8) + 0.0)"))
    *lines, last = str(trace).splitlines()
    fired = trace.render(1).splitlines()
    assert trace.skips and lines == fired and len(fired) < len(trace.render(2, ["each"]).splitlines())
    assert last.endswith(".render(2, ['each'])")
