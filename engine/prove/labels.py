"""Labels of rules: refuted by a program, proved and from what, or tested."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ...ir.node import immutable
from ..language.rule import Rule
from ..verify import proofs
from ..verify.outcome import RuleVerdict
from .equations import Equation, prove
from .laws import ASSUMED, LAWS

VALUES, INDICES = "proved for all ranks and sizes", "index maps proved for all sizes"
TESTED = "tested"


@immutable
class Label:
    """Label of one rule, and the proof or what it stops at."""

    rule: str
    label: str
    equation: Equation


def label(rule: Rule, verdict: RuleVerdict | None = None) -> Label:
    """Label a rule. verdict: on programs, which comes first: no proof counts for a rule that is wrong on one."""
    if verdict is not None and verdict.wrong is not None:
        return Label(rule.name, "refuted", Equation(verdict.wrong.problem))
    if rule.level == "tensor":
        equation = prove(rule)
        text = TESTED if equation.stopped else VALUES
    else:
        proof = proofs.prove(rule) if verdict is None and proofs.solver_module() else verdict and verdict.proof
        text = INDICES if proof and proof.result == "proved" else TESTED
        equation = Equation(
            "; ".join(proof.open if proof else ())
            or f"a rule on {rule.level} is not an equation between values on tensor"
        )
    return Label(rule.name, text, equation)


def label_lines(labels: Sequence[Label]) -> Iterator[str]:
    """Yield the label of each rule with what it rests on, then the assumptions, the laws and the counts."""
    for one in labels:
        yield f"{one.rule}: {one.label}"
        found = one.equation
        said = {"needs": ", ".join(found.needed), "laws": ", ".join(found.laws), "because": found.stopped}
        yield from (f"  {title}: {text}" for title, text in said.items() if text)
    used = sorted({law for one in labels for law in one.equation.laws})
    yield from ("", f"assumed: {ASSUMED}", *(f"  {law}: {LAWS[law][0]}" for law in used))
    counts = Counter(one.label for one in labels)
    yield f"\n{len(labels)} rules: " + ", ".join(f"{count} {text}" for text, count in sorted(counts.items()))
