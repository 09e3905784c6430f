"""The reader of a pack: a ZIP file with `pack.json`, cubins, kernel texts and constants.

    pack.json            the device, versions, and every case with its launch plan
    cubin/DIGEST.cubin   what the driver loads; DIGEST is of the kernel's text
    cuda/DIGEST.cu       the text, for a driver that does not take the cubin
    include/..           the headers of the texts
    constants/DIGEST.npy what was computed when the program was compiled
    __main__.py, dplc/.. the runner: `python FILE.dplc` starts it

Expressions of cases are Python, as those of suites are: measure packs that you trust.
"""

from __future__ import annotations

import ast
import io
import json
import math
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ...ir.diagnostic import DplcError
from ..kernel import Arena, Box, Buffer, CudaKernel, KernelParam, Program

FORMAT = 1
CONTENTS = "pack.json"


@dataclass(frozen=True)
class PackedCase:
    """A program with its expression. about: its record in `pack.json`.

    candidate: which of several schedules it is; None for the one that the rules choose. same: the name of an earlier
    case of the suite that is the same program, "" for none.
    """

    number: int
    about: Mapping[str, Any]
    suite: str
    name: str
    same: str
    candidate: int | None
    predicted_us: float

    @classmethod
    def of(cls, number: int, about: Mapping[str, Any]) -> PackedCase:
        return cls(number, about, *(about[field.name] for field in fields(cls)[2:]))

    @property
    def nbytes(self) -> int:
        """Bytes of its inputs."""
        return sum(4 * math.prod(shape) for shape in self.about["inputs"].values())

    @cached_property
    def program(self) -> Program:
        """The launch plan. The text of a kernel is its digest."""
        plan = self.about["program"]
        kernels = [*map(_kernel, plan["kernels"])]
        return Program(
            tuple(kernels[place] for place, _ in plan["launches"]),
            _buffers(plan["inputs"]),
            _buffers(plan["outputs"]),
            _buffers(plan["constants"]),
            _buffers(plan["temporaries"]),
            tuple(tuple(buffers) for _, buffers in plan["launches"]),
            Arena(plan["arena_bytes"], plan["offsets"]),
        )

    @property
    def function(self) -> Callable[..., Any]:
        """The expression as a function of its inputs, which torch.compile can trace."""
        return function_of(self.about["expression"], tuple(self.about["inputs"]))

    def inputs(self, device: str) -> list[Any]:
        """Return random values on a device of torch."""
        about = self.about
        return [*drawn(self.name, about["inputs"], about["spreads"], about["dtype"], device).values()]


class OpenPack:
    """An open pack. Raises DplcError for a file that is none."""

    def __init__(self, path: Path):
        self.path = path
        try:
            self._file = zipfile.ZipFile(path)
            self.about = json.loads(self._file.read(CONTENTS))
        except (OSError, zipfile.BadZipFile, KeyError, ValueError) as error:
            raise DplcError(
                f"{path} is not a pack: {error}", hint="`dplc bench SUITE.. --pack FILE` writes one"
            ) from None
        if self.about.get("format") != FORMAT:
            raise DplcError(
                f"{path} is of format {self.about.get('format')}; this dplc reads {FORMAT}", hint="pack again"
            )
        self.cases = tuple(PackedCase.of(number, about) for number, about in enumerate(self.about["cases"]))
        self._includes: Path | None = None

    @property
    def arch(self) -> str:
        return str(self.about["arch"])

    def cubin(self, kernel: CudaKernel) -> bytes:
        return self._file.read(f"cubin/{kernel.text}.cubin")

    def text(self, kernel: CudaKernel) -> str:
        return self._file.read(f"cuda/{kernel.text}.cu").decode()

    def constant(self, digest: str) -> Any:
        """Return an array of the dtype that carries a constant's bits."""
        return np.load(io.BytesIO(self._file.read(f"constants/{digest}.npy")), allow_pickle=False)

    def includes(self) -> Path:
        """Return a folder with the headers that texts include."""
        if self._includes is None:
            folder = Path(tempfile.mkdtemp(prefix="dplc-pack-"))
            for name in self._file.namelist():
                if name.startswith("include/"):
                    (folder / Path(name).name).write_bytes(self._file.read(name))
            self._includes = folder
        return self._includes


def function_of(expression: str, names: tuple[str, ...]) -> Callable[..., Any]:
    """Return statements and a last expression over named inputs, as an ordinary function. Imports torch."""
    import torch

    tree = ast.parse(expression.strip())
    *statements, last = tree.body
    if not isinstance(last, ast.Expr):
        raise DplcError(f"`{expression}` ends with no expression")
    definition = ast.parse(f"def program({', '.join(names)}):\n    return None")
    made: Any = definition.body[0]
    made.body = [*statements, ast.copy_location(ast.Return(last.value), last)]
    scope: dict[str, Any] = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional, "math": math}
    exec(compile(ast.fix_missing_locations(definition), "<expression>", "exec"), scope)
    function: Callable[..., Any] = scope["program"]
    return function


def drawn(
    case: str, shapes: Mapping[str, Sequence[int]], spreads: Mapping[str, float], dtype: str, device: str = "cpu"
) -> dict[str, Any]:
    """Return {input: random values} of a case, the same in every run on one kind of device. Imports torch.

    spreads: standard deviations other than 1.
    """
    import torch

    made = {}
    for name, shape in shapes.items():
        generator = torch.Generator(device).manual_seed(zlib.crc32(f"{case}.{name}".encode()))
        values = torch.randn(shape, generator=generator, device=device) * spreads.get(name, 1.0)
        made[name] = values.to(getattr(torch, dtype))
    return made


def _buffers(records: list[dict[str, Any]]) -> tuple[Buffer, ...]:
    return tuple(Buffer(r["name"], r["dtype"], tuple(r["shape"])) for r in records)


def _kernel(record: Mapping[str, Any]) -> CudaKernel:
    params = []
    for p in record["params"]:
        box = p["box"] and Box(p["box"]["source"], tuple(p["box"]["sides"]), p["box"]["swizzle"])
        params.append(KernelParam(p["name"], p["dtype"], tuple(p["shape"]), p["role"], box))
    grid: Any = tuple(record["grid"])
    return CudaKernel(record["name"], record["text"], grid, record["block"], record["smem"], tuple(params))
