"""Words of the language where a rule gives a name, axes without extents, sizes that are none: one message at its place each."""

from __future__ import annotations

from pathlib import Path

import pytest

from dplc.engine.language.check import check, errors
from dplc.engine.language.rule import load
from dplc.ir.diagnostic import DplcError

HEAD = "rule r on tile\nmatch\n    Tile(outer.., i:M=THREAD):\n        body..\n"
GUARD = 'require M > 7 else "few"\n'
ROW = HEAD + GUARD + "rewrite\n    Tile({}):\n        {}\n"
BODY = "Tile(outer.., i:M=THREAD):\n        body..\n"


def clause(text: str, guard: str = "require M > 7") -> str:
    return f'{HEAD}{text}\n{guard} else "few"\nrewrite\n    {BODY}'


def split(parts: str) -> str:
    return f"{HEAD}{GUARD}split i:M => {parts}\nrewrite\n    Tile(outer.., i_o, i):\n        body..\n"


def pattern(lines: str) -> str:
    return f"rule r on tile\nmatch\n    {lines}\nrewrite\n    {lines}\n"


LESS = "is a function, and no variable"
# The file, the place of its first error, and what that says.
MISTAKES = {
    "let": (clause("let less = 2", "require less < M"), "5:5", f"`less` {LESS}"),
    "pick": (clause("pick exp in [1, 2]", "require exp < M"), "5:6", f"`exp` {LESS}"),
    "a role": (clause("let REG = 2", "require REG < M"), "5:5", "`REG` is a role, and no variable"),
    "a dtype": (clause("let f32 = 2", "require f32 < M"), "5:5", "`f32` is a dtype, and no variable"),
    "a transport": (clause("let TMA = 2", "require TMA < M"), "5:5", "`TMA` is a transport, and no variable"),
    "a constant": (clause("let none = 2", "require none < M"), "5:5", "`none` is a constant, and no variable"),
    "the machine": (clause("let target = 2", "require target < M"), "5:5", "`target` is the machine, and no variable"),
    "a monoid": (clause("let online = 2", "require online < M"), "5:5", "`online` is a monoid, and no variable"),
    "a comprehension": (clause("let n = size([exp for exp in outer])", "require n < M"), "5:23", f"`exp` {LESS}"),
    "a weighing": (clause("let n = choose exp in [1, 2] minimising exp", "require n < M"), "5:16", f"`exp` {LESS}"),
    "a parameter": (clause("", "require add < M").replace("rule r", "rule r(add: int in {2} = 2)"), "1:8", f"`add` {LESS}"),
    "an extent": (ROW.replace("i:M", "i:add").format("outer.., i:4=REG", "body.."), "3:21", f"`add` {LESS}"),
    "an axis": (ROW.replace("i:M", "exp:M").format("outer.., _:M=REG", "body.."), "3:19", f"`exp` {LESS}"),
    "a run of axes": (ROW.replace("outer..", "add..").format("i:M=REG", "body.."), "3:10", f"`add` {LESS}"),
    "a value": ("rule r on tensor\nmatch\n    exp = tanh(x)\nrewrite\n    exp = sin(x)\n", "3:5", f"`exp` {LESS}"),
    "a value that is read": ("rule r on tensor\nmatch\n    y = tanh(exp)\nrewrite\n    y = sin(exp)\n", "3:14", f"`exp` {LESS}"),
    "a context": (pattern("inside add:\n        a = load B[i..]"), "3:12", f"`add` {LESS}"),
    "a captured statement": (pattern("add: Stage(depth=1)"), "3:5", f"`add` {LESS}"),
    "each": (ROW.format("outer.., i:M=THREAD", "each add in [1, 2]:\n            body.."), "8:14", f"`add` {LESS}"),
    "an arm": (ROW.format("outer.., i:M=THREAD", "body.. with load B[x..] => load C[x..] for add in [1] where B == add"), "8:52", f"`add` {LESS}"),
    "a let of a template": (ROW.format("outer.., i:M=THREAD", "let add = i + 1\n        body[i := add].."), "8:13", f"`add` {LESS}"),
    "a part": (split("add=BLOCK, i:4=THREAD"), "6:14", f"`add` {LESS}"),
    "guards": ('guards g(add):\n    require add > 1 else "few"\n\n' + clause("guards g(M)"), "1:10", f"`add` {LESS}"),
    "a form": ("form g(add, body):\n    for add in 0..4 serial:\n        body..\n\n" + ROW.format("outer..", "form g(q, body)"), "1:8", f"`add` {LESS}"),
    "a fact": ("fact two_of_it(add: int) -> int = add + 2\n\n" + clause("", "require two_of_it(M) > 7"), "1:16", f"`add` {LESS}"),
    "a bare axis": (ROW.format("outer.., i", "body.."), "7:19", "`axes` of `Tile` are axes, and this is a name"),
    "a bare sum": (ROW.format("outer.., i + 1", "body.."), "7:19", "`axes` of `Tile` are axes, and this is an expression"),
    "a bare number": (ROW.format("outer.., 4", "body.."), "3:19", "`i` is bound but never used"),
    "a bare axis of a shared tile": (ROW.format("outer.., i:M=THREAD", "P = SharedTile(i)\n        body.."), "8:24", "`box` of `SharedTile` are axes"),
    "statements among axes": (ROW.format("outer.., body.., i:M=THREAD", "body.."), "7:19", "`axes` of `Tile` are axes, and this is a run of statements"),
    "no value": (split("i_o=BLOCK, i:0=THREAD"), "6:27", "the part `i` has 0 values"),
    "fewer": (split("i_o=BLOCK, i:-4=THREAD"), "6:27", "the part `i` has -4 values"),
    "half a value": (split("i_o=BLOCK, i:2.5=THREAD"), "6:27", "the part `i` has 2.5 values"),
    "a text of values": (split('i_o=BLOCK, i:"a"=THREAD'), "6:27", 'the part `i` has "a" values'),
    "a number replaced": (ROW.format("outer.., i:M=THREAD", "body[4 := 5].."), "8:14", "a substitution replaces a variable"),
    "a fact of another sort": ("fact two_of_it(a: int) -> [int] = a\n\n" + clause("", "require size(two_of_it(M)) > 7"), "1:35", "fact `two_of_it`: what it gives is a list"),
    "a field of a number": ("fact two_of_it(a: int) -> int = a.extent\n\n" + clause("", "require two_of_it(M) > 7"), "1:33", "fact `two_of_it`: `.extent` is read from"),
}  # fmt: skip


def told(path: Path, text: str) -> str:
    """The first error of a file, as it is printed."""
    path.write_text(text)
    try:
        return errors(check(load([path]), {str(path)}))[0].render()
    except DplcError as error:
        return error.render()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes(tmp_path: Path, mistake: str) -> None:
    text, place, what = MISTAKES[mistake]
    found = told(tmp_path / "mine.rw", text).replace(f"{tmp_path}/", "")
    assert found.startswith(f"mine.rw:{place}: error: ") and what in found.split("\n")[0] and "^" in found, found


def test_a_variable_may_have_the_name_of_a_fact(tmp_path: Path) -> None:
    """Facts are called, variables are not: `let size = ..` beside `size(..)` says what it says."""
    file = tmp_path / "mine.rw"
    file.write_text(clause("let size = 3", "require size(loops(body)) < size"))
    assert errors(check(load([file]), {str(file)})) == []
