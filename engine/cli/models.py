"""Compile and run whole models and artefacts."""

from __future__ import annotations

import contextlib
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ...codegen.arrays import check_room
from ...codegen.launch import CudaExecutor, Executor
from ...codegen.target import Target
from ...ir.diagnostic import DplcError, UsageError
from ...ir.expr import Size
from ...ir.interp import torch as meaning
from ...ir.text.sizes import refusal
from ..api import choose_device
from ..capture.capture import Capture
from ..capture.dynamic_shapes import Dim
from ..capture.text import capture_text
from ..models import artefact, sources
from ..models.artefact import Artefact, compile_text
from ..models.benching import compare, emulator
from ..models.compiling import (
    TOKENS,
    CompiledModel,
    ModelShape,
    called,
    capture_results,
    compile_model,
    drawn,
    extents,
    vocabulary,
    with_rows,
)
from ..models.generating import (
    Generation,
    Generator,
    Stream,
    Tokenizer,
    all_lengths,
    check_length,
    compile_generation,
    stops_of,
)
from ..models.python_api import Model
from ..models.sources import ModelSource, Tell, build, find
from ..run.inputs import sizes_of_call
from .options import Flags, Subject
from .output import bars, print_json, print_note, print_remark, write
from .programs import (
    bindings,
    compile_options,
    each_binding,
    float_named,
    numbers_of,
    print_schedules,
    print_stage,
    print_trace,
    range_written,
    stage_named,
    tokens_of,
    tools_for,
)
from .run import check_arrays_path, outputs_told, save_outputs

if TYPE_CHECKING:
    from ..torch_backend import Shares


def source_of(model: str) -> ModelSource:
    """Read the configuration of a model. Print a remark if it comes from a model id. Raises DplcError."""
    return find(model, print_remark)


def shape_of(flags: Flags) -> ModelShape:
    """Read the shape from `--seq-len`, `--batch`, `--layers` and `--dtype`. Raises UsageError."""
    if flags.length == "0":
        raise UsageError("--seq-len 0: a sequence has at least one token")
    length, batch = extent("--seq-len", flags.length, "s"), extent("--batch", flags.batch, "b")
    return ModelShape(length, batch, float_named(flags.dtype) or "f32", flags.layers)


def extent(option: str, text: str, name: str) -> int | Dim:
    """Read `32`, or a length that is known only at a call: `1..4096`, or `1..4096:512` with 512 as its example value.

    name: the name of the size. Raises UsageError.
    """
    named, low, high, hint = range_written(text) or (None, 0, None, None)
    if low < 1 or named or (hint and not high):
        raise UsageError(f"{option} {text}: write 32, or 1..4096, or 1..4096:512 for 512 as a rule")
    if high is None:
        return low
    dim = Dim(name, low, high, hint=hint)
    return replace(dim, hint=dim.size().hint)


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
    lows = [size.low, *(end + 1 for end in ends)]
    return [Dim(size.name, low, high) for low, high in zip(lows, ends, strict=False)]


def compiled_model(model: str, flags: Flags, tell: Tell) -> CompiledModel:
    """Compile a model. Raises DplcError if the model is missing or cannot be compiled."""
    shape = shape_of(flags)
    made = compile_model(source_of(model), shape, compile_options(flags), rows_of(flags, shape.length), tell)
    print_schedules(made.compilation)
    return made


def captured_model(model: str, flags: Flags) -> Capture:
    """Capture a model as a program without weights. Raises DplcError if it is missing or cannot be captured."""
    shape = shape_of(flags)
    return capture_results(build(source_of(model), shape.dtype, shape.layers), shape.length, shape.batch).captured


def compile_artefact(subject: Subject, flags: Flags) -> None:
    """Run `dplc compile MODEL`, or `-c TEXT -o DIR`. Check the weights of `--weights` against the model."""
    stage, out = None if flags.ir is None else stage_named(flags.ir), flags.out
    with bars() as tell:
        if subject.kind == "model":
            compiled = compiled_model(subject.name, flags, tell)
        else:
            compiled = _compiled_text(flags, tell)
        if flags.weights is not None:
            sources.check(flags.weights, compiled.weights)
        if out is not None:
            artefact.save(compiled, out, flags.cubins, flags.weights, tell)
    print_row_schedules(compiled)
    if flags.as_json:
        print_json(_record(compiled, stage, out))
        return
    print_trace(compiled.compilation, flags)
    if stage is not None:
        print_stage(compiled.compilation, stage)
    else:
        write(report(compiled) + (f"artefact: {out}\n" if out is not None else ""))


def _compiled_text(flags: Flags, tell: Tell) -> CompiledModel:
    def capture() -> Capture:
        with contextlib.redirect_stdout(sys.stderr):  # ours is for results
            return capture_text(flags.text, flags.seed, float_named(flags.dtype), values=False)

    made_with = compile_options(flags)
    compiled = compile_text(flags.text, capture, made_with, tell)
    length = next(iter(compiled.sizes.values())) if len(compiled.sizes) == 1 else None
    compiled = with_rows(compiled, made_with, rows_of(flags, length))
    print_schedules(compiled.compilation)
    return compiled


def print_row_schedules(compiled: CompiledModel) -> None:
    """Print for each compiled row how many of its schedules the store decided."""
    for row, made in compiled.rows.made.items() if compiled.rows is not None else ():
        count = sum(bool(origin.line) for origin in made.origins)
        if count:
            told = " and ".join(f"`{dim.name}` {dim.range}" for dim in row)
            print_remark(f"row {told}: {count} of {len(made.origins)} schedules are from the store")


def report(compiled: CompiledModel) -> str:
    """Return the figures of a compile as text."""
    shape, target, found = compiled.shape, compiled.compilation.target, compiled.figures
    whole = bool(compiled.source.config)
    what = f"{layers_told(shape)}, {compiled.told}, {shape.dtype}" if whole else compiled.told
    blocks = f", at most {found.per_block} in a block" if whole else ""
    times = ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in found.seconds.items())
    lines = [
        f"{compiled.source.name}: {what}, for {target.name} ({target.arch})",
        f"  launches       {found.launches}{blocks}",
        f"  kernels        {found.kernels} distinct, {found.cuda_lines} lines of CUDA",
        f"  weights        {size(found.weight_bytes)}",
        f"  peak memory    {size(found.planned_bytes)} planned; eager at least {size(found.eager_bytes)}"
        " (computed; both beside weights, inputs and outputs)",
        f"  seconds        {times}",
        f"  this process   held at most {size(found.rss_bytes)}",
    ]
    return "\n".join(lines) + "\n"


def layers_told(shape: ModelShape) -> str:
    """Return the layers of a shape as text."""
    return "all layers" if shape.layers is None else f"{shape.layers} layer{'s' * (shape.layers > 1)}"


def size(count: int) -> str:
    """Return a number of bytes as text with a unit."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} bytes"


def _record(compiled: CompiledModel, stage: str | None, out: Path | None) -> dict[str, Any]:
    import msgspec

    record: dict[str, Any] = {
        "model": compiled.source.name,
        "target": compiled.compilation.target.arch,
        "figures": msgspec.to_builtins(compiled.figures),
        "timings": compiled.compilation.timings,
        "kernels": [kernel.name for kernel in compiled.compilation.cuda_kernels],
    }
    if stage is not None:
        record["ir"] = compiled.compilation.ir(stage)
    if out is not None:
        record["artefact"] = str(out)
    return record


# ---- run an artefact


Run = Callable[[dict[str, Any]], list[Any]]


def run_artefact(subject: Subject, flags: Flags) -> None:
    """Run `dplc run DIR`, at each requested length."""
    device = choose_device(flags.device)
    check_arrays_path(flags.out)
    with bars() as tell:
        tell("reading the artefact", 0, 1)
        found = artefact.load(subject.path, flags.trust_edited_cuda)
        asked = _bindings(found, flags)
        constants, whose = _weights(found, flags, tell)
    runner = _runner(found, device, constants)
    for binding in each_binding(asked):
        _run_at(found, binding, flags, device, runner, {**found.constants, **constants}, whose)


def _run_at(
    found: Artefact, binding: dict[str, int], flags: Flags, device: str, runner: Run, constants: dict[str, Any],
    whose: str,
) -> None:  # fmt: skip
    """Run an artefact once and compare with float64. Raises DplcError if the result is wrong."""
    tokens = _tokens(found, flags, binding)
    with bars() as tell:
        start = time.perf_counter()
        tell(f"running on {device}", 0, 1)
        results = runner(tokens)
        elapsed = time.perf_counter() - start
        tell("comparing with float64", 0, 1)
        compared = compare(found, {**constants, **tokens}, results, binding)
    if flags.out is not None:
        save_outputs(flags.out, results)
    if flags.as_json:
        sizes = {"sizes": binding} if binding else {}
        print_json({"model": found.plan.model, "device": device, "seconds": elapsed, **compared.record(), **sizes})
    else:
        took = f"device {device}: {elapsed * 1e3:.1f} ms, building and placing weights included"
        write("\n".join((f"{found.plan.model}: {whose}", *outputs_told(results), took, compared.line())) + "\n")
    if not compared.ok:
        raise DplcError(f"the result is wrong: {compared.line()}")


def _bindings(found: Artefact, flags: Flags) -> list[dict[str, int]]:
    """Return the lengths of the runs.

    They come from `--size`, or from `--ids` if these are the tokens of one sequence, else from the example values.
    """
    written = list(flags.sizes or ())
    if found.sizes and flags.ids is not None and not written and found.plan.config:
        batch, length = found.plan.batch, found.plan.length
        count = len(flags.ids.replace(",", " ").split())
        numbers = [(batch, 1), (length, count // (batch if isinstance(batch, int) else 1))]
        written = [f"{name}={number}" for name, number in numbers if isinstance(name, str)]
    asked = bindings(found.sizes, str(found.folder), written)
    for binding in asked:
        for name, number in binding.items():
            if why := refusal(found.sizes[name], number):
                raise DplcError(f"`{name}` is {number}, {why}", hint="compile it for a wider range")
    single = flags.out is not None or flags.as_json or flags.ids is not None
    return list(each_binding(asked, "--out, --json, --ids are of one run")) if single else asked


def _tokens(found: Artefact, flags: Flags, binding: dict[str, int]) -> dict[str, Any]:
    """Return the inputs: `--ids`, else random tokens.

    Raises UsageError for a wrong number of tokens, or for other inputs.
    """
    inputs, ids = {buffer.name for buffer in found.plan.inputs}, flags.ids
    if ids is None and found.plan.examples:
        return artefact.drawn(found.plan.examples, binding, flags.seed)
    if ids is None:
        graph = found.torch_graph(binding)
        kinds = {p.name: (p.dtype, p.shape) for p in graph.ins if p.name in inputs}
        return drawn(kinds, found.plan.config, flags.seed)
    if inputs != {TOKENS}:
        raise UsageError(
            f"--ids: {found.folder} takes {', '.join(sorted(inputs))}", hint="without --ids they are drawn"
        )
    tokens, shape = tokens_of(ids, vocabulary(found.plan.config)), found.plan.tokens_at(binding)
    if len(tokens) != shape[0] * shape[1]:
        raise UsageError(f"--ids has {len(tokens)} tokens; {found.folder} was compiled for {shape[0] * shape[1]}")
    return {TOKENS: torch.tensor(tokens).reshape(shape)}


def _weights(found: Artefact, flags: Flags, tell: Tell) -> tuple[dict[str, Any], str]:
    """Return the weights of the program, and a text that names their source."""
    if not found.weights:
        return {}, "its weights are its own"
    folder = flags.weights or (Path(found.plan.weights_from) if found.plan.weights_from else None)
    if folder is None:
        print_note("note: no weights were given (--weights DIR): they are made up")
        return sources.make(found.weights, flags.seed), f"made-up weights, seed {flags.seed}"
    return sources.load(folder, found.weights, tell), f"weights of {folder}"


def _runner(found: Artefact, device: str, constants: dict[str, Any]) -> Run:
    """Return a function from inputs to results. constants: the weights, by name."""
    if device == "reference":
        return lambda tokens: _reference(found, {**found.constants, **constants, **tokens})
    model = Model(found, device)
    model.place(constants)
    return lambda tokens: [x.cpu() for x in model.run(tokens)]


def _reference(found: Artefact, tensors: dict[str, Any]) -> list[Any]:
    graph = found.torch_graph(sizes_of_call(found.inputs_with_sizes, tensors))
    return list(meaning.run(graph, tensors))


# ---- generate


ROUNDING = 16  # the room that is taken where no --max-length says it: a multiple, which kernels like


@dataclass
class GeneratedText:
    """Generated tokens. seconds: of the prompt with its first token, and of all tokens after it."""

    tokens: list[int] = field(default_factory=list)
    text: str = ""
    seconds: tuple[float, float] = (0.0, 0.0)
    interrupted: bool = False

    @property
    def rate(self) -> float | None:
        """Measured tokens per second after the first token, None for a single token."""
        later = len(self.tokens) - 1
        return later / self.seconds[1] if later > 0 and self.seconds[1] > 0 else None


def generate(subject: Subject, flags: Flags) -> None:
    """Run `dplc generate MODEL`. Raises DplcError, and KeyboardInterrupt once the generated text is printed."""
    device, model = choose_device(flags.device), subject.name
    if device == "reference":
        raise UsageError("--device reference: text is generated on cuda and on the emulator")
    if (flags.prompt is None) == (flags.ids is None):
        raise UsageError("a prompt is needed: --prompt TEXT, or --ids 1,2,3")
    tokenizer = None if flags.prompt is None else Tokenizer(model)
    source = source_of(model)
    if tokenizer is not None:
        tokens = tokenizer.tokens(flags.prompt or "")
    else:
        tokens = tokens_of(flags.ids or "", int(source.config.get("vocab_size", 0)) or None)
    maximum = flags.maximum or _room(len(tokens) + flags.count, source)
    check_length(len(tokens), maximum)
    with bars() as tell:
        generation, generator = _made(source, len(tokens), maximum, flags, device, tell)
    if flags.weights is None:
        print_note(f"note: no weights were given (--weights DIR): they are made up, seed {flags.seed}")
    if flags.count > maximum - len(tokens):
        print_note(f"note: there is room for {maximum - len(tokens)} new tokens (--max-length {maximum})")
    stops = stops_of(model)
    found = _told(
        generator, tokens, flags.count, generation.stops if stops is None else stops, tokenizer, not flags.as_json
    )
    if flags.as_json:
        print_json(_generation_record(source, device, tokens, generation, found, tokenizer is not None))
    else:
        print_note(_figures(device, generation, found, len(tokens)))
    if found.interrupted:
        raise KeyboardInterrupt


def _room(needed: int, source: ModelSource) -> int:
    """Return the cache length for prompt and text: rounded up, at most the number of positions of the model."""
    positions, rounded = source.config.get("max_position_embeddings"), -(-needed // ROUNDING) * ROUNDING
    return min(rounded, positions) if isinstance(positions, int) else rounded


def _made(
    source: ModelSource, length: int, maximum: int, flags: Flags, device: str, tell: Tell
) -> tuple[Generation, Generator]:
    """Compile a model and load it with its weights on the device.

    length: number of tokens of the prompt; maximum: of prompt and text.
    """
    made_with = compile_options(flags, device)
    shape, every = shape_of(replace(flags, length="1")), all_lengths(maximum)
    generation = compile_generation(source, every, maximum, shape, made_with, chunk=flags.chunk, tell=tell)
    for call in (generation.prompt, generation.token):
        print_schedules(call.compilation)
    if flags.weights is None:
        values = sources.make(generation.weights, flags.seed)
    else:
        values = sources.load(flags.weights, generation.weights, tell)
    runner: Executor = CudaExecutor() if device == "cuda" else emulator()
    tell(f"placing weights on {device}", 0, 1)
    return generation, Generator(generation, runner, values, "cuda" if device == "cuda" else "cpu", length)


def _told(
    generator: Generator, prompt: Sequence[int], count: int, stops: frozenset[int], tokenizer: Tokenizer | None,
    aloud: bool,
) -> GeneratedText:  # fmt: skip
    """Generate tokens, and print each as soon as it is known if `aloud`. An interrupt ends the text."""
    found, stream = GeneratedText(), Stream(tokenizer) if tokenizer is not None else None
    start = first = time.perf_counter()
    try:
        for token in generator.tokens(prompt, count, stops):
            now = time.perf_counter()
            first = first if found.tokens else now
            found.tokens.append(token)
            found.seconds = first - start, now - first
            last = token in stops or len(found.tokens) == count
            new = stream.more(token, last) if stream is not None else f"{' ' * (len(found.tokens) > 1)}{token}"
            found.text += new
            if aloud:
                write(new)
    except KeyboardInterrupt:
        found.interrupted = True
    if aloud:
        write("\n")
    return found


def _figures(device: str, generation: Generation, found: GeneratedText, length: int) -> str:
    """Return the figures of a run as text."""
    memory, on = generation.memory, " (the emulator: no GPU's speed)" if device == "emulator" else ""
    rate = f"; then {found.rate:.3g} tokens/s" if found.rate is not None else ""
    in_place = "written in place" if not memory.copied else f"{size(memory.copied)} of it copied by every token"
    lines = [
        f"{len(found.tokens)} tokens after {length}, {device}: first after {found.seconds[0]:.3g} s{rate},"
        f" measured{on}",
        f"peak memory {size(memory.peak)}, planned: weights {size(memory.weights)}, cache of {generation.maximum}"
        f" tokens {size(memory.cache)} ({in_place}), temporaries {size(memory.prompt)} for the"
        f" longest {'prompt' if generation.chunk is None else 'piece'}, {size(memory.token)} for a token",
    ]
    return "\n".join(lines)


def _generation_record(
    source: ModelSource, device: str, prompt: Sequence[int], generation: Generation, found: GeneratedText, words: bool
) -> dict[str, Any]:
    memory = generation.memory
    return {
        "model": source.name,
        "device": device,
        "prompt": list(prompt),
        "tokens": found.tokens,
        "text": found.text if words else None,
        "max_length": generation.maximum,
        "chunk": generation.chunk,
        "first_seconds": found.seconds[0],
        "tokens_per_second": found.rate,
        "interrupted": found.interrupted,
        "launches": {"prompt": generation.prompt.figures.launches, "token": generation.token.figures.launches},
        "bytes": {**asdict(memory), "peak": memory.peak},
    }


# ---- doctor --model


def report_of_model(subject: Subject, flags: Flags) -> None:
    """Print the shares of a model. Raises DplcError if the model is missing or does not fit into memory."""
    source, shape, (_, machine) = source_of(subject.name), shape_of(flags), tools_for(flags)
    found = shares_of(source, shape, machine)
    if flags.as_json:
        print_json({"model": source.name, "target": machine.arch, **record(found)})
        return
    told = f"{layers_told(shape)}, {shape.told}, {shape.dtype}, for {machine.name} ({machine.arch})"
    write(f"{source.name}: {told}\n{found}\n")


def shares_of(source: ModelSource, shape: ModelShape, machine: Target) -> Shares:
    """Compile a call of the model with its defaults, caches included, and count the share of dplc. Nothing runs.

    The weights are zeros, because PyTorch computes the values that graph parts pass to each other. Raises DplcError.
    """
    from ..torch_backend import Shares, backend

    length, batch = shape.numbers
    model = build(source, shape.dtype, shape.layers)
    kinds = {
        name: ("i64" if name == TOKENS else shape.dtype, tuple(map(int, numbers)))  # type: ignore[arg-type]
        for name, numbers in extents(model, length, batch).items()
    }
    allocate(model)
    shares = Shares(runs=False)
    torch._dynamo.reset()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what they say is in the report
        chosen = {"target": machine.arch, "shares": shares}
        torch.compile(called(model), backend=backend, options=chosen)(**drawn(kinds, source.config))
    return shares


def allocate(model: Any) -> None:
    """Fill everything on the meta device with zeros, and keep tied weights tied.

    Raises DplcError without enough memory.
    """
    tables = [table for module in model.modules() for table in (module._parameters, module._buffers)]
    empty = {id(t): t for table in tables for t in table.values() if t is not None and t.is_meta}
    check_room(sum(t.numel() * t.element_size() for t in empty.values()), "the weights (--layers 1 takes fewer)")
    made = {
        key: torch.nn.Parameter(zeros, requires_grad=False) if isinstance(t, torch.nn.Parameter) else zeros
        for key, t in empty.items()
        for zeros in (torch.zeros(t.shape, dtype=t.dtype),)
    }
    for table in tables:
        table.update({name: made[id(t)] for name, t in table.items() if id(t) in made})


def record(shares: Shares) -> dict[str, Any]:
    return {
        "ops": shares.all_ops,
        "compiled_ops": shares.ops,
        "predicted_us": shares.all_seconds * 1e6,
        "compiled_us": shares.seconds * 1e6,
        "eager": [asdict(cause) for cause in shares.eager.values()],
    }
