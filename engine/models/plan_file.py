"""Files of an artefact: the folder with its manifest, and the launch plan with its schema and checks."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta, MsgspecError, Struct, json

from ...codegen.arrays import memory_bytes
from ...codegen.cuda import bound
from ...codegen.kernel import Buffer, CudaKernel, Program, with_arena
from ...ir.diagnostic import DplcError, UsageError
from ...ir.dtypes import DtypeName
from ...ir.expr import Size, only_sizes
from ...ir.node import Expr, Node
from ...ir.program import Kernel, Param
from ...ir.sizes import Binding, hints, value_of
from ...ir.text.print_statements import print_expr
from ...ir.text.programs import read_program
from ..capture.dynamic_shapes import Dim, Identifier
from ..store.store import FrozenRecord
from .sources import Elements, Line, WeightRequest

MANIFEST = "dplc-artefact.json"
FORMAT = 3
DAMAGED = "the artefact is damaged"
LARGEST_TEXT = 64 << 20  # bytes of a plan, a kernel, a dump: more is not a text of dplc
OURS = re.compile(
    r"figures\.json|(rows/\d{1,3}/)?(plan\.json|constants\.safetensors|ir/[a-z]+\.ir|cuda/\w+\.cu|cubin/\w+\.cubin)",
    re.ASCII,
)


class FileRecord(FrozenRecord):
    """Record of a file. size: bytes; sha256: of the content, "" for one that is too large to be ours."""

    size: int
    sha256: str


class Manifest(FrozenRecord):
    """Record of a folder. files: {path in the folder, with `/`: its record}, every file but the manifest itself."""

    format: int
    dplc: str
    files: dict[str, FileRecord]


class _Format(Struct):
    format: int


def seal(folder: Path, version: str) -> None:
    """Write the manifest of what is in a folder. version: of dplc."""
    files = {}
    for name in sorted(filter(OURS.fullmatch, inside(folder))):
        with contextlib.suppress(DplcError):
            files[name] = _record(folder / name)
    write_record(folder / MANIFEST, Manifest(FORMAT, version, files))


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a folder. Raises DplcError for a folder without one, and for another format."""
    path = folder / MANIFEST
    number = read_record(path, _Format).format
    if number != FORMAT:
        raise DplcError(f"{path} is of format {number}; this dplc reads {FORMAT}", hint="compile the model again")
    found = read_record(path, Manifest)
    if foreign := [name for name in found.files if not OURS.fullmatch(name)]:
        raise DplcError(f"{DAMAGED}: {path} lists `{foreign[0]}`, which is not a file of an artefact")
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
    known = {MANIFEST, *files, *(f"{parent.as_posix()}/" for name in files for parent in Path(name).parents)}
    for name in names:
        if name not in known:
            return f"holds {name}, which dplc did not write"
        if name in files and _change(folder / name, files[name]):
            return f"holds {name}, which was changed since dplc wrote it"
    return None


def inside(folder: Path) -> Iterator[str]:
    """Yield everything in a folder by its path there, folders with a `/` at the end. Links are not followed."""

    def refuse(error: OSError) -> None:
        raise DplcError(f"cannot read {error.filename}: {error.strerror}") from None

    for here, folders, files in os.walk(folder, onerror=refuse):
        for path in (Path(here, name) for name in folders + files):
            yield path.relative_to(folder).as_posix() + "/" * (path.is_dir() and not path.is_symlink())


def remove(folder: Path) -> None:
    """Remove a folder that is as dplc wrote it: only what was there before this is looked at."""
    names = sorted(inside(folder), reverse=True)  # what a folder holds, and then the folder
    if not_ours(folder) is None:
        for path in (*(folder / name for name in names), folder):
            if not path.is_dir():
                path.unlink(missing_ok=True)
            elif not any(path.iterdir()):
                path.rmdir()


def read_file(path: Path) -> bytes:
    """Return the content of a file of an artefact. Raises DplcError if it is not a plain file, or too large.

    Neither a link nor a pipe is opened: reading one might give another file, or never end.
    """
    with _plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > LARGEST_TEXT:
            raise DplcError(f"{DAMAGED}: {path} has {size} bytes; {LARGEST_TEXT} are possible")
        return file.read(LARGEST_TEXT)


def _plain(path: Path) -> BufferedReader:
    """Open a plain file. Raises DplcError for a link, a folder, a pipe, a device."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise DplcError(f"{DAMAGED}: cannot read {path}: {why}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DplcError(f"{DAMAGED}: {path} is not a plain file")
    return os.fdopen(descriptor, "rb")


def check_file(folder: Path, name: str, manifest: Manifest) -> None:
    """Raise DplcError unless a file is there as dplc wrote it."""
    if name not in manifest.files:
        raise DplcError(f"{DAMAGED}: {folder / MANIFEST} does not list {name}")
    if why := _change(folder / name, manifest.files[name]):
        raise DplcError(f"{DAMAGED}: {why}")


def _change(path: Path, written: FileRecord) -> str | None:
    """Return how a file differs from its record, if it does."""
    try:
        found = _record(path)
    except DplcError:
        return f"cannot read {path}: no such plain file"
    if found.size != written.size:
        return f"{path} has {found.size} bytes; dplc wrote {written.size}"
    return None if found == written and found.sha256 else f"{path} is not what dplc wrote (sha256)"


def _record(path: Path) -> FileRecord:
    """Return the size and digest of a file. Raises DplcError if it is not a plain file.

    A file that is too large to be ours is not read through.
    """
    with _plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        large = size > (memory_bytes() if path.suffix == ".safetensors" else LARGEST_TEXT)
        return FileRecord(size, "" if large else hashlib.file_digest(file, "sha256").hexdigest())


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
    if os.path.lexists(place):
        why = not_ours(place) if place.is_dir() else "is not a folder"
        if why is not None:
            raise DplcError(f"{folder} {why}: it is not overwritten", hint="name another folder, or move this one away")


def _put(workshop: Path, place: Path) -> None:
    """Rename a folder to its final path; one that dplc wrote there gets the name of the workshop."""
    if not place.exists() or not any(place.iterdir()):
        workshop.rename(place)
    elif not _exchange(workshop, place):
        old = workshop.with_name(f"{workshop.name}.old")
        place.rename(old)
        try:
            workshop.rename(place)
        except OSError:
            old.rename(place)
            raise
        old.rename(workshop)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two folders in one step; return whether the system can."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        rename = ctypes.CDLL(None).renameat2
        return not rename(HERE, os.fsencode(one), HERE, os.fsencode(other), RENAME_EXCHANGE)
    return False


# ---- The launch plan of an artefact as data: the schema of its `plan.json`, with bounds. Reading it executes nothing.
#
# `artefact.problems_of_plan` then compares the plan with itself and with the Kernel IR.


# ---- Extents that depend on sizes (`s*2048`): a text of names, whole numbers and + - * // %.


MOST = 2**48  # elements of any buffer
ExtentText = Annotated[str, Meta(max_length=200, pattern=r"^[A-Za-z0-9_ +*/%()-]+\Z")]


@functools.lru_cache(4096)
def _extent(text: str, names: tuple[str, ...]) -> Expr:
    """Read an extent as a dump of a program with sizes of these names has it. Raises DplcError for any other text."""
    sizes = "".join(f"{name}: 1..{MOST}, " for name in names)
    _, (kernel,) = read_program(f"kernel sized({sizes}x: i32[{text}]) -> y: i32[1]:\n    pass\n", text, None)
    assert isinstance(kernel, Kernel)
    return kernel.ins[0].shape[0]


def extent_at(extent: int | str, sizes: Binding) -> int:
    """Return the value of an extent where sizes are numbers. Raises DplcError for an invalid extent."""
    if isinstance(extent, int):
        return extent
    try:
        read = _extent(extent, tuple(sizes))
        found = value_of(read, sizes) if only_sizes(read) else -1
    except (DplcError, IndexError, ZeroDivisionError):
        found = -1
    if not 0 <= found <= MOST:
        raise DplcError(f"`{extent}` is not an extent made of {', '.join(sizes) or 'no sizes'}")
    return found


Record = TypeVar("Record")

Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
SizedExtents = Annotated[tuple[Elements | ExtentText, ...], Meta(max_length=64)]
MOST_SIZES, MOST_ROWS = 8, 256  # of a plan that anybody would write
Conditions = Annotated[tuple[Dim, ...], Meta(min_length=1, max_length=MOST_SIZES)]
FURTHEST = 2**31 - 1  # from 0, of numbers that are drawn for an input


class BufferRecord(FrozenRecord):
    """Buffer as kernels know it: without dimensions of one element. Extents may depend on sizes."""

    name: Identifier
    dtype: DtypeName
    shape: SizedExtents


class ExampleRecord(BufferRecord):
    """Input of a text, with torch's shape, and its least and greatest element when it was compiled.

    A run draws random elements between these.
    """

    low: float
    high: float


class LaunchRecord(FrozenRecord):
    """Launch of a kernel. buffers: one for every parameter."""

    kernel: Identifier
    buffers: tuple[Identifier, ...]


class PlanFile(FrozenRecord, kw_only=True):
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
    def symbols(self) -> dict[str, Size]:
        """The sizes of the IRs, by name."""
        return {dim.name: dim.size() for dim in self.sizes}

    @property
    def hints(self) -> dict[str, int]:
        """Typical values of the sizes."""
        return hints(tuple(self.symbols.values()))

    def tokens_at(self, sizes: Binding) -> tuple[int, int]:
        """Return (sequences, tokens of each) where the sizes are these numbers."""
        return extent_at(self.batch, sizes), extent_at(self.length, sizes)

    def program(self, units: Mapping[str, Kernel], kernels: Mapping[str, CudaKernel], sizes: Binding) -> Program:
        """Return the program where the sizes are these numbers: the same kernels, with other grids and buffers.

        units, kernels: {name: its Kernel IR}, {name: kernel}. Raises DplcError if the plan contradicts itself.
        """
        kinds = (self.inputs, self.outputs, self.constants, self.temporaries)
        try:
            inputs, outputs, constants, temporaries = (buffers_at(records, sizes) for records in kinds)
            known = {name: bound(units[name], kernel, sizes) for name, kernel in kernels.items()}
            launched = tuple(known[launch.kernel] for launch in self.launches)
            bindings = tuple(launch.buffers for launch in self.launches)
            return with_arena(
                Program(launched, inputs, outputs, constants, temporaries, bindings, aliases=self.aliases)
            )
        except (ValueError, KeyError) as error:
            raise DplcError("the launch plan contradicts itself", notes=(str(error),)) from None


def buffer_record(param: Param | Buffer) -> BufferRecord:
    """Return the record of a buffer, whose extents may depend on sizes."""
    shape = tuple(print_expr(n) if isinstance(n, Node) else int(n) for n in param.shape)
    return BufferRecord(param.name, param.dtype, shape)  # type: ignore[arg-type]


def read_record(path: Path, kind: type[Record]) -> Record:
    """Return a record in a JSON file. Raises DplcError for a file that is missing, or holds none."""
    try:
        return json.decode(read_file(path), type=kind)
    except (MsgspecError, UsageError, RecursionError, UnicodeDecodeError) as error:
        why = error.what if isinstance(error, UsageError) else error
        raise DplcError(f"{DAMAGED}: {path} does not fit its schema: {why}") from None


def write_record(path: Path, record: Struct) -> None:
    """Write a record as JSON for people."""
    path.write_bytes(json.format(json.encode(record), indent=1))


def buffers_at(records: Iterable[BufferRecord], sizes: Binding) -> tuple[Buffer, ...]:
    """Return the buffers of records where the sizes are these numbers. Raises DplcError for an invalid extent."""
    return tuple(Buffer(r.name, r.dtype, tuple(extent_at(n, sizes) for n in r.shape)) for r in records)
