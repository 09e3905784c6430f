"""Right before fast: a candidate on the emulator against float64; its first, last and ragged blocks in checked mode."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass

import torch

from ...codegen.arrays import as_tensor, is_written
from ...codegen.emulator.executor import CheckingExecutor, chosen_blocks
from ...codegen.emulator.runtime import LaunchOptions, load
from ...codegen.kernel import CudaKernel, Program
from ...ir.diagnostic import DplcError
from ...ir.program import Kernel
from ...ir.sizes import telling
from ...ir.verify.kernel import problems
from ..bench.running import BLOCKS, WHOLE, bound_to, buffers_of, own_outputs, sampled, work_of
from ..run.judge import judge
from ..schedule.space import Launched, ScheduleCandidate
from .measure import launches
from .subject import TuningSubject, subject_of

ORDERS = (0, 2)  # of the threads in the blocks that are looked at closely
CLOSELY = ("first", "last", "ragged")


@dataclass(frozen=True)
class Verdict:
    """Whether a candidate is right. how: what was compared; finding: what is wrong, "" if nothing is."""

    how: str
    finding: str = ""

    @property
    def right(self) -> bool:
        return not self.finding


@functools.lru_cache(maxsize=8)  # more than a kernel has bindings that are looked at
def _subject(loops: tuple[Kernel, ...]) -> TuningSubject:
    return subject_of(loops)


def verdict(candidate: ScheduleCandidate) -> Verdict:
    """Run a candidate: one with sizes at the ends of their ranges, their hints and beside these. What it does wrong, a
    race or a result, is in the verdict; a host that cannot run it raises."""
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
    """`emulator, whole, at s=1 and s=8`"""
    return f"{how}, at {' and '.join(places)}" if any(places) else how


def _verdict(made: Launched) -> Verdict:
    """The same of numbers."""
    texts, subject = made.cuda, _subject(made.loops)
    program = dataclasses.replace(launches(made.loops, made.kernels, texts), kernels=texts)
    if sum(map(work_of, made.kernels)) > WHOLE and len(texts) == 1:
        return _sampled(program, subject)
    executor = CheckingExecutor(CLOSELY, orders=ORDERS)
    how = f"emulator, {subject.checked}"
    try:
        results = executor.run(program, {b.name: subject.tensors[b.name] for b in program.inputs})
    except DplcError as problem:
        return Verdict(how, problem.what)
    if executor.findings:
        return Verdict(how, executor.findings[0].message)
    return _compared({name: torch.as_tensor(values) for name, values in results.items()}, subject, how)


def _sampled(program: Program, subject: TuningSubject) -> Verdict:
    """Some blocks of the one kernel: as a whole it would take minutes."""
    (kernel,) = program.kernels
    how = f"emulator, {min(BLOCKS, kernel.blocks)} of {kernel.blocks} blocks"
    try:
        made = _some_blocks(kernel, program, subject)
    except DplcError as problem:
        return Verdict(how, problem.what)
    return _compared(made, subject, how)


def _some_blocks(kernel: CudaKernel, program: Program, subject: TuningSubject) -> dict[str, torch.Tensor]:
    buffers = buffers_of(program, subject.tensors)
    (launch,) = program.launches()
    bound = bound_to(launch, buffers)
    closely, checked = chosen_blocks(kernel, CLOSELY), load((kernel,), True)
    for order in ORDERS:
        own = own_outputs(kernel, bound)
        checked.launch(kernel, own, LaunchOptions(blocks=closely, order=order, checked=True, counted=False))
    load((kernel,)).launch(kernel, bound, LaunchOptions(blocks=sampled(kernel.blocks)))
    return {b.name: as_tensor(b, buffers[b.name].array.copy()) for b in program.outputs}  # their memory goes with them


def _compared(made: dict[str, torch.Tensor], subject: TuningSubject, how: str) -> Verdict:
    """The elements that were both computed by the reference and stored by the blocks that ran."""
    for name, (values, where) in subject.expected.items():
        got = made[name].reshape(values.shape)
        here = torch.from_numpy(where) & is_written(got) if "blocks" in how else torch.from_numpy(where)
        found = judge([got[here]], [torch.from_numpy(values)[here]])
        if not found.ok:
            return Verdict(how, f"`{name}` differs by {found.relative:.2g} of its largest value from float64")
    return Verdict(how)
