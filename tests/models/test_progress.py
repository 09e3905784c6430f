"""What a compile tells while it works: each stage from its beginning to its end, never more than there is."""

from __future__ import annotations

from tiny_models import source

from dplc.codegen.target import target
from dplc.engine.compiler import compiler_with
from dplc.engine.models.compiling import ModelShape, compile_model


def test_every_stage_is_told_to_its_end() -> None:
    told: list[tuple[str, int, int]] = []
    options = compiler_with(target("sm_80"))
    compile_model(source("llama"), ModelShape(8), options, tell=lambda *stage: told.append(stage))
    assert told[:2] == [("capturing", 0, 1), ("capturing", 1, 1)]
    assert [done for stage, done, _ in told[2:]] == sorted(done for stage, done, _ in told[2:])
    assert {stage.split(":")[0] for stage, _, _ in told} == {"capturing", "compiling"}
    assert all(0 <= done <= total for _, done, total in told)
