"""Compile a dump of any IR, edited or written by hand, from its level on.

    dplc compile softmax.tile.ir        # CUDA of an edited schedule
    dplc run program.tensor.ir          # on random inputs, compared with the meaning of the text in float64

Nothing in a text is executed. The text is parsed, checked by the verifiers, and compiled like the output of rules. The
first line names the level, `## level: tile`, as in every dump.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from ...codegen.arrays import check_room, torch_dtype
from ...codegen.emulator.executor import run_kernels
from ...ir import interp
from ...ir.diagnostic import Diagnostics, DplcError
from ...ir.expr import Size, is_int
from ...ir.program import Kernel, Param, TensorType, delivered, disagreements, supplied
from ...ir.tensor import TensorGraph, dtype
from ...ir.text.programs import read_program, sizes_of
from ...ir.torch import TorchGraph
from ...ir.verify import kernel, loop, tensor, tile
from ...ir.verify.sorts import sort_problems
from ..capture.capture import Capture, check_types
from ..capture.signature import Signature
from ..compiler import (
    Compilation,
    Compiler,
    Stopwatch,
    Values,
)
from ..kernels.index_maps import push_renamings
from ..kernels.kernels import Plan
from ..rewrite.statements.driver import check_settings

LEVELS = ("torch", "tensor", "loop", "tile", "kernel")
REFERENCE_BYTES = 8  # of an element whose meaning is computed: all floats are float64 there
WHOLE_NUMBERS = 4  # drawn integers are below: they are often indices
VERIFIERS: dict[str, Callable[[Any], Sequence[str]]] = {
    "tensor": tensor.check,
    "loop": loop.problems,
    "tile": tile.problems,
    "kernel": kernel.problems,
}


@dataclass(frozen=True)
class Dump:
    """Parsed program of a dump. units: one graph, or kernels in the order of their launches.

    sizes: the binding of the symbolic dimensions; sized: the units before that binding.
    """

    name: str
    level: str
    units: tuple[Any, ...]
    sizes: Mapping[str, int] = field(default_factory=dict)
    sized: tuple[Any, ...] = ()

    @property
    def graph(self) -> Any:
        return self.units[0]

    @property
    def ins(self) -> tuple[Param, ...]:
        """Inputs of the graph, or the buffers that kernels read and no earlier kernel writes."""
        if self.level == "torch":
            return tuple(self.graph.ins)
        if self.level == "tensor":
            return tuple(Param(x.name, x.dtype, tuple(a.extent for a in x.axes)) for x in self.graph.ins)
        return supplied(self.units)

    @property
    def outs(self) -> tuple[Param, ...]:
        """Outputs of the graph, or the buffers that kernels write and none reads."""
        if self.level == "torch":
            return tuple(self.graph.outs)
        if self.level == "tensor":
            return tuple(Param(o.name, dtype(o.value), tuple(a.extent for a in o.axes)) for o in self.graph.outs)
        return delivered(self.units)


def read_text(path: Path) -> str:
    """Read a file. Raises DplcError if it cannot be read."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise DplcError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None


def read_dump(path: Path, sizes: Mapping[str, int] = MappingProxyType({})) -> Dump:
    """Read the program in a file, at a binding of its symbolic dimensions.

    Raises DplcError if the file cannot be read or a verifier rejects the program.
    """
    text = read_text(path)
    level, units = read_program(text, str(path), sizes)
    sized = read_program(text, str(path), None)[1] if sizes else units
    if level is None:
        raise DplcError(f"{path} does not say its level", hint=f"begin with `## level: LEVEL`, of {', '.join(LEVELS)}")
    if not units:
        raise DplcError(f"{path} holds no program")
    kind: Any = {"torch": TorchGraph, "tensor": TensorGraph}.get(level, Kernel)
    if any(type(unit) is not kind for unit in units) or (kind is not Kernel and len(units) > 1):
        wanted = "kernels" if kind is Kernel else "one graph"
        raise DplcError(f"{path}: {level} IR is {wanted}")
    found = [DplcError(f"{path}: {problem}") for unit in units for problem in _problems(unit, level, str(path))]
    if not found and sizes and level == "tile":  # a size may be the extent of a block axis alone
        found = [DplcError(f"{path}: {problem}") for unit in sized for problem in VERIFIERS[level](unit)]
    if not found and kind is Kernel:
        found = [DplcError(f"{path}: {problem}") for problem in disagreements(units)]  # type: ignore[arg-type]
    if found:
        raise found[0] if len(found) == 1 else Diagnostics(found)
    return Dump(str(path), level, units, sizes, sized)


def _problems(unit: Any, level: str, name: str) -> Sequence[str]:
    ends = (*unit.ins, *unit.outs) if level != "tensor" else ()
    loose = [p.name for p in ends if not all(is_int(n) for n in p.shape)]
    if loose:
        return [f"`{name}` has an extent that is no number, nor made of sizes" for name in loose]
    if level == "torch":
        check_types(unit, name)
        return ()
    return (level != "tensor" and sort_problems(unit)) or VERIFIERS[level](unit)


def compile_dump(dump: Dump, options: Compiler, seed: int = 0) -> Compilation:
    """Compile a dump from its level to CUDA, with random inputs. Raises DplcError if that is not possible."""
    captured, watch = stand_in(dump, seed), Stopwatch()
    check_settings(options.tools.settings, options.tools.rules)
    if dump.level == "torch":
        made = options.compile(captured)
    elif dump.level == "tensor":
        settled = push_renamings(dump.graph)
        values = Values(captured, options, settled, options.simplified(settled, {}), {}, _types(dump.outs))
        made = options.compile_values(values, watch)
    elif dump.level == "loop":
        made = options.compile_plan(captured, None, plan_of(dump), watch)
    else:
        since: Any = dump.level
        made = options.compile_plan(captured, None, plan_of(dump), watch, (), since, dump.sized, dump.sizes)
    return dataclasses.replace(made, since=dump.level)


def plan_of(dump: Dump) -> Plan:
    """Return kernels as a launch plan: intermediate buffers, inputs and outputs."""
    ends = {p.name for p in (*dump.ins, *dump.outs)}
    between = {p.name: p for kernel in dump.units for p in kernel.outs if p.name not in ends}
    return Plan(
        dump.units[0].name, dump.units, dump.ins, dump.outs, tuple(between.values()), _types(dump.outs)
    )  # fmt: skip


def _types(params: Sequence[Param]) -> tuple[TensorType, ...]:
    return tuple(TensorType(param.dtype, param.shape) for param in params)


def stand_in(dump: Dump, seed: int) -> Capture:
    """Return a capture with random inputs. At levels after torch its graph only names inputs."""
    graph = dump.graph if dump.level == "torch" else TorchGraph(dump.graph.name, dump.ins, (), ())
    names = tuple(param.name for param in dump.ins)
    signature = Signature((None, ()), (None, ()))
    return Capture(graph, DrawnInputs(dump, seed), dict.fromkeys(names, "input"), {}, names, signature)


class DrawnInputs(Mapping[str, Any]):
    """Random inputs of a dump, generated when one is read. A compile reads none, and so allocates no memory for them.

    Reading raises DplcError if the arrays of the program do not fit into the memory of this machine.
    """

    def __init__(self, dump: Dump, seed: int) -> None:
        self.dump, self.seed = dump, seed

    @functools.cached_property
    def tensors(self) -> dict[str, Any]:
        elements = sum(math.prod(kind.shape) for kind in arrays_of(self.dump))  # type: ignore[arg-type]
        check_room(elements * REFERENCE_BYTES, f"the arrays of {self.dump.name}")
        return draw(self.dump.ins, self.seed)

    def __getitem__(self, name: str) -> Any:
        return self.tensors[name]

    def __iter__(self) -> Iterator[str]:
        return (param.name for param in self.dump.ins)

    def __len__(self) -> int:
        return len(self.dump.ins)


def arrays_of(dump: Dump) -> Iterator[Param | TensorType]:
    """Yield the arrays that a run of a dump holds in memory: inputs, outputs and materialised intermediates."""
    if dump.level in ("torch", "tensor"):
        yield from (*dump.ins, *dump.outs)
        yield from (kind for op in (dump.graph.body if dump.level == "torch" else ()) for kind in op.types)
    else:
        yield from {param.name: param for kernel in dump.units for param in (*kernel.ins, *kernel.outs)}.values()


def draw(params: Sequence[Param], seed: int) -> dict[str, Any]:
    """Return {input: values}, reproducible from the seed: normal floats, small whole numbers."""
    generator = torch.Generator().manual_seed(seed)
    made = {}
    for param in params:
        kind = torch_dtype(param.dtype)  # type: ignore[arg-type]
        values = torch.randn(param.shape, generator=generator)  # type: ignore[arg-type]
        if not kind.is_floating_point:
            top = 2 if kind is torch.bool else WHOLE_NUMBERS
            values = torch.randint(0, top, param.shape, generator=generator)  # type: ignore[arg-type]
        made[param.name] = values.to(kind)
    return made


def reference_of(dump: Dump, tensors: Mapping[str, Any]) -> list[Any]:
    """Return the outputs by the semantics of the dump's own level: floats in float64, integers and bools exact.

    Kernel IR means its CUDA text in checked mode: floats are as the kernels compute them. Raises EmulatorError.
    """
    if dump.level == "kernel":
        memory = run_kernels(dump.units, tensors)
        return [torch.from_numpy(memory[param.name]) for param in dump.outs]
    run: Any = importlib.import_module(f"{interp.__name__}.{dump.level}").run
    if dump.level == "torch":
        return list(run(dump.graph, tensors))
    wide = {name: tensor.double() if tensor.dtype.is_floating_point else tensor for name, tensor in tensors.items()}
    arrays = {name: tensor.numpy() for name, tensor in wide.items()}
    if dump.level == "tensor":
        found = run(dump.graph, arrays)
    else:
        memory = run(dump.units, arrays)
        found = [memory[param.name] for param in dump.outs]
    return [torch.from_numpy(value.copy()) for value in found]


def dump_sizes(path: Path) -> dict[str, Size]:
    """Return the symbolic dimensions that a dump declares. Raises DplcError for a file that cannot be read."""
    return sizes_of(read_text(path), str(path))
