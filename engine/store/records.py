"""Records of tuning: the data that searches, measurements and the store exchange. Each struct is plain JSON."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Protocol

import msgspec

from ...codegen.target import Target
from ...ir.loop import For
from ...ir.node import Expr, memoised, nodes
from ...ir.program import Kernel
from ...ir.sizes import at_hint
from ...version import __version__
from ..kernels.sharing import key_of_range, sizes_of, spelled
from ..language.rule import RuleSet

Basis = Literal["predicted", "measured"]
Status = Literal["ok", "refused", "failed", "timeout", "wrong"]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
Range = tuple[int, int, int]  # of a symbolic dimension: low, high (inclusive), and what it is a multiple of
PROGRAM = "program"  # the family of the keys of programs, under which fusion candidates are stored
MODEL = "model"
DIGITS = 16


def digest(*parts: str) -> str:
    """Return the digest of texts that the store compares."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:DIGITS]


class Decision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One rule application: a pass of the pipeline by its label, a rule, a site, the values of the rule's parameters.

    site: the path from a module that holds only this kernel, `0/1/2#1` (`#n`: the n-th match there).
    parameters: numbers, texts, lists. `#n` is the n-th parameter of the kernel, so that a schedule fits every kernel
    with the same structural key.
    """

    step: str
    rule: str
    site: str
    parameters: dict[str, Any] = {}


Schedule = tuple[Decision, ...]  # in the order of application; a pass that is not named does nothing


class TuningKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Key of a tuned kernel or program.

    kernel: structural key of the Loop IR, with the ranges of symbolic dimensions; for a program (family PROGRAM), the
    structural key of its values. rules: digest of all rules in force. tools: versions of dplc and of the device's
    model; they order entries and exclude none. family, extents: the same kernel with any sizes, and its sizes, where a
    symbolic dimension has its example value. ranges: of the symbolic dimensions, in the order in which the kernel
    mentions them.
    """

    kernel: str
    device: str
    arch: str
    rules: str
    tools: str
    family: str = ""
    extents: tuple[int, ...] = ()
    ranges: tuple[Range, ...] = ()


class Score(msgspec.Struct, frozen=True):
    """Result of one candidate. refused: cannot be launched; failed: does not compile, or crashed.

    seconds: sum over all kernels, if status is ok. basis: predicted by the model, or measured. details: plain JSON.
    """

    seconds: float | None
    basis: Basis
    status: Status = "ok"
    detail: str = ""
    details: dict[str, Any] = {}


class Attempt(msgspec.Struct, frozen=True):
    """One try of a search. program: structural key of the resulting Tile IR, or "" if there is none."""

    schedule: Schedule
    program: str
    score: Score
    search: str
    seed: int
    number: int


class Tuned(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Best schedule of a kernel. checked: how it was compared with float64, such as `emulator, whole`."""

    schedule: Schedule
    seconds: Seconds
    basis: Basis
    default_seconds: Seconds
    search: str
    seed: int
    tries: int
    checked: str
    details: dict[str, Any] = {}


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Row of the store and line of an export: the best known schedule of a key on one basis.

    used_rules: digests of the rules that the schedule depends on. own_rules: rules of the user that were offered.
    """

    key: TuningKey
    tuned: Tuned
    used_rules: dict[str, str]
    own_rules: tuple[str, ...]

    @property
    def place(self) -> tuple[str, ...]:
        """Sort key of an export, unique in a store: entries that use other rules do not replace each other."""
        key, used = self.key, sorted(self.used_rules.items())
        where = key.device, key.arch, key.family, key.kernel, self.tuned.basis, key.tools
        return *where, digest(*(f"{name}={rule}" for name, rule in used))

    def current(self, key: TuningKey) -> bool:
        """Return whether the tools are those of `key`. Measurements do not depend on the model."""
        if self.tuned.basis == "predicted":
            return self.key.tools == key.tools
        return self.key.tools.split("; ")[0] == key.tools.split("; ")[0]


class StoredAttempt(msgspec.Struct, frozen=True):
    """Row of the attempts."""

    key: TuningKey
    attempt: Attempt


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """One measured candidate, with the features that the cost model predicts it from.

    launches: the instruction counts of each kernel (`cost.features`). about: the tools that measured it.
    """

    kernel: str
    program: str
    device: str
    seconds: float
    launches: list[dict[str, Any]]
    about: str = ""


class Evaluator(Protocol):
    """Evaluator that scores a candidate (`space.ScheduleCandidate`)."""

    @property
    def basis(self) -> Basis: ...

    def __call__(self, candidate: Any) -> Score: ...


# ---- keys


def key_of(kernel: Kernel, target: Target, rules: RuleSet) -> TuningKey:
    """Return the key of a kernel of Loop IR."""
    where = target.name, target.arch
    known = key_of_range(kernel), *where, rules.digest, tools_of(target), family(kernel), extents(kernel)
    return TuningKey(*known, tuple((size.low, size.high, size.multiple) for size in sizes_of(kernel)))


@memoised
def family(kernel: Kernel) -> str:
    """Return a hash of the structure of a kernel without names and numbers. Dtypes count."""
    return spelled(kernel, lambda shape: str(len(shape)), _leaf)


def _leaf(value: Any) -> str:
    return "number" if value.__class__ in (int, float) else repr(value)


@memoised
def extents(kernel: Kernel) -> tuple[int, ...]:
    """Return the sizes of a kernel: dimensions of its buffers, ends of its loops; symbolic ones at their example."""
    known = map(at_hint, written_extents(kernel))
    return tuple(size if size.__class__ is int else 1 for size in known)


def written_extents(kernel: Kernel) -> tuple[Expr, ...]:
    """Return the sizes of a kernel as expressions. Every kernel of a family has as many."""
    sizes = [extent for param in (*kernel.ins, *kernel.outs) for extent in param.shape]
    return (*sizes, *(loop.stop for loop in nodes(kernel.body, For)))


def distance(one: Sequence[int], other: Sequence[int], farthest: float) -> float:
    """Return the distance of two shapes of a family: octaves, summed over the extents.

    It is infinite if one extent differs by more than `farthest` octaves.
    """
    if len(one) != len(other):
        return math.inf
    octaves = [abs(math.log2(max(a, 1) / max(b, 1))) for a, b in zip(one, other, strict=True)]
    return math.inf if any(octave > farthest for octave in octaves) else sum(octaves)


@functools.cache
def tools_of(target: Target) -> str:
    """Return the versions that a prediction depends on: `dplc 0.1.0; model DIGEST`.

    DIGEST is a digest of the device's constants.
    """
    known = dataclasses.asdict(target)
    constants = repr(sorted((name, value) for name, value in known.items() if name != "policy" or value))
    return f"dplc {__version__}; {MODEL} {digest(constants)}"


def scored_key(key: TuningKey, basis: Basis, details: dict[str, Any]) -> TuningKey:
    """Return the key with the tools that a figure depends on.

    A measurement depends on the assembler instead of the model.
    """
    if basis == "predicted":
        return key
    kept = [part for part in key.tools.split("; ") if not part.startswith(f"{MODEL} ")]
    tools = "; ".join(filter(None, (*kept, str(details.get("assembler", "")))))
    return msgspec.structs.replace(key, tools=tools)
