"""Capture: functions and modules -> Torch IR with everything that is known about where it came from.

`capture` traces a function or a module on example arguments, `capture_text` a `-c` text.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import math
import re
import sys
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.nn import Module
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils.flop_counter import flop_registry

from ...ir import schemas
from ...ir.diagnostic import DplcError, Source, Span, UsageError, first_line
from ...ir.dtypes import DTYPES
from ...ir.expr import Var, free_names
from ...ir.interp.torch import applied
from ...ir.names import unused
from ...ir.program import Param, TensorType
from ...ir.sizes import AT_HINTS, Binding, has_sizes
from ...ir.substitute import substitute
from ...ir.text.torch import print_torch_op
from ...ir.torch import TorchGraph, TorchOp
from ..language.rule import Policy, policy_with
from ..language.rule_files import collections_paused
from .dynamic_shapes import Dim, Extent, declared, sizes_of_factory
from .export import dtype_name, explain, export, export_lock
from .fx_rewrites import Function, tensors
from .places import SourcePlaces, span_in
from .signature import Capture, Fixed, Pairs, TraceInput, check_kind, parts_of, tensors_of, unset

Weight: TypeAlias = Module | Tensor  # what a label names: a module or a parameter

# ---- Find the modules that a function uses: itself, its closure, globals, defaults, and their members.


def modules_of(function: Function) -> dict[str, Weight]:
    """Return {label: module} for the modules that a function or module uses, without those inside of another one.

    A module is labelled by the variable that holds it; the module that is captured itself has the label "". A module
    that is not found is not lost: its weights are constants of the trace.
    """
    if isinstance(function, Module):
        return {"": function}
    return outermost(_reachable(function, "", set()))


def outermost(found: Iterable[tuple[str, Weight]]) -> dict[str, Weight]:
    """Return {label: module or parameter}, each by its first label or else its class, without those inside another."""
    found = list(found)
    modules = [value for _, value in found if isinstance(value, Module)]
    past = {id(part) for module in modules for part in (*module.modules(), *module.parameters()) if part is not module}
    labelled: dict[str, Weight] = {}
    for label, value in found:
        if id(value) not in past:
            past.add(id(value))
            labelled[unused(label or type(value).__name__.lower(), labelled, between="_")] = value
    return labelled


def plain_parts(tensor: Tensor) -> tuple[Tensor, ...]:
    """Return the tensors in a wrapper subclass, in the order in which torch.export lists them; a plain tensor alone."""
    if not is_traceable_wrapper_subclass(tensor):
        return (tensor,)
    names, _ = tensor.__tensor_flatten__()
    return tuple(part for name in names for part in plain_parts(getattr(tensor, name)))


def _reachable(value: object, label: str, seen: set[int]) -> Iterator[tuple[str, Module]]:
    """Yield the modules that a value holds, each once, with the name of the variable that holds it."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, Module):
        yield label, value
    for name, member in _members(value):
        yield from _reachable(member, name if isinstance(name, str) else label, seen)


def _members(value: object) -> Iterable[tuple[object, object]]:
    """Return what a value holds, with its name or something else: the function, arguments or items, or variables."""
    match value:
        case FunctionType():
            return _variables(value)
        case dict():
            return value.items()
        case MethodType():
            return enumerate((value.__self__, value.__func__))
        case partial():
            return enumerate((value.func, value.args, value.keywords))
        case list() | tuple():
            return enumerate(value)
    return ()


def _variables(function: FunctionType) -> Iterator[tuple[str, object]]:
    """Yield the variables that a function reads: closure, defaults, globals. Only names that its code mentions."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # not assigned yet
            yield name, cell.cell_contents
    for parameter in inspect.signature(function, follow_wrapped=False).parameters.values():
        yield parameter.name, parameter.default
    for name in _global_names(function.__code__):
        found = function.__globals__.get(name)  # torch's own functions hold no modules of the user
        if isinstance(found, Module) or not str(getattr(found, "__module__", "")).startswith("torch."):
            yield name, found


def _global_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _global_names(constant)


@export_lock()
@collections_paused()
def capture(
    function: Function, example_args: object, kwargs: Mapping[str, object] | None = None, dynamic: object = None,
    aliases: bool = False,
) -> Capture:  # fmt: skip
    """Return the program of `function(*example_args, **kwargs)`, for arguments of these shapes and dtypes.

    function: a function, or a module, in the mode (training or evaluation) that it is in. example_args: a tuple of
    arguments, nested as needed; tensors in it are inputs, everything else is fixed. dynamic: the dimensions that are
    known at a call (`dynamic_shapes.declared`). aliases: as in `export`. Raises DplcError if it cannot be compiled.
    """
    if not callable(function):
        raise DplcError(f"a function or module is needed, not {type(function).__name__}")
    args = tuple(example_args) if isinstance(example_args, (tuple, list)) else (example_args,)
    kwargs = dict(kwargs or {})
    leaves, spec = pytree.tree_flatten((args, kwargs))
    given: list[TraceInput] = []
    for leaf, name in zip(leaves, _argument_names(function, args, kwargs), strict=True):
        what = f"argument `{name}`"
        if isinstance(leaf, Tensor):
            check_kind(what, leaf)
            given.append(TraceInput(name, leaf.detach()))  # a capture holds values, not how they came about
        elif type(leaf).__module__ == "numpy":
            raise DplcError(f"{what} is a numpy array", hint="pass torch.from_numpy(..)")
        elif tensors_of(leaf):
            what = f"{what} is a {type(leaf).__name__}, which holds tensors"
            raise DplcError(what, hint="tensors come alone or in tuples, lists and dicts")

    def call(*tensors: Tensor) -> object:
        order = iter(tensors)
        filled = [next(order) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        inner_args, inner_kwargs = pytree.tree_unflatten(filled, spec)
        return function(*inner_args, **inner_kwargs)

    given = declared(dynamic, given) if dynamic else given
    made = export(call, given, modules_of(function), SourcePlaces(), aliases=aliases)
    check_dtypes(made)
    inputs = iter(made.inputs)
    arguments = tuple(
        (Pairs(next(inputs)) if leaf.is_complex() else next(inputs)) if isinstance(leaf, Tensor) else Fixed(leaf)
        for leaf in leaves
    )
    return replace(made, signature=replace(made.signature, arguments=(spec, arguments)))


def check_dtypes(captured: Capture) -> None:
    """Raise DplcError for a dtype that cannot be compiled, except in computations of constants: those fold."""
    graph, kinds = captured.graph, captured.kinds
    wrong = [(f"{kinds[p.name]} `{p.name}` is", p.dtype, p.name) for p in graph.ins if p.dtype not in DTYPES]
    computed = DTYPES.keys() | schemas.PARTS.keys()
    reached = set(kinds)
    for statement in graph.body:
        if not reached.isdisjoint(free_names(statement.args)):
            reached.add(statement.dst)
            dtypes = (kind.dtype for kind in statement.types if kind.dtype not in computed)
            wrong += ((f"torch op '{schemas.aten_name(statement.op)}' gives", x, statement.dst) for x in dtypes)
    for what, dtype, name in wrong:
        reader = next((s.dst for s in graph.body if name in free_names(s.args)), "")
        place = captured.spans.get(name) or captured.spans.get(reader)
        span, notes = (None, (f"in {place}",)) if isinstance(place, str) else (place, ())
        hint = "use .float()" if dtype.startswith("f") else "use .float(), .int(), .long() or .bool()"
        raise DplcError(f"{what} {dtype}, which is not supported", span, hint, notes)


def _argument_names(function: Function, args: Sequence[object], kwargs: Mapping[str, object]) -> list[str]:
    """Return a name per leaf: the parameter's, with the path to the leaf inside of it (`batch_ids`, `xs_0`)."""
    called = function.forward if isinstance(function, Module) else function
    try:
        given = inspect.signature(called).bind_partial(*args).arguments
    except (TypeError, ValueError):
        given = {"x": args}
    paths = (path[1:] for path, _ in pytree.tree_flatten_with_path((dict(given), kwargs))[0])
    keys = ([getattr(key, "idx", getattr(key, "key", getattr(key, "name", key))) for key in path] for path in paths)
    return ["_".join(map(str, path)) for path in keys]


# ---- Check a Torch IR program that was written by hand.


def check_types(graph: TorchGraph, name: str) -> None:
    """Raise DplcError for the first op that torch refuses, or whose result is not of the type in the text.

    name: of the file, for messages.
    """
    values = {param.name: _empty(param) for param in graph.ins}
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
            raise DplcError(f"{where}: torch refuses it", notes=(first_line(error),)) from None
        found = made if isinstance(made, tuple | list) else (made,)
        for kind, given in zip(op.types, found, strict=False):
            if kind != TensorType(dtype_name(given.dtype), tuple(given.shape)):
                shown = f"{str(given.dtype).removeprefix('torch.')}{list(given.shape)}"
                raise DplcError(f"{where}: torch gives {shown}")
        if len(op.types) != len(found):
            raise DplcError(f"{where}: torch gives {len(found)} tensors")
        values[op.dst] = made


def _empty(kind: TensorType | Param) -> Tensor:
    """Return a tensor of a type, without memory. Raises DplcError for one that is larger than any memory."""
    try:
        return unset(kind, "meta")
    except (RuntimeError, TypeError) as error:
        what = f"there is no tensor {kind.dtype}{list(kind.shape)}"
        raise DplcError(what, notes=(first_line(error),)) from None


# ---- Constant folding: torch computes values that depend on no input, on the CPU, when the program is compiled.
#
# Attention-mask arithmetic, position ids, causal masks: a model uses dozens of small ops to compute one tensor of known
# values. A result that something else reads becomes an input of the kind "constant". A tensor without elements depends
# on nothing: it is a constant whatever its operands are, and its consumers fold too (the sum of nothing).


def bits(tensor: Tensor) -> Any:
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
    largest = (numbers or policy_with()).largest_constant
    graph, tensors = captured.graph, captured.tensors  # which may be drawn when one is read
    constants = {name: tensors[name].detach() for name, kind in captured.kinds.items() if kind == "constant"}
    known = {name: tensor.cpu() for name, tensor in constants.items() if not tensor.is_meta}
    known |= {param.name: unset(param) for param in graph.ins if _without_elements(param)}
    rest: list[TorchOp] = []
    with torch.no_grad():
        for statement in graph.body:
            types = statement.types
            if len(types) == 1 and _without_elements(types[0]):
                known[statement.dst] = unset(types[0])
            elif (
                free_names(statement.args) - schemas.DTYPES.keys() <= known.keys()
                and not schemas.draws(statement.op, dict(statement.args))
                and not has_sizes((statement.args, types))  # a tensor of every size: a rule says it as a formula
                and (statement.op == "Getitem" or all(math.prod(kind.shape) <= largest for kind in types))
            ):
                try:
                    result = applied(statement, known)
                except Exception as error:
                    raise DplcError(f"the constant `{statement.dst}` cannot be computed: {error}") from None
                known[statement.dst] = result.cpu() if isinstance(result, Tensor) else result
            else:
                rest.append(statement)
    outs = {out.name for out in graph.outs}
    read = outs.union(*(free_names(statement.args) for statement in rest))
    first: dict[tuple[torch.dtype, torch.Size, bytes], str] = {}
    same: dict[str, Var] = {}  # constants of equal bits: layers compute views of the same values
    made, opened = dict[Param, Tensor](), list[TorchOp]()
    for name, value in known.items():
        if name not in read:
            continue
        if name not in outs:
            content = (value.dtype, value.shape, bits(value).tobytes())
            if (other := first.setdefault(content, name)) != name:
                same[name] = Var(other)
                continue
        if name not in captured.kinds:
            if value.is_complex():
                kind = TensorType(dtype_name(value.dtype), tuple(value.shape))
                opened.append(TorchOp(name, "ViewAsComplex", (("self", Var(f"{name}_pairs")),), (kind,)))
                name, value = f"{name}_pairs", parts_of(value)
            value = value.contiguous()
            made[Param(name, dtype_name(value.dtype), tuple(value.shape))] = value
    read -= same.keys()
    params = [param for param in graph.ins if param.name in read or captured.kinds[param.name] == "input"]
    params += made
    kinds = {param.name: captured.kinds.get(param.name, "constant") for param in params}
    if kinds.keys() != tensors.keys():
        held = {**tensors, **{param.name: value for param, value in made.items()}}
        tensors = {name: held[name] for name in kinds}
    body = (*opened, *(substitute(statement, same) for statement in rest))
    folded = replace(
        captured, graph=TorchGraph(graph.name, tuple(params), graph.outs, body), tensors=tensors, kinds=kinds
    )
    check_dtypes(folded)
    return folded


def _without_elements(kind: TensorType | Param) -> bool:
    """Return whether an input or a result has no elements at a fixed shape.

    Rules handle one of every size: a tensor of numbers has one shape.
    """
    return 0 in kind.shape and not has_sizes(kind.shape)


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


class _Instrument(ast.NodeTransformer):
    def __init__(self) -> None:
        self.sites = 0

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        name = getattr(node.func, "id", None)
        if name in _FRAME_SENSITIVE:
            return node
        if name == DIM and node.args and isinstance(node.args[0], ast.Name):
            node.args[0] = ast.Constant(node.args[0].id)
        call = ast.Call(ast.Name(HOOK, ast.Load()), [ast.Constant(self.sites), node.func, *node.args], node.keywords)
        self.sites += 1
        return ast.copy_location(call, node)


def parse(text: str) -> ParsedText:
    """Return the program of a text.

    Raises DplcError for a syntax error and if the last statement is not an expression.
    """
    source = Source(NAME, textwrap.dedent(text).strip("\n").rstrip())
    compiled = partial(compile, filename=NAME, dont_inherit=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(_RANGE.sub(r"\1, ", source.text), NAME)  # of the same length: positions do not change
            if not tree.body:
                raise DplcError("the text is empty", hint="give an expression, such as `torch.relu(torch.randn(8))`")
            *statements, last = tree.body
            span = span_in(source, last.lineno, last.end_lineno or last.lineno, last.col_offset, last.end_col_offset)
            if not isinstance(last, ast.Expr):
                raise DplcError("the last statement must be an expression: the result to compile", span)
            ast.fix_missing_locations(_Instrument().visit(tree))
            codes = tuple(
                (compiled(ast.Module([statement], []), mode="exec"), isinstance(statement, ast.ClassDef))
                for statement in statements
            )
            return ParsedText(source, codes, compiled(ast.Expression(last.value), mode="eval"), span)
    except SyntaxError as error:
        line, start = error.lineno or 1, max((error.offset or 1) - 1, 0)
        same_line = error.end_lineno in (None, line)
        end = (error.end_offset or 0) - 1 if same_line else len(source.line(line))
        span = Span(source, line, start, line, max(end, start + 1))
        raise DplcError(f"syntax error: {error.msg}", span) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise DplcError(f"the text cannot be parsed: {error or type(error).__name__}") from None


# ---- Skip large products if only the shapes of their results are needed.


MOST_COMPUTED = 1 << 27  # floating-point operations: a CPU needs milliseconds for them, in any dtype


class SkipLargeProducts(TorchDispatchMode):
    """Mode in which matmuls, convolutions and attention of more than MOST_COMPUTED operations return zeros.

    PyTorch's own table of operations says what counts. A branch of a text on such values (`if (x @ w).sum() > 0`) could
    go the wrong way; but the text is traced without any values afterwards, where such a branch is an error.
    """

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: tuple[object, ...] = (), kwargs: Mapping[str, object] | None = None
    ) -> object:
        given = dict(kwargs or {})
        count = flop_registry.get(func._overloadpacket)
        if count is not None:
            shapes, named = pytree.tree_map_only(Tensor, lambda tensor: tensor.to("meta"), (args, given))
            result = func(*shapes, **named)
            if count(*args, **given, out_val=result) > MOST_COMPUTED:
                return pytree.tree_map_only(Tensor, partial(torch.zeros_like, device="cpu"), result)
        return func(*args, **given)


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
    evaluation = Evaluation(program, sizes)
    with torch.random.fork_rng(devices=[]), contextlib.ExitStack() as undo:  # what a text may change
        undo.callback(torch.set_default_dtype, torch.get_default_dtype())
        torch.manual_seed(seed)
        if dtype is not None:
            torch.set_default_dtype(getattr(torch, schemas.DTYPES[dtype]))
        result = evaluation.first(contextlib.nullcontext() if values else SkipLargeProducts())
        reference = [tensor.detach() for leaf in pytree.tree_leaves(result) for tensor in tensors_of(leaf)]
        if not reference:
            raise DplcError(f"the expression gives {type(result).__name__}, not a tensor", program.result_span)
        captured = _traced(evaluation, len(reference))
    if not values:
        return captured
    pairs = zip(reference, captured.signature.outputs, strict=True)
    return replace(captured, reference=tuple(parts_of(tensor) for tensor, out in pairs if not callable(out)))


def _traced(evaluation: Evaluation, results: int) -> Capture:
    """Return the second evaluation. Its inputs are the tensors of factories, then the parameters outside of modules.

    results: how many tensors the first one gave.
    """
    scope = evaluation.scope
    variables = {id(value): name for name, value in reversed(scope.items()) if not name.startswith("__")}
    weights = outermost((variables.get(id(weight), ""), weight) for weight, _ in evaluation.calls.values())
    modules = {label: weight for label, weight in weights.items() if isinstance(weight, Module)}
    loose = {label: weight for label, weight in weights.items() if label not in modules}
    letters = (letter for letter in "xyzuvwabcdefghijklmnopqrst" if letter not in scope)
    inputs = []
    for _, version, made in evaluation.made:
        name = variables.get(id(made.held)) or next(letters, "x")  # the variable that holds it, else a letter
        unchanged = getattr(made.held, "_version", None) == version
        inputs.append(made._replace(name=name, held=made.held if unchanged else None))
    inputs += [TraceInput(label, weight.detach(), kind="parameter") for label, weight in loose.items()]
    again = partial(evaluation.again, tuple(loose.values()))
    captured = export(again, inputs, modules, evaluation.places, of_text=True)
    if results != len(captured.signature.outputs):
        what = "the text does not give the same when it is evaluated twice"
        raise DplcError(what, evaluation.program.result_span)
    check_dtypes(captured)
    return captured


# What a length decides, and no draw: of a length that is known at a call they are computed, like any other op.
COUNTED = frozenset((torch.arange, torch.eye, torch.full, torch.linspace, torch.ones, torch.zeros))
# Random and in place: a factory too, whose value is written to an existing tensor.
FILLERS = frozenset((
    Tensor.bernoulli_, Tensor.cauchy_, Tensor.exponential_, Tensor.geometric_,
    Tensor.log_normal_, Tensor.normal_, Tensor.random_, Tensor.uniform_,
))  # fmt: skip
FACTORIES = COUNTED | FILLERS | {
    torch.bernoulli, torch.empty, torch.empty_strided, torch.logspace, torch.multinomial, torch.normal, torch.poisson,
    torch.rand, torch.rand_like, torch.randint, torch.randint_like, torch.randn, torch.randn_like, torch.randperm,
    torch.scalar_tensor, torch.tensor, torch.tril_indices, torch.triu_indices,
}  # fmt: skip


def _initialises(frame: FrameType | None) -> bool:
    """Return whether a module is being created: the result of a factory is a weight then."""
    while frame is not None:
        if frame.f_code.co_name == "__init__" and isinstance(frame.f_locals.get("self"), Module):
            return True
        frame = frame.f_back
    return False


class Evaluation(TorchFunctionMode):
    """Both evaluations of a text, and what the second keeps of the first.

    As a mode it records the tensors of factories in the first, and gives the inputs of the graph instead of them in the
    second. Within a module's forward a factory is an op like any other. made: in order the factories with the versions
    and copies of their tensors, because the text may mutate those. scope: the variables of the text. calls: {(site,
    calls before): a module or parameter that the call returned, calls after it}; the second evaluation makes the same
    calls.
    """

    def __init__(self, program: ParsedText, sizes: Binding):
        super().__init__()
        self.program, self.places = program, SourcePlaces(program.source)
        self.made: list[tuple[Function, int, TraceInput]] = []
        self.scope: dict[str, Any] = {}
        self.calls: dict[tuple[int, int], tuple[Weight, int]] = {}
        self._sizes = sizes
        self._dims: dict[str, tuple[Dim, Extent]] = {}
        self._statements: dict[int, tuple[dict[str, Any], int]] = {}  # {index: what it bound, calls after it}
        self._evaluated: set[int] = set()  # modules that were put in evaluation mode
        self._left: Iterator[tuple[Function, Tensor]] | None = None  # factories with their inputs, when traced

    def first(self, last: contextlib.AbstractContextManager[object]) -> object:
        """Evaluate for real, the last expression within `last`. Returns its value."""
        hooks = torch.nn.modules.module
        try:
            with (
                torch.no_grad(),
                hooks.register_module_parameter_registration_hook(self._registered),
                hooks.register_module_buffer_registration_hook(self._registered),
                hooks.register_module_module_registration_hook(self._registered),
            ):
                return self._run(last)
        except DplcError as error:
            error.span = error.span or self.places.of_error(error)
            raise
        except (Exception, SystemExit) as error:
            explained = explain(error, self.places.of_error(error))
            lengths = (f"`{dim.name}` is {int(extent)} here, of {dim.range}" for dim, extent in self._dims.values())
            explained.notes = (*explained.notes, *lengths)
            raise explained from None

    def again(self, loose: tuple[Tensor, ...], *inputs: Tensor) -> object:
        """Evaluate with the inputs of the graph instead of the tensors of factories and of the loose parameters."""
        count = len(self.made)
        self._left = zip((factory for factory, *_ in self.made), inputs[:count], strict=True)
        # loose parameters by identity
        self._replaced = {id(weight): tensor for weight, tensor in zip(loose, inputs[count:], strict=True)}
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                return self._run(contextlib.nullcontext())
        finally:
            self.scope.clear()

    def __torch_function__(
        self, function: Function, types: object, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._depth:
            return function(*args, **kwargs)
        if self._left is not None:
            return self._input(self._left, function, args, kwargs)
        before = [(x, x._version) for x in tensors(args, kwargs)]
        result, frame = function(*args, **kwargs), sys._getframe(1)
        changed = [tensor for tensor, version in before if tensor._version != version]
        if getattr(function, "__name__", "") == "__set__":  # `weight.data = value`
            changed += [tensor for tensor, _ in before[:1]]
        if any(map(self._is_weight, changed)):
            self._changed_weight = True
        elif function in FACTORIES and isinstance(result, Tensor) and not _initialises(frame):
            span, sizes = self.places.here(frame), sizes_of_factory((*args, *kwargs.values()), result.shape)
            made = TraceInput("", result.detach().clone(), sizes, span=span, held=result)
            self.made.append((function, result._version, made))
        return result

    def _input(
        self,
        left: Iterator[tuple[Function, Tensor]],
        function: Function,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """Return the next input of the graph for the result of a factory."""
        if function not in FACTORIES:
            return function(*args, **kwargs)
        factory, tensor = next(left, (None, None))
        if factory != function:
            raise DplcError(f"`{function.__name__}` is not called as often when the text is traced as when it runs")
        if function in COUNTED and any(isinstance(leaf, torch.SymInt) for leaf in pytree.tree_leaves((args, kwargs))):
            return function(*args, **kwargs)
        return args[0].copy_(tensor) if function in FILLERS else tensor

    def _run(self, last: contextlib.AbstractContextManager[object]) -> object:
        self._count = self._depth = 0  # how many calls began; how many forwards run
        self.scope.clear()
        self.scope.update(SCOPE, **{HOOK: self.call, DIM: self.dim})
        with self:
            for index, (code, once) in enumerate(self.program.statements):
                if index in self._statements:
                    bound, self._count = self._statements[index]
                    self.scope.update(bound)
                    continue
                before, mark = dict(self.scope), len(self.made)
                self._changed_weight = False  # whether the statement mutates a weight or a module
                exec(code, self.scope)
                if once or self._changed_weight:
                    bound = {name: value for name, value in self.scope.items() if before.get(name, before) is not value}
                    self._statements[index] = bound, self._count
                    del self.made[mark:]
            with last:
                return eval(self.program.result, self.scope)

    def call(self, site: int, function: Function, /, *args: Any, **kwargs: Any) -> Any:
        """Return `function(*args, **kwargs)`; every call in the text comes through here."""
        if function is torch.compile and args:
            return args[0]  # the same function, and no reason to wait for its compilation
        if function is map:
            return (self.call(site, args[0], *items) for items in zip(*args[1:], strict=False))
        key = site, self._count
        self._count += 1
        if key in self.calls:  # when traced
            value, self._count = self.calls[key]
            return self._replaced.get(id(value), value)
        owner = getattr(function, "__self__", None) if getattr(function, "__name__", "") == "forward" else function
        forward, mark = isinstance(owner, Module), len(self.made)
        self._depth += forward
        try:
            result = function(*args, **kwargs)
        finally:
            self._depth -= forward
        if not forward and isinstance(result, (Module, torch.nn.Parameter)):
            if self._left is not None:
                raise DplcError(f"{type(result).__name__} is only made when the text is traced, not when it runs")
            self.calls[key] = result, self._count
            del self.made[mark:]
            if isinstance(result, Module) and id(result) not in self._evaluated:
                self._evaluated.update(map(id, result.modules()))
                result.eval()
        return result

    def dim(self, name: str, low: int, high: int, by: int = 1, hint: int | None = None) -> Extent:
        """Return the extent of `dim(s, 1..4096)` in a text.

        Raises UsageError for an invalid range, and for a second range of the name.
        """
        dim = Dim(name, low, high, by, hint)
        size = dim.size()
        known, extent = self._dims.setdefault(name, (dim, Extent(self._sizes.get(name, size.hint), size)))
        if known != dim:
            raise UsageError(f"`{name}` is declared twice: {known.range} and {dim.range}")
        if not dim.admits(int(extent)):
            raise UsageError(f"`{name}` is {int(extent)}, which is not in {dim.range}")
        return extent

    def _is_weight(self, tensor: Tensor) -> bool:
        """Return whether a tensor shares memory with a parameter or buffer that the text made."""
        memory = tensor.untyped_storage()._cdata
        for made, _ in self.calls.values():
            weights = (*made.parameters(), *made.buffers()) if isinstance(made, Module) else (made,)
            if any(weight.untyped_storage()._cdata == memory for weight in weights):
                return True
        return False

    def _registered(self, module: Module, name: str, value: object) -> None:
        """Notice that an existing module gets another parameter, buffer or child."""
        if id(module) in self._evaluated:
            self._changed_weight = True
