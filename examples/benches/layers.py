"""What one layer of a model takes, predicted for an H200 in f32: what two layers take more than one.

python examples/benches/layers.py
"""

from __future__ import annotations

from pathlib import Path

from dplc.codegen.target import target
from dplc.engine.cost.instruction_counts import instruction_counts
from dplc.engine.cost.predict import predict
from dplc.engine.models.compiling import CompileOptions, ModelShape, compile_model
from dplc.engine.models.sources import find
from dplc.engine.ruleset import toolchain

MODELS = {"TinyLlama": "tinyllama-1.1b", "Qwen2.5-7B": "qwen2.5-7b"}
LENGTHS = (1, 32, 128, 512)
FOLDER = Path(__file__).resolve().parents[1] / "models"


def microseconds(config: str, length: int, layers: int) -> float:
    """All launches of so many layers, with what stands before and behind them."""
    shape = ModelShape(length, layers=layers)
    options = CompileOptions(toolchain(), target("h200"))
    made = compile_model(find(str(FOLDER / f"{config}.json")), shape, options).compilation
    each = [predict(instruction_counts(kernel), made.target).seconds * 1e6 for kernel in made.kernels]
    return sum(each[index] for index in made.launched)


def main() -> None:
    """Print the table."""
    print(f"| tokens | {' | '.join(map(str, LENGTHS))} |\n|---|{'---:|' * len(LENGTHS)}")
    for name, config in MODELS.items():
        each = [microseconds(config, length, 2) - microseconds(config, length, 1) for length in LENGTHS]
        print(f"| {name}, us | {' | '.join(f'{layer:.0f}' for layer in each)} |", flush=True)


if __name__ == "__main__":
    main()
