"""Schedules out of the store at compile: exact for the same kernel, tried at other sizes, the default order otherwise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from counting import at_most_calls
from entries import tuned
from msgspec.structs import replace

from dplc.engine.bench.cases import read_suite, subject_of
from dplc.engine.compiler import Compilation, Compiler, compiler_with
from dplc.engine.kernels.sharing import key
from dplc.engine.rewrite.trace import Trace
from dplc.engine.ruleset import Toolchain, toolchain
from dplc.engine.schedule.scheduling import Scheduler, StoredSchedules, replay, stored_schedules
from dplc.engine.schedule.space import Space
from dplc.engine.store.store import Decision, Schedule, SqliteStore, TuningKey, distance, key_of
from tests.tune.subjects import MACHINE, SOFTMAX, captured, drawn, kernels, right, space


def product(rows: int = 64, inner: int = 96, columns: int = 80) -> str:
    return f"torch.relu(torch.randn({rows}, {inner}) @ torch.randn({inner}, {columns}))"


PRODUCT = product()


def remember(
    path: Path | None, text: str, schedule: Schedule | None = None, of: Mapping[str, Any] = {}, **more: Any
) -> None:
    """Store a schedule of the first kernel of a text, the default one if none is given. of: changes of its key."""
    chosen = space(text).default().schedule if schedule is None else schedule
    with SqliteStore(path, toolchain().rules) as store:
        assert store.put(replace(wanted(text), **of), tuned(schedule=chosen, **more))


def wanted(text: str) -> TuningKey:
    return key_of(kernels(text)[0], MACHINE, toolchain().rules)


def compiled(
    text: str, path: Path | None = None, tools: Toolchain | None = None, trace: Trace | None = None
) -> Compilation:
    tools = tools or toolchain()
    schedules = stored_schedules(tools, path) if path else None
    return Compiler(tools, MACHINE, trace, schedules=schedules).compile(captured(text))


# ---- the same kernel


@pytest.mark.parametrize(
    ("text", "renamed"),
    [
        (PRODUCT, "a = torch.randn(64, 96)\nb = torch.randn(96, 80)\ntorch.relu(torch.matmul(a, b))"),
        (SOFTMAX, "values = torch.randn(32, 1024)\nF.softmax(values, 1)"),
    ],
)
def test_a_replay_is_exact_whatever_the_names_are(tmp_path: Path, text: str, renamed: str) -> None:
    for seed in range(3):
        path, made = tmp_path / str(seed), next(drawn(space(text), 10 * seed))
        remember(path, text, made.schedule)
        same, other = compiled(text, path), compiled(renamed, path)
        assert [one.source for one in (*same.origins, *other.origins)] == ["store", "store"]
        assert same.tile == made.tile != compiled(text).tile
        assert other.tile != made.tile and list(map(key, other.tile)) == list(map(key, made.tile))


def test_a_value_that_a_rule_picks_is_remembered(path: Path) -> None:
    """`pick` takes one of several values without names: an operand of the product that is computed."""
    text = "torch.relu((torch.randn(64, 256) + torch.randn(256)) @ torch.randn(256, 64))"
    schedule = space(text).default().schedule
    assert [one.parameters for one in schedule if one.rule == "prepare_operand"] == [{"p": "#0_smem"}]
    remember(path, text)
    assert compiled(text, path).origins[0].source == "store"
    other = (replace(one, parameters={"p": "#7_smem"}) if one.rule == "prepare_operand" else one for one in schedule)
    remember(path, text, tuple(other), seconds=1e-6)
    assert "`prepare_operand` cannot fire" in compiled(text, path).origins[0].text


@pytest.mark.slow
def test_the_default_order_of_the_84_shapes_is_replayed() -> None:
    tools, suite = toolchain(), read_suite(Path(__file__).parents[2] / "examples" / "suites" / "kernels_84.json")
    found = {}
    for case in suite.cases:
        for kernel in compiler_with(MACHINE).cut(subject_of(suite, case).capture())[1].kernels:
            found[key(kernel)] = kernel, case.name
    for kernel, name in found.values():
        made = Space(tools, (kernel,), MACHINE).default()
        assert replay(Scheduler(tools, MACHINE), kernel, made.schedule)[0] == made.tile, name
    assert len(found) > 50


def test_the_trace_has_the_firings_of_a_replay(path: Path) -> None:
    remember(path, PRODUCT)
    stored, default = Trace(), Trace()
    compiled(PRODUCT, path, trace=stored), compiled(PRODUCT, trace=default)
    lines, expected = ([one.line().split("which=")[0] for one in trace.firings] for trace in (stored, default))
    assert lines == expected and "blockify_launch" in {firing.rule for firing in stored.firings}


def test_a_lookup_takes_less_than_a_thousand_calls(path: Path) -> None:
    remember(path, PRODUCT)
    schedules = stored_schedules(toolchain(), path)
    assert schedules is not None
    for most in (100_000, 1_000):  # the first one opens the store
        with at_most_calls(most):
            assert schedules.store.valid(schedules.store.exact(wanted(PRODUCT)), wanted(PRODUCT))


def test_tools_order_entries_and_leave_none_out(path: Path) -> None:
    """Another version of dplc, or of the model, made the schedule: it is replayed."""
    remember(path, PRODUCT, next(drawn(space(PRODUCT))).schedule, {"tools": "dplc 0.0.1; model 0"}, seconds=1e-6)
    (origin,) = compiled(PRODUCT, path).origins
    assert origin.source == "store" and "with other tools (dplc 0.0.1; model 0)" in origin.text
    remember(path, PRODUCT)
    (origin,) = compiled(PRODUCT, path).origins
    assert origin.source == "store" and "other tools" not in origin.text


# ---- other sizes, and none


def test_the_nearest_sizes_are_tried(path: Path) -> None:
    for rows in (64, 256):
        remember(path, product(rows))
    for text, source, said in (
        (PRODUCT, "store", "from the store"),
        (product(96, columns=64), "nearest", "64x96x80"),
        (product(192, columns=160), "nearest", "256x96x80"),
        (product(4096), "default", "nor at sizes near"),
        (PRODUCT.replace("relu", "tanh"), "default", "never tuned"),
    ):
        made = compiled(text, path)
        (origin,) = made.origins
        assert origin.source == source and said in origin.text and right(text, made)


def test_a_bad_schedule_is_not_taken_to_other_sizes(path: Path) -> None:
    big = product(64, 2048, 2048)
    remember(path, big, next(drawn(space(big), 4)).schedule)
    other = product(96, 2048, 2048)
    made = compiled(other, path)
    assert made.cuda == compiled(other).cuda and "predicted to be slower" in made.origins[0].text


def test_a_distance_is_in_octaves_and_ends() -> None:
    others = ((128, 96), (256, 192), (512, 96), (64,))
    assert [distance((64, 96), other, 2.0) for other in others] == [1.0, 3.0, math.inf, math.inf]


NUMBERS = (  # what is overridden, and whether a schedule of a product is still replayed
    ("number address_registers = 30", True),  # a fact in Python reads it
    ("number longest_row = 1000", True),  # a rule of fusion: the kernel is the same
    ("number coarsened_outputs = 32", True),  # a rule that does not fire in it
    ("number tile_sides = [16, 32]", False),  # a rule that fires in it
    ("number tile_sides = [16, 32] for h200", False),
    ("number tile_sides = [16, 32] for a100", True),
    ("fact vector_float() -> int = 2", False),  # a fact that such a rule asks
)


@pytest.mark.parametrize(("override", "replayed"), NUMBERS)
@pytest.mark.sampled(4)
def test_a_schedule_holds_under_another_policy_unless_its_rules_read_the_number(
    path: Path, override: str, replayed: bool
) -> None:
    remember(path, PRODUCT)
    mine = path.with_name("mine.rw")
    mine.write_text(f"override {override}\n")
    made = compiled(PRODUCT, path, toolchain([mine]).at(MACHINE))
    if replayed:
        assert made.origins[0].source == "store" and made.tile == compiled(PRODUCT, path).tile
    else:
        assert "default order: the rules have changed" in made.origins[0].text


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda schedule: schedule[:1], "262144 threads per block"),
        (lambda schedule: (replace(schedule[0], site="x"), *schedule[1:]), "does not fit"),
        (lambda schedule: (replace(schedule[0], site="9" * 5000), *schedule[1:]), "does not fit"),
        (lambda schedule: (replace(schedule[-1], parameters={"T": [[]], "BM": None}), *schedule[1:]), "does not fit"),
        (lambda schedule: (*schedule, Decision("no_such_pass", "r", "0")), "which does not run"),
    ],
)
def test_a_schedule_that_is_not_legal_is_not_taken(path: Path, capsys: Any, damage: Any, said: str) -> None:
    """The default order, and one note."""
    big = product(512, 512, 512)
    remember(path, big, damage(space(big).default().schedule))
    made = compiled(big, path)
    assert made.cuda == compiled(big).cuda
    assert made.origins[0].text.startswith("default order: ") and said in made.origins[0].text
    assert capsys.readouterr().err.count("is not taken") == 1


# ---- several kernels


def test_kernels_that_were_tuned_stand_beside_others(path: Path) -> None:
    call = "torch.softmax(torch.relu(x @ w) @ torch.relu(w.t() @ w), -1)"
    three = f"(lambda x, w: {call})(torch.randn(64, 96), torch.randn(96, 80))"
    remember(path, PRODUCT)
    made = compiled(three, path)
    assert {origin.source for origin in made.origins} == {"store", "default"}
    assert made.cuda == compiled(three).cuda
    assert len({kernel.name for kernel in made.tile}) == len(made.tile)


def test_names_that_meet(path: Path) -> None:
    """Schedules that make a second kernel, in two kernels: buffers and kernels have names of their own."""
    for rows in (16, 32):
        remember(path, product(rows, 8192, 16))  # the reduction is split
    twice = f"({product(16, 8192, 16)}, {product(32, 8192, 16)})"
    made = compiled(twice, path)
    assert [origin.source for origin in made.origins] == ["store", "store"]
    assert len({kernel.name for kernel in made.tile}) == len(made.tile) == 4
    assert len({param.name for kernel in made.tile for param in kernel.outs}) == 4
    assert right(twice, made)


# ---- switches


def test_a_store_can_be_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPLC_CACHE_DIR", str(tmp_path))
    own, tools = tmp_path / "tuning.sqlite", toolchain()
    remember(None, PRODUCT)
    monkeypatch.setenv("DPLC_NO_DB", "0")
    assert isinstance(stored_schedules(tools), StoredSchedules)
    assert stored_schedules(tools, wanted=False) is None
    pinned = toolchain(tools.rules, {"xor_smem": {}, "mark_unroll": {"U": 2}})
    assert stored_schedules(pinned) is None  # --set says what should happen
    monkeypatch.setenv("DPLC_NO_DB", "1")
    assert stored_schedules(tools) is None
    assert stored_schedules(tools, own) is not None  # asked for by name


def test_a_store_that_is_replaced_is_opened_again(path: Path) -> None:
    remember(path, PRODUCT)
    assert compiled(PRODUCT, path).origins[0].source == "store"
    path.unlink()
    assert compiled(PRODUCT, path).origins == ()
    SqliteStore(path).close()
    assert compiled(PRODUCT, path).origins[0].source == "default"
