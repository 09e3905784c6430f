"""The arena: buffers that live at once never share a byte, little is wasted, and programs run in it."""

from __future__ import annotations

import contextlib
import itertools
import random
from dataclasses import replace

import numpy as np
import pytest
from counting import most_alive

from dplc.codegen.emulator.executor import EmulatorExecutor
from dplc.codegen.kernel import (
    ALIGNMENT,
    Arena,
    Buffer,
    CudaKernel,
    KernelParam,
    Program,
    aligned,
    lifetimes,
    plan,
    with_arena,
)
from dplc.ir.diagnostic import DplcError


def _kernel(reads: int, size: int) -> CudaKernel:
    """y = the sum of what it reads + 1."""
    names = [f"x{n}" for n in range(reads)]
    params = (*(KernelParam(name, "f32", (size,)) for name in names), KernelParam("y", "f32", (size,), "out"))
    declared = ", ".join(param.declaration for param in params)
    value = " + ".join(f"{name}[threadIdx.x]" for name in names)
    text = f'extern "C" __global__ void add{reads}({declared}) {{\n    y[threadIdx.x] = {value} + 1.0f;\n}}\n'
    return CudaKernel(f"add{reads}", text, (1, 1, 1), size, 0, params)


def chain(seed: int, launches: int = 40, size: int = 8) -> Program:
    """A random program: every launch reads one to three buffers that are there, and makes one."""
    dice = random.Random(seed)
    made, kernels, bindings = ["x"], [], []
    for number in range(launches):
        reads = dice.choices(made[-6:], k=dice.randint(1, 3))
        made.append("out" if number == launches - 1 else f"t{number}")
        kernels.append(_kernel(len(reads), size))
        bindings.append((*reads, made[-1]))
    used = {name for names in bindings for name in names}
    temporaries = tuple(Buffer(name, "f32", (size,)) for name in made[1:-1] if name in used)
    x, out = Buffer("x", "f32", (size,)), Buffer("out", "f32", (size,))
    return Program(tuple(kernels), (x,), (out,), (), temporaries, tuple(bindings))


def sized(seed: int, count: int = 60) -> Program:
    """Buffers of many sizes that live for random stretches of launches."""
    dice = random.Random(seed)
    buffers = [
        Buffer(f"t{n}", "f32", (dice.choice([1, 7, 64, 65, 1000, 4096]) * dice.randint(1, 9),)) for n in range(count)
    ]
    lives = [sorted(dice.choices(range(count), k=2)) for _ in buffers]
    kernels, bindings = [], []
    for place in range(count):
        names = [b for b, (first, last) in zip(buffers, lives, strict=True) if place in (first, last)]
        params = tuple(KernelParam(f"p{n}", "f32", b.shape, "out") for n, b in enumerate(names))
        kernels.append(CudaKernel(f"k{place}", "", (1, 1, 1), 32, 0, params))
        bindings.append(tuple(b.name for b in names))
    return Program(tuple(kernels), (), (), (), tuple(buffers), tuple(bindings))


@pytest.mark.parametrize("seed", range(12))
def test_no_two_that_live_at_once_overlap(seed: int) -> None:
    program = sized(seed)
    arena, lives = plan(program), lifetimes(program)
    assert set(arena.offsets) == {buffer.name for buffer in program.temporaries}
    assert all(offset % ALIGNMENT == 0 for offset in arena.offsets.values())
    for a, b in itertools.combinations(program.temporaries, 2):
        at_once = lives[a.name][0] <= lives[b.name][1] and lives[b.name][0] <= lives[a.name][1]
        start, other = arena.offsets[a.name], arena.offsets[b.name]
        if at_once:
            assert start + a.nbytes <= other or other + b.nbytes <= start, (a.name, b.name)
    assert max(arena.offsets[b.name] + aligned(b) for b in program.temporaries) == arena.bytes
    assert most_alive(program) <= arena.bytes <= 1.2 * most_alive(program)


@pytest.mark.parametrize("seed", range(3))
def test_programs_run_in_their_arena(seed: int) -> None:
    program = with_arena(chain(seed))
    assert program.arena is not None
    assert program.arena.bytes < sum(map(aligned, program.temporaries)) / 2
    x = np.arange(8, dtype=np.float32)
    want = EmulatorExecutor().run(program, {"x": x})["out"]
    session = EmulatorExecutor(arena=True).prepare(program, {})
    for _ in range(2):
        np.testing.assert_array_equal(session.run({"x": x})["out"], want)


def test_a_plan_that_is_wrong_is_seen() -> None:
    """All temporaries at one place: a value is lost, and poison or another value comes out."""
    program = chain(0)
    broken = Arena(aligned(program.temporaries[0]), {buffer.name: 0 for buffer in program.temporaries})
    wrong = Program(
        *(getattr(program, f) for f in ("kernels", "inputs", "outputs", "constants", "temporaries", "bindings")), broken
    )
    x = np.arange(8, dtype=np.float32)
    got = EmulatorExecutor(arena=True).run(wrong, {"x": x})["out"]
    assert not np.array_equal(got, EmulatorExecutor().run(program, {"x": x})["out"])


def test_no_temporaries_no_arena() -> None:
    x, y = Buffer("x0", "f32", (8,)), Buffer("y", "f32", (8,))
    program = with_arena(Program((_kernel(1, 8),), (x,), (y,)))
    assert program.arena == Arena(0, {})
    got = EmulatorExecutor(arena=True).run(program, {"x0": np.zeros(8, np.float32)})["y"]
    np.testing.assert_array_equal(got, np.ones(8))


def test_behind_the_last_of_the_arena_is_nothing() -> None:
    """A launch that reads on behind it faults, as behind an array of its own."""
    x, t, y = (Buffer(name, "f32", (1024,)) for name in ("x0", "t", "y"))
    wide = replace(_kernel(1, 1024), name="wide", text=_kernel(1, 1024).text.replace("add1", "wide"))
    beyond = replace(wide, text=wide.text.replace("x0[threadIdx.x]", "x0[threadIdx.x + 1024]"))
    for last, wrong in ((wide, False), (beyond, True)):
        program = with_arena(Program((_kernel(1, 1024), last), (x,), (y,), (), (t,), (("x0", "t"), ("t", "y"))))
        assert program.arena == Arena(aligned(t), {"t": 0})
        with pytest.raises(DplcError) if wrong else contextlib.nullcontext():
            EmulatorExecutor(arena=True).run(program, {"x0": np.zeros(1024, np.float32)})
