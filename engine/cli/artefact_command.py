"""`dplc run DIR`: a compiled model, run and compared with float64, at each length that is asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ...codegen.launch import CudaExecutor, Executor
from ...ir.diagnostic import DplcError, UsageError
from ...ir.text.sizes import refusal
from ..api import choose_device
from ..models import artefact, texts, weights
from ..models.artefact import Artefact
from ..models.checking import compare, emulator
from ..models.inputs import TOKENS, drawn, vocabulary
from ..models.running import ModelRunner
from ..models.serving import ServedModel
from ..models.weights import Tell
from ..run.inputs import sizes_of_call
from .bindings import alone, bindings, told
from .commands import save_outputs
from .show import bars, print_json, print_note, write

Run = Callable[[dict[str, Any]], list[Any]]


@dataclass(frozen=True)
class RunFlags:
    """What `dplc run DIR` is given. weights: their folder, else that of the compile, else weights are made up; ids: the
    tokens, else drawn by `seed`; sizes: of `--size`; trust: take CUDA that dplc did not print."""

    weights: Path | None = None
    ids: str | None = None
    device: str | None = None
    seed: int = 0
    out: Path | None = None
    as_json: bool = False
    sizes: Sequence[str] | None = None
    trust: bool = False


def run_command(folder: Path, given: RunFlags) -> None:
    """`dplc run DIR`, at each length that is asked for."""
    device, out = choose_device(given.device), given.out
    if out is not None and out.suffix != ".npz":
        raise UsageError(f"--out {out}: the name must end in .npz")
    with bars() as tell:
        tell("reading the artefact", 0, 1)
        found = artefact.load(folder, given.trust)
        asked = _bindings(found, given)
        constants, whose = _weights(found, given.weights, given.seed, tell)
    runner = _runner(found, device, constants)
    for binding in asked:
        if len(asked) > 1:
            write(told(binding))
        _run_at(found, binding, given, device, runner, {**found.constants, **constants}, whose)


def _run_at(
    found: Artefact, binding: dict[str, int], given: RunFlags, device: str, runner: Run, constants: dict[str, Any],
    whose: str,
) -> None:  # fmt: skip
    """One run, compared with float64. Raises DplcError where it is wrong."""
    tokens = _tokens(found, given.ids, given.seed, binding)
    with bars() as tell:
        start = time.perf_counter()
        tell(f"running on {device}", 0, 1)
        results = runner(tokens)
        elapsed = time.perf_counter() - start
        tell("comparing with float64", 0, 1)
        compared = compare(found, {**constants, **tokens}, results, binding)
    if given.out is not None:
        save_outputs(given.out, results)
    if given.as_json:
        sizes = {"sizes": binding} if binding else {}
        print_json({"model": found.plan.model, "device": device, "seconds": elapsed, **compared.record(), **sizes})
    else:
        lines = [f"{found.plan.model}: {whose}"]
        lines += [
            f"out{place}: {str(v.dtype).removeprefix('torch.')}{list(v.shape)}" for place, v in enumerate(results)
        ]
        lines.append(f"device {device}: {elapsed * 1e3:.1f} ms, building and placing weights included")
        lines.append(compared.line())
        write("\n".join(lines) + "\n")
    if not compared.ok:
        raise DplcError(f"the result is wrong: {compared.line()}")


def _bindings(found: Artefact, given: RunFlags) -> list[dict[str, int]]:
    """The lengths of the runs: of `--size`; of `--ids`, where these are the tokens of one sequence; else hints."""
    written = list(given.sizes or ())
    if found.sizes and given.ids is not None and not written and found.plan.config:
        batch, length = found.extents
        count = len(given.ids.replace(",", " ").split())
        numbers = [(batch, 1), (length, count // (batch if isinstance(batch, int) else 1))]
        written = [f"{name}={number}" for name, number in numbers if isinstance(name, str)]
    asked = bindings(found.sizes, str(found.folder), written)
    for binding in asked:
        for name, number in binding.items():
            if why := refusal(found.sizes[name], number):
                raise DplcError(f"`{name}` is {number}, {why}", hint="compile it for a wider range")
    alone(asked, given.out is not None or given.as_json or given.ids is not None, "--out, --json, --ids are of one run")
    return asked


def _tokens(found: Artefact, ids: str | None, seed: int, binding: dict[str, int]) -> dict[str, Any]:
    """The inputs: `--ids`, else drawn. Raises UsageError for another number of tokens, or for anything else."""
    inputs = {buffer.name for buffer in found.plan.inputs}
    if ids is None and found.plan.examples:
        return texts.drawn(found.plan.examples, binding, seed)
    if ids is None:
        graph = found.torch_graph(binding)
        return drawn({p.name: (p.dtype, p.shape) for p in graph.ins if p.name in inputs}, found.plan.config, seed)
    if inputs != {TOKENS}:
        raise UsageError(
            f"--ids: {found.folder} takes {', '.join(sorted(inputs))}", hint="without --ids they are drawn"
        )
    (buffer,) = found.plan.inputs
    words, shape = vocabulary(found.plan.config), found.tokens_at(binding)
    parts = ids.replace(",", " ").split()
    if not all(part.isdigit() and int(part) < words for part in parts):
        raise UsageError(f"--ids {ids}: numbers from 0 to {words - 1} are expected")
    if len(parts) != shape[0] * shape[1]:
        raise UsageError(f"--ids has {len(parts)} tokens; {found.folder} was compiled for {shape[0] * shape[1]}")
    return {buffer.name: torch.tensor([int(part) for part in parts]).reshape(shape)}


def _weights(found: Artefact, given: Path | None, seed: int, tell: Tell) -> tuple[dict[str, Any], str]:
    """The weights of the program, and whose they are."""
    if not found.weights:
        return {}, "its weights are its own"
    folder = given or (Path(found.plan.weights_from) if found.plan.weights_from else None)
    if folder is None:
        print_note("note: no weights were given (--weights DIR): they are made up")
        return weights.make(found.weights, seed), f"made-up weights, seed {seed}"
    return weights.load(folder, found.weights, tell), f"weights of {folder}"


def _runner(found: Artefact, device: str, constants: dict[str, Any]) -> Run:
    """What runs a model on tokens, with its weights placed. constants: all that are not computed ahead."""
    if device == "reference":
        return lambda tokens: _reference(found, {**found.constants, **constants, **tokens})
    runner: Executor = CudaExecutor(images=found.images()) if device == "cuda" else emulator()
    where = "cuda" if device == "cuda" else "cpu"
    placed = {name: tensor.to(where) for name, tensor in constants.items()}
    made: ModelRunner | ServedModel
    if found.sizes:
        made = ServedModel(found, runner, placed, where)
    else:
        every = {name: tensor.to(where) for name, tensor in found.constants.items()}
        made = ModelRunner(found.program, found.outputs, runner, {**every, **placed})
    return lambda tokens: [x.cpu() for x in made.run({name: t.to(where) for name, t in tokens.items()})]


def _reference(found: Artefact, tensors: dict[str, Any]) -> list[Any]:
    from ...ir.interp import torch as meaning

    return list(meaning.run(found.torch_graph(sizes_of_call(found.inputs_with_sizes, tensors)), tensors))
