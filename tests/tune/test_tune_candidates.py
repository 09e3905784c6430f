"""Candidates of fusion as decisions: chosen by the search, remembered as data, proved again, and never taken on trust."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import Command
from msgspec import convert, to_builtins
from msgspec.structs import replace

pytest.importorskip("egglog")

from dplc.engine.compiler import Compiler, Values
from dplc.engine.explore.explore import (
    SOLUTION,
    ExplorationOptions,
    Fusing,
    exploration,
    key_of_program,
    remembered,
    replayed,
)
from dplc.engine.explore.saturate import NotProved, StoredSolution
from dplc.engine.language.rule import RuleSet, load
from dplc.engine.rewrite.trace import program_key
from dplc.engine.ruleset import Toolchain, toolchain
from dplc.engine.schedule.scheduling import stored_schedules
from dplc.engine.store.store import Decision, Schedule, SqliteStore, Tuned
from dplc.engine.tune import tuning
from dplc.engine.tune.evaluators import PredictingEvaluator
from dplc.engine.tune.search import Budget, Observer, SearchOptions, SearchRun, Tried, unheard
from dplc.engine.tune.tuning import CANDIDATE, Programmed, tune_program
from tests.tune.subjects import MACHINE, captured, right

TWO = "torch.relu(torch.randn(64, 32) @ torch.randn(32, 48)) @ torch.randn(48, 16)"  # in one kernel by a candidate
NORM = "F.linear(F.layer_norm(torch.randn(64, 128), (128,)), torch.randn(32, 128))"  # needs scale_after_product
ONLY = frozenset((CANDIDATE,))
BUILT_IN = Path(__file__).parents[2] / "rules"


def compiler(path: Path | None = None, tools: Toolchain | None = None) -> Compiler:
    """A compiler, with the schedules of a store if one is given."""
    tools = tools or toolchain()
    return Compiler(tools, MACHINE, schedules=stored_schedules(tools, path) if path else None)


def values(text: str, tools: Toolchain | None = None) -> Values:
    return compiler(tools=tools).values(captured(text))


def tuned(text: str, tries: int, path: Path | None = None, observe: Observer = unheard) -> Programmed:
    """What a search of the candidates alone finds."""
    store = SqliteStore(path, toolchain().rules) if path else None
    options = SearchOptions(budget=Budget(tries=tries), free=ONLY)
    return tune_program(Fusing(values(text)), PredictingEvaluator(), options, store, observe)


def kept(schedule: Schedule) -> Tuned:
    return Tuned(schedule, 1e-6, "predicted", 2e-6, "hill", 0, 1, "whole")


def test_a_candidate_that_is_chosen_is_taken_by_every_command(dplc: Command, tmp_path: Path) -> None:
    path, other = (tmp_path / name for name in ("t.sqlite", "other.sqlite"))
    asked = ("-c", TWO, "--target", "sm_90a")
    tune = ("tune --tries 6 --free candidate --free 010_double_buffer --db", path, *asked)
    found = dplc(*tune, "--json").json
    assert found["candidate"] == "candidate 1" and found["gain"] > 1.5 and found["kept"]
    assert found["checked"] == "emulator, the program whole" and len(found["kernels"]) == 1
    summary = "fusion: candidate 1; checked: emulator, the program whole; what is remembered is as good"
    assert summary in dplc(*tune).out
    shutil.copyfile(path, other)  # the file is all that it takes
    for command in ("compile", "compile --explore"):
        out, err = dplc(f"{command} --ir loop --db", other, *asked)
        assert out.count("kernel ") == 1 and "note: candidate of fusion from the store" in err
        assert (
            "schedule of `" in err and f": from the store, predicted for NVIDIA H200: {found['tuned_us']:.4g} us" in err
        )
    assert dplc("compile --no-db --ir loop", *asked).out.count("kernel ") == 2
    assert ": ok" in dplc("run --device emulator --db", other, *asked).out


def test_every_candidate_with_every_schedule_gives_the_right_result() -> None:
    fusing = Fusing(values(NORM))
    found = tune_program(fusing, PredictingEvaluator(), SearchOptions(budget=Budget(tries=10), check=False))
    assert len(found.space.built) == len(found.space.ways) > 2
    for way in found.space.built:
        if not found.space.problems.get(way):
            kernels = [tuning.choose_schedule(inner, found.run) for inner, _ in found.space.spaces(way)]
            assert right(NORM, tuning.composed(fusing, way, tuning.winning(kernels))), found.space.ways[way]


def test_a_candidate_is_not_built_before_somebody_walks_it() -> None:
    counts = Fusing.candidate.cache_info
    space, before = tuning.space_of(Fusing(values(NORM)), SearchOptions(free=ONLY)), counts().misses
    space.default(0)
    assert len(space.ways) > 2 and counts().misses == before and space.free == frozenset()
    space.default(2)
    assert counts().misses == before + 1


def test_a_choice_of_the_rules_is_remembered_too(path: Path) -> None:
    """The search looked at the others: exploring need not look again, and takes what was found."""
    text = "torch.softmax(torch.randn(64, 256), -1) @ torch.randn(256, 256)"
    found = tuned(text, 4, path)
    assert found.way == 0 and found.kept

    def never(values: Values) -> Any:
        raise AssertionError("it was remembered")

    assert remembered(never)(compiler(path).values(captured(text))) is None
    with pytest.raises(AssertionError):
        remembered(never)(compiler(path).values(captured(TWO)))


def test_exploration_prices_kernels_under_remembered_schedules(path: Path) -> None:
    text = "F.relu(torch.randn(64, 256) @ torch.randn(256, 48)).sum(-1)"
    before = {one.signature: one.predicted_us for one in exploration(values(text)).candidates()}
    with SqliteStore(path, toolchain().rules) as store:
        options = SearchOptions(budget=Budget(tries=60))
        tune_program(Fusing(values(text), top=1), PredictingEvaluator(), options, store)
    found = exploration(compiler(path).values(captured(text)), ExplorationOptions(top=2)).candidates()
    (after,) = (one for one in found if one.label == "rules")
    assert after.predicted_us < 0.9 * before[after.signature]


def test_an_interrupt_keeps_what_was_found(path: Path) -> None:
    def observe(run: SearchRun, tried: Tried) -> None:
        if run.tries == 5:
            raise KeyboardInterrupt

    found = tuned(TWO, 50, path, observe)
    assert found.run.interrupted and found.run.tries == 5 and found.kept
    with SqliteStore(path, toolchain().rules) as store:
        assert store.get(key_of_program(values(TWO))) is not None


def test_a_candidate_with_a_wrong_result_is_told_and_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = tuning.checked_whole

    def wrong(fusing: Fusing, way: int, kernels: Any) -> tuple[str, str]:
        return ("", "an output differs") if way else checked(fusing, way, kernels)

    monkeypatch.setattr(tuning, "checked_whole", wrong)
    for tries, last in ((1, (None, False)), (4, ("its kernels are those of the rules", True))):
        found = tuned(TWO, tries)
        assert found.way == 0 and found.wrong == {1: "an output differs"} and found.checked
        outcomes = [(one["problem"], one["tried"]) for one in found.candidates()]
        assert outcomes == [(None, True), ("an output differs", True), last]


@pytest.mark.parametrize(("place", "value"), [("problem.MOST_AXES", 2), ("explore.available", lambda: False)])
@pytest.mark.filterwarnings("ignore:dplc. the program is not explored")
def test_a_program_that_is_not_explored_is_tuned_as_the_rules_cut_it(
    place: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No e-graph takes it in, or egglog is not there."""
    monkeypatch.setattr(f"dplc.engine.explore.{place}", value)
    found = tuned(TWO, 3)
    assert found.space.ways == ("rules",) and found.label == "rules" and found.checked


# ---- proofs


@functools.cache
def solution() -> StoredSolution:
    """The candidate of NORM whose product comes before the scaling."""
    (found,) = [made for made in scaled(Fusing(values(NORM))) if made.rule == SOLUTION]
    return convert(json.loads(json.dumps(found.parameters)), StoredSolution)


def scaled(fusing: Fusing) -> Schedule:
    way = next(way for way in (1, 2, 3) if "scale_after_product" in fusing.rules(way))
    return fusing.written(way, ["register_tile"])


def swapped(nodes: Any) -> Any:
    """Another function: another program."""
    place = next(n for n, node in enumerate(nodes) if node[0] == "E" and node[1] == ("rsqrt",))
    return (*nodes[:place], ("E", ("exp",), nodes[place][2]), *nodes[place + 1 :])


def test_a_solution_is_proved_again() -> None:
    made = replayed(values(NORM), [solution()])
    assert right(NORM, Compiler(toolchain(), MACHINE, explore=lambda _: made).compile(captured(NORM)))
    with pytest.raises(NotProved, match="no recorded solution"):
        replayed(values(TWO), [solution()])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda r: {"rules": ()}, "do not make it equal"),
        (lambda r: {"nodes": swapped(r.nodes)}, "do not make it equal"),
        (lambda r: {"roots": (0,)}, "do not make it equal"),
        (lambda r: {"roots": (len(r.nodes),)}, "not a solution"),
        (lambda r: {"stored": (999,)}, "not a solution"),
        (lambda r: {"nodes": (("E", ('exp" $t0)) (union $r0 $t1) (let $z (E1 "exp',), (0,)), *r.nodes)}, "node 0"),
        (lambda r: {"nodes": (("input", ("a",), ()), *r.nodes)}, "node 0"),
        (lambda r: {"nodes": (("E", ("exp",), (5,)), *r.nodes)}, "node 0"),
        (lambda r: {"nodes": (("Leaf", (77,), ()), *r.nodes), "roots": (0,)}, "do not make it equal"),
    ],
)
def test_a_solution_that_somebody_wrote_is_not_believed(change: Callable[[Any], Any], said: str) -> None:
    """Data of a store that was imported: another program, nodes that are none, text for egglog to run."""
    with pytest.raises(NotProved, match=said):
        replayed(values(NORM), [replace(solution(), **change(solution()))])


def test_a_store_that_lies_means_the_rules(path: Path) -> None:
    messages: list[str] = []
    bad = replace(solution(), nodes=swapped(solution().nodes))
    with SqliteStore(path, toolchain().rules) as store:
        schedule = (Decision("candidate", SOLUTION, bad.region, to_builtins(bad)),)
        assert store.put(key_of_program(values(NORM)), kept(schedule))
    explored = Compiler(
        toolchain(), MACHINE, schedules=compiler(path).schedules, explore=remembered(None, messages.append)
    )
    assert explored.compile(captured(NORM)).plan.kernels == compiler().compile(captured(NORM)).plan.kernels
    assert len(messages) == 1 and "not taken" in messages[0]


# ---- rule edits


def mine(file: Path, old: str = "", new: str = "") -> RuleSet:
    """Four rules of the built-in ones as a user's own, with a text replaced."""
    text = ""
    for path, name in (
        ("tensor/commute.rw", "scale_after_product"),
        ("tensor/commute.rw", "scale_after_gain"),
        ("fusion/share.rw", "share_elementwise"),
        ("tile/registers/register_tile.rw", "register_tile"),
    ):
        whole = (BUILT_IN / path).read_text()
        begin = whole.index(f"\nrule {name}") + 1
        text += f"override {whole[begin : whole.find(chr(10) + 'example', begin)]}\n\n"
    assert old in text
    file.write_text(text.replace(old, new))
    return load([file])


NEW = "rule mine on tensor\nmatch\n    y = add(x, x)\nrewrite\n    y = multiply(x, 2.0)\n\n"


def test_an_edit_invalidates_only_the_candidates_that_used_the_rule(tmp_path: Path) -> None:
    """A candidate that used `scale_after_product`, and the choice of the rules, both with `register_tile`."""
    file, first = tmp_path / "mine.rw", mine(tmp_path / "mine.rw")
    fusing = Fusing(values(NORM, toolchain(first)))
    wanted, paths = key_of_program(fusing.values), (tmp_path / "candidate.sqlite", tmp_path / "rules.sqlite")
    for path, schedule in zip(paths, (scaled(fusing), fusing.written(0, ["register_tile"])), strict=True):
        with SqliteStore(path, first) as store:
            assert store.put(wanted, kept(schedule))
    for old, new, holds in (
        ("varies along the reduced axis", "is not a factor", [True, True]),  # what a refusal says
        ("no axis is left to sum", "it sums nothing", [True, True]),
        ("scale_after_product(TILE: int = tile_side)", "scale_after_product(TILE: int = 64)", [False, True]),
        ("scale_after_gain(TILE: int = tile_side)", "scale_after_gain(TILE: int = 64)", [True, True]),
        ("rule share_elementwise", "rule share_elementwise(T: int = 1)", [False, False]),  # any may decide
        ("rule register_tile(", "rule register_tile(T: int = 1, ", [False, False]),
        ("override rule share_elementwise", NEW + "override rule share_elementwise", [False, False]),  # never offered
    ):
        edited = mine(file, old, new)
        key = replace(wanted, rules=edited.digest)
        assert [SqliteStore(path, edited).get(key) is not None for path in paths] == holds, new


# ---- keys


def test_a_program_is_known_by_its_structure() -> None:
    def named(text: str) -> str:
        found = values(text)
        return program_key(found.lowered, found.known)

    one = "k = torch.float32\nx = torch.randn(8, 16, dtype=k)\nw = torch.randn(16, 4, dtype=k)\ntorch.relu(x @ w)"
    assert named(one) == named(one.replace("x", "a").replace("w", "wide"))
    changes = ("16", "64"), ("relu", "sigmoid"), ("x @ w", "x @ w + x[0, 0]"), ("float32", "float16")
    assert len({named(one), *(named(one.replace(*change)) for change in changes)}) == 5
    graph = values(NORM).lowered
    assert program_key(graph, ()) != program_key(graph, {graph.ins[0].name})  # known at load time
