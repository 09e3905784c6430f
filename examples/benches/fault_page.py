"""The records of judged faults as data, and the page of all runs for people."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from broken_copies import ROOT

EQUIVALENT = ROOT / "examples" / "suites" / "results" / "mutants" / "equivalent.json"
ANSWERED = ("the same", "rewritten")
GOOD = ("caught", *ANSWERED)
COLUMNS = ("caught", "second look", *ANSWERED, "survive")

PAGE = """# Faults put into the code

{total} faults in `engine`, `codegen` and `ir`, one at a time: {caught} are caught by the first tests that ran,
{since} at a second look, by tests that were written for them or by further ones; {same} mean the same and
{rewritten} stood in code that has been rewritten since
([why](equivalent.json)); **{left} survive**. Every fault with its verdict stands in [mutants.json](mutants.json).

{runs}

Do not edit: run the commands again.

{by_run}

{by_folder}

{again}{survivors}
"""
AGAIN = """On {date} `make test` catches {caught} of {drawn} faults, drawn from the {known} caught ones whose lines
are still there: `python examples/benches/open_faults.py --caught {drawn} --seed {seed}`.

"""
RUN = """- Seed {seed}, {date}: the first {judged} of {possible} possible faults, by `python examples/benches/mutants.py
  --count {judged} --seed {seed}{near} --write examples/suites/results/mutants`. {how}"""
REACHED = "Judged by the tests that run the changed block, which a run of all tests had found."
NEAR = """Judged by the files of tests nearest by name and by import:
  {near} by the first ones, for some 10 s of CPU (15 s for the first eight), {wider} by more of them, for 60 s at most,
  {named} by tests that somebody named for them (`--tests`; `open_faults.py`, in the code as it was by then).
  What `survives` had both; what is `unnoticed nearby` or
  `unreached nearby` had the first only."""


@dataclass(frozen=True)
class Judged:
    """The records of one seed. possible: how many faults there are. note: how they were judged, if not as usual."""

    seed: int
    near: bool
    possible: int
    faults: list[dict[str, Any]]
    date: str = ""
    note: str = ""


def verdicts(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records whose survivors have their answers. Faults are known by their lines of text; places move."""
    known = json.loads(EQUIVALENT.read_text()) if EQUIVALENT.exists() else []
    return [record | {"verdict": _answer(record, known) or record["verdict"]} for record in results]


def _answer(record: dict[str, Any], known: list[dict[str, str]]) -> str | None:
    if record["verdict"] == "caught":
        return None
    fits = (one for one in known if one["fault"] == _unplaced(record) and one.get("on") in (None, record.get("line")))
    return next(("rewritten" if "rewritten" in one else "the same" for one in fits), None)


def _unplaced(record: dict[str, Any]) -> str:
    file, _, _, change = record["fault"].split(":", 3)
    return f"{file}:{change}"


def write(folder: Path, judged: Judged) -> None:
    """The records as data, in place of those of the same seed, and a page for people."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = [{name: value for name, value in record.items() if name != "seconds"} for record in judged.faults]
    new = Judged(judged.seed, judged.near, judged.possible, kept, str(datetime.now(UTC).date()), judged.note)
    others = (run for run in known_runs(folder) if run.seed != new.seed)
    write_all(folder, sorted([*others, new], key=lambda run: run.seed))


def known_runs(folder: Path) -> list[Judged]:
    """The runs whose records are kept as data."""
    data = folder / "mutants.json"
    return [Judged(**one) for one in json.loads(data.read_text())["runs"]] if data.exists() else []


def write_all(folder: Path, runs: list[Judged]) -> None:
    """All runs as data, and the page."""
    (folder / "mutants.json").write_text(json.dumps({"runs": [run.__dict__ for run in runs]}, indent=1) + "\n")
    again = folder / "caught_again.json"
    said = AGAIN.format(**json.loads(again.read_text())) if again.exists() else ""
    (folder / "README.md").write_text(_page(runs, said))


def write_again(folder: Path, runs: list[Judged], **figures: int) -> None:
    """What became of faults that were caught once: seed, known, drawn, caught."""
    figures_of_today = {**figures, "date": str(datetime.now(UTC).date())}
    (folder / "caught_again.json").write_text(json.dumps(figures_of_today, indent=1) + "\n")
    write_all(folder, runs)


def _column(record: dict[str, Any]) -> str:
    if record["verdict"] == "caught":
        return "second look" if "at first" in record else "caught"
    return record["verdict"] if record["verdict"] in ANSWERED else "survive"


def _table(head: str, groups: dict[str, list[dict[str, Any]]]) -> str:
    rows = [f"| {head} | faults | {' | '.join(COLUMNS)} |", "|---" + "|---:" * (1 + len(COLUMNS)) + "|"]
    for name, records in groups.items():
        counts = Counter(map(_column, records))
        rows.append(f"| {name} | {len(records)} | " + " | ".join(str(counts[column]) for column in COLUMNS) + " |")
    return "\n".join(rows)


def _page(runs: list[Judged], again: str) -> str:
    folders: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for record in sorted((record for run in runs for record in run.faults), key=lambda record: record["folder"]):
        folders[record["folder"]].append(record)
    every = [record for records in folders.values() for record in records]
    counts = Counter(map(_column, every))
    left = [f"- {record['fault']}: {record['verdict']}" for record in every if _column(record) == "survive"]
    said = PAGE.format(
        total=len(every), caught=counts["caught"], since=counts["second look"], same=counts["the same"],
        rewritten=counts["rewritten"], left=counts["survive"], runs="\n".join(map(_told, runs)),
        by_run=_table("seed", {str(run.seed): run.faults for run in runs}), by_folder=_table("folder", folders),
        survivors="\n".join(left), again=again,
    )  # fmt: skip
    return said.rstrip() + "\n"


def _told(run: Judged) -> str:
    how = Counter(record.get("how") for record in run.faults)
    usual = NEAR.format(near=how["near"], wider=how["wider"], named=how["named"]) if run.near else REACHED
    return RUN.format(
        seed=run.seed, date=run.date, judged=len(run.faults), possible=run.possible, near=" --near" * run.near,
        how=run.note or usual,
    )  # fmt: skip
