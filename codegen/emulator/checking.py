"""Programs in checked mode: which blocks are looked at, in which orders of their threads, and what was found.

Checked mode is about a hundred times slower than fast mode, so of a large grid only the blocks are checked where
kernels differ: the first, the last, and the ragged ones, at the far end of one or more axes of the grid.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from ...ir.diagnostic import UsageError
from ..kernel import CudaKernel, KernelParam
from .executor import EmulatorExecutor
from .kernels import LoadedKernels, load
from .runtime import DeviceBuffer, DeviceMemory, EmulatorError, LineCost

DEFAULT_BLOCKS = ("first", "last", "ragged")
SMALL = 4096  # CUDA threads of a grid that is checked whole unless blocks are asked for
ORDERS = (0, 1, 2)  # of the threads of a block: forwards, backwards, shuffled


@dataclass(frozen=True)
class Violation:
    """Something a kernel must not do. lines: the lines of kernel text it concerns, `line N: text`."""

    kernel: str
    order: int
    message: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class CheckedLaunch:
    """What came of one launch: the blocks that were checked, whether these are all, costs and findings."""

    kernel: CudaKernel
    blocks: tuple[int, ...]
    sites: tuple[LineCost, ...]
    findings: tuple[Violation, ...]

    @property
    def whole(self) -> bool:
        return len(self.blocks) == self.kernel.blocks

    def line(self, site: LineCost) -> str:
        """The kernel text of a site."""
        lines = self.kernel.text.splitlines()
        return lines[site.line - 1].strip() if site.line <= len(lines) else ""


def chosen_blocks(kernel: CudaKernel, wanted: Iterable[str] | None) -> tuple[int, ...]:
    """Linear indices of blocks: `first`, `last`, `ragged`, `all` or numbers; None is the default. Raises UsageError."""
    words = tuple(wanted) if wanted is not None else DEFAULT_BLOCKS
    if wanted is None and kernel.blocks * kernel.block <= SMALL:
        words = ("all",)
    found: set[int] = set()
    for word in words:
        if word == "all":
            found |= set(range(kernel.blocks))
        elif word == "ragged":
            found |= set(_far_ends(kernel.grid))
        elif word in ("first", "last"):
            found.add(0 if word == "first" else kernel.blocks - 1)
        elif word.isdigit() and int(word) < kernel.blocks:
            found.add(int(word))
        elif word.isdigit():
            raise UsageError(f"there is no block {word}: kernel `{kernel.name}` has {kernel.blocks}")
        else:
            raise UsageError(f"no blocks are called `{word}`", hint="first, last, ragged, all, or numbers from 0")
    return tuple(sorted(found))


def _far_ends(grid: tuple[int, int, int]) -> Iterable[int]:
    """The blocks that stand first or last along every axis."""
    x, y, _ = grid
    for places in itertools.product(*(sorted({0, extent - 1}) for extent in grid)):
        yield places[0] + x * (places[1] + y * places[2])


@dataclass
class CheckingExecutor(EmulatorExecutor):
    """Runs programs on the emulator, every launch in checked mode first, then whole in fast mode for what follows.

    What is wrong does not end the run: it is among the findings of `launches`. blocks: see `chosen_blocks`.
    """

    blocks: tuple[str, ...] | None = None
    orders: tuple[int, ...] = ORDERS
    launches: list[CheckedLaunch] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    @property
    def findings(self) -> tuple[Violation, ...]:
        """All that was found, in the order of launches."""
        return tuple(finding for launch in self.launches for finding in launch.findings)

    def _launch(self, kernels: LoadedKernels, kernel: CudaKernel, buffers: Mapping[str, DeviceMemory]) -> None:
        chosen = chosen_blocks(kernel, self.blocks)
        sites: tuple[LineCost, ...] = ()
        findings: list[Violation] = []
        written: dict[int, dict[str, npt.NDArray[np.generic]]] = {}
        checked = load((kernel,), True)
        for order in self.orders:
            fresh = {param.name: _own(param, buffers[param.name]) for param in kernel.params}
            try:
                options = replace(self._options, checked=True, counted=not sites, blocks=chosen, order=order)
                costs = checked.launch(kernel, fresh, options)
                sites = sites or costs
                written[order] = {p.name: fresh[p.name].array.copy() for p in kernel.params if p.role == "out"}
            except EmulatorError as error:
                findings.append(Violation(kernel.name, order, error.what, tuple(error.notes)))
        try:
            super()._launch(kernels, kernel, buffers)
        except EmulatorError as error:
            findings.append(Violation(kernel.name, 0, error.what, tuple(error.notes)))
            raise
        finally:
            for order, arrays in written.items():
                findings += _differences(kernel, order, arrays, buffers)
            self.launches.append(CheckedLaunch(kernel, chosen, sites, _distinct(findings)))


class WholeExecutor(EmulatorExecutor):
    """Runs programs in checked mode alone: every block, under several orders of threads, costs not counted.

    What the first order leaves is what follows. Raises EmulatorError for the first finding.
    """

    def __init__(self, orders: tuple[int, ...] = ORDERS) -> None:
        super().__init__(checked=True)
        self._orders = orders

    def _launch(self, kernels: LoadedKernels, kernel: CudaKernel, buffers: Mapping[str, DeviceMemory]) -> None:
        first, *others = (replace(self._options, order=order) for order in self._orders)
        kernels.launch(kernel, buffers, first)
        for options in others:
            again = {param.name: _own(param, buffers[param.name]) for param in kernel.params}
            kernels.launch(kernel, again, options)
            for param in kernel.params:
                if param.role == "out":
                    _same(kernel, options.order, param.name, buffers[param.name].array, again[param.name].array)


def _same(
    kernel: CudaKernel, order: int, name: str, first: npt.NDArray[np.generic], again: npt.NDArray[np.generic]
) -> None:
    different = int((_bytes(first) != _bytes(again)).any(axis=1).sum())
    if different:
        raise EmulatorError(
            f"kernel `{kernel.name}` gives other values for {different} elements of `{name}`: order {order}"
        )


def _own(param: KernelParam, buffer: DeviceMemory) -> DeviceMemory:
    """The buffer, or for an output one of its own full of poison."""
    return buffer if param.role != "out" else DeviceBuffer(buffer.buffer)


def _differences(
    kernel: CudaKernel, order: int, arrays: Mapping[str, npt.NDArray[np.generic]], buffers: Mapping[str, DeviceMemory]
) -> Iterable[Violation]:
    """Elements that the checked blocks wrote, and wrote otherwise than the whole run did."""
    for name, array in arrays.items():
        got, whole = _bytes(array), _bytes(buffers[name].array)
        written = (got != POISON).any(axis=1)
        wrong = int((written & (got != whole).any(axis=1)).sum())
        if wrong:
            message = f"kernel `{kernel.name}` gives other values for {wrong} elements of `{name}`: order {order}"
            yield Violation(kernel.name, order, message)


POISON = 0xFF  # mirrors dplc::poison


def _bytes(array: npt.NDArray[np.generic]) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(array).view(np.uint8).reshape(math.prod(array.shape), -1)


def _distinct(findings: Iterable[Violation]) -> tuple[Violation, ...]:
    """One finding for what several orders of threads met at the same lines."""
    found: dict[tuple[str, ...], Violation] = {}
    for finding in findings:
        found.setdefault(finding.lines or (finding.message,), finding)
    return tuple(found.values())
