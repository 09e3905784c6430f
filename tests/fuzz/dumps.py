"""Dumps on their way to CUDA: what `dplc compile FILE.ir` and `dplc run FILE.ir` do with a text, but for the building."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mutators as m
import torch

from dplc.codegen.materialise import materialise
from dplc.codegen.target import Target, target
from dplc.engine.capture.capture import capture
from dplc.engine.cli.programs import compile_dump, draw, read_dump, reference_of
from dplc.engine.compiler import Compiler
from dplc.engine.ruleset import toolchain
from dplc.ir.text.programs import print_program, read_program, sizes_of

LEVELS = ("torch", "tensor", "loop", "tile", "kernel")
HAND_WRITTEN = sorted((Path(__file__).parents[2] / "examples" / "dumps").glob("*.ir"))
# A product whose operands no matrix load can take: they are packed.
PACKED = """## level: tile
kernel f(A: f16[16, 32], B: f16[8, 32]) -> C: f32[16, 8]:
    Tile(g:8=THREAD, t:4=THREAD, n:2=REG, h:2=REG, v:2=REG, u:2=REG, w:2=REG):
        a = load A[h*8 + g, n*16 + u*8 + t*2 + w]
        b = load B[g, n*16 + u*8 + t*2 + w]
        Mma(acc, a, b, atom=m16n8k16, axes=(g, t, h, v, u, w), over=(n))
        C[h*8 + g, t*2 + v] = acc
"""
# Nothing between two kernels is known but what the text says.
SIZED = """## level: tile
kernel rows(s: 4..64 by 4 hint 16, x: f32[s, 33]) -> total: f32[s]:
    Tile(i:s=BLOCK, t:32=THREAD, r:2=REG):
        if r*32 + t < 33:
            a = load x[i, r*32 + t]
            p <- add(p, a)
        Combine(p, add, over=(t, r))
        total[i] = p

kernel scaled(s: 4..64 by 4 hint 16, total: f32[s]) -> y: f32[s]:
    Tile(i:s // 4=BLOCK, j:4=THREAD):
        b = load total[i*4 + j]
        y[i*4 + j] = multiply(b, 0.5)
"""
MOST_ELEMENTS = 1 << 18  # of arrays whose meaning is computed: more is work that was asked for


def _programs() -> Iterator[tuple[str, bool, Any, list[Any]]]:
    """(target, whether boxes are copied, a function, its inputs): together they hold most statements."""
    drawn, half = torch.randn, torch.float16
    square = [drawn(64, 64, dtype=half), drawn(64, 64, dtype=half)]
    yield "sm_80", False, lambda a, b: torch.relu(a @ b), square
    yield "h200", True, lambda a, b: a @ b, [drawn(256, 256, dtype=half) for _ in range(2)]
    yield "h200", False, lambda x: torch.softmax(x, -1), [drawn(7, 600)]
    yield "h200", False, lambda x: x.cumsum(1), [drawn(7, 100)]
    yield "sm_80", False, lambda t, i: t[i] * 2, [drawn(10, 24), torch.randint(0, 10, (5,))]
    yield "sm_80", False, lambda x: torch.cat([x[1:], torch.relu(x)], 0).sum(1), [drawn(6, 12)]


class Dumps:
    """Texts of every level: read, compiled, and their meaning computed where it is little work."""

    name = "dumps"

    def __init__(self, folder: Path, evil: tuple[str, ...]) -> None:
        folder.mkdir()
        self.evil, self.path, self.tools = evil, folder / "mutant.ir", toolchain()
        boxes = toolchain(settings={"tma_copy": {"prefer": False}})
        self.made: list[tuple[str, Target]] = []
        for machine, box, function, inputs in _programs():
            compiled = Compiler(boxes if box else self.tools, target(machine)).compile(capture(function, inputs))
            self.made += [(compiled.ir(level), target(machine)) for level in LEVELS]
        for text in (PACKED, SIZED):
            kernels = tuple(materialise(unit, target("sm_80")) for unit in read_program(text, sizes=None)[1])
            self.made += [(text, target("sm_80")), (print_program(kernels, "kernel"), target("sm_80"))]
        self.made += [(path.read_text(), target("h200")) for path in HAND_WRITTEN]
        self.texts = tuple(text for text, _ in self.made)

    def attack(self, dice: random.Random) -> None:
        text, machine = dice.choice(self.made)
        text = m.near_text(dice, text) if dice.random() < 0.6 else m.changed_text(dice, text, self.texts, self.evil)
        self.path.write_text(text)
        dump = read_dump(self.path, {name: size.hint for name, size in sizes_of(text, str(self.path)).items()})
        compiled = compile_dump(dump, Compiler(self.tools, machine))
        for level in (*LEVELS, "cuda"):
            compiled.ir(level)
        plan = dump.plan
        if sum(math.prod(array.shape) for array in (*plan.inputs, *plan.outputs, *plan.temporaries)) < MOST_ELEMENTS:  # type: ignore[arg-type]
            reference_of(dump, draw(plan.inputs, 0))
