"""A random program compiled and held against float64: by the meaning of its kernels, or run on the emulator."""

from __future__ import annotations

import contextlib
import math
import signal
import traceback
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from wide_programs import Program

from dplc.codegen.emulator.executor import run_kernels
from dplc.codegen.judge import GATES
from dplc.codegen.target import target
from dplc.engine.api import Compiled
from dplc.engine.capture.capture import capture, capture_text
from dplc.engine.capture.signature import Capture
from dplc.engine.compiler import Compiler
from dplc.engine.explore.explore import ExplorationOptions, best
from dplc.engine.explore.solution import Effort
from dplc.engine.ruleset import Toolchain, toolchain
from dplc.engine.run.calls import judge_program
from dplc.ir.interp import loop as loop_meaning
from dplc.ir.schemas import DTYPES
from dplc.ir.verify.kernel import problems

TARGETS = ("sm_80", "h100")
SECONDS = 10  # of CPU that a compile may take
SMALL = ExplorationOptions(top=1, effort=Effort(kernels=100, lowerings=2))
WORK = 40_000  # threads of a program whose Kernel IR is run in checked mode


class Hang(Exception):
    """A compile that takes too long."""


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raises Hang in what takes more CPU."""

    def stop(*_: Any) -> None:
        raise Hang(f"more than {seconds} s of CPU")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def captured_program(program: Program) -> tuple[Capture, list[Any]]:
    """A program captured, as a text or as a function, and what eager makes of it."""
    if program.seed % 2:
        found = capture_text(program.text, program.seed)
        assert found.reference is not None
        return found, list(found.reference)
    function, args = program.function()
    return capture(function, args), list(function(*args))


def check(
    program: Program, explored: bool = False, emulator: bool = False, tools: Toolchain | None = None
) -> None:  # fmt: skip
    """Raises whatever is wrong: AssertionError for values, Hang, and what compile raises. tools: other rules than usual."""
    tools = tools or toolchain()
    machine = tools.on(target(TARGETS[program.seed // 2 % 2]))
    with at_most(SECONDS):
        captured, eager = captured_program(program)
        choose = partial(best, options=SMALL) if explored else None
        if emulator:
            compiled = Compiled(Compiler(tools, machine, explore=choose).compile(captured), "emulator")
    if emulator:
        assert_right("the emulator", compiled.run(captured.tensors), captured, eager)
        return
    with at_most(SECONDS):
        compiler = Compiler(tools, machine)
        values = compiler.values(captured)
        found = choose(values) if choose is not None else None
        plan = found.plan(values.results) if found is not None else compiler.fused(values)[1]
        kernels = compiler.kernel_ir(compiler.by_default(plan.kernels))
    wrong = [found for kernel in kernels for found in problems(kernel)]
    assert not wrong, f"Kernel IR: {wrong[0]}"
    folded = values.captured
    data = {name: flat(tensor) for name, tensor in folded.tensors.items()}
    if found is not None:
        data |= {name: flat(tensor) for name, tensor in prepared(found, folded).items()}
    for level, run, units in (("Loop IR", loop_meaning.run, plan.kernels), ("Kernel IR", run_kernels, kernels)):
        if level == "Kernel IR" and sum(map(threads, kernels)) > WORK:
            continue
        memory = run(units, data)
        results = [
            torch.from_numpy(memory[param.name].reshape(kind.shape).copy()).to(getattr(torch, DTYPES[kind.dtype]))
            for param, kind in zip(plan.outputs, plan.results, strict=True)
        ]
        assert_right(level, results, captured, eager)


def threads(kernel: Any) -> int:
    """The threads that a kernel of Kernel IR launches."""
    return sum(math.prod(each.grid) * each.block for each in kernel.body)


def prepared(found: Any, captured: Capture) -> dict[str, Any]:
    from dplc.engine.run.calls import Preparation

    return Preparation().now(found.prepared, captured.tensors)


def flat(tensor: Any) -> Any:
    """A tensor as kernels know it, floats in float64."""
    wide = tensor.detach().double() if tensor.is_floating_point() else tensor.detach()
    return wide.reshape([n for n in tensor.shape if n != 1] or [1]).numpy()


def assert_right(level: str, results: list[Any], captured: Capture, eager: list[Any]) -> None:
    for place, (result, kind) in enumerate(zip(results, eager, strict=True)):
        assert result.shape == kind.shape and result.dtype == kind.dtype, (
            f"{level}: result {place} is {result.dtype}{list(result.shape)}, torch's {kind.dtype}{list(kind.shape)}"
        )
    found = judge_program(captured, captured.tensors, results, eager, gates=GATES)
    assert found.ok, f"{level}: {found.verdict}, {found.relative:.1e} of the largest value"


def failure(
    program: Program, explored: bool = False, emulator: bool = False, tools: Toolchain | None = None
) -> str:  # fmt: skip
    """What is wrong with a program: its kind, where it was raised and its message; "" for nothing."""
    try:
        check(program, explored, emulator, tools)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = (
            ""
            if isinstance(error, (AssertionError, Hang))
            else f" at {place.filename.rsplit('/', 2)[-1]}:{place.lineno}"
        )
        return f"{type(error).__name__}{where}: {str(error).splitlines()[0] if str(error) else ''}"
    return ""


def smaller(program: Program, explored: bool, emulator: bool) -> Program:
    """A part of a failing program that fails the same way."""

    def alike(other: Program) -> bool:
        return failure(other, explored, emulator)[:40] == kind

    kind = failure(program, explored, emulator)[:40]
    best = program
    for name in (*(name for name, _ in program.lines), *program.results):
        part = program.needed((name,))
        if len(part.lines) < len(best.lines) and alike(part):
            best = part
            break
    for place in range(len(best.results)):
        part = best.needed(best.results[:place] + best.results[place + 1 :]) if len(best.results) > 1 else best
        if len(part.lines) < len(best.lines) and alike(part):
            return part
    return best


def report(program: Program, explored: bool, emulator: bool) -> str:
    """Of a failing program: what is wrong, and the smallest part that shows it, to be pasted into a shell."""
    part = smaller(program, explored, emulator)
    options = f"--seed {part.seed} --target {TARGETS[part.seed // 2 % 2]}{' --explore' * explored}"
    return (
        f"{failure(part, explored, emulator)}\n$ dplc run {options} -c $'{part.text.replace(chr(10), chr(92) + 'n')}'"
    )
