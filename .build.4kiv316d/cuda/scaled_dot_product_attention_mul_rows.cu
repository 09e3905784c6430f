// rules: join_rows tileify split_rows cooperative_reduce register_row lift_guards residency
// grid 32 x s x 1, 256 threads, 32 bytes of shared memory
extern "C" __global__ void __launch_bounds__(256, 2)
scaled_dot_product_attention_mul_rows(
    const float* __restrict__ kept,
    const float* __restrict__ linear_2,
    float* __restrict__ kept2,
    const int s) {
  DPLC_DYN_SMEM(float, smem_buf);
  const uint32_t smem = smem_addr(smem_buf);
  const int i2 = blockIdx.x;
  const int p = blockIdx.y;
  const int t = threadIdx.x;
  const float* kept_at = kept + p * s * 32 + i2 * s + t;
  const uint32_t highest_x = smem;
  const uint32_t highest_put = highest_x + (t >> 5) * 4;
  float* kept2_at = kept2 + p * 32 + i2;
  float highest = -DPLC_INF;
  float k1[8];
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    k1[q] = q * 256 + t < s ? ldg32(kept_at + q * 256) : 0.0f;
  }
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    if (q * 256 + t < s) {
      highest = max_nan(highest, k1[q]);
    }
  }
  #pragma unroll
  for (int lanes = 16; lanes >= 1; lanes >>= 1) highest = max_nan(highest, shfl_xor(highest, lanes));
  if ((t & 31) == 0) {
    sts32(highest_put, highest);
  }
  block_sync();
  float highest_part[8];
  lds128(&highest_part[0], highest_x);
  lds128(&highest_part[4], highest_x + 16);
  highest = max_nan(max_nan(max_nan(highest_part[0], highest_part[1]), max_nan(highest_part[2], highest_part[3])), max_nan(max_nan(highest_part[4], highest_part[5]), max_nan(highest_part[6], highest_part[7])));
  const float top = max_nan(highest, -3e+38f);
  if (t < 1) {
    stg32(kept2_at, top);
  }
}
