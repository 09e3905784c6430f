"""The space: read off the rules, walked lazily, and replayed exactly."""

from __future__ import annotations

import random
from typing import Any

import pytest

from dplc.engine.cost.instruction_counts import instruction_counts
from dplc.engine.cost.predict import predict
from dplc.engine.kernels.sharing import key
from dplc.engine.rewrite.statements.driver import Engine, run_pipeline
from dplc.engine.ruleset import toolchain
from dplc.engine.schedule.scheduling import Scheduler, replay
from dplc.engine.schedule.space import DEFAULT, SKIP, DecisionPoint, Fire, ScheduleCandidate, Space, State, Token
from dplc.engine.store.store import Decision
from dplc.engine.tune.search import mutated, options, random_token
from dplc.ir.diagnostic import DplcError
from dplc.ir.expr import Var
from dplc.ir.substitute import substitute
from tests.tune.subjects import MACHINE, MATMUL, SOFTMAX, SUM, alone, kernels, space, tokens


@pytest.mark.parametrize("text", [MATMUL, SOFTMAX, SUM])
def test_the_default_walk_is_the_default_order(text: str) -> None:
    tools = toolchain()
    loops = run_pipeline(tools.engine, tools.pipelines["loop"], kernels(text)[:1], MACHINE)
    assert space(text).default().tile == run_pipeline(tools.engine, tools.pipelines["tile"], loops, MACHINE)


def walked(found: Space, seed: int, chance: float = 0.4) -> ScheduleCandidate:
    dice = random.Random(seed)
    return found.walk(
        lambda space, state, slot: random_token(found, state, dice) if dice.random() < chance else DEFAULT
    )


@pytest.mark.parametrize("text", [MATMUL, SOFTMAX])
def test_random_schedules_are_replayed_exactly_whatever_the_names_are(text: str) -> None:
    found, (kernel, *_) = space(text), kernels(text)
    again = {p.name: Var(f"other_{n}") for n, p in enumerate((*kernel.ins, *kernel.outs))}
    (other,) = substitute((kernel,), again)
    assert key(other) == key(kernel) and other is not kernel
    for seed in range(6):
        candidate = walked(found, seed)
        assert replay(Scheduler(toolchain(), MACHINE), kernel, candidate.schedule)[0] == candidate.tile
        renamed = replay(Scheduler(toolchain(), MACHINE), other, candidate.schedule)[0]
        assert [key(k) for k in renamed] == [key(k) for k in candidate.tile]


def test_a_schedule_that_does_not_fit_is_refused() -> None:
    schedule = space(MATMUL).default().schedule
    with pytest.raises(DplcError, match="does not fit"):
        replay(Scheduler(toolchain(), MACHINE), kernels(SOFTMAX)[0], schedule)
    with pytest.raises(DplcError, match="does not run"):
        replay(Scheduler(toolchain(), MACHINE), kernels(MATMUL)[0], (Decision("no_such_pass", "r", "0"),))


def test_siblings_are_never_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking at every option of every pass rewrites nothing; a candidate costs the firings in its schedule."""
    rewritten: list[str] = []
    whole = Engine.rewrite

    def counted(self: Engine, rule: Any, *rest: Any) -> Any:
        rewritten.append(getattr(rule, "name", rule))
        return whole(self, rule, *rest)

    monkeypatch.setattr(Engine, "rewrite", counted)
    found = space(MATMUL, "blockify_launch", "register_tile")
    walk = found.default()
    fired = [d.rule for d in walk.schedule]
    undecided = ("tileify", "tileify_chain", "drop_zero_load")  # always right, so no candidate differs by them
    assert [rule for rule in rewritten if rule not in undecided] == fired
    before = len(rewritten)
    many = 0
    for state, _ in found.states(walk.genome):
        for spot in found.spots(state):
            many += len(list(tokens(found, state)))
            assert spot.open is not None
    assert many > 100 and len(rewritten) == before
    state, _ = next(iter(found.states(walk.genome)))
    assert found.slot(state).step == "blockify_launch"
    fire = found.filled(found.spots(state)[0], found.ordered)
    assert isinstance(fire, Fire) and found.after(state, fire).state.program != state.program
    before = len(rewritten)
    other = Fire(fire.rule, fire.where, (("BM", 16), ("BN", 16)))
    found.after(state, other)
    found.after(state, other)
    assert rewritten[before] == "blockify_launch" and rewritten.count("blockify_launch") <= 3  # once, then remembered


def test_what_is_not_legal_becomes_the_nearest_or_the_default() -> None:
    found = space(MATMUL, "blockify_launch")
    state = found.root.state
    near = found.after(state, Fire("blockify_launch", "0/0", (("BM", 30), ("BN", 100)))).token
    assert near == Fire("blockify_launch", "0/0", (("BM", 32), ("BN", 96)))
    assert found.after(state, Fire("blockify_launch", "0/9", (("BM", 16), ("BN", 16)))).token == DEFAULT
    assert found.after(state, Fire("no_such_rule", "0/0")).token == DEFAULT


def test_options_begin_with_what_the_default_does() -> None:
    found = space(MATMUL)
    for state, _ in found.states(found.default().genome):
        first = options(found, state)[0]
        token = first if isinstance(first, str) else found.filled(first, found.ordered)
        assert token == first or isinstance(token, Fire)
        assert found.after(state, token).state.program == found.after(state, DEFAULT).state.program


def test_what_the_default_does_is_said_as_a_token() -> None:
    """One firing by itself, or SKIP; only a pass that repeats is left to the default."""
    found = space(MATMUL)
    for state, _ in found.states(found.default().genome):
        said, step = found.reference(state), found.steps[state.step]
        fired = [d for d in found.default().schedule if d.step == found.slot(state).step]
        if any("repeat" in rule.attributes for rule in step.rules):
            assert said in (DEFAULT, SKIP)
        elif len(fired) == 1:
            assert said == found.fire_of(fired[0])


def test_a_pass_can_be_skipped_and_the_genome_says_so() -> None:
    found = space(MATMUL)
    walk = found.walk(lambda space, state, slot: SKIP if slot.step == "register_tile" else DEFAULT)
    assert not any(d.step == "register_tile" for d in walk.schedule)
    assert {slot.step: token for slot, token in walk.genome}["register_tile"] == SKIP


def test_mutations_change_something_and_stay_in_the_space() -> None:
    found, dice = alone(space(MATMUL)), random.Random(0)
    default = found.default()
    keys = set()
    for _ in range(12):
        genome = mutated(default, dice)
        keys.add(found.walk(lambda space, state, slot, g=genome: g.get(slot, DEFAULT)).key)  # type: ignore[misc]
    assert len(keys - {default.key}) >= 6


BOXED = "torch.randn(64, 256) @ torch.randn(256, 64)"


def test_tma_can_be_chosen_with_what_it_opens() -> None:
    """cp.async by default; TMA, its swizzle and the peeled ring are in the space."""
    found = space(BOXED)

    def by_tma(space: Space, state: State, slot: DecisionPoint) -> Token:
        if slot.step == "pipeline_predicated":
            return SKIP
        if slot.step in ("tma_copy", "split_inner_for_swizzle") and space.spots(state):
            return space.filled(space.spots(state)[0], space.ordered)
        return DEFAULT

    made = found.walk(by_tma)
    rules = [decision.rule for decision in made.schedule]
    assert {"tma_copy", "pipeline_k_outer"} <= set(rules) and "split_inner_for_swizzle" in rules
    assert "async_copy" not in rules and "copy_box_2d" in made.cuda[0].text
    assert replay(Scheduler(toolchain(), MACHINE), kernels(BOXED)[0], made.schedule)[0] == made.tile
    predicted = predict(instruction_counts(made.kernels[0]), MACHINE).seconds
    assert predicted < 1.5 * predict(instruction_counts(found.default().kernels[0]), MACHINE).seconds
