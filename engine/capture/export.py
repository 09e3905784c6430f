"""`torch.export` (not strict) of one function of flat tensors, with its errors as ours; its program as Torch IR."""

from __future__ import annotations

import functools
import io
import itertools
import logging
import math
import operator
import re
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr
from typing import Any
from unittest import mock

import torch
from torch import SymFloat, SymInt, Tensor
from torch._C._functorch import TransformType
from torch._functorch import predispatch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind, OutputSpec
from torch.fx import GraphModule, Node, config as fx_config
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.fx.node import Argument, Target
from torch.fx.traceback import annotate, preserve_node_meta
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ...ir import schemas
from ...ir.diagnostic import DplcError, Span, UsageError, did_you_mean
from ...ir.expr import Size, Var, free_names
from ...ir.functions import FUNCTIONS
from ...ir.names import unused, with_article
from ...ir.node import REQUIRED, Value, replace
from ...ir.program import Param, TensorType
from ...ir.schemas import DTYPES, PARTS, op_name
from ...ir.torch import TorchGraph, TorchOp
from ..rewrite.torch_rules.lower import random_numbers
from .control_flow import CONTROL_FLOW
from .decompositions import UNASKED, by_types, decompose, table
from .dynamic_shapes import Symbols, exported_shapes, stand_ins
from .fx_rewrites import (
    Function,
    as_tensors,
    called_with,
    constant_of,
    draws_numbers,
    given_fields,
    indexed,
    is_view,
    leaving_autocast,
    placeholders,
    regions,
    storages,
    switching_autocast,
    tensors,
    value,
    views_among,
)
from .places import SourcePlaces
from .precision import one_precision
from .signature import (
    Attribute,
    Capture,
    Fixed,
    Output,
    Results,
    Signature,
    Tensors,
    TraceInput,
    as_buffers,
    check_kind,
    mould,
    output,
    parts_of,
    tensors_of,
)

# ---- Mark what a torch call leaves in the graph with the call's location.


Weights = Mapping[str, torch.nn.Module | Tensor]  # {label: module or parameter}
KEY = "dplc"  # under which FX nodes carry their location

# What PyTorch itself asks of every tensor: nothing is recorded, and no length is read.
QUERIES = frozenset(getattr(Tensor, name).__get__ for name in (
    "device", "dtype", "is_leaf", "is_quantized", "is_sparse", "layout", "requires_grad",
)) | {Tensor._is_view}  # fmt: skip


OF_VALUES = frozenset((torch.tensor, torch.as_tensor, torch.asarray, Tensor.new_tensor))  # of Python's numbers


class Annotate(TorchFunctionMode):
    """Mode that marks the FX nodes of a torch call with its location.

    note: is called twice for each call, if there is one: before it without a location, after it with its own.
    """

    def __init__(self, places: SourcePlaces, note: Callable[[Span | None], None] | None):
        super().__init__()
        self.last: Span | None = None  # location of the latest call: torch's own errors may not name it
        self._places, self._note = places, note

    def __torch_function__(
        self, function: Function, types: object, args: tuple[Any, ...] = (), kwargs: Mapping[str, object] | None = None
    ) -> object:
        if torch.compiler.is_dynamo_compiling() or function in QUERIES:  # dynamo traces the body of torch's scan
            return function(*args, **(kwargs or {}))
        self.last = span = self._places.here(sys._getframe(1), Root.forward.__code__)
        if any(level.key() != TransformType.Vmap for level in torch._C._functorch.get_interpreter_stack() or ()):
            what = "torch.func.grad, vjp, jvp and what is made of them are not supported here"
            hint = 'compile with torch.compile(.., backend="dplc"), or take gradients by torch.autograd.grad'
            raise DplcError(what, span, hint=hint)
        if self._note is not None:
            self._note(None)
        given = args
        if function is Tensor.__getitem__ and args[0].is_meta:
            given = args[0], _with_values(args[1])
        with nullcontext() if span is None else annotate({KEY: span}):
            result = UNASKED.get(function, function)(*given, **(kwargs or {}))
            if function in OF_VALUES and result.is_meta and not tensors(args[function is Tensor.new_tensor :], kwargs):
                result = function(*args, **{**(kwargs or {}), "device": "cpu"}).to("meta")  # which keeps the values
        if self._note is not None:
            self._note(span)
        return result


def _with_values(index: object) -> object:
    """Convert the lists of an index to tensors on the CPU: torch would create them on meta and lose their values."""
    if isinstance(index, tuple):
        return tuple(map(_with_values, index))
    return torch.tensor(index) if isinstance(index, list) and all(isinstance(n, int) for n in index) else index


# ---- Trace a function.


# A functional spelling of it is the value itself: no reason to pay for functionalisation.
HARMLESS = "aten::detach_"


class Root(torch.nn.Module):
    """Module that is exported: a function of flat tensors, and the modules it uses under names of our own."""

    def __init__(self, function: Function, inputs: Sequence[TraceInput], weights: Weights):
        super().__init__()
        self._function = function
        self._labels = {f"tensors_{index}": given.name for index, given in enumerate(inputs)}  # as export calls them
        for index, (label, weight) in enumerate(weights.items()):
            self._labels[f"weight{index}"] = label
            setattr(self, f"weight{index}", weight)
        for word, held in (("parameter", self.named_parameters()), ("buffer", self.named_buffers())):
            for target, weight in held:
                check_kind(f"{word} `{self.label(target)}`", weight, wrappers=True)

    def forward(self, *tensors: Tensor) -> object:
        ranks = [x.dim() for x in tensors]
        results = self._function(*tensors)
        for name, x, rank in zip(self._labels.values(), tensors, ranks, strict=False):
            if x.dim() != rank:
                raise DplcError(f"the function changes the shape of `{name}` in place", hint=A_COPY)
        return results

    def label(self, target: str) -> str:
        """Return the name for people of an input or weight: `weight0.layers.1.bias` is `linear_layers_1_bias`."""
        name, *rest = target.split(".")
        return "_".join(filter(None, (self._labels.get(name, name), *rest)))


class Flat:
    """The function of flat tensors that is exported. What a trace finds is here: export restores a module's attributes.

    results: as in Signature. assigned: the attributes of modules that the function assigns, as in Signature; their
    values are returned after its own. weights: those of the modules whose attributes may be assigned.
    """

    def __init__(self, function: Function, inputs: Sequence[TraceInput], weights: Weights, symbols: Symbols):
        self._function, self._inputs, self._symbols = function, inputs, symbols
        self._modules = [weight for weight in weights.values() if isinstance(weight, torch.nn.Module)]
        self.results: Results = (None, ())
        self.assigned: tuple[Attribute, ...] = ()

    def __call__(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        self._symbols.begin(self._inputs, tensors)
        before = self._attributes()
        result, order = self._function(*tensors), itertools.count()
        self._symbols.prove()
        leaves, spec = pytree.tree_flatten(result)
        held = tuple(tensor for leaf in leaves for tensor in tensors_of(leaf))
        if not held:
            raise DplcError(f"the function returns {with_article(type(result).__name__)}, not a tensor")
        if any(isinstance(leaf, (SymInt, SymFloat, torch.SymBool)) for leaf in leaves):
            raise DplcError("the function returns a number that depends on the values of a tensor")
        kinds = (
            next(order) if isinstance(leaf, Tensor) else mould(leaf, order) if tensors_of(leaf) else Fixed(leaf)
            for leaf in leaves
        )
        self.results = spec, tuple(kinds)
        assigned = {home: x for home, x in self._attributes().items() if x is not before.get(home)}
        self.assigned = tuple(assigned)
        return *held, *assigned.values()

    def _attributes(self) -> dict[Attribute, Tensor]:
        """Return the tensors that are attributes of the function's modules."""
        return {
            (module, name): x
            for root in self._modules
            for module in root.modules()
            for held in (module.__dict__, module._parameters, module._buffers)
            for name, x in held.items()
            if isinstance(x, Tensor)
        }


def export(
    function: Function, inputs: Sequence[TraceInput], weights: Weights, places: SourcePlaces,
    of_text: bool = False, aliases: bool = False,
) -> Capture:  # fmt: skip
    """Return the Torch IR of a function of such tensors, without the weights that it does not read.

    weights: {label: module that the function uses}. of_text: whether the inputs are tensors of a text, which may mutate
    them; it keeps those that it reads. aliases: whether results that share memory, with each other or an input, also do
    so at a call, by the signature, which also writes what the function changes in place; otherwise the graph computes
    each, and only a text may change its inputs. Raises DplcError for everything that cannot be traced, at the span of
    the user's text that caused it, and for an op that Torch IR cannot express: random, sized by the values of a tensor,
    or not an ATen op.
    """

    @functools.cache
    def written() -> tuple[TorchGraph, Tensors] | None:
        """Return the program of the user's own ops, functional; None if PyTorch or Torch IR cannot express that."""
        try:
            own = program
            if any(map(_mutable, _nodes(program))):
                with _tracing():
                    own = decompose(program, {})
            made = Conversion(own, root, inputs, symbols, aliases)
        except Exception:  # of torch's many classes
            return None
        return made.graph, made.tensors

    with _tracing():
        program, functional, root, flat, symbols = _traced(function, inputs, weights, places, aliases)
        strided = _holders(program, (node.args[0] for node in _nodes(program) if "as_strided" in str(node.target)))
        unmoved = _unmoved(program, functional, root) if aliases else _check_changes(program, functional, root, of_text)
    made = Conversion(functional, root, inputs, symbols, aliases)
    graph, user = made.graph, zip(program.graph_signature.user_inputs, made.inputs, inputs, strict=True)
    read = {out.name for out in graph.outs}.union(*(free_names(statement.args) for statement in graph.body))
    kept = tuple(p for p in graph.ins if p.name in read or (not of_text and p.name in made.inputs))
    kinds = {param.name: made.kinds[param.name] for param in kept}
    given = tuple(name for name, kind in kinds.items() if kind == "input")
    arguments = pytree.tree_structure((given, {})), given
    signature = Signature(arguments, flat.results, made.outputs, made.views, made.writes, unmoved, flat.assigned)
    return Capture(
        replace(graph, ins=kept),
        {name: made.tensors[name] for name in kinds},
        kinds,
        made.spans,
        signature,
        strides={name: x.tensor.stride() for target, name, x in user if target in strided and not of_text},
        written=None if functional is program else written,
    )


def _traced(
    function: Function, inputs: Sequence[TraceInput], weights: Weights, places: SourcePlaces, aliases: bool,
) -> tuple[ExportedProgram, ExportedProgram, Root, Flat, Symbols]:  # fmt: skip
    """Return the exported program of a function, also functional, and its module.

    Where the function changes a tensor that is an attribute, it is traced again: as if these were buffers.
    """
    symbols, shapes = Symbols(places), exported_shapes(inputs)
    flat = Flat(function, inputs, weights if aliases else {}, symbols)
    root = Root(flat, inputs, weights)
    try:
        with Annotate(places, symbols.note if shapes else None) as marks, symbols.computing():
            program = torch.export.export(root, stand_ins(inputs), strict=False, dynamic_shapes=shapes)
    except DplcError:
        raise
    except Exception as error:
        span = places.of_error(error)
        raise symbols.refusal(str(error), span) or explain(error, span or marks.last) from None
    plain = aliases and any(isinstance(x, Tensor) for module in root.modules() for x in vars(module).values())
    try:
        assigned = _check_assigned(program, root, flat.assigned)
        functional = _functional(program, places)
    except DplcError as error:
        if not plain or error.what != _OF_CLOSURE:
            raise
        assigned = True
    if not assigned:
        return program, functional, root, flat, symbols
    with as_buffers(root.modules()):
        return _traced(function, inputs, weights, places, aliases)


_OF_CLOSURE = "the function changes a tensor of its closure in place"
A_COPY = "change a copy: `.clone()`"
_ELSEWHERE = 'compile with torch.compile(.., backend="dplc")'
# Errors of Python and torch, by their class and text, and what they mean for the user.
_KNOWN: tuple[tuple[str, str, str | None], ...] = (
    (
        r"data-dependent|^\w*DataDependent",
        "a Python value depends on the values of a tensor, which are not known when the program is compiled",
        "branch with torch.where; compute sizes from shapes",
    ),
    ("is mutated in the forward method", _OF_CLOSURE, A_COPY),
    ("^SystemExit:", "the program exits", None),
    (
        "not tracked with proxy|cast NotImplemented to Tensor",
        "torch.export does not trace this tensor subclass: it nests others, or is not a parameter of a module",
        _ELSEWHERE,
    ),
    (
        r"as_strided\(\) is non-compositional",
        "a view by as_strided of another view is changed in place",
        "take the view by slices",
    ),
    (
        r"^\w+: We found a fake tensor",
        "torch.export does not trace this transform of torch.func, or this nesting of transforms",
        _ELSEWHERE,
    ),
    ("^UncapturedHigherOrderOpError:", "torch's control flow operators (cond, while_loop, ..) are not supported", None),
    ("nbacked symbol", "a shape depends on the values of a tensor", "compute sizes from shapes"),
)


def explain(error: BaseException, span: Span | None) -> DplcError:
    """Return one clear error for an error of Python or torch while the user's program ran or was traced."""
    said = f"{type(error).__name__}: {str(error).strip()}"
    text = next(iter(str(error).strip().splitlines()), "")
    for pattern, what, hint in _KNOWN:
        if re.search(pattern, said):
            return DplcError(what, span, hint=hint)
    if text.startswith("aten.") and hasattr(error, "func"):  # torch cannot trace the op: its name is all it says
        return DplcError(f"torch op '{_aten(error.func)}' is not supported", span)
    text = text.replace("'FakeTensor'", "'Tensor'")  # the class of a tensor that is traced
    hint = None
    if isinstance(error, NameError) and error.name:
        hint = did_you_mean(error.name, ("torch", "nn", "F", "math"))
    elif isinstance(error, AttributeError) and error.name and error.obj is not None:
        hint = did_you_mean(error.name, dir(error.obj))
    named = isinstance(error, (NameError, AttributeError, RuntimeError)) and text
    return DplcError(text if named else f"{type(error).__name__}: {text}".rstrip(": "), span, hint=hint)


@contextmanager
def quiet_logs(level: int) -> Iterator[None]:
    """Silence the logs of libraries up to a level."""
    before = logging.root.manager.disable
    logging.disable(level)
    try:
        yield
    finally:
        logging.disable(before)


@contextmanager
def _tracing() -> Iterator[None]:
    """Trace values alone, and silence torch, which prints the graph and warns when a trace fails.

    Our one error says it better. Nodes carry our locations, so torch formats no stack for each; it writes the Python of
    a graph when that is called.
    """
    quiet = mock.patch.object(fx_config, "do_not_emit_stack_traces", True, create=True)
    with (
        quiet_logs(logging.ERROR), warnings.catch_warnings(), redirect_stderr(io.StringIO()), quiet,
        torch.no_grad(), preserve_node_meta(), by_types(), leaving_autocast(), _use_lazy_graph_module(True),
        one_precision(), mock.patch.object(torch.distributions.Distribution, "_validate_args", False),  # of values
    ):  # fmt: skip
        warnings.simplefilter("ignore")
        yield


def _functional(program: ExportedProgram, places: SourcePlaces) -> ExportedProgram:
    """Return the program without mutating ops, and without those that PyTorch decomposes into others.

    Ops that the table of decompositions does not name (rms_norm, linear, sdpa) stay unchanged. Raises DplcError also
    for a number that eager refuses.
    """
    _check_numbers(program)
    nodes, formulas = list(_nodes(program)), table()
    changes = [node for node in nodes if _mutable(node)]
    # under autocast, around the capture or in a region of the program, PyTorch adds its casts
    region = torch.ops.higher_order.wrap_with_autocast
    casts = torch._C._is_any_autocast_enabled() or any(node.target is region and node.args[2] for node in nodes)
    of_vmap = any(getattr(node.target, "__module__", "") == predispatch.__name__ for node in nodes)
    wrapped = any(map(is_traceable_wrapper_subclass, program.state_dict.values()))
    if not (changes or casts or of_vmap or wrapped or any(node.target in formulas for node in nodes)):
        return program
    if casts:
        switching_autocast(program.graph_module)
    first = place(changes[0]) if changes else None
    depth = torch._C._functorch.get_dynamic_layer_stack_depth()
    try:
        functional = decompose(program, formulas)
    except DplcError as error:
        raise DplcError(error.what, places.of_error(error), hint=error.hint) from None
    except Exception as error:
        if changes and isinstance(error, AssertionError):  # torch's own, of what it cannot make functional
            what = f"torch op '{_aten(changes[0].target)}' works in place, which is not supported here"
            raise DplcError(what, first, hint=A_COPY) from None
        raise explain(error, places.of_error(error) or first) from None
    finally:  # an error within a `vmap` does not remove its levels
        torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)
    return functional


def _check_assigned(program: ExportedProgram, root: Root, assigned: Sequence[Attribute]) -> bool:
    """Return whether a constant is assigned that the program reads. Raises DplcError for a parameter."""
    paths = {module: path for path, module in root.named_modules()}
    constants = {spec.target for spec in program.graph_signature.input_specs if spec.kind is InputKind.CONSTANT_TENSOR}
    targets = [f"{paths[module]}.{name}" for module, name in assigned]
    for (module, name), target in zip(assigned, targets, strict=True):
        if name in module._parameters:
            what = f"the function assigns `{root.label(target)}`, which is a parameter"
            raise DplcError(what, hint=f'keep it as a buffer: `self.register_buffer("{name}", ..)`')
    return not constants.isdisjoint(targets)


def _changed(functional: ExportedProgram) -> list[OutputSpec]:
    """Return what the program says of each input and weight that it changes. Their values precede the results."""
    return [spec for spec in functional.graph_signature.output_specs if spec.kind is not OutputKind.USER_OUTPUT]


def _check_changes(program: ExportedProgram, functional: ExportedProgram, root: Root, of_text: bool) -> dict[int, int]:
    """Raise DplcError for a change of an input or a weight; a text may change its inputs."""
    for spec in _changed(functional):
        if spec.kind is not OutputKind.USER_INPUT_MUTATION or not of_text:
            weight = spec.kind is not OutputKind.USER_INPUT_MUTATION
            hint = "a module that keeps statistics in training does not in evaluation: call `.eval()` on it"
            what = f"the function changes `{root.label(spec.target)}` in place"
            raise DplcError(what, _place_of_change(program, spec.target), hint=hint if weight else A_COPY)
    return {}


def _place_of_change(program: ExportedProgram, target: str) -> Span | None:
    """Return the span of the first call that changes an input or a weight."""
    changes = list(filter(_mutable, _nodes(program)))
    # an op whose schema says nothing of it may change its statistics
    spans = {x: place(node) for node in reversed(changes) for x in _holders(program, (node,))}
    return spans.get(target, place(changes[0]) if changes else None)


def _unmoved(program: ExportedProgram, functional: ExportedProgram, root: Root) -> dict[int, int]:
    """Return the results that are tensors which the function changes, each with the number of that tensor.

    Raises DplcError for a result that is a part or another view of such a tensor: its values would be computed, and it
    would not share the memory.
    """
    results, found = program.graph.output_node().args[0], dict[int, int]()
    first = len(results) - len(program.graph_signature.user_outputs)
    assigned = dict(zip((spec.target for spec in _changed(program)), results[:first]))
    specs = zip(program.graph_signature.input_specs, placeholders(program), strict=True)
    holders = {spec.target or spec.arg.name: node for spec, node in specs}
    for number, spec in enumerate(_changed(functional)):
        holder = holders[spec.target]
        for index, node in enumerate(results[first:]):
            if node is assigned.get(spec.target):
                found[index] = number
            elif not storages(node).isdisjoint(storages(holder)):
                of_node, of_holder = ((x.shape, x.stride(), x.storage_offset()) for x in map(value, (node, holder)))
                if of_node != of_holder:
                    what = f"a result is a view of `{root.label(spec.target)}`, which the function changes in place"
                    raise DplcError(what, place(node), hint="return a copy: `.clone()`")
                found[index] = number
    return found


def _check_numbers(program: ExportedProgram) -> None:
    """Raise DplcError for a number that does not fit the dtype that torch converts it to.

    torch raises an error for it only when it computes. So an op with a number beyond the range of its tensors runs on
    ones, of two elements in each longer dimension where such operands have a result.
    """

    def few(shape: Sequence[int], dtype: torch.dtype, device: str = "cpu") -> Tensor:
        return torch.ones([min(length, 2) for length in shape], dtype=dtype, device=device)

    for node in _nodes(program):
        kinds = {x.dtype for x in tensors(value(node), *map(value, node.all_input_nodes))}
        schema, given = getattr(node.target, "_schema", None), given_fields(node)
        scalars = (
            [given.get(a.name) for a in schema.arguments if re.search("number|float", str(a.type))] if schema else []
        )
        if all(_fits(number, kind) for number in scalars for kind in kinds):
            continue
        try:
            called_with(node, functools.partial(few, device="meta"))
            ones: Function = few
        except Exception:  # of torch's many classes: its arguments are sizes or places of the whole
            ones = torch.ones
        try:
            called_with(node, ones)
        except (NotImplementedError, IndexError, AttributeError):
            continue  # as operands of ones may have it
        except Exception as error:  # of torch's many classes
            raise DplcError(str(error), place(node), hint="pass a number that the dtype holds") from None


_WHOLE = {torch.bool: torch.uint8}  # bounds of numbers for a dtype without any


def _fits(number: Any, dtype: torch.dtype) -> bool:
    if not isinstance(number, (int, float)) or dtype.is_complex:
        return True
    limits = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(_WHOLE.get(dtype, dtype))
    return bool(limits.min <= number <= limits.max or (dtype.is_floating_point and not math.isfinite(number)))


def _nodes(program: ExportedProgram) -> Iterator[Node]:
    """Yield all nodes, those of regions included."""
    for region in regions(program):
        yield from region.graph.nodes


def _holders(program: ExportedProgram, nodes: Iterable[Node]) -> set[str]:
    """Return the inputs and weights that share memory with the values of nodes."""
    memory = storages(*nodes)
    given = zip(program.graph_signature.input_specs, placeholders(program), strict=True)
    return {spec.target or spec.arg.name for spec, node in given if not memory.isdisjoint(storages(node))}


def _mutable(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable and schema.name != HARMLESS


def place(node: Node) -> Span | None:
    """Return the span of the user's call that produced a node, or else of a call that reads it."""
    spans = ((one.meta.get("custom") or {}).get(KEY) for one in (node, *node.users))
    return next(filter(None, spans), None)


# ---- One capture or compile at a time in a process: torch.export keeps its state in globals.


_TURN = threading.RLock()


@contextmanager
def export_lock() -> Iterator[None]:
    """Hold the lock of captures and compiles: other threads that capture or compile wait."""
    dynamo = sys.modules.get("torch._dynamo.convert_frame")
    with _TURN, getattr(dynamo, "compile_lock", None) or nullcontext():
        yield


# ---- Conversion of an exported program to Torch IR, by the ATen schemas instead of a table of ops.
#
# The schemas give op names, fields and defaults. Statements are those that an output needs. A statement names the
# fields of its overload that differ from their defaults, and those without a default (`ir/schemas.py` says how the
# overload is read off them).

_NAMES = {getattr(torch, name): short for short, name in DTYPES.items() if hasattr(torch, name)}

# Words of the text syntax: a value of this name would not read back.
_WORDS = """
    BLOCK THREAD REG VEC serial reduce free SYNC ASYNC TMA kernel graph none true false inf nan match let where
    prefer pick rewrite example gives because on in by for if else each inside with load pass and or not rule
"""
_RESERVED = frozenset((*FUNCTIONS, *DTYPES, *_WORDS.split()))


# A conjugate or a sign that is taken when it is read, a conjugate that is taken at once, and HARMLESS, by other names.
_RENAMED = {"_conj": "conj", "_conj_physical": "conj_physical", "_neg_view": "neg", "detach_": "detach"}
# Regions that only set the gradient mode or the state of autocast, and the place of the body among their arguments.
_REGIONS = {"wrap_with_set_grad_enabled": 1, "wrap_with_autocast": 4}


def dtype_name(dtype: torch.dtype) -> str:
    """Return `f32` for torch.float32; torch's own name for a dtype that Torch IR has no name for."""
    return _NAMES.get(dtype, str(dtype).removeprefix("torch."))


Fields = dict[str, tuple[Value, Value]]  # {field of an op: (value, default)}


class Conversion:
    """Torch IR of an exported program, with its origin. Raises DplcError for what Torch IR cannot express.

    Numbers stay tensors where tensors hold them, or where they are computed from lengths.

    graph: the computation, with outputs that have elements. tensors, kinds: of every input by its name, used or not.
    inputs: the names of the user inputs in order. spans: as in Capture; outputs, views, writes: as in Signature.
    """

    def __init__(
        self,
        program: ExportedProgram,
        root: Root,
        inputs: Sequence[TraceInput],
        symbols: Symbols,
        aliases: bool,
    ):
        indexed(program)
        if any(given.sizes for given in inputs):
            as_tensors(program)
        symbols.settle()
        self._symbols, self.drawing = symbols, aliases  # whether ops may draw random numbers
        self.tensors, self.kinds = dict[str, Tensor](), dict[str, str]()
        self.spans: dict[str, Span | str] = {}
        self.values: dict[Node, Any] = {}  # a Var, or the tuple of Vars of a region
        self.params: dict[str, Param] = {}  # every value by its name; of an op with several results the first
        self._body: list[TorchOp] = []
        self.inside: dict[str, TorchOp | None] | None = None  # what differs from step to step of a loop: None, a row
        self._used, self._tried = set(_RESERVED), dict[str, int]()
        for name in dict.fromkeys(
            size.name for given in inputs for size in given.sizes.values() if isinstance(size, Size)
        ):
            if self.fresh(name) != name:
                raise UsageError(f"`{name}` is a word of the IRs: a size needs another name")
        nodes = placeholders(program)
        specs = dict(zip(nodes, program.graph_signature.input_specs, strict=True))
        user = dict(zip((x for x in nodes if specs[x].kind is InputKind.USER_INPUT), inputs, strict=True))
        # inputs choose their names before weights do; one input for a weight that goes by several names
        held = {id(x.held): self._placeholder(node, x.kind, x.name, x.tensor) for node, x in user.items()}
        self.inputs = tuple(self.kinds)
        for node in nodes:
            if node in user:
                continue
            target, kind = specs[node].target, specs[node].kind.name.lower().removesuffix("_tensor")
            if kind not in ("parameter", "buffer", "constant"):
                raise DplcError(f"an input of the kind {kind} is not supported")
            tensor = program.state_dict.get(target, program.constants.get(target))
            check_kind("a tensor outside of the arguments", tensor)
            if id(tensor) not in held:
                label = kind if kind == "constant" else root.label(target)
                kind = "parameter" if isinstance(tensor, torch.nn.Parameter) else kind
                held[id(tensor)] = self._placeholder(node, kind, label, tensor)
            self.values[node] = held[id(tensor)]
        names = dict(zip((node.name for node in user), self.inputs, strict=True))
        changed = _changed(program)
        outputs = program.graph.output_node().args[0][0 if aliases else len(changed) :]
        self.views: Function | None = None
        self.writes: tuple[str | Callable[[], Tensor], ...] = ()
        if aliases:
            outputs, self.views = _aliased(program, user, outputs)
            self.writes = tuple(
                names.get(spec.target) or functools.partial(operator.attrgetter(spec.target), root) for spec in changed
            )
        self.region(program.graph_module, outputs)
        self.spans.update((name, x.span) for name, x in zip(self.inputs, inputs, strict=True) if x.span is not None)
        outs = self._results(outputs)
        ins = tuple(map(self.params.__getitem__, self.kinds))
        self.graph = TorchGraph("main", ins, outs, tuple(self._body))

    def _results(self, outputs: Iterable[Node]) -> tuple[Param, ...]:
        """Return the outputs of the graph: those with elements, complex numbers as pairs of their parts."""
        made, outs = list[Output](), list[Param]()
        for out in (self.params[self.values[node].name] for node in outputs):
            made.append(output(out))
            if 0 in out.shape:
                continue
            if out.dtype in PARTS:
                parts = TensorType(PARTS[out.dtype], (*out.shape, 2))
                out = self.params[self.add(out.name, "ViewAsReal", (("self", Var(out.name)),), (parts,))]
            outs.append(out)
        self.outputs = tuple(made)
        return tuple(outs)

    def fresh(self, wish: str) -> str:
        """Return a unique name that does not clash with words of the syntax: `mul`, `mul_1`, `mul_2`."""
        base = re.sub(r"\W", "_", wish).strip("_") or "value"
        name = unused(f"x{base}" if base[0].isdigit() else base, self._used, between="_", tried=self._tried)
        self._used.add(name)
        return name

    def _placeholder(self, node: Node, kind: str, wish: str, tensor: Tensor) -> Var:
        """Add an input. Complex numbers are given as the pairs of their parts."""
        name, given = self.fresh(wish), self._type_of(value(node))
        self.kinds[name], self.tensors[name], read = kind, parts_of(tensor), Var(name)
        self.params[name] = Param(name, given.dtype, given.shape)
        if given.dtype in PARTS:
            self.params[name] = Param(name, PARTS[given.dtype], (*given.shape, 2))
            read = Var(self.add(name, "ViewAsComplex", (("self", read),), (given,)))
        self.values[node] = read
        return read

    def add(self, wish: str, op: str, args: Value, types: tuple[TensorType, ...]) -> str:
        """Add a statement and return its name."""
        name = self.fresh(wish)
        statement = TorchOp(name, op, args, types)
        if self.inside is None or self.inside.keys().isdisjoint(free_names(args)):
            self._body.append(statement)
        else:
            self.inside[name] = statement
        self.params[name] = Param(name, types[0].dtype, types[0].shape)
        return name

    def region(self, module: GraphModule, outputs: Iterable[Node]) -> None:
        """Add what the outputs need, and what draws numbers. The graph is functional, so the other nodes do nothing."""
        needed = set(outputs)
        for node in reversed(module.graph.nodes):
            if node in needed or (self.drawing and draws_numbers(node)):  # what it draws decides what later ones draw
                needed.update((node, *node.all_input_nodes))
        for node in module.graph.nodes:
            if node in needed and node.op == "call_function":
                self._call(module, node)

    def _call(self, module: GraphModule, node: Node) -> None:
        target, number = node.target, value(node)
        of_lengths = isinstance(number, SymFloat) and not tensors(*map(value, node.all_input_nodes))
        if of_lengths or isinstance(number, SymInt):
            return  # read where it is used
        if isinstance(target, torch._ops.OpOverload):
            self._statement(node)
        elif target is operator.getitem:
            source, index = node.args
            if isinstance(self.values[source], tuple):
                self.values[node] = self.values[source][index]
            else:
                self._emit(node, "Getitem", (("self", self.values[source]), ("index", index)))
        elif not isinstance(target, torch._ops.HigherOrderOperator):
            raise DplcError(f"{_aten(target)} is not supported", place(node))
        elif target.name() in _REGIONS:
            # the casts of a region that switches autocast on are explicit ops by now
            body, *operands = node.args[_REGIONS[target.name()] :]
            self.values[node] = self.inlined(getattr(module, body.target), operands)
        elif add := CONTROL_FLOW.get(target.name()):
            before = len(self._body)
            self.values[node] = add(self, module, node)
            self.spans.update((op.dst, place(node) or _module_path(node)) for op in self._body[before:])
        else:
            raise DplcError(f"{_aten(target)} is not supported", place(node))

    def inlined(self, inner: GraphModule, operands: Iterable[Node]) -> tuple[Any, ...]:
        """Add what the outputs of an inner graph need, and return their values."""
        self.values.update(zip(placeholders(inner), map(self.values.__getitem__, operands), strict=True))
        outputs = inner.graph.output_node().args[0]
        self.region(inner, outputs)
        return tuple(map(self.values.__getitem__, outputs))

    def _statement(self, node: Node) -> None:
        schema, span = node.target._schema, place(node)
        namespace, name = schema.name.split("::")
        fields = self._fields(node, schema)
        if draws_numbers(node) and (not self.drawing or self.inside is not None or given_fields(node).get("generator")):
            raise random_numbers(name, fields, span or _module_path(node))
        if _mutable(node):
            raise DplcError(f"torch op '{name}' works in place, which is not supported here", span)
        name = _RENAMED.get(name, name)
        op = op_name(name)
        if namespace != "aten" or op not in schemas.names() or schemas.aten_name(op) != name:
            raise DplcError(f"torch op '{name}' is not supported", span)
        dtype = getattr(value(node), "dtype", torch.bool)
        for field, limit in _BOUND.get(op, {}).items() if dtype.is_floating_point else ():
            if fields[field][0] is None:
                fields[field] = getattr(torch.finfo(dtype), limit), None
        args = tuple((key, given) for key, (given, default) in fields.items() if not _same(given, default))
        self._emit(node, op, args)

    def _fields(self, node: Node, schema: torch.FunctionSchema) -> Fields:
        """Return the fields in schema order, without those of device and memory layout."""
        found: Fields = {}
        given = given_fields(node)
        for argument in schema.arguments:
            name = argument.name
            if name not in schemas.PLACEMENT or (name == "device" and draws_numbers(node)):
                default = self._value(argument.default_value, node) if argument.has_default_value() else REQUIRED
                value = given.get(name, default)
                if isinstance(value, complex) and schemas.takes_tensor(op_name(schema.name.split("::")[1]), name):
                    value = self._complex(value, node)
                elif name in given:
                    value = self._value(value, node)
                if "List[" in str(argument.type) and not isinstance(value, tuple) and value is not None:
                    value = (value,)
                if default is None and name == "end" and value == _END:
                    value = None
                found[name] = value, default
        return found

    def _value(self, given: Argument, node: Node) -> Value:
        if isinstance(given, (list, tuple)):
            return tuple(self._value(item, node) for item in given)
        if given is None or isinstance(given, (bool, int, float, str)):
            return given
        if isinstance(given, torch.dtype):
            return Var(dtype_name(given))
        if isinstance(given, torch.device):
            return None if given.type == "meta" else str(given)
        if given in self.values:
            return self.values[given]
        number = value(given) if isinstance(given, Node) else None
        if isinstance(number, SymInt) and self._symbols.knows(number):
            return self._symbols.extent(number)
        if isinstance(number, SymFloat):
            if (constant := constant_of(number)) is not None:
                return constant
            hint = "compute with a tensor instead; or leave the length out of dynamic="
            raise self._refused(node, "takes a float made of a length", hint)
        if isinstance(given, complex):
            raise DplcError("a complex number is not supported here", place(node), hint="compute with a tensor of it")
        raise self._refused(node, "depends on the values of a tensor")

    def _complex(self, number: complex, node: Node) -> Value:
        """Add a complex number as a tensor without dimensions, which promotes as the number does."""
        kinds = (dtype_name(x.dtype) for x in tensors(value(node), *map(value, node.all_input_nodes)))
        dtype = next(filter(PARTS.__contains__, kinds), "c64")
        part = TensorType(PARTS[dtype], ())
        real, imaginary = (
            Var(self.add("part", "Full", (("size", ()), ("fill_value", n)), (part,)))
            for n in (number.real, number.imag)
        )
        made = self.add("number", "Complex", (("real", real), ("imag", imaginary)), (TensorType(dtype, ()),))
        return Var(made)

    def _refused(self, node: Node, why: str, hint: str | None = None) -> DplcError:
        return DplcError(f"torch op '{_aten(node.target)}' {why}", place(node), hint=hint)

    def _emit(self, node: Node, op: str, args: Value) -> None:
        """Add the statement of a node."""
        given = value(node)
        found = [given]
        if isinstance(given, (list, tuple)):  # a result that was not requested is empty
            found = [torch.empty(0, device="meta") if x is None else x for x in given]
        if not all(isinstance(x, Tensor) for x in found):
            raise self._refused(node, "gives no tensor")
        if not all(self._symbols.knows(n) for x in found for n in x.shape):
            raise self._refused(node, "gives a shape that depends on the values of a tensor")
        name = self.add(_aten(node.target), op, args, tuple(map(self._type_of, found)))
        self.values[node], self.spans[name] = Var(name), place(node) or _module_path(node)

    def _type_of(self, tensor: Tensor) -> TensorType:
        return TensorType(dtype_name(tensor.dtype), tuple(map(self._symbols.extent, tensor.shape)))


def _aliased(
    program: ExportedProgram, user: Container[Node], results: Sequence[Node]
) -> tuple[Sequence[Node], Function | None]:
    """Return the results to compute, and a function that derives all of them; None if no two share memory.

    user: nodes of the inputs that a call gives. The function takes these inputs and the computed results.
    """
    nodes = placeholders(program)
    owners = Counter(memory for node in (*filter(user.__contains__, nodes), *results) for memory in storages(node))
    shared = {memory for memory, count in owners.items() if count > 1}
    if shared.isdisjoint(storages(*results)):
        return results, None

    def derived(node: Node) -> bool:
        """Return whether a node is a view of shared memory, at indices that no tensor holds."""
        known = not any(free_unbacked_symbols(value(x)) for x in node.all_input_nodes)
        return known and is_view(node) and not shared.isdisjoint(storages(node))

    below, derive = views_among(program.graph_module, results, user, derived)
    after = derive()

    def views(inputs: Iterable[Tensor], computed: Sequence[Tensor]) -> Any:
        given = iter(inputs)
        args = [next(given) if node in user else None for node in nodes]
        for place, node in enumerate(nodes):
            if node in user and value(node).is_complex():
                args[place] = torch.view_as_complex(args[place])
        return after(args, computed)

    return below, views


_END = 2**63 - 1  # the end of a slice that is left open, as torch writes it


def _aten(target: Target) -> str:
    """Return the name of an op as users know it."""
    return str(getattr(target, "_opname", getattr(target, "__name__", target))).strip("_")


def _same(value: Value, default: Value) -> bool:
    """Return whether a field is at its default: 1.0 is 1, but True is not, and -0.0 is not 0.0."""

    def kind(x: Value) -> object:
        return (isinstance(x, bool), math.copysign(1, x)) if isinstance(x, (int, float)) else x.__class__

    return kind(value) == kind(default) and bool(value == default)


# Defaults that mean something of the input's dtype. They are bound to it here, since float64 would read them otherwise.
_BOUND = {"RmsNorm": {"eps": "eps"}, "NanToNum": {"posinf": "max", "neginf": "min"}}


def _module_path(node: Node) -> str:
    """Return the module that a node belongs to, for an op without a line of the user's text."""
    stack = (node.meta.get("nn_module_stack") or {}).values()
    path, kind = [("", "the function"), *(entry for entry in stack if entry[0])][-1]  # that of `Root` has no path
    path, kind = path.partition(".")[2], getattr(kind, "__name__", kind).rpartition(".")[2]
    return f"{path} ({kind})" if path else kind
