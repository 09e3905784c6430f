"""The tuning store: records, keys, the digests of rules that entries depend on, and one SQLite file per user.

    $DPLC_CACHE_DIR/tuning.sqlite, else in the user's cache directory for dplc; `--db FILE` names another

All processes that tune or compile share the file. Each record is plain JSON.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import math
import os
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, dataclass_transform

import msgspec

from ...codegen.cache import cache_directory
from ...codegen.target import Target
from ...ir.diagnostic import DplcError, InternalError
from ...ir.loop import For
from ...ir.node import Expr, memoised, nodes
from ...ir.program import Kernel
from ...ir.sizes import at_hint
from ...version import __version__
from ..kernels.sharing import key_of_range, sizes_of, spelled
from ..language import core as s
from ..language.rule import Rule, RuleSet, built_in_files
from ..language.typed_slots import calls
from ..rewrite.terms.rewriter import mentions_mat

Basis = Literal["predicted", "measured"]
Status = Literal["ok", "refused", "failed", "timeout", "wrong"]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
Range = tuple[int, int, int]  # of a symbolic dimension: low, high (inclusive), and what it is a multiple of
PROGRAM = "program"  # the family of the keys of programs, under which fusion candidates are stored
DIGITS = 16


def digest(*parts: str) -> str:
    """Return the digest of texts that the store compares."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:DIGITS]


@dataclass_transform(frozen_default=True)
class FrozenRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of records that are written as JSON: immutable, and of exactly their fields."""


class Decision(FrozenRecord):
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


class TuningKey(FrozenRecord):
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


class Score(FrozenRecord):
    """Result of one candidate. refused: cannot be launched; failed: does not compile, or crashed.

    seconds: sum over all kernels, if status is ok. basis: predicted by the model, or measured. details: plain JSON.
    """

    seconds: float | None
    basis: Basis
    status: Status = "ok"
    detail: str = ""
    details: dict[str, Any] = {}


class Tuned(FrozenRecord):
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


class Entry(FrozenRecord, kw_only=True):
    """Row of the store: the best known schedule of a key on one basis.

    used_rules: digests of the rules that the schedule depends on. own_rules: rules of the user that were offered.
    """

    key: TuningKey
    tuned: Tuned
    used_rules: dict[str, str]
    own_rules: tuple[str, ...]

    @property
    def place(self) -> tuple[str, ...]:
        """Sort key, unique in a store: entries that use other rules do not replace each other."""
        key, used = self.key, (f"{name}={rule}" for name, rule in sorted(self.used_rules.items()))
        return key.device, key.arch, key.family, key.kernel, self.tuned.basis, key.tools, digest(*used)

    def current(self, key: TuningKey) -> bool:
        """Return whether the tools are those of `key`. Measurements do not depend on the model."""
        most = None if self.tuned.basis == "predicted" else 1
        return self.key.tools.split("; ")[:most] == key.tools.split("; ")[:most]


class Evaluator(Protocol):
    """Evaluator that scores a candidate (`space.ScheduleCandidate`)."""

    @property
    def basis(self) -> Basis: ...

    def __call__(self, candidate: Any) -> Score: ...


# ---- keys


def key_of(kernel: Kernel, target: Target, rules: RuleSet) -> TuningKey:
    """Return the key of a kernel of Loop IR."""
    return TuningKey(
        key_of_range(kernel), target.name, target.arch, rules.digest, tools_of(target), family(kernel), extents(kernel),
        tuple((size.low, size.high, size.multiple) for size in sizes_of(kernel)),
    )  # fmt: skip


@memoised
def family(kernel: Kernel) -> str:
    """Return a hash of the structure of a kernel without names and numbers. Dtypes count."""
    return spelled(
        kernel,
        lambda shape: str(len(shape)),
        lambda value: "number" if value.__class__ in (int, float) else repr(value),
    )


@memoised
def extents(kernel: Kernel) -> tuple[int, ...]:
    """Return the sizes of a kernel: dimensions of its buffers, ends of its loops; symbolic ones at their example."""
    return tuple(size if size.__class__ is int else 1 for size in map(at_hint, written_extents(kernel)))


def written_extents(kernel: Kernel) -> tuple[Expr, ...]:
    """Return the sizes of a kernel as expressions. Every kernel of a family has as many."""
    sizes = [extent for param in kernel.params for extent in param.shape]
    return (*sizes, *(loop.stop for loop in nodes(kernel.body, For)))


def distance(one: Sequence[int], other: Sequence[int], farthest: float) -> float:
    """Return the distance of two shapes of a family: octaves, summed over the extents.

    It is infinite if one extent differs by more than `farthest` octaves.
    """
    if len(one) != len(other):
        return math.inf
    octaves = [abs(math.log2(max(a, 1) / max(b, 1))) for a, b in zip(one, other, strict=True)]
    return math.inf if max(octaves, default=0) > farthest else sum(octaves)


@functools.cache
def tools_of(target: Target) -> str:
    """Return the versions that a prediction depends on: `dplc 0.1.0; model DIGEST`.

    DIGEST is a digest of the device's constants.
    """
    constants = sorted((name, value) for name, value in dataclasses.asdict(target).items() if name != "policy" or value)
    return f"dplc {__version__}; model {digest(repr(constants))}"


def scored_key(key: TuningKey, scored: Score | Tuned) -> TuningKey:
    """Return the key with the tools that a figure depends on.

    A measurement depends on the assembler instead of the model.
    """
    if scored.basis == "predicted":
        return key
    tools = key.tools.split("; ")[0], str(scored.details.get("assembler", ""))
    return msgspec.structs.replace(key, tools="; ".join(filter(None, tools)))


# ---- Digests of the rules that a recorded schedule depends on.
#
# An edit of a rule file invalidates the entries whose schedule it can change:
#
# - An edit of a rule that fires in the schedule, or of a `local` rule that its template calls, does: in its pattern,
#   guards, template or parameters, with the policy numbers that it reads.
# - Every schedule depends on all canonical rules, because they may run after any rule; on the passes that make the
#   first Tile of a kernel, because their rules fire by default and are not recorded; and on rules and passes of Kernel
#   IR.
# - An edit of a rule that was offered and did not fire does not, nor does the order of the passes of Tile IR. The
#   schedule itself lists its rules in order. It may no longer be the best one, so a search starts again.
# - Rules of the levels above change the kernel and so its key. A stored fusion candidate names the algebra that proves
#   it and depends on all rules for stores.
# - Documentation, examples, reasons, and the position in the file do not matter, nor do facts in Python, the code
#   generator and the model: a replay checks every guard again.
# - A user's rule that the search was never offered invalidates an entry, and so does a rule or pass that a user's file
#   removes. Otherwise a new rule would never fire next to a store.


CANONICAL, TILING, LOWERING = "(canonical rules)", "(loop rules)", "(kernel rules)"
FUSING = "(fusion rules)"


class RuleDigests:
    """Digests of the rules in force, each computed from its meaning at the first request."""

    def __init__(self, rules: RuleSet):
        self.rules = rules
        ours = set(map(id, built_in_files()))
        added = [file for file in rules.files if id(file) not in ours]
        offered = [rule for file in added for rule in rules.in_force(file.rules)]
        self.own = frozenset(rule.name for rule in offered if rule.level in ("module", "loop", "tile", "kernel"))
        self.own_values = frozenset(rule.name for rule in offered if rule.level == "tensor")
        names = {written.name for file in added for written in file.without}
        self.taken_out = names.union(rule.name for name in names for rule in rules.passes.get(name, ()))

    def offered(self, program: bool) -> frozenset[str]:
        """Return the rules of the user that a search was offered.

        Rules on values are among them only if it chose among fusion variants.
        """
        return self.own | self.own_values if program else self.own

    def used(self, schedule: Schedule) -> dict[str, str]:
        """Return {rule: digest} of all rules that a schedule depends on, without removed rules."""
        names = (CANONICAL, TILING, LOWERING, *sorted({decision.rule for decision in schedule}))
        return {name: known for name in names if (known := self.digest(name)) is not None}

    @functools.cache  # noqa: B019 - as long-lived as the rules
    def digest(self, name: str) -> str | None:
        """Return the digest of a rule, of CANONICAL, TILING, LOWERING or FUSING; None for a rule that is not there."""
        rules = self.rules
        members: Iterable[Rule]
        further: Iterable[str] = ()
        if name == CANONICAL:
            members = rules.canonical
        elif name == TILING:  # every pass that has a rule on loop nests without a Tile
            passes = (members for _, members in sorted(rules.passes.items()) if any(map(_makes_tiles, members)))
            members = itertools.chain.from_iterable(passes)
        elif name == LOWERING:
            members = rules.at("kernel")
            order = [p for file in rules.files for p in file.pipelines if p.name == "kernel"]
            further = spelled_syntax(order), *self._gone(members)
        elif name == FUSING:
            members = [rule for rule in rules.at("tensor") if mentions_mat(rule)]
            further = self._gone(members)
        elif name in rules.rules and name not in self.taken_out:
            members = (rules.rules[name],)
        else:
            return None
        return digest(*map(self._text, members), *further)

    def _gone(self, members: Iterable[Rule]) -> list[str]:
        return sorted(self.taken_out & {rule.name for rule in members})

    def _text(self, rule: Rule, above: frozenset[str] = frozenset()) -> str:
        """Return the text of a rule and of the local rules that it calls."""
        above |= {rule.name}
        parts = (sorted(rule.attributes), rule.level, rule.parameters, rule.match, rule.clauses, rule.rewrite)
        called = map(self.rules.rules.get, sorted({call.fn for call in calls(rule.rewrite)} - above))
        local = (self._text(found, above) for found in called if found and "local" in found.attributes)
        return "\n".join((spelled_syntax(parts), *local))


digests_of = functools.lru_cache(maxsize=8)(RuleDigests)  # the last few are cached


def spelled_syntax(value: object) -> str:
    """Return syntax as text, without locations, documentation and reasons."""
    if isinstance(value, s.Syntax):
        fields = (f.name for f in dataclasses.fields(value) if f.name not in ("span", "reason", "docs"))
        return f"{type(value).__name__}({', '.join(spelled_syntax(getattr(value, name)) for name in fields)})"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(spelled_syntax, value))}]"
    return repr(value)


def _makes_tiles(rule: Rule) -> bool:
    return rule.level in ("module", "loop") and all(call.fn != "Tile" for call in calls(rule.match))


# ---- The file.
#
# Every result is one transaction, so that a killed process loses nothing that it stored. If the file cannot be read or
# written (a full disk, a damaged file, another version), one line says so and searches and compiles go on without it.
# dplc never deletes or overwrites a file that it cannot read.
#
# An entry is found by the structural key of its kernel and the device. It is valid as long as the rules that its
# schedule depends on are unchanged, with the policy numbers that they read (above), because a replay checks each
# step again. The tools (version of dplc, model of the device, assembler) only order valid entries: those of the present
# tools first. Predicted and measured entries are never compared.


UNFINISHED = "unfinished"  # in the details of an entry: tries of a search that has not ended
PATIENCE = 30.0  # seconds that a tuner waits for another one
APPLICATION = 0x64706C63  # "dplc", in the header of the file
VERSION = 1
# entry: the record as JSON. The other columns are for look-ups; `place` is the position of the entry.
TABLES = (
    """CREATE TABLE entries (
        id INTEGER PRIMARY KEY, kernel TEXT NOT NULL, device TEXT NOT NULL, arch TEXT NOT NULL, family TEXT NOT NULL,
        extents TEXT NOT NULL, place TEXT NOT NULL UNIQUE, entry TEXT NOT NULL
    )""",
    "CREATE INDEX entries_by_kernel ON entries (kernel, device, arch)",
    "CREATE INDEX entries_by_family ON entries (family, device, arch)",
    f"PRAGMA user_version = {VERSION}",
    f"PRAGMA application_id = {APPLICATION}",
)
Unreadable = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, TypeError)
# UnicodeDecodeError: SQLite quotes a damaged file in its message, which need not be text.
Failure = (sqlite3.Error, OSError, UnicodeDecodeError)


def default_path() -> Path:
    """Return the default path of the store. The file may be missing."""
    return cache_directory() / "tuning.sqlite"


class SqliteStore:
    """Store of searches, open for writing. The file is created if it is missing. Opening it never raises.

    Args:
        path: the file; None for the default path.
        rules: the rules in force, which decide what is valid. Without them, only entries of equal rules are.
        say: gets each problem once, as one line.
        strict: raise DplcError for a file that cannot be used, instead of going on without it.
    """

    def __init__(
        self, path: Path | None = None, rules: RuleSet | None = None, say: Callable[[str], None] | None = None,
        patience: float = PATIENCE, strict: bool = False,
    ):  # fmt: skip
        self.path, self.patience, self.strict = path or default_path(), patience, strict
        self.say_once = functools.cache(say or functools.partial(print, file=sys.stderr, flush=True))
        self.digests = digests_of(rules) if rules is not None else None
        self._connection: sqlite3.Connection | None = None
        with self._told():
            self._open()

    def get(self, key: TuningKey) -> Tuned | None:
        """Return the best valid schedule: a measured one before any predicted one."""
        return next((entry.tuned for entry in self.valid(self.exact(key), key)), None)

    def put(self, key: TuningKey, tuned: Tuned) -> bool:
        """Store a schedule if it is better than the valid ones of its basis. Return whether it was stored."""
        if not 0 < tuned.seconds < math.inf:
            raise InternalError(f"{tuned.seconds} seconds is not a time of a kernel")
        used = self.digests.used(tuned.schedule) if self.digests is not None else {}
        own = self.digests.offered(key.family == PROGRAM) if self.digests is not None else ()
        key = scored_key(key, tuned)
        entry = Entry(key=key, tuned=tuned, used_rules=used, own_rules=tuple(sorted(own)))

        with self._told(), transaction(self._open()) as db:
            same = [
                one for one in self._rows(db, kernel=key.kernel, device=key.device, arch=key.arch)
                if (one.tuned.basis, one.key.tools) == (tuned.basis, key.tools) and self.holds(one, key.rules)
            ]  # fmt: skip
            known = [(one.tuned.seconds, UNFINISHED in one.tuned.details) for one in same]
            if any(there <= (tuned.seconds, False) for there in known):  # as fast, by a search that has ended
                return False
            db.executemany("DELETE FROM entries WHERE place = ?", [(_json(one.place),) for one in same])
            row = key.kernel, key.device, key.arch, key.family, *map(_json, (key.extents, entry.place, entry))
            db.execute("INSERT OR REPLACE INTO entries VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)", row)
            return True
        return False

    def close(self) -> None:
        """Close the file. The store may be used again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> SqliteStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- entries
    def exact(self, key: TuningKey) -> list[Entry]:
        """Return every entry of this kernel on this device, with any rules and tools."""
        return self.select(kernel=key.kernel, device=key.device, arch=key.arch)

    def has_family(self, family: str, device: str, arch: str) -> bool:
        """Return whether there is an entry of a family for a device."""
        with self._told():
            return next(self._rows(self._open(), family=family, device=device, arch=arch), None) is not None
        return False

    def family(self, key: TuningKey) -> list[Entry]:
        """Return every entry of the family of this kernel on this device, at any extents."""
        return self.select(family=key.family, device=key.device, arch=key.arch)

    def valid(self, entries: Iterable[Entry], key: TuningKey) -> list[Entry]:
        """Return the entries that hold under the rules in force, best first: measured, present tools, fastest."""
        held = (entry for entry in entries if self.holds(entry, key.rules))
        return sorted(held, key=lambda one: (one.tuned.basis == "predicted", not one.current(key), one.tuned.seconds))

    def holds(self, entry: Entry, rules: str) -> bool:
        """Return whether the used rules are unchanged and the search was offered every rule of the user.

        rules: digest of all rules in force.
        """
        if self.digests is None or entry.key.rules == rules or not entry.used_rules:
            return entry.key.rules == rules
        if not self.digests.offered(entry.key.family == PROGRAM) <= set(entry.own_rules):
            return False
        return all(self.digests.digest(name) == known for name, known in entry.used_rules.items())

    def select(self, **columns: str) -> list[Entry]:
        """Return the entries that have these values in columns, none if the store cannot be read."""
        with self._told():
            return list(self._rows(self._open(), **columns))
        return []

    def _rows(self, db: sqlite3.Connection, **columns: str) -> Iterator[Entry]:
        """Yield the entries with these values. A damaged row does not make the others useless: a line reports it."""
        where = " AND ".join(f"{name} = ?" for name in columns) or "1"
        rows = db.execute(f"SELECT id, entry FROM entries WHERE {where} ORDER BY id", tuple(columns.values()))
        for number, text in rows:
            try:
                yield msgspec.json.decode(text, type=Entry)
            except Unreadable as error:
                self.say_once(f"note: entry {number} of the tuning store {self.path} is damaged and left out: {error}")

    # ---- the file
    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Leave the block after a line if the file cannot be used. Raises DplcError instead if the store is strict."""
        try:
            yield
        except Failure as error:
            problem = f"the tuning store {self.path} cannot be used: {reason(error)}"
            if self.strict:
                raise DplcError(problem) from None
            self.say_once(f"warning: {problem}; going on without it")

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = connect(self.path, self.patience)
        return self._connection


def reason(error: BaseException) -> str:
    """Return the problem with a store as text."""
    text = str(error) or type(error).__name__
    known = {
        "file is not a database": "the file is damaged, or no database: move it away",
        "malformed": "the file is damaged: move it away",
        "codec can't decode": "the file is damaged: move it away",
        "full": "the disk is full",
        "disk I/O error": "the disk is full or broken",
        "locked": "another process holds it",
        "readonly": "it cannot be written",
    }
    return next((meaning for part, meaning in known.items() if part in text), text)


def connect(path: Path, patience: float) -> sqlite3.Connection:
    """Connect to the store, and create its tables if the file is new. Raises sqlite3.Error."""
    readonly = path.exists() and not os.access(path, os.W_OK)
    address = path.absolute().as_uri() + ("?mode=ro&immutable=1" if readonly else "")
    db = sqlite3.connect(address, timeout=patience, isolation_level=None, check_same_thread=False, uri=True)
    try:
        if _version(db) != (VERSION, APPLICATION):
            with transaction(db):
                _prepare(db)
            with contextlib.suppress(sqlite3.OperationalError):  # another process has the file: it stays as it is
                db.execute("PRAGMA journal_mode = WAL")  # readers never wait, and commits are quick
        if not readonly:
            db.execute("PRAGMA synchronous = NORMAL")
    except BaseException:
        db.close()
        raise
    return db


def _version(db: sqlite3.Connection) -> tuple[int, ...]:
    return tuple(db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("user_version", "application_id"))


def _prepare(db: sqlite3.Connection) -> None:
    """Create the tables of an empty file, unless another process was faster.

    Raises sqlite3.DatabaseError for any file that is not a store of this version.
    """
    if _version(db) == (0, 0) and not db.execute("SELECT 1 FROM sqlite_master").fetchone():
        for command in TABLES:
            db.execute(command)
    version, application = _version(db)
    if application != APPLICATION:
        raise sqlite3.DatabaseError("it is a database of something else")
    if version != VERSION:
        raise sqlite3.DatabaseError(f"it has version {version}, this dplc knows {VERSION}: move it away")


@contextlib.contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Do everything inside, or nothing. Raises sqlite3.Error."""
    db.execute("BEGIN IMMEDIATE")
    with db:
        yield db


def _json(value: object) -> str:
    return msgspec.json.encode(value, order="deterministic").decode()
