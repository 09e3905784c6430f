"""A GPU that is here as a target: never another device's constants by accident."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dplc.codegen.build import build_device
from dplc.codegen.compiler import find_nvrtc
from dplc.codegen.target import devices, load_device, target, target_of
from dplc.ir.diagnostic import UsageError


def properties(name: str, major: int, minor: int, **told: int) -> Any:
    return SimpleNamespace(name=name, major=major, minor=minor, **told)


def test_a_device_with_a_file_is_that_file() -> None:
    for name in devices():
        device = load_device(name)
        assert target_of(properties(device.name, device.sm // 10, device.sm % 10)) is device


def test_another_device_of_a_known_architecture_has_its_own_figures() -> None:
    """An RTX 4070 has less than half of an RTX 4090."""
    found = target_of(
        properties(
            "NVIDIA GeForce RTX 4070", 8, 9, multi_processor_count=46, max_threads_per_multi_processor=1536,
            regs_per_multiprocessor=65536, shared_memory_per_block_optin=101376, L2_cache_size=37748736,
            clock_rate=2475000, memory_clock_rate=10501000, memory_bus_width=192,
        )
    )  # fmt: skip
    assert (found.arch, found.multiprocessors, found.l2_bytes, found.clock) == ("sm_89", 46, 37748736, 2.475e9)
    assert found.dram_bytes_per_second == pytest.approx(504e9, rel=1e-3)
    assert found.tensor_flops_per_second < 0.4 * target("rtx4090").tensor_flops_per_second
    assert found.name == "NVIDIA GeForce RTX 4070"


def test_what_a_driver_does_not_tell_is_the_familys() -> None:
    found = target_of(properties("NVIDIA H100 PCIe", 9, 0, multi_processor_count=114, clock_rate=0))
    assert (found.arch, found.multiprocessors) == ("sm_90a", 114)
    assert found.clock in (target("h100").clock, target("h200").clock)


@pytest.mark.parametrize(("name", "major", "minor"), [("Tesla T4", 7, 5), ("Tesla V100", 7, 0), ("NVIDIA X", 13, 1)])
def test_a_gpu_that_nobody_described_is_refused(name: str, major: int, minor: int) -> None:
    with pytest.raises(UsageError, match=rf"{name} has compute capability {major}\.{minor}") as caught:
        target_of(properties(name, major, minor))
    assert "emulator" in str(caught.value.hint)
    assert ("cp.async" in caught.value.what) == (major < 8)


@pytest.mark.skipif(find_nvrtc() is None, reason="no NVRTC here")
@pytest.mark.parametrize("name", devices())
def test_every_device_has_an_architecture_that_the_compiler_knows(name: str) -> None:
    arch = load_device(name).arch
    nvrtc = find_nvrtc()
    assert nvrtc is not None
    if not nvrtc.knows(arch):
        pytest.skip(f"{nvrtc.identity} is too old for {arch}")
    assert build_device('#include "prelude.cuh"\nextern "C" __global__ void nothing() {}\n', arch)
