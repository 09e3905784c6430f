"""Names that a rule may use: facts, functions, statements, values, fields, with sorts and a sentence each.

Each definition has one description. The signatures are those that matchers read, the sentences are the docstrings.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...codegen import target as devices
from ...ir import schemas, tensor
from ...ir.atoms import ATOMS
from ...ir.functions import FUNCTIONS
from ...ir.kernel import VALUES as ADDRESSES
from ...ir.monoid_texts import TEXTS
from ...ir.node import Field
from ...ir.text.read_statements import owners
from ..language.check import load_facts
from ..language.core import FORMS
from ..language.evaluate import FACTS
from ..language.rule import LEVELS, RuleSet
from ..language.sorts import TARGET_FIELDS, field_sort

ROOT = Path(__file__).resolve().parents[2]
VALUES = (tensor.Reduce, tensor.Fold, tensor.Index, tensor.Case, tensor.Mat)
STATEMENTS = {"loop": ("loop", "tile", "module"), "tile": ("tile", "module"), "kernel": ("kernel",)}


@dataclass(frozen=True)
class Word:
    """Name that a rule may use.

    kind: fact, function, statement, value, op, monoid, atom or target; signature: as it is written, with sorts; says:
    its documentation, the first line a sentence; fields: (name, sort, default). The location of the definition is
    `file:line`.
    """

    name: str
    kind: str
    signature: str = ""
    says: str = ""
    levels: tuple[str, ...] = ()
    place: str = ""
    fields: tuple[tuple[str, str, str], ...] = ()

    @property
    def sentence(self) -> str:
        """First paragraph of the documentation, on one line."""
        return " ".join(self.says.split("\n\n")[0].split())

    def record(self) -> dict[str, Any]:
        """Return the word as data for JSON."""
        fields = [{"name": name, "sort": sort, "default": default} for name, sort, default in self.fields]
        return {**vars(self), "fields": fields}


def field_text(sort: str, default: str) -> str:
    """Return the sort of a field, with its default if it has one."""
    return f"{sort}, else {default}" if default else sort


# ---- queries


def facts(rules: RuleSet | None = None) -> list[Word]:
    """Return facts and scalar functions by name, with the facts that the files of `rules` declare."""
    load_facts()
    return sorted((*_facts(rules), *_functions()), key=lambda entry: (entry.name, entry.levels))


def _facts(rules: RuleSet | None) -> Iterator[Word]:
    for fact in {(fact.name, id(fact)): fact for fact in FACTS.values()}.values():
        text = f"{fact.name}({', '.join(fact.arguments)}) -> {fact.result}"
        levels = tuple(level for level in LEVELS if level in fact.levels)
        yield Word(fact.name, "fact", text, inspect.cleandoc(fact.doc), levels, _place(fact.ask))
    for declared in rules.facts.values() if rules is not None else ():
        place = f"{declared.span.source.name}:{declared.span.line}"
        given = ", ".join(f"{parameter.name}: {parameter.sort}" for parameter in declared.parameters)
        text = f"{declared.name}({given}) -> {declared.result}"
        yield Word(declared.name, "fact", text, "\n".join(declared.docs), tuple(LEVELS), place)


def _functions() -> Iterator[Word]:
    for function in FUNCTIONS.values():
        operands = ("x",) if function.arity == 1 else ("condition", "a", "b") if function.arity == 3 else ("a", "b")
        algebra = " Commutative." if function.commutative else ""
        algebra += f" A reduction starts from {function.identity}." if function.identity is not None else ""
        says = f"{function.meaning} ({function.kind}).{algebra}"
        text = f"{function.name}({', '.join(operands)})"
        yield Word(function.name, "function", text, says, tuple(LEVELS), "ir/functions.py")


# ---- the parts of programs


@functools.cache
def nodes() -> tuple[Word, ...]:
    """Return statements and values of the IRs except Torch IR, monoids, atoms, and the fields of `target`."""
    return (*_nodes(), machine())


def _nodes() -> Iterator[Word]:
    for cls in (*owners().values(), *ADDRESSES):
        module, fields = cls.__module__.rpartition(".")[2], tuple(map(_field, cls.fields))
        named = ((name, default) for name, _, default in fields if name != "body")
        written = ", ".join(f"{name}={default}" if default else name for name, default in named)
        levels, says = STATEMENTS.get(module, (module,)), inspect.cleandoc(cls.__doc__ or "")
        name = cls.__name__
        yield Word(name, "statement", f"{name}({written})", says, levels, _place(cls), fields)
    for value in VALUES:
        name = "mat" if value is tensor.Mat else value.__name__
        text = FORMS.get(name) or f"{name}({', '.join(field.name for field in value.fields)})"
        says = inspect.cleandoc(value.__doc__ or "")
        yield Word(name, "value", text, says, ("torch", "tensor"), _place(value), tuple(map(_field, value.fields)))
    for name, (operands, identity, lifted, _) in TEXTS.items():
        lines = "; ".join(lifted.splitlines())
        says = f"A tuple monoid with the parts {', '.join(identity)}. An element of ({', '.join(operands)}) is {lines}."
        yield Word(name, "monoid", name, says, tuple(LEVELS), "ir/monoid_texts.py")
    for atom in ATOMS.values():
        extents = f"{atom.m}x{atom.k} by {atom.k}x{atom.n}"
        who, machines = ("Four warps multiply", "on") if atom.asynchronous else ("A warp multiplies", "from")
        says = f"{who} {extents} of {' or '.join(atom.dtypes)}, sums in {atom.sums}; {machines} sm_{atom.sm}."
        yield Word(atom.name, "atom", atom.name, says, ("tile", "kernel"), "ir/atoms.py")


def machine() -> Word:
    """Describe the fields of `target` with units, and the devices for `for NAME` and `target.name`."""
    known = "\n".join(f'- {name}: "{devices.load_device(name).name}"' for name in devices.devices())
    says = f"{inspect.cleandoc(devices.Target.__doc__ or '')}\n\nDevices, and their `target.name`:\n\n{known}"
    fields = tuple((name, sort.kind, "") for name, sort in TARGET_FIELDS.items())
    return Word("target", "target", "target.FIELD", says, tuple(LEVELS), _place(devices.Target), fields)


@functools.cache
def op(name: str) -> Word | None:
    """Return an op of Torch IR, with the fields of all its overloads, or None for an unknown op."""
    overloads = schemas.overloads(name)
    if not overloads:
        return None
    forms = [f"{form.name}({', '.join(map(_argument, form.arguments))})" for form in overloads]
    fields: dict[str, tuple[str, str, str]] = {}
    for argument in (argument for form in overloads for argument in form.arguments):
        default = "" if argument.required else _default(argument.default)
        fields.setdefault(argument.name, (argument.name, argument.kind, default))
    required = [argument.name for argument in overloads[0].arguments if argument.required]
    says = f"torch.ops.aten.{schemas.aten_name(name)}\n\n" + "\n".join(forms)
    text = f"{name}({', '.join(required)})"
    return Word(name, "op", text, says, ("torch",), "ir/aten.json", tuple(fields.values()))


def _argument(argument: schemas.Argument) -> str:
    default = "" if argument.required else f" = {_default(argument.default)}"
    return f"{argument.name}: {argument.kind}{default}"


# ---- by name


def known(rules: RuleSet | None = None) -> list[Word]:
    """Return all names except the ops of Torch IR."""
    return [*facts(rules), *nodes()]


def find(entries: Iterable[Word], name: str, level: str | None = None) -> list[Word]:
    """Return the entries of a name on a level, and the torch op of the name."""
    found = [entry for entry in entries if entry.name == name and (level is None or level in entry.levels)]
    ops = op(name) if level in (None, "torch") else None
    return [*found, ops] if ops is not None else found


def _field(field: Field) -> tuple[str, str, str]:
    default = "" if field.required else _default(field.default)
    sort = field_sort(field.sort, field.many)
    return field.name, f"[{sort.kind}]" if sort.many else sort.kind, default


def _default(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    if isinstance(value, tuple):
        return f"({', '.join(map(_default, value))})"
    return str(getattr(value, "name", value))


def _place(definition: Callable[..., Any] | type) -> str:
    """Return `file:line` of a definition, relative to the root of the tree."""
    try:
        path, line = inspect.getsourcefile(definition), inspect.getsourcelines(definition)[1]
        return f"{Path(path or '').resolve().relative_to(ROOT)}:{line}"
    except (OSError, TypeError, ValueError):
        return definition.__module__
