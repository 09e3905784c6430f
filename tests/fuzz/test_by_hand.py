"""Texts that people made up to break us: each is one error with its place, at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from counting import at_most_calls
from dumps import SIZED

from dplc.codegen.cuda import print_cuda
from dplc.codegen.target import target
from dplc.engine.cli.options import Flags, Subject
from dplc.engine.cli.programs import read_dump, rewrite_file
from dplc.engine.compiler import compiler_with
from dplc.engine.kernels.examples import read_subject, run_example
from dplc.engine.language.check import require
from dplc.engine.language.rule import RuleSet, read_rules
from dplc.engine.models.artefact import read_kernels
from dplc.engine.rewrite.statements.driver import Engine
from dplc.engine.ruleset import toolchain
from dplc.ir.diagnostic import DplcError, Source
from dplc.ir.text.parse import parse

RULE = """## A wait.
rule r{parameters} on tile
match
    Wait(keep=n)
{clauses}require n > 0  else "nothing waits"
rewrite
    Sync()
"""
PROGRAM = "kernel k(x: f32[4]) -> y: f32[4]:\n    Tile(i:4=THREAD):\n        Wait(keep=3)\n        y[i] = 1.0\n"
DOUBLED = "".join(f"let a{n + 1} = a{n} + a{n}\n" for n in range(60))
SQUARED = "".join(f"let a{n + 1} = a{n} * a{n}\n" for n in range(40))

RULES = {
    "a number of 5,000 digits": ("", f'require n < {"9" * 5000} else "large"\n'),
    "infinity by exponent": ("", 'require n < 1e400 else "large"\n'),
    "a lot of squarings": ("", f'let a0 = n\n{SQUARED}require a40 > 0 else "large"\n'),
    "a lot of doublings": ("", f'let a0 = [n, n]\n{DOUBLED}require size(a60) > 0 else "large"\n'),
    "a division by zero": ("", 'require 1 // 0 > 0 else "zero"\n'),
    "a remainder by zero": ("", 'let z = n % 0\nrequire z > 0   else "zero"\n'),
    "a long range": ("(N: int in 0..999999999999999 = 1)", 'require N > 0 else "positive"\n'),
}


@pytest.fixture(autouse=True, scope="module")
def _loaded_rules() -> None:
    """Load rules and facts, so that no test counts the calls of it."""
    toolchain()
    require(RuleSet([read_rules(Source("rules/tile/mine.rw", RULE.format(parameters="", clauses="")))]))


@pytest.mark.parametrize("name", RULES)
def test_rules(name: str) -> None:
    parameters, clauses = RULES[name]
    with at_most_calls(5_000_000), pytest.raises(DplcError) as told:
        rules = RuleSet([read_rules(Source("rules/tile/mine.rw", RULE.format(parameters=parameters, clauses=clauses)))])
        require(rules)
        Engine(rules, check=True).fire("r", read_subject(parse(Source("p", PROGRAM))), target("sm_80"))
    assert told.value.exit_code == 1
    assert told.value.render().startswith("rules/tile/mine.rw:") and "^" in told.value.render()


def test_subsets_of_a_long_list_end() -> None:
    items = ", ".join(map(str, range(1, 31)))
    text = RULE.format(parameters=f"(N: any in subsets([{items}]) = [1])", clauses='require size(N) > 0 else "none"\n')
    rules = RuleSet([read_rules(Source("rules/tile/mine.rw", text))])
    try:
        require(rules)
        Engine(rules, check=True).fire("r", read_subject(parse(Source("p", PROGRAM))), target("sm_80"))
    except DplcError as error:
        assert "mine.rw:" in error.render()


KERNEL = (
    "kernel k(x: f32[{extent}]) -> y: f32[4]:\n    for i in 0..4 free:\n        v = load x[{index}]\n        y[i] = v\n"
)
TILE = "kernel k(x: f32[4]) -> y: f32[4]:\n    Tile(i:4=BLOCK, {axes}):\n        v = load x[i]\n        y[i] = v\n"
GRAPH = "graph g(x: f32[{extent}]) -> y: f32[4]:\n    y[i:4] = {value}\n"
TORCH = "graph g(x: f32[4, 8]) -> y: {type}:\n    y: {type} = {op}\n"
TEXTS = {
    "a huge extent": KERNEL.format(extent="1e400", index="i"),
    "an extent that is not a whole number": KERNEL.format(extent="1.5", index="i"),
    "a negative extent": KERNEL.format(extent="-1", index="i"),
    "an index of a remainder by zero": KERNEL.format(extent="4", index="1 % 0"),
    "an index by zero": KERNEL.format(extent="4", index="i // 0"),
    "a float in index arithmetic": KERNEL.format(extent="4", index="i + 1.5"),
    "a graph's huge extent": GRAPH.format(extent="1e400", value="exp(x[i])"),
    "a graph's negative extent": GRAPH.format(extent="-1", value="exp(x[i])"),
    "a graph's remainder by zero": GRAPH.format(extent="4", value="exp(x[1 % 0])"),
    "a graph's float index": GRAPH.format(extent="4", value="exp(x[i + 1.5])"),
    "an unknown dtype": TORCH.format(type="f0[4, 8]", op="Exp(x)"),
    "a long unknown dtype": TORCH.format(type="f999999999999[4, 8]", op="Exp(x)"),
    "a dim that is not there": TORCH.format(type="f32[4, 8]", op="Softmax(x, dim=7)"),
    "a fraction of a dim": TORCH.format(type="f32[4, 8]", op="Softmax(x, dim=1.5)"),
    "another shape than torch's": TORCH.format(type="f32[4, 9]", op="Exp(x)"),
    "brackets in brackets": KERNEL.format(extent="4", index="(" * 5000 + "i" + ")" * 5000),
}


@pytest.mark.parametrize("name", TEXTS)
def test_programs(name: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.ir"
    path.write_text(TEXTS[name])
    with (
        at_most_calls(5_000_000),
        pytest.raises(DplcError, match="no dimension" if "dim that" in name else r"mine.ir") as told,
    ):
        rewrite_file(Flags(Subject("dump", (str(path),))), compiler_with(target("sm_80")), [])
    assert told.value.exit_code == 1


DUMPS = {
    "`y` is an output: a kernel reads its inputs": "## level: loop\n" + KERNEL.replace("load x[", "load y["),
    "axis `t` has no role or no extent": "## level: tile\n" + TILE.format(axes="t:f64=THREAD"),
}


@pytest.mark.parametrize("said", DUMPS)
def test_dumps(said: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.ir"
    path.write_text(DUMPS[said].format(extent="4", index="i"))
    with pytest.raises(DplcError, match=f"mine.ir.*{said}"):
        read_dump(path, {})


TORCH_RULE = """## A sum of one op.
rule total on torch
match
    y = Sum(x, dim=d)
let os = axes(x)
let k = at(os, d)
rewrite
    y[[os[n] for n in dims(none, size(os)) if n not in d]..] = {fold}
example "of rows"
    graph f(a: f32[2, 3]) -> y: f32[2]:
        y: f32[2] = Sum(a, dim=(1,))
gives
    graph f(a: f32[i:2, j:3]) -> y: f32[2]:
        y[i:2] = Reduce(add, j, a[i, j])
"""


def test_a_size_is_the_extent_of_a_block_axis_alone(tmp_path: Path) -> None:
    (path := tmp_path / "sized.ir").write_text(SIZED.replace("i:s=BLOCK", "i:s=THREAD"))
    with pytest.raises(DplcError, match="axis `i` has no role or no extent"):
        read_dump(path, {"s": 16})


@pytest.mark.parametrize("over", ["k", "0", "os[0] + 1", "k + 1"])
@pytest.mark.parametrize("fold", ["Reduce(add, {over}, x[os..])", "Fold(affine.h, {over}, (x[os..], x[os..]))"])
def test_what_a_fold_of_a_torch_rule_goes_over(fold: str, over: str) -> None:
    """A list without its dots, a number, a place: each is not an axis."""
    text = TORCH_RULE.format(fold=fold.format(over=over))
    rules = RuleSet([read_rules(Source("rules/torch/mine.rw", text))])
    (rule,) = rules.rules.values()
    with pytest.raises(DplcError, match=r"over axes|an index is") as told:
        run_example(Engine(rules), rule, rule.examples[0], target())
    assert told.value.exit_code == 1 and "mine.rw:8:" in told.value.render()


PLACES = {
    "Reduce(add, k.., Case({bad} < 1, x[os..], 0.0))": ("k", "d", "none", "k + 1"),
    "Reduce(add, k.., multiply(x[os..], f32(Index(1 - {bad}))))": ("k", "d"),
    "Reduce(add, k.., cast(x[os..], {bad}))": ("k", "os", "x", "k + 1"),
}


@pytest.mark.parametrize(("value", "bad"), [(value, bad) for value, every in PLACES.items() for bad in every])
def test_what_a_torch_rule_calculates_with(value: str, bad: str) -> None:
    """Lists where a place belongs, values where a dtype does."""
    rules = RuleSet([read_rules(Source("rules/torch/mine.rw", TORCH_RULE.format(fold=value.format(bad=bad))))])
    (rule,) = rules.rules.values()
    with pytest.raises(DplcError, match=r"axes and numbers|goes to a dtype|cannot be evaluated") as told:
        run_example(Engine(rules), rule, rule.examples[0], target())
    assert told.value.exit_code == 1 and "mine.rw:8:" in told.value.render()


ARTEFACT = """## level: kernel
kernel f(x: f32[{extent}]) -> y: f32[32]:
    Launch(grid=(1, 1, 1), block=32, shared=0):
        StoreTo(f32, Address(y, offset=thread), values=(1.0))
"""


@pytest.mark.parametrize("extent", ["c128", "n", "thread", "x < 2", "maximum(4, 2)"])
def test_the_extents_of_kernels_of_an_artefact(extent: str, tmp_path: Path) -> None:
    path = tmp_path / "kernel.ir"
    path.write_text(ARTEFACT.format(extent="32"))
    assert print_cuda(next(iter(read_kernels(path).values())))
    path.write_text(ARTEFACT.format(extent=extent))
    with pytest.raises(
        DplcError, match=r"the artefact is damaged: .*kernel `f`: `x` has an extent that is neither a number"
    ):
        read_kernels(path)
