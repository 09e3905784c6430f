"""What the convolutions of ResNet-50 take beside products of their sizes, predicted.

    python examples/benches/convolutions.py [--target h200] [--batch 8] [--dtype f32 bf16] [--only PART]

A convolution of b images with o filters and p places is a product of [b*p, channels*window] by [channels*window, o].
Nothing is run, and nothing is measured.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from dplc.codegen.target import target
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import compiler_with
from dplc.engine.cost.instruction_counts import instruction_counts
from dplc.engine.cost.predict import predict
from dplc.engine.ruleset import processes


class Layer(NamedTuple):
    """channels in and out, side of the square image, side of the window, stride."""

    name: str
    channels: int
    filters: int
    side: int
    window: int
    stride: int

    @property
    def places(self) -> int:
        return (self.side + 2 * (self.window // 2) - self.window) // self.stride + 1


LAYERS = (
    Layer("stem 7x7", 3, 64, 224, 7, 2),
    Layer("1x1 at 56", 256, 64, 56, 1, 1),
    Layer("3x3 at 56", 64, 64, 56, 3, 1),
    Layer("3x3 at 28", 128, 128, 28, 3, 1),
    Layer("3x3 at 14", 256, 256, 14, 3, 1),
    Layer("3x3 at 7", 512, 512, 7, 3, 1),
)


def texts(layer: Layer, batch: int, dtype: str) -> tuple[str, str]:
    """The convolution, and the product of its size."""
    depth, rows = layer.channels * layer.window**2, batch * layer.places**2
    given = {"f32": "", "bf16": ", dtype=torch.bfloat16", "f16": ", dtype=torch.float16"}[dtype]
    image = f"torch.randn({batch}, {layer.channels}, {layer.side}, {layer.side}{given})"
    filters = f"torch.randn({layer.filters}, {layer.channels}, {layer.window}, {layer.window}{given})"
    conv = f"F.conv2d({image}, {filters}, stride={layer.stride}, padding={layer.window // 2})"
    return conv, f"torch.randn({rows}, {depth}{given}) @ torch.randn({depth}, {layer.filters}{given})"


def microseconds(text: str, device: str) -> tuple[float, list[str]]:
    """The predicted time of all launches of a program, and a line for each of its kernels."""
    made = compiler_with(target(device)).compile(capture_text(text))
    found = [predict(instruction_counts(kernel), made.target) for kernel in made.kernels]
    each = [
        f"{kernel.name} {1e6 * one.seconds:.1f} us, {one.binding}"
        for kernel, one in zip(made.kernels, found, strict=True)
    ]
    return sum(1e6 * found[index].seconds for index in made.launched), each


def row(asked: tuple[Layer, int, str, str]) -> str:
    """A line of the table."""
    layer, batch, dtype, device = asked
    (conv, parts), (product, _) = (microseconds(text, device) for text in texts(layer, batch, dtype))
    return f"| {layer.name} | {dtype} | {conv:.1f} | {product:.1f} | {conv / product:.2f} | {'; '.join(parts)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="h200")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--dtype", nargs="+", default=["f32", "bf16"])
    parser.add_argument("--only", default="", help="layers whose names have this part")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    asked = [
        (one, options.batch, dtype, options.target)
        for dtype in options.dtype
        for one in LAYERS
        if options.only in one.name
    ]
    print(f"{options.batch} images, predicted for {options.target}, microseconds.\n")
    print("| layer | dtype | convolution | product | ratio | kernels |\n|---|---|--:|--:|--:|---|")
    with ProcessPoolExecutor(options.jobs, processes()) as pool:
        for line in pool.map(row, asked):
            print(line, flush=True)


if __name__ == "__main__":
    main()
