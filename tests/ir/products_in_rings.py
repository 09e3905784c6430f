"""Products whose operands come through a ring: their kernel, small whole numbers for them, what both meanings give."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dplc.codegen.emulator.executor import run_kernels
from dplc.codegen.materialise import materialise
from dplc.codegen.target import target
from dplc.ir.interp import tile as tile_meaning
from dplc.ir.program import Kernel
from dplc.ir.text.programs import read_program
from dplc.ir.verify.kernel import problems as kernel_problems
from dplc.ir.verify.tile import problems


def only_kernel(text: str) -> Kernel:
    (only,) = read_program(text)[1]
    assert isinstance(only, Kernel)
    return only


def whole_numbers(shapes: Mapping[str, tuple[int, int]]) -> dict[str, np.ndarray]:
    dice = np.random.default_rng(15)
    return {name: dice.integers(-3, 4, shape).astype(np.float64) for name, shape in shapes.items()}


def is_the_product(kernel: Kernel, arrays: Mapping[str, np.ndarray], seed: int) -> None:
    """C is A @ B.T, in Tile IR and in Kernel IR, and nothing is wrong with either."""
    want = arrays["A"] @ arrays["B"].T
    assert problems(kernel) == ()
    np.testing.assert_array_equal(tile_meaning.run((kernel,), dict(arrays), seed)["C"], want)
    lowered = materialise(kernel, target("h200"))
    assert kernel_problems(lowered) == ()
    np.testing.assert_array_equal(run_kernels((lowered,), dict(arrays), seed)["C"], want)
