// rules: tileify cooperative_reduce register_row rows_per_thread vector_axis residency
// grid 4000 x 1 x 1, 256 threads, 256 bytes of shared memory
extern "C" __global__ void __launch_bounds__(256, 2)
linear_5(
    const float* __restrict__ mul_22,
    const float* __restrict__ lm_head_weight,
    float* __restrict__ linear_14) {
  DPLC_DYN_SMEM(float, smem_buf);
  const uint32_t smem = smem_addr(smem_buf);
  const int n3_o = blockIdx.x;
  const int t = threadIdx.x;
  const float* mul_22_at = mul_22 + t * 4;
  const float* lm_head_weight_at = lm_head_weight + n3_o * 16384 + t * 4;
  const uint32_t sum_all_x = smem;
  const uint32_t sum_all_put = sum_all_x + (t >> 5) * 4;
  float* linear_14_at = linear_14 + n3_o * 8;
  float m[2][4];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    ldg128(m[q], mul_22_at + q * 1024);
  }
  float l[2][8][4];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    #pragma unroll
    for (int n3_r = 0; n3_r < 8; ++n3_r) {
      ldg128(l[q][n3_r], lm_head_weight_at + n3_r * 2048 + q * 1024);
    }
  }
  float sum[4][8];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    #pragma unroll
    for (int v = 0; v < 4; ++v) {
      #pragma unroll
      for (int n3_r = 0; n3_r < 8; ++n3_r) {
        const float product27 = m[q][v] * l[q][n3_r][v];
        sum[v][n3_r] = q == 0 ? product27 : sum[v][n3_r] + product27;
      }
    }
  }
  float sum_all[8];
  #pragma unroll
  for (int n3_r = 0; n3_r < 8; ++n3_r) {
    sum_all[n3_r] = sum[0][n3_r] + sum[1][n3_r] + (sum[2][n3_r] + sum[3][n3_r]);
  }
  #pragma unroll
  for (int n3_r = 0; n3_r < 8; ++n3_r) {
    #pragma unroll
    for (int lanes = 16; lanes >= 1; lanes >>= 1) sum_all[n3_r] += shfl_xor(sum_all[n3_r], lanes);
  }
  if ((t & 31) == 0) {
    #pragma unroll
    for (int n3_r = 0; n3_r < 8; ++n3_r) {
      sts32(sum_all_put + n3_r * 32, sum_all[n3_r]);
    }
  }
  block_sync();
  #pragma unroll
  for (int n3_r = 0; n3_r < 8; ++n3_r) {
    float sum_all_part[8];
    lds128(&sum_all_part[0], sum_all_x + n3_r * 32);
    lds128(&sum_all_part[4], sum_all_x + n3_r * 32 + 16);
    sum_all[n3_r] = sum_all_part[0] + sum_all_part[1] + (sum_all_part[2] + sum_all_part[3]) + (sum_all_part[4] + sum_all_part[5] + (sum_all_part[6] + sum_all_part[7]));
  }
  if (t < 1) {
    #pragma unroll
    for (int n3_r = 0; n3_r < 8; ++n3_r) {
      stg32(linear_14_at + n3_r, sum_all[n3_r]);
    }
  }
}
