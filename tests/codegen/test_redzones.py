"""Shared tiles stand apart in checked mode: an index that leaves its shared tile is found, though the next shared tile holds good numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from emulated import check, run

from dplc.codegen.cuda import print_cuda
from dplc.codegen.emulator.runtime import GAP, EmulatorError, spaced
from dplc.codegen.kernel import CudaKernel, KernelParam
from dplc.codegen.materialise import materialise
from dplc.codegen.target import target
from dplc.ir.expr import add
from dplc.ir.kernel import LoadFrom
from dplc.ir.node import nodes, replace
from dplc.ir.program import Kernel
from dplc.ir.text.programs import read_program

X, Y = KernelParam("x", "f32", (64,)), KernelParam("y", "f32", (64,), "out")
INPUTS = {"x": np.arange(64, dtype=np.float32)}
TEXT = """extern "C" __global__ void __launch_bounds__(64)
two(const float* __restrict__ x, float* __restrict__ y) {
  DPLC_DYN_SMEM(float, smem_buf);
  const uint32_t smem = smem_addr(smem_buf);
  const int t = threadIdx.x;
  const uint32_t left = smem;
  const uint32_t right = smem + 256;
  sts32(left + t * 4, x[t]);
  sts32(right + t * 4, -x[t]);
  block_sync();
  stg32(y + t, lds32(left + t * 4));
}
"""


def two(old: str = "", new: str = "") -> CudaKernel:
    text = TEXT.replace(old, new)
    assert not old or text != TEXT
    return CudaKernel("two", text, (1, 1, 1), 64, 512, (X, Y))


def test_shared_tiles_stand_apart_and_nothing_else_changes() -> None:
    made = spaced(two())
    assert [(shared_tile.name, shared_tile.start, shared_tile.begin, shared_tile.bytes) for shared_tile in made.shared_tiles] == [
        ("left", 0, 0, 256), ("right", 256, 256 + GAP, 256),
    ]  # fmt: skip
    lines = zip(TEXT.splitlines(), made.kernel.text.splitlines(), strict=True)
    assert [new for old, new in lines if old != new] == [f"  const uint32_t right = smem + {256 + GAP};"]
    assert made.span == 512 + GAP
    np.testing.assert_array_equal(check(two(), INPUTS).outputs["y"], INPUTS["x"])


READ = "lds32(left + t * 4)"
LEAVING = {
    "read, a row behind": (
        READ,
        "lds32(left + t * 4 + 64)",
        11,
        "at byte [23]\\d\\d of shared tile `left`, which has 256 bytes",
    ),
    "read, in front": (READ, "lds32(right - 4)", 11, "at byte -4 of shared tile `right`, which has 256 bytes"),
    "write": ("sts32(left + t * 4, ", "sts32(left + t * 8, ", 8, r"at byte \d+ of shared tile `left`"),
    "copy": ("sts32(left + t * 4, x[t])", "cp_async4(left + t * 4 + 4, x + t)", 8, "at byte 256 of shared tile `left`"),
}


@pytest.mark.parametrize("what", LEAVING)
def test_what_leaves_a_shared_tile_is_found(what: str) -> None:
    old, new, line, message = LEAVING[what]
    kernel = two(old, new)
    with pytest.raises(EmulatorError, match=f"line {line}: access out of bounds, {message}") as found:
        check(kernel, INPUTS)
    assert found.value.notes[0].startswith(f"line {line}: ")


def test_the_neighbour_hides_it_elsewhere() -> None:
    """What the layout of the kernel does: the number that is read is one that somebody wrote."""
    made = run(two(READ, "lds32(left + t * 4 + 64)"), INPUTS)["y"]
    np.testing.assert_array_equal(made[48:], -INPUTS["x"][:16])


OTHER = {
    "the base by itself": (READ, "lds32(smem + t * 4)"),
    "an offset that is not a number": ("= smem + 256;", "= smem + t / 64 + 256;"),
    "a second base": (
        "  const uint32_t left",
        "  const uint32_t other = smem_addr(smem_buf);\n  const uint32_t left",
    ),
    "no shared tile at the start": ("left = smem;", "left = smem + 128;"),
}


@pytest.mark.parametrize("what", OTHER)
def test_another_text_keeps_its_layout(what: str) -> None:
    kernel = two(*OTHER[what])
    assert spaced(kernel).kernel is kernel
    assert spaced(kernel).shared_tiles == ()


def test_addresses_made_from_a_shared_tile_follow_what_they_point_to() -> None:
    made = "const uint32_t right = smem + 256;\n  const uint32_t {};"
    inside = two("const uint32_t right = smem + 256;", made.format("row = left + 64"))
    assert "row = left + 64;" in spaced(inside).kernel.text
    across = two("const uint32_t right = smem + 256;", made.format("row = left + 320"))
    assert f"row = left + {320 + GAP};" in spaced(across).kernel.text


MATMUL = """
kernel mm(x: f32[32, 32], w: f32[32, 32]) -> y: f32[32, 32]:
    Tile(i:8=THREAD, j:8=THREAD, r:4=REG, v:4=VEC):
        xs = Stage(x, origin=(0, 0), box=(i:32@0, k:32@1))
        ws = Stage(w, origin=(0, 0), box=(k:32@0, j:32@1))
        Sync()
        for k in 0..32 reduce:
            a = load xs[i*4 + r, k]
            b = load ws[k, j*4 + v]
            p = multiply(a, b)
            acc <- add(acc, p)
        y[i*4 + r, j*4 + v] = acc
"""


def lowered() -> Kernel:
    (unit,) = read_program(MATMUL)[1]
    return materialise(unit, target("sm_80"))  # type: ignore[arg-type]


def test_a_row_too_far_in_a_generated_kernel() -> None:
    """The mutant reads one row too far in the first shared tile: numbers of the second one, each of them written and ordered."""
    rng, kernel = np.random.default_rng(0), lowered()
    arrays = {name: rng.uniform(-1, 1, (32, 32)).astype(np.float32) for name in ("x", "w")}
    np.testing.assert_allclose(check(print_cuda(kernel), arrays).outputs["y"], arrays["x"] @ arrays["w"], rtol=1e-4)
    load: Any = next(node for node in nodes(kernel.body, LoadFrom) if node.address.base.startswith("a"))
    further = replace(load, address=replace(load.address, offset=add(load.address.offset, 32 * 4)))
    broken = print_cuda(_with(kernel, load, further))
    assert not np.isnan(run(broken, arrays)["y"]).any()
    with pytest.raises(
        EmulatorError, match=r"out of bounds, at byte 4\d\d\d of shared tile `xs`, which has 4096 bytes"
    ):
        check(broken, arrays)


def _with(node: Any, old: Any, new: Any) -> Any:
    if node is old:
        return new
    if isinstance(node, tuple):
        return tuple(_with(item, old, new) for item in node)
    return replace(node, body=_with(node.body, old, new)) if hasattr(node, "body") else node
