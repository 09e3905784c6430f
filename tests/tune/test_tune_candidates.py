"""Candidates of fusion as decisions: chosen by the search, remembered as data, proved again, and never taken on trust."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("egglog")

from dplc.engine.api import Compiled
from dplc.engine.capture.capture import capture_text
from dplc.engine.capture.signature import Capture
from dplc.engine.cli.app import main
from dplc.engine.compiler import Compiler, Values
from dplc.engine.explore.candidates import (
    SOLUTION,
    Fusing,
    best,
    exploration,
    key_of_program,
    remembered,
    replayed,
)
from dplc.engine.explore.explore import Exploration, ExplorationOptions
from dplc.engine.explore.stored_solutions import NotProved, StoredSolution
from dplc.engine.language.rule import RuleSet, load
from dplc.engine.rewrite.trace import program_key
from dplc.engine.ruleset import Toolchain, toolchain
from dplc.engine.run.calls import accepted, run_reference
from dplc.engine.schedule.scheduling import stored_schedules
from dplc.engine.store.store import Decision, SqliteStore, Tuned, export_lines, import_lines
from dplc.engine.tune import tuning
from dplc.engine.tune.evaluators import PredictingEvaluator
from dplc.engine.tune.search import Budget, SearchOptions, SearchRun, Tried
from dplc.engine.tune.tuning import CANDIDATE, tune_program
from tests.tune.subjects import MACHINE

TWO = "torch.relu(torch.randn(64, 32) @ torch.randn(32, 48)) @ torch.randn(48, 16)"  # in one kernel by a candidate
NORM = "F.linear(F.layer_norm(torch.randn(64, 128), (128,)), torch.randn(32, 128))"  # needs scale_after_product
ONLY = frozenset((CANDIDATE,))
BUILT_IN = Path(__file__).parents[2] / "rules"


@functools.cache
def capture(text: str) -> Capture:
    return capture_text(text, 0)


def values(text: str, tools: Toolchain | None = None) -> Values:
    return Compiler(tools or toolchain(), MACHINE).values(capture(text))


def wishes(tries: int, *free: str) -> SearchOptions:
    return SearchOptions(budget=Budget(tries=tries), free=frozenset((CANDIDATE, *free)))


def right(text: str, compilation: Any) -> bool:
    results = Compiled(compilation, "emulator").run({})
    return accepted(results, run_reference(compilation.captured, capture(text).tensors))


def test_the_search_chooses_a_candidate_and_compile_takes_it(tmp_path: Path) -> None:
    path, tools = tmp_path / "t.sqlite", toolchain()
    with SqliteStore(path, tools.rules) as store:
        found = tune_program(Fusing(values(TWO)), PredictingEvaluator(), wishes(6, "register_tile"), store)
    assert found.label == "candidate 1" and found.gain > 1.5 and found.kept
    assert found.checked == "emulator, the program whole" and len(found.kernels) == 1
    other = tmp_path / "other.sqlite"  # an export is all that it takes
    with SqliteStore(path) as store, SqliteStore(other) as mine:
        (tmp_path / "share.jsonl").write_text(export_lines(store.select()))
        mine.add(import_lines(tmp_path / "share.jsonl"))
    schedules = stored_schedules(tools, other)
    plain = Compiler(tools, MACHINE).compile(capture(TWO))
    for otherwise in (None, best):  # compile, and compile --explore
        again = Compiler(tools, MACHINE, schedules=schedules, explore=remembered(otherwise)).compile(capture(TWO))
        assert len(plain.program.kernels) == 2 and len(again.program.kernels) == 1
        (origin,) = again.origins
        assert origin.source == "store" and origin.seconds == pytest.approx(found.seconds)
        assert right(TWO, again)


def test_every_candidate_with_every_schedule_gives_the_right_result() -> None:
    fusing = Fusing(values(NORM))
    found = tune_program(fusing, PredictingEvaluator(), SearchOptions(budget=Budget(tries=10), check=False))
    assert len(found.space.built) == len(found.space.ways) > 2
    for way in found.space.built:
        if not found.space.problems.get(way):
            kernels = [tuning.choose_schedule(inner, found.run) for inner, _ in found.space.spaces(way)]
            assert right(NORM, tuning.composed(fusing, way, tuning.winning(kernels))), found.space.ways[way]


def test_a_candidate_is_not_built_before_somebody_walks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[tuple[int, ...]] = []
    whole = Exploration.candidate

    def counted(self: Exploration, ranks: tuple[int, ...], label: str) -> Any:
        built.append(ranks)
        return whole(self, ranks, label)

    monkeypatch.setattr(Exploration, "candidate", counted)
    fusing = Fusing(values(NORM))
    space = tuning.space_of(fusing, SearchOptions(free=ONLY))
    assert len(space.ways) > 2 and not built and space.free == frozenset()
    space.default(0)
    assert not built
    space.default(2)
    assert built == [fusing.choices[1]]


def test_what_the_rules_decide_is_remembered_too(tmp_path: Path) -> None:
    """The search looked at the others: exploring need not look again, and takes what was found."""
    path, tools = tmp_path / "t.sqlite", toolchain()
    text = "torch.softmax(torch.randn(16, 64), -1) @ torch.randn(64, 32)"
    with SqliteStore(path, tools.rules) as store:
        found = tune_program(Fusing(values(text)), PredictingEvaluator(), wishes(4), store)
    assert found.way == 0 and found.kept
    schedules = stored_schedules(tools, path)

    def never(values: Values) -> Any:
        raise AssertionError("it was remembered")

    compiler = Compiler(tools, MACHINE, schedules=schedules)
    assert remembered(never)(compiler.values(capture(text))) is None
    with pytest.raises(AssertionError):
        remembered(never)(compiler.values(capture(TWO)))


def test_exploration_prices_kernels_under_remembered_schedules(tmp_path: Path) -> None:
    path, tools = tmp_path / "t.sqlite", toolchain()
    before = {c.signature: c.predicted_us for c in exploration(values(TWO)).candidates()}
    with SqliteStore(path, tools.rules) as store:
        tune_program(
            Fusing(values(TWO), top=1),
            PredictingEvaluator(),
            SearchOptions(budget=Budget(tries=60)),
            store,
        )
    compiler = Compiler(tools, MACHINE, schedules=stored_schedules(tools, path))
    after = exploration(compiler.values(capture(TWO)), ExplorationOptions(top=2)).candidates()[1]
    assert after.label == "rules" and after.predicted_us < 0.9 * before[after.signature]


def test_an_interrupt_keeps_what_was_found(tmp_path: Path) -> None:
    def observe(run: SearchRun, tried: Tried) -> None:
        if run.tries == 5:
            raise KeyboardInterrupt

    tools = toolchain()
    with SqliteStore(tmp_path / "t.sqlite", tools.rules) as store:
        fusing = Fusing(values(TWO))
        found = tune_program(fusing, PredictingEvaluator(), wishes(50), store, observe)
        assert found.run.interrupted and found.run.tries == 5 and found.kept
        assert store.get(key_of_program(fusing.values)) is not None
        assert store.counts()["attempts"] >= 3


def test_a_candidate_with_a_wrong_result_is_told_and_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = tuning.checked_whole

    def wrong(fusing: Fusing, way: int, kernels: Any) -> tuple[str, str]:
        return ("", "an output differs") if way else checked(fusing, way, kernels)

    monkeypatch.setattr(tuning, "checked_whole", wrong)
    found = tune_program(Fusing(values(TWO)), PredictingEvaluator(), wishes(4))
    assert found.way == 0 and found.wrong == {1: "an output differs"} and found.checked


# ---- proofs


@functools.cache
def solution() -> StoredSolution:
    """The candidate of NORM whose product comes before the scaling."""
    fusing = Fusing(values(NORM))
    way = next(way for way in (1, 2, 3) if "scale_after_product" in fusing.rules(way))
    (found,) = [d for d in fusing.written(way, ()) if d.rule == SOLUTION]
    return msgspec.convert(json.loads(json.dumps(found.parameters)), StoredSolution)


def test_a_solution_is_proved_again() -> None:
    made = replayed(values(NORM), [solution()])
    assert not made.problem and right(
        NORM, Compiler(toolchain(), MACHINE, explore=lambda _: made).compile(capture(NORM))
    )


def test_without_its_rules_nothing_is_proved() -> None:
    bare = msgspec.structs.replace(solution(), rules=())
    with pytest.raises(NotProved, match="do not make it equal"):
        replayed(values(NORM), [bare])
    with pytest.raises(NotProved, match="no recorded solution"):
        replayed(values(TWO), [solution()])


def _swapped(nodes: Any) -> Any:
    """Another function: another program."""
    place = next(n for n, node in enumerate(nodes) if node[0] == "E" and node[1] == ("rsqrt",))
    return (*nodes[:place], ("E", ("exp",), nodes[place][2]), *nodes[place + 1 :])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda r: {"nodes": _swapped(r.nodes)}, "do not make it equal"),
        (lambda r: {"roots": (0,)}, "do not make it equal"),
        (lambda r: {"roots": (len(r.nodes),)}, "not a solution"),
        (lambda r: {"stored": (999,)}, "not a solution"),
        (lambda r: {"nodes": (("E", ('exp" $t0)) (union $r0 $t1) (let $z (E1 "exp',), (0,)), *r.nodes)}, "node 0"),
        (lambda r: {"nodes": (("input", ("a",), ()), *r.nodes)}, "node 0"),
        (lambda r: {"nodes": (("E", ("exp",), (5,)), *r.nodes)}, "node 0"),
        (lambda r: {"nodes": (("Leaf", (77,), ()), *r.nodes), "roots": (0,)}, "do not make it equal"),
    ],
)
def test_what_somebody_wrote_into_a_store_is_not_believed(change: Any, said: str) -> None:
    """Data of a store that was imported: another program, nodes that are none, text for egglog to run."""
    made = msgspec.structs.replace(solution(), **change(solution()))
    with pytest.raises(NotProved, match=said):
        replayed(values(NORM), [made])


def test_a_store_that_lies_means_the_rules(tmp_path: Path) -> None:
    path, tools = tmp_path / "t.sqlite", toolchain()
    bad = msgspec.structs.replace(solution(), nodes=_swapped(solution().nodes))
    schedule = (Decision("candidate", SOLUTION, bad.region, msgspec.to_builtins(bad)),)
    tuned = Tuned(schedule, 1e-6, "predicted", 2e-6, "hill", 0, 1, "whole")
    with SqliteStore(path, tools.rules) as store:
        store.put(key_of_program(values(NORM)), tuned)
    told: list[str] = []
    schedules = stored_schedules(tools, path)
    made = Compiler(tools, MACHINE, schedules=schedules, explore=remembered(None, told.append)).compile(capture(NORM))
    assert made.plan.kernels == Compiler(tools, MACHINE).compile(capture(NORM)).plan.kernels
    assert len(told) == 1 and "not taken" in told[0]


# ---- rule edits


def rules(tmp_path: Path, *edits: tuple[str, str], more: str = "") -> RuleSet:
    """Three rules of the built-in ones as a user's own, with texts replaced."""
    text = "\n".join(
        _rule(BUILT_IN / file, name)
        for file, name in (
            ("tensor/commute.rw", "scale_after_product"),
            ("tensor/commute.rw", "scale_after_gain"),
            ("fusion/share.rw", "share_elementwise"),
        )
    )
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "mine.rw").write_text(text + more)
    return load([tmp_path / "mine.rw"])


def _rule(file: Path, name: str) -> str:
    text = file.read_text()
    begin = text.index(f"\nrule {name}") + 1
    end = text.find("\nexample", begin)
    return "override " + text[begin:end] + "\n"


NEW = "rule mine on tensor\nmatch\n    y = add(x, x)\nrewrite\n    y = multiply(x, 2.0)\n"


@pytest.mark.parametrize(
    ("edits", "more", "kept"),
    [
        ((), "", True),
        ((("varies along the reduced axis", "is not a factor"),), "", True),  # what a refusal says
        ((("no axis is left to sum", "it sums nothing"),), "\n# a comment\n", True),
        (
            (("rule scale_after_product(TILE: int = tile_side)", "rule scale_after_product(TILE: int = 64)"),),
            "",
            False,
        ),
        ((("rule scale_after_gain(TILE: int = tile_side)", "rule scale_after_gain(TILE: int = 64)"),), "", True),
        ((("rule share_elementwise", "rule share_elementwise(T: int = 1)"),), "", False),  # any may decide
        ((), NEW, False),  # nobody has offered it to the search
    ],
)
@pytest.mark.sampled(2)
def test_an_edit_invalidates_only_the_candidates_that_used_the_rule(
    tmp_path: Path, edits: Any, more: str, kept: bool
) -> None:
    path, first = tmp_path / "t.sqlite", rules(tmp_path)
    tools = toolchain(first)
    wanted = key_of_program(values(NORM, tools))
    fusing = Fusing(values(NORM, tools))
    way = next(way for way in (1, 2, 3) if "scale_after_product" in fusing.rules(way))
    schedule = fusing.written(way, ["register_tile"])
    with SqliteStore(path, first) as store:
        store.put(wanted, Tuned(schedule, 1e-6, "predicted", 2e-6, "hill", 0, 1, "whole"))
    edited = rules(tmp_path, *edits, more=more)
    with SqliteStore(path, edited) as store:
        assert (store.get(_with(wanted, edited)) is not None) is kept


def _with(key: Any, rules: RuleSet) -> Any:
    return msgspec.structs.replace(key, rules=rules.digest)


def test_an_edit_of_a_rule_of_a_schedule_counts_as_well(tmp_path: Path) -> None:
    text = (BUILT_IN / "tile/registers/register_tile.rw").read_text()
    mine = tmp_path / "mine.rw"
    mine.write_text("override " + text[text.index("\nrule ") + 1 : text.index("\nexample")] + "\n")
    first, path = load([mine]), tmp_path / "t.sqlite"
    tools = toolchain(first)
    fusing = Fusing(values(TWO, tools))
    wanted = key_of_program(fusing.values)
    for rules_used, kept in ((["register_tile"], False), (["xor_smem"], True)):
        with SqliteStore(path, first) as store:
            tuned = Tuned(fusing.written(0, rules_used), 1e-6, "predicted", 2e-6, "hill", 0, 1, "whole")
            assert store.put(_with(wanted, first), tuned)
        mine.write_text(mine.read_text().replace("require ", 'require 1 == 1 else "always"\nrequire ', 1))
        edited = load([mine])
        with SqliteStore(path, edited) as store:
            assert (store.get(_with(wanted, edited)) is not None) is kept
        first = edited


# ---- keys


def test_a_program_is_known_by_its_structure() -> None:
    def named(text: str) -> str:
        found = values(text)
        return program_key(found.lowered, found.known)

    one = "x = torch.randn(8, 16)\nw = torch.randn(16, 4)\ntorch.relu(x @ w)"
    assert named(one) == named(one.replace("x", "a").replace("w", "wide").replace("randn", "randn"))
    others = [
        one.replace("16", "32"), one.replace("relu", "sigmoid"), one.replace("x @ w", "x @ w + x[0, 0]"),
        one.replace("(8, 16)", "(8, 16, dtype=torch.float16)").replace("(16, 4)", "(16, 4, dtype=torch.float16)"),
    ]  # fmt: skip
    assert len({named(text) for text in (one, *others)}) == 5


def test_what_is_known_at_load_time_is_part_of_it() -> None:
    graph = values(NORM).lowered
    assert program_key(graph, ()) != program_key(graph, {graph.ins[0].name})


# ---- the command


def called(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str]:
    with pytest.raises(SystemExit) as stop:
        main([*arguments, "--target", "sm_90a"])
    seen = capsys.readouterr()
    assert stop.value.code in (0, None), seen.err
    return seen.out, seen.err


@pytest.mark.parametrize("search", ["hill", "mcts"])
@pytest.mark.sampled(1)
def test_tune_compile_and_run_agree(search: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "t.sqlite")
    asked = ("-c", TWO, "--db", path)
    free = ("--free", "candidate", "--free", "vector_axis", "--search", search)
    out, _ = called(capsys, "tune", *asked, "--tries", "6", *free)
    assert "fusion: candidate 1; checked: emulator, the program whole; kept" in out
    out, err = called(capsys, "compile", *asked, "--ir", "loop")
    assert out.count("kernel ") == 1 and "candidate of fusion from the store" in err
    out, _ = called(capsys, "compile", "-c", TWO, "--no-db", "--ir", "loop")
    assert out.count("kernel ") == 2
    out, _ = called(capsys, "run", *asked, "--device", "emulator")
    assert "ok" in out


def test_a_program_that_no_egraph_takes_in_is_tuned_as_the_rules_cut_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dplc.engine.explore.problem.MOST_AXES", 2)
    found = tune_program(Fusing(values(TWO)), PredictingEvaluator(), wishes(3))
    assert found.space.ways == ("rules",) and found.checked


def test_no_candidate_without_egglog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dplc.engine.explore.candidates.available", lambda: False)
    found = tune_program(Fusing(values(TWO)), PredictingEvaluator(), wishes(3))
    assert found.space.ways == ("rules",) and found.label == "rules"
