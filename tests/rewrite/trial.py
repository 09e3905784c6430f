"""Small rules on small programs: read, fire, print."""

from __future__ import annotations

from typing import Any

from choices import pinned

from dplc.codegen.target import target
from dplc.engine.kernels.examples import read_subject
from dplc.engine.language.check import load_facts
from dplc.engine.language.rule import RuleSet, read_rules
from dplc.engine.rewrite.statements.driver import Engine
from dplc.ir.diagnostic import Source
from dplc.ir.text.parse import parse
from dplc.ir.text.print_statements import print_block
from dplc.ir.text.programs import print_program, read_program

load_facts()
TARGET = target("sm_80")
NAMELESS = "rule x on tile\nmatch\n{}\nrewrite\n    pass\n"


def engine(*texts: str, **options: Any) -> Engine:
    """An engine for rule files given as text; the n-th is `rules/tile/00n_test.rw`."""
    files = [read_rules(Source(f"rules/tile/{n:03}_test{n}.rw", text)) for n, text in enumerate(texts, 1)]
    return Engine(RuleSet(files), check=True, **options)


def block(text: str) -> Any:
    """A program: kernels, or statements that get a kernel of their own."""
    if text.lstrip().startswith("kernel"):
        return read_program(text, sizes=None)[1]
    (rule,) = parse(Source("subject", NAMELESS.format(indent(text))))
    return read_subject(rule.clauses[0].body)  # type: ignore[attr-defined]


def indent(text: str) -> str:
    lines = text.strip("\n").splitlines()
    margin = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    return "\n".join("    " + line[margin:] for line in lines)


def text(program: Any) -> str:
    """The statements of a nameless kernel, or the whole program."""
    if len(program) == 1 and program[0].name == "example":
        return print_block(program[0].body)
    return print_program(program).rstrip("\n")


def plain(source: str) -> str:
    return text(block(source))


def fire(rules: str, program: str, name: str | None = None, **parameters: Any) -> str:
    """The program after one pass: the first rule's, unless named."""
    made = engine(rules)
    name = name or next(iter(made.rules.rules))
    return text(made.fire(pinned(made.step(name), parameters), block(program), TARGET))


def matches(pattern: str, program: str, level: str = "tile", clauses: str = "") -> list[dict[str, Any]]:
    """What the variables of a pattern are bound to at every place where it matches."""
    made = engine(f"rule p on {level}\nmatch\n{indent(pattern)}\n{clauses}rewrite\n    pass\n")
    found = []
    for match in made.sites("p", block(program), TARGET):
        found.append({k: v for k, v in match.env.items() if not k.startswith("@") and k != "target"})
    return found


def refusal(rules: str, program: str, name: str | None = None, **pinned: Any) -> list[str]:
    made = engine(rules)
    name = name or next(iter(made.rules.rules))
    return [reason.render() for reason in made.why_not(name, block(program), TARGET, pinned)]
