"""The one-line policy of examples/overrides does what its comment says."""

from __future__ import annotations

from pathlib import Path

from dplc.codegen.target import target
from dplc.engine.rewrite.statements.driver import Engine
from dplc.engine.rewrite.statements.examples import read_subject
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
