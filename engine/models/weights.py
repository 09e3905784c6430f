"""Weights by name: from safetensors files, or made up. Only what is asked for is read, and nothing is executed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ...codegen.host_memory import check_room
from ...ir.diagnostic import Diagnostics, DplcError, did_you_mean
from ...ir.schemas import DTYPES

INDEX = "model.safetensors.index.json"
SHOWN = 5  # mistakes told one by one
LONGEST = 200  # characters of the name of a file


@dataclass(frozen=True)
class WeightRequest:
    """A weight that a program takes. names: what a file may call it; dtype, by our name; shape as torch has it."""

    names: tuple[str, ...]
    dtype: str
    shape: tuple[int, ...]


Tell = Callable[[str, int, int], None]  # told of progress: what is being done, how much of it is done, of how much


def silent(what: str, done: int, total: int) -> None:
    """Reports nothing."""


def load(folder: Path, wanted: Mapping[str, WeightRequest], tell: Tell = silent) -> dict[str, Any]:
    """{key of `wanted`: tensor} from a folder (or one file) of safetensors, converted to the dtypes that are wanted.

    Raises DplcError for a path without weights, files that cannot be read, and for missing tensors and other shapes:
    all of them at once.
    """
    made: dict[str, Any] = {}
    with ExitStack() as stack:
        for key, (file, name) in _places(folder, wanted, stack).items():
            tell("loading weights", len(made), len(wanted))
            made[key] = file.get_tensor(name).to(getattr(torch, DTYPES[wanted[key].dtype]))
    tell("loading weights", len(made), len(wanted))
    return made


def check(folder: Path, wanted: Mapping[str, WeightRequest]) -> None:
    """Raises what `load` would, from the headers of the files alone."""
    with ExitStack() as stack:
        _places(folder, wanted, stack)


def _places(folder: Path, wanted: Mapping[str, WeightRequest], stack: ExitStack) -> dict[str, tuple[Any, str]]:
    """{key of `wanted`: (the opened file, the name in it)}, everything found and of the right shape."""
    files = files_of(folder)
    opened = {path: stack.enter_context(_open(path)) for path in sorted(set(files.values()))}
    found = {key: next((name for name in want.names if name in files), None) for key, want in wanted.items()}
    _complain(list(_mistakes(wanted, found, files, opened)))
    return {key: (opened[files[name]], name) for key, name in found.items() if name is not None}


def files_of(folder: Path) -> dict[str, Path]:
    """{name of a tensor: the file it is in}. A folder with an index says so itself; else every file is looked at."""
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
    """Weights made up, the same for the same seed and device: vectors near 1 (norms stay norms), the rest normal with
    `scale`. Raises DplcError for more than fits in memory."""
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
    """Whether a file that an index names is there, in the folder of the index and in no other."""
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
    found: Mapping[str, str | None],
    files: Mapping[str, Path],
    opened: Mapping[Path, Any],
) -> Iterator[DplcError]:
    held = {path: set(file.keys()) for path, file in opened.items()}
    for key, want in wanted.items():
        name = found[key]
        if name is None:
            hint = did_you_mean(want.names[0], files)
            yield DplcError(f"the weights have no tensor `{want.names[0]}`", hint=hint)
            continue
        if name not in held[files[name]]:
            yield DplcError(f"the index says that `{name}` is in {files[name].name}, which has no such tensor")
            continue
        shape = tuple(opened[files[name]].get_slice(name).get_shape())
        if shape != want.shape:
            yield DplcError(
                f"weight `{name}` is {list(shape)} in {files[name].name}; the model needs {list(want.shape)}"
            )


def _complain(mistakes: list[DplcError]) -> None:
    if len(mistakes) > SHOWN:
        mistakes = [*mistakes[:SHOWN], DplcError(f"{len(mistakes) - SHOWN} more weights are missing or wrong")]
    if mistakes:
        raise mistakes[0] if len(mistakes) == 1 else Diagnostics(mistakes)
