"""Every function of the prelude, for every dtype, assembled for every architecture."""

from __future__ import annotations

from typing import get_args

import pytest

from dplc.codegen import build
from dplc.codegen.build import assemble, build_host, device_text, host_text
from dplc.codegen.compiler import find_nvrtc, find_program
from dplc.codegen.driver import parameter_format, parameter_offsets
from dplc.codegen.kernel import Box, CudaKernel, KernelParam
from dplc.ir.dtypes import DTYPES, SMALL_FLOATS, DtypeName

needs_device_compiler = pytest.mark.skipif(
    find_program("nvcc") is None and find_nvrtc() is None, reason="neither NVRTC nor nvcc is here"
)


def memory_kernel(dtype: DtypeName) -> CudaKernel:
    """Every memory access of one dtype."""
    params = (KernelParam("x", dtype, (512,)), KernelParam("y", dtype, (512,), "out"))
    element = DTYPES[dtype].item_bytes
    body = f"""
  DPLC_DYN_SMEM({DTYPES[dtype].c_type}, s);
  using T = {DTYPES[dtype].c_type};
  const int t = threadIdx.x;
  const uint32_t a = smem_addr(s) + t * 16;
  sts(a, ldg(x + t));
  warp_sync();
  stg(y + t, lds<T>(a));"""
    for bits in (32, 64, 128):
        if bits // 8 < element:
            continue
        count = bits // 8 // element
        body += f"\n  {{ T v[{count}]; ldg{bits}(v, x + t * {count}); "
        if bits > 32 or element < 4:
            body += f"sts{bits}(a, v); block_sync(); lds{bits}(v, a); "
        body += f"stg{bits}(y + t * {count}, v); }}"
        if dtype in SMALL_FLOATS:  # the same in floats
            body += f"\n  {{ float v[{count}]; ldg{bits}(v, x + t * {count}); sts{bits}<T>(a, v); block_sync(); "
            body += f"lds{bits}<T>(v, a); stg{bits}(y + t * {count}, v); }}"
    text = f'extern "C" __global__ void memory_{dtype}({", ".join(p.declaration for p in params)}) {{{body}\n}}\n'
    return CudaKernel(f"memory_{dtype}", text, (1, 1, 1), 32, 512, params)


COPIES = """
extern "C" __global__ void copies(const float* __restrict__ x, float* __restrict__ y) {
  DPLC_DYN_SMEM(float, s);
  const int t = threadIdx.x;
  const uint32_t a = smem_addr(s) + t * 16;
  cp_async4(a, x + t); cp_async4_if(t < 3, a, x + t);
  cp_async4_zfill(t < 5, a, x + t); cp_async4_if_zfill(t < 3, t < 5, a, x + t);
  cp_async8(a, x + t * 2); cp_async8_if(t < 3, a, x + t * 2);
  cp_async8_zfill(t < 5, a, x + t * 2); cp_async8_if_zfill(t < 3, t < 5, a, x + t * 2);
  cp_async_commit();
  cp_async16(a, x + t * 4); cp_async16_if(t < 3, a, x + t * 4);
  cp_async16_zfill(t < 5, a, x + t * 4); cp_async16_if_zfill(t < 3, t < 5, a, x + t * 4);
  cp_async_commit();
  cp_async_wait<1>();
  cp_async_wait<0>();
  block_sync();
  float v[4];
  ldg128_stream(v, x + t * 4);
  sts32(a, v[0]); sts64(a, float2{v[0], v[1]}); sts128(a, float4{v[0], v[1], v[2], v[3]});
  int* n = reinterpret_cast<int*>(y);
  sts64(a, int2{1, 2}); sts128(a, int4{1, 2, 3, 4}); stg64(n + t * 2, int2{1, 2}); stg128(n + t * 4, int4{1, 2, 3, 4});
  stg32(y + t, lds32(a)); stg64(y + t * 2, float2{v[0], v[1]}); stg128(y + t * 4, float4{v[0], v[1], v[2], v[3]});
}
"""

FRAGMENTS = """
extern "C" __global__ void fragments(const float* __restrict__ x, float* __restrict__ y) {
  DPLC_DYN_SMEM(float, s);
  const int t = threadIdx.x;
  const uint32_t at = smem_addr(s) + t * 16;
  sts32(at, ldg32(x + t));
  block_sync();
  uint32_t a[4], b[4];
  ldmatrix_x4(a, at); ldmatrix_x2(b, at); ldmatrix_x4_trans(b, at); ldmatrix_x2_trans(b + 2, at);
  a[0] ^= pack<bf16>(x[0], x[1]); a[1] ^= pack<f16>(x[2], x[3]); a[2] ^= pack<float>(x[4]);
  float d[4] = {};
  mma_m16n8k16_bf16(d, a, b); mma_m16n8k16_f16(d, a, b); mma_m16n8k8_f32(d, a, b);
  int n[4] = {};
  b[1] ^= pack<i8>(n[0], n[1], n[2], 1);
  mma_m16n8k32_i8(n, a, b);
  d[0] += n[0]; d[1] += n[1]; d[2] += n[2]; d[3] += n[3];
  stg128(y + t * 4, static_cast<const float*>(d));
}
"""

FRAGMENTS_OF_BYTES = """
extern "C" __global__ void fragments_of_bytes(const float* __restrict__ x, float* __restrict__ y) {
  uint32_t a[4], b[2];
  for (int i = 0; i < 4; ++i) a[i] = pack<e4m3>(x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]);
  for (int i = 0; i < 2; ++i) b[i] = pack<e5m2>(x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]);
  float d[4] = {};
  mma_m16n8k32_f8_e4m3(d, a, b); mma_m16n8k32_f8_e5m2(d, a, b);
  mma_m16n8k32_f8_e4m3_e5m2(d, a, b); mma_m16n8k32_f8_e5m2_e4m3(d, a, b);
  stg128(y + threadIdx.x * 4, static_cast<const float*>(d));
}
"""

RANKS = range(1, 6)
BOXES = """
extern "C" __global__ void boxes(const float* __restrict__ x, float* __restrict__ y, {maps}) {{
  DPLC_DYN_SMEM(float, s);
  const int t = threadIdx.x;
  const uint32_t a = smem_addr(s), barrier = a + 5120;
  if (t == 0) {{
    mbarrier_init(barrier, 1);
    mbarrier_fence();
  }}
  block_sync();
  if (t == 0) {{
    mbarrier_expect(barrier, 5 * 1024);
{copies}
  }}
  mbarrier_wait(barrier, 0);
  stg32(y + t, lds32(a + t * 4));
}}
"""


def box_kernel() -> CudaKernel:
    """A copy of a box of each rank."""
    params = [KernelParam("x", "f32", (512,)), KernelParam("y", "f32", (512,), "out")]
    for rank in RANKS:
        shape, box = (*[1] * (rank - 1), 512), Box("x", (*[1] * (rank - 1), 256))
        params.append(KernelParam(f"m{rank}", "f32", shape, "tensor_map", box))
    copies = [f"    copy_box_{n}d(a + {n - 1} * 1024, m{n}, barrier, t{', 0' * (n - 1)});" for n in RANKS]
    maps = ", ".join(param.declaration for param in params[2:])
    text = BOXES.format(maps=maps, copies="\n".join(copies))
    return CudaKernel("boxes", text, (1, 1, 1), 32, 5128, tuple(params))


SHARES = """
extern "C" __global__ void shares(const float* __restrict__ x, float* __restrict__ y) {
  const float v = ldg32(x + threadIdx.x);
  const double w = v;
  stg32(y + threadIdx.x, gamma_share_below(v, v) + gamma_share_above(v, v) + (float)(gamma_share_below(w, w) + gamma_share_above(w, w)));
}
"""
SCALARS = """
extern "C" __global__ void scalars(const float* __restrict__ x, const int* __restrict__ n, float* __restrict__ y) {
  const int t = threadIdx.x;
  const float v = ldg32(x + t);
  float s = exp2_approx(v) + rcp_approx(v) + rsqrt_approx(v) + ffma(v, v, v) + max_nan(v, 1.0f) + min_nan(v, 2.0f);
  s += expf(v) + exp2f(v) + expm1f(v) + logf(v) + log2f(v) + log10f(v) + log1pf(v) + sigmoid(v) + sign(v);
  s += sinf(v) + cosf(v) + tanf(v) + asinf(v) + acosf(v) + atanf(v) + sinhf(v) + coshf(v) + tanhf(v);
  s += asinhf(v) + acoshf(v) + atanhf(v) + erff(v) + erfcf(v) + lgammaf(v) + tgammaf(v);
  s += erfinvf(v) + erfcinvf(v) + erfcxf(v);
  s += three_terms(v, v, v, 0.0f, 1.0f, 0.0f, 0.0f);
  s += sqrtf(v) + rsqrtf(v) + cbrtf(v) + fabsf(v) + floorf(v) + ceilf(v) + truncf(v) + roundf(v) + rintf(v);
  s += nearbyintf(v) + powf(v, 2.5f) + fmodf(v, 3.0f) + atan2f(v, 2.0f) + hypotf(v, 2.0f) + copysignf(v, -1.0f);
  s += fmaxf(v, 1.0f) + fminf(v, 1.0f) + fmaf(v, v, v) + floor_mod(v, 3.0f) + shfl_xor(v, 1) + shfl(v, 3);
  s += isnan(v) + isinf(v) + isfinite(v) + DPLC_INF + DPLC_NAN;
  const int m = ldg32(n + t);
  s += floor_div(m, 3) + floor_mod(m, 3) + min(m, 3) + max(m, 3) + wrap_abs(m) + sign(m) + int_pow(m, 3);
  s += wrap_add(m, 3) + wrap_sub(m, 3) + wrap_mul(m, 3) + wrap_neg(m) + trunc_mod(m, 3) + to_i32(s) + shfl_xor(m, 1);
  const long long w = m;
  s += floor_div(w, 3LL) + floor_mod(w, 3LL) + min(w, 3LL) + max(w, 3LL) + wrap_abs(w) + sign(w) + int_pow(w, 3LL);
  s += wrap_add(w, 3LL) + wrap_sub(w, 3LL) + wrap_mul(w, 3LL) + wrap_neg(w) + trunc_mod(w, 3LL) + to_i64(s) + shfl_xor(w, 1);
  stg32(y + t, s + to_float(to_f16(s)) + to_float(to_bf16(s)) + round_f16(s) + round_bf16(s)
      + to_float(to_e4m3(s)) + to_float(to_e5m2(s)) + round_e4m3(s) + round_e5m2(s));
}
"""


def every_function() -> list[CudaKernel]:
    x, y = KernelParam("x", "f32", (512,)), KernelParam("y", "f32", (512,), "out")
    kernels = [memory_kernel(dtype) for dtype in get_args(DtypeName)]
    kernels.append(CudaKernel("copies", COPIES, (1, 1, 1), 32, 512, (x, y)))
    kernels.append(CudaKernel("fragments", FRAGMENTS, (1, 1, 1), 32, 512, (x, y)))
    kernels.append(CudaKernel("scalars", SCALARS, (1, 1, 1), 32, 0, (x, KernelParam("n", "i32", (32,)), y)))
    kernels.append(CudaKernel("shares", SHARES, (1, 1, 1), 32, 0, (x, y)))
    return kernels


def fragments_of_bytes() -> CudaKernel:
    x, y = KernelParam("x", "f32", (512,)), KernelParam("y", "f32", (512,), "out")
    return CudaKernel("fragments_of_bytes", FRAGMENTS_OF_BYTES, (1, 1, 1), 32, 0, (x, y))


@needs_device_compiler
@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a", "sm_120"])
@pytest.mark.sampled(1)
def test_every_function_assembles(arch: str) -> None:
    kernels = every_function() + ([] if arch in ("sm_80", "sm_89") else [box_kernel()])
    kernels += [] if arch == "sm_80" else [fragments_of_bytes()]
    assembled = assemble(device_text(kernels), arch).kernels
    assert sorted(assembled) == sorted(kernel.name for kernel in kernels)
    assert all(used.spill_stores == 0 and (used.stack == 0 or name == "boxes") for name, used in assembled.items())
    assert all(used.spill_loads == 0 for used in assembled.values())


@pytest.mark.skipif(find_program("nvcc") is None, reason="nvcc is not here")
def test_nvcc_accepts_the_prelude_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "find_nvrtc", lambda: None)
    assert len(assemble(device_text(every_function()), "sm_90a").kernels) == len(every_function())


def test_the_emulator_compiles_every_function() -> None:
    for kernel in [*every_function(), box_kernel(), fragments_of_bytes()]:
        build_host(host_text([kernel]))
        build_host(host_text([kernel]), checked=True)


DESCRIPTORS = """
extern "C" __global__ void descriptors() {
  constexpr uint32_t first = 0x400, second = 1u << 24 | first;  // the same place of two blocks of a cluster
  static_assert(matrix_along<1024>(first, 32).bits == matrix_along<1024>(second, 32).bits, "along");
  static_assert(matrix_across<1024, 8192>(first, 2048).bits == matrix_across<1024, 8192>(second, 2048).bits, "across");
  static_assert(matrix_across<1024, 8192>(second).bits == (1ull << 62 | 64ull << 32 | 512ull << 16 | first >> 4), "bits");
}
"""


@needs_device_compiler
def test_a_descriptor_has_no_block_of_a_cluster() -> None:
    assemble(device_text([CudaKernel("descriptors", DESCRIPTORS, (1, 1, 1), 128, 0, ())]), "sm_90a")


MAPS = """
extern "C" __global__ void maps(const float* x, float* y, const __grid_constant__ TensorMap a,
                                const __grid_constant__ TensorMap b, int n, int m) {
  copy_box_1d(0, a, 0, n); copy_box_1d(0, b, 0, m); y[0] = x[0];
}
"""


@needs_device_compiler
def test_the_offsets_of_parameters_are_those_of_the_cubin() -> None:
    """The constant bank begins at 0x210, where a map is at a multiple of 64 bytes of the bank."""
    box = Box("x", (4,), 0)
    params = (KernelParam("x", "f32", (4,)), KernelParam("y", "f32", (4,), "out"))
    params += tuple(KernelParam(name, "f32", (4,), "tensor_map", box) for name in "ab")
    kernel = CudaKernel("maps", MAPS, (1, 1, 1), 32, 0, params)
    cubin = assemble(device_text([kernel]), "sm_90a").cubin
    assert parameter_offsets(cubin, "maps") == {0: 0, 1: 8, 2: 48, 3: 176, 4: 304, 5: 308}
    assert parameter_format(kernel, cubin) == "PP32x128s128s"
    assert parameter_offsets(b"no cubin", "maps") == {} and parameter_format(kernel, b"") == "PP48x128s128s"
