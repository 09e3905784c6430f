"""`dplc rules fmt`: one layout. It says the same, comments stay, and laid out twice it is laid out once."""

from __future__ import annotations

import functools
import random
import re
from pathlib import Path

import pytest
from drawing import draws, some

from dplc.engine.language import format
from dplc.engine.language.format import formatted
from dplc.engine.language.rule import BUILT_IN
from dplc.engine.language.typed_slots import plain
from dplc.ir.diagnostic import DplcError, Source
from dplc.ir.text.parse import parse

OURS = sorted(BUILT_IN.rglob("*.rw"))

MESSY = """\
# What the file is about.


##   A sum,  twice.
##     y = x
@repeat
rule twice( N:int in {1,2}=1 )   on tensor   # a head
match
  # above the pattern
  z=multiply( exp( x ),exp(y) )  # beside
let a=1e-5*N
require size( axes(x) )>0 else "a number"


require size(
    # inside of brackets
    axes(y)) > 0
        else "another"
rewrite
        z=exp(add(x,y))
     # the end of the block
example "one"
  graph g(x:f32[4],y:f32[4])->z:f32[4]:
    z[i:4]=multiply(exp(x[i]),exp(y[i]))
# before what it gives
gives
  graph g(x:f32[4],y:f32[4])->z:f32[4]:
    z[i:4]=exp(add(x[i],y[i]))
without  other
without another
# the end
"""
NEAT = """\
# What the file is about.

##   A sum,  twice.
##     y = x
@repeat
rule twice(N: int in {1, 2} = 1) on tensor  # a head
match
    # above the pattern
    z = multiply(exp(x), exp(y))  # beside
let a = 1e-5*N
require size(axes(x)) > 0                        else "a number"

# inside of brackets
require size(axes(y)) > 0                        else "another"
rewrite
    z = exp(add(x, y))
    # the end of the block
example "one"
    graph g(x: f32[4], y: f32[4]) -> z: f32[4]:
        z[i:4] = multiply(exp(x[i]), exp(y[i]))
# before what it gives
gives
    graph g(x: f32[4], y: f32[4]) -> z: f32[4]:
        z[i:4] = exp(add(x[i], y[i]))

without other
without another
# the end
"""


def comments(text: str) -> list[str]:
    found = []
    for line in text.splitlines():
        bare = line.strip() if line.strip().startswith("#") else re.sub(r'"[^"]*"', "", line)
        if "#" in bare and not bare.startswith("##"):
            found.append(bare[bare.index("#") :].rstrip())
    return found


def test_a_messy_file() -> None:
    assert formatted(Source("mine.rw", MESSY)) == NEAT
    assert formatted(Source("mine.rw", NEAT)) == NEAT


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.stem)
@pytest.mark.sampled(5)
def test_files_of_ours_are_laid_out(path: Path) -> None:
    text = path.read_text()
    assert formatted(Source(path.name, text)) == text


def crumpled(text: str, seed: int) -> str:
    """The same file in another layout: spaces, blank lines, comments, widths of blocks."""
    draw = random.Random(seed)
    width = draw.choice((1, 2, 3, 8))
    out, depth = [], 0
    for line in text.splitlines():
        if draw.random() < 0.15 and depth == 0:
            out += draw.choice(([""], ["", ""], [f"{' ' * draw.randrange(6)}# {draw.random()}"]))
        bare = line.strip()
        if bare.startswith("#"):
            out.append(line)
            continue
        lead = " " * (width * ((len(line) - len(bare)) // 4)) if depth == 0 else " " * draw.randrange(9)
        parts = re.split(r'("[^"]*")', bare)
        parts[::2] = [re.sub(r"(?<=[,(]) ?", " " * draw.randrange(3), part) for part in parts[::2]]
        changed = "".join(parts) + draw.choice(("", "  ", f"  # {draw.random()}"))
        code = "".join(parts[::2])
        depth += sum(map(code.count, "([{")) - sum(map(code.count, ")]}"))
        out.append(lead + changed)
    return "\n".join(out) + "\n"


@pytest.mark.parametrize("path", some(OURS, 6), ids=lambda path: path.stem)
@pytest.mark.sampled(6)
def test_any_layout_becomes_the_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(format, "parse", functools.cache(parse))  # a text that is laid out twice is parsed once
    text = path.read_text()
    for seed in range(draws(1)):
        other = crumpled(text, seed)
        neat = formatted(Source("other.rw", other))
        assert formatted(Source("other.rw", neat)) == neat
        assert sorted(" ".join(comments(neat)).split()) == sorted(" ".join(comments(other)).split())
        assert [line.strip() for line in neat.splitlines() if not re.match(r"\s*#(?!#)|\s*$", line)] or not text
    assert plain(format.parse(Source("other.rw", neat))) == plain(parse(Source("b.rw", text)))


AND = " and ".join(f"condition{n}" for n in range(40))
NAMES = ", ".join(f"name{n}" for n in range(40))
ROWS = ", ".join(f"(Exp, name{n})" for n in range(40))
PARAMETERS = ", ".join(f"P{n}: int in {{1, 2}} = 1" for n in range(9))

WORDS = [f"a_name_of_several_words{n}" for n in range(5)]
REASON = f'"{"long " * 20}"'


@pytest.mark.parametrize(
    "text",
    [
        f"rule r on tile\nmatch\n    pass\nlet a = f(\n  {NAMES})\nrewrite\n    pass\n",
        f"rule r on tile\nmatch\n    pass\nrequire {AND} else {REASON}\nrewrite\n    pass\n",
        f"rule r(a, b) for {ROWS} on torch\nmatch\n    pass\nrewrite\n    pass\n",
        f"rule r({PARAMETERS}) on tile\nmatch\n    pass\nrewrite\n    pass\n",
        f"fact is_long({NAMES.replace(',', ': int,')}: int) -> bool = {AND} for h200\n",
        f"fact is_long(n: int) -> int = ({WORDS[0]} if f(n) == {WORDS[1]} else {WORDS[2]}) if n > 1 else "
        f"{WORDS[3]} if n > 2 else {WORDS[4]}\n",
        f"fact is_long(n: int) -> bool:\n    let all = [{AND} for n in ks]\n    f({AND})\n",
        f"number most_long = ({NAMES}) because {REASON}\n",
    ],
)
def test_a_long_line_is_broken_within_the_width(text: str) -> None:
    neat = formatted(Source("a.rw", text))
    assert max(map(len, neat.splitlines())) <= format.WIDTH
    assert neat.count("\n") > text.count("\n")
    assert formatted(Source("b.rw", neat)) == neat


def test_lines_of_our_rule_files_fit_the_width() -> None:
    long = {path.name: max(map(len, path.read_text().splitlines())) for path in OURS if path.read_text()}
    assert {name: width for name, width in long.items() if width > format.WIDTH} == {}


def test_a_file_that_does_not_parse_is_refused_with_a_caret() -> None:
    with pytest.raises(DplcError, match=r"broken\.rw:2:"):
        formatted(Source("broken.rw", "rule r on tile\nmatsch\n"))
