"""`dplc rules facts` and `dplc rules nodes`."""

from __future__ import annotations

import json

from command_line import Command

from dplc.codegen.target import devices, load_device
from dplc.engine.language.sorts import TARGET_FIELDS


def test_the_commands(ok: Command, dplc: Command) -> None:
    assert "every level" in ok("rules facts").out
    (shown,) = [line for line in ok("rules facts --level tile").out.splitlines() if line.startswith("ceildiv(")]
    assert shown.split() == ["ceildiv(int,", "int)", "->", "int", *["Divide", "a", "by", "b", "and", "round", "up."]]
    stage = ok("rules nodes Stage").out
    assert "ir/tile.py:" in stage and "depth    an integer, else 1" in stage
    (record,) = json.loads(ok("rules nodes Sync --json").out)
    assert record["fields"] == [] and record["kind"] == "statement"
    assert "rules/policy.rw:" in ok("rules facts grade_of_split").out


def test_facts_of_the_target_say_what_each_field_is(ok: Command) -> None:
    shown = ok("rules facts target").out
    lines = {line.split(":")[0].strip(" -"): line for line in shown.splitlines() if line.strip().startswith("- ")}
    assert TARGET_FIELDS.keys() <= lines.keys()
    assert all(load_device(name).name in lines[name] for name in devices())
