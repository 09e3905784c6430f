"""An entry of the store as data: a row of the table, a line of an export."""

from __future__ import annotations

import hashlib
import sqlite3
from typing import Annotated, Any

import msgspec

from .protocol import Attempt, Basis, Range, Schedule, Score, Tuned, TuningKey
from .tools import measured_with

Seconds = Annotated[float, msgspec.Meta(gt=0, le=1e9)]


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The best schedule that is known for a key on one basis. seconds are measured or predicted, as `basis` says.

    used_rules: {rule: digest} of what the schedule depends on; own_rules: of users, offered beside the built-in ones.
    ranges: of the lengths that are known at a call, as of `TuningKey`.
    """

    kernel: str
    family: str
    extents: tuple[int, ...]
    device: str
    arch: str
    tools: str
    rules: str
    used_rules: dict[str, str]
    own_rules: tuple[str, ...]
    basis: Basis
    seconds: Seconds
    default_seconds: Seconds
    schedule: Schedule
    search: str
    seed: int
    tries: int
    checked: str
    details: dict[str, Any] = {}
    ranges: tuple[Range, ...] = ()

    @property
    def used(self) -> str:
        """A digest of `used_rules`: entries that depend on other rules stand beside one another."""
        written = ";".join(f"{name}={digest}" for name, digest in sorted(self.used_rules.items()))
        return hashlib.sha256(written.encode()).hexdigest()[:16]

    @property
    def sort_key(self) -> tuple[str, ...]:
        """What orders an export: it is unique in a store."""
        return self.device, self.family, self.kernel, self.basis, self.tools, self.used

    @property
    def key(self) -> TuningKey:
        found = self.family, self.extents, self.ranges
        return TuningKey(self.kernel, self.device, self.arch, self.rules, self.tools, *found)

    @property
    def tuned(self) -> Tuned:
        return Tuned(
            self.schedule, self.seconds, self.basis, self.default_seconds, self.search, self.seed, self.tries,
            self.checked, self.details,
        )  # fmt: skip

    def current(self, key: TuningKey) -> bool:
        """Whether the tools are those of today. A measurement does not depend on the model, nor a replay on NVRTC."""
        if self.basis == "predicted":
            return self.tools == key.tools
        return self.tools.split("; ")[0] == key.tools.split("; ")[0]


def entry_of(key: TuningKey, tuned: Tuned, used_rules: dict[str, str], own_rules: tuple[str, ...]) -> Entry:
    """What a search found, as an entry."""
    tools = key.tools
    if tuned.basis == "measured":
        tools = measured_with(tools, str(tuned.details.get("assembler", "")))
    return Entry(
        kernel=key.kernel, family=key.family, extents=key.extents, device=key.device, arch=key.arch, tools=tools,
        rules=key.rules, used_rules=used_rules, own_rules=own_rules, basis=tuned.basis, seconds=tuned.seconds,
        default_seconds=tuned.default_seconds, schedule=tuned.schedule, search=tuned.search, seed=tuned.seed,
        tries=tuned.tries, checked=tuned.checked, details=tuned.details, ranges=key.ranges,
    )  # fmt: skip


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """One measured candidate, with the features that the cost model predicts it from.

    launches: the instruction counts of each of its kernels (`cost.features`). about: where the figure comes
    from.
    """

    kernel: str
    program: str
    device: str
    seconds: float
    launches: list[dict[str, Any]]
    about: str = ""


# ---- rows

COLUMNS = (
    "kernel", "family", "extents", "device", "arch", "tools", "rules", "used", "used_rules", "own_rules", "basis",
    "seconds", "default_seconds", "schedule", "search", "seed", "tries", "checked", "details", "updated", "ranges",
)  # fmt: skip
ATTEMPT_COLUMNS = (
    "kernel", "device", "arch", "tools", "rules", "program", "basis", "status", "seconds", "detail", "details",
    "schedule", "search", "seed", "number", "updated",
)  # fmt: skip
_JSON = frozenset(("extents", "ranges", "used_rules", "own_rules", "schedule", "details"))


def to_row(entry: Entry, now: int) -> tuple[Any, ...]:
    """The values of COLUMNS. now: seconds since 1970."""
    beside = {"used": entry.used, "updated": now}
    return tuple(beside[name] if name in beside else _put(name, getattr(entry, name)) for name in COLUMNS)


def from_row(row: sqlite3.Row) -> Entry:
    """The entry of a row. Raises msgspec.MsgspecError, RecursionError, UnicodeDecodeError for anything else."""
    values = {name: _get(name, row[name]) for name in COLUMNS if name not in ("used", "updated")}
    return msgspec.convert(values, Entry)


def attempt_row(key: TuningKey, attempt: Attempt, now: int) -> tuple[Any, ...]:
    """The values of ATTEMPT_COLUMNS."""
    score: Score = attempt.score
    tools = key.tools
    if score.basis == "measured":
        tools = measured_with(tools, str(score.details.get("assembler", "")))
    return (
        key.kernel, key.device, key.arch, tools, key.rules, attempt.program, score.basis, score.status, score.seconds,
        score.detail, _put("details", score.details), _put("schedule", attempt.schedule), attempt.search, attempt.seed,
        attempt.number, now,
    )  # fmt: skip


def _put(name: str, value: Any) -> Any:
    return msgspec.json.encode(value, order="deterministic").decode() if name in _JSON else value


def _get(name: str, value: Any) -> Any:
    if name not in _JSON:
        return value
    if not isinstance(value, str | bytes):
        raise msgspec.ValidationError(f"`{name}` is no text")
    return msgspec.json.decode(value)
