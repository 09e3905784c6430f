"""PyTorch's own samples of its operators, and what dplc makes of one: right, refused by name, wrong, or a crash."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils import _pytree as pytree

from dplc.codegen.target import target
from dplc.engine.api import Compiled
from dplc.engine.capture.capture import capture
from dplc.engine.capture.signature import parts_of
from dplc.engine.compiler import compiler_with
from dplc.engine.run.calls import judge_program
from dplc.ir.diagnostic import INTERNAL, DplcError

DTYPES = (
    torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
    torch.bool,
)  # fmt: skip
# What they give is drawn, or nobody defines it.
UNDEFINED = ("empty", "rand", "dropout", "bernoulli", "multinomial", "normal", "uniform", "exponential", "geometric",
             "log_normal", "cauchy", "rrelu", "resize_")  # fmt: skip
RIGHT, REFUSED, WRONG, CRASHED, INVALID = "right", "refused", "wrong", "crashed", "invalid"


@dataclass(frozen=True)
class Sample:
    """The n-th call of an operator that PyTorch tests with a dtype."""

    operator: str
    dtype: torch.dtype
    place: int
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.operator}-{str(self.dtype).removeprefix('torch.')}-{self.place}"

    @property
    def lot(self) -> float:
        """A number from 0 to 1 that only the name decides."""
        return lot(self.name)


@dataclass(frozen=True)
class Verdict:
    word: str
    why: str = ""


def lot(name: str, seed: int = 0) -> float:
    return zlib.crc32(f"{seed or ''}{name}".encode()) / 2**32


def operators(share: float = 1.0, seed: int = 0) -> Iterator[tuple[OpInfo, torch.dtype]]:
    """The operators whose values are defined, in PyTorch's order, with their dtypes; a share of these pairs, by lot."""
    for op in op_db:
        for dtype in DTYPES:
            undefined = any(word in op.formatted_name for word in UNDEFINED)
            if (
                dtype in op.supported_dtypes("cpu")
                and not undefined
                and lot(f"{op.formatted_name} of {dtype}", seed) < share
            ):
                yield op, dtype


def samples(only: str | None = None, share: float = 1.0, dtypes: Sequence[torch.dtype] = DTYPES) -> Iterator[Sample]:
    """All of them in PyTorch's order, the same values in every process. only: one operator, by name."""
    for op, dtype in operators(share):
        if only in (None, op.formatted_name) and dtype in dtypes:
            torch.manual_seed(0)
            for place, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=False)):
                arguments = (sample.input, *sample.args)
                yield Sample(op.formatted_name, dtype, place, op.op, arguments, dict(sample.kwargs))


def judge(sample: Sample) -> Verdict:
    """Captured, compiled, run on the emulator and compared with float64."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, of its own samples
        return _judged(sample)


def _judged(sample: Sample) -> Verdict:
    given = pytree.tree_map_only(torch.Tensor, torch.clone, (sample.arguments, sample.keywords))
    try:
        eager = _tensors(sample.function(*given[0], **given[1]))
    except Exception as error:  # a sample that PyTorch itself refuses
        return Verdict(INVALID, str(error))
    try:
        captured = capture(sample.function, sample.arguments, sample.keywords)
        compilation = compiler_with(target()).compile(captured)
        results = Compiled(compilation, "emulator").run({})
    except DplcError as error:
        return Verdict(CRASHED if error.exit_code == INTERNAL else REFUSED, _text(error))
    except Exception as error:
        return Verdict(CRASHED, f"{type(error).__name__}: {error}")
    returned = _tensors(captured.signature.pack(results))
    if len(returned) != len(eager):
        return Verdict(WRONG, f"{len(returned)} results for {len(eager)}")
    for got, want in zip(returned, eager, strict=True):
        if (got.dtype, got.shape) != (want.dtype, want.shape):
            return Verdict(WRONG, f"{got.dtype} {tuple(got.shape)} for {want.dtype} {tuple(want.shape)}")
    captured = compilation.captured
    # what has no elements is not an output of the program, complex numbers are pairs there
    beside = [parts_of(want) if want.is_complex() else want for want in eager if want.numel()]
    found = judge_program(captured, captured.tensors, results, beside, compilation.target)
    return Verdict(RIGHT) if found.ok else Verdict(WRONG, str(found))


def _tensors(value: Any) -> list[Any]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _text(error: DplcError) -> str:
    return "; ".join((error.what, *error.notes))
