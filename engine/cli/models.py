"""Compile and run whole models and artefacts."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from ...codegen.arrays import check_room
from ...codegen.judge import Judgement
from ...codegen.launch import executor, memory_of
from ...codegen.target import Target
from ...ir.diagnostic import DplcError, UsageError
from ...ir.expr import Size
from ...ir.interp import torch as meaning
from ...ir.text.sizes import refusal
from ..api import choose_device
from ..capture.dynamic_shapes import Dim
from ..capture.signature import Tensors
from ..models import artefact, sources
from ..models.artefact import Artefact, Model, compile_text, emulator
from ..models.benching import GATES, compare
from ..models.compiling import (
    TOKENS,
    CapturedModel,
    CompiledModel,
    ModelShape,
    called,
    capture_results,
    compile_model,
    drawn,
    inputs_of,
    vocabulary,
    with_rows,
)
from ..models.generating import (
    Generator,
    Sampling,
    Stream,
    Tokenizer,
    all_lengths,
    check_length,
    compile_generation,
    stops_of,
)
from ..models.sources import ModelSource, Tell, WeightRequest, build, find
from .options import Flags
from .output import bars, print_json, print_note, print_remark, print_text, write, write_lines
from .programs import (
    bindings,
    captured_text,
    compile_options,
    compiler_for,
    each_binding,
    numbers_of,
    outputs_told,
    print_schedules,
    print_trace,
    range_written,
    save_outputs,
    tokens_of,
)

if TYPE_CHECKING:
    from ..torch_backend import Shares


def source_of(flags: Flags) -> ModelSource:
    """Read the configuration of a model. Print a remark if it comes from a model id. Raises DplcError."""
    return find(flags.subject.name, print_remark)


def shape_of(flags: Flags) -> ModelShape:
    """Read the shape from `--seq-len`, `--batch`, `--layers` and `--dtype`. Raises UsageError."""
    if flags.length == "0":
        raise UsageError("--seq-len 0: a sequence has at least one token")
    length, batch = extent("--seq-len", flags.length, "s"), extent("--batch", flags.batch, "b")
    return ModelShape(length, batch, flags.dtype or "f32", flags.layers)


def extent(option: str, text: str, name: str) -> int | Dim:
    """Read `32`, or a length that is known only at a call: `1..4096`, or `1..4096:512` with 512 as its example value.

    name: the name of the size. Raises UsageError.
    """
    named, low, high, hint = range_written(text) or (None, 0, None, None)
    if low < 1 or named or (hint and not high):
        raise UsageError(f"{option} {text}: write 32, or 1..4096, or 1..4096:512 for 512 as a rule")
    if high is None:
        return low
    return Dim(name, low, high, hint=hint or high)


def rows_of(flags: Flags, size: Any) -> Any:
    """Read `--rows` (the lengths at which buckets end, or `none`) in the form that `dplc.compile` accepts.

    size: the length, a Dim or a Size; anything else if there is none, or several. Raises UsageError.
    """
    text = (flags.rows or "").strip()
    if not text or text == "none":
        return not text
    ends = numbers_of(text)
    if not ends or ends != sorted(set(ends)):
        raise UsageError(f"--rows {text}: write the numbers where rows end, 1,64,512, or none")
    if not isinstance(size, (Dim, Size)):
        raise UsageError("--rows goes with one range of lengths", hint="--seq-len 1..4096, or `dim(s, 1..4096)` in -c")
    return [Dim(size.name, last + 1, end) for last, end in pairwise([size.low - 1, *ends])]


def compiled_model(flags: Flags, tell: Tell) -> CompiledModel:
    """Compile a model. Raises DplcError if the model is missing or cannot be compiled."""
    shape = shape_of(flags)
    made = compile_model(source_of(flags), shape, compile_options(flags), rows_of(flags, shape.length), tell)
    print_schedules(made.compilation)
    return made


def captured_model(flags: Flags) -> tuple[ModelSource, CapturedModel]:
    """Capture a model as a program without weights. Raises DplcError if it is missing or cannot be captured."""
    source, shape = source_of(flags), shape_of(flags)
    return source, capture_results(build(source, shape.dtype, shape.layers), shape.length, shape.batch)


def compile_artefact(flags: Flags) -> None:
    """Run `dplc compile MODEL`, or `-c TEXT -o DIR`. Check the weights of `--weights` against the model."""
    stage, out = flags.ir, flags.out
    with bars() as tell:
        if flags.subject.kind == "model":
            compiled = compiled_model(flags, tell)
        else:
            compiler = compile_options(flags)
            compiled = compile_text(flags.text, lambda: captured_text(flags, values=False), compiler, tell)
            sizes = [*compiled.sizes.values()]
            compiled = with_rows(compiled, rows_of(flags, sizes[0] if len(sizes) == 1 else None))
            print_schedules(compiled.compilation)
        if flags.weights:
            sources.check(flags.weights, compiled.weights)
        if out:
            artefact.save(compiled, out, flags.cubins, flags.weights, tell)
    compilation = compiled.compilation
    for row, made in compiled.rows.made.items():
        if count := sum(bool(origin.line) for origin in made.origins):
            ranges = " and ".join(f"`{dim.name}` {dim.range}" for dim in row)
            print_remark(f"row {ranges}: {count} of {len(made.origins)} schedules are from the store")
    if flags.as_json:
        record = {
            "model": compiled.source.name, "target": compilation.target.arch, "figures": compiled.figures,
            "timings": compilation.timings, "kernels": [kernel.name for kernel in compilation.cuda_kernels],
        }  # fmt: skip
        record |= {"ir": compilation.ir(stage)} if stage else {}
        print_json(record | ({"artefact": str(out)} if out else {}))
        return
    print_trace(compilation, flags)
    if stage:
        print_text(compilation.ir(stage), stage)
    else:
        write_lines(*report(compiled), *([f"artefact: {out}"] if out else ()))


def report(compiled: CompiledModel) -> list[str]:
    """Return the figures of a compile as lines of text."""
    target, found, what, blocks = compiled.compilation.target, compiled.figures, compiled.described, ""
    if compiled.source.config:
        what = f"{layers_told(compiled.shape)}, {what}, {compiled.shape.dtype}"
        blocks = f", at most {found.per_block} in a block"
    return [
        f"{compiled.source.name}: {what}, for {target.name} ({target.arch})",
        f"  launches       {found.launches}{blocks}",
        f"  kernels        {found.kernels} distinct, {found.cuda_lines} lines of CUDA",
        f"  weights        {size(found.weight_bytes)}",
        f"  peak memory    {size(found.planned_bytes)} planned, beside weights, inputs and outputs",
        f"  seconds        {', '.join(f'{stage} {seconds:.2f}' for stage, seconds in found.seconds.items())}",
        f"  this process   held at most {size(found.rss_bytes)}",
    ]


def layers_told(shape: ModelShape) -> str:
    """Return the layers of a shape as text."""
    return "all layers" if shape.layers is None else f"{shape.layers} layer{'s' * (shape.layers > 1)}"


def size(count: int) -> str:
    """Return a number of bytes as text with a unit."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} bytes"


# ---- run an artefact


def run_artefact(flags: Flags) -> None:
    """Run `dplc run DIR` at each requested length, and compare with float64. Raises DplcError for a wrong result."""
    device = choose_device(flags.device)
    with bars("reading the artefact") as tell:
        found = artefact.load(flags.subject.path, flags.trust_edited_cuda)
        asked = _bindings(found, flags)
        folder = flags.weights or (Path(found.plan.weights_from) if found.plan.weights_from else None)
        constants, whose = _weights(found.weights, folder, flags.seed, tell)
    model = Model(found, device)
    if device != "reference":
        model.place(constants)
    for binding in each_binding(asked):
        inputs = _inputs(found, flags, binding)
        tensors = {**found.constants, **constants, **inputs}
        with bars(f"running on {device}") as tell:
            start = perf_counter()
            if device == "reference":
                results = list(meaning.run(found.torch_graph(binding), tensors))
            else:
                results = [result.cpu() for result in model.run(inputs)]
            elapsed = perf_counter() - start
            tell("comparing with float64", 0, 1)
            judged = compare(found, tensors, results, binding)
        ok, error, line = True, None, f"not compared with float64: {judged}"
        if isinstance(judged, Judgement):
            ok, error, gate = judged.ok, judged.relative, GATES[found.plan.dtype]
            line = f"against float64: max|error| over max|reference| {error:.2e}, gate {gate:.0e}: {judged.verdict}"
        if flags.out:
            save_outputs(flags.out, results)
        if flags.as_json:
            record = {
                "model": found.plan.model, "device": device, "seconds": elapsed, "ok": ok, "max_rel_err": error,
                "compared": error is not None,
            }  # fmt: skip
            print_json(record | ({"sizes": binding} if binding else {}))
        else:
            took = f"device {device}: {elapsed * 1e3:.1f} ms, building and placing weights included"
            write_lines(f"{found.plan.model}: {whose}", *outputs_told(results), took, line)
        if not ok:
            raise DplcError(f"the result is wrong: {line}")


def _bindings(found: Artefact, flags: Flags) -> list[dict[str, int]]:
    """Return the lengths of the runs.

    They come from `--size`, or from `--ids` if these are the tokens of one sequence, else from the example values.
    """
    plan, ids, written = found.plan, flags.ids, flags.sizes
    if ids is not None and not written and plan.config:
        rows = plan.batch if isinstance(plan.batch, int) else 1
        numbers = {plan.batch: 1, plan.length: len(ids.replace(",", " ").split()) // rows}
        written = [f"{name}={number}" for name, number in numbers.items() if name in found.sizes]
    single = "--out, --json, --ids are of one run" if flags.out or flags.as_json or ids is not None else ""
    asked = bindings(found.sizes, written, single)
    for binding in asked:
        for name, number in binding.items():
            if why := refusal(found.sizes[name], number):
                raise DplcError(f"`{name}` is {number}, {why}", hint="compile it for a wider range")
    return asked


def _inputs(found: Artefact, flags: Flags, binding: dict[str, int]) -> Tensors:
    """Return the inputs: `--ids`, else random ones.

    Raises UsageError for a wrong number of tokens, or for other inputs.
    """
    plan, folder = found.plan, found.folder
    inputs = {buffer.name for buffer in plan.inputs}
    if flags.ids is None and plan.examples:
        return artefact.drawn(plan.examples, binding, flags.seed)
    if flags.ids is None:
        return drawn((p for p in found.torch_graph(binding).ins if p.name in inputs), plan.config, flags.seed)
    if inputs != {TOKENS}:
        raise UsageError(f"--ids: {folder} takes {', '.join(sorted(inputs))}", hint="without --ids they are drawn")
    tokens, (batch, length) = tokens_of(flags.ids, vocabulary(plan.config)), plan.tokens_at(binding)
    if len(tokens) != batch * length:
        raise UsageError(f"--ids has {len(tokens)} tokens; {folder} was compiled for {batch * length}")
    return {TOKENS: torch.tensor(tokens).reshape(batch, length)}


def _weights(
    wanted: Mapping[str, WeightRequest], folder: Path | None, seed: int, tell: Tell
) -> tuple[Tensors, str]:  # fmt: skip
    """Return the weights in a folder, random ones without a folder, and a text that names their source."""
    if not wanted:
        return {}, "its weights are its own"
    if folder is not None:
        return sources.load(folder, wanted, tell), f"weights of {folder}"
    print_remark(f"no weights were given (--weights DIR): they are made up, seed {seed}")
    return sources.make(wanted, seed), f"made-up weights, seed {seed}"


# ---- generate


ROUNDING = 16  # a cache length without --max-length is a multiple of it, which suits kernels


def generate(flags: Flags) -> None:
    """Run `dplc generate MODEL`. Raises DplcError, and KeyboardInterrupt once the generated text is printed."""
    device, model = choose_device(flags.device), flags.subject.name
    if device == "reference":
        raise UsageError("--device reference: text is generated on cuda and on the emulator")
    if (flags.prompt is None) == (flags.ids is None):
        raise UsageError("a prompt is needed: --prompt TEXT, or --ids 1,2,3")
    sampling: Sampling | None = Sampling(
        flags.temperature, flags.top_k, flags.top_p, flags.min_p, flags.repetition_penalty, flags.draw_seed
    )
    sampling = None if sampling == Sampling(seed=flags.draw_seed) else sampling
    tokenizer = None if flags.prompt is None else Tokenizer(model)
    source = source_of(flags)
    words, positions = (source.config.get(field) for field in ("vocab_size", "max_position_embeddings"))
    prompt = tokenizer.tokens(flags.prompt or "") if tokenizer else tokens_of(flags.ids or "", words)
    maximum = flags.maximum
    if maximum is None:  # enough for prompt and text, at most the number of positions of the model
        maximum = math.ceil((len(prompt) + flags.count) / ROUNDING) * ROUNDING
        maximum = min(maximum, positions) if isinstance(positions, int) else maximum
    check_length(len(prompt), maximum)
    with bars() as tell:
        generation = compile_generation(
            source, all_lengths(maximum), maximum, shape_of(flags), compile_options(flags, device), chunk=flags.chunk,
            tell=tell, scored=sampling is not None,
        )  # fmt: skip
        calls = {"prompt": generation.prompt, "token": generation.token}
        for call in calls.values():
            print_schedules(call.compilation)
        values, _ = _weights(generation.weights, flags.weights, flags.seed, tell)
        runner = emulator() if device == "emulator" else executor(device)
        tell(f"placing weights on {device}", 0, 1)
        generator = Generator(generation, runner, values, memory_of(device), len(prompt))
    if flags.count > maximum - len(prompt):
        print_remark(f"there is room for {maximum - len(prompt)} new tokens (--max-length {maximum})")
    stops = generation.stops if (own := stops_of(model)) is None else own
    tokens, seconds, interrupted = _generated(generator, prompt, flags, stops, tokenizer, sampling)
    first, last = (seconds[0], seconds[-1]) if seconds else (0.0, 0.0)
    rate = (len(tokens) - 1) / (last - first) if last > first else None  # after the first
    memory, chunk = generation.memory, generation.chunk
    if flags.as_json:
        print_json(
            {
                "model": source.name, "device": device, "prompt": prompt, "tokens": tokens,
                "text": tokenizer and tokenizer.text(tokens), "max_length": generation.maximum, "chunk": chunk,
                "first_seconds": first, "tokens_per_second": rate, "interrupted": interrupted,
                "launches": {name: call.figures.launches for name, call in calls.items()},
                "bytes": {**asdict(memory), "peak": memory.peak},
            }
        )  # fmt: skip
    else:
        then = f"; then {rate:.3g} tokens/s" if rate is not None else ""
        emulated = " (the emulator: no GPU's speed)" if device == "emulator" else ""
        in_place = f"{size(memory.copied)} of it copied by every token" if memory.copied else "written in place"
        print_note(
            f"{len(tokens)} tokens after {len(prompt)}, {device}: first after {first:.3g} s{then}, measured{emulated}\n"
            f"peak memory {size(memory.peak)}, planned: weights {size(memory.weights)}, cache of {generation.maximum}"
            f" tokens {size(memory.cache)} ({in_place}), temporaries {size(memory.prompt)} for the"
            f" longest {'prompt' if chunk is None else 'piece'}, {size(memory.token)} for a token"
        )
    if interrupted:
        raise KeyboardInterrupt


def _generated(
    generator: Generator, prompt: list[int], flags: Flags, stops: frozenset[int], tokenizer: Tokenizer | None,
    sampling: Sampling | None,
) -> tuple[list[int], list[float], bool]:  # fmt: skip
    """Generate tokens, and print each as soon as it is known unless the result is JSON.

    Returns the tokens, the seconds until each, and whether the user interrupted it, which ends the text.
    """
    tokens, seconds, stream, interrupted = list[int](), list[float](), tokenizer and Stream(tokenizer), False
    start = perf_counter()
    try:
        for token in generator.tokens(prompt, flags.count, stops, sampling):
            seconds.append(perf_counter() - start)
            tokens.append(token)
            if not flags.as_json:
                last = token in stops or len(tokens) == flags.count
                write(stream.more(token, last) if stream else f"{' ' * (len(tokens) > 1)}{token}")
    except KeyboardInterrupt:
        interrupted = True
    if not flags.as_json:
        write("\n")
    return tokens, seconds, interrupted


# ---- doctor --model


def report_of_model(flags: Flags) -> None:
    """Print the shares of a model. Raises DplcError if the model is missing or does not fit into memory."""
    source, shape, machine = source_of(flags), shape_of(flags), compiler_for(flags).target
    found = shares_of(source, shape, machine)
    if flags.as_json:
        print_json(
            {
                "model": source.name, "target": machine.arch, "ops": found.all_ops, "compiled_ops": found.ops,
                "predicted_us": found.all_seconds * 1e6, "compiled_us": found.seconds * 1e6,
                "eager": [*found.eager.values()],
            }
        )  # fmt: skip
        return
    facts = f"{layers_told(shape)}, {shape.described}, {shape.dtype}, for {machine.name} ({machine.arch})"
    write(f"{source.name}: {facts}\n{found}\n")


def shares_of(source: ModelSource, shape: ModelShape, machine: Target) -> Shares:
    """Compile a call of the model with its defaults, caches included, and count the share of dplc. Nothing runs.

    The weights are zeros, because PyTorch computes the values that graph parts pass to each other. Raises DplcError.
    """
    from ..torch_backend import Shares, backend

    model = build(source, shape.dtype, shape.layers)
    given = drawn(inputs_of(model, *shape.numbers), source.config)
    allocate(model)
    shares = Shares(runs=False)
    torch._dynamo.reset()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what they say is in the report
        chosen = {"target": machine.arch, "shares": shares}
        torch.compile(called(model), backend=backend, options=chosen)(**given)
    return shares


def allocate(model: Any) -> None:
    """Fill everything on the meta device with zeros in place, so that tied weights stay tied.

    Raises DplcError without enough memory.
    """
    empty = [tensor for tensor in (*model.parameters(), *model.buffers()) if tensor.is_meta]
    check_room(sum(tensor.nbytes for tensor in empty), "the weights (--layers 1 takes fewer)")
    for tensor in empty:
        zeros = torch.zeros(tensor.shape, dtype=tensor.dtype)
        if isinstance(tensor, torch.nn.Parameter):
            zeros = torch.nn.Parameter(zeros, requires_grad=False)
        torch.utils.swap_tensors(tensor, zeros)
