"""All rules as a static site: a page for every file of rules, for the nodes, the facts and the policy, and a search.

    for path, text in pages(load()).items(): ...

Links are between files of the site alone, so that it opens from a folder.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...ir import kernel as kernel_nodes
from ...ir import loop as loop_nodes
from ...ir import tensor as tensor_nodes
from ...ir import tile as tile_nodes
from ...ir.node import Node
from ...ir.text.print_statements import print_value
from ..language import core as s
from ..language.check import load_facts
from ..language.facts import FACTS
from ..language.format import format_fact, format_number, format_rule
from ..language.numbers import format_value
from ..language.pipeline import PassStep, pipelines
from ..language.rule import Rule, RuleSet
from ..language.spelling import block, expression
from .lexer import RuleLexer
from .server import embedded

FOLDER = Path(__file__).with_name("site")
LEVELS = {"tensor": tensor_nodes, "loop": loop_nodes, "tile": tile_nodes, "kernel": kernel_nodes}
# (case of a suite, firings, predicted speed-up) of each rule
Fired = Mapping[str, Sequence[tuple[str, int, float]]]


def pages(rules: RuleSet, fired: Fired | None = None, suite: str = "") -> dict[str, str]:
    """Return {path in the site: text}. fired: firings by case of the suite of this name, if it was compiled."""
    load_facts()
    steps = pipelines(rules)
    places, known = _places(steps), frozenset(where for _, _, where, _ in _words(rules))
    files: dict[str, list[Rule]] = {}
    for rule in rules.rules.values():
        files.setdefault(rule.file, []).append(rule)
    made = {
        f"rules/{stem}.html": _render(
            "rules.html",
            title=stem,
            root="../",
            rules=[_rule(r, rules, places, fired, known) for r in found],
            suite=suite,
        )
        for stem, found in files.items()
    }
    made["index.html"] = _render("index.html", title="Rules", root="", pipelines=_order(steps), count=len(rules.rules))
    made["nodes.html"] = _render("nodes.html", title="Nodes", root="", levels=_nodes())
    made["facts.html"] = _render("facts.html", title="Facts", root="", facts=_facts(), written=_written_facts(rules))
    made["policy.html"] = _render("policy.html", title="Policy", root="", numbers=_numbers(rules))
    made["style.css"] = _style()
    made["search.js"] = f"const WORDS = {embedded(_words(rules))};\n" + (FOLDER / "search.js").read_text()
    return made


def _render(template: str, **values: Any) -> str:
    import jinja2

    loader = jinja2.FileSystemLoader(FOLDER)
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, loader=loader)
    return environment.get_template(template).render(**values)


# ---- what the pages say


def _rule(
    rule: Rule, rules: RuleSet, places: Mapping[str, list[dict[str, Any]]], fired: Fired | None,
    known: frozenset[str],
) -> dict[str, Any]:  # fmt: skip
    written = rules.written.get(rule.name, rule)
    body = [line for line in format_rule(written).splitlines() if not line.startswith("## ")]
    start = next((n for n, line in enumerate(body) if line.startswith("example ")), len(body))
    return {
        "name": rule.name, "docs": " ".join(rule.docs), "location": rule.location, "level": rule.level,
        "attributes": sorted(rule.attributes), "family": rule.family,
        "text": linked(coloured("\n".join(body[:start]).rstrip()), rule.level, known),
        "examples": [_example(example) for example in rule.examples],
        "guards": [{"kind": g.kind, "text": expression(g.condition), "because": g.reason} for g in written.guards],
        "parameters": [_parameter(p) for p in written.parameters], "places": places.get(rule.name, []),
        "numbers": sorted(set(written.words) & rules.numbers.keys()),
        "facts": sorted(set(written.words) & set(rules.facts)),
        "fired": None if fired is None else sorted(fired.get(rule.name, ()), key=lambda one: -one[2]),
        "gain": _gain(fired.get(rule.name, ()) if fired is not None else ()),
    }  # fmt: skip


def _gain(cases: Sequence[tuple[str, int, float]]) -> float | None:
    """Return the geometric mean of the predicted speed-ups, or None without a prediction."""
    told = [math.log(times) for _, _, times in cases if times != 1.0]
    return math.exp(math.fsum(told) / len(told)) if told else None


def _parameter(node: s.Parameter) -> dict[str, str]:
    return {
        "name": node.name, "sort": node.sort or "",
        "domain": "" if node.domain is None else expression(node.domain),
        "default": "" if node.default is None else expression(node.default),
    }  # fmt: skip


def _example(example: Any) -> dict[str, Any]:
    if not isinstance(example, s.Example):
        return {"title": example.title, "before": "", "after": "", "refused": f"as “{example.other}”: {example.gives}"}
    refused = isinstance(example.gives, str)
    return {
        "title": example.title, "before": coloured("\n".join(block(example.before, 0))),
        "after": "" if refused else coloured("\n".join(block(example.gives, 0))),
        "refused": example.gives if refused else "",
    }  # fmt: skip


def _places(steps: Mapping[str, Sequence[PassStep]]) -> dict[str, list[dict[str, Any]]]:
    """Where each rule stands: the pipeline, the place of its pass in it, its neighbours, why there."""
    found: dict[str, list[dict[str, Any]]] = {}
    for pipeline, listed in steps.items():
        for number, step in enumerate(listed):
            told = {
                "pipeline": pipeline, "number": number + 1, "of": len(listed), "pass": step.label or step.name,
                "because": step.reason or "", "group": step.group or "",
            }  # fmt: skip
            for rule in step.rules:
                found.setdefault(rule.name, []).append(told)
    return found


def _order(steps: Mapping[str, Sequence[PassStep]]) -> list[dict[str, Any]]:
    return [
        {"name": name, "steps": [
            {"label": step.label or step.name, "because": step.reason or "", "group": step.group or "",
             "rules": [(rule.name, rule.file, first_sentence(rule.docs)) for rule in step.rules]}
            for step in listed
        ]}
        for name, listed in steps.items()
    ]  # fmt: skip


def first_sentence(docs: Iterable[str]) -> str:
    """The first sentence of a comment."""
    return re.split(r"(?<=\.)\s", " ".join(docs).strip(), maxsplit=1)[0]


def _nodes() -> list[dict[str, Any]]:
    found = []
    for level, module in LEVELS.items():
        classes = [
            cls for _, cls in inspect.getmembers(module, inspect.isclass)
            if issubclass(cls, Node) and cls.__module__ == module.__name__ and not cls.__subclasses__()
        ]  # fmt: skip
        found.append({"name": level, "nodes": [_node(cls) for cls in classes]})
    return found


def _node(cls: Any) -> dict[str, Any]:
    fields = [
        {
            "name": f.name,
            "sort": f"{f.sort}, .." if f.many else f.sort,
            "default": "" if f.required else print_value(f.default),
        }
        for f in cls.fields
    ]
    return {"name": cls.__name__, "docs": inspect.cleandoc(cls.__doc__ or ""), "fields": fields}


def _facts() -> list[dict[str, Any]]:
    """The facts of Python by name; one name may mean different things on different levels."""
    once = {id(fact): fact for fact in FACTS.values()}
    found: dict[str, list[dict[str, Any]]] = {}
    for fact in sorted(once.values(), key=lambda fact: fact.name):
        signature = f"{fact.name}({', '.join(fact.arguments)}) -> {fact.result}"
        told = {"signature": signature, "levels": sorted(fact.levels), "docs": inspect.cleandoc(fact.doc)}
        found.setdefault(fact.name, []).append(told)
    return [
        {"name": name, "docs": " ".join(one["docs"] for one in told), "forms": told} for name, told in found.items()
    ]


def _written_facts(rules: RuleSet) -> list[dict[str, Any]]:
    declared = [fact for file in rules.files for fact in file.facts]
    return [{"name": fact.name, "text": coloured(format_fact(fact).rstrip())} for fact in declared]


def _numbers(rules: RuleSet) -> list[dict[str, Any]]:
    readers: dict[str, list[tuple[str, str]]] = {}
    for rule in rules.rules.values():
        for word in set(rules.written.get(rule.name, rule).words) & rules.numbers.keys():
            readers.setdefault(word, []).append((rule.name, rule.file))
    return [
        {"name": name, "value": format_value(number.value), "text": coloured(format_number(number.declared).rstrip()),
         "readers": sorted(readers.get(name, ()))}
        for name, number in rules.numbers.items()
    ]  # fmt: skip


def _words(rules: RuleSet) -> list[list[str]]:
    """What the search looks through: (what it is, name, where, what is said of it)."""
    found = [["rule", r.name, f"rules/{r.file}.html#{r.name}", " ".join(r.docs)] for r in rules.rules.values()]
    found += [["fact", f["name"], f"facts.html#{f['name']}", f["docs"]] for f in _facts()]
    found += [["fact", f["name"], f"facts.html#{f['name']}", ""] for f in _written_facts(rules)]
    found += [["number", name, f"policy.html#{name}", n.declared.reason or ""] for name, n in rules.numbers.items()]
    for level in _nodes():
        found += [["node", n["name"], f"nodes.html#{level['name']}.{n['name']}", n["docs"]] for n in level["nodes"]]
    return found


# ---- colours


def coloured(text: str) -> Any:
    """A text of the rule language as HTML."""
    import markupsafe
    from pygments import highlight

    return markupsafe.Markup(highlight(text, RuleLexer(), _formatter()))


NODES = {  # where the nodes of a level stand, the nearest first
    "torch": ("tensor",), "tensor": ("tensor",), "module": ("tile", "loop"), "loop": ("loop",),
    "tile": ("tile", "loop"), "kernel": ("kernel", "loop"),
}  # fmt: skip
KNOWN = re.compile(r'(<span class="(nc|nf|n)">)(\w+)(</span>)')


def linked(text: Any, level: str, known: frozenset[str]) -> Any:
    """A coloured rule whose facts, nodes and numbers lead to what is said of them. known: all places of the site."""
    import markupsafe

    def link(found: re.Match[str]) -> str:
        opened, kind, word, closed = found.groups()
        pages = {"nf": ("facts.html#",), "n": ("policy.html#",)}
        places = (page + word for page in pages.get(kind, [f"nodes.html#{one}." for one in NODES[level]]))
        where = next((place for place in places if place in known), "")
        return f'{opened}<a href="../{where}">{word}</a>{closed}' if where else found[0]

    return markupsafe.Markup(KNOWN.sub(link, str(text)))


@functools.cache
def _formatter() -> Any:
    from pygments.formatters.html import HtmlFormatter

    return HtmlFormatter(nowrap=True)


def _style() -> str:
    return (FOLDER / "style.css").read_text()
