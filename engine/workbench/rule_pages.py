"""Write all rules, statements, facts and constants as Markdown pages.

    for path, text in pages(load()).items(): ...

Links are relative, so a folder of the pages opens in any renderer of Markdown. `make docs` adds them to the site.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from ..language.check import load_facts
from ..language.definitions import format_value
from ..language.evaluate import FACTS
from ..language.format import format_fact, format_number, format_rule
from ..language.pipeline import PassStep, pipelines
from ..language.rule import Rule, RuleSet
from .reference import Word, facts, field_text, nodes

MARK = "<!-- written by dplc rules doc -->"  # the first line of every page: `dplc rules doc` replaces no other file

# (case of a suite, firings, predicted speed-up) of each rule
Fired = Mapping[str, Sequence[tuple[str, int, float]]]


def pages(rules: RuleSet, fired: Fired | None = None, suite: str = "") -> dict[str, str]:
    """Return {path: Markdown}: a page for each folder of rules, an index, statements, facts and constants.

    fired: the firings of each rule in the cases of a suite, if it was compiled. suite: the name of that suite.
    """
    load_facts()
    steps = pipelines(rules)
    folders: dict[str, list[Rule]] = {}
    for rule in rules.rules.values():
        folders.setdefault(_page(rule), []).append(rule)
    made = {
        page: "\n".join([f"# Rules: {PurePosixPath(page).stem}", *_each(found, rules, steps, fired, suite)])
        for page, found in folders.items()
    }
    made["index.md"] = "\n".join(_order(steps, len(rules.rules)))
    made["statements.md"] = "\n".join(["# Statements and values", *_words(nodes())])
    made["facts.md"] = "\n".join(_facts(rules))
    made["constants.md"] = "\n".join(_constants(rules))
    return {path: f"{MARK}\n\n{text.rstrip()}\n" for path, text in made.items()}


def _page(rule: Rule) -> str:
    """Return the page of a rule: its folder, and for Torch IR, which has most of the rules, its file."""
    path = PurePosixPath(rule.location.rsplit(":", 1)[0])
    parts = path.parts
    inside = parts[parts.index("rules") + 1 : -1] if "rules" in parts else ("yours",)
    return f"groups/{'_'.join((*inside, *((path.stem,) if rule.level == 'torch' else ())))}.md"


def _text(text: str) -> str:
    """Return a text of a rule file with everything escaped that Markdown or HTML would interpret."""
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", html.escape(text, quote=False))


def _code(text: str) -> str:
    fence = "````" if "```" in text else "```"
    return f"{fence}dplc\n{text.rstrip()}\n{fence}\n"


def first_sentence(docs: Iterable[str]) -> str:
    """Return the first sentence of a comment."""
    return re.split(r"(?<=\.)\s", " ".join(docs).strip(), maxsplit=1)[0]


def _each(
    found: Sequence[Rule], rules: RuleSet, steps: Mapping[str, Sequence[PassStep]], fired: Fired | None, suite: str
) -> Iterator[str]:
    for rule in found:
        written = rules.written.get(rule.name, rule)
        body = "\n".join(line for line in format_rule(written).splitlines() if not line.startswith("## "))
        yield f"\n## {rule.name}\n\n{_text(' '.join(rule.docs))}\n\n{_code(body)}"
        yield f"- Defined in `{rule.location}`, on {rule.level}."
        for pipeline, listed in steps.items():
            for number, step in enumerate(listed, 1):
                if any(one.name == rule.name for one in step.rules):
                    because = f", because {_text(step.reason)}" if step.reason else ""
                    place = f"{number} of {len(listed)} of `{pipeline}`"
                    yield f"- Pass `{step.label or step.name}`, {place}{because}."
        words = set(written.words)
        for title, page, names in (
            ("Facts", "facts", words & (set(rules.facts) | {fact.name for fact in FACTS.values()})),
            ("Constants", "constants", words & rules.numbers.keys()),
        ):
            if names:
                yield f"- {title}: " + ", ".join(f"[`{name}`](../{page}.md#{name})" for name in sorted(names))
        if fired is not None:
            yield f"- {_firings(fired.get(rule.name, ()), suite)}"


def _firings(cases: Sequence[tuple[str, int, float]], suite: str) -> str:
    if not cases:
        return f"Does not fire in {_text(suite)}."
    logs = [math.log(times) for _, _, times in cases if times != 1.0]
    gain = ""
    if logs:
        factor = 1 / math.exp(math.fsum(logs) / len(logs))
        gain = f"; geometric mean of the predicted time, with over without the firing: {factor:.2f}"
    each = ", ".join(
        f"{_text(name)} ({count}{f', {times:.2f}x' if times != 1.0 else ''})"
        for name, count, times in sorted(cases, key=lambda one: -one[2])
    )
    return f"Fires in {len(cases)} cases of {_text(suite)}{gain}: {each}."


def _order(steps: Mapping[str, Sequence[PassStep]], count: int) -> Iterator[str]:
    yield f"# Rules\n\n{count} rules in the order of their pipelines."
    for name, listed in steps.items():
        yield f"\n## {name}\n\n| pass | rules | reason for its position |\n|---|---|---|"
        for step in listed:
            linked = "<br>".join(
                f"[`{rule.name}`]({_page(rule)}#{rule.name}) {_text(first_sentence(rule.docs))}" for rule in step.rules
            )
            yield f"| `{step.label or step.name}` | {linked} | {_text(step.reason or '')} |"


def _words(entries: Iterable[Word]) -> Iterator[str]:
    previous = ""
    for entry in entries:
        if entry.name != previous:  # one name may have several signatures, for different levels
            yield f"\n### {entry.name}"
        previous = entry.name
        yield f"\n`{entry.signature}` on {', '.join(entry.levels)}\n\n{_text(entry.says)}\n"
        yield from (f"- `{name}`: {field_text(sort, default)}" for name, sort, default in entry.fields)


def _facts(rules: RuleSet) -> Iterator[str]:
    yield "# Facts\n\nA rule calls a fact to analyse the program.\n\n## Facts and functions in Python"
    yield from _words(facts())
    yield "\n## Facts in rule files"
    for file in rules.files:
        for written in file.facts:
            yield f"\n### {written.name}\n\n{_code(format_fact(written))}"


def _constants(rules: RuleSet) -> Iterator[str]:
    readers: dict[str, list[Rule]] = {}
    for rule in rules.rules.values():
        for word in set(rules.written.get(rule.name, rule).words) & rules.numbers.keys():
            readers.setdefault(word, []).append(rule)
    yield "# Constants\n\nOverride a constant in a file for `--rules`: `override number NAME = VALUE`."
    for name, number in rules.numbers.items():
        yield f"\n## {name}\n\nValue: `{format_value(number.value)}`\n\n{_code(format_number(number.declared))}"
        if name in readers:
            links = (f"[`{rule.name}`]({_page(rule)}#{rule.name})" for rule in readers[name])
            yield "Read by " + ", ".join(links) + "."
