"""Python interface: `dplc.compile(module_or_function, example_inputs)`."""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Never

import torch
from torch import Tensor

from ..codegen.arrays import as_tensor, is_tensor, torch_dtype
from ..codegen.kernel import Program
from ..codegen.launch import CudaExecutor, Executor, executor
from ..codegen.target import Target, target as find_target, target_of
from ..ir.diagnostic import DplcError, UsageError, did_you_mean
from .capture.capture import capture
from .capture.fx_rewrites import Function
from .capture.precision import AS_CPU
from .capture.signature import Capture, Tensors
from .compiler import Compilation, Compiler, Stopwatch, compiler_with
from .language.pipeline import describe
from .language.rule import RuleSet
from .rewrite.statements.driver import Settings, tell_unheard
from .rewrite.torch_rules.pattern import check_places
from .rewrite.trace import Trace
from .ruleset import toolchain
from .run.calls import (
    BoundCall,
    Original,
    Placing,
    Preparation,
    Rows,
    Served,
    Wanted,
    arguments,
    bound_call,
    check_kinds,
    check_length,
    devices_of,
    gpu_of,
    requested_rows,
    run_reference,
    sizes_of_call,
)
from .schedule.scheduling import StoredSchedules, stored_schedules

LOG = logging.getLogger("dplc")
DEVICES = ("cuda", "emulator", "reference")


class Rules:
    """Built-in rules with the .rw files and folders of a user as overrides, read and checked once.

    `Rules("mine.rw", "folder")`; printed, it is the passes in order. Raises DplcError for a file that does not check.
    """

    def __init__(self, *paths: str | Path):
        self.rules: RuleSet = toolchain(paths).rules

    def __contains__(self, name: str) -> bool:
        return self.rules.plain(name) in self.rules.rules

    def __str__(self) -> str:
        return describe(self.rules)


RuleSource = str | Path | Iterable[str | Path] | Rules | RuleSet | None


class Compiled(Served):
    """Compiled function: call it like the original, with tensors of the shapes it was compiled for.

    `.ir(stage)` is the program's text (torch, tensor, loop, tile, kernel, cuda), `.cuda` the CUDA text, `.trace` the
    trace of the rules, `.timings` milliseconds per stage, `.notes` the copies and other extra steps of the last run,
    `.remembered` a line for everything that a tuning store decided.
    """

    def __init__(
        self,
        compilation: Compilation,
        device: str,
        original: Original | None = None,
        remembered: tuple[str, ...] = (),
        rows: Rows | None = None,
    ):
        self._original, self.remembered = original, remembered
        self.rows = rows or rows_of(compilation, ())
        self.device = device
        self.notes: tuple[str, ...] = ()
        self._placing = Placing(compilation.captured.kinds)
        self._executors = functools.cache(executor)  # of GPUs that calls were on
        self._preparation = Preparation()
        self._calls: dict[Hashable, BoundCall] = {}

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Return the function's value, computed by the kernels.

        Raises:
            DplcError: if an argument does not fit, or a fixed tensor has changed since the compile.
        """
        captured = self.compilation.captured
        if self._original is not None:
            args, kwargs = self._original.bind(args, kwargs)
        inputs = captured.signature.bind(args, kwargs)
        results = self._run(inputs, bound_call(self.rows, inputs, self._calls))
        if self.device == "reference":
            kinds = (torch_dtype(kind.dtype) for kind in self.compilation.plan.results)
            results = [result.to(kind) for result, kind in zip(results, kinds, strict=True)]
        device = next((t.device for t in (*results, *inputs.values())), None)
        return captured.signature.pack(results, device, inputs)

    def refresh_weights(self) -> None:
        """Compute prepared weights (`explore=True` may fold and pack some) again at the next call.

        Changes are noticed by themselves, but for one: on a GPU, single elements of a weight above 64 KiB that `.data`
        wrote.
        """
        self._preparation = Preparation()

    def at(self, **sizes: int) -> Program:
        """Return the launches that serve calls of these lengths: `compiled.at(s=7).kernels`.

        Args:
            sizes: a length for every size of the program.

        Returns:
            The program with the grids and buffers of these lengths.

        Raises:
            UsageError: if the names are not those of the program's sizes.
            DplcError: for a length that was not compiled.
        """
        declared = self.compilation.sizes
        if sizes.keys() != declared.keys():
            what = f"its sizes are {', '.join(declared) or 'none'}, not {', '.join(sizes) or 'none'}"
            raise UsageError(what, hint="compiled.at(s=7), a number for each")
        for name, length in sizes.items():
            check_length(declared[name], length)
        return self.rows.at(sizes).at(sizes)

    def run(self, inputs: Tensors) -> list[Tensor]:
        """Return the outputs of the graph in order, with torch's shapes. The reference computes in float64.

        Args:
            inputs: {input name: tensor}. A missing input has its value from the capture.

        Returns:
            A tensor for each output; nothing is changed in place.

        Raises:
            DplcError: for a length that was not compiled.
        """
        tensors = {**self.compilation.captured.tensors, **inputs}
        sizes = sizes_of_call(self.compilation.inputs_with_sizes, tensors)
        return self._run(inputs, BoundCall(sizes, self.rows))

    def _run(self, inputs: Tensors, call: BoundCall) -> list[Tensor]:
        captured = self.compilation.captured
        weights = self._original.weights() if self._original is not None else {}
        tensors = {**captured.tensors, **weights, **inputs}
        if self.device == "reference":
            return run_reference(captured, tensors)
        made, program, shaped, wanted = call.launch
        if made is not self.compilation:  # lengths that are known compute more constants beforehand
            tensors = {**made.captured.tensors, **tensors}
        tensors |= self._preparation.now(made.prepared, tensors)
        arrays = {name: _shaped(tensors[name], shape, plain) for name, shape, plain in shaped}
        runner = self._runner(arrays)
        notes: tuple[str, ...] = ()
        if isinstance(runner, CudaExecutor):
            arrays, notes = self._placing.place(arrays, runner.memory)
        else:
            check_places(made.bounds, tensors, call.sizes)
        results = runner.run(program, arrays)
        self.notes = (*notes, *runner.notes)
        outputs = []
        carried = inputs and not any(x.is_cuda for x in inputs.values())
        for output in wanted:  # tensors, even if the program was given none
            result = results[output.name]
            tensor = result if is_tensor(result) else as_tensor(output, result)
            if tensor.shape != output.shape:  # a call of `reshape` costs more than this question
                tensor = tensor.reshape(output.shape)
            tensor = tensor.data  # no view, which autograd lets nobody change in place
            outputs.append(tensor.cpu() if carried else tensor)
        return outputs

    def warm_up(self) -> None:
        """Build and load the kernels and allocate their memory now, as a capture by `torch.cuda.graph` needs it.

        On the GPU that is torch's current one, unless another was named.

        Raises:
            DplcError: if the device is missing or a kernel cannot be built.
        """
        if self.device != "reference":
            self.executor.warm_up(self.program)

    def _runner(self, arrays: Tensors) -> Executor:
        """Return the executor of the GPU with the arrays, unless one was named or all of them are on the CPU."""
        used = {name: array.device for name, array in arrays.items()} if self.device == "cuda" else {}
        ordinal = gpu_of(used)
        return self.executor if ordinal is None else self._executors(f"cuda:{ordinal}")

    @functools.cached_property
    def executor(self) -> Executor:
        """Executor of the kernels, created when first needed. Raises DplcError for a device that is not there."""
        return executor(self.device)

    @functools.cached_property
    def trace(self) -> Trace | None:
        """The trace of the compile. If none was kept, compile once more: a compile gives the same bytes each time."""
        made = self.compilation
        if made.trace is None and self._original is not None:
            made = replace(made.compiler, trace=Trace()).compile(self._original.captured)
        return made.trace

    @property
    def timings(self) -> dict[str, float]:
        return self.compilation.timings

    def __reduce__(self) -> Never:
        hint = "save a whole model with `dplc compile MODEL -o DIR`; compiling a function again gives the same kernels"
        raise DplcError("a compiled function cannot be pickled: it holds the function and its modules", hint=hint)

    def __repr__(self) -> str:
        kernels = ", ".join(kernel.name for kernel in self.compilation.cuda_kernels)
        return f"<dplc.Compiled for {self.device}: {kernels}>"


def compile(
    function: Function,
    example_inputs: Sequence[object],
    *,
    kwargs: Mapping[str, object] | None = None,
    device: str | None = None,
    rules: RuleSource = None,
    target: str | Target | None = None,
    settings: Settings | None = None,
    trace: bool = False,
    db: str | Path | bool | None = None,
    explore: bool = False,
    exact: bool = False,
    tf32: str = "auto",
    dynamic: object = None,
    rows: Wanted = None,
    calls: str = "missing",
) -> Compiled:
    """Compile a function or a module for the call `function(*example_inputs, **kwargs)`.

    Tensors among the arguments, alone or in tuples, lists and dicts, are inputs: of these shapes and dtypes. All else
    is fixed, and so is every tensor that is neither an argument nor a parameter or buffer of a module: a global, a
    variable around the function, an attribute that the function does not change. (A call raises an error after one of
    these was mutated.) Parameters and buffers are read at every call.

    It is inference: results carry no gradients. Modules are compiled in the mode that they are in. PyTorch draws random
    numbers at each call, in the order of eager, so that a seed gives the same numbers. Arguments, parameters, buffers
    and attributes that the function changes in place, as a BatchNorm in training does, and tensors that it assigns to
    attributes have their new values after a call. Any number of threads may compile; one compiles at a time.

    Args:
        function: a function or a module.
        example_inputs: the positional arguments of the call.
        kwargs: the named arguments of the call.
        device: cuda, cuda:N, emulator or reference; by default that of the inputs and the module: their GPU, or the
            emulator for the CPU. On cuda, tensors on the CPU are moved, weights once (`Compiled.notes` says so).
        rules: a rule file or folder, several, or a `dplc.Rules`; in addition to the built-in ones.
        target: an architecture (`sm_90a`), a device name or a device file (.toml).
        settings: {rule: {parameter: value}}.
        trace: keep the trace now; else `.trace` compiles once more when it is first read.
        db: the tuning store whose schedules are replayed (None: the user's own; False: none). `Compiled.remembered` and
            the log `dplc` report its decisions; for rows the log, when they are compiled.
        explore: search spellings and cuts together, and use the best candidate.
        exact: no rule that reorders floating point (@approx) fires, on any level, and nothing is in TF32.
        tf32: whether tensor cores multiply float32 in TF32: on, off, or auto, as torch's settings are now
            (`torch.backends.cudnn.conv.fp32_precision`, `torch.backends.cuda.matmul.fp32_precision`). They are about
            GPUs: for tensors on the CPU and no target, auto is off.
        dynamic: dimensions that are known at a call, {input: {dimension: dplc.Dim("s", 1, 4096, hint=512)}}, or
            torch.export's `dynamic_shapes`: one program for every length of the range.
        rows: parts of the range that are compiled separately when a call first needs them (the log `dplc` says so). By
            default those that the store has faster schedules for, and in addition the usual ones of one size, at most
            twelve; [dplc.Dim("s", 1, 64), ..] for your own choice, () for none.
        calls: which ops torch computes between kernels: missing, those that no rule lowers, or none, for which such an
            op is an error.

    Returns:
        The compiled function.

    Raises:
        UsageError: for an option without a meaning.
        DplcError: if the function cannot be compiled.
    """
    args, named = arguments(function, example_inputs, kwargs)
    ordinal, decisions = gpu_of(devices_of(function, (args, named))), list[str]()
    chosen, options = compile_options(
        device, rules, target, settings, ordinal, exact, tf32,
        trace=trace, db=db, explore=explore, tell=decisions.append, calls=calls,
    )  # fmt: skip
    watch = Stopwatch()
    with watch.stage("capture"):
        captured = capture(function, args, named, dynamic, aliases=True)
    compilation = options.compile(captured, watch)
    tell_unheard(compilation.unheard)
    remembered = logged(decisions, compilation)
    parts = rows_of(compilation, True if rows is None else rows or ())
    original = Original(function, captured, compilation.captured)
    return Compiled(compilation, chosen, original, remembered, parts)


def compile_options(
    device: str | None,
    rules: RuleSource,
    target: str | Target | None,
    settings: Settings | None,
    ordinal: int | None = None,
    exact: bool = False,
    tf32: str = "auto",
    *,
    trace: bool = False,
    db: str | Path | bool | None = None,
    explore: bool = False,
    tell: Callable[[str], None] = lambda line: None,
    calls: str = "none",
) -> tuple[str, Compiler]:
    """Return the device and the compiler of the arguments of `compile`.

    Args:
        ordinal: the GPU that holds the arguments.
        tell: receives a line for each fusion plan that the tuning store decides.
        calls: as in `compile`.

    Returns:
        The name of the device, and the compiler with its store and its search.

    Raises:
        UsageError, DplcError: for an option without a meaning.
    """
    if isinstance(rules, Rules):
        rules = rules.rules
    check_kinds(
        device=device, rules=rules, target=target, settings=settings, exact=exact, tf32=tf32, trace=trace, db=db,
        explore=explore, calls=calls,
    )  # fmt: skip
    chosen = choose_device(device) if device is not None else "emulator" if ordinal is None else "cuda"
    rules = (rules,) if isinstance(rules, (str, Path)) else rules
    if tf32 == "auto" and target is None and not chosen.startswith("cuda"):
        tf32 = AS_CPU
    made = compiler_with(target_for(chosen, target, ordinal), rules, settings, exact, tf32=tf32)
    schedules = stored_schedules(made.tools, Path(db) if isinstance(db, (str, Path)) else None, db is not False)
    from .explore.explore import best, remembered  # forty modules, for which an opened page does not wait

    search = remembered(best if explore else None, tell)
    made = replace(made, schedules=schedules, explore=search, calls=calls)
    return chosen, replace(made, trace=Trace() if trace else None)


def rows_of(whole: Compilation, rows: Wanted, then: Callable[[Compilation], Compilation] = lambda made: made) -> Rows:
    """Return the compiles for parts of a program's range. A row is compiled when a call first needs it.

    The log says which decisions of a row come from the tuning store.

    Args:
        whole: the compile of the whole range, whose compiler each row uses as well.
        rows: as in `compile`.
        then: a change of each compiled row.

    Returns:
        The rows with their dispatch.

    Raises:
        UsageError: for a row that is not part of the range.
    """
    compiler = whole.compiler
    schedules = compiler.schedules if isinstance(compiler.schedules, StoredSchedules) else None

    def compile_part(part: Capture) -> Compilation:
        from .explore.explore import remembered

        decisions = list[str]()
        trace = Trace() if compiler.trace is not None else None
        found = replace(compiler, trace=trace, explore=remembered(None, decisions.append)).compile(part)
        logged(decisions, found)
        return then(found)

    return Rows(whole, requested_rows(rows, whole, compile_part, schedules), compile_part)


def logged(fusing: Iterable[str], compilation: Compilation) -> tuple[str, ...]:
    """Return the decisions of a tuning store, a line each, and write them to the log.

    Args:
        fusing: the lines about the fusion plan.
        compilation: its kernels' schedules give the other lines.

    Returns:
        All lines, in order.
    """
    lines = (*fusing, *(origin.line for origin in compilation.origins if origin.line))
    for line in lines:
        LOG.info(line)
    return lines


def choose_device(device: str | None) -> str:
    """Return the named device, or the default: the GPU if torch sees one and PyCUDA is there, else the emulator.

    Args:
        device: cuda, cuda:N, emulator or reference; None for the default.

    Returns:
        The name of the device.

    Raises:
        UsageError: for any other name.
    """
    if device is None:
        return "cuda" if has_gpu() else "emulator"
    if device not in DEVICES and not re.fullmatch(r"cuda:\d{1,4}", device):
        raise UsageError(
            f"there is no device `{device}`",
            notes=(f"devices are {', '.join(DEVICES)}, and cuda:N for one of several GPUs",),
            hint=did_you_mean(device, DEVICES),
        )
    return device


def target_for(device: str, wanted: str | Target | None = None, ordinal: int | None = None) -> Target:
    """Return the target of a compile: the wanted one, else that of the GPU for programs that run on it, else sm_80.

    Args:
        device: the device that will run the program.
        wanted: an architecture, a device name or a device file (.toml), or a target.
        ordinal: the GPU that holds the arguments.

    Returns:
        The target.

    Raises:
        UsageError: for an unknown name.
    """
    if isinstance(wanted, Target):
        return wanted
    if wanted is not None or not device.startswith("cuda") or not has_gpu():
        return find_target(wanted)
    named = device.partition(":")[2]
    return target_of(torch.cuda.get_device_properties(int(named) if named else ordinal))


def has_gpu() -> bool:
    """Return whether torch sees a GPU and PyCUDA is there."""
    import importlib.util

    return torch.cuda.is_available() and importlib.util.find_spec("pycuda") is not None


def _shaped(tensor: Tensor, shape: tuple[int, ...], plain: list[int]) -> Tensor:
    """Return a tensor as kernels know it: as a rule without dimensions of size 1, a scalar with one element."""
    alike = tensor.shape != shape and [n for n in tensor.shape if n != 1] == plain
    return tensor.detach().reshape(shape) if alike else tensor.detach()
