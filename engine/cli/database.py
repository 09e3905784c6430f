"""`dplc db`: stats, list, show."""

from __future__ import annotations

from collections import Counter

from ...ir.diagnostic import DplcError, UsageError, did_you_mean
from ..store.store import (
    Entry,
    SqliteStore,
    TuningKey,
    default_path,
)
from .options import Flags
from .output import print_json, print_remark, print_rows, write, write_lines

SHOWN = 12  # characters of a key in a list
LONGEST = 60  # of a value: a candidate of fusion is many nodes


def _opened(flags: Flags) -> SqliteStore:
    """Open the store of `--db`. Raises DplcError if it is missing or unreadable."""
    file = flags.db or default_path()
    if not file.exists():
        raise DplcError(f"there is no tuning store {file}", hint="`dplc tune` makes one")
    return SqliteStore(file, strict=True)


def _entries(flags: Flags) -> list[Entry]:
    """Return the entries in order, only those of one device if its name or a part of it is given."""
    with _opened(flags) as store:
        entries = sorted(store.select(), key=lambda entry: entry.place)
    device = (flags.device or "").lower()
    kept = [entry for entry in entries if device in entry.key.device.lower()]
    if entries and not kept:
        print_remark(f"nothing in the store is for {flags.device}")
    return kept


def stats(flags: Flags) -> None:
    """Run `dplc db stats`."""
    with _opened(flags) as store:
        entries = store.select()
    devices = sorted(Counter((entry.key.device, entry.tuned.basis) for entry in entries).items())
    kernels, size = len({entry.key.kernel for entry in entries}), store.path.stat().st_size
    if flags.as_json:
        rows = [{"device": device, "basis": basis, "entries": count} for (device, basis), count in devices]
        print_json({"file": str(store.path), "bytes": size, "kernels": kernels, "devices": rows})
        return
    write_lines(
        f"{store.path}: {size} bytes",
        f"{kernels} kernels, {len(entries)} schedules",
        *(f"  {device}: {count} {basis}" for (device, basis), count in devices),
    )


def list_entries(flags: Flags) -> None:
    """Run `dplc db list`."""
    rows = (
        (
            key.kernel[:SHOWN], key.device, f"{tuned.seconds * 1e6:9.4g} us {tuned.basis}",
            f"{tuned.default_seconds / tuned.seconds:5.2f}x of default",
            ("x".join(map(str, dict.fromkeys(key.extents))) or key.family) + _lengths(key),
            f"{tuned.search}, {tuned.tries} tries",
        )
        for key, tuned in ((entry.key, entry.tuned) for entry in _entries(flags))
    )  # fmt: skip
    print_rows(("",) * 6, rows)


def _lengths(key: TuningKey) -> str:
    """Return ` for 17..40` for a kernel with symbolic dimensions."""
    ranges = (f"{low}..{high}" + (f" by {step}" if step > 1 else "") for low, high, step in key.ranges)
    return f" for {', '.join(ranges)}" if key.ranges else ""


def show(flags: Flags) -> None:
    """Run `dplc db show`."""
    kernel, entries = flags.name, _entries(flags)
    found = [entry for entry in entries if entry.key.kernel.startswith(kernel)]
    if not found:
        keys = {entry.key.kernel[:SHOWN] for entry in entries}
        raise UsageError(f"no kernel of the store begins with `{kernel}`", hint=did_you_mean(kernel[:SHOWN], keys))
    write("\n".join(map(_text, found)))


def _text(entry: Entry) -> str:
    key, tuned = entry.key, entry.tuned
    lines = [
        f"kernel {key.kernel}, family {key.family}, extents {' '.join(map(str, key.extents))}{_lengths(key)}",
        f"  {key.device} ({key.arch}), {key.tools}",
        f"  {tuned.seconds * 1e6:.4g} us {tuned.basis}; default order {tuned.default_seconds * 1e6:.4g} us",
        f"  found by {tuned.search}, seed {tuned.seed}, {tuned.tries} tries; checked: {tuned.checked or 'no'}",
        *(f"  {name}: {value}" for name, value in sorted(tuned.details.items())),
    ]
    for decision in tuned.schedule:
        texts = ((name, str(value)) for name, value in decision.parameters.items())
        values = ", ".join(f"{name}={text[:LONGEST]}{'..' * (len(text) > LONGEST)}" for name, text in texts)
        lines.append(f"    {decision.step}: {decision.rule} at {decision.site}{f' ({values})' if values else ''}")
    return "\n".join(lines) + "\n"
