"""Files of an artefact: the folder with its manifest, and the launch plan with its schema and checks."""

from __future__ import annotations

import ast
import contextlib
import ctypes
import functools
import hashlib
import itertools
import math
import operator
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from ...codegen.arrays import memory_bytes
from ...codegen.cuda import bound
from ...codegen.kernel import Buffer, CudaKernel, Program, with_arena
from ...codegen.target import target
from ...ir.diagnostic import DplcError, UsageError
from ...ir.dtypes import DtypeName
from ...ir.node import Node
from ...ir.program import Kernel
from ...ir.sizes import AT_HINTS, Binding, sizes_in
from ...ir.text.print_statements import print_expr
from ..capture.dynamic_shapes import Dim, Identifier
from ..store.store import FrozenRecord
from .compiling import vocabulary
from .sources import Elements, Line, WeightRequest

MANIFEST = "dplc-artefact.json"
FORMAT = 3
DAMAGED = "the artefact is damaged"
TOO_LARGE = "too large"  # instead of a digest
LARGEST_TEXT = 64 << 20  # bytes of a plan, a kernel, a dump: more is not a text of dplc
OURS = re.compile(
    r"figures\.json|(rows/\d{1,3}/)?(plan\.json|constants\.safetensors|ir/[a-z]+\.ir|cuda/\w+\.cu|cubin/\w+\.cubin)",
    re.ASCII,
)


class FileRecord(FrozenRecord, frozen=True):
    """Record of a file. size: bytes; sha256: of the content."""

    size: int
    sha256: str


class Manifest(FrozenRecord, frozen=True):
    """Record of a folder. files: {path in the folder, with `/`: its record}, every file but the manifest itself."""

    format: int
    dplc: str
    files: dict[str, FileRecord]


class _Format(msgspec.Struct):
    format: int


def seal(folder: Path, version: str) -> None:
    """Write the manifest of what is in a folder. version: of dplc."""
    records = {name: _record(folder / name) for name in sorted(inside(folder)) if OURS.fullmatch(name)}
    files = {name: record for name, record in records.items() if record is not None}
    record = msgspec.json.encode(Manifest(FORMAT, version, files))
    (folder / MANIFEST).write_bytes(msgspec.json.format(record, indent=1))


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a folder. Raises DplcError for a folder without one, and for another format."""
    path = folder / MANIFEST
    number = read_record(path, _Format).format
    if number != FORMAT:
        raise DplcError(f"{path} is of format {number}; this dplc reads {FORMAT}", hint="compile the model again")
    found = read_record(path, Manifest)
    foreign = next((name for name in found.files if not OURS.fullmatch(name)), None)
    if foreign is not None:
        raise DplcError(f"{DAMAGED}: {path} lists `{foreign}`, which is not a file of an artefact")
    return found


def not_ours(folder: Path) -> str | None:
    """Return why a folder is not wholly as dplc wrote it; None if all of it is.

    Links are not followed: a link is never ours. Raises DplcError for a folder that cannot be read.
    """
    names = sorted(inside(folder))
    if not names:
        return None
    try:
        files = read_manifest(folder).files
    except DplcError:
        return f"holds {names[0]} and no {MANIFEST} that says dplc wrote it"
    parents = {f"{parent.as_posix()}/" for name in files for parent in Path(name).parents}
    for name in names:
        if name == MANIFEST or name in parents:
            continue
        if name not in files:
            return f"holds {name}, which dplc did not write"
        found = _record(folder / name)
        if found != files[name] or found.sha256 == TOO_LARGE:
            return f"holds {name}, which was changed since dplc wrote it"
    return None


def inside(folder: Path) -> Iterator[str]:
    """Yield everything in a folder by its path there, folders with a `/` at the end. Links are not followed."""
    pending = [folder]
    while pending:
        here = pending.pop()
        try:
            entries = sorted(os.scandir(here), key=lambda entry: entry.name)
        except OSError as error:
            raise DplcError(f"cannot read {here}: {error.strerror}") from None
        for entry in entries:
            name = Path(entry.path).relative_to(folder).as_posix()
            if entry.is_dir(follow_symlinks=False):
                yield f"{name}/"
                pending.append(Path(entry.path))
            else:
                yield name


def remove(folder: Path) -> None:
    """Remove the files that dplc wrote into a folder, and the folder if it is empty then: never anything else."""
    names = sorted(inside(folder), key=len, reverse=True)
    if not_ours(folder) is None:
        for name in names:
            if not name.endswith("/"):
                (folder / name).unlink(missing_ok=True)
    for name in (*(name for name in names if name.endswith("/")), ""):
        if not any(os.scandir(folder / name)):
            (folder / name).rmdir()


def read_file(path: Path, limit: int = LARGEST_TEXT) -> bytes:
    """Return the content of a file of an artefact. Raises DplcError if it is not a plain file, or over `limit` bytes.

    Neither a link nor a pipe is opened: reading one might give another file, or never end.
    """
    try:
        file = _plain(path)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise DplcError(f"{DAMAGED}: cannot read {path}: {why}") from None
    if file is None:
        raise DplcError(f"{DAMAGED}: {path} is not a plain file")
    with file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise DplcError(f"{DAMAGED}: {path} has {size} bytes; {limit} are possible")
        return file.read(limit + 1)


def _plain(path: Path) -> BufferedReader | None:
    """Open a plain file; None for a folder, a pipe, a device. Raises OSError and ValueError, for a link too."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0))
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    return None


def check_file(folder: Path, name: str, manifest: Manifest) -> None:
    """Raise DplcError unless a file is there as dplc wrote it."""
    path = folder / name
    if name not in manifest.files:
        raise DplcError(f"{DAMAGED}: {folder / MANIFEST} does not list {name}")
    found, written = _record(path), manifest.files[name]
    if found is None:
        raise DplcError(f"{DAMAGED}: cannot read {path}: no such plain file")
    if found.size != written.size:
        raise DplcError(f"{DAMAGED}: {path} has {found.size} bytes; dplc wrote {written.size}")
    if found != written or found.sha256 == TOO_LARGE:
        raise DplcError(f"{DAMAGED}: {path} is not what dplc wrote (sha256)")


def _record(path: Path) -> FileRecord | None:
    """Return the size and digest of a file; None if it is not a plain file.

    A file that is too large to be ours is not read through.
    """
    try:
        file = _plain(path)
    except (OSError, ValueError):
        file = None
    if file is None:
        return None
    with file:
        size = os.fstat(file.fileno()).st_size
        if size > (memory_bytes() if path.suffix == ".safetensors" else LARGEST_TEXT):
            return FileRecord(size, TOO_LARGE)
        return FileRecord(size, hashlib.file_digest(file, "sha256").hexdigest())


# ---- Write the folder whole or not at all, and replace only an artefact.


RENAME_EXCHANGE = 2  # of Linux's renameat2
HERE = -100  # AT_FDCWD


@contextlib.contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """Return a folder to write in, which replaces the named one on success and is removed on failure.

    Raises DplcError for a folder that dplc did not write, before and after the block.
    """
    place = Path(os.path.realpath(folder))  # a link stays, and what it points to is replaced
    _check(place, folder)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        workshop = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
        try:
            yield workshop
        except BaseException:
            shutil.rmtree(workshop, ignore_errors=True)
            raise
        try:
            workshop.chmod(0o755)
            _check(place, folder)
            _put(workshop, place)
        finally:
            if workshop.exists():  # under this name may be the old one: what is whole and ours goes, nothing else
                remove(workshop)
    except OSError as error:
        raise DplcError(f"cannot write {folder}: {error.strerror or error}") from None


def _check(place: Path, folder: Path) -> None:
    """Raise DplcError unless the path is free, an empty folder, or an artefact as dplc wrote it."""
    if not os.path.lexists(place):
        return
    why = not_ours(place) if place.is_dir() else "is not a folder"
    if why is not None:
        raise DplcError(f"{folder} {why}: it is not overwritten", hint="name another folder, or move this one away")


def _put(workshop: Path, place: Path) -> None:
    """Rename a folder to its final path; the folder that dplc wrote there is removed once the new one is there."""
    if not place.exists() or not any(place.iterdir()):
        workshop.rename(place)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{place.name}.old.", dir=place.parent)) / place.name
    if _exchange(workshop, place):
        workshop.rename(old)
    else:
        place.rename(old)
        try:
            workshop.rename(place)
        except OSError:
            old.rename(place)
            raise
    remove(old)  # looks again: what was put there meanwhile stays, in a folder next to it
    with contextlib.suppress(OSError):
        old.parent.rmdir()


def _exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two folders in one step; return whether the system can."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    return bool(rename(HERE, os.fsencode(one), HERE, os.fsencode(other), RENAME_EXCHANGE) == 0)


# ---- The launch plan of an artefact as data: the schema of its `plan.json`, with bounds. Reading it executes nothing.
#
# `check_plan` then compares the plan with itself and with the Kernel IR.


# ---- Extents that depend on sizes (`s*2048`): a text of names, whole numbers and + - * // %.


MOST = 2**48  # elements of any buffer
ExtentText = Annotated[str, Meta(max_length=200, pattern=r"^[A-Za-z0-9_ +*/%()-]+\Z")]


_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}  # fmt: skip


def extent_at(extent: int | str, sizes: Binding) -> int:
    """Return the value of an extent where sizes are numbers. Raises DplcError for an invalid extent."""
    if isinstance(extent, int):
        return extent
    try:
        found = _value(_tree(extent), sizes)
    except (KeyError, ZeroDivisionError, RecursionError):
        found = -1
    if not 0 <= found <= MOST:
        raise DplcError(f"`{extent}` is not an extent made of {', '.join(sizes) or 'no sizes'}")
    return found


@functools.lru_cache(4096)
def _tree(text: str) -> ast.expr:
    """Return the parsed expression of a text, which Python never evaluates. Raises DplcError."""
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise DplcError(f"`{text}` is not an extent") from None


def _value(tree: ast.expr, sizes: Binding) -> int:
    """Return the value of an expression. Raises KeyError for an unknown size, and for any other expression."""
    if isinstance(tree, ast.Name):
        return sizes[tree.id]
    if isinstance(tree, ast.Constant) and type(tree.value) is int:
        return tree.value
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        return -_value(tree.operand, sizes)
    if isinstance(tree, ast.BinOp):
        return _OPERATIONS[type(tree.op)](_value(tree.left, sizes), _value(tree.right, sizes))
    raise KeyError(tree)


Record = TypeVar("Record")

Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
SizedExtents = Annotated[tuple[Elements | ExtentText, ...], Meta(max_length=64)]
MOST_SIZES, MOST_ROWS = 8, 256  # of a plan that anybody would write
Conditions = Annotated[tuple[Dim, ...], Meta(min_length=1, max_length=MOST_SIZES)]
FURTHEST = 2**31 - 1  # from 0, of numbers that are drawn for an input


class BufferRecord(FrozenRecord, frozen=True):
    """Buffer as kernels know it: without dimensions of one element. Extents may depend on sizes."""

    name: Identifier
    dtype: DtypeName
    shape: SizedExtents


class ExampleRecord(BufferRecord, frozen=True):
    """Input of a text, with torch's shape, and its least and greatest element when it was compiled.

    A run draws random elements between these.
    """

    low: float
    high: float


class LaunchRecord(FrozenRecord, frozen=True):
    """Launch of a kernel. buffers: one for every parameter."""

    kernel: Identifier
    buffers: tuple[Identifier, ...]


class PlanFile(FrozenRecord, frozen=True, kw_only=True):
    """Plan of a compiled model: buffers, kernels and launches of its program, and how to call it.

    Kernel IR defines the kernels; kernels: {name: comment, which names the rules}. weights: {constant: its weight}; the
    other constants are in `constants.safetensors`. weights_from: the weights that the compile was checked against, ""
    for none. aliases: {output: the input whose memory it shares}. length, batch: numbers, or names of sizes. sizes:
    known at a call. rows: the plan in the folder `rows/N` serves calls for which all conditions of row N hold, if those
    of no earlier row do. examples: the inputs of a `-c` text, which has no `config`, and 0 for length and batch.
    """

    inputs: list[BufferRecord]
    outputs: list[BufferRecord]
    constants: list[BufferRecord]
    temporaries: list[BufferRecord]
    kernels: dict[Identifier, Annotated[str, Meta(max_length=1 << 16)]]
    launches: list[LaunchRecord]
    dplc: Line
    rules: Line
    model: Line
    config: dict[str, Any]
    length: Count | Identifier
    batch: Count | Identifier
    layers: Count | None
    dtype: Literal["f64", "f32", "f16", "bf16"]
    target: Line
    arch: Line
    results: list[BufferRecord]
    weights: dict[Identifier, WeightRequest]
    weights_from: Line
    aliases: dict[Identifier, Identifier] = {}
    sizes: Annotated[tuple[Dim, ...], Meta(max_length=MOST_SIZES)] = ()
    rows: Annotated[tuple[Conditions, ...], Meta(max_length=MOST_ROWS)] = ()
    examples: tuple[ExampleRecord, ...] = ()

    @property
    def hints(self) -> dict[str, int]:
        """Typical values of the sizes."""
        return {dim.name: dim.size().hint for dim in self.sizes}

    def tokens_at(self, sizes: Binding) -> tuple[int, int]:
        """Return (sequences, tokens of each) where the sizes are these numbers."""
        return extent_at(self.batch, sizes), extent_at(self.length, sizes)

    def program(
        self, kernels: Mapping[str, CudaKernel], sizes: Binding = AT_HINTS
    ) -> Program:  # fmt: skip
        """Return the program, given its kernels by name, as they are at these sizes.

        Raises DplcError if the plan contradicts itself.
        """
        try:
            return with_arena(
                Program(
                    tuple(kernels[launch.kernel] for launch in self.launches),
                    _buffers(self.inputs, sizes),
                    _buffers(self.outputs, sizes),
                    _buffers(self.constants, sizes),
                    _buffers(self.temporaries, sizes),
                    tuple(launch.buffers for launch in self.launches),
                    aliases=self.aliases,
                )
            )
        except (ValueError, KeyError) as error:
            raise DplcError("the launch plan contradicts itself", notes=(str(error),)) from None

    def torch_outputs(self, sizes: Binding = AT_HINTS) -> tuple[Buffer, ...]:
        """Return the outputs with torch's shapes."""
        return _buffers(self.results, sizes)


def result_record(name: str, kind: Any) -> BufferRecord:
    """Return the record of a value with a dtype and a shape, under a name."""
    return BufferRecord(name, kind.dtype, tuple(print_expr(n) if isinstance(n, Node) else int(n) for n in kind.shape))


def launch_fields(program: Program, sized: Any = None) -> dict[str, Any]:
    """Return the fields of a plan for a program. sized: the buffers of a program with sizes."""
    kinds = ("inputs", "outputs", "constants", "temporaries")
    buffers = {kind: [result_record(b.name, b) for b in getattr(sized or program, kind)] for kind in kinds}
    kernels = {kernel.name: kernel.comment for kernel in program.distinct_kernels()}
    launches = [LaunchRecord(launch.kernel.name, launch.buffers) for launch in program.launches()]
    return {**buffers, "kernels": kernels, "launches": launches}


def read_record(path: Path, kind: type[Record]) -> Record:
    """Return a record in a JSON file. Raises DplcError for a file that is missing, or holds none."""
    try:
        return msgspec.json.decode(read_file(path), type=kind)
    except (msgspec.MsgspecError, UsageError, RecursionError, UnicodeDecodeError) as error:
        why = error.what if isinstance(error, UsageError) else error
        raise DplcError(f"{DAMAGED}: {path} does not fit its schema: {why}") from None


def _buffers(records: Sequence[BufferRecord], sizes: Binding) -> tuple[Buffer, ...]:
    return tuple(Buffer(r.name, r.dtype, tuple(extent_at(n, sizes) for n in r.shape)) for r in records)


# ---- Check that a plan agrees with itself and with the buffers of its kernels.


def check_plan(
    plan: PlanFile, program: Program, units: Mapping[str, Kernel], kernels: Mapping[str, CudaKernel], path: Path
) -> None:
    """Raise DplcError, naming the field, for the first mismatch.

    program: at the hints; units, kernels: of `kernels_of`; path: of the plan.
    """
    problems = itertools.chain(
        _sizes(plan, units), _results(plan, program, plan.hints), _weights(plan), _tokens(plan),
        _ends(plan, units, kernels),
    )  # fmt: skip
    try:
        target(plan.arch)
    except DplcError as error:
        raise DplcError(f"{DAMAGED}: {path}: `arch`: {error.what}") from None
    _raise_first(problems, path)


def check_rows(whole: PlanFile, rows: Sequence[PlanFile], path: Path) -> None:
    """Raise DplcError if a row cannot serve the calls that the table gives it.

    Its tokens, results and weights must be those of the plan of the whole range. path: of that plan.
    """
    _raise_first((f"row {n}: {p}" for n, row in enumerate(rows) for p in _row(whole, whole.rows[n], row)), path)


def _raise_first(problems: Iterator[str], path: Path) -> None:
    try:
        problem = next(problems, None)
    except DplcError as error:
        problem = error.what
    if problem is not None:
        raise DplcError(f"{DAMAGED}: {path}: {problem}")


def _sizes(plan: PlanFile, units: Mapping[str, Kernel]) -> Iterator[str]:
    """Yield errors if the sizes of kernels are not those of the plan, or if outputs share memory without a binding."""
    known = {dim.name: dim.size() for dim in plan.sizes}
    if len(known) != len(plan.sizes):
        yield "`sizes`: a name is there twice"
    for unit in units.values():
        for name, size in sizes_in(unit).items():
            if known.get(name) is not size:
                yield f"`sizes`: `{name}` has another range in kernel `{unit.name}`, or is not a size"
    if plan.sizes and plan.aliases:
        yield "`aliases`: of a plan with sizes there are none"


def _ends(plan: PlanFile, units: Mapping[str, Kernel], kernels: Mapping[str, CudaKernel]) -> Iterator[str]:
    """Yield errors if a plan with sizes contradicts its kernels at the ends of their ranges."""
    for sizes in _corners(plan.sizes) if plan.sizes else ():
        program = plan.program({name: bound(unit, kernels[name], sizes) for name, unit in units.items()}, sizes)
        yield from _results(plan, program, sizes)


def _corners(ranges: Sequence[Dim]) -> list[dict[str, int]]:
    """Return all sizes at their least numbers, and all at their greatest."""
    low = {n.name: -(-n.low // n.multiple) * n.multiple for n in ranges}
    return [low, {n.name: n.high // n.multiple * n.multiple for n in ranges}]


def _row(whole: PlanFile, when: tuple[Dim, ...], row: PlanFile) -> Iterator[str]:
    own, sizes = {n.name: n for n in row.sizes}, {n.name: n for n in whole.sizes}
    if row.rows or len({c.name for c in when}) != len(when) or not own.keys() | {c.name for c in when} <= sizes.keys():
        yield "rows within rows, or sizes that the whole has not"
        return
    asked = {**sizes, **{condition.name: condition for condition in when}}
    for name, condition in asked.items():
        if not _holds(sizes[name], condition):
            yield f"`{name}` is {condition.low}..{condition.high}, which is not a part of its range"
        elif name in own and not _holds(own[name], condition):
            yield f"`{name}` is {own[name].low}..{own[name].high} in its plan, which is not enough"
        elif name not in own and condition.low != condition.high:
            yield f"`{name}` is a number in its plan"
    for corner in _corners(tuple(asked.values())):
        for field in ("inputs", "outputs", "results"):
            if _at(getattr(whole, field), corner) != _at(getattr(row, field), corner):
                yield f"`{field}` are others than those of the whole range"
        if [b.name for b in whole.inputs] != [b.name for b in row.inputs]:
            yield "`inputs` have other names than those of the whole range"
        if whole.tokens_at(corner) != row.tokens_at(corner):
            yield "it is for another number of tokens"
    if not row.weights.items() <= whole.weights.items():
        yield "`weights`: the whole range takes others"
    if (row.dtype, row.arch, row.config) != (whole.dtype, whole.arch, whole.config):
        yield "it is of another model, or for another device"


def _holds(outer: Dim, inner: Dim) -> bool:
    """Return whether a range has all numbers of another, which has some."""
    least = -(-inner.low // inner.multiple) * inner.multiple
    return outer.low <= inner.low and least <= inner.high <= outer.high and inner.multiple % outer.multiple == 0


def _at(records: Sequence[BufferRecord], sizes: Binding) -> list[tuple[str, int]]:
    """Return the dtype and the number of elements of each buffer, which all plans share.

    The shapes may differ: a row of one length drops a dimension of one element.
    """
    return [(b.dtype, math.prod(extent_at(n, sizes) for n in b.shape)) for b in records]


def _results(plan: PlanFile, program: Program, sizes: Binding) -> Iterator[str]:
    if len(plan.results) != len(plan.outputs):
        yield f"`results` has {len(plan.results)} entries for {len(plan.outputs)} outputs"
    for output, result in zip(program.outputs, plan.results, strict=False):
        shape = [extent_at(n, sizes) for n in result.shape]
        if (output.name, output.dtype, output.size) != (result.name, result.dtype, math.prod(shape)):
            yield f"`results`: {result.dtype}{shape} is not what output `{output.name}` holds"


def _weights(plan: PlanFile) -> Iterator[str]:
    known: dict[str, BufferRecord] = {buffer.name: buffer for buffer in plan.constants}
    for constant in plan.constants:
        if any(not isinstance(n, int) for n in constant.shape):
            yield f"`constants`: `{constant.name}` depends on a size"
            return
    for name, weight in plan.weights.items():
        if name not in known:
            yield f"`weights`: `{name}` is not a constant of the program"
        elif (known[name].dtype, elements(known[name])) != (weight.dtype, math.prod(weight.shape)):
            yield f"`weights`: {weight.dtype}{list(weight.shape)} is not what constant `{name}` holds"


def elements(buffer: BufferRecord) -> int:
    """Return the number of elements of a buffer without sizes."""
    return math.prod(extent_at(n, {}) for n in buffer.shape)


def _tokens(plan: PlanFile) -> Iterator[str]:
    if not plan.inputs:
        yield "`inputs` is empty"
    elif not plan.config:
        yield from _examples(plan)
    elif not isinstance(words := vocabulary(plan.config), int) or not 0 < words < 2**31:
        yield f"`config`: vocab_size is {words!r}"
    elif len(plan.inputs) == 1 and plan.inputs[0].dtype == "i64":
        batch, length = plan.tokens_at(plan.hints)
        shape = [extent_at(n, plan.hints) for n in plan.inputs[0].shape]
        if math.prod(shape) != batch * length:
            yield f"`inputs`: {shape} is not {batch} x {length} tokens"


def _examples(plan: PlanFile) -> Iterator[str]:
    """Yield errors in the inputs of a text, at both ends of the sizes, and for a size that their extents lack."""
    told = {example.name: example for example in plan.examples}
    if len(told) != len(plan.examples) or any(not -FURTHEST <= e.low <= e.high <= FURTHEST for e in plan.examples):
        yield "`examples`: a name is there twice, or its ends are not a range"
    for buffer in plan.inputs:
        if buffer.name not in told:
            yield f"`examples`: `{buffer.name}` is not there"
            return
    alike = [(told[buffer.name], buffer) for buffer in plan.inputs]
    for corner in _corners(plan.sizes):
        if any(_at([example], corner) != _at([buffer], corner) for example, buffer in alike):
            yield "`examples`: an input has other elements than in `inputs`"
    if missing := {n.name for n in plan.sizes} - {n for e in plan.examples for n in e.shape if isinstance(n, str)}:
        yield f"`examples`: no input tells `{min(missing)}`"
