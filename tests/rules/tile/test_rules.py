"""The rules themselves: their facts ask and never build, they stay short, their examples hold."""

from __future__ import annotations

import re

import pytest
from facts_purity import anew, checked, checked_facts
from nests import NESTS
from scheduling import MACHINE, rule_files, steps

from dplc.engine.kernels.examples import run_examples
from dplc.engine.language.evaluate import Fact
from dplc.engine.language.rule import BUILT_IN
from dplc.engine.language.rule_files import rule_paths
from dplc.engine.rewrite.statements.driver import LEVELS, Engine, run_pipeline
from dplc.ir.diagnostic import InternalError
from dplc.ir.tile import Sync

SIXTEEN = (
    "tileify", "chunk_matmul_k", "split_matmul_k", "cooperative_reduce", "blockify_launch",
    "chunk_reduce", "stage_inputs", "register_tile", "permute_register_tile", "double_buffer",
    "tma_copy", "split_inner_for_swizzle", "async_copy", "pad_smem", "pipeline_k_outer",
    "mark_unroll",
)  # fmt: skip


TILE = rule_paths(BUILT_IN / "tile")


def lengths(stem: str) -> list[int]:
    """Lines of each rule of a file, or of the rule of that name; without documentation, examples and empty lines."""
    whole = [path.read_text() for path in TILE if path.stem == stem]
    text = whole[0] if whole else next(filter(None, (_alone(path.read_text(), stem) for path in TILE)))
    text = re.sub(r'(?ms)^example ".*?(?=^(?:##|@|rule |example )|\Z)', "", text)
    rules = re.split(r"(?m)^(?=(?:@\w+\n)*rule )", text)
    return [sum(bool(line.strip()) and not line.startswith("#") for line in rule.splitlines()) for rule in rules[1:]]


def _alone(text: str, name: str) -> str:
    found = re.search(rf"(?ms)^rule {name}\b.*?(?=^(?:##|@|rule |guards |form )|\Z)", text)
    return found[0] if found else ""


def test_no_rule_is_longer_than_a_page() -> None:
    assert [path.stem for path in TILE if max(lengths(path.stem), default=0) > 60] == []


def test_the_sixteen_stay_small() -> None:
    assert sum(sum(lengths(stem)) for stem in SIXTEEN) <= 420


def test_every_rule_compiles_in_both_variants() -> None:
    """The matcher, the one that reports, decisions and template are generated when first asked for."""
    engine = Engine(rule_files())
    scheduling = [name for name, rule in engine.rules.rules.items() if rule.level in LEVELS]
    for rule in map(engine.rule, scheduling):
        assert rule.pattern and rule.reporting and rule.decisions and rule.template
    assert len(scheduling) > 80


def test_facts_never_build_statements() -> None:
    """The whole pipeline and all examples, every answer of every fact checked."""
    with checked_facts():
        engine = Engine(anew(rule_files()))
        for nest in NESTS.values():
            run_pipeline(engine, steps(), nest.kernels, MACHINE)
        tile_rules = [rule for rule in engine.rules.rules.values() if "rules/tile/" in rule.span.source.name]
        count, failures = run_examples(engine, tile_rules)
    assert count > 100
    assert [failure.render() for failure in failures] == []


def test_the_guard_catches_a_fact_that_builds() -> None:
    entry = Fact("bad", (), "stmt", lambda site: (Sync(),), frozenset(("tile",)))
    with pytest.raises(InternalError, match="built a statement"):
        checked(entry)(None)
