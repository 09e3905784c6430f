"""Targets: what rules can know about the machine they compile for. One TOML file per device in `devices/`."""

from __future__ import annotations

import functools
import re
import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from string import ascii_letters
from typing import TYPE_CHECKING, Any

from ..ir.diagnostic import UsageError, did_you_mean

if TYPE_CHECKING:
    from ..ir.atoms import AtomRecord

DEVICES = Path(__file__).parent / "devices"


@dataclass(frozen=True)
class Target:
    """A device, as its file in codegen/devices describes it.

    - name: a text, the name that the driver reports ("NVIDIA H200")
    - arch: a text, the architecture for the assembler ("sm_90a")
    - sm: the compute capability as a number (80, 90, 120)
    - multiprocessors: their number
    - threads: the most resident threads of one multiprocessor
    - registers: 32-bit registers of one multiprocessor
    - smem: bytes of shared memory that one block may use
    - shared_tile_bytes: bytes of shared memory that one staged operand should use at most
    - dram_bytes_per_second: peak bandwidth of DRAM
    - l2_bytes: capacity of the L2 cache
    - l2_bytes_per_second: bandwidth of the L2 cache
    - clock: cycles per second
    - fp32_per_clock: f32 lanes of one multiprocessor, results per cycle
    - recompute: how many times a value may be computed instead of stored
    - blocks: the most resident blocks of one multiprocessor
    - schedulers: of one multiprocessor; each issues one instruction of a warp per cycle
    - special_per_clock: lanes for exp, log, sin of one multiprocessor, results per cycle
    - shared_bytes_per_clock: bytes of shared memory that one multiprocessor reads per cycle
    - tensor_flops_per_second: floating-point operations of the tensor cores, dense, 16 bit
    - warp_product_share: the fraction of these that `mma.sync` reaches
    - issue_share: the fraction of issue slots that a product fills (typical, not measured)
    - dram_share: the fraction of the DRAM bandwidth that a copy reaches (typical, not measured)
    - memory_latency_seconds: the latency of one load from DRAM (typical, not measured)
    - launch_seconds: the time of one kernel launch (typical, not measured)

    The same on every device that dplc compiles for:

    - most_threads: threads of a block at most
    - warp_lanes: threads of a warp, which exchange values by shuffles
    - warpgroup: threads of four warps, which multiply together (WGMMA)
    - word_bytes: bytes of a register, which holds an f32
    - vector_bytes: bytes of the widest access of a thread
    - sector_bytes: bytes of global memory that one access reads at least
    - swizzle_bytes: bytes of a swizzled row of shared memory; it reaches all banks
    - copies_in_background: whether copies to shared memory bypass registers (cp.async, from sm_80)
    - boxes_by_tma: whether one thread issues the copy of a whole box (TMA, from sm_90)
    - atoms: the MMA instructions of the device, a list of records: name, dtypes of the operands, dtype of the sums,
      m, n, k and the extents of the axes. `asynchronous` ones are WGMMA; with `across`, their matrices may run across
      the rows of a shared tile

    policy: what rule files override of the numbers of `rules/policy.rw`; a device file does not have it.
    """

    most_threads = 1024
    warp_lanes = 32
    warpgroup = 128
    word_bytes = 4
    vector_bytes = 16
    sector_bytes = 32
    swizzle_bytes = 128
    name: str
    arch: str
    sm: int
    multiprocessors: int
    threads: int
    registers: int
    smem: int
    shared_tile_bytes: int
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

    @property
    def copies_in_background(self) -> bool:
        return self.sm >= 80

    @property
    def boxes_by_tma(self) -> bool:
        return self.sm >= 90

    @property
    def atoms(self) -> tuple[AtomRecord, ...]:
        from ..ir.atoms import atoms_of  # numpy, which `--help` does not wait for

        return atoms_of(self.sm)


DEVICE_FIELDS = tuple(field for field in fields(Target) if field.name != "policy")  # what a device file says
COMMON = ("most_threads", "warp_lanes", "warpgroup", "word_bytes", "vector_bytes", "sector_bytes", "swizzle_bytes")
ABILITIES = ("copies_in_background", "boxes_by_tma")
EXAMPLE = "`dplc model fit` writes a device file; codegen/devices has examples"
LARGEST = 1e18  # more than any rate or size of a device


@functools.cache
def load_device(name: str) -> Target:
    """Load the device file `devices/NAME.toml`."""
    return read_device(DEVICES / f"{name}.toml")


def read_device(path: Path) -> Target:
    """Read a device file. Raises UsageError for one that cannot be read, or that lacks or misstates a constant."""
    try:
        data = tomllib.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"cannot read the device file {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # no TOML, no UTF-8, a number of 5,000 digits
        raise UsageError(f"the device file {path} is not TOML: {error}", hint=EXAMPLE) from None
    known = {field.name for field in DEVICE_FIELDS}
    if unknown := data.keys() - known:
        what = f"the device file {path}: `{min(unknown)}` is not a constant of a device"
        raise UsageError(what, hint=did_you_mean(min(unknown), known) or "take it out")
    values: dict[str, Any] = {}
    for field in DEVICE_FIELDS:
        value: Any = data.get(field.name)
        number = isinstance(value, int if field.type == "int" else (int, float)) and not isinstance(value, bool)
        if not (isinstance(value, str) if field.type == "str" else number and 0 < value < LARGEST):
            found = "is not there" if value is None else f"is {value!r}"
            wanted = "a text" if field.type == "str" else "a number above 0"
            raise UsageError(f"the device file {path}: `{field.name}` {found}; it must be {wanted}", hint=EXAMPLE)
        values[field.name] = value
    if values["arch"].rstrip(ascii_letters) != f"sm_{values['sm']}":
        what = f"the device file {path}: `arch` is {values['arch']!r} and `sm` is {values['sm']}"
        raise UsageError(what, hint="`sm` is the number of `arch`: 90 for `sm_90a`")
    return Target(**values)


def devices() -> tuple[str, ...]:
    """Return the names of the device files, sorted."""
    return tuple(sorted(path.stem for path in DEVICES.glob("*.toml")))


# The device of an architecture that is named without one.
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
    """Return a target by architecture (`sm_90a`), device name (`h200`) or device file (`mine.toml`).

    `dplc model fit` writes device files. None is the default, sm_80. Raises UsageError for a name that is none of
    them.
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


# ---- the GPU of this machine: the counts of its driver over the published figures of its family


OLDEST = (8, 0)  # cp.async, which every schedule of matmuls uses, came with it


def target_of(properties: Any) -> Target:
    """Return the target for a GPU, given the result of `torch.cuda.get_device_properties`.

    A device with a file of its own is that file. For others the counts, sizes and clocks are the driver's, and
    constants that no driver reports are scaled from the nearest device of the architecture. Raises UsageError for a
    device that kernels of dplc do not run on, or that has no description.
    """
    family = [device for device in map(load_device, devices()) if device.sm == capability(properties)]
    exact = [device for device in family if device.name == properties.name]
    if exact:
        return exact[0]
    if not family:
        raise _unknown(properties)
    reported = _reported(properties)
    base = min(family, key=lambda device: abs(device.dram_bytes_per_second - reported.get("dram_bytes_per_second", 0)))
    power = reported.get("multiprocessors", base.multiprocessors) * reported.get("clock", base.clock)
    scale = power / (base.multiprocessors * base.clock)
    return replace(
        base,
        name=str(properties.name),
        l2_bytes_per_second=base.l2_bytes_per_second * scale,
        tensor_flops_per_second=base.tensor_flops_per_second * scale,
        **reported,
    )


def capability(properties: Any) -> int:
    """Return its compute capability as a number: 86, 120."""
    return int(properties.major) * 10 + int(properties.minor)


def _reported(properties: Any) -> dict[str, Any]:
    """Return the constants that the driver reports; constants that are 0 or missing are left out."""
    names = {
        "multiprocessors": "multi_processor_count", "threads": "max_threads_per_multi_processor",
        "registers": "regs_per_multiprocessor", "smem": "shared_memory_per_block_optin", "l2_bytes": "L2_cache_size",
        "clock": "clock_rate", "width": "memory_bus_width", "memory_clock": "memory_clock_rate",
    }  # fmt: skip
    found = {name: getattr(properties, reported, 0) for name, reported in names.items()}
    clock, width = found.pop("memory_clock"), found.pop("width")
    found["clock"] *= 1e3  # reported in kHz
    found["dram_bytes_per_second"] = 2.0 * clock * 1e3 * width / 8  # two transfers a clock, of so many bits
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
