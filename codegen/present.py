"""The GPU that is here as a target: what its driver says of it, over the published figures of its family."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..ir.diagnostic import UsageError
from .target import Target, devices, load_device

OLDEST = (8, 0)  # cp.async, which every schedule of matmuls uses, came with it


def target_of(properties: Any) -> Target:
    """The target for a GPU, given what `torch.cuda.get_device_properties` says of it.

    A device with a file of its own is that file; of others the counts, sizes and clocks are the driver's, and what no
    driver tells is scaled from the nearest device of the architecture. Raises UsageError for one that kernels of dplc
    do not run on, or that has no description.
    """
    family = [device for device in map(load_device, devices()) if device.sm == capability(properties)]
    exact = [device for device in family if device.name == properties.name]
    if exact:
        return exact[0]
    if not family:
        raise _unknown(properties)
    told = _told(properties)
    base = min(family, key=lambda device: abs(device.dram_bytes_per_second - told.get("dram_bytes_per_second", 0)))
    power = told.get("multiprocessors", base.multiprocessors) * told.get("clock", base.clock)
    scale = power / (base.multiprocessors * base.clock)
    return replace(
        base,
        name=str(properties.name),
        l2_bytes_per_second=base.l2_bytes_per_second * scale,
        tensor_flops_per_second=base.tensor_flops_per_second * scale,
        **told,
    )


def capability(properties: Any) -> int:
    """Its compute capability as a number: 86, 120."""
    return int(properties.major) * 10 + int(properties.minor)


def _told(properties: Any) -> dict[str, Any]:
    """The constants that the driver tells; what it says is 0, or nothing, is left out."""
    clock, width = getattr(properties, "memory_clock_rate", 0), getattr(properties, "memory_bus_width", 0)
    found = {
        "multiprocessors": getattr(properties, "multi_processor_count", 0),
        "threads": getattr(properties, "max_threads_per_multi_processor", 0),
        "registers": getattr(properties, "regs_per_multiprocessor", 0),
        "smem": getattr(properties, "shared_memory_per_block_optin", 0),
        "l2_bytes": getattr(properties, "L2_cache_size", 0),
        "clock": getattr(properties, "clock_rate", 0) * 1e3,  # told in kHz
        "dram_bytes_per_second": 2.0 * clock * 1e3 * width / 8,  # two transfers a clock, of so many bits
    }
    return {name: value for name, value in found.items() if value}


def _unknown(properties: Any) -> UsageError:
    version = f"{properties.major}.{properties.minor}"
    what = f"{properties.name} has compute capability {version}, which dplc has no constants for"
    if (properties.major, properties.minor) < OLDEST:
        what = f"{properties.name} has compute capability {version}; dplc's kernels need 8.0 (cp.async) or newer"
    return UsageError(
        what,
        notes=(f"known: {', '.join(sorted({load_device(name).arch for name in devices()}))}",),
        hint='run with --device emulator (device="emulator"), or name a device file: --target FILE.toml',
    )
