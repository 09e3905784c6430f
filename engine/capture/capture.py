"""Capture: functions and modules -> Torch IR with everything that is known about where it came from.

`capture` traces a function or a module on example arguments, `capture_text` a `-c` text.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import io
import math
import re
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils.flop_counter import flop_registry

from ...ir import node, schemas
from ...ir.diagnostic import DplcError, Source, Span, UsageError
from ...ir.dtypes import DTYPES
from ...ir.expr import Size, Var, free_names
from ...ir.interp.torch import applied
from ...ir.names import unused
from ...ir.program import Param, TensorType
from ...ir.schemas import DTYPES as TORCH_DTYPES
from ...ir.schemas import PARTS
from ...ir.sizes import AT_HINTS, Binding, has_sizes
from ...ir.substitute import substitute
from ...ir.text.torch import print_torch_op
from ...ir.torch import TorchGraph, TorchOp
from ..language.rule import Policy, built_in_policy
from ..language.rule_files import collections_paused
from .dynamic_shapes import Dim, Extent, declared
from .export import (
    Conversion,
    Exported,
    FactoryResult,
    Record,
    Replay,
    convert,
    dtype_name,
    explain,
    export,
    export_lock,
)
from .places import SourcePlaces, characters
from .signature import Fixed, Pairs, Signature, Tensors, check_kind, parts_of, tensors_of

# ---- Find the modules that a function uses: itself, its closure, globals, defaults, and their members.


def modules_of(function: Any) -> dict[str, Any]:
    """Return {label: module} for the modules that a function or module uses, without those inside of another one.

    A module is labelled by the variable that holds it; the module that is captured itself has the label "". A module
    that is not found is not lost: its weights are constants of the trace.
    """
    if isinstance(function, torch.nn.Module):
        return {"": function}
    return outermost(_reachable(function, "", set()))


def outermost(found: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return {label: module or parameter}, each by its first label, without those inside of another one."""
    first: dict[int, tuple[str, Any]] = {}
    for label, value in found:
        first.setdefault(id(value), (label, value))
    modules = [value for _, value in first.values() if isinstance(value, torch.nn.Module)]
    inner = {id(part) for m in modules for part in (*m.modules(), *m.parameters()) if part is not m}
    labelled: dict[str, Any] = {}
    for key, (label, value) in first.items():
        if key not in inner:
            labelled[unused(label, labelled, between="_")] = value
    return labelled


def plain_parts(tensor: Any) -> tuple[Any, ...]:
    """Return the tensors in a wrapper subclass, in the order in which torch.export lists them; a plain tensor alone."""
    if not is_traceable_wrapper_subclass(tensor):
        return (tensor,)
    names, _ = tensor.__tensor_flatten__()
    return tuple(part for name in names for part in plain_parts(getattr(tensor, name)))


def _reachable(value: Any, label: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.nn.Module):
        yield label or type(value).__name__.lower(), value
    elif isinstance(value, MethodType):
        yield from _reachable(value.__self__, label, seen)
        yield from _reachable(value.__func__, label, seen)
    elif isinstance(value, partial):
        for item in (value.func, value.args, value.keywords):
            yield from _reachable(item, label, seen)
    elif isinstance(value, FunctionType):
        for name, item in _variables(value):
            yield from _reachable(item, name, seen)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _reachable(item, name if isinstance(name, str) else label, seen)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _reachable(item, label, seen)


def _variables(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the variables that a function reads: closure, defaults, globals. Only names that its code mentions."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    parameters = function.__code__.co_varnames[: function.__code__.co_argcount]
    defaults = function.__defaults__ or ()
    yield from zip(parameters[len(parameters) - len(defaults) :], defaults, strict=True)
    yield from (function.__kwdefaults__ or {}).items()
    for name in _global_names(function.__code__):
        found = function.__globals__.get(name)  # torch's own functions hold no modules of the user
        if isinstance(found, torch.nn.Module) or not str(getattr(found, "__module__", "")).startswith("torch."):
            yield name, found


def _global_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _global_names(constant)


@dataclass(frozen=True)
class Capture:
    """Captured program with its tensors.

    graph: the computation. tensors: {input name: tensor} for every input of the graph, with the declared shape and
    dtype. kinds: {input name: input, parameter, buffer or constant}. spans: {value name: the span of the user's text
    that requested it, or the path of its module if no line of the user's text did}. inputs: the user inputs in calling
    order. signature: how to call the function and what it returns. reference: torch's own results, one tensor per
    output of the graph (texts only, else None). folds: whether loading may compute with weights; else they stay as
    their files hold them. strides: {input: its strides}, for inputs whose memory is read by strides. written: the
    program of the user's own ops and its tensors, if some of them were decomposed; it returns None if Torch IR cannot
    express them.
    """

    graph: TorchGraph
    tensors: Tensors
    kinds: Mapping[str, str]
    spans: Mapping[str, Span | str]
    inputs: tuple[str, ...]
    signature: Signature
    reference: tuple[Any, ...] | None = None
    folds: bool = True
    strides: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    written: Callable[[], tuple[TorchGraph, Tensors] | None] = field(default=lambda: None, compare=False)


@export_lock()
@collections_paused()
def capture(
    function: Callable[..., Any], example_args: Any, kwargs: Mapping[str, Any] | None = None, dynamic: Any = None
) -> Capture:
    """Return the program of `function(*example_args, **kwargs)`, for arguments of these shapes and dtypes.

    function: a function, or a module, in the mode (training or evaluation) that it is in. example_args: a tuple of
    arguments, nested as needed; tensors in it are inputs, everything else is fixed. dynamic: the dimensions that are
    known at a call (`sizes.declared`). Raises DplcError if it cannot be compiled.
    """
    if not callable(function):
        raise DplcError(f"a function or module is needed, not {type(function).__name__}")
    args = tuple(example_args) if isinstance(example_args, (tuple, list)) else (example_args,)
    leaves, spec = pytree.tree_flatten((args, dict(kwargs or {})))
    names = _argument_names(function, args, dict(kwargs or {}))
    positions = [index for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    for leaf, name in zip(leaves, names, strict=True):
        if isinstance(leaf, torch.Tensor):
            check_kind(f"argument `{name}`", leaf)
        if type(leaf).__module__ == "numpy":
            raise DplcError(f"argument `{name}` is a numpy array", hint="pass torch.from_numpy(..)")
        if not isinstance(leaf, torch.Tensor) and tensors_of(leaf):
            what = f"argument `{name}` is a {type(leaf).__name__}, which holds tensors"
            raise DplcError(what, hint="tensors come alone or in tuples, lists and dicts")

    def call(*tensors: Any) -> Any:
        filled = list(leaves)
        for index, tensor in zip(positions, tensors, strict=True):
            filled[index] = tensor
        inner_args, inner_kwargs = pytree.tree_unflatten(filled, spec)
        return function(*inner_args, **inner_kwargs)

    places, weights = SourcePlaces(), modules_of(function)
    # detached: a capture holds values, not how they came about
    tensors = [leaves[index].detach() for index in positions]
    input_names = tuple(names[index] for index in positions)
    sized = declared(dynamic, input_names, tensors) if dynamic else {}
    exported = export(call, tensors, input_names, weights, places, dynamic=sized)
    converted = partial(convert, input_names=input_names, places=places, dynamic=sized)
    conversion = converted(exported)
    given = dict(zip(conversion.inputs, tensors, strict=True))
    by_position = dict(zip(positions, conversion.inputs, strict=True))
    given_as = {name: Pairs(name) if name in conversion.complexes else name for name in conversion.inputs}
    arguments = tuple(
        given_as[by_position[index]] if index in by_position else Fixed(leaf) for index, leaf in enumerate(leaves)
    )
    result = finish(conversion, given, (spec, arguments), exported, converted)
    strided = {conversion.inputs[place]: tensors[place].stride() for place in exported.strided}
    return replace(result, strides=strided) if strided else result


def finish(
    conversion: Conversion,
    given: Tensors,
    arguments: Any,
    exported: Exported,
    converted: Callable[[Exported], Conversion],
    reference: Sequence[Any] | None = None,
) -> Capture:
    """Return the capture of a conversion, without unread weights.

    Unread inputs of a text, which has a reference, are left out. The graph omits outputs without elements, which the
    signature holds. arguments: as in Signature; converted: also converts the program of the user's own ops.
    """
    graph = _of_full_outputs(conversion.graph)
    if reference is not None:
        outs = zip(reference, conversion.graph.outs, strict=True)
        reference = [tensor for tensor, out in outs if 0 not in out.shape]
    used = {out.name for out in graph.outs}.union(*(free_names(statement.args) for statement in graph.body))
    kept = [p for p in graph.ins if p.name in used or (reference is None and conversion.kinds[p.name] == "input")]
    tensors = _tensors(conversion, given)
    result = Capture(
        TorchGraph(graph.name, tuple(kept), graph.outs, graph.body),
        {param.name: tensors[param.name] for param in kept},
        {param.name: conversion.kinds[param.name] for param in kept},
        conversion.spans,
        tuple(param.name for param in kept if conversion.kinds[param.name] == "input"),
        Signature(arguments, exported.results).of_outputs(conversion.graph.outs, conversion.complex_outs),
        None if reference is None else tuple(parts_of(t) if t.is_complex() else t for t in reference),
        written=functools.cache(partial(_written, exported.written, converted, given)),
    )
    check_dtypes(result)
    return result


def _of_full_outputs(graph: TorchGraph) -> TorchGraph:
    return node.replace(graph, outs=tuple(out for out in graph.outs if 0 not in out.shape))


def _tensors(conversion: Conversion, given: Tensors) -> dict[str, Any]:
    return {**conversion.tensors, **given, **{x: parts_of(given[x]) for x in conversion.complexes if x in given}}


def _written(
    own: Callable[[], Exported] | None, converted: Callable[[Exported], Conversion], given: Tensors
) -> tuple[TorchGraph, Tensors] | None:
    """Return the program of the user's own ops, and its tensors; None if it is the captured one, or not expressible."""
    if own is None:
        return None
    try:
        conversion = converted(own())
    except DplcError:
        return None
    return _of_full_outputs(conversion.graph), _tensors(conversion, given)


def check_dtypes(captured: Capture) -> None:
    """Raise DplcError for a dtype that cannot be compiled, except in computations of constants: those fold."""
    reached = set()
    for param in captured.graph.ins:
        reached.add(param.name)
        if param.dtype not in DTYPES:
            what = f"{captured.kinds[param.name]} `{param.name}` is {param.dtype}, which is not supported"
            reader = next((s.dst for s in captured.graph.body if param.name in free_names(s.args)), "")
            raise _at(captured, (param.name, reader), what, (), _hint(param.dtype))
    for statement in captured.graph.body:
        if reached.isdisjoint(free_names(statement.args)):
            continue
        reached.add(statement.dst)
        bad = next(
            (kind.dtype for kind in statement.types if kind.dtype not in DTYPES and kind.dtype not in PARTS), None
        )
        if bad is not None:
            what = f"torch op '{schemas.aten_name(statement.op)}' gives {bad}, which is not supported"
            raise _at(captured, (statement.dst,), what, (), _hint(bad))


def _at(captured: Capture, names: Sequence[str], what: str, notes: Sequence[str], hint: str | None = None) -> DplcError:
    """Return an error at the first of the values whose span is known."""
    place = next((captured.spans[name] for name in names if name in captured.spans), None)
    if isinstance(place, str):
        return DplcError(what, None, (f"in {place}", *notes), hint)
    return DplcError(what, place, notes, hint)


def _hint(dtype: str) -> str:
    return "use .float()" if dtype.startswith("f") else "use .float(), .int(), .long() or .bool()"


def _argument_names(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """Return a name per leaf: the parameter's, with the path to the leaf inside of it (`batch_ids`, `xs_0`)."""
    called = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        parameters = list(inspect.signature(called).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    variadic = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "x")
    paths: Any = pytree.tree_flatten_with_path((args, kwargs))[0]
    names = []
    for path, _ in paths:
        keys = [getattr(key, "idx", getattr(key, "key", getattr(key, "name", key))) for key in path[1:]]
        if path[0].idx == 0:
            first, rest = keys[0], keys[1:]
            keys = [named[first], *rest] if first < len(named) else [variadic, first - len(named), *rest]
        names.append("_".join(map(str, keys)))
    return names


# ---- Check a Torch IR program that was written by hand.


def check_types(graph: TorchGraph, name: str) -> None:
    """Raise DplcError for the first op that torch refuses, or whose result is not of the type in the text.

    name: of the file, for messages.
    """
    values = {param.name: _empty(TensorType(param.dtype, param.shape)) for param in graph.ins}
    for op in graph.body:
        where = f"{name}: `{print_torch_op(op)}`"
        try:
            with torch.no_grad():
                made = applied(op, values)
        except NotImplementedError:  # torch's own: the shape depends on values (`nonzero`), and here there are none
            # to compare with, so the text is believed
            made = tuple(map(_empty, op.types)) if len(op.types) > 1 else _empty(op.types[0])
        except DplcError as error:
            raise DplcError(f"{where}: {error.what}") from None
        except Exception as error:  # of torch's many classes
            why = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise DplcError(f"{where}: torch refuses it", notes=(why,)) from None
        found = made if isinstance(made, tuple | list) else (made,)
        for kind, given in zip(op.types, found, strict=False):
            if (getattr(torch, TORCH_DTYPES[kind.dtype]), kind.shape) != (given.dtype, tuple(given.shape)):
                shown = f"{str(given.dtype).removeprefix('torch.')}{list(given.shape)}"
                raise DplcError(f"{where}: torch gives {shown}")
        if len(op.types) != len(found):
            raise DplcError(f"{where}: torch gives {len(found)} tensors")
        values[op.dst] = made


def _empty(kind: TensorType) -> Any:
    """Return a tensor of a type, without memory. Raises DplcError for one that is larger than any memory."""
    try:
        return torch.empty(kind.shape, dtype=getattr(torch, TORCH_DTYPES[kind.dtype]), device="meta")
    except (RuntimeError, TypeError) as error:
        why = str(error).splitlines()[0]
        raise DplcError(f"there is no tensor {kind.dtype}{list(kind.shape)}", notes=(why,)) from None


# ---- Constant folding: torch computes values that depend on no input, on the CPU, when the program is compiled.
#
# Attention-mask arithmetic, position ids, causal masks: a model uses dozens of small ops to compute one tensor of known
# values. A result that something else reads becomes an input of the kind "constant". A tensor without elements depends
# on nothing: it is a constant whatever its operands are, and its consumers fold too (the sum of nothing).


def bits(tensor: torch.Tensor) -> Any:
    """Return the bytes of a tensor's elements in their order, as numpy holds them.

    PyTorch calls a tensor of one element contiguous whatever its stride is (`x[::2]` of two elements), and then does
    not read it under a narrower dtype: the function sets the stride explicitly.
    """
    flat = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return flat.as_strided((flat.numel(),), (1,)).view(torch.uint8).numpy()


def fold(captured: Capture, numbers: Policy | None = None) -> Capture:
    """Return the capture with every value folded that depends on no input, parameter or buffer.

    Folding covers tensors of up to `largest_constant` elements. A constant of the capture (a tensor written out in a
    function, or of its closure) counts as known. The tensors of the constants are in `tensors`. Raises DplcError for a
    dtype that cannot be compiled and did not fold away.
    """
    largest = (numbers or built_in_policy()).largest_constant
    graph = captured.graph
    given = {name: captured.tensors[name] for name, kind in captured.kinds.items() if kind == "constant"}
    known = {name: tensor.detach().cpu() for name, tensor in given.items() if tensor.device.type != "meta"}
    known |= {param.name: _nothing(param.dtype, param.shape) for param in graph.ins if _without_elements(param)}
    rest = []
    with torch.no_grad():
        for statement in graph.body:
            if len(statement.types) == 1 and _without_elements(statement.types[0]):
                known[statement.dst] = _nothing(statement.types[0].dtype, statement.types[0].shape)
            elif (
                free_names(statement.args) - TORCH_DTYPES.keys() <= known.keys()
                and not has_sizes(
                    (statement.args, statement.types)
                )  # a tensor of every size: a rule says it as a formula
                and (statement.op == "Getitem" or all(math.prod(kind.shape) <= largest for kind in statement.types))
            ):
                try:
                    result = applied(statement, known)
                except Exception as error:
                    raise DplcError(f"the constant `{statement.dst}` cannot be computed: {error}") from None
                known[statement.dst] = result.cpu() if isinstance(result, torch.Tensor) else result
            else:
                rest.append(statement)
    outs = {out.name for out in graph.outs}
    read = set().union(*(free_names(statement.args) for statement in rest))
    first, same = dict[Any, str](), dict[str, Any]()  # constants of equal bits: layers compute views of the same values
    for name in (name for name in known if name in read and name not in outs):
        content = (known[name].dtype, tuple(known[name].shape), bits(known[name]).tobytes())
        if (other := first.setdefault(content, name)) != name:
            same[name] = Var(other)
    known = {name: value for name, value in known.items() if name not in same}
    rest = [
        statement if same.keys().isdisjoint(free_names(statement.args)) else substitute(statement, same)
        for statement in rest
    ]
    read = outs.union(*(free_names(statement.args) for statement in rest))
    types = {statement.dst: statement.types[0] for statement in graph.body}
    made = {name: value.contiguous() for name, value in known.items() if name in read and name in types}
    kept = tuple(param for param in graph.ins if param.name in read or captured.kinds[param.name] == "input")
    pairs = [name for name in made if types[name].dtype in PARTS]
    opened = [TorchOp(name, "ViewAsComplex", (("self", Var(_pairs(name))),), (types[name],)) for name in pairs]
    made = {_pairs(name) if name in pairs else name: x for name, x in made.items()}
    made |= {_pairs(name): parts_of(made[_pairs(name)]) for name in pairs}
    ins = kept + tuple(Param(name, dtype_name(x.dtype), tuple(x.shape)) for name, x in made.items())
    kinds = {param.name: captured.kinds.get(param.name, "constant") for param in ins}
    tensors = captured.tensors  # which may be drawn when one is read
    if made or kinds.keys() != tensors.keys():
        given = {**tensors, **made}
        tensors = {name: given[name] for name in kinds}
    program = TorchGraph(graph.name, ins, graph.outs, (*opened, *rest))
    folded = replace(captured, graph=program, tensors=tensors, kinds=kinds)
    check_dtypes(folded)
    return folded


def _pairs(name: str) -> str:
    """Return the name of the pairs of a constant of complex numbers."""
    return f"{name}_pairs"


def _without_elements(kind: Any) -> bool:
    """Return whether an input or a result has no elements at a fixed shape.

    Rules handle one of every size: a tensor of numbers has one shape.
    """
    return 0 in kind.shape and not has_sizes(kind.shape)


def _nothing(dtype: str, shape: tuple[Any, ...]) -> Any:
    return torch.empty(tuple(map(int, shape)), dtype=getattr(torch, TORCH_DTYPES.get(dtype, dtype)))


# ---- Capture of a `-c` text. It is evaluated twice: once for real, once to be traced with the inputs handed in.
#
# The second evaluation reuses these results of the first:
#
# - a call that returns a module or a parameter, by its site and how often it ran: neither initialisation nor `.float()`
#   is ever traced, and tensors of factories inside such a call are weights, not inputs;
# - a statement that defines a class, so that classes keep their identity;
# - a statement that mutates a weight (`nn.init.ones_(m.weight)`): it prepares the program and does not belong to it.
#
# Everything else runs again, in the same order and in the same, emptied, scope.

# ---- Parse the text and turn every call `f(a)` into `__dplc__(site, f, a)`.


NAME = "-c"  # what errors call the text
DIM = "dim"  # `dim(s, 1..4096)`: an extent that is known at a call
_RANGE = re.compile(rf"(\b{DIM}\(\s*\w+\s*,\s*\d+)\.\.(?=\d)")
SCOPE = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional, "math": math, "__name__": "__main__"}
HOOK = "__dplc__"  # ends in two underscores, or Python would mangle it inside of a class

# These look at the frame that calls them, which must stay the text's own.
_FRAME_SENSITIVE = frozenset(("super", "locals", "globals", "vars", "dir", "eval", "exec"))


@dataclass(frozen=True)
class ParsedText:
    """Code of the top-level statements before the last expression, and of that expression.

    Of each statement the tuple says whether it defines a class, which keeps its identity, so that it runs once.
    """

    source: Source
    statements: tuple[tuple[CodeType, bool], ...]
    result: CodeType
    result_span: Span

    def run(self, scope: dict[str, Any]) -> Any:
        for code, _ in self.statements:
            exec(code, scope)
        return eval(self.result, scope)


class _Instrument(ast.NodeTransformer):
    def __init__(self) -> None:
        self.sites = 0

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in _FRAME_SENSITIVE:
            return node
        if isinstance(node.func, ast.Name) and node.func.id == DIM and node.args and isinstance(node.args[0], ast.Name):
            node.args[0] = ast.copy_location(ast.Constant(node.args[0].id), node.args[0])
        site, hook = ast.Constant(self.sites), ast.Name(HOOK, ast.Load())
        self.sites += 1
        call = ast.Call(hook, [site, node.func, *node.args], node.keywords)
        for new in (call, hook, site):
            ast.copy_location(new, node)
        return call


def parse(text: str) -> ParsedText:
    """Return the program of a text.

    Raises DplcError for a syntax error and if the last statement is not an expression.
    """
    source = Source(NAME, textwrap.dedent(text).strip("\n").rstrip())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            # of the same length: positions do not change
            return _compile(source, ast.parse(_RANGE.sub(r"\1, ", source.text), NAME))
    except SyntaxError as error:
        raise DplcError(f"syntax error: {error.msg}", _syntax_span(source, error)) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise DplcError(f"the text cannot be parsed: {error or type(error).__name__}") from None


def _compile(source: Source, tree: ast.Module) -> ParsedText:
    if not tree.body:
        raise DplcError("the text is empty", hint="give an expression, such as `torch.relu(torch.randn(8))`")
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        raise DplcError("the last statement must be an expression: the result to compile", _span(source, last))
    span = _span(source, last)  # before the calls are rewritten
    _Instrument().visit(tree)
    statements = tuple(
        (_code(ast.Module([statement], []), "exec"), isinstance(statement, ast.ClassDef))
        for statement in tree.body[:-1]
    )
    return ParsedText(source, statements, _code(ast.Expression(last.value), "eval"), span)


def _code(tree: Any, mode: str) -> CodeType:
    return compile(tree, NAME, mode, dont_inherit=True)


def _span(source: Source, node: ast.stmt) -> Span:
    end_line = node.end_lineno or node.lineno
    end = characters(source.line(end_line), node.end_col_offset or 0)
    return Span(source, node.lineno, characters(source.line(node.lineno), node.col_offset), end_line, end)


def _syntax_span(source: Source, error: SyntaxError) -> Span:
    line = error.lineno or 1
    start = max((error.offset or 1) - 1, 0)
    same_line = error.end_lineno in (None, line)
    end = (error.end_offset or 0) - 1 if same_line else len(source.line(line))
    return Span(source, line, start, line, max(end, start + 1))


# ---- Skip large products if only the shapes of their results are needed.


MOST_COMPUTED = 1 << 27  # floating-point operations: a CPU needs milliseconds for them, in any dtype


class SkipLargeProducts(TorchDispatchMode):  # type: ignore[misc]  # torch says no types for it
    """Mode in which matmuls, convolutions and attention of more than MOST_COMPUTED operations return zeros.

    PyTorch's own table of operations says what counts. A branch of a text on such values (`if (x @ w).sum() > 0`) could
    go the wrong way; but the text is traced without any values afterwards, where such a branch is an error.
    """

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        count = flop_registry.get(func._overloadpacket)
        if count is None:
            return func(*args, **given)
        shapes, named = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to("meta"), (args, given))
        result = func(*shapes, **named)
        if count(*args, **given, out_val=result) <= MOST_COMPUTED:
            return func(*args, **given)
        return pytree.tree_map_only(
            torch.Tensor, lambda x: torch.empty_strided(x.size(), x.stride(), dtype=x.dtype).zero_(), result
        )


@export_lock()
def capture_text(
    text: str, seed: int = 0, dtype: str | None = None, values: bool = True,
    sizes: Binding = AT_HINTS,
) -> Capture:  # fmt: skip
    """Return the program of the last expression of a text. In scope: torch, nn, F, math, and `dim(s, 1..4096)`.

    seed: for torch.manual_seed, right before the text is evaluated. dtype: of the floats for which the text names none,
    by our name; torch's default if left out. Modules are in evaluation mode from the start. values: whether the program
    will be run: `reference` is then the result of the evaluation; without, large products of the last expression are
    not computed. sizes: the lengths that the sizes of `dim` have in the evaluation; by default their hints. Raises
    DplcError with a caret in the text.
    """
    program = parse(text)
    places = SourcePlaces(program.source)
    evaluation = Evaluation(program, places, sizes)
    with _isolated():
        torch.manual_seed(seed)
        if dtype is not None:
            torch.set_default_dtype(getattr(torch, TORCH_DTYPES[dtype]))
        result = evaluation.first(contextlib.nullcontext() if values else SkipLargeProducts())
        reference = [tensor.detach() for leaf in pytree.tree_leaves(result) for tensor in tensors_of(leaf)]
        if not reference:
            raise DplcError(f"the expression gives {type(result).__name__}, not a tensor", program.result_span)
        captured = _traced(evaluation, places, reference, program.result_span)
        return captured if values else replace(captured, reference=None)


def _traced(evaluation: Evaluation, places: SourcePlaces, reference: list[Any], span: Span) -> Capture:
    """Return the second evaluation. Its inputs are the tensors of factories, then the parameters outside of modules."""
    made, weights = evaluation.made, evaluation.weights()
    modules = {label: weight for label, weight in weights.items() if isinstance(weight, torch.nn.Module)}
    loose = {label: weight for label, weight in weights.items() if label not in modules}
    values = [*(item.value for item in made), *(weight.detach() for weight in loose.values())]
    names = (*evaluation.input_names(), *loose)

    again, dynamic = partial(evaluation.again, tuple(loose.values())), evaluation.dynamic()
    exported = export(again, values, names, modules, places, may_change=True, dynamic=dynamic)
    if len(reference) != len(exported.outputs):
        raise DplcError("the text does not give the same when it is evaluated twice", span)

    def converted(exported: Exported) -> Conversion:
        return _identified(convert(exported, names, places, dynamic), made)

    conversion = converted(exported)
    conversion.kinds.update(dict.fromkeys(conversion.inputs[len(made) :], "parameter"))
    for name, item in zip(conversion.inputs, made, strict=False):
        place = places.span(item.place)
        if place is not None:
            conversion.spans[name] = place

    given = dict(zip(conversion.inputs, values, strict=True))
    captured = finish(conversion, given, ((), ()), exported, converted, reference)
    _, spec = pytree.tree_flatten((captured.inputs, {}))
    return replace(captured, signature=replace(captured.signature, arguments=(spec, captured.inputs)))


@dataclass
class _Kept:
    """Result of a call that ran once.

    counts: how often every site had run by its end, from which the second evaluation continues.
    """

    value: Any
    counts: dict[int, int]


class Evaluation:
    """Both evaluations of a text, and what the second keeps of the first."""

    def __init__(self, program: ParsedText, places: SourcePlaces, sizes: Binding):
        self.made: list[FactoryResult] = []
        self._dims: dict[str, tuple[Dim, Extent]] = {}
        self._sizes = sizes
        self._program, self._places = program, places
        self._scope: dict[str, Any] = {}
        self._calls: dict[tuple[int, int], _Kept] = {}
        self._statements: dict[int, _Kept] = {}  # by index; the value is what it bound
        self._counts: dict[int, int] = {}
        self._depth = 0  # of running forwards
        self._known: set[int] = set()  # modules that were put in evaluation mode
        self._record: Record | None = None
        self._names: dict[str, Any] = {}
        self._replaced: dict[int, Any] = {}  # loose parameters by identity, when traced

    def first(self, last: contextlib.AbstractContextManager[Any]) -> Any:
        """Evaluate for real, the last expression within `last`. Returns its value."""

        def is_weight(tensor: Any) -> bool:
            weights = (weight for kept in self._calls.values() for weight in _weights(kept.value))
            return any(weight.untyped_storage()._cdata == tensor.untyped_storage()._cdata for weight in weights)

        record = self._record = Record(self._places, self._inside, is_weight)
        self.made = record.made
        self._reset()
        try:
            with torch.no_grad(), self._watching(record), record:
                for index, (code, once) in enumerate(self._program.statements):
                    before, mark = dict(self._scope), len(self.made)
                    record.changed_weight = False
                    exec(code, self._scope)
                    if once or record.changed_weight:
                        bound = {k: v for k, v in self._scope.items() if k not in before or before[k] is not v}
                        self._statements[index] = _Kept(bound, dict(self._counts))
                        del self.made[mark:]
                with last:
                    result = eval(self._program.result, self._scope)
        except DplcError as error:
            error.span = error.span or self._places.of_error(error)
            raise
        except (Exception, SystemExit) as error:
            explained = explain(error, self._places.of_error(error))
            lengths = (f"`{dim.name}` is {int(extent)} here, of {dim.range}" for dim, extent in self._dims.values())
            explained.notes = (*explained.notes, *lengths)
            raise explained from None
        finally:
            self._record = None
        self._names = {name: value for name, value in self._scope.items() if not name.startswith("__")}
        return result

    def again(self, loose: tuple[Any, ...], *inputs: Any) -> Any:
        """Evaluate with the inputs of the graph instead of the tensors of factories and of the loose parameters."""
        self._reset()
        self._replaced = {id(weight): tensor for weight, tensor in zip(loose, inputs[len(self.made) :], strict=True)}
        try:
            with Replay(self.made, inputs[: len(self.made)], self._inside), contextlib.redirect_stdout(io.StringIO()):
                for index, (code, _) in enumerate(self._program.statements):
                    kept = self._statements.get(index)
                    if kept is None:
                        exec(code, self._scope)
                    else:
                        self._scope.update(kept.value)
                        self._counts = dict(kept.counts)
                return eval(self._program.result, self._scope)
        finally:
            self._scope.clear()

    def call(self, site: int, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Return `function(*args, **kwargs)`; every call in the text comes through here."""
        if function is torch.compile and args:
            return args[0]  # the same function, and no reason to wait for its compilation
        if function is map:
            return (self.call(site, args[0], *items) for items in zip(*args[1:], strict=False))
        key = (site, self._counts.get(site, 0))
        self._counts[site] = key[1] + 1
        if self._record is None and key in self._calls:
            kept = self._calls[key]
            self._counts = dict(kept.counts)
            return self._replaced.get(id(kept.value), kept.value)
        owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
        forward = isinstance(owner, torch.nn.Module) and name == "forward"
        if forward or isinstance(function, torch.nn.Module):
            self._depth += 1
            try:
                return function(*args, **kwargs)
            finally:
                self._depth -= 1
        mark = len(self.made)
        result = function(*args, **kwargs)
        if isinstance(result, (torch.nn.Module, torch.nn.Parameter)):
            self._keep(key, result, mark)
        return result

    def _keep(self, key: tuple[int, int], result: Any, mark: int) -> None:
        if self._record is None:
            raise DplcError(f"{type(result).__name__} is only made when the text is traced, not when it runs")
        self._calls[key] = _Kept(result, dict(self._counts))
        del self.made[mark:]
        if isinstance(result, torch.nn.Module) and id(result) not in self._known:
            self._known.update(id(module) for module in result.modules())
            result.eval()

    @contextlib.contextmanager
    def _watching(self, record: Record) -> Iterator[None]:
        """Notice when an existing module gets another parameter, buffer or child."""

        def registered(module: Any, name: str, value: Any) -> None:
            if id(module) in self._known:
                record.changed_weight = True

        hooks = torch.nn.modules.module
        handles = [
            hooks.register_module_parameter_registration_hook(registered),
            hooks.register_module_buffer_registration_hook(registered),
            hooks.register_module_module_registration_hook(registered),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def weights(self) -> dict[str, Any]:
        """Return {label: module or parameter} of the text, by its variable, without those inside another."""
        variables = {id(value): name for name, value in reversed(self._names.items())}
        made = [kept.value for kept in self._calls.values()]
        return outermost((variables.get(id(value), type(value).__name__.lower()), value) for value in made)

    def input_names(self) -> tuple[str, ...]:
        """Return a preferred name per input: the variable that holds it, else a letter."""
        variables = {id(value): name for name, value in reversed(self._names.items())}
        letters = iter([letter for letter in "xyzuvwabcdefghijklmnopqrst" if letter not in self._names])
        return tuple(variables.get(id(made.tensor)) or next(letters, "x") for made in self.made)

    def dynamic(self) -> dict[str, dict[int, Size]]:
        """Return the dimensions of the inputs that are sizes, by the names of the inputs."""
        return {name: item.sizes for name, item in zip(self.input_names(), self.made, strict=True) if item.sizes}

    def dim(self, name: str, low: int, high: int, by: int = 1, hint: int | None = None) -> Extent:
        """Return the extent of `dim(s, 1..4096)` in a text.

        Raises UsageError for an invalid range, and for a second range of the name.
        """
        dim = Dim(name, low, high, by, hint)
        known, extent = self._dims.setdefault(name, (dim, Extent(self._sizes.get(name, dim.size().hint), dim.size())))
        if known != dim:
            raise UsageError(f"`{name}` is declared twice: {known.range} and {dim.range}")
        if not dim.admits(int(extent)):
            raise UsageError(f"`{name}` is {int(extent)}, which is not in {dim.range}")
        return extent

    def _reset(self) -> None:
        self._counts, self._depth = {}, 0
        self._scope.clear()
        self._scope.update(SCOPE, **{HOOK: self.call, DIM: self.dim})

    def _inside(self) -> bool:
        return self._depth > 0


def _weights(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.nn.Module):
        yield from value.parameters()
        yield from value.buffers()
    else:
        yield value


def _identified(conversion: Conversion, made: list[FactoryResult]) -> Conversion:
    """Replace constants that are tensors of inputs, which the text kept somewhere, by these inputs."""
    inputs = {id(item.tensor): Var(name) for item, name in zip(made, conversion.inputs, strict=False) if item.unchanged}
    renamed = {name: inputs[id(tensor)] for name, tensor in conversion.tensors.items() if id(tensor) in inputs}
    if not renamed:
        return conversion
    graph = conversion.graph
    outs = tuple(node.replace(out, name=renamed.get(out.name, out).name) for out in graph.outs)
    return replace(conversion, graph=node.replace(graph, body=substitute(graph.body, renamed), outs=outs))


@contextlib.contextmanager
def _isolated() -> Iterator[None]:
    """Undo afterwards what a text may change: the seed, the random state and the default dtype."""
    dtype = torch.get_default_dtype()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_default_dtype(dtype)
