"""The tour in one command: RMSNorm from PyTorch to CUDA text, run and compared with float64.

make demo            or            python examples/demo.py ["EXPRESSION"]
"""

from __future__ import annotations

import sys

from dplc.codegen.judge import judge
from dplc.codegen.target import target
from dplc.engine.api import Compiled, choose_device
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import compiler_with
from dplc.engine.rewrite.trace import Trace
from dplc.engine.run.calls import run_reference
from dplc.ir.diagnostic import DplcError

EXPRESSION = "nn.RMSNorm(2048)(torch.randn(32, 2048))"


def heading(text: str) -> None:
    print(f"\n── {text} " + "─" * max(0, 100 - len(text)))


def main(expression: str) -> int:
    """Compile, show, run, compare. The exit code is 0 if the result agrees with float64."""
    print(expression)
    trace = Trace()
    compilation = compiler_with(target(), trace=trace).compile(capture_text(expression))
    heading("what PyTorch said: Torch IR")
    print(compilation.ir("torch"), end="")
    heading("as values over named axes: Tensor IR")
    print(compilation.ir("tensor"), end="")
    heading("the rules that fired (dplc rewrite --trace prints a diff for each)")
    print(trace.render(1), end="")
    heading("the schedule they made: Tile IR")
    print(compilation.ir("tile"), end="")
    heading("CUDA")
    print(compilation.cuda, end="")
    device = choose_device(None)
    heading(f"run on: {device}")
    captured = compilation.captured
    results = Compiled(compilation, device).run({})
    found = judge(results, run_reference(captured, captured.tensors))
    print(f"max|error| against float64: {found.absolute:.2e}, over the largest value: {found.relative:.2e}")
    milliseconds = {stage: round(ms, 1) for stage, ms in compilation.timings.items()}
    print(f"compiled in (ms): {milliseconds}")
    return 0 if found.relative <= 1e-5 else 1


if __name__ == "__main__":
    try:
        sys.exit(main(" ".join(sys.argv[1:]) or EXPRESSION))
    except DplcError as error:
        print(error.render(), file=sys.stderr)
        sys.exit(error.exit_code)
