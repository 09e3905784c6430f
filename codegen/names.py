"""Names of a program as C++ identifiers: a user's input may be called `float`, `threadIdx` or `ldg128`."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path

from ..ir.expr import Size
from ..ir.kernel import BLOCK_INDEX, SHARED, THREAD
from ..ir.node import nodes
from ..ir.program import Block, Kernel
from . import scalar

PRELUDE = tuple(Path(__file__).parent / name for name in ("prelude.cuh", "float8.cuh"))

KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        """
        alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t class
        co_await co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype
        default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline
        int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
        reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch template
        this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile
        wchar_t while xor xor_eq

        threadIdx blockIdx blockDim gridDim warpSize dim3 float2 float4 int2 int4 f16 bf16 e4m3 e5m2 i8 i16 u8 size_t
        uint8_t uint16_t uint32_t uint64_t int32_t int64_t

        memcpy assert site TensorMap NULL NAN INFINITY EOF linux unix major minor main
        """,
    )
)
OURS = ("dplc", "DPLC")  # what the prelude's own names begin with
BOUND = {
    THREAD: "threadIdx.x",
    **dict(zip(BLOCK_INDEX, ("blockIdx.x", "blockIdx.y", "blockIdx.z"), strict=True)),
    SHARED: SHARED,
}


@functools.cache
def reserved() -> frozenset[str]:
    """Identifiers that mean something where a kernel stands: keywords, the prelude's functions, those of scalar.py."""
    prelude = "".join(path.read_text() for path in PRELUDE)
    functions = set(re.findall(r"DPLC_FN [\w:]+(?: [\w:]+)*?[ *]+(\w+)\(", prelude)) | set(
        re.findall(r"DPLC_(?:CP_ASYNC|COPY_BOX|F64_[12])\((\w+)", prelude)
    )
    functions |= {
        name + end for name in list(functions) if name.startswith("cp_async") for end in ("_if", "_zfill", "_if_zfill")
    }
    tables = (*scalar.TABLES.values(), scalar.INTEGER, scalar.ANY)
    texts = " ".join(form.text for table in tables for form in table.values())
    functions |= set(re.findall(r"[A-Za-z_]\w*", texts)) | {"smem_buf"}
    return KEYWORDS | functions


def is_reserved(name: str) -> bool:
    return name in reserved() or name.startswith(OURS) or "__" in name


def safe_names(kernel: Kernel) -> dict[str, str]:
    """An identifier for every name of a kernel; those that need no change keep theirs."""
    names = dict.fromkeys(_names(kernel))
    result = dict(BOUND)
    taken = set(names) | set(BOUND)
    for name in names:
        if name in result:
            continue
        safe = name
        while is_reserved(safe) or (safe is not name and safe in taken):
            plain = re.sub("__+", "_", safe.strip("_")) if "__" in safe else safe
            safe = f"{'v_' * plain.startswith(OURS)}{plain}_v"
        taken.add(safe)
        result[name] = safe
    return result


# `extern "C"` puts a kernel beside the C library's functions
LIBRARY = frozenset(
    re.findall(
        r"\w+",
        "sin cos tan exp log sqrt pow abs fabs floor ceil round trunc erf gamma div time index y0 y1 yn j0 j1 jn",
    )
)


def safe_kernel_name(name: str) -> str:
    return f"{name}_kernel" if is_reserved(name) or name in LIBRARY else name


def _names(kernel: Kernel) -> Iterator[str]:
    """Every name that a kernel defines, in the order of its text."""
    yield from (param.name for param in (*kernel.ins, *kernel.outs))
    yield from sorted({size.name for size in nodes(kernel, Size)})
    yield from _defined(kernel.body)


def _defined(block: Block) -> Iterator[str]:
    for stmt in block:
        declared = stmt.__class__.by_name
        for field in ("dst", "var"):
            if field in declared:
                yield getattr(stmt, field)
        if "body" in declared:
            yield from _defined(stmt.body)  # type: ignore[attr-defined]


__all__ = ["is_reserved", "reserved", "safe_kernel_name", "safe_names"]
