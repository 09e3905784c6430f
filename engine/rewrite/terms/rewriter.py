"""Rules on tensor: rewriting bottom-up to a fixpoint.

Terms are interned, so a rewrite is remembered per term and only the spine above a change is built and matched again.
The stack is explicit: ten thousand nested operations are as good as one. Attempts are chosen by the class and function
of the root.
"""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ....codegen.target import Target, target as default_target
from ....ir import compose
from ....ir.diagnostic import DplcError
from ....ir.expr import Axis, add, binary, subtract
from ....ir.names import unused
from ....ir.tensor import (
    AxisMap,
    Elementwise,
    Input,
    Named,
    Output,
    Remap,
    TensorGraph,
    Term,
    axes,
    dtype,
    factors,
    operands,
    postorder,
)
from ....ir.torch import TorchOp
from ...language import core as s
from ...language.evaluate import Environment
from ...language.rule import Rule
from ...language.typed_slots import says
from ..statements.compiled import Pinned
from ..trace import RECENT, Refusal, RewriteStep, endless, failed_guard
from .matcher import CompiledTermRule, compiled_term_rule

# Weights that are summed against one value, as one concatenated weight: q, k and v; gate and up.
#
# The concatenation is a value over the weights (a chain of cases), so the equation that uses it is correct by itself. A
# caller that knows the weights at load time computes it then.


class Packed(NamedTuple):
    """Position of a weight in a packed one: the weight is `whole`, read at an index map."""

    whole: Term
    places: AxisMap


Packs = dict[tuple[Term, frozenset[Axis]], Packed]


def find_packs(terms: Sequence[Term], weights: Collection[str]) -> Packs:
    """Return {(weight, summed axes): its position in a packed weight}, for weights with a sibling in some values."""
    siblings: dict[tuple[Term, frozenset[Axis], str], dict[Term, Axis]] = defaultdict(dict)
    names = {axis.name for term in terms for axis in axes(term)}
    for term in terms:
        both = factors(term)
        for x, w in (both, both[::-1]) if both else ():
            over: frozenset[Axis] = frozenset(term.over)  # type: ignore[attr-defined]
            own = [axis for axis in axes(w) if axis not in over]
            if _weight(w, weights) and len(own) == 1 and own[0] not in axes(x) and over <= set(axes(w)):
                siblings[x, over, dtype(w)][w] = own[0]
    packs: Packs = {}
    for (_, over, _), members in siblings.items():
        if len(members) > 1 and not any((w, over) in packs for w in members):
            packs.update(_packed(members, over, names))
    return packs


def _weight(w: Term, weights: Collection[str]) -> bool:
    """Return whether a value is an input that is known when the program is loaded, perhaps with renamed axes."""
    if isinstance(w, Remap) and all(e.__class__ is Axis for _, e in w.map):
        w = w.x
    return isinstance(w, Input) and w.name in weights


def _packed(members: dict[Term, Axis], over: frozenset[Axis], names: set[str]) -> Packs:
    name = unused("c", names, ("c",), first=0)
    names.add(name)
    *starts, end = itertools.accumulate((int(axis.extent) for axis in members.values()), initial=0)
    every = Axis(name, end)
    placed = [*zip(members.items(), starts, strict=True)]
    whole: Term | None = None
    for (w, axis), start in reversed(placed):
        mine = compose.remap(w, {axis: subtract(every, start)})
        whole = mine if whole is None else compose.case(binary("<", every, end), mine, whole)
        end = start
    assert whole is not None
    return {(w, over): Packed(whole, ((every, add(axis, start)),)) for (w, axis), start in placed}


FUEL = 100  # firings allowed per term of the program before a set of rules counts as looping


def mentions_mat(rule: Rule) -> bool:
    """Return whether a rule is about materialisation: a rule of fusion, not of algebra."""
    return says((rule.match, rule.rewrite), "mat")


CHANGES_DTYPE = "the result would have another dtype"


@dataclass
class TermEvidence:
    """Record of a traced rewrite: its firings and its refusals, in order."""

    firings: list[RewriteStep] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)

    def refuse(self, rule: Rule, because: str, term: Term) -> None:
        """Note a match that no guard of the rule refuses."""
        text = f'matched, but "{because}"'
        self.refusals.append(Refusal(rule, rule.span, lambda _: text, because=because, term=term))


@dataclass
class TermSite:
    """Context of facts on tensor: the target, and which inputs are weights. With evidence, refusals are noted here.

    roots: the results of the program, for facts that search all of it. flow: the program as a flow, computed by the
    first fact that needs it. known: of a value, whether all inputs below it are weights; None without inputs.
    """

    target: Target
    evidence: TermEvidence | None = None
    weights: frozenset[str] = frozenset()
    roots: tuple[Term, ...] = ()
    flow: Any = None
    known: dict[Any, bool | None] = field(default_factory=dict)
    bound: Environment = field(default_factory=dict)  # by the last pattern that matched, with evidence
    folded: list[compose.Folded] = field(default_factory=list)  # by canonical forms, since the last template began

    @functools.cached_property
    def packs(self) -> Packs:
        """Weights that have a sibling."""
        return find_packs(postorder(self.roots), self.weights)

    def refuse(self, rule: Rule, guard: s.Guard, term: Term, env: Environment) -> None:
        assert self.evidence is not None
        self.evidence.refusals.append(failed_guard(rule, guard, env, term=term))


class TermRules:
    """Compiled rules on tensor. `enabled` names @off rules to use.

    table: by whether refusals are noted, the attempts, compiled at the first call.
    """

    def __init__(self, rules: Iterable[Rule], enabled: Collection[str] = (), parameters: Pinned | None = None):
        self.rules = [rule for rule in rules if "off" not in rule.attributes or rule.name in enabled]
        self.parameters = parameters or {}
        self.table = functools.cache(
            lambda evidence: Table([compiled_term_rule(rule, self.parameters, evidence) for rule in self.rules])
        )


Attempts = tuple[tuple[CompiledTermRule, Callable[[Term, Any], Any]], ...]  # each with its `run`: it is asked often


class Table(dict[type | str, Attempts]):
    """The attempts worth trying by the root that they can match, as it is needed, in the order of their rules.

    A root is the function of an elementwise operation, or the class of another one.
    """

    def __init__(self, attempts: Sequence[CompiledTermRule]):
        self.attempts = attempts

    def __missing__(self, root: type | str) -> Attempts:
        wanted = None, root, Elementwise if root.__class__ is str else root
        found = self[root] = tuple((attempt, attempt.run) for attempt in self.attempts if attempt.root in wanted)
        return found

    def at(self, term: Any) -> Attempts:
        return self[term.fn if term.__class__ is Elementwise else term.__class__]

    @functools.cached_property
    def collapsing(self) -> Table:
        """The attempts that are tried before the operands are visited."""
        return Table([attempt for attempt in self.attempts if attempt.collapses])


class Rewriter:
    """One rewrite of one program: normal forms by term."""

    def __init__(
        self,
        rules: TermRules,
        target: Target | None = None,
        evidence: TermEvidence | None = None,
        weights: Iterable[str] = (),
    ):
        self.site = TermSite(target or default_target(), evidence, frozenset(weights))
        self.table = rules.table(evidence is not None)
        self.normal: dict[Term, Term] = {}
        self.replaced: Mapping[Term, Term] = {}  # what is replaced from the start, whatever the rules say
        self.becomes: dict[Term, Term] = {}  # a term that a rule replaced -> its replacement, not yet in normal form
        self.firings = 0
        self.recent: deque[tuple[Rule, Term, Term]] = deque(maxlen=RECENT)  # converted to a Step when it is shown
        self.limit = 10_000

    def rewrite(self, root: Term) -> Term:
        """Return the normal form of a term. Raises DplcError if the rules do not terminate."""
        normal, becomes, replaced, collapsing = self.normal, self.becomes, self.replaced, self.table.collapsing
        stack = [root]
        while stack:
            term = stack[-1]
            if term in normal:
                stack.pop()
                continue
            following = becomes.get(term) or replaced.get(term)
            if following is None:
                waiting = [operand for operand in operands(term) if operand not in normal]
                if waiting:
                    following = self._step(term, collapsing) if collapsing.attempts else None
                    if following is None:
                        # what has a replacement but no normal form is on the stack: it would wait for itself
                        if not becomes.keys().isdisjoint(waiting):
                            raise self._endless()
                        stack.extend(waiting)
                        continue
                else:
                    built = compose.rebuilt(term, normal.__getitem__)
                    following = self._step(built, self.table)
                    if following is None:
                        normal[term] = normal[built] = built
                        stack.pop()
                        continue
            becomes[term] = following
            done = normal.get(following)
            if done is not None:
                normal[term] = done
                stack.pop()
            elif following in becomes:
                raise self._endless()
            else:
                stack.append(following)
        return normal[root]

    def _step(self, term: Term, table: Table) -> Term | None:
        """Return the replacement of a term by the first rule of a table that fires, None if none does.

        What a rule such as `add(x, 0) => x` gives is replaced in turn, if that is asked before anything below it is
        visited.
        """
        site, evidence, found, more = self.site, self.site.evidence, None, True
        while more:
            more = False
            for attempt, run in table.at(term):
                result = run(term, site)
                if result is None:
                    continue
                if not attempt.collapses and dtype(result) != dtype(term):  # equations are between values of one dtype
                    if evidence is not None:
                        evidence.refuse(attempt.rule, CHANGES_DTYPE, term)
                    continue
                self.firings += 1
                self.recent.append((attempt.rule, term, result))
                if self.firings > self.limit:
                    raise self._endless()
                if evidence is not None:
                    evidence.firings.append(RewriteStep(attempt.rule, term, result, site.bound, tuple(site.folded)))
                found = term = result
                more = table is not self.table
                break
        return found

    def _endless(self) -> DplcError:
        steps = tuple(itertools.starmap(RewriteStep, self.recent))
        return endless("the rules on tensor do not come to an end", steps)


def rewrite_graph(
    graph: TensorGraph,
    rules: TermRules,
    target: Target | None = None,
    evidence: TermEvidence | None = None,
    origins: dict[Term, TorchOp] | None = None,
    weights: Iterable[str] = (),
    replaced: Mapping[Term, Term] | None = None,
) -> TensorGraph:
    """Return the program with the rules applied everywhere, to a fixpoint.

    Names follow their values, and so do origins (the op that each term came from), to which this function adds.

    weights: the inputs that are known when the program is loaded. replaced: values that are others from the start.
    """
    rewriter = Rewriter(rules, target, evidence, weights)
    rewriter.site.roots = graph.roots
    rewriter.replaced = replaced or {}
    rewriter.limit = FUEL * (100 + len(graph.names))
    with compose.collected_folds() as rewriter.site.folded:
        outs = tuple(Output(out.name, out.axes, rewriter.rewrite(out.value)) for out in graph.outs)
    if outs == graph.outs:
        return graph
    if origins is not None:
        for old, origin in tuple(origins.items()):
            if value := rewriter.normal.get(old):
                origins.setdefault(value, origin)
    names: dict[Term, Named] = {}
    for named in graph.names:
        if value := rewriter.normal.get(named.value):
            names.setdefault(value, Named(named.name, value))
    return TensorGraph(graph.name, graph.ins, outs, tuple(names.values()), graph.calls)
