"""The host meaning of the prelude: every access at every width and dtype, every function against numpy and torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from emulated import run

from dplc.codegen.kernel import CudaKernel, KernelParam
from dplc.ir.dtypes import DTYPES, SMALL_FLOATS, DtypeName

MakeKernel = Callable[..., CudaKernel]


def sample(dtype: DtypeName, size: int) -> npt.NDArray[np.generic]:
    """Values that use every byte of the dtype, distinct as far as it has so many."""
    info, numbers = DTYPES[dtype], np.arange(size)
    if dtype == "b8":
        values: Any = numbers % 3 == 0
    elif info.numpy.startswith("float"):
        values = (numbers - size / 3) / 7
    else:
        values = (numbers * (1 << max(8 * info.item_bytes - 9, 0)) + numbers).astype(np.int64)
    return np.asarray(values, info.numpy)


def copied(make_kernel: MakeKernel, dtype: DtypeName, body: str, size: int = 512) -> bool:
    x = KernelParam("x", dtype, (size,))
    y = KernelParam("y", dtype, (size,), "out")
    head = f"using T = {DTYPES[dtype].c_type}; const int t = threadIdx.x;"
    head += "DPLC_DYN_SMEM(float, s); const uint32_t a = smem_addr(s);"
    values = sample(dtype, size)
    got = run(make_kernel(head + body, x, y, smem=size * 8), {"x": values})["y"]
    return bool(np.array_equal(got, values))


@pytest.mark.parametrize("dtype", DTYPES)
def test_single_elements_of_every_dtype(make_kernel: MakeKernel, dtype: DtypeName) -> None:
    size = DTYPES[dtype].item_bytes
    body = f"""
      for (int i = t; i < 512; i += 32) {{
        sts(a + i * {size}, ldg(x + i));
        const T v = lds<T>(a + i * {size});
        stg(y + i, v);
      }}"""
    assert copied(make_kernel, dtype, body)


@pytest.mark.parametrize("bits", [32, 64, 128])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.sampled(7)
def test_vectors_of_every_dtype_and_width(make_kernel: MakeKernel, dtype: DtypeName, bits: int) -> None:
    per_access = bits // 8 // DTYPES[dtype].item_bytes
    if per_access == 0:
        pytest.skip("an element is wider than the access")
    if bits == 32:
        through_shared = "for (int e = 0; e < n; ++e) sts(at + e * sizeof(T), v[e]), v[e] = lds<T>(at + e * sizeof(T));"
    else:
        through_shared = f"sts{bits}(at, v); T u[n]; lds{bits}(u, at); for (int e = 0; e < n; ++e) v[e] = u[e];"
    body = f"""
      constexpr int n = {per_access};
      for (int i = t * n; i < 512; i += 32 * n) {{
        T v[n];
        ldg{bits}(v, x + i);
        const uint32_t at = a + i * sizeof(T);
        {through_shared}
        stg{bits}(y + i, v);
      }}"""
    assert copied(make_kernel, dtype, body)


@pytest.mark.parametrize("width", [4, 8, 16])
@pytest.mark.parametrize("suffix", ["", "_if", "_zfill", "_if_zfill"])
@pytest.mark.sampled(3)
def test_asynchronous_copies_of_every_kind(make_kernel: MakeKernel, width: int, suffix: str) -> None:
    flags = "true, " * suffix.count("_")
    body = f"""
      for (int i = t * {width}; i < 2048; i += 32 * {width}) cp_async{width}{suffix}({flags}a + i, (const char*)x + i);
      cp_async_commit();
      cp_async_wait<0>();
      warp_sync();
      for (int i = t; i < 512; i += 32) stg32(y + i, lds32(a + i * 4));"""
    assert copied(make_kernel, "f32", body)


def test_a_predicate_that_is_false_copies_nothing(make_kernel: MakeKernel) -> None:
    y = KernelParam("y", "f32", (32,), "out")
    body = """
      DPLC_DYN_SMEM(float, s);
      const uint32_t a = smem_addr(s) + threadIdx.x * 4;
      sts32(a, 7.0f);
      cp_async4_if(false, a, y);
      cp_async4_if_zfill(false, true, a, y);
      cp_async_commit();
      cp_async_wait<0>();
      stg32(y + threadIdx.x, lds32(a));"""
    assert np.all(run(make_kernel(body, y, smem=128), {})["y"] == np.float32(7))


UNARY: dict[str, Callable[[Any], Any]] = {
    "expf": np.exp, "exp2f": np.exp2, "expm1f": np.expm1, "logf": np.log, "log2f": np.log2, "log10f": np.log10,
    "log1pf": np.log1p, "sqrtf": np.sqrt, "cbrtf": np.cbrt, "sinf": np.sin, "cosf": np.cos, "tanf": np.tan,
    "asinf": np.arcsin, "acosf": np.arccos, "atanf": np.arctan, "sinhf": np.sinh, "coshf": np.cosh, "tanhf": np.tanh,
    "asinhf": np.arcsinh, "atanhf": np.arctanh, "fabsf": np.abs, "floorf": np.floor, "ceilf": np.ceil,
    "truncf": np.trunc, "rintf": np.rint, "sign": np.sign, "exp2_approx": np.exp2,
    "rsqrtf": lambda v: 1 / np.sqrt(v), "rsqrt_approx": lambda v: 1 / np.sqrt(v), "rcp_approx": lambda v: 1 / v,
    "sigmoid": lambda v: 1 / (1 + np.exp(-v)),
    "erff": lambda v: torch.erf(torch.from_numpy(v)).numpy(),
    "erfcf": lambda v: torch.erfc(torch.from_numpy(v)).numpy(),
    "erfinvf": lambda v: torch.erfinv(torch.from_numpy(v)).numpy(),
    "erfcinvf": lambda v: torch.erfinv(torch.from_numpy(1 - v)).numpy(),
    "erfcxf": lambda v: torch.special.erfcx(torch.from_numpy(v)).numpy(),
    "lgammaf": lambda v: torch.lgamma(torch.from_numpy(v)).numpy(),
    "bessel_j0": lambda v: torch.special.bessel_j0(torch.from_numpy(v)).numpy(),
    "bessel_j1": lambda v: torch.special.bessel_j1(torch.from_numpy(v)).numpy(),
    "bessel_y0": lambda v: torch.special.bessel_y0(torch.from_numpy(v)).numpy(),
    "bessel_y1": lambda v: torch.special.bessel_y1(torch.from_numpy(v)).numpy(),
}  # fmt: skip


def test_unary_functions(make_kernel: MakeKernel) -> None:
    """All in one kernel, a row each; inputs in (0, 1), where every one of them is defined."""
    values = np.random.default_rng(0).uniform(0.01, 0.99, 32).astype(np.float32)
    x, y = KernelParam("x", "f32", (32,)), KernelParam("y", "f32", (len(UNARY), 32), "out")
    body = "const float v = ldg32(x + threadIdx.x);\n"
    body += "\n".join(f"stg32(y + {row * 32} + threadIdx.x, {name}(v));" for row, name in enumerate(UNARY))
    got = run(make_kernel(body, x, y), {"x": values})["y"].astype(np.float64)
    for row, (name, meaning) in enumerate(UNARY.items()):
        want = meaning(values.astype(np.float64))
        assert np.max(np.abs(got[row] - want)) <= 1e-6 * max(1, np.max(np.abs(want))), name


BINARY = {
    "powf": torch.pow, "fmodf": torch.fmod, "floor_mod": torch.remainder, "max_nan": torch.maximum,
    "min_nan": torch.minimum, "fmaxf": torch.fmax, "fminf": torch.fmin, "atan2f": torch.atan2,
    "copysignf": torch.copysign, "hypotf": torch.hypot,
}  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
def test_binary_functions_on_all_kinds_of_numbers(make_kernel: MakeKernel, name: str) -> None:
    """Signs, zeros, infinities and NaN: what torch says, exactly in kind and closely in value."""
    kinds = np.array([-np.inf, -7.5, -2, -1, -0.0, 0.0, 0.5, 1, 3, 7.5, np.inf, np.nan], np.float32)
    a, b = (grid.ravel() for grid in np.meshgrid(kinds, kinds))
    size = a.size
    params = [
        KernelParam("a", "f32", (size,)),
        KernelParam("b", "f32", (size,)),
        KernelParam("y", "f32", (size,), "out"),
    ]
    body = f"for (int i = threadIdx.x; i < {size}; i += 32) stg32(y + i, {name}(ldg32(a + i), ldg32(b + i)));"
    got = run(make_kernel(body, *params), {"a": a, "b": b})["y"]
    np.testing.assert_allclose(
        got.astype(np.float32), BINARY[name](torch.from_numpy(a), torch.from_numpy(b)).numpy(), rtol=1e-6
    )


INTEGER = {
    "floor_div({a}, {b})": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "floor_mod({a}, {b})": torch.remainder,
    "trunc_mod({a}, {b})": torch.fmod,
    "max({a}, {b})": torch.maximum,
    "min({a}, {b})": torch.minimum,
    "sign({a})": lambda a, b: torch.sign(a),
    "int_pow({a}, {b} < 0 ? -{b} : {b})": lambda a, b: torch.pow(a, b.abs()),
}


@pytest.mark.parametrize("dtype", ["i32", "i64"])
@pytest.mark.parametrize("form", INTEGER)
@pytest.mark.sampled(4)
def test_integer_functions(make_kernel: MakeKernel, form: str, dtype: DtypeName) -> None:
    numbers = np.array([-9, -4, -3, -1, 1, 2, 3, 8], DTYPES[dtype].numpy)
    a, b = (grid.ravel() for grid in np.meshgrid(numbers, numbers))
    size = a.size
    params = [
        KernelParam("a", dtype, (size,)),
        KernelParam("b", dtype, (size,)),
        KernelParam("y", dtype, (size,), "out"),
    ]
    expression = form.format(a="ldg(a + i)", b="ldg(b + i)")
    body = f"for (int i = threadIdx.x; i < {size}; i += 32) stg(y + i, {expression});"
    got = run(make_kernel(body, *params), {"a": a, "b": b})["y"]
    assert np.array_equal(got, INTEGER[form](torch.from_numpy(a), torch.from_numpy(b)).numpy())


SMALL = {name: getattr(torch, DTYPES[name].torch) for name in SMALL_FLOATS}


@pytest.mark.parametrize("dtype", SMALL)
def test_every_small_float_converts_to_float_and_back(make_kernel: MakeKernel, dtype: DtypeName) -> None:
    carrier = np.dtype(f"u{DTYPES[dtype].item_bytes}")
    bits = np.arange(256**carrier.itemsize).astype(carrier)
    x = KernelParam("x", dtype, bits.shape)
    y, z = KernelParam("y", "f32", bits.shape, "out"), KernelParam("z", dtype, bits.shape, "out")
    body = f"""
      for (int i = threadIdx.x; i < {bits.size}; i += 32) {{
        const float v = to_float(ldg(x + i));
        stg32(y + i, v);
        stg(z + i, to_{dtype}(v));
      }}"""
    out = run(make_kernel(body, x, y, z), {"x": bits.view(DTYPES[dtype].numpy)})
    want = torch.from_numpy(bits).view(SMALL[dtype]).float().numpy()
    np.testing.assert_array_equal(out["y"], want)
    numbers = ~np.isnan(want)
    assert np.array_equal(out["z"].view(carrier)[numbers], bits[numbers])


def between(dtype: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    """What lies halfway between two neighbours, and right beside that."""
    codes = np.arange(128 if DTYPES[dtype].item_bytes == 1 else 32768).astype(f"u{DTYPES[dtype].item_bytes}")
    known = torch.from_numpy(codes).view(SMALL[dtype]).double().numpy()
    known = known[np.isfinite(known)]
    ties = ((known[1:] + known[:-1]) / 2).astype(np.float32)
    beside = [np.nextafter(ties, np.float32(end)) for end in (0, np.inf)]
    return np.concatenate([ties, *beside, [known.max() * 1.01, known.max() * 1.1, np.inf]]).astype(np.float32)


@pytest.mark.parametrize("dtype", SMALL)
def test_floats_round_as_torch_rounds_them(make_kernel: MakeKernel, dtype: DtypeName) -> None:
    """One at a time, and as many as a vector has; what is too large, and what is no number, too."""
    words = np.random.default_rng(0).integers(0, 2**32, 200_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    values = np.concatenate([words, between(dtype), -between(dtype)])
    values = np.concatenate([values, np.zeros(-values.size % 16, np.float32)])
    params = [KernelParam(name, dtype, values.shape, "out") for name in "yz"]
    count = 16 // DTYPES[dtype].item_bytes
    body = f"""
      for (int i = threadIdx.x; i < {values.size}; i += 32) stg(y + i, to_{dtype}(ldg32(x + i)));
      for (int i = threadIdx.x; i < {values.size // count}; i += 32) {{
        float v[{count}];
        for (int j = 0; j < {count}; ++j) v[j] = ldg32(x + i * {count} + j);
        stg128(z + i * {count}, static_cast<const float*>(v));
      }}"""
    made = run(make_kernel(body, KernelParam("x", "f32", values.shape), *params), {"x": values})
    want = torch.from_numpy(values).to(SMALL[dtype])
    carrier = f"u{DTYPES[dtype].item_bytes}"
    for name in "yz":
        got = torch.from_numpy(made[name].view(carrier)).view(SMALL[dtype])
        assert torch.equal(got.isnan(), want.isnan())
        assert torch.equal(got.float().nan_to_num(7).view(torch.int32), want.float().nan_to_num(7).view(torch.int32))
