"""What torch.compile(model, backend="dplc") makes of architectures: the table of examples/models/coverage.md.

    python examples/benches/coverage.py [--only NAME ..] [--jobs N] [--target h200]

Models of tests/models/architectures.json are called once without gradients, as a user calls them, and run on the
emulator. error: of the result that is furthest from PyTorch's, over its largest value. in eager: ops that dplc did not
compile. predicted: all launches, by the model; nothing is measured.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from dplc.engine.ruleset import processes

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "models"))

import architectures  # noqa: E402

HEAD = """| architecture | kernels | launches | predicted us | error | in eager |
|---|---|---|---|---|---|"""


def row(name: str, device: str) -> str:
    """A line of the table."""
    import torch

    import dplc
    from dplc.codegen.target import target
    from dplc.engine import torch_backend
    from dplc.engine.cost.instruction_counts import instruction_counts
    from dplc.engine.cost.predict import predict

    torch._dynamo.reset()
    machine = target(device)
    model, (args, kwargs) = architectures.model(name), architectures.arguments(name)
    made: list[Any] = []

    def compiled(*inputs: Any, **options: Any) -> Any:
        made.append(dplc.compile(*inputs, **options))
        return made[-1]

    torch_backend.compile_function = compiled  # every part that is compiled is counted
    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        want = architectures.tensors(model(*args, **kwargs))
        result = torch.compile(model, backend="dplc", options={"target": machine.arch})(*args, **kwargs)
    got = architectures.tensors(result)
    error = max(
        float((x.double() - y.double()).abs().max() / y.double().abs().max()) for x, y in zip(got, want, strict=True)
    )
    kernels = [kernel for part in made for kernel in part.compilation.kernels]
    seconds = [predict(instruction_counts(kernel), machine).seconds for kernel in kernels]
    times = [part.compilation.launched.count(index) for part in made for index in range(len(part.compilation.kernels))]
    total = sum(second * count for second, count in zip(seconds, times, strict=True)) * 1e6
    eager = [
        str(w.message).split(": ", 1)[1].splitlines()[0] for w in caught if w.category is torch_backend.EagerWarning
    ]
    return f"| {name} | {len(kernels)} | {sum(times)} | {total:.0f} | {error:.1e} | {'; '.join(eager) or 'nothing'} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=list(architectures.ARCHITECTURES), metavar="NAME")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--target", default="h200")
    options = parser.parse_args()
    print(HEAD, flush=True)
    with ProcessPoolExecutor(options.jobs, processes()) as pool:
        for line in pool.map(row, options.only, [options.target] * len(options.only)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
