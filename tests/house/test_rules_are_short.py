"""A rule of a schedule is an equation on a page: how many lines it may have, without its examples."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dplc.engine.language.format import logical_lines
from dplc.engine.language.typed_slots import every
from dplc.ir.diagnostic import Source
from dplc.ir.text import equations as eq, syntax as s
from dplc.ir.text.parse import parse

MOST, MOST_OF_SIXTEEN = 40, 25
MOST_LETS, MOST_PARAMETERS, MOST_IFS = 8, 8, 2
RULES = Path(__file__).resolve().parents[2] / "rules"
FOLDER = RULES / "tile"
SIXTEEN = (  # in the order of their passes: a file, or FILE:RULE
    "axes/tileify", "blocks/chunk_matmul_k", "blocks/split_k:split_matmul_k", "rows/cooperative_reduce",
    "blocks/blockify_launch",
    "blocks/chunk_reduce", "memory/stage_inputs", "registers/register_tile", "registers/permute_register_tile",
    "pipelines/double_buffer", "memory/tma_copy", "memory/split_inner_for_swizzle", "memory/async_copy",
    "memory/pad_smem", "pipelines/rings:pipeline_k_outer", "axes/mark_unroll",
)  # fmt: skip
HEAD = re.compile(r"(?:override )?(rule|guards|form) (\w+)")
USE = re.compile(r"\s*(?:guards|form) (\w+)\(.*\)$")


class Declared(NamedTuple):
    """A rule, form or group of guards, with the forms and groups that it uses."""

    kind: str
    name: str
    text: str
    uses: frozenset[str]

    @property
    def lines(self) -> int:
        """How many lines it has, each counted once where the layout breaks it."""
        return len(logical_lines(self.text)[0])


def declared_in(path: Path) -> Iterator[Declared]:
    """Yield the declarations of a file. A blank line or an example ends a declaration."""
    lines: list[str] = []
    for line in (*path.read_text().splitlines(), ""):
        if line.strip() and not line.startswith("example "):
            lines.append(line)
            continue
        heads = [found for found in map(HEAD.match, lines) if found and not USE.match(found.string)]
        if heads:
            uses = frozenset(found[1] for found in map(USE.match, lines) if found)
            yield Declared(heads[0][1], heads[0][2], "\n".join(lines), uses)
        lines = []


def rules_of(entry: str) -> list[Declared]:
    """Return the rules of one of the sixteen transforms."""
    file, _, only = entry.partition(":")
    return [one for one in declared_in(FOLDER / f"{file}.rw") if one.kind == "rule" and only in ("", one.name)]


def test_rules_of_schedules_are_short() -> None:
    found = [(one.lines, one.name) for path in sorted(FOLDER.rglob("*.rw")) for one in declared_in(path)]
    assert len(found) > 80
    assert [one for one in found if one[0] > MOST] == []


def test_the_sixteen_are_shorter() -> None:
    found = [(rule.lines, rule.name) for entry in SIXTEEN for rule in rules_of(entry)]
    assert len(SIXTEEN) == 16 and len(found) > 16
    assert [one for one in found if one[0] > MOST_OF_SIXTEEN] == []


def examples_of(text: str) -> int:
    """How many lines of a rule file are examples."""
    inside, found = False, 0
    for line in text.splitlines():
        if line.strip() and not line[0].isspace():
            inside = line.startswith("example") or (inside and line.startswith("gives"))
        found += inside and bool(line.strip())
    return found


def test_examples_are_half_of_a_file_at_most() -> None:
    """The one that explains a rule stands in it; the others, and the refusals, in the file beside it."""
    for path in sorted(FOLDER.rglob("*.rw")):
        text = path.read_text()
        few = path.name.endswith(".examples.rw") or 2 * examples_of(text) <= len(text.splitlines())
        assert few, f"move some of {path.name} to {path.stem}.examples.rw"


def test_examples_are_counted() -> None:
    assert examples_of('rule r on tile\nexample "a"\n    pass\ngives\n    pass\n\nrule q on tile\n    pass\n') == 4


def test_a_long_rule_is_seen(tmp_path: Path) -> None:
    (tmp_path / "long.rw").write_text(
        "## Long.\nrule long on tile\n" + "    a = 1\n" * 40 + '\nexample "x"\n    b = 1\n'
    )
    assert [one.lines for one in declared_in(tmp_path / "long.rw")] == [42]


def thickets(path: Path) -> Iterator[str]:
    """Yield what is too much for a reader in a file: `let`s and parameters of a rule, a group of guards or a fact."""
    for one in parse(Source(path.name, path.read_text())):
        parts: tuple[s.Syntax, ...] = ()
        match one:
            case s.Rule(clauses=clauses):
                parts = clauses
            case eq.GuardGroup(body=body):
                parts = body
            case s.FactOf(value=s.LetExpression(lets=lets, value=value)):
                parts = (*lets, value)
            case s.FactOf(value=value):
                parts = (value,)
            case _:
                continue
        lets = sum(isinstance(part, s.LetClause) for part in parts)
        if lets > MOST_LETS:
            yield f"{one.name}: {lets} times `let`"
        if len(one.parameters) > MOST_PARAMETERS:
            yield f"{one.name}: {len(one.parameters)} parameters"
        for part in parts:
            asked = (*every(part, s.Choice), *(each for each in every(part, s.Comprehension) if each.condition))
            if not isinstance(part, s.Rewrite) and len(asked) > MOST_IFS:
                yield f"{one.name}: {len(asked)} times `if` in line {part.span.line}"


def test_no_rule_is_a_thicket() -> None:
    written = [path for path in sorted(RULES.rglob("*.rw")) if not path.name.endswith(".examples.rw")]
    assert [found for path in written for found in thickets(path)] == []


def test_a_thicket_is_seen(tmp_path: Path) -> None:
    lets = "".join(f"let a{n} = {n} if {n} > 2 else 1 if {n} > 1 else 0 if {n} > 0 else 3\n" for n in range(9))
    (tmp_path / "wild.rw").write_text(
        f"rule wild on tile\nmatch\n    body..\n{lets}rewrite\n    body..\n\n"
        'guards wide(a, b, c, d, e, f, g, h, i):\n    require a > b else "less"\n'
    )
    assert [found.partition(" in ")[0] for found in thickets(tmp_path / "wild.rw")] == [
        "wild: 9 times `let`", *["wild: 3 times `if`"] * 9, "wide: 9 parameters",
    ]  # fmt: skip
