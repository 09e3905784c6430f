"""What a compile tells while it works, and what memory it held."""

from __future__ import annotations

import sys

import pytest
from tiny_models import source

from dplc.codegen.target import target
from dplc.engine.compiler import compiler_with
from dplc.engine.models.compiling import ModelShape, compile_model, peak_rss


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="who counts in KiB, and where to look it up, is Linux")
def test_the_peak_is_in_bytes() -> None:
    import resource

    least = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak = peak_rss()
    assert least << 10 <= peak <= resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    grown = bytearray(64 << 20)
    grown[:: 1 << 12] = b"x" * len(grown[:: 1 << 12])
    assert peak_rss() >= peak


def test_every_stage_is_told_to_its_end() -> None:
    told: list[tuple[str, int, int]] = []
    options = compiler_with(target("sm_80"))
    compile_model(source("llama"), ModelShape(8), options, tell=lambda *stage: told.append(stage))
    assert told[:2] == [("capturing", 0, 1), ("capturing", 1, 1)]
    assert [done for stage, done, _ in told[2:]] == sorted(done for stage, done, _ in told[2:])
    assert {stage.split(":")[0] for stage, _, _ in told} == {"capturing", "compiling"}
    assert all(0 <= done <= total for _, done, total in told)
