"""The one-line policies of examples/overrides do what their comments say."""

from __future__ import annotations

from pathlib import Path

import torch

import dplc
from dplc.codegen.target import target
from dplc.engine.kernels.examples import read_subject
from dplc.engine.rewrite.statements.driver import Engine
from dplc.engine.ruleset import toolchain
from dplc.ir.diagnostic import Source
from dplc.ir.text.parse import parse

OVERRIDES = Path(__file__).parents[2] / "examples" / "overrides"
SUM = """\
kernel f(a: f32[16]) -> b: f32[1]:
    Tile(i:1=THREAD):
        for k in 0..16 reduce:
            x = load a[k]
            s <- add(s, x)
        b[i] = s
"""


def unrolled(engine: Engine) -> bool:
    program = read_subject(parse(Source("sum", SUM)))
    return not engine.why_not("mark_unroll", program, target())


def test_one_number_of_the_policy_in_one_line() -> None:
    mine = toolchain([OVERRIDES / "my_policy.rw"])
    assert unrolled(toolchain().engine) and not unrolled(mine.engine)
    (why,) = mine.engine.why_not("mark_unroll", read_subject(parse(Source("sum", SUM))), target())
    assert "[U <= most_unrolled; U=16, most_unrolled=8]" in why.render()


def test_one_device_has_tiles_of_its_own() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(128, 32), torch.randn(32, 128)
    made = {}
    for device in ("rtx3090", "rtx4090"):
        for rules in ((), (OVERRIDES / "one_device.rw",)):
            compiled = dplc.compile(torch.matmul, (x, y), device="emulator", target=device, rules=rules, db=False)
            assert torch.allclose(compiled(x, y).double(), x.double() @ y.double(), atol=1e-4)
            made[device, bool(rules)] = compiled.ir("tile")
    assert made["rtx3090", True] == made["rtx3090", False]
    assert made["rtx4090", True] != made["rtx4090", False]
