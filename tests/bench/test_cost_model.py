"""The cost model: counts compared with those of a person and of the emulator, predictions, and least times.

Predictions only: nothing is measured.
"""

from __future__ import annotations

import functools
import math
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from drawing import some
from emulated import check
from hypothesis import given, strategies as st

from dplc.codegen.materialise import materialise
from dplc.codegen.target import Target, devices, load_device, target
from dplc.engine.bench.bench import CompiledCase, compile_all, describe
from dplc.engine.bench.cases import read_suite, subject_of
from dplc.engine.bench.records import CaseRecord
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import Compilation, compiler_with
from dplc.engine.cost.instruction_counts import InstructionCounts, instruction_counts
from dplc.engine.cost.kernel_estimate import EstimatedValue, KernelEstimate, Pricing
from dplc.engine.cost.limits import COSTS, Replications, Work, fixed_seconds, least_seconds, parts, slots_per_second
from dplc.engine.cost.memory_model import wavefronts
from dplc.engine.cost.predict import Prediction, occupancy, predict, resident_blocks, wave
from dplc.engine.models.compiling import capture_results
from dplc.engine.models.sources import build, find
from dplc.ir.expr import Axis, Call, Var
from dplc.ir.tensor import Const, Elementwise, Input
from dplc.ir.text.programs import read_program

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "benches"))

from short_extents import turns

EXAMPLES = Path(__file__).parents[2] / "examples"
H200 = target("h200")
COMPILER = compiler_with(H200)


def kernel_of(text: str) -> Any:
    """The only kernel of a dump."""
    return read_program(text)[1][0]


@functools.lru_cache(maxsize=4)  # each holds its inputs
def compiled(text: str) -> Compilation:
    return COMPILER.compile(capture_text(text))


# ---- predictions

BASE = InstructionCounts(
    blocks=264, threads=256, shared=16 << 10, dram=64e6, sectors=8000, ideal_sectors=8000, wavefronts=9000,
    ideal_wavefronts=9000, issued=60000, fma=50000, special=100, registers=128,
)  # fmt: skip
FULL = replace(BASE, blocks=10**4, shared=0, registers=16)


def of(device: Target = H200, **changed: Any) -> Prediction:
    return predict(replace(BASE, **changed), device)


@given(
    st.sampled_from(("dram", "sectors", "wavefronts", "issued", "fma", "special", "tensor")),
    st.floats(1, 1e4),
    st.integers(1, 5000),
)
def test_more_of_anything_never_takes_less(field: str, factor: float, blocks: int) -> None:
    launch = {"blocks": blocks, "tensor": 1e6, field: getattr(replace(BASE, tensor=1e6), field)}
    assert of(**launch | {field: launch[field] * factor}).seconds >= of(**launch).seconds
    more = of(blocks=blocks + 1, dram=1e5 * (blocks + 1)).seconds
    assert more >= of(blocks=blocks, dram=1e5 * blocks).seconds * (1 - 1e-12)


def test_no_wave_is_shorter_than_starting_its_blocks() -> None:
    """An H200 took 43.7 us for 65,536 blocks of 64 threads that move one element each: 0.67 ns a block (measured)."""
    launch = InstructionCounts(blocks=65536, threads=64, shared=0, dram=1.0, issued=8)
    assert 40e-6 < predict(launch, H200).seconds < 47e-6


@pytest.mark.parametrize("latency", [1e-6, 2e-5])
def test_every_kernel_waits_for_its_first_loads_and_last_stores(latency: float) -> None:
    machine = replace(H200, memory_latency_seconds=latency)
    least = machine.launch_seconds + 1.5 * latency
    empty = kernel_of("kernel f(x: f32[1]) -> y: f32[1]:\n    for i in 0..1 free:\n        y[i] = 1.0\n")
    assert of(machine).fixed == fixed_seconds(machine) == pytest.approx(least)
    assert least_seconds(empty, machine) == pytest.approx(least, rel=1e-3)
    alone = of(machine, registers=255, shared=200 << 10)
    assert alone.resident == 1 and alone.fixed >= least


def test_a_wave_by_hand() -> None:
    """Each figure as it is computed on paper, of a device whose rates are round."""
    device = replace(
        H200, multiprocessors=10, clock=1e9, dram_bytes_per_second=1e12, l2_bytes_per_second=2e12, fp32_per_clock=128,
        special_per_clock=16, shared_bytes_per_clock=128, schedulers=4, tensor_flops_per_second=1e14,
        memory_latency_seconds=1e-6, launch_seconds=3e-6, warp_product_share=0.5, issue_share=0.8, dram_share=0.5,
    )  # fmt: skip
    launch = InstructionCounts(
        blocks=20, threads=96, shared=0, dram=4e6, sectors=1000, wavefronts=300, issued=2400, fma=100, special=50, tensor=1e5,
    )  # fmt: skip
    assert launch.fill > 0
    found = predict(launch, device)
    assert found.bounds == pytest.approx(  # two blocks of three warps on each multiprocessor
        {
            "DRAM": 4e6 / 0.5e12,
            "L2": 2 * launch.fill * 10 / 2e12,
            "shared": 2 * 300 / 1e9,
            "issue": 2 * 2400 / 4 / 0.8 / 1e9,
            "latency": 2400 / 3 / 1e9,  # a block alone: its three warps keep three schedulers busy
            "tensor": 2 * 1e5 * 10 / 1e14 / 0.5,  # products of single warps reach half of the rate
        }
    )
    asynchronous, busy, short = (
        predict(replace(launch, **changed), device)
        for changed in ({"asynchronous": 4e4}, {"special": 1000}, {"dram": 1e5})
    )
    assert asynchronous.bounds["tensor"] == pytest.approx(2 * (4e4 + 6e4 / 0.5) * 10 / 1e14)
    assert busy.bounds["issue"] == pytest.approx(2 * 1000 * 32 / 16 / 1e9), "that pipe holds more than issue"
    assert found.fixed == pytest.approx(3e-6 + 1.5e-6) and (found.binding, short.binding) == ("DRAM", "launch")
    most, *others = sorted(found.bounds.values(), reverse=True)
    assert found.seconds == pytest.approx(found.fixed + most + 0.02 * sum(others)), "a little of the rest is not hidden"
    one, wide, over = (predict(replace(launch, blocks=n, dram=2e5 * n), device) for n in (1, 210, 211))
    assert (wide.resident, wide.waves, over.waves) == (21, 1, 2)
    assert over.seconds == pytest.approx(wide.seconds + one.seconds - one.fixed), "the last wave is narrow"


@pytest.mark.parametrize(
    ("changed", "resident", "warps", "held"),
    [
        ({}, 8, 64, "threads"),
        ({"registers": None}, 8, 64, "threads"),  # not known before it is assembled
        ({"blocks": 132}, 8, 8, "grid"),
        ({"blocks": 132, "threads": 33}, 32, 2, "grid"),  # whole warps
        ({"threads": 32}, H200.blocks, 32, "blocks"),
        ({"threads": 32, "shared": 16 << 10}, 13, 13, "shared"),
        ({"shared": 100 << 10}, 2, 16, "shared"),
        ({"registers": 128}, 2, 16, "registers"),
        ({"threads": 33, "registers": 128}, 8, 16, "registers"),
    ],
)
def test_occupancy_and_what_holds_it_down(changed: dict[str, Any], resident: int, warps: int, held: str) -> None:
    launch = replace(FULL, **changed)
    assert (resident_blocks(launch, H200), occupancy(launch, H200)) == (resident, (warps / 64, held))


def test_devices_are_complete() -> None:
    for device in map(load_device, devices()):
        assert all(getattr(device, field.name) for field in fields(Target) if field.name != "policy")
        assert of(device).seconds > device.launch_seconds


# ---- counts of instructions


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("torch.softmax(torch.randn(64, 384), -1)", 0.01),
        ("F.rms_norm(torch.randn(24, 512), (512,), torch.randn(512), 1e-6)", 0.01),
        ("torch.randn(128, 128) @ torch.randn(128, 192)", 0.01),
        ("torch.randn(64, 96) @ torch.randn(128, 96).t()", 0.01),
        ("torch.relu(torch.randn(65, 33) @ torch.randn(33, 77))", 0.1),  # where rows are not aligned, turns differ
        ("q, k, v = torch.randn(3, 2, 32, 64); torch.softmax(q @ k.transpose(-1, -2), -1) @ v", 0.01),
    ],
)
@pytest.mark.sampled(3)
def test_the_counts_agree_with_the_counters(text: str, near: float) -> None:
    """Of the block that the counting followed, access by access."""
    compilation = compiled(text)
    for kernel, made in zip(compilation.kernels, compilation.cuda_kernels, strict=True):
        counted = instruction_counts(kernel)
        arrays = {param.name: torch.randn(param.shape).numpy() for param in made.params if param.role == "in"}
        x, y, z = counted.block
        sites = check(made, arrays, [x + made.grid[0] * (y + made.grid[1] * z)]).sites
        outside = sum(site.cost for site in sites if site.access.startswith("global"))
        inside = sum(site.cost for site in sites) - outside
        assert (counted.sectors, counted.wavefronts) == pytest.approx((outside, inside), rel=near)


def test_what_is_repeated_is_counted_once() -> None:
    product = instruction_counts(compiled("torch.randn(512, 2048) @ torch.randn(2048, 2048)").kernels[0])
    assert 1 <= product.fma * 32 * product.blocks / (512 * 2048 * 2048) < 1.1  # slices of K are added up at the end
    assert 1 < product.issued / product.fma < 1.5
    # the assembler takes silu(x) in front of a matmul out of the loop over columns
    for kernel in compiled("F.silu(torch.randn(64, 128)) @ torch.randn(128, 64)").kernels:
        counted = instruction_counts(kernel)
        assert counted.special < 0.3 * counted.fma


COPIED_AHEAD = """
kernel f(x: f32[32, 128]) -> y: f32[32]:
    Tile(t:32=THREAD):
        s = Stage(x, origin=(0, 0), box=(i:32@0, k:16@1), depth=3, via={via})
        s = Stage(x, origin=(0, 16), box=(i:32@0, k:16@1), depth=3, slot=1, via={via})
        for k in 0..8 serial:
            Wait(keep=1)
            Sync()
            s = Stage(x, origin=(0, k*16 + 32), box=(i:32@0, k:16@1), depth=3, slot=(k + 2) % 3, via={via}, when=k + 2 < 8)
            a = load s[k % 3, t, t % 16]
            acc <- add(acc, a)
        y[t] = acc
"""


def test_boxes_are_ahead_of_their_use_as_other_copies_are() -> None:
    """What is in flight at an mbarrier need not be waited for."""
    threads, boxes = (
        instruction_counts(materialise(kernel_of(COPIED_AHEAD.format(via=via)), H200)).waits for via in ("ASYNC", "TMA")
    )
    assert boxes.ring == threads.ring == 8 / 2
    assert boxes.memory == threads.memory


def test_a_function_takes_what_the_functions_take_that_it_is_made_of() -> None:
    """exp scales its argument for the unit that has powers of two; a sigmoid is the reciprocal of a sum with one.

    What reads a value copies or negates it by the way; every other function is an instruction at least.
    """
    special = {"exp2": Work(2, special=1), "exp": Work(3, special=1), "rsqrt": Work(2, special=1)}
    costs = {"negative": Work(), "copy": Work(), "abs": Work(1), **special, "sigmoid": Work(5, special=2)}
    assert {name: Replications().work([Call(name, (Var("x"),))])[0] for name in costs} == costs
    assert COSTS["reciprocal"] == COSTS["rsqrt"] and COSTS["log"][0] >= COSTS["log2"][0]
    assert all(0 <= special <= instructions for instructions, special in COSTS.values())


def counted(shape: str, lines: str) -> InstructionCounts:
    """The counts of one block of so many threads."""
    text = "## level: kernel\nkernel f(x: f32[256]) -> y: {}:\n    Launch(grid=(1, 1, 1), block={}, shared=0):\n{}"
    return instruction_counts(kernel_of(text.format(*shape.split("/"), lines)))


@pytest.mark.parametrize(
    ("shape", "values", "sectors"),
    [("f32[32]/32", 1, 4), ("f32[128]/32", 4, 16), ("f16[32]/32", 1, 2), ("f16[64]/32", 2, 4)],
)
def test_a_store_moves_all_of_its_values(shape: str, values: int, sectors: int) -> None:
    """32 lanes beside each other: as many sectors of 32 bytes as their values fill."""
    names = [f"v{n}" for n in range(values)]
    lines = "".join(f"        {name} = Registers({shape[:3]})\n" for name in names)
    store = f"StoreTo({shape[:3]}, Address(y, offset=thread*{values}), values=({', '.join(names)}))\n"
    counts = counted(shape, f"{lines}        {store}")
    assert (counts.sectors, counts.ideal_sectors) == (sectors, sectors)


LOADS = """\
        a = Registers(f32)
        b = Registers(f32)
        {}
        StoreTo(f32, Address(y, offset=thread), values=(a))
"""
OWN = "LoadFrom(a, f32, Address(x, offset=thread))"


@pytest.mark.parametrize(
    ("loads", "asked", "hits", "lines"),
    [
        (OWN, 8, 0, 2),
        (f"{OWN}\n        {OWN.replace('(a', '(b')}", 16, 8, 4),  # again
        # what another warp asked for
        (f"{OWN}\n        LoadFrom(b, f32, Address(x, offset=(thread + 32) % 64))", 16, 8, 4),
        (f"{OWN}\n        LoadFrom(b, f32, Address(x, offset=thread + 32))", 16, 4, 4),  # half of it
        ("LoadFrom(a, f32, Address(x))", 2, 1, 2),  # two warps, one element
        (f"Loop(n, 0, 3):\n            {OWN}", 24, 0, 6),  # other turns may come much later
        (f"Loop(n, 0, 3):\n            {OWN}\n            {OWN}", 48, 24, 12),
        # windows that overlap; a warp that begins within a line
        ("Replicate(n, 4):\n            LoadFrom(a, f32, Address(x, offset=thread + n*8))", 32, 21, 8),
        ("LoadFrom(a, f32, Address(x, offset=thread + 8))", 8, 0, 4),
    ],
)
def test_what_was_asked_for_before_is_in_the_first_cache(loads: str, asked: int, hits: int, lines: int) -> None:
    counts, stored = counted("f32[64]/64", LOADS.format(loads)), 8
    assert (counts.sectors, counts.hits, counts.fill) == (asked + stored, hits, (asked + stored - hits) * 32)
    assert (counts.lines, counts.l1_wavefronts) == (lines, counts.wavefronts + lines)


MOVED = "Loop(n, 0, 64):\n            p = Base(x, offset={})\n            LoadFrom(a, f32, Address(p, offset=thread))"


@pytest.mark.parametrize(
    ("loads", "kept", "kept_bytes"),
    [
        (MOVED.format("n*8"), 7, 256),  # a window of two warps moves on by a sector
        (MOVED.format("n*64"), 0, 0),
        (MOVED.format("n % 4 * 64 + n // 4 * 8"), 7, 4 * 256),  # four rows in turn
        ("p = Base(x, mutable=1)\n        Loop(n, 0, 64):\n            LoadFrom(a, f32, Address(p, offset=thread))\n"
         "            Advance(p, 16)", 6, 256),
    ],
)  # fmt: skip
def test_what_iterations_before_asked_for_is_kept_if_it_fits(loads: str, kept: int, kept_bytes: int) -> None:
    counts, device = counted("f32[4096]/64", LOADS.format(loads)), target("h100")
    lag = kept_bytes // 256
    assert (counts.kept, counts.kept_bytes) == (kept * (64 - lag), kept_bytes)
    alone = wave(replace(counts, kept=0.0), device, 1)[1]
    assert wave(counts, device, 1)[1] == pytest.approx(alone * (1 - counts.kept * 32 / counts.fill))
    for full in (replace(counts, shared=device.smem), replace(counts, kept_bytes=device.smem + 1.0)):
        assert wave(full, device, 1)[1] == alone


SWEEP = "Loop(n, 0, 4):\n            LoadFrom(a, f32, Address(x, offset=thread + n*64))"


@pytest.mark.parametrize(
    "loads, again", [(SWEEP, 0), (f"{SWEEP}\n        {SWEEP}", 1024), (f"{SWEEP}\n        {OWN}", 0)]
)
def test_what_a_block_sweeps_again_takes_memory_if_the_parts_of_all_blocks_leave_l2(loads: str, again: int) -> None:
    counts, device = counted("f32[64]/64", LOADS.format(loads)), target("h100")
    assert counts.again == again
    large = replace(counts, again=4.0 * device.l2_bytes, dram=8.0 * device.l2_bytes, blocks=400)
    assert wave(large, device, 100)[0] == wave(replace(large, again=0.0), device, 100)[0]
    assert wave(large, device, 101)[0] == 1.5 * wave(replace(large, again=0.0), device, 101)[0]


def test_idle_lanes_keep_no_pair_apart() -> None:
    lanes = np.arange(32)
    busy = lanes % 2 == 0
    words = np.where(busy, lanes // 2, 100 + lanes) * 4
    idle, all_busy = (wavefronts(words[None], 4, mask[None])[0] for mask in (busy, busy | True))
    assert idle == 2 < all_busy


# ---- values of Tensor IR


def test_the_parts_of_a_value_end_at_what_is_stored() -> None:
    x, y = (Input(name, (Axis("i", 4),)) for name in "xy")
    kept, free = Elementwise("exp", (x,)), Elementwise("sqrt", (y,))
    total = Elementwise("add", (kept, free))
    root = Elementwise("multiply", (total, Const(2.0)))
    for stored, made, read in (({kept, root}, {root, total, free}, {kept, y}), ((), {root, total, kept, free}, {x, y})):
        assert tuple(map(set, parts(root, stored))) == (made, read)


@pytest.mark.parametrize("half", [False, True])
def test_tensor_cores_take_contractions_alone(half: bool) -> None:
    """The bit 1 is an axis of 16 rows, 2 one of 32 columns, 4 one of 64 that is summed; products of halves, then `exp`."""
    item = 2 if half else 4
    loads = [EstimatedValue(axes, buffer=n, item=item, whole=1024.0 * item) for n, axes in enumerate((5, 6))]
    product, total = EstimatedValue(7, (0, 1), fn="multiply", half=half), EstimatedValue(3, (2,), 4, "add", half=half)
    root = EstimatedValue(3, (3,), fn="exp", item=item, half=half)
    estimate = KernelEstimate((*loads, product, total, root), (4,), {1: 16, 2: 32, 4: 64}, {})
    done = Pricing(estimate, H200).loads(resident=True).values()
    tensor, products, special = (sum(column) for column in zip(*((w.tensor, w.products, w.special) for w in done)))
    whole = 16 * 32 * 64
    assert (tensor, products, special) == ((2 * whole, 0) if half else (0, whole)) + (16 * 32 * COSTS["exp"][1],)


# ---- how often rings turn: what is counted of copies before a loop and in it

RING = """
kernel f(A: f32[64, 64]) -> y: f32[4, 16]:
    Tile(b:4=BLOCK, t:16=THREAD):
{before}        for k in {bounds} serial:
            As = Stage(A, origin=(0, k), box=(i:16@0, k:4@1), depth={depth}, slot=k % {depth})
            Sync()
            a = load As[k % {depth}, t, 0]
            acc <- add(acc, a)
        y[b, t] = acc
"""
BEFORE = "        As = Stage(A, origin=(0, 0), box=(i:16@0, k:4@1), depth=2, slot=0)\n"


def ring(bounds: str, depth: int, before: str = "") -> Any:
    text = RING.format(bounds=bounds, depth=depth, before=before)
    return kernel_of(text.replace(", depth=1, slot=k % 1", "").replace("k % 1, ", ""))


def test_rings_turn_over_their_slots() -> None:
    """The ring that turns least counts, with the copies before its loop. Without a second slot or a known length, none does."""
    six, five, three = ring("0..12", 2), ring("2..12", 2), ring("0..12", 4)
    assert [turns(rings) for rings in ((six,), (five,), (six, three))] == [6, 5, 3]
    assert turns((ring("0..11", 2, BEFORE),)) == 6
    assert turns((ring("0..12", 1), ring("0..b + 1", 2), ring("b..12", 2))) == math.inf


# ---- least times: no kernel of a suite or of a shipped model is predicted to take more than 5 times what no schedule goes below

MOST = 5.0  # times its limit
NEAR, FAR = 1.3, 3.0  # times the bound; the farthest is a pad, which starts many blocks (2.7, an H200 took 3.6)
LEAST_NEAR = 80 / 90  # of the programs of limits.json


def whole(text: str) -> float:
    """Seconds of all launches, predicted."""
    return compiled(text).predicted_seconds


def least(text: str) -> float:
    """Seconds of the only kernel below which no schedule goes, but for those that every kernel takes."""
    (kernel,) = compiled(text).plan.kernels
    return least_seconds(kernel, H200) - fixed_seconds(H200)


def records_of(name: str, few: int) -> list[CaseRecord]:
    suite = read_suite(EXAMPLES / "suites" / f"{name}.json")
    subjects = [subject_of(suite, case) for case in some(suite.cases, few)]
    records, _, _ = compile_all(subjects, lambda: COMPILER, lambda text: None)
    assert not [one.error for one in records if one.error]
    return records


@pytest.mark.parametrize("name", ["kernels_84", "halves"])
def test_every_kernel_of_a_suite_is_near_its_limit(name: str) -> None:
    assert not [one.name for one in records_of(name, 6) if not one.times_limit or one.times_limit > MOST]


def test_programs_stay_near_their_bounds() -> None:
    """How many of the ninety are predicted near what the device can do: as many as were asked for."""
    records = records_of("limits", 8)
    ratios = {one.name: one.predicted_us / one.least_us for one in records if one.predicted_us and one.least_us}
    assert len(ratios) == len(records)
    assert sum(ratio <= NEAR for ratio in ratios.values()) >= int(LEAST_NEAR * len(records))
    assert [name for name, ratio in ratios.items() if ratio > FAR] == []


@pytest.mark.parametrize("path", sorted((EXAMPLES / "models").glob("*.json")), ids=lambda path: path.stem)
def test_every_kernel_of_a_layer_is_near_its_limit(path: Path) -> None:
    model: Any = build(find(str(path)), "f32", 1)
    for tokens in some((512, 1, 32, 128), 1):
        made = COMPILER.compile(capture_results(model, tokens).captured)
        record = CaseRecord(name=path.stem, operation="", sizes={}, dtype="")
        describe(CompiledCase(made, record))
        assert record.times_limit and record.times_limit <= MOST, tokens


FLAT = "nn.Linear(2048, 1024)(torch.randn(512, 2048))"
HEADS = "q, k, v = (torch.randn(2, 8, 256, 64) for _ in range(3)); o = F.scaled_dot_product_attention(q, k, v); "
PRODUCT = "nn.Linear(5632, 2048)(torch.randn(32, 5632))"
NARROW = "nn.Linear(2048, 256)(torch.randn(32, 2048))"


@pytest.mark.parametrize(
    ("text", "most", "other"),
    [
        # a batch of rows is more rows: sequences, also of sequences, tokens before sequences, parts of sequences
        ("nn.Linear(2048, 1024)(torch.randn(2, 256, 2048))", 1.05, FLAT),
        ("nn.Linear(2048, 1024)(torch.randn(2, 4, 64, 2048))", 1.05, FLAT),
        ("nn.Linear(2048, 1024)(torch.randn(128, 4, 2048).transpose(0, 1))", 1.05, FLAT),
        ("nn.Linear(2048, 1024)(torch.randn(2, 300, 2048)[:, :256])", 1.05, FLAT),
        # heads of a weight, also by rows
        ("torch.einsum('bsd,dhk->bhsk', torch.randn(2, 256, 2048), torch.randn(2048, 16, 64))", 1.05, FLAT),
        ("torch.einsum('bsd,hdk->bshk', torch.randn(2, 256, 2048), torch.randn(16, 2048, 64))", 1.05, FLAT),
        # attention is tiled in whatever order it is stored
        (f"{HEADS}o.transpose(1, 2).contiguous()", 1.3, f"{HEADS}o"),
        (f"{HEADS}o.permute(2, 0, 1, 3).contiguous()", 1.3, f"{HEADS}o"),
        (f"{HEADS}o.permute(1, 2, 0, 3).contiguous()", 1.3, f"{HEADS}o"),
        # what stands beside a sum does not keep it whole
        (f"torch.randn(32, 2048) + {PRODUCT}", 1.1, PRODUCT),
        ("x = torch.randn(32, 2048); F.silu(nn.Linear(2048, 256)(x)) * nn.Linear(2048, 256)(x)", 2, NARROW),
    ],
)
def test_a_program_takes_hardly_longer_than_its_product(text: str, most: float, other: str) -> None:
    assert whole(text) <= most * whole(other)


ONCE = """## level: loop
kernel f(x: f32[4096, 4096]) -> y: f32[4096, 512]:
    for i in 0..4096 free:
        for k in 0..4096 reduce:
            a = load x[i, k]
            e = exp(a)
            s <- add(s, e)
        for j in 0..512 free:
            y[i, j] = s
"""
AGAIN = """## level: loop
kernel f(x: f32[4096, 4096]) -> y: f32[4096, 512]:
    for i in 0..4096 free:
        for j in 0..512 free:
            for k in 0..4096 reduce:
                a = load x[i, k]
                e = exp(a)
                s <- add(s, e)
            y[i, j] = s
"""


def test_a_limit_does_not_count_what_is_computed_again() -> None:
    once, again = (least_seconds(kernel_of(text), H200) for text in (ONCE, AGAIN))
    assert once == again > 4 * 4096 * (4096 + 512) / H200.dram_bytes_per_second


@pytest.mark.parametrize("mask", ["", ", is_causal=True"])
def test_a_limit_counts_what_is_made_of_sums(mask: str) -> None:
    """Of attention both products, whether or not its scores are compared with a place, and an exponential a score."""
    heads, rows, size = 32, 512, 64
    operands = f"q, k, v = (torch.randn(1, {heads}, {rows}, {size}) for _ in range(3)); "
    computed = least(f"{operands}F.scaled_dot_product_attention(q, k, v{mask})") * slots_per_second(H200)
    exponential = H200.fp32_per_clock / H200.special_per_clock
    assert 2 * size + exponential <= computed / (heads * rows * rows) <= 2 * size + exponential + 6


@pytest.mark.parametrize(
    ("text", "moved"),
    [  # a sector for each element, and at most what there is: what lies between the elements of a row comes along
        ("torch.randn(64, 256)[::2].contiguous()", 2 * 32 * 256 * 4),
        ("torch.randn(64, 256)[:, ::2].contiguous()", 64 * 256 * 4 + 64 * 128 * 4),
        ("torch.randn(512, 3072)[:, ::3] * 2.0", 4 * 512 * 1024 * (3 + 1)),
        ("torch.randn(512, 8192)[:, ::8] * 2.0", 4 * 512 * 1024 * (8 + 1)),
        ("torch.randn(64, 3200)[:, ::100].contiguous()", 64 * 32 * (32 + 4)),
    ],
)
def test_a_limit_counts_the_sectors_that_are_moved(text: str, moved: int) -> None:
    assert round(least(text) * H200.dram_bytes_per_second) == moved
