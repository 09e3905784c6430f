"""The model: instruction counts that agree with the emulator's counters, and predictions that move as hardware does."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from emulated import check
from hypothesis import given
from hypothesis import strategies as st

from dplc.codegen.materialise import materialise
from dplc.codegen.target import Target, devices, load_device, target
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import Compilation, compiler_with
from dplc.engine.cost.instruction_counts import InstructionCounts, instruction_counts
from dplc.engine.cost.limits import fixed_seconds, least_seconds
from dplc.engine.cost.predict import UNHIDDEN, Prediction, occupancy, predict, resident_blocks, wave
from dplc.ir.text.programs import read_program

H200 = target("h200")
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


def test_one_block_too_many_costs_a_wave() -> None:
    wide = resident_blocks(BASE, H200) * H200.multiprocessors
    full, over = (of(blocks=n, dram=0.0) for n in (wide, wide + 1))
    assert (full.waves, over.waves) == (1, 2)
    assert full.seconds < over.seconds < 2 * full.seconds  # the last wave is narrow


def test_no_wave_is_shorter_than_starting_its_blocks() -> None:
    """An H200 took 43.7 us for 65,536 blocks of 64 threads that move one element each: 0.67 ns a block (measured)."""
    launch = InstructionCounts(blocks=65536, threads=64, shared=0, dram=1.0, issued=8)
    assert 40e-6 < predict(launch, H200).seconds < 47e-6


def test_residency_alone_changes_nothing() -> None:
    """Occupancy is not a score: fewer resident blocks, same full waves of work per multiprocessor, the same time but for a
    little of what each wave waits."""
    two, one = (of(blocks=264, registers=n, dram=0.0) for n in (128, 255))
    assert (two.resident, one.resident) == (2, 1)
    more = one.bounds["latency"] - two.bounds["latency"]
    assert one.seconds == pytest.approx(two.seconds + UNHIDDEN * more)


@pytest.mark.parametrize("trips", [1.5, 30.0])
def test_latencies_that_a_kernel_always_waits_for_are_those_of_the_policy(trips: float) -> None:
    machine = replace(H200, policy=(("memory_trips", trips),))
    least = machine.launch_seconds + trips * machine.memory_latency_seconds
    empty = read_program("kernel f(x: f32[1]) -> y: f32[1]:\n    for i in 0..1 free:\n        y[i] = 1.0\n")[1][0]
    assert of(machine).fixed == fixed_seconds(machine) == pytest.approx(least)
    assert least_seconds(empty, machine) == pytest.approx(least, rel=1e-3)
    alone = of(machine, registers=255, shared=200 << 10)
    assert alone.resident == 1 and alone.fixed >= least


@pytest.mark.parametrize(
    ("changed", "binding"),
    [
        ({"dram": 1e9}, "DRAM"),
        ({"wavefronts": 1e6}, "shared"),
        ({"fma": 1e6}, "issue"),
        ({"sectors": 1e6}, "L2"),
        ({"blocks": 1, "dram": 128.0, "sectors": 0, "wavefronts": 0, "issued": 0, "fma": 0, "special": 0}, "launch"),
    ],
)
def test_what_binds(changed: dict[str, float], binding: str) -> None:
    assert of(**changed).binding == binding


def test_a_wave_by_hand() -> None:
    """Each figure as it is computed on paper, of a device whose rates are round."""
    device = replace(
        H200, multiprocessors=10, clock=1e9, dram_bytes_per_second=1e12, l2_bytes_per_second=2e12, fp32_per_clock=128,
        special_per_clock=16, shared_bytes_per_clock=128, schedulers=4, tensor_flops_per_second=1e14,
        memory_latency_seconds=1e-6, launch_seconds=3e-6, warp_product_share=0.5, issue_share=0.8, dram_share=0.5,
    )  # fmt: skip
    launch = InstructionCounts(
        blocks=40, threads=96, shared=0, dram=8e6, sectors=1000, wavefronts=300, issued=2400, fma=100, special=50, tensor=1e5,
    )  # fmt: skip
    assert launch.fill > 0
    assert wave(launch, device, 20) == pytest.approx(  # two blocks of three warps on each multiprocessor
        (
            4e6 / 0.5e12,
            2 * launch.fill * 10 / 2e12,
            2 * 300 / 1e9,
            2 * 2400 / 4 / 0.8 / 1e9,
            2400 / 3 / 1e9,  # a block alone: its three warps keep three schedulers busy
            2 * 1e5 * 10 / 1e14 / 0.5,  # products of single warps reach half of the rate
        )
    )
    assert wave(replace(launch, asynchronous=4e4), device, 20)[5] == pytest.approx(2 * (4e4 + 6e4 / 0.5) * 10 / 1e14)
    busy = wave(replace(launch, special=1000), device, 20)
    assert busy[3] == pytest.approx(2 * 1000 * 32 / 16 / 1e9), "the pipe of special functions holds more than issue"
    found = predict(launch, device)
    assert found.fixed == pytest.approx(3e-6 + 1.5e-6)
    most, *others = sorted(wave(launch, device, 40), reverse=True)
    assert found.seconds == pytest.approx(found.fixed + most + 0.02 * sum(others)), "a little of the rest is not hidden"


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


@pytest.mark.parametrize("name", devices())
def test_devices_are_complete(name: str) -> None:
    device = load_device(name)
    assert all(getattr(device, field.name) for field in fields(Target) if field.name != "policy")
    assert of(device).seconds > device.launch_seconds


# ---- counts of instructions


def compiled(text: str) -> Compilation:
    return compiler_with(target("sm_90a")).compile(capture_text(text))


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("torch.softmax(torch.randn(64, 384), -1)", 0.01),
        ("F.rms_norm(torch.randn(24, 512), (512,), torch.randn(512), 1e-6)", 0.01),
        ("torch.randn(64, 128) @ torch.randn(128, 96)", 0.01),
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
    product = instruction_counts(compiled("torch.randn(128, 256) @ torch.randn(256, 128)").kernels[0])
    assert 1 <= product.fma * 32 * product.blocks / (128 * 128 * 256) < 1.1  # slices of K are added up at the end
    assert 1 < product.issued / product.fma < 1.5
    # the assembler takes silu(x) in front of a matmul out of the loop over columns
    for kernel in compiled("F.silu(torch.randn(64, 128)) @ torch.randn(128, 64)").kernels:
        counted = instruction_counts(kernel)
        assert counted.special < 0.3 * counted.fma


RING = """
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
        instruction_counts(materialise(read_program(RING.format(via=via))[1][0], H200)).waits  # type: ignore[arg-type]
        for via in ("ASYNC", "TMA")
    )
    assert boxes.ring == threads.ring == 8 / 2
    assert boxes.memory == threads.memory
