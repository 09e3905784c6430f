"""Weights by name: from safetensors files, or random. Only requested tensors are read, and nothing is executed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ...codegen.arrays import check_room
from ...ir.diagnostic import Diagnostics, DplcError, did_you_mean
from ...ir.schemas import DTYPES

INDEX = "model.safetensors.index.json"
SHOWN = 5  # mistakes told one by one
LONGEST = 200  # characters of the name of a file


Pieces = tuple[tuple[tuple[str, ...], ...], ...]
Rows = list[list[str]]  # what files call pieces


@dataclass(frozen=True)
class WeightRequest:
    """A weight that a program takes. names: what a file may call it; dtype, by our name; shape as torch has it.

    pieces: what files may have in its stead, the matrices of experts: those of a row are stacked, and the stacks are
    joined along dimension 1. Each has the names that a file may call it.
    """

    names: tuple[str, ...]
    dtype: str
    shape: tuple[int, ...]
    pieces: Pieces = ()


Tell = Callable[[str, int, int], None]  # told of progress: what is being done, how much of it is done, of how much


def silent(what: str, done: int, total: int) -> None:
    """Report nothing."""


def load(folder: Path, wanted: Mapping[str, WeightRequest], tell: Tell = silent) -> dict[str, Any]:
    """Return {key of `wanted`: tensor} from a folder (or one file) of safetensors, converted to the wanted dtypes.

    Raises DplcError for a path without weights, files that cannot be read, and for missing tensors and other shapes:
    all of them at once.
    """
    made: dict[str, Any] = {}
    with ExitStack() as stack:
        for key, place in _places(folder, wanted, stack).items():
            tell("loading weights", len(made), len(wanted))
            made[key] = place.read().to(getattr(torch, DTYPES[wanted[key].dtype]))
    tell("loading weights", len(made), len(wanted))
    return made


def check(folder: Path, wanted: Mapping[str, WeightRequest]) -> None:
    """Raise the errors of `load`, from the headers of the files alone."""
    with ExitStack() as stack:
        _places(folder, wanted, stack)


@dataclass(frozen=True)
class _Place:
    """Location of a weight: rows of (opened file, name in it), of one row with one name or of its pieces."""

    rows: tuple[tuple[tuple[Any, str], ...], ...]
    whole: bool

    def shape(self) -> tuple[int, ...] | None:
        """Return the shape of the whole; None if the pieces do not fit each other."""
        shapes = [[tuple(file.get_slice(name).get_shape()) for file, name in row] for row in self.rows]
        if self.whole:
            return shapes[0][0]  # type: ignore[no-any-return]
        if any(len(set(row)) > 1 for row in shapes) or len({(len(row), row[0][1:]) for row in shapes}) > 1:
            return None
        return (len(shapes[0]), sum(row[0][0] for row in shapes), *shapes[0][0][1:])

    def read(self) -> Any:
        if self.whole:
            ((file, name),) = self.rows[0]
            return file.get_tensor(name)
        return torch.cat([torch.stack([file.get_tensor(name) for file, name in row]) for row in self.rows], 1)


def _places(folder: Path, wanted: Mapping[str, WeightRequest], stack: ExitStack) -> dict[str, _Place]:
    """Return {key of `wanted`: its location}, everything found and of the right shape."""
    files = files_of(folder)
    opened = {path: stack.enter_context(_open(path)) for path in sorted(set(files.values()))}
    found = {key: _names_in(want, files) for key, want in wanted.items()}
    _complain(list(_mistakes(wanted, found, files, opened)))
    return {key: _place(wanted[key], rows, files, opened) for key, rows in found.items()}


def _place(want: WeightRequest, rows: Rows, files: Mapping[str, Path], opened: Mapping[Path, Any]) -> _Place:
    places = tuple(tuple((opened[files[name]], name) for name in row) for row in rows)
    return _Place(places, rows[0][0] in want.names)


def _names_in(want: WeightRequest, files: Mapping[str, Path]) -> Rows:
    """Return the names of a weight in the files, else those of its pieces; empty if neither is there."""

    def known(names: Iterable[str]) -> str | None:
        return next((name for name in names if name in files), None)

    if (whole := known(want.names)) is not None:
        return [[whole]]
    rows = [[known(names) for names in row] for row in want.pieces]
    return [] if any(name is None for row in rows for name in row) else rows  # type: ignore[return-value]


def files_of(folder: Path) -> dict[str, Path]:
    """Return {name of a tensor: its file}, by the index of a folder if it has one, else from every file."""
    if folder.is_file():
        paths = [folder]
    elif not folder.is_dir():
        raise DplcError(f"--weights {folder}: there is no such folder")
    elif (folder / INDEX).is_file():
        return _index(folder / INDEX)
    else:
        paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise DplcError(f"--weights {folder}: no *.safetensors are there")
    return {name: path for path in paths for name in _names(path)}


def make(
    wanted: Mapping[str, WeightRequest], seed: int = 0, device: str = "cpu", scale: float = 0.05
) -> dict[str, Any]:
    """Return random weights, the same for the same seed and device.

    Vectors are near 1 (norms stay norms), the rest is normal with `scale`. Raises DplcError for more than fits in
    memory.
    """
    if device == "cpu":
        check_room(sum(4 * math.prod(want.shape) for want in wanted.values()), "the weights")
    generator = torch.Generator(device).manual_seed(seed)
    made = {}
    for key, want in wanted.items():
        value = torch.randn(want.shape, generator=generator, device=device) * scale
        made[key] = (value + 1 if len(want.shape) == 1 else value).to(getattr(torch, DTYPES[want.dtype]))
    return made


def _index(path: Path) -> dict[str, Path]:
    try:
        shards = json.loads(path.read_bytes())["weight_map"]
        files = {str(name): str(file) for name, file in shards.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DplcError(f"{path} is no index of weights", notes=(f"{type(error).__name__}: {error}",)) from None
    missing = sorted({name for name in files.values() if not _is_beside(path, name)})
    if missing:
        shown = ", ".join(name[:LONGEST] for name in missing[:SHOWN])
        raise DplcError(f"{path} names files that are not there beside it: {shown}")
    return {name: path.parent / file for name, file in files.items()}


def _is_beside(index: Path, name: str) -> bool:
    """Return whether a file of an index exists, in the folder of the index and in no other."""
    return name == Path(name).name and len(name) <= LONGEST and "\0" not in name and (index.parent / name).is_file()


def _names(path: Path) -> Iterable[str]:
    with _open(path) as file:
        return list(file.keys())


def _open(path: Path) -> Any:
    try:
        from safetensors import safe_open
    except ImportError:
        raise DplcError("weights need safetensors", hint="pip install 'dplc[hub]'") from None
    try:
        return safe_open(path, framework="pt")
    except Exception as error:  # its own class, OSError, UnicodeDecodeError
        raise DplcError(f"cannot read the weights in {path}", notes=(str(error),)) from None


def _mistakes(
    wanted: Mapping[str, WeightRequest],
    found: Mapping[str, Rows],
    files: Mapping[str, Path],
    opened: Mapping[Path, Any],
) -> Iterator[DplcError]:
    held = {path: set(file.keys()) for path, file in opened.items()}
    for key, want in wanted.items():
        rows = found[key]
        if not rows:
            hint = did_you_mean(want.names[0], files)
            yield DplcError(f"the weights have no tensor `{want.names[0]}`", hint=hint)
            continue
        missing = [name for row in rows for name in row if name not in held[files[name]]]
        if missing:
            where = files[missing[0]].name
            yield DplcError(f"the index says that `{missing[0]}` is in {where}, which has no such tensor")
            continue
        shape, name = _place(want, rows, files, opened).shape(), rows[0][0]
        if shape is None:
            yield DplcError(f"weights `{name}` .. `{rows[-1][-1]}` have shapes that do not fit each other")
        elif shape != want.shape:
            what = f"weight `{name}` is" if len(rows[0]) == len(rows) == 1 else f"`{name}` .. `{rows[-1][-1]}` make"
            yield DplcError(f"{what} {list(shape)} in {files[name].name}; the model needs {list(want.shape)}")


def _complain(mistakes: list[DplcError]) -> None:
    if len(mistakes) > SHOWN:
        mistakes = [*mistakes[:SHOWN], DplcError(f"{len(mistakes) - SHOWN} more weights are missing or wrong")]
    if mistakes:
        raise mistakes[0] if len(mistakes) == 1 else Diagnostics(mistakes)
