"""Evaluation of rule expressions: the registry of facts, closures for expressions, and the clauses of a rule."""

from __future__ import annotations

import functools
import inspect
import operator
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from typing import Any

from ...codegen.target import Target
from ...ir import expr as e, schemas
from ...ir.diagnostic import DplcError, InternalError, did_you_mean
from ...ir.dtypes import toml_table
from ...ir.expr import Undecided
from ...ir.functions import FUNCTIONS
from ...ir.node import Node, immutable
from ...ir.sizes import at_the_hints, compared, decided, has_sizes, hinted, leaves_out
from ...ir.text.print_statements import print_value
from ...ir.text.read_statements import CLOSED, CONSTANTS
from ...ir.text.syntax import (
    Apply,
    AxisItem,
    Between,
    Choice,
    Chosen,
    Comprehension,
    Group,
    Keyword,
    LetClause,
    LetExpression,
    Member,
    NameOf,
    Nodes,
    Number as NumberSyntax,
    Operation,
    Prefix,
    Run,
    Subscript,
    Syntax,
    Text,
    walk,
)

Value = Any  # of the rule language: a number, a text, a list, a node of an IR, a record of a fact
Environment = dict[str, Value]
Query = Callable[..., Value]
Decorator = Callable[[Query], Query]
Closure = Callable[[Environment], Value]
SITE = "@site"

# What Python raises for arithmetic, or a question, that has no answer for these values.
MISTAKES = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)


class NotComputed(DplcError, ValueError):
    """Clause without a value here, with its span. A domain or a default without a value is a refusal, not an error."""


def mistaken(node: Syntax, error: Exception, given: Value = ()) -> Exception:
    """Return the error of a fact or an operator that has no value here, with its span.

    given: the arguments. A fact that supports only numbers is undecided for symbolic dimensions.
    """
    if isinstance(error, NotComputed):
        return error
    if isinstance(error, TypeError | AttributeError | ValueError) and has_sizes(given):
        return Undecided(f"{getattr(node, 'fn', 'this')} of a size")
    why = "division by zero" if isinstance(error, ZeroDivisionError) else str(error) or type(error).__name__
    return NotComputed(f"this cannot be evaluated: {why}", node)


# The registry of facts: pure, typed queries of rules about a program.
#
# @every_fact
# def ceildiv(a: int, b: int) -> int: ...
#
# The annotations give the sorts (`SORT_OF`); `fact("name(sorts) -> sort")` writes them where a name or a sort differs.
# A fact whose first parameter is `site` gets the site, then the arguments. It returns numbers, booleans, names,
# expressions, axes, captured statements or records, never a statement that it built (tests run every fact under a guard
# that checks this). Sorts in signatures: int num bool name expr axis stmt text any, `[x]` a list, `x*` any number of
# further arguments, `?` after an optional one.


@immutable
class Fact:
    """Analysis query: its name, the sorts of its arguments and of its result, and the levels that it is defined on.

    sited: whether the function gets the site as its first argument.
    """

    name: str
    arguments: tuple[str, ...]
    result: str
    ask: Query
    levels: frozenset[str]
    sited: bool = False

    @property
    def least(self) -> int:
        return sum(1 for sort in self.arguments if not sort.endswith(("*", "?")))

    @property
    def most(self) -> int | None:
        return None if any(sort.endswith("*") for sort in self.arguments) else len(self.arguments)


FACTS: dict[tuple[str, str], Fact] = {}  # (level, name): a fact may mean different things on different levels


EVERYWHERE = "torch tensor module loop tile kernel"


def fact(signature: str | None, levels: str = EVERYWHERE) -> Decorator:
    """Register a function under a signature, None for that of its annotations, for some levels."""

    def register(function: Query) -> Query:
        match = re.fullmatch(r"(\w+)\(([^)]*)\) -> (.+)", signature or _signature(function))
        assert match, signature
        sited = function.__code__.co_varnames[:1] == ("site",)
        arguments = tuple(re.findall(r"[^\s,]+", match[2]))
        entry = Fact(match[1], arguments, match[3], function, frozenset(levels.split()), sited)
        facts_of.cache_clear()
        for level in entry.levels:
            earlier = FACTS.setdefault((level, entry.name), entry)
            assert earlier is entry, (
                f"fact `{entry.name}` on {level}: {function.__module__} and {earlier.ask.__module__}"
            )
        return function

    return register


# Annotations of a fact, which say sorts.
Expression = Value
AxisList = Value
ExpressionList = Value
StatementList = Value
NameList = Value
NumberList = Value
ValueList = Value
AxisIndex = Value
Dtype = Value
Number = Value
Tensor = Value
Tensors = Value
SORTS = toml_table(__package__, "sorts")
SORT_OF: dict[str, str] = SORTS["annotations"]


def _signature(function: Query) -> str:
    """Return the signature of a fact that its annotations say."""
    *given, result = [_sort(text) for name, text in function.__annotations__.items() if name != "site"]
    if function.__code__.co_flags & inspect.CO_VARARGS:
        given[-1] += "*"
    return f"{function.__name__}({', '.join(given)}) -> {result}"


def _sort(annotation: str) -> str:
    listed = re.fullmatch(r"tuple\[(.+), \.\.\.\]", annotation)
    return f"[{_sort(listed[1])}]" if listed else SORT_OF.get(annotation, "record")


every_fact, statement_fact, torch_fact, tensor_fact, module_fact, tile_fact, kernel_fact = (
    fact(None, levels) for levels in (EVERYWHERE, "module loop tile", "torch", "tensor", "module", "tile", "kernel")
)


@functools.cache  # every clause of every rule queries it
def facts_of(level: str) -> dict[str, Fact]:
    """Return the facts that a rule of this level may use, by name."""
    return {name: entry for (at, name), entry in FACTS.items() if at == level}


# Guard, let, domain and template expressions: syntax compiled once to Python closures over an environment.
#
# Values are numbers, booleans, text, None, tuples, sets, names as `Var`, expressions and statements of the IRs, and the
# records that facts return. An environment is a dictionary from names to values; "@site" holds the site that facts see.
#
# Arithmetic is `ir.expr`'s, so `ko*BK + k` with bound `ko`, `k` is an index expression. Comparisons are Python's in
# guards (`==` is identity for nodes); with `symbolic` (templates) a comparison of index expressions is an index
# expression.


RESERVED = frozenset[str]().union(*CLOSED.values(), schemas.DTYPES)


_COMPUTED = Apply | Choice | Group | LetExpression | Member | Operation
LARGEST = 2**127
LONGEST = 1 << 20
_ABSENT = object()
# Most calculations of rules: they contain no open name.
_OF_WHOLE_NUMBERS = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_ROLES_AND_TRANSPORTS = frozenset((*CLOSED["Role"], *CLOSED["Via"]))
_SIZED = frozenset((e.Size, e.Sum, e.Binary))


def _once_for_a_target(closure: Closure) -> Closure:
    """Return a closure that computes its value again only for another target than the last."""
    last: tuple[object, Value] = (_ABSENT, None)

    def known(env: Environment) -> Value:
        nonlocal last
        target, now = env.get("target"), last
        if now[0] is not target:
            now = last = target, closure(env)
        return now[1]

    return known


class Expressions:
    """Compiler of expressions for one level.

    Subclasses add meaning by overriding the method of a class of syntax, or `apply`.
    """

    def __init__(self, level: str, symbolic: bool = False):
        self.level, self.symbolic = level, symbolic
        self.facts = facts_of(level)
        self.variables: list[str] = []  # of the comprehensions around what is compiled, outermost first
        self._made: dict[int, tuple[Syntax, Closure]] = {}  # by identity, outside of comprehensions

    def compile(self, node: Syntax) -> Closure:
        """Return the closure of an expression. Raises DplcError for an unknown fact or a node of another kind.

        Expanded facts hold the same node at many places: it is compiled once.
        """
        if id(node) in self._made and not self.variables:
            return self._made[id(node)][1]
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            raise DplcError("this is not an expression", node)
        made: Closure = method(node)
        closure = _once_for_a_target(made) if isinstance(node, _COMPUTED) and self._is_of_target(node) else made
        if not self.variables:
            self._made[id(node)] = node, closure
        return closure

    def _is_of_target(self, value: Syntax) -> bool:
        """Return whether the value depends on the target alone: on no other variable and no site."""
        own = {"target"}
        for node in walk(value):
            if isinstance(node, LetClause):
                own.add(node.name)
                known = True
            elif isinstance(node, NameOf):
                known = node.text in own
            elif isinstance(node, Apply):
                known = node.fn in self.facts and not self.facts[node.fn].sited
            else:
                known = isinstance(node, _COMPUTED | NumberSyntax | Text)
            if not known:
                return False
        return True

    def compile_all(self, items: Nodes) -> Closure:
        """Return the tuple of the items' values; `xs..` is spliced."""
        parts = [self.compile(item) for item in items]
        runs = [isinstance(item, Run) for item in items]
        if not any(runs):
            return lambda env: tuple([part(env) for part in parts])
        spliced = [*zip(runs, parts, strict=True)]
        return lambda env: tuple(chain.from_iterable(part(env) if run else (part(env),) for run, part in spliced))

    # ---- leaves
    def _nameof(self, node: NameOf) -> Closure:
        name = node.text
        if name in CONSTANTS:
            value = CONSTANTS[name]
            return lambda env: value
        symbol = e.Var(name) if name in RESERVED else None

        def look(env: Environment) -> Value:
            try:
                return env[name]
            except KeyError:
                if symbol is not None:
                    return symbol
                raise DplcError(f"unbound variable `{name}`", node, did_you_mean(name, env)) from None

        return look

    def _number(self, node: NumberSyntax | Text) -> Closure:
        value = node.value
        return lambda env: value

    _text = _number

    # ---- operators
    def _operation(self, node: Operation) -> Closure:
        a, b, op = self.compile(node.a), self.compile(node.b), node.op
        if op in ("and", "or"):
            return _connective(a, b, e.OPERATORS[op], decisive=op == "or")
        if op in ("in", "not in"):
            within = op == "in"
            return lambda env: (a(env) in b(env)) is within
        if op in ("==", "!="):
            return self._equality(node, a, b)
        if op in e.COMPARISONS:
            return self._comparison(op, a, b)
        combine = e.OPERATORS[op]
        whole = _OF_WHOLE_NUMBERS.get(op, combine)

        def calculate(env: Environment) -> Value:
            left, right = a(env), b(env)
            if op == "+" and left.__class__ is tuple and right.__class__ is tuple:
                if len(left) + len(right) > LONGEST:
                    raise DplcError(f"this list is too long: more than {LONGEST}", node)
                return left + right
            try:
                found = (whole if left.__class__ is int and right.__class__ is int else combine)(left, right)
            except MISTAKES as error:
                raise mistaken(node, error) from error
            if found.__class__ is int and not -LARGEST < found < LARGEST:
                raise DplcError("this number is too large: more than 127 bits", node)
            return found

        return calculate

    def _equality(self, node: Operation, a: Closure, b: Closure) -> Closure:
        op, same, symbolic = node.op, node.op == "==", self.symbolic

        def equal(env: Environment) -> Value:
            left, right = a(env), b(env)
            if left == right:
                return same
            if left.__class__ is str or right.__class__ is str:
                other, name = (left, node.a) if right.__class__ is str else (right, node.b)
                if isinstance(other, Node):
                    raise NotComputed("a name is compared with a text: never equal", name)
            if symbolic:  # roles and transports are some of a few names, and no numbers that a program computes
                closed = any(x.__class__ is e.Var and x.name in _ROLES_AND_TRANSPORTS for x in (left, right))
                if not closed and (isinstance(left, Node) or isinstance(right, Node)):
                    return e.compare(op, left, right)
            elif (
                (left.__class__ in _SIZED or right.__class__ in _SIZED)
                and has_sizes((left, right))
                and all(e.only_sizes(x) or x.__class__ is float for x in (left, right))
            ):
                return decided(op, left, right)
            return not same

        return equal

    def _comparison(self, op: str, a: Closure, b: Closure) -> Closure:
        symbolic, whole = self.symbolic, e.COMPARISONS[op]

        def compare(env: Environment) -> Value:
            left, right = a(env), b(env)
            if left.__class__ is int and right.__class__ is int:
                return whole(left, right)
            result = compared(op, left, right)
            return result if result.__class__ is bool or symbolic else decided(op, left, right)

        return compare

    def _prefix(self, node: Prefix) -> Closure:
        a = self.compile(node.a)
        if node.op == "-":
            return lambda env: e.negate(a(env))
        return lambda env: e.invert(v) if isinstance(v := a(env), Node) else not v

    def _choice(self, node: Choice) -> Closure:
        a, condition, b = self.compile(node.a), self.compile(node.condition), self.compile(node.b)
        return lambda env: a(env) if condition(env) else b(env)

    def _letexpression(self, node: LetExpression) -> Closure:
        """Compile named values and the expression that reads them."""
        outside = len(self.variables)
        lets = []
        for let in node.lets:
            lets.append((let.name, self.compile(let.value)))
            if outside:  # within a comprehension they depend on its variable
                self.variables.append(let.name)
        value = self.compile(node.value)
        del self.variables[outside:]

        def calculate(env: Environment) -> Value:
            inner = dict(env)
            for name, closure in lets:
                inner[name] = closure(inner)
            return value(inner)

        return calculate

    # ---- collections
    def _group(self, node: Group) -> Closure:
        match node:
            case Group(bracket="(", items=(item,)) if not isinstance(item, Run | AxisItem | Keyword):
                return self.compile(item)
        items = self.compile_all(node.items)
        return items if node.bracket != "{" else lambda env: tuple(dict.fromkeys(items(env)))

    def _comprehension(self, node: Comprehension) -> Closure:
        domain, variable = self.compile(node.domain), node.variable
        self.variables.append(variable)
        element = self.compile(node.element)
        condition = self.compile(node.condition) if node.condition is not None else None
        self.variables.pop()

        def collect(env: Environment) -> Value:
            inner = dict(env)
            out = []
            for inner[variable] in domain(env):
                try:
                    kept = condition is None or condition(inner)
                except Undecided:  # an unproved condition leaves the element out
                    if not leaves_out():
                        raise
                    continue
                if kept:
                    out.append(element(inner))
            return tuple(dict.fromkeys(out) if node.bracket == "{" else out)

        return collect

    def _chosen(self, node: Chosen) -> Closure:
        weigh, best = self.weighing(node), max if node.most else min

        def choose(env: Environment) -> Value:
            found = weigh(env)
            return best(found, key=operator.itemgetter(1))[0] if found else 0

        return choose

    def weighing(self, node: Chosen) -> Closure:
        """Return the closure of a `choose` that lists its (alternative, cost) pairs, in the order of the domain."""
        pair = Group(node.span, "(", (NameOf(node.span, node.costs.variable), node.costs.element))
        pairs = self.compile(replace(node.costs, element=pair))

        def weigh(env: Environment) -> Value:
            found = []
            for value, cost in pairs(env):
                listed = cost.__class__ is tuple
                each = tuple(map(hinted, cost if listed else (cost,)))
                weight = each if listed else each[0]
                if not all(isinstance(n, int | float) for n in each):
                    raise NotComputed(
                        f"a cost is a number, or a list of them; here it is {print_value(weight)}", node.costs.element
                    )
                found.append((value, weight))
            return tuple(found)

        return weigh

    def _between(self, node: Between) -> Closure:
        a, b = self.compile(node.a), self.compile(node.b)

        def numbers(env: Environment) -> Value:
            start, stop = a(env), b(env)
            if not e.is_int(start) or not e.is_int(stop):
                raise DplcError(f"a range is between whole numbers, not {start} and {stop}", node)
            if stop - start > LONGEST:
                raise DplcError(f"a range of {stop - start} numbers; {LONGEST} are possible", node)
            return tuple(range(start, stop))

        return numbers

    def _run(self, node: Run) -> Closure:
        return self.compile(node.base)

    def _member(self, node: Member) -> Closure:
        base, field = self.compile(node.base), node.field
        if field.startswith("_"):  # fields of records only: nothing that leads into Python
            raise DplcError(f"there is no field `{field}`", node)

        def get(env: Environment) -> Value:
            owner = base(env)
            value = getattr(owner, field, _ABSENT)
            if value is _ABSENT:
                options = [f.name for f in getattr(type(owner), "fields", ())]
                raise DplcError(f"`{type(owner).__name__}` has no field `{field}`", node, did_you_mean(field, options))
            return e.Var(value) if value.__class__ is str and owner.__class__ is not Target else value

        return get

    # ---- calls and brackets
    def _apply(self, node: Apply) -> Closure:
        if node.fn not in self.facts:
            return self.apply(node)
        ask, sited = self.facts[node.fn].ask, self.facts[node.fn].sited
        one = len(node.items) == 1 and not isinstance(node.items[0], Run)  # most facts: no tuple is built for them
        arguments = self.compile(node.items[0]) if one else self.compile_all(node.items)

        def question(env: Environment) -> Value:
            given = arguments(env)
            try:
                if one:
                    return ask(env.get(SITE), given) if sited else ask(given)
                return ask(env.get(SITE), *given) if sited else ask(*given)
            except MISTAKES as error:
                raise mistaken(node, error, given) from error

        return question

    def apply(self, node: Apply) -> Closure:
        """Compile a call that is not a fact: a scalar function (or a variable bound to one) of expressions."""
        arguments, name = self.compile_all(node.items), node.fn

        def call(env: Environment) -> Value:
            fn = env[name].name if name in env else name
            if fn not in FUNCTIONS:
                raise DplcError(f"unknown fact or function `{fn}`", node, did_you_mean(fn, (*self.facts, *FUNCTIONS)))
            return e.Call(fn, arguments(env))

        return call

    def _subscript(self, node: Subscript) -> Closure:
        """Compile `xs[n]`: an element of a list."""
        if len(node.items) != 1:
            raise DplcError("one index expected", node)
        base, index = self.compile(node.base), self.compile(node.items[0])

        def element(env: Environment) -> Value:
            found, place = base(env), index(env)
            try:
                return found[place]
            except MISTAKES as error:
                raise mistaken(node, error) from error

        return element


def _connective(a: Closure, b: Closure, combine: Callable[[Value, Value], Value], decisive: bool) -> Closure:
    """Return the closure of `and` or `or`. decisive: the truth of the left side that decides."""

    def connected(env: Environment) -> Value:
        left = a(env)
        if left.__class__ is not bool and isinstance(left, Node):
            return combine(left, b(env))
        return b(env) if (not left) is decisive else left

    return connected


# Clauses: a `require` must be proved; a `prefer` may use the example values of symbolic sizes.


UNDECIDED = "@undecided"  # why a guard does not hold: the condition that sizes leave open


def pays(guard: Closure, env: Environment) -> bool:
    """Return whether a `prefer` is true, with the example values of sizes."""
    with at_the_hints():
        return holds(guard, env)


def holds(guard: Closure, env: Environment) -> bool:
    """Return whether a guard is true; a comparison that cannot be decided does not hold."""
    try:
        result = guard(env)
    except Undecided as undecided:
        env[UNDECIDED] = undecided.condition
        return False
    if result is True or result is False:
        return result
    if isinstance(result, Node):
        return False
    raise InternalError(f"a guard gave {result!r}, which is neither true nor false")
