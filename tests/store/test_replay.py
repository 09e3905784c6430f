"""Schedules out of the store at compile: exact for the same kernel, tried at other sizes, the default order otherwise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from counting import at_most_calls
from entries import tuned
from schedules import H200, default_schedule, loops, written_down

import dplc
from dplc.engine.bench.cases import read_suite, subject_of
from dplc.engine.capture.capture import capture
from dplc.engine.compiler import Compilation, Compiler
from dplc.engine.kernels.sharing import key
from dplc.engine.rewrite.trace import Remark, Trace
from dplc.engine.ruleset import Toolchain, toolchain
from dplc.engine.schedule.scheduling import Scheduler, StoredSchedules, replay, stored_schedules
from dplc.engine.schedule.space import Space
from dplc.engine.store.store import SqliteStore, distance, extents, family, key_of

SHAPES = ((64, 96), (96, 80))


def product(x: Any, w: Any) -> Any:
    return torch.relu(x @ w)


@pytest.fixture(scope="module")
def tools() -> Toolchain:
    return toolchain()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.sqlite"


def remembered(tools: Toolchain, path: Path, *shapes: tuple[int, ...], seed: int | None = None, **more: Any) -> Any:
    """A store with a schedule of `product` at these shapes; and the kernels it makes."""
    (kernel,) = loops(tools, product, *shapes)
    schedule, made = written_down(tools, kernel, seed) if seed is not None else default_schedule(tools, kernel)
    with SqliteStore(path, tools.rules) as store:
        assert store.put(key_of(kernel, H200, tools.rules), tuned(schedule=schedule, **more))
    return made


def compiled(
    tools: Toolchain, path: Path | None, function: Any, *shapes: tuple[int, ...], trace: Trace | None = None
) -> Compilation:
    captured = capture(function, [torch.randn(shape) for shape in shapes])
    return Compiler(tools, H200, trace, schedules=stored_schedules(tools, path) if path else None).compile(
        captured, 0.0
    )


# ---- the same kernel


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.sampled(1)
def test_a_replay_is_exact(tools: Toolchain, path: Path, seed: int) -> None:
    made = remembered(tools, path, *SHAPES, seed=seed)
    compilation = compiled(tools, path, product, *SHAPES)
    assert compilation.tile == made
    assert [origin.source for origin in compilation.origins] == ["store"]
    assert compiled(tools, path, product, *SHAPES).cuda == compilation.cuda
    assert compilation.cuda != compiled(tools, None, product, *SHAPES).cuda


def test_what_a_rule_picks_is_remembered(tools: Toolchain) -> None:
    """`pick` takes one of several values without names: an operand of the product that is computed."""
    (kernel,) = loops(tools, lambda x, b, w: torch.relu((x + b) @ w), (64, 256), (256,), (256, 64))
    schedule, made = default_schedule(tools, kernel)
    picks = [d for d in schedule if d.rule == "prepare_operand"]
    assert [d.parameters for d in picks] == [{"p": "#0_smem"}]
    assert replay(Scheduler(tools, H200), kernel, schedule)[0] == made
    other = [msgspec.structs.replace(d, parameters={"p": "#7_smem"}) if d in picks else d for d in schedule]
    with pytest.raises(dplc.DplcError, match="does not fit"):
        replay(Scheduler(tools, H200), kernel, tuple(other))


@pytest.mark.slow
def test_the_default_order_of_the_84_shapes_is_replayed(tools: Toolchain) -> None:
    suite = read_suite(Path(__file__).parents[2] / "examples" / "suites" / "kernels_84.json")
    seen = set()
    for case in suite.cases:
        captured = subject_of(suite, case).capture()
        for kernel in Compiler(tools, H200).cut(captured)[1].kernels:
            if key(kernel) not in seen:
                seen.add(key(kernel))
                schedule, made = default_schedule(tools, kernel)
                assert replay(Scheduler(tools, H200), kernel, schedule)[0] == made, case.name
    assert len(seen) > 50


def test_a_schedule_fits_every_kernel_of_its_structure(tools: Toolchain, path: Path) -> None:
    """Other names of buffers, of the kernel, of loops."""

    def another(a: Any, b: Any) -> Any:
        return torch.relu(torch.matmul(a, b))

    remembered(tools, path, *SHAPES, seed=3)
    one, other = (compiled(tools, path, f, *SHAPES) for f in (product, another))
    assert [origin.source for origin in other.origins] == ["store"]
    assert one.cuda != other.cuda  # names
    assert [k.grid for k in one.cuda_kernels] == [k.grid for k in other.cuda_kernels]
    assert [len(k.text.splitlines()) for k in one.cuda_kernels] == [
        len(k.text.splitlines()) for k in other.cuda_kernels
    ]


@pytest.mark.parametrize("shapes", [SHAPES, ((128, 96), (96, 77)), ((128, 96), (96, 160))])
def test_what_was_replayed_is_right(tools: Toolchain, path: Path, shapes: Any) -> None:
    """Exact at the first shape, from the nearest at the others."""
    remembered(tools, path, *SHAPES)
    x, w = (torch.randn(shape) for shape in shapes)
    made = dplc.compile(product, (x, w), device="emulator", target="h200", db=path)
    (origin,) = made.compilation.origins
    assert origin.source == ("store" if shapes is SHAPES else "nearest")
    reference = torch.relu(x.double() @ w.double())
    assert (made(x, w) - reference).abs().max() <= 1e-5 * reference.abs().max()


def test_the_trace_says_where_a_schedule_comes_from(tools: Toolchain, path: Path) -> None:
    remembered(tools, path, *SHAPES)
    trace = Trace()
    compiled(tools, path, product, *SHAPES, trace=trace)
    (remark,) = (event for event in trace.events if isinstance(event, Remark))
    assert "from the store, predicted for NVIDIA H200: 10 us, default order 20 us, predicted" in remark.text
    assert any(firing.rule == "blockify_launch" for firing in trace.firings)
    default = Trace()
    compiled(tools, None, product, *SHAPES, trace=default)
    lines, expected = ([f.line().split("which=")[0] for f in t.firings] for t in (trace, default))
    assert lines == expected
    assert "t:store matmul_relu: from the store" in trace.render(1)


def test_measured_goes_before_predicted(tools: Toolchain, path: Path) -> None:
    remembered(tools, path, *SHAPES, seed=1)
    made = remembered(tools, path, *SHAPES, seed=2, seconds=9e-5, basis="measured")
    compilation = compiled(tools, path, product, *SHAPES)
    assert compilation.tile == made
    assert compilation.origins[0].basis == "measured"


def test_a_lookup_takes_less_than_a_thousand_calls(tools: Toolchain, path: Path) -> None:
    remembered(tools, path, *SHAPES)
    (kernel,) = loops(tools, product, *SHAPES)
    schedules = stored_schedules(tools, path)
    assert schedules is not None
    for most in (100_000, 1_000):  # the first one opens the store
        with at_most_calls(most):
            wanted = key_of(kernel, H200, tools.rules)
            assert schedules.store.valid(schedules.store.exact(wanted), wanted)


# ---- other sizes, and none


def test_the_nearest_sizes_are_tried(tools: Toolchain, path: Path) -> None:
    for rows in (64, 256):
        remembered(tools, path, (rows, 96), (96, 80))
    (origin,) = compiled(tools, path, product, (192, 96), (96, 80)).origins
    assert origin.source == "nearest" and "256x96x80" in origin.text
    (origin,) = compiled(tools, path, product, (4096, 96), (96, 80)).origins
    assert origin.source == "default" and "nor at sizes near" in origin.text
    (origin,) = compiled(tools, path, lambda x, w: torch.tanh(x @ w), *SHAPES).origins
    assert origin.source == "default"


def test_a_bad_schedule_is_not_taken_to_other_sizes(tools: Toolchain, path: Path) -> None:
    remembered(tools, path, (64, 2048), (2048, 2048), seed=4)
    default = compiled(tools, None, product, (96, 2048), (2048, 2048))
    compilation = compiled(tools, path, product, (96, 2048), (2048, 2048))
    assert compilation.cuda == default.cuda
    assert "predicted to be slower" in compilation.origins[0].text


def test_families(tools: Toolchain) -> None:
    def kernel(function: Any, *shapes: tuple[int, ...]) -> Any:
        return loops(tools, function, *shapes)[0]

    one, two = kernel(product, *SHAPES), kernel(product, (128, 96), (96, 80))
    assert family(one) == family(two) != family(kernel(lambda x, w: x @ w, *SHAPES))
    assert extents(one) == (64, 96, 96, 80, 64, 80, 64, 80, 96)
    assert distance(extents(one), extents(two), 2.0) == 3.0  # rows: of x, of the result, of the loop
    assert distance((1, 8), (1, 64), 2.0) == float("inf")
    assert distance((1, 8), (1,), 2.0) == float("inf")


def test_changed_rules_mean_the_default_order(tools: Toolchain, path: Path, tmp_path: Path) -> None:
    remembered(tools, path, *SHAPES)
    text = "rule mine on tile\nmatch\n    Sync()\n    Sync()\nrewrite\n    Sync()\n"
    (tmp_path / "mine.rw").write_text(text)
    own = toolchain([tmp_path / "mine.rw"])
    compilation = compiled(own, path, product, *SHAPES)
    assert "rules have changed" in compilation.origins[0].text
    assert compilation.cuda == compiled(tools, None, product, *SHAPES).cuda


NUMBERS = (  # what is overridden, and whether a schedule of a product is still replayed
    ("number address_registers = 30", True),  # a fact in Python reads it
    ("number longest_row = 1000", True),  # a rule of fusion: the kernel is the same
    ("number coarsened_outputs = 32", True),  # a rule that does not fire in it
    ("number tile_areas = [2048, 1024]", False),  # a rule that fires in it
    ("number tile_areas = [2048, 1024] for h200", False),
    ("number tile_areas = [2048, 1024] for a100", True),
    ("fact small_tile_of(several: bool, atoms: bool) -> int = 4096", False),  # a fact that such a rule asks
)


@pytest.mark.parametrize(("override", "replayed"), NUMBERS)
@pytest.mark.sampled(4)
def test_a_schedule_holds_under_another_policy_unless_its_rules_read_the_number(
    tools: Toolchain, path: Path, tmp_path: Path, override: str, replayed: bool
) -> None:
    (kernel,) = loops(tools, product, *SHAPES)
    schedule = Space(tools, (kernel,), H200).default().schedule
    with SqliteStore(path, tools.rules) as store:
        store.put(key_of(kernel, H200, tools.rules), tuned(schedule=schedule))
    (tmp_path / "mine.rw").write_text(f"override {override}\n")
    other = toolchain([tmp_path / "mine.rw"]).at(H200)
    compilation = compiled(other, path, product, *SHAPES)
    assert compilation.origins[0].source == ("store" if replayed else "default")
    assert replayed or "rules have changed" in compilation.origins[0].text
    if replayed:
        assert compilation.tile == compiled(tools, path, product, *SHAPES).tile


def test_tools_order_entries_and_leave_none_out(tools: Toolchain, path: Path) -> None:
    """Another version of dplc, or of the model, made the schedule: it is replayed, and it is right."""
    (kernel,) = loops(tools, product, *SHAPES)
    known = key_of(kernel, H200, tools.rules)
    old, new = written_down(tools, kernel, 1)[0], default_schedule(tools, kernel)[0]
    with SqliteStore(path, tools.rules) as store:
        assert store.put(msgspec.structs.replace(known, tools="dplc 0.0.1; model 0"), tuned(1e-6, schedule=old))
    made = dplc.Compiled(compiled(tools, path, product, *SHAPES), "emulator")
    (origin,) = made.compilation.origins
    assert origin.source == "store" and "with other tools (dplc 0.0.1; model 0)" in origin.text
    x, w = torch.randn(SHAPES[0]), torch.randn(SHAPES[1])
    (found,) = made.run(dict(zip((param.name for param in made.compilation.plan.inputs), (x, w), strict=True)))
    assert torch.allclose(found.double(), product(x.double(), w.double()), atol=1e-4)
    with SqliteStore(path, tools.rules) as store:
        assert store.put(known, tuned(1e-5, schedule=new))
    again = compiled(tools, path, product, *SHAPES).origins[0]
    assert again.source == "store" and "other tools" not in again.text


def test_what_is_not_legal_any_more_means_the_default_order(tools: Toolchain, path: Path) -> None:
    (kernel,) = loops(tools, product, *SHAPES)
    schedule, _ = default_schedule(tools, kernel)
    broken = (*schedule[:1], schedule[1].__class__(schedule[1].step, schedule[1].rule, "0/7/7"), *schedule[2:])
    with SqliteStore(path, tools.rules) as store:
        store.put(key_of(kernel, H200, tools.rules), tuned(schedule=broken))
    compilation = compiled(tools, path, product, *SHAPES)
    assert compilation.cuda == compiled(tools, None, product, *SHAPES).cuda
    assert "does not fit" in compilation.origins[0].text
    with pytest.raises(dplc.DplcError, match="does not fit"):
        replay(Scheduler(tools, H200), kernel, broken)


# ---- several kernels


def test_kernels_that_were_tuned_stand_beside_others(tools: Toolchain, path: Path) -> None:
    def three(x: Any, w: Any) -> Any:
        return torch.softmax(torch.relu(x @ w) @ torch.relu(w.t() @ w), -1)

    remembered(tools, path, *SHAPES)
    default = compiled(tools, None, three, (64, 96), (96, 80))
    compilation = compiled(tools, path, three, (64, 96), (96, 80))
    assert {origin.source for origin in compilation.origins} == {"store", "default"}
    assert compilation.cuda == default.cuda
    names = [kernel.name for kernel in compilation.tile]
    assert len(set(names)) == len(names)


def test_names_that_meet(tools: Toolchain, path: Path) -> None:
    """Schedules that make a second kernel, in two kernels: buffers and kernels have names of their own."""
    shapes = (((16, 8192), (8192, 16)), ((32, 8192), (8192, 16)))
    for shape in shapes:
        assert len(remembered(tools, path, *shape)) == 2  # the reduction is split

    def twice(x: Any, w: Any, z: Any, v: Any) -> Any:
        return product(x, w), product(z, v)

    inputs = [torch.randn(s) for shape in shapes for s in shape]
    made = dplc.compile(twice, inputs, device="emulator", target="h200", db=path)
    assert [origin.source for origin in made.compilation.origins] == ["store", "store"]
    kernels = made.compilation.tile
    assert len({kernel.name for kernel in kernels}) == 4
    assert len({param.name for kernel in kernels for param in kernel.outs}) == 4
    for result, reference in zip(made(*inputs), twice(*(one.double() for one in inputs)), strict=True):
        assert (result - reference).abs().max() <= 1e-5 * reference.abs().max()


# ---- switches


def test_switched_off(tools: Toolchain, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPLC_CACHE_DIR", str(path.parent))
    own = path.parent / "tuning.sqlite"
    remembered(tools, own, *SHAPES)
    monkeypatch.setenv("DPLC_NO_DB", "0")
    assert isinstance(stored_schedules(tools), StoredSchedules)
    assert stored_schedules(tools, wanted=False) is None
    pinned = toolchain(tools.rules, {"xor_smem": {}, "mark_unroll": {"U": 2}})
    assert stored_schedules(pinned) is None  # --set says what should happen
    monkeypatch.setenv("DPLC_NO_DB", "1")
    assert stored_schedules(tools) is None
    assert stored_schedules(tools, own) is not None  # asked for by name
    assert stored_schedules(tools, path.parent / "absent.sqlite") is None


def test_a_store_that_is_replaced_is_opened_again(tools: Toolchain, path: Path) -> None:
    remembered(tools, path, *SHAPES)
    assert compiled(tools, path, product, *SHAPES).origins[0].source == "store"
    path.unlink()
    assert compiled(tools, path, product, *SHAPES).origins == ()
    SqliteStore(path).close()
    assert compiled(tools, path, product, *SHAPES).origins[0].source == "default"


def test_the_python_face(tools: Toolchain, path: Path) -> None:
    remembered(tools, path, *SHAPES, seed=2)
    inputs = tuple(torch.randn(shape) for shape in SHAPES)
    options: dict[str, Any] = {"device": "emulator", "target": "h200"}
    with_store = dplc.compile(product, inputs, db=str(path), **options)
    without = dplc.compile(product, inputs, db=False, **options)
    assert with_store.compilation.origins[0].source == "store"
    assert without.compilation.origins == ()
    assert with_store.cuda != without.cuda


def test_origins_are_data(tools: Toolchain, path: Path) -> None:
    remembered(tools, path, *SHAPES)
    (origin,) = compiled(tools, path, product, *SHAPES).origins
    assert origin.record() == {
        "kernel": "matmul_relu", "source": "store", "basis": "predicted", "microseconds": 10.0, "about": origin.text,
    }  # fmt: skip
    assert replace(origin, seconds=None).record()["microseconds"] is None


@pytest.mark.parametrize("damage", [
    lambda schedule: schedule[:1],
    lambda schedule: (msgspec.structs.replace(schedule[0], site="x"), *schedule[1:]),
    lambda schedule: (msgspec.structs.replace(schedule[0], site="9" * 5000), *schedule[1:]),
    lambda schedule: (msgspec.structs.replace(schedule[-1], parameters={"T": [[]], "BM": None}), *schedule[1:]),
])  # fmt: skip
def test_a_schedule_that_somebody_cut_is_not_taken(tools: Toolchain, path: Path, capsys: Any, damage: Any) -> None:
    """It is replayed, or what is replayed cannot be launched: the default order, and one note."""
    big = (512, 512), (512, 512)
    (kernel,) = loops(tools, product, *big)
    schedule, _ = default_schedule(tools, kernel)
    with SqliteStore(path, tools.rules) as store:
        assert store.put(key_of(kernel, H200, tools.rules), tuned(schedule=damage(schedule)))
    found = compiled(tools, path, product, *big)
    assert found.cuda == compiled(tools, None, product, *big).cuda
    assert found.origins[0].source == "default" and found.origins[0].text.startswith("default order: ")
    assert capsys.readouterr().err.count("is not taken") == 1
