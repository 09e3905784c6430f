"""Correctness check of a candidate on the emulator against float64, with some of its blocks in checked mode.

These are the first and the last block, and boundary blocks.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ...codegen.arrays import is_written, torch_dtype
from ...codegen.emulator.executor import CheckingExecutor, chosen_blocks
from ...codegen.kernel import CudaKernel, Program
from ...ir.diagnostic import DplcError
from ...ir.dtypes import FLOATS
from ...ir.interp.loop import run
from ...ir.loop import For
from ...ir.node import nodes
from ...ir.program import Kernel, Param, delivered, supplied
from ...ir.sizes import telling
from ...ir.verify.kernel import problems
from ..bench.running import BLOCKS, WHOLE, sampled, work_of
from ..compiler import bound, buffer
from ..run.judge import judge
from ..schedule.space import Launched, ScheduleCandidate

# ---- Inputs and reference values of a program.
#
# The reference is the float64 meaning of Loop IR (`ir/interp/loop.py`). If that would run too long, it computes some
# iterations of the free loops, and schedules are compared at the elements that those iterations store.


WHOLE_ITERATIONS = 1 << 22  # innermost iterations that are computed in a few seconds at most
FEWEST = 8  # iterations of a free loop that are looked at, at least
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class TuningSubject:
    """Program with inputs and reference values.

    tensors: inputs by name, on the CPU; expected: for each output (values, where), float64 and the mask of computed
    elements.
    """

    program: tuple[Kernel, ...]
    tensors: dict[str, Any]
    expected: dict[str, tuple[Array, Array]]

    @property
    def checked(self) -> str:
        """Compared part of the outputs as text: `whole`, or a number of elements."""
        compared = sum(int(where.sum()) for _, where in self.expected.values())
        every = sum(where.size for _, where in self.expected.values())
        return "whole" if compared == every else f"{compared} of {every} elements"


def draw(param: Param, seed: int = 0) -> Any:
    """Return reproducible random values for a buffer: normal floats; 0 or 1 for integers, which may be indices."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{seed} {param.name}".encode()))
    if param.dtype not in FLOATS:
        return torch.randint(0, 2, param.shape, generator=generator).to(torch_dtype(param.dtype))
    return torch.randn(param.shape, generator=generator).to(torch_dtype(param.dtype))


def subject_of(program: tuple[Kernel, ...], seed: int = 0) -> TuningSubject:
    """Return a program with inputs and reference values. Raises ScheduleError for one without a meaning."""
    tensors = {param.name: draw(param, seed) for param in supplied(program)}
    known = {name: _exact(tensor) for name, tensor in tensors.items()}
    only = _sample(program[0], seed) if len(program) == 1 else {}
    stores: dict[str, Array] = {}
    memory = run(program, known, stores, only)
    outputs = delivered(program)
    return TuningSubject(program, tensors, {p.name: (memory[p.name], stores[p.name] > 0) for p in outputs})


def launches(loops: tuple[Kernel, ...], kernels: tuple[Kernel, ...], texts: tuple[CudaKernel, ...]) -> Program:
    """Return a candidate without symbolic dimensions as a launch plan without the CUDA texts."""
    inputs, outputs = supplied(loops), delivered(loops)
    known = {param.name for param in (*inputs, *outputs)}
    between = {p.name: p for kernel in kernels for p in (*kernel.ins, *kernel.outs) if p.name not in known}
    bindings = tuple(bound(kernel, made) for kernel, made in zip(kernels, texts, strict=True))
    bare = tuple(dataclasses.replace(text, text="", comment="") for text in texts)
    given, made, beside = (tuple(map(buffer, params)) for params in (inputs, outputs, between.values()))
    return Program(bare, given, made, (), beside, bindings)


def _exact(tensor: Any) -> Array:
    return np.asarray((tensor.double() if tensor.dtype.is_floating_point else tensor).numpy())


def _sample(kernel: Kernel, seed: int) -> dict[str, Array]:
    """Return the iterations of free loops to compute. The longest loops are sampled until the computation is fast."""
    extents = {loop.var: int(loop.stop) for loop in nodes(kernel.body, For) if loop.role == "free"}
    kept = dict(extents)
    dice = np.random.default_rng(seed)
    while _iterations(kernel, kept) > WHOLE_ITERATIONS and any(n > FEWEST for n in kept.values()):
        longest = max(kept, key=lambda var: kept[var])
        kept[longest] = max(kept[longest] // 4, FEWEST)
    chosen = {}
    for var, count in kept.items():
        if count < extents[var]:  # the first, the last, and some between
            between = dice.choice(extents[var], count, replace=False)
            chosen[var] = np.unique(np.array([0, extents[var] - 1, *between]))
    return chosen


def _iterations(kernel: Kernel, kept: dict[str, int]) -> float:
    """Return the number of innermost iterations of the deepest nest."""

    def below(block: Any) -> float:
        found = [below(s.body) * _turns(s, kept) for s in block if hasattr(s, "body")]
        return max([1.0, *found])

    return below(kernel.body)


def _turns(statement: Any, kept: dict[str, int]) -> float:
    if not isinstance(statement, For):
        return 1.0
    length = statement.stop - statement.start if isinstance(statement.stop, int) else math.inf
    return min(length, kept.get(statement.var, length)) if statement.role == "free" else length


ORDERS = (0, 2)  # of the threads in the blocks that are looked at closely
CLOSELY = ("first", "last", "ragged")


@dataclass(frozen=True)
class Verdict:
    """Result of a correctness check. how: the compared part; finding: the error, "" if there is none."""

    how: str
    finding: str = ""

    @property
    def right(self) -> bool:
        return not self.finding


@functools.lru_cache(maxsize=8)  # more than a kernel has bindings that are looked at
def _subject(loops: tuple[Kernel, ...]) -> TuningSubject:
    return subject_of(loops)


def verdict(candidate: ScheduleCandidate) -> Verdict:
    """Run a candidate on the emulator and compare it with float64.

    One with symbolic dimensions runs at the ends of their ranges, at their examples and next to these. The verdict
    holds wrong results and races. Raises DplcError if the host cannot run it.
    """
    broken = next((problem for kernel in candidate.kernels for problem in problems(kernel)), "")
    if broken:
        return Verdict("verifier of Kernel IR", f"its schedule is not well formed: {broken}")
    found = dict[str, Verdict]()
    for binding in telling(candidate.sizes):
        where = ", ".join(f"{name}={number}" for name, number in binding.items())
        found[where] = _verdict(candidate.at(binding))
        if not found[where].right:
            told = f" where {where}" if where else ""
            return Verdict(found[where].how, found[where].finding + told)
    hows = dict.fromkeys(one.how for one in found.values())
    return Verdict("; ".join(_at([where for where in found if found[where].how == how], how) for how in hows))


def _at(places: list[str], how: str) -> str:
    """Return a text like `emulator, whole, at s=1 and s=8`."""
    return f"{how}, at {' and '.join(places)}" if any(places) else how


def _verdict(made: Launched) -> Verdict:
    """Run a candidate without symbolic dimensions.

    Only some blocks of a single kernel run if all would need minutes.
    """
    texts, subject = made.cuda, _subject(made.loops)
    program = dataclasses.replace(launches(made.loops, made.kernels, texts), kernels=texts)
    how, some = f"emulator, {subject.checked}", None
    if sum(map(work_of, made.kernels)) > WHOLE and len(texts) == 1:
        count = texts[0].blocks
        some = tuple(sorted({*sampled(count), *chosen_blocks(texts[0], CLOSELY)}))
        how = f"emulator, {min(BLOCKS, count)} of {count} blocks"
    executor = CheckingExecutor(CLOSELY, orders=ORDERS, some=some)
    try:
        results = executor.run(program, {b.name: subject.tensors[b.name] for b in program.inputs})
    except DplcError as problem:
        return Verdict(how, problem.what)
    if executor.findings:
        return Verdict(how, executor.findings[0].message)
    return _compared({name: torch.as_tensor(values) for name, values in results.items()}, subject, how)


def _compared(made: dict[str, torch.Tensor], subject: TuningSubject, how: str) -> Verdict:
    """Compare the elements that the reference computed and that the executed blocks stored."""
    for name, (values, where) in subject.expected.items():
        got = made[name].reshape(values.shape)
        here = torch.from_numpy(where) & is_written(got) if "blocks" in how else torch.from_numpy(where)
        found = judge([got[here]], [torch.from_numpy(values)[here]])
        if not found.ok:
            return Verdict(how, f"`{name}` differs by {found.relative:.2g} of its largest value from float64")
    return Verdict(how)
