"""The meaning of Kernel IR: what it finds, that it agrees with Tile IR's, and that broken kernels are noticed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawing import draws
from hypothesis import given, settings

sys.path.insert(0, str(Path(__file__).parents[1] / "codegen" / "materialise"))

from test_materialise_mutants import CHANGES, SUBJECTS, inputs, mutants
from test_materialise_random import tiles

from dplc.codegen.materialise import materialise
from dplc.codegen.target import target
from dplc.ir import kernel as k
from dplc.ir.diagnostic import DplcError
from dplc.ir.interp import kernel, tile
from dplc.ir.interp.scalar import ScheduleError
from dplc.ir.node import replace
from dplc.ir.text.programs import read_program

# ---- what it finds, one program each: threads reverse rows of 8 through shared memory

REVERSE = """
kernel f(x: f32[64]) -> y: f32[64]:
    Launch(grid=(4, 2, 1), block=8, shared={shared}):
        row = Define(i32, block_y*4 + block_x)
        from = Base(x, row*8 + thread)
        to = Base(smem, thread*4)
        back = Base(smem, 28 - thread*4)
        a = Registers(f32)
        {copy}
        {between}
        LoadFrom(a, f32, Address(back))
        {after}
        StoreTo(f32, Address(y, offset=row*8 + thread), values=(a))
"""
SYNC = "LoadFrom(a, f32, Address(from))\nStoreTo(f32, Address(to), values=(a))"
ASYNC = "CopyAsync(Address(to), Address(from), bytes=4)\nCommit()\nWaitGroup({keep})"
REVERSED = np.arange(64.0).reshape(8, 8)[:, ::-1].ravel()


def program(copy: str = SYNC, between: str = "Barrier()", after: str = "", shared: int = 32) -> Any:
    lines = []
    for line in REVERSE.strip("\n").splitlines():
        filled = line.strip().format(copy=copy, between=between, after=after, shared=shared)
        lines += [line[: len(line) - len(line.lstrip())] + part for part in filled.splitlines() if part.strip()]
    return read_program("\n".join(lines) + "\n")[1]


def body(*lines: str, block: int = 8, shared: int = 64, dtype: str = "f32") -> Any:
    head = f"kernel f(x: {dtype}[64]) -> y: {dtype}[8]:\n    Launch(grid=(1, 1, 1), block={block}, shared={shared}):\n"
    return read_program(head + "".join(f"        {line}\n" for line in lines))[1]


def run(units: Any, seed: int = 0, **options: Any) -> Any:
    return kernel.run(units, {"x": np.arange(64)}, seed, **options)


def found(units: Any, what: str, where: str = "") -> None:
    for seed in (0, 1):
        with pytest.raises(ScheduleError) as caught:
            run(units, seed)
        assert what in caught.value.render()
        assert where in caught.value.render()


@pytest.mark.parametrize("copy", [SYNC, ASYNC.format(keep=0)])
def test_right_kernels_run(copy: str) -> None:
    for seed in range(3):
        np.testing.assert_array_equal(run(program(copy), seed)["y"], REVERSED)


def test_some_blocks_only() -> None:
    made = run(program(), blocks=(0, 5))["y"].reshape(8, 8)
    np.testing.assert_array_equal(made[[0, 5]], REVERSED.reshape(8, 8)[[0, 5]])
    assert np.isnan(made[[1, 2, 3, 4, 6, 7]]).all()


def test_races() -> None:
    found(program(between=""), "race: shared memory is read before a barrier", "in `LoadFrom(a, f32, Address(back))`")
    found(program(ASYNC.format(keep=0), between=""), "race: shared memory is read before a barrier")
    found(program(after="StoreTo(f32, Address(to), values=(a))"), "race: shared memory is overwritten")
    twice = "StoreTo(f32, Address(smem, offset=(thread % 4)*4), values=(1.0))"
    found(program(after="Barrier()\n" + twice), "written by two threads")
    found(body("CopyAsync(Address(smem), Address(x), bytes=4)"), "written by two threads")


def test_waits() -> None:
    found(program(ASYNC.format(keep=1)), "read while a copy to it is in flight")
    found(program("CopyAsync(Address(to), Address(from), bytes=4)\nWaitGroup(0)"), "in flight")
    found(
        program(after="CopyAsync(Address(to), Address(from), bytes=4)\nCommit()"), "race: shared memory is overwritten"
    )
    found(program(after="Barrier()\nCopyAsync(Address(to), Address(from), bytes=4)\nCommit()"), "ends with copies in")
    again = "CopyAsync(Address(to), Address(from), bytes=4)\n"
    found(program(2 * again), "overwritten while a copy to it is in flight")


def test_divergence() -> None:
    found(body("Branch(thread < 4):", "    Barrier()"), "divergent", "in `Barrier()`")
    found(body("Loop(i, 0, thread):", "    Barrier()"), "divergent")
    found(body("a = Define(f32, 1.0, mutable=1)", "Branch(thread < 4):", "    Butterfly(a, add, 1, 2)"), "divergent")
    found(body("a = Define(f32, 1.0, mutable=1)", "Butterfly(a, add, 1, 8)"), "a lane has no partner")


def test_shared_memory_is_typed_and_starts_as_poison() -> None:
    read = "LoadFrom(a, f32, Address(smem, offset=thread*4))"
    found(body("a = Registers(f32)", read), "uninitialised shared memory")
    wide = "StoreTo(i64, Address(smem, offset=thread*8), values=(thread))"
    found(body("a = Registers(f32)", wide, "Barrier()", read), "read as f32, but something else")
    found(program(shared=16), "outside of the 16 bytes of shared memory")


def test_bounds_and_alignment() -> None:
    found(
        body("a = Registers(f32)", "LoadFrom(a, f32, Address(x, offset=thread*10))"),
        "load out of bounds: element 70 of 64",
    )
    found(body("StoreTo(f32, Address(y, offset=thread + 1), values=(1.0))"), "store out of bounds")
    found(body("a = Registers(f32, shape=(4))", "LoadFrom(a, f32, Address(x, offset=thread), width=4)"), "misaligned")
    found(body("StoreTo(f32, Address(smem, offset=thread*4), values=(1.0, 2.0))"), "misaligned")
    found(body("CopyAsync(Address(smem, offset=thread*4), Address(x, offset=thread*9), bytes=4)"), "ends with copies")
    found(
        body("CopyAsync(Address(smem, offset=thread*4), Address(x, offset=thread*10), bytes=4)"), "copy out of bounds"
    )


def test_stores_and_names() -> None:
    found(
        body("Branch(thread < 4):", "    StoreTo(f32, Address(y, offset=thread), values=(1.0))"),
        "4 elements never stored",
    )
    found(body("StoreTo(f32, Address(y, offset=thread // 2), values=(1.0))"), "stored more than once")
    found(body("StoreTo(f32, Address(x, offset=thread), values=(1.0))"), "`x` is an input")
    found(body("StoreTo(f32, Address(y, offset=thread), values=(a))"), "undefined name `a`")
    found(body("a = Define(i32, (2 - thread) // 3)"), "`//` of a negative number")


def test_what_a_guard_hides_is_not_checked() -> None:
    units = body(
        "a = Registers(f32)",
        "LoadFrom(a, f32, Address(x, offset=thread*10), when=thread < 4, other=-1.0)",
        "b = Define(f32, where(thread <= 2, (2 - thread) // 3, 9))",
        "StoreTo(f32, Address(y, offset=thread), values=(add(a, b)))",
    )
    np.testing.assert_array_equal(run(units)["y"], [0, 10, 20, 39, 8, 8, 8, 8])


def test_integers_are_exact_in_shared_memory() -> None:
    units = body(
        "StoreTo(i64, Address(smem, offset=56 - thread*8), values=(thread + 9007199254740993))",
        "Barrier()",
        "a = Registers(i64, shape=(1))",
        "LoadFrom(a[0], i64, Address(smem, offset=thread*8))",
        "StoreTo(i64, Address(y, offset=thread), values=(a[0]))",
        dtype="i64",
    )
    np.testing.assert_array_equal(run(units)["y"], 2**53 + 1 + np.arange(8)[::-1])


def test_bits_of_a_place_are_flipped() -> None:
    """By a number, by one of every thread, or not at all."""
    for flipped in ("", ", xor=0", ", xor=12", ", xor=thread % 2*16"):
        units = body(
            "StoreTo(f32, Address(smem, offset=thread*4), values=(thread))",
            "Barrier()",
            "a = Registers(f32)",
            f"at = Base(smem, thread*4)\nLoadFrom(a, f32, Address(at{flipped}))".replace("\n", "\n        "),
            "StoreTo(f32, Address(y, offset=thread), values=(a))",
        )
        places = {"": 0, ", xor=0": 0, ", xor=12": 3}.get(flipped, np.arange(8) % 2 * 4)
        np.testing.assert_array_equal(run(units)["y"], np.arange(8) ^ places)


def test_shuffles() -> None:
    units = body(
        "a = Define(f32, thread, mutable=1)",
        "Butterfly(a, add, 2, 4)",
        "StoreTo(f32, Address(y, offset=thread), values=(a))",
    )
    np.testing.assert_array_equal(run(units)["y"], [12, 16] * 4)


# ---- it agrees with Tile IR


def same(got: Any, want: Any) -> bool:
    return got.shape == want.shape and np.allclose(got, want, rtol=1e-9, atol=1e-9, equal_nan=True)


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
def test_programs_mean_what_their_tiles_mean(title: str) -> None:
    from dplc.engine.capture.text import capture_text
    from dplc.engine.compiler import Compiler
    from dplc.engine.ruleset import toolchain

    compilation = Compiler(toolchain(), target()).compile(capture_text(PROGRAMS[title]))
    tensors = compilation.captured.tensors
    arrays = {param.name: tensors[param.name].detach().numpy() for param in compilation.plan.inputs}
    want = tile.run(compilation.tile, arrays)
    for seed in (0, 1):
        got = kernel.run(compilation.kernels, arrays, seed)
        assert got.keys() == want.keys()
        assert all(same(got[name], value) for name, value in want.items())


@settings(max_examples=draws(20), deadline=None, derandomize=True)
@given(tiles())
def test_random_tiles(drawn: Any) -> None:
    text, arrays = drawn
    units: Any = read_program(text)[1]
    lowered = tuple(materialise(unit, target("sm_80")) for unit in units)
    want, got = tile.run(units, arrays), kernel.run(lowered, arrays)
    assert all(same(got[name], value) for name, value in want.items())


# ---- it notices what is broken

MUTATIONS: dict[str, tuple[type[Any], Any]] = {
    **CHANGES,
    "offset four too far": (k.Address, lambda s: replace(s, offset=s.offset + 4) if isinstance(s.offset, int) else s),
    "load without its guard": (k.LoadFrom, lambda s: replace(s, when=True)),
    "one value of the vector": (k.LoadFrom, lambda s: replace(s, width=1)),
    "half of the threads": (k.Launch, lambda s: replace(s, block=s.block // 2)),
    "no shared memory": (k.Launch, lambda s: replace(s, shared=s.shared // 2)),
}
# what changes no result: another order; reads of what is in the buffer but beyond the edge, into what nobody stores
HARMLESS: dict[str, int] = {"forwards only": 99, "copy never fills": 2, "load without its guard": 1}


@pytest.mark.parametrize("title", MUTATIONS)
def test_mutations_are_noticed(title: str) -> None:
    cls, change = MUTATIONS[title]
    tried = 0
    for text in SUBJECTS.values():
        (unit,) = read_program(text)[1]
        arrays = inputs(unit)  # type: ignore[arg-type]
        want = tile.run((unit,), arrays)["y"]  # type: ignore[arg-type]
        made = materialise(unit, target("sm_80"))  # type: ignore[arg-type]
        assert same(kernel.run((made,), arrays)["y"], want)
        broken = list(dict.fromkeys(mutants(made, cls, change)))[:6]
        silent = [mutant for mutant in broken if not noticed(mutant, arrays, want)]
        tried += len(broken)
        assert len(silent) <= HARMLESS.get(title, 0), silent[0]
    assert tried


def noticed(mutant: Any, arrays: Any, want: Any) -> bool:
    try:
        return not same(kernel.run((mutant,), arrays, seed=1)["y"], want)
    except (DplcError, KeyError):
        return True
