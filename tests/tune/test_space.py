"""The space: read off the rules, and walked lazily."""

from __future__ import annotations

import random
from unittest import mock

import pytest

from dplc.engine.rewrite.statements.driver import Engine, run_pipeline
from dplc.engine.ruleset import toolchain
from dplc.engine.schedule.space import DEFAULT, SKIP, DecisionPoint, Fire, Space, State, Token
from dplc.engine.tune.search import decided, mutated, options
from tests.tune.subjects import MACHINE, MATMUL, SOFTMAX, SUM, alone, kernels, space, tokens


@pytest.mark.parametrize("text", [MATMUL, SOFTMAX, SUM])
def test_the_default_walk_is_the_default_order(text: str) -> None:
    tools = toolchain()
    loops = run_pipeline(tools.engine, tools.pipelines["loop"], kernels(text)[:1], MACHINE)
    assert space(text).default().tile == run_pipeline(tools.engine, tools.pipelines["tile"], loops, MACHINE)


def test_siblings_are_never_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking at every option of every pass rewrites nothing; a candidate costs the firings in its schedule."""
    rewrite = mock.Mock(wraps=Engine.rewrite)
    monkeypatch.setattr(Engine, "rewrite", lambda *given: rewrite(*given))

    def rewritten() -> list[str]:
        return [getattr(call.args[1], "name", call.args[1]) for call in rewrite.call_args_list]

    found = space(MATMUL, "blockify_launch", "register_tile")
    walk = found.default()
    undecided = ("tileify", "tileify_chain", "drop_zero_load")  # always right, so no candidate differs by them
    assert [rule for rule in rewritten() if rule not in undecided] == [made.rule for made in walk.schedule]
    rewrite.reset_mock()
    assert sum(len(list(tokens(found, state))) for state, _ in found.states(walk.genome)) > 100 and not rewritten()
    state, fire = found.root.state, Fire("blockify_launch", "0/0", (("BM", 16), ("BN", 16)))
    assert found.after(state, fire) == found.after(state, fire) and found.after(state, fire).token == fire
    assert rewritten()[0] == "blockify_launch" and rewritten().count("blockify_launch") == 1  # once, then remembered


def test_a_decision_that_is_not_legal_becomes_the_nearest_or_the_default() -> None:
    found = space(MATMUL, "blockify_launch")
    for rule, site, values, token in (
        ("blockify_launch", "0/0", (30, 100), Fire("blockify_launch", "0/0", (("BM", 32), ("BN", 96)))),
        ("blockify_launch", "0/9", (16, 16), DEFAULT),
        ("no_such_rule", "0/0", (16, 16), DEFAULT),
    ):
        fire = Fire(rule, site, tuple(zip(("BM", "BN"), values, strict=True)))
        assert found.after(found.root.state, fire).token == token


def test_the_first_option_is_the_decision_of_the_default() -> None:
    """One firing by itself, or SKIP; only a pass that repeats is left to the default."""
    found = space(MATMUL)
    default = found.default()
    for state, _ in found.states(default.genome):
        said, step = found.reference(state), found.steps[state.step]
        fired = [made for made in default.schedule if made.step == step.label]
        if any("repeat" in rule.attributes for rule in step.rules):
            assert said in (DEFAULT, SKIP)
        elif len(fired) == 1:
            assert said == found.fire_of(fired[0])
        first = options(found, state)[0]
        token = first if isinstance(first, str) else found.filled(first, found.ordered)
        assert token == first or isinstance(token, Fire)
        assert found.after(state, token).state.program == found.after(state, DEFAULT).state.program


def test_mutations_change_something_and_stay_in_the_space() -> None:
    found, dice = alone(space(MATMUL)), random.Random(0)
    default = found.default()
    assert len({decided(found, mutated(default, dice), 0).key for _ in range(12)} - {default.key}) >= 6


def test_tma_can_be_chosen_with_what_it_opens() -> None:
    """cp.async by default; TMA, its swizzle and the peeled ring are in the space. The genome says what is skipped."""

    def by_tma(space: Space, state: State, slot: DecisionPoint) -> Token:
        if slot.step == "pipeline_predicated":
            return SKIP
        if slot.step in ("tma_copy", "split_inner_for_swizzle") and space.spots(state):
            return space.filled(space.spots(state)[0], space.ordered)
        return DEFAULT

    found = space("torch.randn(64, 256) @ torch.randn(256, 64)").walk(by_tma)
    rules = {made.rule for made in found.schedule}
    assert {"tma_copy", "pipeline_k_outer", "split_inner_for_swizzle"} <= rules and "async_copy" not in rules
    assert ("pipeline_predicated", SKIP) in {(slot.step, token) for slot, token in found.genome}
