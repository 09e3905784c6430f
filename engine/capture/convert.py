"""Conversion of an exported program to Torch IR, by the ATen schemas instead of a table of ops.

The schemas give op names, fields and defaults. Statements are those that an output needs. A statement names the fields
of its overload that differ from their defaults, and those without a default (schemas.py says how the overload is read
off them).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch

from ...ir import schemas
from ...ir.diagnostic import DplcError, Span, UsageError
from ...ir.expr import Var
from ...ir.functions import FUNCTIONS
from ...ir.names import unused
from ...ir.node import REQUIRED, Value
from ...ir.program import Param, TensorType
from ...ir.schemas import DTYPES, PARTS, op_name
from ...ir.torch import TorchGraph, TorchOp
from .dynamic_shapes import Dynamic, Symbols, check_asked
from .export import HARMLESS, Exported, Root, place
from .fx_rewrites import constant_of
from .places import SourcePlaces
from .signature import parts_of

_NAMES = {getattr(torch, name): short for short, name in DTYPES.items() if hasattr(torch, name)}

# Words of the text syntax: a value of this name would not read back.
_WORDS = """
    BLOCK THREAD REG VEC serial reduce free SYNC ASYNC TMA kernel graph none true false inf nan match let where
    prefer pick rewrite example gives because on in by for if else each inside with load pass and or not rule
"""
_RESERVED = frozenset((*FUNCTIONS, *DTYPES, *_WORDS.split()))


# What PyTorch calls a conjugate or a sign that is taken when it is read, and a conjugate that is taken at once.
_CONJUGATES = {"_conj": "conj", "_conj_physical": "conj_physical", "_neg_view": "neg"}


class RandomNumbers(DplcError):
    """An op draws numbers."""


class Names:
    """Unique names that do not clash with words of the syntax: `mul`, `mul_1`, `mul_2`."""

    def __init__(self) -> None:
        self._used = set(_RESERVED)
        self._tried: dict[str, int] = {}

    def fresh(self, wish: str) -> str:
        base = re.sub(r"\W", "_", wish).strip("_") or "value"
        base = f"x{base}" if base[0].isdigit() else base
        name = unused(base, self._used, between="_", tried=self._tried)
        self._used.add(name)
        return name


@dataclass
class Conversion:
    """Torch IR with its origin.

    inputs: the name of every user input in order, used or not. complexes: inputs that are given as the pairs of complex
    numbers; complex_outs: indices of such outputs.
    """

    graph: TorchGraph
    inputs: tuple[str, ...]
    spans: dict[str, Span | str]
    tensors: dict[str, Any] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    complexes: tuple[str, ...] = ()
    complex_outs: frozenset[int] = frozenset()


def dtype_name(dtype: Any) -> str:
    """Return `f32` for torch.float32; torch's own name for a dtype that Torch IR has no name for."""
    return _NAMES.get(dtype, str(dtype).removeprefix("torch."))


def convert(
    exported: Exported, input_names: tuple[str, ...], places: SourcePlaces, dynamic: Dynamic = MappingProxyType({})
) -> Conversion:
    """Return the Torch IR of an exported program.

    input_names: preferred names of the user inputs, in order; dynamic: their dimensions that are sizes. Raises
    DplcError for an op that Torch IR cannot express: random, sized by the values of a tensor, or not an ATen op.
    """
    return _Converter(exported, input_names, places, dynamic).run()


class _Converter:
    def __init__(self, exported: Exported, input_names: tuple[str, ...], places: SourcePlaces, dynamic: Dynamic):
        self.exported, self.places, self.dynamic = exported, places, dynamic
        self.symbols = Symbols()
        self.names, self.wishes = Names(), list(input_names)[::-1]
        for name in {size.name for own in dynamic.values() for size in own.values()}:
            if self.names.fresh(name) != name:
                raise UsageError(f"`{name}` is a word of the IRs: a size needs another name")
        self.values: dict[Any, Value] = {}  # FX node -> Var, or the tuple of Vars of a region
        self.params: dict[str, Param] = {}
        self.shared: dict[int, Var] = {}  # one input for a weight that goes by several names
        self.body: list[TorchOp] = []
        self.inputs: list[str] = []
        self.tensors: dict[str, Any] = {}
        self.kinds: dict[str, str] = {}
        self.complexes: dict[str, str] = {}
        self.spans: dict[str, Span | str] = {}

    def run(self) -> Conversion:
        graph_module = self.exported.program.graph_module
        nodes = list(graph_module.graph.nodes)
        user = (n for n in nodes if n.op == "placeholder" and n.name not in self.exported.labels)
        for node, name in zip(user, self.wishes[::-1], strict=False):
            for place_, size in self.dynamic.get(name, {}).items():
                self.symbols.learn(node.meta["val"].shape[place_], size)
        check_asked(self.symbols, self.exported.asked)
        # user inputs choose their names first, then weights
        for weight in (False, True):
            for node in nodes:
                if node.op == "placeholder" and (node.name in self.exported.labels) is weight:
                    self.placeholder(node)
        self.region(graph_module, nodes, _needed(nodes, self.exported.outputs))
        return self.finish()

    def placeholder(self, node: Any) -> None:
        kind, wish, tensor = self.exported.labels.get(node.name) or ("input", self.wishes.pop(), None)
        if tensor is not None and id(tensor) in self.shared:
            self.values[node] = self.shared[id(tensor)]
            return
        name = self.names.fresh(wish)
        self.values[node] = Var(name)
        given = self.type_of(node.meta["val"])
        self.kinds[name] = kind
        if given.dtype in PARTS:
            self.params[name] = Param(name, PARTS[given.dtype], (*given.shape, 2))
            self.values[node] = self.added(name, "ViewAsComplex", given)
            self.complexes[name] = given.dtype
        else:
            self.params[name] = Param(name, given.dtype, given.shape)
        if kind == "input":
            self.inputs.append(name)
        else:
            self.shared[id(tensor)] = self.values[node]
            self.tensors[name] = tensor if name not in self.complexes else parts_of(tensor)

    def added(self, source: str, op: str, kind: TensorType) -> Var:
        """Add a statement that has no counterpart in the program: complex numbers pass as the pairs of their parts."""
        name = self.names.fresh(source)
        self.body.append(TorchOp(name, op, (("self", Var(source)),), (kind,)))
        return Var(name)

    def region(self, module: Any, nodes: list[Any], needed: set[Any]) -> None:
        for node in nodes:
            if node in needed and node.op == "call_function":
                self.call(module, node)

    def call(self, module: Any, node: Any) -> None:
        target = node.target
        number = node.meta.get("val")
        if isinstance(number, torch.SymInt) or (isinstance(number, torch.SymFloat) and not _of_tensors(node)):
            return  # read where it is used
        if isinstance(target, torch._ops.OpOverload):
            self.statement(node)
        elif getattr(target, "__name__", "") == "getitem" and target.__module__ == "_operator":
            self.getitem(node)
        elif isinstance(target, torch._ops.HigherOrderOperator) and self.inlined(module, node):
            return
        else:
            name = getattr(target, "__name__", str(target)).strip("_")
            raise DplcError(f"{name} is not supported", self.where(node))

    def inlined(self, module: Any, node: Any) -> bool:
        """Inline a region that only sets the gradient mode or the state of autocast; return whether the node is one.

        The casts of a region that switches autocast on are explicit ops by then.
        """
        name, args = node.target.name(), node.args
        if name == "wrap_with_set_grad_enabled":
            body, operands = args[1], args[2:]
        elif name == "wrap_with_autocast":
            body, operands = args[4], args[5:]
        else:
            return False
        inner = getattr(module, body.target)
        nodes = list(inner.graph.nodes)
        for placeholder, operand in zip((n for n in nodes if n.op == "placeholder"), operands, strict=True):
            self.values[placeholder] = self.values[operand]
        outputs = next(n for n in nodes if n.op == "output").args[0]
        self.region(inner, nodes, _needed(nodes, outputs))
        self.values[node] = tuple(self.values[output] for output in outputs)
        return True

    def getitem(self, node: Any) -> None:
        source = self.values[node.args[0]]
        if isinstance(source, tuple):
            self.values[node] = source[node.args[1]]
        else:
            self.emit(node, "Getitem", (("self", source), ("index", node.args[1])))

    def statement(self, node: Any) -> None:
        schema = node.target._schema
        namespace, name = schema.name.split("::")
        fields = self.fields(node, schema)
        if torch.Tag.nondeterministic_seeded in node.target.tags and not _quenched(fields):
            raise self.random(name, fields, node)
        if schema.name in HARMLESS:
            name = name.rstrip("_")
        elif schema.is_mutable:
            raise DplcError(f"torch op '{name}' works in place, which is not supported here", self.where(node))
        name = _CONJUGATES.get(name, name)
        op = op_name(name)
        if namespace != "aten" or op not in schemas.names() or schemas.aten_name(op) != name:
            raise DplcError(f"torch op '{name}' is not supported", self.where(node))
        args = tuple((key, value) for key, (value, default) in fields.items() if not _same(value, default))
        self.emit(node, op, _bound(op, args, node))

    def random(self, name: str, fields: dict[str, tuple[Value, Value]], node: Any) -> DplcError:
        """Return the error for an op that draws random numbers (with its module if no line is known)."""
        span = self.where(node)
        notes = () if span is not None else (f"in {_module_path(node)}",)
        if any(key in fields for key in (*_TRAINING, "dropout_p")):
            hint = "call `.eval()` on the module, or pass training=False"
            return RandomNumbers(f"`{name}` in training mode draws random numbers", span, notes, hint)
        hint = "make random tensors outside and pass them in"
        return RandomNumbers(f"torch op '{name}' draws random numbers", span, notes, hint)

    def fields(self, node: Any, schema: Any) -> dict[str, tuple[Value, Value]]:
        """Return {field: (value, default)} in schema order, without those of device and memory layout."""
        found = {}
        for index, argument in enumerate(schema.arguments):
            if argument.name in schemas.PLACEMENT:
                continue
            default = self.value(argument.default_value, node) if argument.has_default_value() else REQUIRED
            given = node.args[index] if index < len(node.args) else node.kwargs.get(argument.name, REQUIRED)
            value = default if given is REQUIRED else self.value(given, node)
            if "List[" in str(argument.type) and not isinstance(value, tuple) and value is not None:
                value = (value,)
            found[argument.name] = value, default
        return found

    def value(self, given: Any, node: Any) -> Value:
        if isinstance(given, torch.fx.Node):
            if given in self.values:
                return self.values[given]
            if isinstance(given.meta.get("val"), torch.SymInt) and self.symbols.knows(given.meta["val"]):
                return self.symbols.extent(given.meta["val"])
            if isinstance(given.meta.get("val"), torch.SymFloat):
                if (number := constant_of(given.meta["val"])) is not None:
                    return number
                what = f"torch op '{_aten(node)}' takes a float made of a length"
                raise DplcError(
                    what, self.where(node), hint="compute with a tensor instead; or leave the length out of dynamic="
                )
        elif isinstance(given, (list, tuple)):
            return tuple(self.value(item, node) for item in given)
        elif isinstance(given, torch.dtype):
            return Var(dtype_name(given))
        elif given is None or isinstance(given, (bool, int, float, str)):
            return given
        elif isinstance(given, complex):
            raise DplcError("complex numbers are not supported", self.where(node))
        raise DplcError(f"torch op '{_aten(node)}' depends on the values of a tensor", self.where(node))

    def emit(self, node: Any, op: str, args: Value) -> None:
        types = self.types(node)
        name = self.names.fresh(_aten(node))
        self.values[node] = Var(name)
        self.spans[name] = self.where(node) or _module_path(node)
        self.body.append(TorchOp(name, op, args, types))

    def types(self, node: Any) -> tuple[TensorType, ...]:
        given = node.meta.get("val")
        tensors = given if isinstance(given, (list, tuple)) else (given,)
        if any(isinstance(tensor, torch.Tensor) for tensor in tensors):  # a result that was not requested is empty
            tensors = [torch.empty(0, device="meta") if tensor is None else tensor for tensor in tensors]
        if not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
            raise DplcError(f"torch op '{_aten(node)}' gives no tensor", self.where(node))
        if not all(self.symbols.knows(n) for tensor in tensors for n in tensor.shape):
            raise DplcError(
                f"torch op '{_aten(node)}' gives a shape that depends on the values of a tensor", self.where(node)
            )
        return tuple(map(self.type_of, tensors))

    def type_of(self, tensor: Any) -> TensorType:
        return TensorType(dtype_name(tensor.dtype), tuple(map(self.symbols.extent, tensor.shape)))

    def where(self, node: Any) -> Span | None:
        return place(node, self.places)

    def finish(self) -> Conversion:
        types = {statement.dst: statement.types[0] for statement in self.body}
        outs, complex_outs = list[Param](), set[int]()
        for output in self.exported.outputs:
            name = self.values[output].name
            if name in self.params:
                outs.append(self.params[name])
                continue
            kind = types[name]
            if kind.dtype in PARTS and 0 not in kind.shape:
                kind = TensorType(PARTS[kind.dtype], (*kind.shape, 2))
                name = self.added(name, "ViewAsReal", kind).name
                complex_outs.add(len(outs))
            outs.append(Param(name, kind.dtype, kind.shape))
        graph = TorchGraph("main", tuple(self.params.values()), tuple(outs), tuple(self.body))
        complexes = tuple(self.complexes)
        return Conversion(
            graph, tuple(self.inputs), self.spans, self.tensors, self.kinds, complexes, frozenset(complex_outs)
        )


def _of_tensors(node: Any) -> bool:
    """Return whether a call reads a tensor: its numbers are not lengths then."""
    return any(isinstance(read.meta.get("val"), torch.Tensor) for read in node.all_input_nodes)


_END = 2**63 - 1  # the end of a slice that is left open, as torch writes it


def _needed(nodes: list[Any], outputs: Any) -> set[Any]:
    """Return the nodes that the outputs need. The graph is functional, so the others do nothing."""
    needed = {output for output in outputs if isinstance(output, torch.fx.Node)}
    for node in reversed(nodes):
        if node in needed:
            needed.update(node.all_input_nodes)
    return needed


def _aten(node: Any) -> str:
    schema = getattr(node.target, "_schema", None)
    name = schema.name.split("::")[1] if schema else str(getattr(node.target, "__name__", node.target))
    return name.strip("_")


def _same(value: Value, default: Value) -> bool:
    """Return whether a field is at its default: 1.0 is 1, but True is not, and -0.0 is not 0.0."""
    if value == _END and default is None:
        return True
    if isinstance(value, bool) or isinstance(default, bool):
        return value is default
    if isinstance(value, (int, float)) and isinstance(default, (int, float)):
        return value == default and math.copysign(1, value) == math.copysign(1, default)
    return value.__class__ is default.__class__ and bool(value == default)


_TRAINING = ("train", "training")  # the fields that say whether a module trains


def _quenched(fields: dict[str, tuple[Value, Value]]) -> bool:
    """Return whether a random op draws nothing: dropout outside of training or of rate 0, attention without dropout."""
    rates = ("dropout_p", "p") if any(name in fields for name in _TRAINING) else ("dropout_p",)
    return any(name in fields and fields[name][0] == 0 for name in (*_TRAINING, *rates))


# Defaults that mean something of the input's dtype. They are bound to it here, since float64 would read them otherwise.
_BOUND = {"RmsNorm": {"eps": "eps"}, "NanToNum": {"posinf": "max", "neginf": "min"}}


def _bound(op: str, args: Value, node: Any) -> Value:
    wanted, dtype = _BOUND.get(op), getattr(node.meta["val"], "dtype", torch.bool)
    if wanted is None or not dtype.is_floating_point:
        return args
    info, given = torch.finfo(dtype), dict(args)
    given.update({name: getattr(info, limit) for name, limit in wanted.items() if name not in given})
    return tuple((name, given[name]) for name in schemas.fields(op) if name in given)


def _module_path(node: Any) -> str:
    """Return the module that a node belongs to, for an op without a line of the user's text."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path, kind = stack[-1] if stack else ("", "the function")
    kind = kind if isinstance(kind, str) else kind.__name__
    path = path.partition(".")[2]
    if kind == f"{Root.__module__}.{Root.__qualname__}":
        return "the function"
    return f"{path} ({kind.rpartition('.')[2]})" if path else kind.rpartition(".")[2]
