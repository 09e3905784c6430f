"""`dplc generate MODEL`: the text as it comes on standard output, figures on standard error."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ...codegen.launch import CudaExecutor, Executor
from ...ir.diagnostic import UsageError
from ..api import choose_device
from ..models import weights as weight_files
from ..models.checking import emulator
from ..models.generating import Generation, Generator, all_lengths, check_length, compile_generation
from ..models.sources import ModelSource
from ..models.tokenizing import Stream, Tokenizer, stops_of
from ..models.weights import Tell
from .compiling import compile_options, print_schedules
from .model_commands import shape_of, size, source_of
from .options import Flags
from .show import bars, print_json, print_note, write

ROUNDING = 16  # the room that is taken where no --max-length says it: a multiple, which kernels like


@dataclass(frozen=True)
class Prompt:
    """`--prompt` and `--ids`."""

    text: str | None
    ids: str | None

    def tokenizer(self, model: str) -> Tokenizer | None:
        """The model's tokenizer, where it is needed. Raises UsageError unless there is one prompt."""
        if (self.text is None) == (self.ids is None):
            raise UsageError("a prompt is needed: --prompt TEXT, or --ids 1,2,3")
        return None if self.text is None else Tokenizer(model)

    def tokens(self, tokenizer: Tokenizer | None, source: ModelSource) -> list[int]:
        """The prompt's tokens. Raises UsageError for anything else."""
        if tokenizer is not None:
            return tokenizer.tokens(self.text or "")
        words = int(source.config.get("vocab_size", 0)) or None
        parts = (self.ids or "").replace(",", " ").split()
        if not parts or not all(part.isdigit() and (words is None or int(part) < words) for part in parts):
            to = "up" if words is None else f"to {words - 1}"
            raise UsageError(f"--ids {self.ids}: numbers from 0 {to} are expected")
        return [int(part) for part in parts]


@dataclass(frozen=True)
class Room:
    """`--max-new-tokens`, `--max-length` and `--chunk`."""

    count: int
    maximum: int | None
    chunk: int | None = None

    def length(self, prompt: int, source: ModelSource) -> int:
        """The room for prompt and text: as asked, else what they need, rounded up as far as the model goes."""
        if self.maximum is not None:
            return self.maximum
        needed = prompt + self.count
        positions = source.config.get("max_position_embeddings")
        rounded = -(-needed // ROUNDING) * ROUNDING
        return min(rounded, positions) if isinstance(positions, int) else rounded


@dataclass
class GeneratedText:
    """What has come. seconds: of the prompt with its first token, and of all tokens after it."""

    tokens: list[int] = field(default_factory=list)
    text: str = ""
    seconds: tuple[float, float] = (0.0, 0.0)
    interrupted: bool = False

    @property
    def rate(self) -> float | None:
        """Tokens after the first a second, measured; None where there is none."""
        later = len(self.tokens) - 1
        return later / self.seconds[1] if later > 0 and self.seconds[1] > 0 else None


def generate(model: str, prompt: Prompt, flags: Flags, room: Room, folder: Path | None, device: str | None) -> None:
    """`dplc generate MODEL`. folder: of weights. Raises DplcError, and KeyboardInterrupt once all is printed."""
    chosen = choose_device(device)
    if chosen == "reference":
        raise UsageError("--device reference: text is generated on cuda and on the emulator")
    tokenizer, source = prompt.tokenizer(model), source_of(model)
    tokens = prompt.tokens(tokenizer, source)
    maximum = room.length(len(tokens), source)
    check_length(len(tokens), maximum)
    with bars() as tell:
        lengths = len(tokens), maximum, room.chunk
        generation, generator = _made(source, lengths, flags, folder, chosen, tell)
    if folder is None:
        print_note(f"note: no weights were given (--weights DIR): they are made up, seed {flags.seed}")
    if room.count > maximum - len(tokens):
        print_note(f"note: there is room for {maximum - len(tokens)} new tokens (--max-length {maximum})")
    stops = stops_of(model)
    found = _told(
        generator, tokens, room.count, generation.stops if stops is None else stops, tokenizer, not flags.as_json
    )
    if flags.as_json:
        print_json(_record(source, chosen, tokens, generation, found, tokenizer is not None))
    else:
        print_note(_figures(chosen, generation, found, len(tokens)))
    if found.interrupted:
        raise KeyboardInterrupt


def _made(
    source: ModelSource, lengths: tuple[int, int, int | None], flags: Flags, folder: Path | None, device: str,
    tell: Tell,
) -> tuple[Generation, Generator]:  # fmt: skip
    """The model compiled, and on the device with its weights. lengths: of the prompt, the greatest of all, and of what
    is read at once, None for all."""
    length, maximum, chunk = lengths
    made_with = compile_options(flags, device)
    shape, every = shape_of(flags), all_lengths(maximum)
    generation = compile_generation(source, every, maximum, shape, made_with, chunk=chunk, tell=tell)
    for call in (generation.prompt, generation.token):
        print_schedules(call.compilation)
    if folder is None:
        values = weight_files.make(generation.weights, flags.seed)
    else:
        values = weight_files.load(folder, generation.weights, tell)
    runner: Executor = CudaExecutor() if device == "cuda" else emulator()
    tell(f"placing weights on {device}", 0, 1)
    return generation, Generator(generation, runner, values, "cuda" if device == "cuda" else "cpu", length)


def _told(
    generator: Generator, prompt: Sequence[int], count: int, stops: frozenset[int], tokenizer: Tokenizer | None,
    aloud: bool,
) -> GeneratedText:  # fmt: skip
    """Generate, and say each token when it comes. An interrupt ends the text."""
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
    """The figures of a run, for people."""
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


def _record(
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
