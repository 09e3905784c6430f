"""Loop and Tile IR programs that a statement rule should reach: its own pattern, values put in for its variables.

Written as text, parsed, completed (`whole_programs`). What a run `xs..` stands for is drawn from what bodies
are made of: loads over what is in scope, products, sums, stores, reads of the slabs around.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ...ir.diagnostic import DplcError, Source
from ...ir.functions import FUNCTIONS
from ...ir.program import Kernel
from ...ir.text.parse import parse
from ...ir.text.read import read_unit
from ...ir.text.read_statements import CLOSED
from ..language import core as s
from ..language.rule import Rule
from .outcome import Dice, numeral

EXTENTS = (4, 8, 2, 16, 3, 5, 1, 32, 7, 12)
LONGEST = 64  # of the extents that a rule names
ROLES = ("THREAD", "BLOCK", "REG")


@dataclass
class SubjectScope:
    """What a place of the program can use. extents: of loops and axes; storing: whether stores may stand here."""

    extents: dict[str, int] = field(default_factory=dict)
    parallel: list[str] = field(default_factory=list)
    summed: list[str] = field(default_factory=list)
    storing: bool = True

    def inner(self, name: str, extent: int, role: str) -> SubjectScope:
        """Inside of a loop."""
        parallel = [*self.parallel, name] if role not in ("reduce", "serial") else self.parallel
        summed = [*self.summed, name] if role in ("reduce", "serial") else self.summed
        return SubjectScope({**self.extents, name: extent}, parallel, summed, self.storing and role == "free")


@dataclass
class DrawnSlab:
    name: str
    extents: tuple[int, ...]
    depth: int
    slot: str


class Instance:
    """One way to fill in the pattern of a rule."""

    def __init__(self, rule: Rule, dice: Dice):
        self.rule, self.dice = rule, dice
        self.values: dict[str, Any] = {}  # extents, roles, functions, runs of text by variable
        self.slabs: list[DrawnSlab] = []  # not read yet
        self.every: list[DrawnSlab] = []
        self.count = 0
        waits = "Wait(" in "".join(
            rule.span.source.line(n) for n in range(rule.span.line, rule.match[-1].span.end_line + 1)
        )
        self.transports = ("SYNC", "ASYNC") if waits else ("SYNC",)

    def program(self) -> tuple[Kernel, ...]:
        """The kernel, its buffers still undeclared. Raises DplcError where the pattern is beyond this generator."""
        statements = self.rule.match
        if len(statements) == 1 and isinstance(statements[0], s.Unit):
            statements = statements[0].body
        scope, lines = SubjectScope(), []
        tiled = any(isinstance(x, s.Statement) and getattr(x.call, "fn", "") == "Tile" for x in statements)
        if not tiled and self.rule.level == "tile":
            head = self._frame(scope)
            inner = self.block(statements, scope)
            if self.dice.often(30):  # the pattern as a whole comes again
                inner = [f"for again in 0..{self.dice.number(2, 3)} serial:", *_indented(inner)]
            inner += self._after(scope)
            lines = [head, *_indented(inner)]
        else:
            lines = self.block(statements, scope)
        text = "\n".join(["kernel subject() -> subject_out: f32[1]:", *_indented(lines or ["pass"])])
        (unit,) = parse(Source("subject", text + "\n"))
        kernel: Any = read_unit(unit)
        return (Kernel(kernel.name, (), (), kernel.body),)

    def _frame(self, scope: SubjectScope) -> str:
        """A Tile around a pattern of statements."""
        names = self.dice.pick((("i", "j"), ("t",), ("i", "j", "r")))
        for name in names:
            scope.extents[name] = self.dice.pick((4, 8, 3, 16))
        scope.parallel = list(names)
        roles = [
            "REG" if name == "r" else "BLOCK" if name == "i" and self.dice.often(30) else "THREAD" for name in names
        ]
        axes = ", ".join(f"{name}:{scope.extents[name]}={role}" for name, role in zip(names, roles, strict=True))
        return f"Tile({axes}):"

    def _after(self, scope: SubjectScope) -> list[str]:
        """Statements behind the pattern; what it copied is read once more now and then."""
        lines = self.run(scope) if self.dice.often(30) else []
        if self.every and self.dice.often(40):
            slab = self.dice.pick(self.every)
            lines += self.read(replace(slab, slot="0"), scope)
        return lines

    # ---- the pattern
    def block(self, statements: tuple[s.Syntax, ...], scope: SubjectScope) -> list[str]:
        out: list[str] = []
        for statement in statements:
            out += self.statement(statement, scope)
        return out

    def statement(self, node: Any, scope: SubjectScope) -> list[str]:
        if isinstance(node, s.ForLoop):
            return self.loop(node, scope)
        if isinstance(node, s.IfBlock):
            return [
                f"if {self.condition(node.condition, scope)}:",
                *_indented(self.block(node.body, scope) or ["pass"]),
            ]
        if isinstance(node, s.RunStatement):
            name = node.run.base.text  # type: ignore[attr-defined]
            if name not in self.values:
                self.values[name] = self.run(scope, spare=name in ("pre", "mid", "post"))
            return list(self.values[name])
        if isinstance(node, s.CaptureStatement):
            many = self.dice.number(1, 2) if node.repeat else 1
            return [line for _ in range(many) for line in self.operation(node.call, scope)]
        if isinstance(node, s.InsideBlock):
            return self.inside(node, scope)
        if isinstance(node, s.Statement) and isinstance(node.call, s.Apply):
            if node.call.fn == "Tile":
                return self.tile(node, scope)
            return self.operation(node.call, scope)
        if isinstance(node, s.Assign):
            return self.assign(node, scope)
        if isinstance(node, s.AccumulateInto) and isinstance(node.target, s.NameOf) and isinstance(node.value, s.Apply):
            fn = self.function(node.value.fn, ("add", "maximum"))
            return [f"{node.target.text} <- {fn}({node.target.text}, {self.scalar(node.value.items[1], scope)})"]
        raise DplcError("beyond the generator", node.span)

    def loop(self, node: s.ForLoop, scope: SubjectScope) -> list[str]:
        role = next((a.text for a in node.attributes if isinstance(a, s.NameOf)), "serial")
        if role not in CLOSED["Role"]:
            role = self.values.setdefault(role, self.dice.pick(("reduce", "serial", "free")))
        start = "0" if isinstance(node.start, s.Number) else self.start(node.start, scope)
        stop = self.extent(node.stop)
        step = "" if node.step is None else f" by {self.extent(node.step)}"
        body = self.block(node.body, scope.inner(node.var, stop, role))
        return [f"for {node.var} in {start}..{stop}{step} {role}:", *_indented(body or ["pass"])]

    def start(self, node: s.Syntax, scope: SubjectScope) -> str:
        name = node.text if isinstance(node, s.NameOf) else "0"
        return name if name in scope.extents else str(s.constant_of(node) or 0)

    def extent(self, node: s.Syntax) -> int:
        """The number that an extent of the pattern stands for."""
        number = s.constant_of(node)
        if number is not None:
            return int(number)
        name = node.text if isinstance(node, s.NameOf) else f"@{self.count}"
        if name == "_" or not isinstance(node, s.NameOf):
            return numeral(self.dice, EXTENTS, 1, LONGEST)
        if not isinstance(self.values.get(name), int):
            self.values[name] = numeral(self.dice, EXTENTS, 1, LONGEST)
        return int(self.values[name])

    def condition(self, node: s.Syntax, scope: SubjectScope) -> str:
        name = self.dice.pick(list(scope.extents) or ["i"])
        if isinstance(node, s.NameOf) and node.text in self.values:
            return str(self.values[node.text])
        made = f"{name} < {self.dice.number(1, max(2, scope.extents.get(name, 4) + 1))}"
        if isinstance(node, s.NameOf):
            self.values[node.text] = made
        return made

    def inside(self, node: s.InsideBlock, scope: SubjectScope) -> list[str]:
        body = self.block(node.body, scope)
        before = self.run(scope, spare=True) if self.dice.often(30) else []
        after = self.run(scope, spare=True) if self.dice.often(30) else []
        return [*before, *body, *after]

    def tile(self, node: s.Statement, scope: SubjectScope) -> list[str]:
        call: Any = node.call
        axes: list[tuple[str, int, str]] = []
        fields = []
        for item in call.items:
            if isinstance(item, s.Run):
                role = item.role if item.role in ROLES else None
                for _ in range(self.dice.number(0, 2) if len(call.items) > 1 else self.dice.number(1, 2)):
                    self.count += 1
                    axes.append(
                        (
                            f"{'abcde'[self.count % 5]}{self.count}",
                            self.dice.pick((2, 4, 3, 8)),
                            role or self.dice.pick(ROLES),
                        )
                    )
            elif isinstance(item, s.AxisItem):
                axes.append(
                    (item.name, self.extent(item.extent), item.role if item.role in ROLES else self.dice.pick(ROLES))
                )
            elif isinstance(item, s.Keyword):
                fields.append(f"{item.name}={s.constant_of(item.value)}")
        inner = SubjectScope({name: extent for name, extent, _ in axes}, [name for name, _, _ in axes], [], True)
        order = {"BLOCK": 0, "THREAD": 1, "REG": 2}
        if self.dice.often(50) and any(isinstance(item, s.Run) for item in call.items):
            axes.sort(key=lambda axis: order[axis[2]])
        head = ", ".join([*(f"{name}:{extent}={role}" for name, extent, role in axes), *fields])
        body = self.block(node.body or (), inner)
        return [f"Tile({head}):", *_indented(body or ["pass"])]

    # ---- statements of one line
    def operation(self, call: s.Apply, scope: SubjectScope) -> list[str]:
        if call.fn == "Stage":
            return [self.stage(call, scope)]
        if call.fn in ("Sync", "Wait"):
            return [f"{call.fn}()"]
        if call.fn == "Combine":
            names = list(scope.parallel) or ["t"]
            self.count += 1
            return [
                f"sum{self.count} <- add(sum{self.count}, 1.0)",
                f"Combine(sum{self.count}, add, over=[{self.dice.pick(names)}])",
            ]
        raise DplcError("beyond the generator", call.span)

    def stage(self, call: s.Apply, scope: SubjectScope) -> str:
        """A copy of one or two dimensions whose origin moves with the loop around."""
        given = {item.name: item.value for item in call.items if isinstance(item, s.Keyword)}
        depth = self._field(given.get("depth"), (1, 2, 3))
        via = given.get("via")
        name = via.text if isinstance(via, s.NameOf) and via.text in CLOSED["Via"] else self.dice.pick(self.transports)
        axes = given.get("slab")
        count = len(axes.items) if isinstance(axes, s.Group) else self.dice.number(1, 2)
        extents = tuple(self.dice.pick((4, 8, 16, 32, 5)) for _ in range(count))
        self.count += 1
        slab = DrawnSlab(f"S{self.count}", extents, depth, "0")
        loop = scope.summed[-1] if scope.summed else None
        if depth > 1 and loop:
            slab.slot = f"{loop} % {depth}"
        self.slabs.append(slab)
        self.every.append(slab)
        origin = ", ".join(f"{loop}*{n}" if loop and d == len(extents) - 1 else "0" for d, n in enumerate(extents))
        labels = ", ".join(f"{'xyz'[d]}:{n}@{d}" for d, n in enumerate(extents))
        more = f", depth={depth}, slot={slab.slot}" if depth > 1 else ""
        return f"{slab.name} = Stage(G{self.count}, origin=[{origin}], slab=[{labels}]{more}, via={name})"

    def _field(self, node: s.Syntax | None, options: tuple[int, ...]) -> int:
        if node is None:
            return options[0]
        number = s.constant_of(node)
        if number is not None:
            return int(number)
        name = getattr(node, "text", "_")
        return int(self.values.setdefault(name, self.dice.pick(options[::-1])))

    def assign(self, node: s.Assign, scope: SubjectScope) -> list[str]:
        target = node.target.text if isinstance(node.target, s.NameOf) else "value"
        value = node.value
        if isinstance(value, s.LoadOf) and isinstance(value.access, s.Subscript):
            key = getattr(value.access.base, "text", "B")
            access = self.values.setdefault(f"@{key}", f"{key}[{self.index(scope)}]")
            guard = ""
            if value.condition is not None:
                other = None if value.other is None else s.constant_of(value.other)
                guard = f" if {self.condition(value.condition, scope)} else {0.0 if other is None else other}"
            return [f"{target} = load {access}{guard}"]
        if isinstance(value, s.Apply) and value.fn in ("Stage",):
            return [self.stage(value, scope)]
        return [f"{target} = {self.scalar(value, scope)}"]

    def scalar(self, node: s.Syntax, scope: SubjectScope) -> str:
        """A scalar expression: a function of names, or for a variable a drawn one."""
        if s.constant_of(node) is not None:
            return str(s.constant_of(node))
        if isinstance(node, s.Apply):
            fn = self.function(node.fn, ("exp", "abs"))
            return f"{fn}({', '.join(self.scalar(item, scope) for item in node.items)})"
        if isinstance(node, s.NameOf) and node.text == "e":
            return str(self.values.setdefault("@e", f"multiply({self.dice.pick(list(scope.extents) or ['i'])}, 2)"))
        return getattr(node, "text", "1.0")

    def function(self, name: str, options: tuple[str, ...]) -> str:
        return name if name in FUNCTIONS else str(self.values.setdefault(name, self.dice.pick(options)))

    # ---- runs
    def run(self, scope: SubjectScope, spare: bool = False) -> list[str]:
        """Statements that may stand here. spare: often none at all."""
        if spare and not self.dice.often(35):
            return []
        kind = self.dice.number(0, 5)
        waiting, self.slabs = self.slabs, []
        lines = [line for slab in waiting for line in self.read(slab, scope)]
        if waiting and kind < 3:
            return lines
        if kind == 0 or not scope.extents:
            return [*lines, *self.total(scope)]
        if kind == 1 and len(scope.parallel) > 1:
            return [*lines, *self.product(scope)]
        if kind == 2 and scope.storing:
            return [*lines, *self.pointwise(scope)]
        if kind == 3 and len(scope.parallel) > 1:
            return [*lines, *self.product(scope), *(self.pointwise(scope) if scope.storing else [])]
        if kind == 5 and scope.storing:
            return [*lines, *self.row(scope)]
        return [*lines, *self.total(scope)]

    def row(self, scope: SubjectScope) -> list[str]:
        """A free loop over a row, as long as a loop of the pattern."""
        known = [value for value in self.values.values() if isinstance(value, int) and value > 1]
        name, extent = self.fresh("l"), self.dice.pick([*known, 8, 5])
        inner = scope.inner(name, extent, "free")
        return [f"for {name} in 0..{extent} free:", *_indented(self.pointwise(inner))]

    def fresh(self, hint: str) -> str:
        self.count += 1
        return f"{hint}{self.count}"

    def index(self, scope: SubjectScope) -> str:
        names = list(scope.extents)
        if not names:
            return "0"
        if len(names) > 1 and self.dice.often(35):  # one index of two names, the second one varying fastest
            a, b = self.dice.pick(names[:-1]), names[-1]
            return f"{a}*{scope.extents[b]} + {b}"
        chosen = [name for name in names if self.dice.often(60)] or names[-1:]
        return ", ".join(chosen)

    def total(self, scope: SubjectScope) -> list[str]:
        value, total = self.fresh("v"), self.fresh("acc")
        return [
            f"{value} = load X{self.count}[{self.index(scope)}]",
            f"{total} <- {self.dice.pick(('add', 'maximum'))}({total}, {value})",
        ]

    def product(self, scope: SubjectScope) -> list[str]:
        """A contraction over the reduced name in scope, or over a loop of its own."""
        i, j = scope.parallel[-2:]
        k = next((name for name in reversed(scope.summed)), None)
        a, b, p, total = (self.fresh(letter) for letter in ("a", "b", "p", "acc"))
        inner = k or self.fresh("k")
        lines = [
            f"{a} = load A{self.count}[{i}, {inner}]", f"{b} = load B{self.count}[{inner}, {j}]",
            f"{p} = multiply({a}, {b})", f"{total} <- add({total}, {p})",
        ]  # fmt: skip
        return lines if k else [f"for {inner} in 0..{self.dice.pick((4, 8, 6))} reduce:", *_indented(lines)]

    def pointwise(self, scope: SubjectScope) -> list[str]:
        value, out = self.fresh("v"), self.fresh("Y")
        flat = "0"
        names = list(scope.extents)
        if len(names) > 1 and self.dice.often(40):
            flat = names[0]
            for name in names[1:]:
                flat = f"({flat})*{scope.extents[name]} + {name}"
        else:
            flat = ", ".join(names) or "0"
        return [f"{value} = load X{self.count}[{self.index(scope)}]", f"{out}[{flat}] = {value}"]

    def read(self, slab: DrawnSlab, scope: SubjectScope) -> list[str]:
        """A sum over what a slab holds."""
        value, total = self.fresh("v"), self.fresh("acc")
        cells = []
        for extent in slab.extents:
            fitting = [name for name in scope.parallel if scope.extents[name] <= extent]
            cells.append(self.dice.pick([*fitting, str(self.dice.number(0, extent - 1))]))
        index = ", ".join(([slab.slot] if slab.depth > 1 else []) + cells)
        return [f"{value} = load {slab.name}[{index}]", f"{total} <- add({total}, {value})"]


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]
