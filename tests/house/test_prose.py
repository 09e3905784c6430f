"""The prose of pages, reasons, help texts, docstrings and commits stays within docs/contributing/style.md."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PRIVATE = re.compile(
    r"(?<![\w_])(?:turns?|places?|besides?|stands?|stood|behind|asks?|asked|told|tells|kin|mend(?:s|ed)?|lone|anew"
    r"|heard|hears|somebody|nobody|whoever|dear(?:er|est)?|made of|makes? of|takes? in|taken in|comes? to|is no|are no)(?![\w_])",
    re.IGNORECASE,
)
HEADLESS = re.compile(r"(What|Where|Who|Whoever|Whether|That|Those|Of|Beside|Behind|Nothing|None|Nobody)\b")
RELATIVE = re.compile(r"(What|Where|Who|How|The same|Those|Within|As|Of|That)\b")
PRONOUN = re.compile(r"(it|its|they|these|those|one|both|none|this|that|another|others?|neither|each|what)\b")
REASON = re.compile(r"^\s*(?:require|prefer)\b[^\n]*?(?:\n\s+)?else \"([^\"]*)\"", re.MULTILINE)
LIMITS = {
    "words a sentence": 20.0, "90th percentile": 30.0, "sentences over 40 words": 0.0, "commas a sentence": 1.6,
    "headless openings": 2.0, "numbers in 100 words": 2.0, "private words in 1000": 4.0, "longest paragraph": 90.0,
    "reasons with a pronoun": 0.0, "reasons of under 4 words": 0.0, "reasons of over 14 words": 0.0,
    "relative docstrings": 0.0, "private words in docstrings": 4.0, "help texts with Of": 0.0,
}  # fmt: skip


def paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs and list items of a page, without code, tables, headings and what commands print."""
    text = re.sub(r"<!-- (printed by|long run):.*?<!-- end -->", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", re.sub(r"```.*?```", "\n\n", text, flags=re.DOTALL), flags=re.DOTALL)
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        item = re.match(r"^\s*([-*+]|\d+\.)\s", line)
        if not line.strip() or item or re.match(r"^\s*(\||#|!\[|Run on |Made by )", line):
            if lines:
                yield re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(lines))
                lines = []
            if not item:
                continue
        lines.append(re.sub(r"^\s*([-*+]|\d+\.)\s+", "", line).strip())


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a paragraph that have more than two words."""
    plain = re.sub(r"\b(e\.g|i\.e|etc|vs)\.", r"\1", re.sub(r"`[^`]*`", "CODE", text).replace("**", ""))
    yield from (one for one in re.split(r"(?<=[.!?:])\s+(?=[A-Z\"(])", plain) if len(one.split()) > 2)


def of_page(text: str) -> dict[str, float]:
    """Measure a page."""
    blocks = list(paragraphs(text))
    found = [sentence for block in blocks for sentence in sentences(block)]
    lengths, joined = sorted(len(sentence.split()) for sentence in found), " ".join(found)
    words, count = max(1, sum(lengths)), max(1, len(found))
    return {
        "words a sentence": words / count,
        "90th percentile": lengths[int(len(lengths) * 0.9)] if lengths else 0,
        "sentences over 40 words": sum(length > 40 for length in lengths),
        "commas a sentence": sum(len(re.findall(r"[;:(,]", sentence)) for sentence in found) / count,
        "headless openings": 100 * sum(bool(HEADLESS.match(sentence)) for sentence in found) / count,
        "numbers in 100 words": 100 * len(re.findall(r"(?<!\w)\d[\d.,]*", joined)) / words,
        "private words in 1000": 1000 * len(PRIVATE.findall(joined)) / words,
        "longest paragraph": max((len(block.split()) for block in blocks), default=0),
    }


def of_rules(texts: list[str]) -> dict[str, float]:
    """Measure the reasons of conditions in rule files."""
    reasons = sorted({reason for text in texts for reason in REASON.findall(text)})
    return {
        "reasons with a pronoun": sum(bool(PRONOUN.match(reason)) for reason in reasons),
        "reasons of under 4 words": sum(len(reason.split()) < 4 for reason in reasons),
        "reasons of over 14 words": sum(len(reason.split()) > 14 for reason in reasons),
    }


def of_python(texts: list[str]) -> dict[str, float]:
    """Measure docstrings of functions and the help texts of options."""
    nodes = [node for text in texts for node in ast.walk(ast.parse(text))]
    docstrings = [doc for node in nodes if isinstance(node, ast.FunctionDef) and (doc := ast.get_docstring(node))]
    joined = " ".join(docstrings)
    return {
        "relative docstrings": sum(bool(RELATIVE.match(doc)) for doc in docstrings),
        "private words in docstrings": 1000 * len(PRIVATE.findall(joined)) / max(1, len(joined.split())),
        "help texts with Of": sum(len(re.findall(r"help=f?\"Of ", text)) for text in texts),
    }


def measured() -> dict[str, dict[str, float]]:
    """Measure every page, all rules and all Python files of the product."""
    found = {str(path.relative_to(ROOT)): of_page(path.read_text()) for path in _pages()}
    found["rules/**/*.rw"] = of_rules([path.read_text() for path in sorted((ROOT / "rules").rglob("*.rw"))])
    files = [path for folder in ("engine", "ir", "codegen") for path in sorted((ROOT / folder).rglob("*.py"))]
    found["**/*.py"] = of_python([path.read_text() for path in files])
    return found


def _pages() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    pages = [ROOT / name for name in listed.split() if "/results/" not in name and name != "tests/endtoend/commands.md"]
    return [page for page in pages if page.exists() and "Do not edit: run it again." not in page.read_text()]


def over(found: dict[str, float]) -> dict[str, tuple[float, float]]:
    """Return the measures above their limit, with the limit."""
    return {name: (round(value, 1), LIMITS[name]) for name, value in found.items() if value > LIMITS[name] + 0.05}


def test_prose_stays_within_the_limits_of_the_style_guide() -> None:
    found = {name: over(values) for name, values in measured().items()}
    assert {name: values for name, values in found.items() if values} == {}, "docs/contributing/style.md"


@pytest.mark.parametrize(
    ("text", "measure"),
    [
        ("The kernel " + "reads a value and " * 12 + "stops.", "sentences over 40 words"),
        ("What the kernel reads is a row. The kernel ends here.", "headless openings"),
        ("The value stands beside the row, and nobody asked for the lone place.", "private words in 1000"),
        ("The kernel takes 1 us, 2 us, 3 us or 4 us of time.", "numbers in 100 words"),
    ],
)
def test_a_bad_sentence_is_over_its_limit(text: str, measure: str) -> None:
    assert measure in over(of_page(text))


def test_a_bad_reason_and_a_bad_docstring_are_over_their_limits() -> None:
    rules = over(of_rules(['require f(x) else "it is one"\n']))
    assert set(rules) == {"reasons with a pronoun", "reasons of under 4 words"}
    python = over(of_python(['def f():\n    """What stands beside a row."""\nx = option(help="Of a model.")\n']))
    assert set(python) == {"relative docstrings", "private words in docstrings", "help texts with Of"}
