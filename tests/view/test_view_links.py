"""Every line of CUDA leads to the lines that it came from, in all IRs and in the user's text."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from view_programs import PROGRAMS

from dplc.engine.compiler import STAGES, Compilation
from dplc.engine.view.provenance import COLUMNS, column_records, columns, followed, lines_of
from dplc.ir.expr import Var
from dplc.ir.substitute import substitute

Compile = Callable[[str], Compilation]
Column = SimpleNamespace  # of a page
MADE_BY_RULES = re.compile(r"\b(Sync|Wait|Put)\(")  # nothing of the program is behind a barrier


def linked(compiled: Compile, text: str) -> list[Column]:
    return [Column(**record) for record in column_records(columns(compiled(text)))]


def origins_of(found: list[Column], place: int, line: int, to: int) -> set[int]:
    """The lines of another column that a line came from."""
    lines = {line}
    for column in range(place, to, -1):
        lines = {above for one in lines for above in found[column].up[one]}
    return lines


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sampled(2)
def test_the_text_of_every_column_is_the_dump(name: str, compiled: Compile) -> None:
    compilation = compiled(PROGRAMS[name][0])
    found = linked(compiled, PROGRAMS[name][0])
    assert [column.name for column in found] == list(COLUMNS)
    for column in found[1:]:
        assert "\n".join(column.lines).strip() == compilation.ir(column.name).strip()
    assert found[0].lines == PROGRAMS[name][0].splitlines()
    for above, below in itertools.pairwise(found):
        assert len(below.lines) == len(below.up) == len(below.made)
        assert all(0 <= line < len(above.lines) for links in below.up for line in links)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sampled(2)
def test_functions_lead_to_the_lines_that_asked_for_them(name: str, compiled: Compile) -> None:
    text, expected = PROGRAMS[name]
    found = linked(compiled, text)
    cuda = found[-1]
    called = [{function for function in expected if re.search(rf"\b{function}\(", line)} for line in cuda.lines]
    assert set().union(*called) == expected.keys(), f"the kernels of {name}"
    for place, functions in enumerate(called):  # a line may call several
        if functions:
            sources = {line + 1 for line in origins_of(found, len(found) - 1, place, 0)}
            wanted = set().union(*(expected[function] for function in functions))
            assert sources == wanted, f"{cuda.lines[place].strip()} leads to {sorted(sources)}"


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sampled(2)
def test_no_line_is_without_a_source_but_barriers(name: str, compiled: Compile) -> None:
    for column in linked(compiled, PROGRAMS[name][0])[2:]:
        for line, up in zip(column.lines, column.up, strict=True):
            plain = not line.strip() or line.startswith(("##", "kernel ", "graph "))
            if not plain and not MADE_BY_RULES.search(line):
                assert up, f"{column.name}: {line}"


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sampled(2)
def test_every_op_that_computes_leads_to_cuda(name: str, compiled: Compile) -> None:
    found = linked(compiled, PROGRAMS[name][0])
    cuda = len(found) - 1
    reached = {line for n in range(len(found[cuda].lines)) for line in origins_of(found, cuda, n, 1)}
    for number, line in enumerate(found[1].lines):
        if number > 1 and "Transpose(" not in line:  # which only renames what its readers read
            assert number in reached, line


def test_names_that_passes_keep_are_linked_to_themselves(compiled: Compile) -> None:
    """What a statement defines in Loop IR and in Tile IR under one name is one value."""
    for text, _ in PROGRAMS.values():
        found = linked(compiled, text)
        loop, tile = found[COLUMNS.index("loop")], found[COLUMNS.index("tile")]
        for place, line in enumerate(tile.lines):
            defined = re.match(r"\s+(\w+) <- ", line)
            if defined and any(re.match(rf"\s+{defined[1]} <- ", source) for source in loop.lines):
                sources = [loop.lines[n] for n in tile.up[place]]
                assert any(re.match(rf"\s+{defined[1]} <- ", source) for source in sources), line


def test_a_part_that_a_rule_made_leads_to_what_it_is_a_part_of(compiled: Compile) -> None:
    """A reciprocal to the division, and an exponential to the one it came from: not to what they read."""
    found = linked(compiled, PROGRAMS["attention"][0])
    tile, tensor = COLUMNS.index("tile"), COLUMNS.index("tensor")
    for made, asked in (("= reciprocal(", "= divide("), ("p1 = exp(", "= exp(")):
        places = [n for n, line in enumerate(found[tile].lines) if made in line]
        assert places
        for place in places:
            sources = [found[tensor].lines[n] for n in origins_of(found, tile, place, tensor)]
            assert any(asked in source for source in sources), found[tile].lines[place]


def test_rules_that_shaped_a_line_changed_it(compiled: Compile) -> None:
    """Each event of a line is a firing; the Tile has those that gave it its axes."""
    compilation = compiled(PROGRAMS["rmsnorm"][0])
    events = compilation.events
    tile = linked(compiled, PROGRAMS["rmsnorm"][0])[COLUMNS.index("tile")]
    (head,) = [n for n, line in enumerate(tile.lines) if "Tile(" in line]
    assert "tileify" in {events[number].rule for number in tile.made[head]}
    assert all(events[number].record()["event"] == "fired" for made in tile.made for number in made)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sampled(2)
def test_a_value_names_the_torch_rule_that_made_it(name: str, compiled: Compile) -> None:
    """All that came of an op, not its result alone; whatever algebra made of it since."""
    compilation = compiled(PROGRAMS[name][0])
    events = compilation.events
    found = {column.name: column for column in linked(compiled, PROGRAMS[name][0])}
    tensor = found["tensor"]
    for line, (made, up) in enumerate(zip(tensor.made, tensor.up, strict=True)):
        if up:
            assert "d" in {events[number].prefix for number in made}, tensor.lines[line]


def test_a_renamed_kernel_keeps_its_links(compiled: Compile) -> None:
    """As a schedule out of the store is renamed where its new names are taken."""
    compilation = compiled("torch.randn(16, 8192) @ torch.randn(8192, 16)")
    first = {kernel: lines_of(kernel) for kernel in compilation.plan.kernels}
    renamed = substitute(compilation.tile, {name: Var("new") for name in (compilation.tile[0].name, "part")})
    made, again = (
        [[line.made for line in lines] for _, lines in followed(first, compilation.events, kernels)]
        for kernels in (compilation.tile, renamed)
    )
    assert made == again and all(map(any, made))


def test_stages_are_columns() -> None:
    assert COLUMNS[1:] == STAGES
