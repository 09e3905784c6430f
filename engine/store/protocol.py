"""What search, measurement and store say to each other. Data only: every struct is plain JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import msgspec

from ...codegen.target import Target
from ...ir.program import Kernel
from ..kernels.sharing import key_of_range, sizes_of
from ..language.rule import RuleSet
from .family import extents, family
from .tools import tools_of

Basis = Literal["predicted", "measured"]
Status = Literal["ok", "refused", "failed", "timeout", "wrong"]


class Decision(msgspec.Struct, frozen=True):
    """One firing: a pass of the pipeline by its label, a rule, a site, the values of the rule's parameters.

    site: the path from the module that holds this kernel alone, `0/1/2#1` (`#n`: the n-th way to match there).
    parameters: numbers, texts, lists; `#n` stands for the n-th parameter of the kernel, so that a schedule fits every
    kernel with the same structural key.
    """

    step: str
    rule: str
    site: str
    parameters: dict[str, Any] = {}


Schedule = tuple[Decision, ...]  # in the order of firing; a pass that is not named does nothing


Range = tuple[int, int, int]  # of a length: low, high, both included, and what it is a multiple of
PROGRAM = "program"  # the family of a program's key, under which its candidate of fusion is remembered


class TuningKey(msgspec.Struct, frozen=True):
    """What a schedule was found for. kernel: the structural key of its Loop IR; tools: versions that took part, by
    which entries are ordered and none is left out.

    rules: the digest of all rules that were offered. family, extents: the same kernel at other sizes (`family.py`). A
    length that is known at a call is in it as its range; the extents have its hint, where the schedule was judged;
    ranges: (low, high, multiple) of each such length, in the order in which the kernel mentions them.
    Of a program (family PROGRAM) kernel is the structural key of its values.
    """

    kernel: str
    device: str
    arch: str
    rules: str
    tools: str
    family: str = ""
    extents: tuple[int, ...] = ()
    ranges: tuple[Range, ...] = ()


def key_of(kernel: Kernel, target: Target, rules: RuleSet) -> TuningKey:
    """The key of a kernel of Loop IR."""
    where = target.name, target.arch
    known = key_of_range(kernel), *where, rules.digest, tools_of(target), family(kernel), extents(kernel)
    return TuningKey(*known, tuple((size.low, size.high, size.multiple) for size in sizes_of(kernel)))


class Score(msgspec.Struct, frozen=True):
    """What came of one candidate. refused: cannot be launched; failed: does not compile, or crashed.

    seconds: of all its kernels, where status is ok. basis: whether a model or a GPU says so. details: plain JSON.
    """

    seconds: float | None
    basis: Basis
    status: Status = "ok"
    detail: str = ""
    details: dict[str, Any] = {}


class Attempt(msgspec.Struct, frozen=True):
    """One try of a search. program: the structural key of the Tile IR that came out, "" if none did."""

    schedule: Schedule
    program: str
    score: Score
    search: str
    seed: int
    number: int


class Tuned(msgspec.Struct, frozen=True):
    """The best schedule of a kernel. checked: against float64, how (`emulator, whole`, `emulator, reduced extents`)."""

    schedule: Schedule
    seconds: float
    basis: Basis
    default_seconds: float
    search: str
    seed: int
    tries: int
    checked: str
    details: dict[str, Any] = {}


class TuningStore(Protocol):
    """Where schedules are remembered."""

    def get(self, key: TuningKey) -> Tuned | None:
        """The best schedule that is known to be right: a measured one before any predicted one."""

    def put(self, key: TuningKey, tuned: Tuned) -> bool:
        """Keep it if it is better than what is there on its own basis; measured replaces predicted. Whether it was."""

    def record(self, key: TuningKey, attempts: Sequence[Attempt]) -> None:
        """Remember attempts, good and bad."""

    def close(self) -> None: ...


class Evaluator(Protocol):
    """Says what a candidate (`space.Candidate`) takes."""

    @property
    def basis(self) -> Basis: ...

    def __call__(self, candidate: Any) -> Score: ...
