"""Kernel IR to CUDA text that a person enjoys reading. No decisions: what is printed is what the IR says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from ..ir.diagnostic import DplcError, InternalError
from ..ir.kernel import Launch, TensorMap
from ..ir.node import nodes
from ..ir.program import Kernel
from ..ir.sizes import sizes_in, value_of
from ..ir.text.print_statements import print_expr
from .cuda_statements import Printer
from .kernel import Box, CudaKernel, KernelParam
from .materialise import materialise
from .names import safe_kernel_name, safe_names
from .target import Target

WIDTH = 116
INT_LIMIT = 2**31


def generate(kernel: Kernel, target: Target, rules: Sequence[str] = ()) -> CudaKernel:
    """CUDA text of a Tile IR kernel. rules: the names of those that shaped it, for the comment."""
    return print_cuda(materialise(kernel, target), rules)


def print_cuda(
    kernel: Kernel, rules: Sequence[str] = (), sizes: Mapping[str, int] = MappingProxyType({})
) -> CudaKernel:
    """CUDA text of a Kernel IR kernel. Its params are those of the kernel in order, under names that C++ accepts.

    sizes: the numbers of the sizes that it declares: of its grid and its buffers; the text is the same for all. What
    has no number there has its hint.
    """
    if len(kernel.body) != 1 or not isinstance(kernel.body[0], Launch):
        raise InternalError(f"kernel `{kernel.name}` is not Kernel IR: its body is not one Launch")
    launch = kernel.body[0]
    names = safe_names(kernel)
    declared = list(sizes_in(kernel).values())
    for size in declared:
        if size.high >= INT_LIMIT:
            raise DplcError(
                f"kernel `{kernel.name}`: `{size.name}` goes to {size.high}; a kernel takes an int of 32 bits"
            )
    sizes = {size.name: size.hint for size in declared} | dict(sizes)
    shapes = {p.name: tuple(value_of(n, sizes) for n in p.shape) for p in (*kernel.ins, *kernel.outs)}
    params = [KernelParam(names[p.name], p.dtype, shapes[p.name], "in") for p in kernel.ins]  # type: ignore[arg-type]
    params += [KernelParam(names[p.name], p.dtype, shapes[p.name], "out") for p in kernel.outs]  # type: ignore[arg-type]
    params += [tensor_map(kernel, stmt, names, shapes) for stmt in nodes(launch.body, TensorMap)]
    comment = header(launch, rules)
    name = safe_kernel_name(kernel.name)
    lines = [f"// {line}" for line in comment.splitlines()]
    clusters = f" __cluster_dims__({launch.cluster}, 1, 1)" if launch.cluster > 1 else ""
    lines.append(f'extern "C" __global__ void{clusters} __launch_bounds__({launch.block}, {launch.resident})')
    lines += signature(
        name, [*(param.declaration for param in params), *(f"const int {names[size.name]}" for size in declared)]
    )
    if launch.shared:
        lines += ["  DPLC_DYN_SMEM(float, smem_buf);", "  const uint32_t smem = smem_addr(smem_buf);"]
    lines += Printer(kernel, names).block(launch.body, 1)
    text = "\n".join([*lines, "}"]) + "\n"
    x, y, z = (value_of(extent, sizes) for extent in launch.grid)
    values = tuple(sizes[size.name] for size in declared)
    geometry = (x, y, z), launch.block, launch.shared
    return CudaKernel(name, text, *geometry, tuple(params), comment, values, launch.cluster)


def bound(kernel: Kernel, made: CudaKernel, sizes: Mapping[str, int]) -> CudaKernel:
    """What was printed of a kernel, at other numbers of its sizes: the text is the same."""
    declared = sizes_in(kernel)
    if not declared:
        return made
    launch: Any = kernel.body[0]
    shapes = [tuple(value_of(n, sizes) for n in p.shape) for p in (*kernel.ins, *kernel.outs)]
    buffers, maps = made.params[: len(shapes)], made.params[len(shapes) :]
    by_name = {param.name: shape for param, shape in zip(buffers, shapes, strict=True)}
    mapped = (replace(p, shape=by_name[p.box.source]) for p in maps if p.box is not None)
    params = (*(replace(p, shape=shape) for p, shape in zip(buffers, shapes, strict=True)), *mapped)
    x, y, z = (value_of(extent, sizes) for extent in launch.grid)
    return replace(made, grid=(x, y, z), params=params, values=tuple(sizes[name] for name in declared))


def tensor_map(
    kernel: Kernel, stmt: TensorMap, names: Mapping[str, str], shapes: Mapping[str, tuple[int, ...]]
) -> KernelParam:
    """The parameter through which TMA finds boxes of an input."""
    (source,) = (param for param in kernel.ins if param.name == stmt.src)
    box = Box(names[source.name], stmt.box, stmt.swizzle)
    return KernelParam(names[stmt.dst], source.dtype, shapes[source.name], "tensor_map", box)  # type: ignore[arg-type]


def header(launch: Launch, rules: Sequence[str]) -> str:
    """What shaped the kernel and how it is launched."""
    grid = " x ".join(map(print_expr, launch.grid))
    shared = f", {launch.shared} bytes of shared memory" if launch.shared else ""
    clusters = f" in clusters of {launch.cluster}" if launch.cluster > 1 else ""
    lines = [f"grid {grid}{clusters}, {launch.block} thread{'s' if launch.block > 1 else ''}{shared}"]
    return "\n".join([*wrap("rules: ", list(rules)), *lines])


def wrap(lead: str, words: list[str]) -> list[str]:
    """Words after a lead, on as few lines as fit."""
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + len(word) < WIDTH:
            lines[-1] += f" {word}"
        else:
            lines.append((" " * len(lead) if lines else lead) + word)
    return lines


def signature(name: str, declarations: list[str]) -> list[str]:
    """`name(params) {`, one parameter a line where they do not fit."""
    line = f"{name}({', '.join(declarations)}) {{"
    if len(line) <= WIDTH:
        return [line]
    return [f"{name}(", *(f"    {d}," for d in declarations[:-1]), f"    {declarations[-1]}) {{"]
