"""Every line of CUDA leads to the lines that it came from, in all IRs and in the user's text."""

from __future__ import annotations

import itertools
import re
from types import SimpleNamespace

import pytest
from view_programs import ATTENTION, PROGRAMS, RMSNORM, compiled

from dplc.engine.compiler import STAGES
from dplc.engine.view.provenance import COLUMNS, column_records, columns, followed, lines_of
from dplc.ir.expr import Var
from dplc.ir.substitute import substitute

Column = SimpleNamespace  # of a page
MADE_BY_RULES = re.compile(r"\b(Sync|Wait|Put)\(")  # nothing of the program is behind a barrier
SOURCE, TORCH, TENSOR, LOOP, TILE, _, CUDA = range(len(COLUMNS))


def linked(text: str) -> list[Column]:
    return [Column(**record) for record in column_records(columns(compiled(text)))]


def origins_of(found: list[Column], place: int, line: int, to: int) -> set[int]:
    """The lines of another column that a line came from."""
    lines = {line}
    for column in range(place, to, -1):
        lines = {above for one in lines for above in found[column].up[one]}
    return lines


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_line_has_its_text_and_its_origins(name: str) -> None:
    text, _ = PROGRAMS[name]
    compilation, found = compiled(text), linked(text)
    assert [column.name for column in found] == list(COLUMNS) == ["source", *STAGES]
    assert found[SOURCE].lines == text.splitlines()
    for above, below in itertools.pairwise(found):
        assert "\n".join(below.lines).strip() == compilation.ir(below.name).strip()
        assert len(below.lines) == len(below.up) == len(below.made)
        assert all(0 <= line < len(above.lines) for links in below.up for line in links)
        for line, up in zip(below.lines, below.up, strict=True):
            plain = not line.strip() or line.startswith(("##", "kernel ", "graph ")) or MADE_BY_RULES.search(line)
            assert up or plain or below.name == "torch", f"{below.name}: {line}"
    tensor, loop, tile = found[TENSOR], found[LOOP], found[TILE]
    for made, up in zip(tensor.made, tensor.up, strict=True):  # whatever algebra made of a value since, torch made it
        assert not up or "d" in {compilation.events[number].prefix for number in made}
    for line, up in zip(tile.lines, tile.up, strict=True):
        if defined := re.match(r"\s+\w+ <- ", line):  # one value, if Loop IR defines the name, too
            same = {n for n, source in enumerate(loop.lines) if source.strip().startswith(defined[0].strip())}
            assert not same or same & {*up}, line


@pytest.mark.parametrize("name", PROGRAMS)
def test_functions_lead_to_the_lines_that_asked_for_them(name: str) -> None:
    text, expected = PROGRAMS[name]
    found, called, reached = linked(text), set[str](), set[int]()
    for place, line in enumerate(found[CUDA].lines):
        functions = {function for function in expected if re.search(rf"\b{function}\(", line)}
        if functions:  # a line may call several
            sources = {source + 1 for source in origins_of(found, CUDA, place, SOURCE)}
            assert sources == set().union(*(expected[function] for function in functions)), line
        called |= functions
        reached |= origins_of(found, CUDA, place, TORCH)
    assert called == expected.keys()
    for number, line in enumerate(found[TORCH].lines[2:], 2):  # a transposition only renames what its readers read
        assert number in reached or "Transpose(" in line, line


def test_a_part_that_a_rule_made_leads_to_what_it_is_a_part_of() -> None:
    """A reciprocal to the division, and an exponential to the one it came from: not to what they read."""
    found = linked(ATTENTION)
    for made, asked in (("= reciprocal(", "= divide("), ("p1 = exp(", "= exp(")):
        places = [n for n, line in enumerate(found[TILE].lines) if made in line]
        assert places
        for place in places:
            sources = [found[TENSOR].lines[n] for n in origins_of(found, TILE, place, TENSOR)]
            assert any(asked in source for source in sources), found[TILE].lines[place]


def test_rules_that_shaped_a_line_changed_it() -> None:
    """Each event of a line is a firing; the Tile has those that gave it its axes."""
    events, tile = compiled(RMSNORM).events, linked(RMSNORM)[TILE]
    (head,) = [n for n, line in enumerate(tile.lines) if "Tile(" in line]
    assert "tileify" in {events[number].rule for number in tile.made[head]}
    assert all(events[number].record()["event"] == "fired" for made in tile.made for number in made)


def test_a_renamed_kernel_keeps_its_links() -> None:
    """As a schedule out of the store is renamed where its new names are taken."""
    compilation = compiled("torch.randn(16, 8192) @ torch.randn(8192, 16)")
    first = {kernel: lines_of(kernel) for kernel in compilation.plan.kernels}
    renamed = substitute(compilation.tile, {name: Var("new") for name in (compilation.tile[0].name, "part")})
    made, again = (
        [[line.made for line in lines] for _, lines in followed(first, compilation.events, kernels)]
        for kernels in (compilation.tile, renamed)
    )
    assert made == again and all(map(any, made))
