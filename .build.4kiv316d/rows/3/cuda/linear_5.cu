// rules: tileify chunk_matmul_k split_matmul_k blockify_launch strip_flat mark_unroll vector_axis residency
// grid 16 x s x 1, 256 threads
extern "C" __global__ void __launch_bounds__(256, 2)
linear_5(
    const float* __restrict__ mul_22,
    const float* __restrict__ lm_head_weight,
    const float* __restrict__ part5,
    float* __restrict__ linear_14,
    const int s) {
  const int i4_o = blockIdx.x;
  const int p = blockIdx.y;
  const int i4 = threadIdx.x;
  const float* part5_at = part5 + p * 32000 + i4_o * 2048 + i4 * 4;
  float* linear_14_at = linear_14 + p * 32000 + i4_o * 2048 + i4 * 4;
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    if (i4_o * 2048 + q * 1024 + i4 * 4 < 32000) {
      float sum[4] = {};
      #pragma unroll
      for (int r6 = 0; r6 < 3; ++r6) {
        float sum_part[4];
        ldg128(sum_part, part5_at + r6 * s * 32000 + q * 1024);
        #pragma unroll
        for (int v = 0; v < 4; ++v) {
          sum[v] += sum_part[v];
        }
      }
      stg128(linear_14_at + q * 1024, sum);
    }
  }
}
