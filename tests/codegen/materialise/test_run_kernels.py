"""Kernel IR means its CUDA text in checked mode: it agrees with the meaning of Tile IR, and wrong programs are errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dplc.codegen.emulator.executor import run_kernels
from dplc.codegen.emulator.runtime import EmulatorError
from dplc.codegen.target import target
from dplc.ir.interp import tile
from dplc.ir.text.programs import read_program

REVERSE = """
kernel f(x: i64[64]) -> y: i64[64]:
    Launch(grid=(4, 2, 1), block=8, shared=64):
        row = Define(i32, block_y*4 + block_x)
        to = Base(smem, thread*8)
        back = Base(smem, 56 - thread*8)
        a = Registers(i64, shape=(1))
        CopyAsync(Address(to), Address(x, offset=row*8 + thread), bytes=8)
        Commit()
        WaitGroup(0)
        Barrier()
        LoadFrom(a[0], i64, Address(back))
        StoreTo(i64, Address(y, offset=row*8 + thread), values=(a[0]))
"""
ROWS = 2**53 + np.arange(64)
REVERSED = ROWS.reshape(8, 8)[:, ::-1]


def run(text: str, order: int = 0, **options: Any) -> Any:
    units: Any = read_program(text)[1]
    return run_kernels(units, {"x": ROWS}, order, **options)["y"].reshape(8, 8)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_right_kernels_run(order: int) -> None:
    np.testing.assert_array_equal(run(REVERSE, order), REVERSED)


def test_some_blocks_only() -> None:
    made = run(REVERSE, blocks=(0, 5))
    np.testing.assert_array_equal(made[[0, 5]], REVERSED[[0, 5]])
    assert (made[[1, 2, 3, 4, 6, 7]] == -1).all()


FOUND = {
    "no barrier": ("        Barrier()\n", "", "race|nothing has written"),
    "no wait": ("WaitGroup(0)", "WaitGroup(1)", "has not waited"),
    "another shared tile": ("56 - thread*8", "64 - thread*8", "byte 64 of shared memory, which has 64"),
    "beyond the input": ("offset=row*8 + thread), bytes", "offset=row*9 + thread), bytes", "out of bounds"),
    "misaligned": ("Base(smem, thread*8)", "Base(smem, thread*4)", "misaligned"),
    "a barrier of some": ("        Barrier()\n", "        Branch(thread < 4):\n            Barrier()\n", "block_sync|race|written"),
}  # fmt: skip


@pytest.mark.parametrize("what", FOUND)
def test_what_it_finds(what: str) -> None:
    old, new, message = FOUND[what]
    assert old in REVERSE
    for order in (0, 1):
        with pytest.raises(EmulatorError, match=message):
            run(REVERSE.replace(old, new), order)


SHARED_BOX = """
kernel f(x: f32[4, 32]) -> y: f32[2, 4, 32]:
    Launch(grid=(2, 1, 1), block=32, shared=528, cluster=2):
        map = TensorMap(x, box=(4, 32))
        a = Registers(f32, shape=(1))
        Branch(thread == 0):
            InitBarrier(Address(smem, offset=512))
            FenceBarriers()
        Barrier(cluster=2)
        Branch(thread == 0):
            Expect(Address(smem, offset=512), 512)
            Branch(block_x == 0):
                CopyBox(Address(smem), map, Address(smem, offset=512), at=(0, 0), cluster=2)
        WaitPhase(Address(smem, offset=512), 0)
        Loop(n, 0, 4):
            LoadFrom(a[0], f32, Address(smem, offset=n*128 + thread*4))
            StoreTo(f32, Address(y, offset=block_x*128 + n*32 + thread), values=(a[0]))
"""


def test_a_box_for_both_blocks_of_a_pair() -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (4, 32)).astype(np.float32)
    for order in (0, 1, 2):
        found = run_kernels(read_program(SHARED_BOX)[1], {"x": x}, order)["y"]  # type: ignore[arg-type]
        np.testing.assert_array_equal(found, np.stack((x, x)))


PROGRAMS = {
    "rms_norm": "nn.RMSNorm(2048)(torch.randn(32, 2048))",
    "softmax": "torch.softmax(torch.randn(5, 2, 33), -1)",
    "ragged matmul": "torch.randn(130, 70) @ torch.randn(70, 131)",
    "split k": "torch.randn(2, 4096) @ torch.randn(4096, 8)",
    "pointwise": "(lambda x, y: torch.sigmoid(x) * y + 1)(torch.randn(7, 33), torch.randn(33))",
    "gather": "torch.gather(torch.randn(5, 7), 1, torch.randint(0, 7, (5, 3)))",
    "argmax": "torch.randn(6, 5, 40).argmax(-1)",
    "cat and pad": "F.pad(torch.cat([torch.randn(3, 5), torch.randn(2, 5)]), (1, 2, 0, 3), value=1.5)",
    "attention": "F.scaled_dot_product_attention(*(torch.randn(2, 3, 17, 8) for _ in range(3)), is_causal=True)",
    "mean": "torch.randn(6, 1000).mean(1)",
    "cumsum": "torch.randn(3, 70).cumsum(-1)",
}


@pytest.mark.parametrize("title", PROGRAMS)
@pytest.mark.sampled(6)
def test_programs_mean_what_their_tiles_mean(title: str) -> None:
    from dplc.engine.capture.capture import capture_text
    from dplc.engine.compiler import compiler_with

    compilation = compiler_with(target()).compile(capture_text(PROGRAMS[title]))
    tensors = compilation.captured.tensors
    arrays = {param.name: tensors[param.name].detach().numpy() for param in compilation.plan.inputs}
    want = tile.run(compilation.tile, arrays)
    for order in (0, 1):
        got = run_kernels(compilation.kernels, arrays, order)
        assert got.keys() == want.keys()
        for name, value in want.items():
            np.testing.assert_allclose(got[name], value, rtol=1e-4, atol=1e-3)
