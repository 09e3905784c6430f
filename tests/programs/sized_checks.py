"""A random program with lengths compiled once and held against float64 at many: by the meaning of its kernels, and
run on the emulator with its accesses checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from sized_programs import BINDINGS, DIMS, SizedProgram
from wide_checks import TARGETS, WORK, at_most, threads

from dplc.codegen.emulator.executor import EmulatorExecutor, run_kernels
from dplc.codegen.judge import GATES, judge
from dplc.codegen.target import target
from dplc.engine.api import Compiled
from dplc.engine.capture.capture import capture
from dplc.engine.capture.dynamic_shapes import Dim
from dplc.engine.capture.signature import Capture
from dplc.engine.compiler import Compilation, Compiler, compiler_with
from dplc.engine.ruleset import toolchain
from dplc.engine.run.calls import run_reference
from dplc.ir.diagnostic import DplcError
from dplc.ir.interp import loop as loop_meaning
from dplc.ir.ranges import Narrower
from dplc.ir.schemas import DTYPES
from dplc.ir.sizes import value_of
from dplc.ir.substitute import with_sizes
from dplc.ir.text.sizes import refusal
from dplc.ir.verify import kernel as kernel_rules, loop as loop_rules, tensor as tensor_rules

SECONDS = 20  # of CPU that a compile may take


class Asked(Exception):
    """A program that asks more of a length than its range: another program, and dplc says so."""


def compiled(program: SizedProgram) -> Compilation:
    """The program for as wide a range as it is one program in. Raises Asked where a length is not free."""
    tools, known = toolchain(), dict(DIMS)
    machine = tools.on(target(TARGETS[program.seed // 2 % 2]))
    function, args = program.at({letter: dim.hint or 1 for letter, dim in known.items()})
    for _ in range(4):
        try:
            with at_most(SECONDS):
                return Compiler(tools, machine).compile(captured_at(function, args, program.dynamic(known)))
        except Narrower as error:
            for part in error.sizes:
                known[part.name.upper()] = Dim.of(part)
            function, args = program.at({letter: dim.hint or 1 for letter, dim in known.items()})
        except DplcError as error:
            if any("undecided: " in note for note in error.notes):  # a refusal that names the length it asks
                raise Asked(error.what) from error
            raise
    raise Asked("its range is narrowed again and again")


def captured_at(function: Any, args: Any, dynamic: Any) -> Capture:
    try:
        return capture(function, args, None, dynamic)
    except Narrower:
        raise
    except DplcError as error:
        raise Asked(error.what) from error


def check_sized(program: SizedProgram) -> None:
    """Raises whatever is wrong, AssertionError for values; and Asked."""
    made = compiled(program)
    found = [*tensor_rules.check(made.tensor)] if made.tensor is not None else []
    found += [each for kernel in made.plan.kernels for each in loop_rules.problems(kernel)]
    found += [each for kernel in made.kernels for each in kernel_rules.problems(kernel)]
    assert not found, f"a verifier, for all lengths: {found[0]}"
    sizes = made.sizes
    for lengths in BINDINGS:
        if any(refusal(sizes[DIMS[letter].name], n) for letter, n in lengths.items() if DIMS[letter].name in sizes):
            continue
        function, args = program.at(lengths)
        tensors = made.captured.tensors | dict(zip(made.captured.signature.bind(args, {}), args, strict=True))
        eager = list(function(*args))
        references = run_reference(made.captured, tensors)
        for level, results in outcomes(made, tensors, {DIMS[n].name: x for n, x in lengths.items()}):
            where = f"{level} at {lengths}"
            for place, (result, kind) in enumerate(zip(results, eager, strict=True)):
                assert result.shape == kind.shape and result.dtype == kind.dtype, (
                    f"{where}: result {place} is {result.dtype}{list(result.shape)}, torch's {kind.dtype}{list(kind.shape)}"
                )
            judged = judge(results, references, eager, GATES)
            assert judged.ok, f"{where}: {judged.verdict}, {judged.relative:.1e} of the largest value"


def outcomes(made: Compilation, tensors: Mapping[str, Any], sizes: Mapping[str, int]) -> Any:
    """(what was run, its results) at a binding."""
    compiled = Compiled(made, "emulator")
    compiled.__dict__["executor"] = EmulatorExecutor(checked=True)
    yield "the emulator", compiled.run(tensors)
    scheduler = compiler_with(made.target)
    launched = scheduler.kernel_ir(scheduler.by_default(made.plan.kernels))
    for level, run, units in (
        ("Loop IR", loop_meaning.run, made.plan.kernels),
        ("Kernel IR", run_kernels, launched),
    ):
        bound = with_sizes(units, sizes)
        if level == "Kernel IR" and sum(map(threads, bound)) > WORK:
            continue
        yield level, results_of(made, run, bound, tensors, sizes)


def results_of(made: Compilation, run: Any, bound: Any, tensors: Mapping[str, Any], sizes: Mapping[str, int]) -> Any:
    data = {p.name: flat(tensors[p.name], p.shape, sizes) for p in made.plan.inputs}
    memory = run(bound, data)
    return [
        torch.from_numpy(memory[param.name].reshape([value_of(n, sizes) for n in kind.shape]).copy()).to(
            getattr(torch, DTYPES[kind.dtype])
        )
        for param, kind in zip(made.plan.outputs, made.plan.results, strict=True)
    ]


def flat(tensor: Any, shape: Any, sizes: Mapping[str, int]) -> Any:
    """A tensor as kernels know it, floats in float64."""
    wide = tensor.detach().double() if tensor.is_floating_point() else tensor.detach()
    return wide.reshape([value_of(n, sizes) for n in shape] or [1]).numpy()
