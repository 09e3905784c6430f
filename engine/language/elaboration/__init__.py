"""What makes a rule an equation, written out once, when its file is read, in the rest of the language.

`split`, `join`, `let` and `fold` in a template, `guards` and `form`s that rules share. Whoever reads a rule
afterwards (matchers, terms, proofs, static checks, mutants) meets none of them, and all see one meaning. Nodes that are
made here stand where the user's text says why they are there, so that every message points at it. `rules show` prints
what was written, with the guards and statements that rules share, since they stand elsewhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from ....ir.diagnostic import DplcError
from ....ir.text import equations as eq
from ....ir.text import syntax as s
from ....ir.text.syntax import words_in
from ..positions import walk
from .binders import refuse_words
from .folds import without_folds
from .forms import Forms
from .groups import GuardGroups
from .lets import without_lets
from .splits import Splits, steps
from .template import SplitTemplate

SUGAR = (eq.SplitClause, eq.JoinClause, eq.LetStatement, eq.PartLoop, eq.FoldAssign, eq.UseGuards, eq.UseForm)
LEVELS = ("module", "loop", "tile")


def elaborated(declarations: Iterable[s.Syntax]) -> tuple[s.Syntax, ...]:
    """The declarations of a file with their rules written out. Raises DplcError at the first mistake of a rule."""
    written = tuple(declarations)
    for one in written:
        refuse_words(one)
    groups = GuardGroups(one for one in written if isinstance(one, eq.GuardGroup))
    forms = Forms(one for one in written if isinstance(one, eq.StatementForm))
    kept = (one for one in written if not isinstance(one, eq.GuardGroup | eq.StatementForm))
    found = tuple(_rule(one, groups, forms) if isinstance(one, s.Rule) else one for one in kept)
    groups.finish()
    forms.finish()
    return found


def _rule(rule: s.Rule, groups: GuardGroups, forms: Forms) -> s.Rule:
    if not any(isinstance(node, SUGAR) for clause in rule.clauses for node in walk(clause)):
        return rule
    try:
        clauses = tuple(forms.written_out(made) for clause in rule.clauses for made in groups.written_out(clause))
        words = tuple(sorted({*rule.words, *words_in(tuple(c for c in clauses if not isinstance(c, s.Match)))}))
        full = dataclasses.replace(rule, clauses=clauses)
        clauses_out, covers = _clauses(full)
        return dataclasses.replace(rule, clauses=clauses_out, written=clauses, words=words, covers=covers)
    except DplcError as error:
        raise type(error)(f"rule `{rule.name}`: {error.what}", error.span, error.notes, error.hint) from None


def _clauses(rule: s.Rule) -> tuple[tuple[s.Syntax, ...], tuple[s.Cover, ...]]:
    """The clauses written out, and what the splits among them say of their parts."""
    for clause in rule.clauses:
        if isinstance(clause, eq.SplitClause | eq.JoinClause) and rule.level not in LEVELS:
            what = f"loops and axes are split on {', '.join(LEVELS)}; this rule is on {rule.level}"
            raise DplcError(what, clause.span)
        for node in walk(clause if not isinstance(clause, s.Rewrite) else ()):
            if isinstance(node, eq.LetStatement):
                raise DplcError("a pattern defines nothing: `let` is a clause, or stands in a template", node.span)
            if isinstance(node, eq.FoldAssign):
                raise DplcError("a pattern has a reduction as programs do: a `fold` stands in a template", node.span)
            if isinstance(node, eq.PartLoop):
                what = f"a loop of a pattern has bounds: `for {node.var} in 0..K reduce:`"
                raise DplcError(what, node.span)
    rule = dataclasses.replace(rule, clauses=tuple(map(without_lets(rule), rule.clauses)))
    rule = dataclasses.replace(rule, clauses=tuple(map(without_folds(rule), rule.clauses)))
    rule = dataclasses.replace(rule, clauses=tuple(one for clause in rule.clauses for one in steps(clause)))
    splits = Splits(rule)
    template = SplitTemplate(splits)
    written: list[s.Syntax] = []
    for clause in rule.clauses:
        if isinstance(clause, eq.SplitClause | eq.JoinClause):
            written += splits.fresh_names(clause)
        elif isinstance(clause, s.Rewrite):
            written.append(dataclasses.replace(clause, body=template.block(clause.body)))
        else:
            written.append(template.clause(clause) if splits.all else clause)
    template.finish()
    return tuple(written), tuple(splits.covers())
