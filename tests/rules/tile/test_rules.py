"""The rules themselves: their facts ask and never build, they stay short, their examples hold."""

from __future__ import annotations

import re

import pytest
from nests import NESTS
from scheduling import MACHINE, rule_files, steps

from dplc.engine.facts.purity import checked, checked_facts
from dplc.engine.match.driver import Engine
from dplc.engine.match.examples import run_examples
from dplc.engine.match.passes import run_pipeline
from dplc.engine.rw.facts import Fact
from dplc.engine.rw.rule import BUILT_IN
from dplc.ir.diagnostic import InternalError
from dplc.ir.tile import Sync

SIXTEEN = (
    "001_tileify", "002_chunk_matmul_k", "003_split_matmul_k", "004_cooperative_reduce", "005_blockify_launch",
    "006_chunk_reduce", "007_stage_inputs", "008_register_tile", "009_permute_register_tile", "010_double_buffer",
    "011_tma_copy", "012_split_inner_for_swizzle", "013_async_copy", "014_pad_smem", "015_pipeline_k_outer",
    "016_mark_unroll",
)  # fmt: skip


def lengths(stem: str) -> list[int]:
    """Lines of each rule of a file, without documentation, examples and empty lines."""
    text = (BUILT_IN / "tile" / f"{stem}.rw").read_text()
    text = re.sub(r'(?ms)^example ".*?(?=^(?:##|@|rule |example )|\Z)', "", text)
    rules = re.split(r"(?m)^(?=(?:@\w+\n)*rule )", text)
    return [sum(bool(line.strip()) and not line.startswith("#") for line in rule.splitlines()) for rule in rules[1:]]


@pytest.mark.parametrize("stem", [path.stem for path in sorted((BUILT_IN / "tile").glob("*.rw"))])
def test_no_rule_is_longer_than_a_page(stem: str) -> None:
    assert max(lengths(stem)) <= 60


def test_the_sixteen_stay_small() -> None:
    assert sum(sum(lengths(stem)) for stem in SIXTEEN) <= 420


def test_facts_never_build_statements() -> None:
    """The whole pipeline and all examples, every answer of every fact checked."""
    with checked_facts():
        engine = Engine(rule_files())
        for nest in NESTS.values():
            run_pipeline(engine, steps(), nest.kernels, MACHINE)
        tile_rules = [rule for rule in engine.rules.rules.values() if "rules/tile/" in rule.span.source.name]
        count, failures = run_examples(engine, tile_rules)
    assert count > 100
    assert [failure.render() for failure in failures] == []


def test_the_guard_catches_a_fact_that_builds() -> None:
    entry = Fact("bad", (), "stmt", lambda site: (Sync(),), frozenset(("tile",)), "")
    with pytest.raises(InternalError, match="built a statement"):
        checked(entry)(None)
