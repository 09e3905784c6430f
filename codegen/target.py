"""Targets: what rules may ask of the machine they compile for. One TOML file per device in `devices/`."""

from __future__ import annotations

import functools
import re
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ..ir.diagnostic import UsageError, did_you_mean

DEVICES = Path(__file__).parent / "devices"


@dataclass(frozen=True)
class Target:
    """A device. Sizes in bytes, bandwidth in bytes per second, rates per second.

    arch: the name for the assembler (`sm_90a`); sm: 80, 90, 120; smem: shared memory a block may use; slab: the largest
    piece of it that one staged operand should take; recompute: how often a value may be computed again rather than
    stored. Of one multiprocessor: threads, registers, blocks that it holds; schedulers, each of which issues one
    instruction of a warp per clock; fp32_per_clock, special_per_clock: lanes of the pipes; shared_bytes_per_clock.
    tensor_flops_per_second: dense, 16 bit; warp_product_share: what `mma.sync` reaches of that. issue_share: what
    products fill of the schedulers' slots; dram_share: what copies reach of DRAM; these, memory_latency_seconds and
    launch_seconds are typical, not measured.
    policy: what a user's rule files override of the numbers of `rules/policy.rw`; no device file says it.
    """

    name: str
    arch: str
    sm: int
    multiprocessors: int
    threads: int
    registers: int
    smem: int
    slab: int
    dram_bytes_per_second: float
    l2_bytes: int
    l2_bytes_per_second: float
    clock: float
    fp32_per_clock: int
    recompute: int
    blocks: int
    schedulers: int
    special_per_clock: int
    shared_bytes_per_clock: int
    tensor_flops_per_second: float
    warp_product_share: float
    issue_share: float
    dram_share: float
    memory_latency_seconds: float
    launch_seconds: float
    policy: tuple[tuple[str, Any], ...] = ()


DEVICE_FIELDS = tuple(field for field in fields(Target) if field.name != "policy")  # what a device file says
LARGEST = 1e18  # more than any rate or size of a device


@functools.cache
def load_device(name: str) -> Target:
    """The device file `devices/NAME.toml`."""
    return read_device(DEVICES / f"{name}.toml")


def read_device(path: Path) -> Target:
    """A device file. Raises UsageError for one that cannot be read, or that lacks or misstates a constant."""
    try:
        data = tomllib.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"cannot read the device file {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # no TOML, no UTF-8, a number of 5,000 digits
        raise UsageError(f"the device file {path} is no TOML: {error}") from None
    values: dict[str, Any] = {}
    for field in DEVICE_FIELDS:
        value = data.get(field.name)
        kind = {"str": str, "int": int, "float": (int, float)}[str(field.type)]
        if not isinstance(value, kind) or isinstance(value, bool) or (field.type != "str" and not 0 < value < LARGEST):  # type: ignore[arg-type,operator]
            found = "is not there" if value is None else f"is {value!r}"
            wanted = "a text" if field.type == "str" else "a number above 0"
            raise UsageError(f"the device file {path}: `{field.name}` {found}; it must be {wanted}")
        values[field.name] = value
    return Target(**values)


def devices() -> tuple[str, ...]:
    """The names of the device files, sorted."""
    return tuple(sorted(path.stem for path in DEVICES.glob("*.toml")))


# Which device stands for an architecture that is named without one.
_BY_ARCH = {
    "sm_80": "a100",
    "sm_86": "rtx3090",
    "sm_87": "orin",
    "sm_89": "rtx4090",
    "sm_90": "h100",
    "sm_90a": "h200",
    "sm_100": "b200",
    "sm_103": "b300",
    "sm_110": "thor",
    "sm_120": "rtx5090",
    "sm_121": "gb10",
}
DEFAULT = "sm_80"


def target(name: str | None = None) -> Target:
    """A target by architecture (`sm_90a`), device name (`h200`) or device file (`mine.toml`, as `dplc calibrate`
    writes).

    None is the default, sm_80. Raises UsageError for a name that is none of them.
    """
    if name is not None and name.endswith(".toml"):
        return read_device(Path(name))
    wanted = (name or DEFAULT).lower()
    device = _BY_ARCH.get(wanted, wanted)
    if device not in devices():
        options = (*_BY_ARCH, *devices())
        note = "an architecture" if re.fullmatch(r"sm_\d+[a-z]?", wanted) else "a target"
        raise UsageError(
            f"`{name}` is not {note} that dplc knows",
            notes=(f"known: {', '.join(options)}",),
            hint=did_you_mean(wanted, options),
        )
    return load_device(device)
