"""Sample kernels: the shapes of text the code generator emits, small enough to read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dplc.codegen.kernel import CudaKernel, KernelParam

RMS_NORM = """\
extern "C" __global__ void __launch_bounds__(64)
rms_norm(const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ y) {
  DPLC_DYN_SMEM(float, smem_buf);
  const int row = blockIdx.x;
  const int t = threadIdx.x;
  const uint32_t smem = smem_addr(smem_buf);
  const float* x_at = x + row * 256 + t * 4;
  float a[4];
  ldg128(a, x_at);
  float sum = (a[0] * a[0] + a[1] * a[1]) + (a[2] * a[2] + a[3] * a[3]);
  #pragma unroll
  for (int o = 16; o >= 1; o >>= 1) sum = sum + shfl_xor(sum, o);
  if ((t & 31) == 0) sts32(smem + (t >> 5) * 4, sum);
  block_sync();
  float part[2];
  lds64(part, smem);
  const float r = rsqrt_approx((part[0] + part[1]) * 0.00390625f + 1e-06f);
  float c[4];
  ldg128(c, w + t * 4);
  stg128(y + row * 256 + t * 4, float4{a[0] * r * c[0], a[1] * r * c[1], a[2] * r * c[2], a[3] * r * c[3]});
}
"""

# y[32, 48] = x[32, 64] @ w[64, 48]: tiles of 16 x 16, chunks of 8 along k in a ring of two slots, 2 x 2 per thread.
MATMUL = """\
extern "C" __global__ void __launch_bounds__(64)
matmul(const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ y) {
  DPLC_DYN_SMEM(float, smem_buf);
  const int t = threadIdx.x;
  const bool copies_x = t < 32;
  const int u = t & 31;
  const float* x_at = x + (blockIdx.y * 16 + u / 2) * 64 + u % 2 * 4;
  const float* w_at = w + u / 4 * 48 + blockIdx.x * 16 + u % 4 * 4;
  const float* from = copies_x ? x_at : w_at;
  const int step = copies_x ? 8 : 8 * 48;
  const uint32_t smem = smem_addr(smem_buf);
  const uint32_t put = smem + (copies_x ? u * 16 : 512 + u * 16);
  const int i = t / 8, j = t % 8;
  float acc[2][2] = {};
  cp_async16(put, from);
  cp_async_commit();
  for (int k_o = 0; k_o < 8; ++k_o) {
    const uint32_t slot = (k_o & 1) * 1024;
    cp_async16_if(k_o + 1 < 8, put + (1024 - slot), from + (k_o + 1) * step);
    cp_async_commit();
    cp_async_wait<1>();
    block_sync();
    #pragma unroll
    for (int k = 0; k < 8; ++k) {
      float b[2];
      lds64(b, smem + slot + 512 + k * 64 + j * 8);
      #pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float a = lds32(smem + slot + (i * 2 + r) * 32 + k * 4);
        acc[r][0] = ffma(a, b[0], acc[r][0]);
        acc[r][1] = ffma(a, b[1], acc[r][1]);
      }
    }
    block_sync();
  }
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    stg64(y + (blockIdx.y * 16 + i * 2 + r) * 48 + blockIdx.x * 16 + j * 2, float2{acc[r][0], acc[r][1]});
  }
}
"""


@pytest.fixture
def rms_norm() -> CudaKernel:
    """y[8, 256] = rms_norm(x, w): vector loads, shuffles, one exchange through shared memory."""
    params = (
        KernelParam("x", "f32", (8, 256)),
        KernelParam("w", "f32", (256,)),
        KernelParam("y", "f32", (8, 256), "out"),
    )
    return CudaKernel("rms_norm", RMS_NORM, (8, 1, 1), 64, 8, params)


@pytest.fixture
def matmul() -> CudaKernel:
    """y[32, 48] = x[32, 64] @ w[64, 48] through a ring of asynchronous copies."""
    params = (
        KernelParam("x", "f32", (32, 64)),
        KernelParam("w", "f32", (64, 48)),
        KernelParam("y", "f32", (32, 48), "out"),
    )
    return CudaKernel("matmul", MATMUL, (3, 2, 1), 64, 2048, params)


@pytest.fixture
def make_kernel() -> Callable[..., CudaKernel]:
    """A kernel `test` from its body and parameters: one block of 32 threads unless told otherwise."""

    def make(body: str, *params: KernelParam, block: int = 32, smem: int = 0, blocks: int = 1) -> CudaKernel:
        declarations = ", ".join(param.declaration for param in params)
        text = f'extern "C" __global__ void test({declarations}) {{\n{body}\n}}\n'
        return CudaKernel("test", text, (blocks, 1, 1), block, smem, params)

    return make
