// rules: tileify cooperative_reduce register_row vector_axis residency
// grid 2048 x 1 x 1, 128 threads, 16 bytes of shared memory
extern "C" __global__ void __launch_bounds__(128, 2)
add_linear(
    const float* __restrict__ add_7,
    const float* __restrict__ mul_11,
    const float* __restrict__ model_layers_0_mlp_down_proj_weight,
    float* __restrict__ add_9) {
  DPLC_DYN_SMEM(float, smem_buf);
  const uint32_t smem = smem_addr(smem_buf);
  const int s1 = blockIdx.x;
  const int t = threadIdx.x;
  const float* add_7_at = add_7 + s1;
  const float* mul_11_at = mul_11 + t * 4;
  const float* model_layers_0_mlp_down_proj_weight_at = model_layers_0_mlp_down_proj_weight + s1 * 5632 + t * 4;
  const uint32_t linear_6_all_x = smem;
  const uint32_t linear_6_all_put = linear_6_all_x + (t >> 5) * 4;
  float* add_9_at = add_9 + s1;
  const float a = ldg32(add_7_at);
  float m[11][4];
  #pragma unroll
  for (int q = 0; q < 11; ++q) {
    ldg128(m[q], mul_11_at + q * 512);
  }
  float m1[11][4];
  #pragma unroll
  for (int q = 0; q < 11; ++q) {
    ldg128(m1[q], model_layers_0_mlp_down_proj_weight_at + q * 512);
  }
  float linear_6[4];
  #pragma unroll
  for (int q = 0; q < 11; ++q) {
    #pragma unroll
    for (int v = 0; v < 4; ++v) {
      const float product12 = m[q][v] * m1[q][v];
      linear_6[v] = q == 0 ? product12 : linear_6[v] + product12;
    }
  }
  float linear_6_all = linear_6[0] + linear_6[1] + (linear_6[2] + linear_6[3]);
  #pragma unroll
  for (int lanes = 16; lanes >= 1; lanes >>= 1) linear_6_all += shfl_xor(linear_6_all, lanes);
  if ((t & 31) == 0) {
    sts32(linear_6_all_put, linear_6_all);
  }
  block_sync();
  float linear_6_all_part[4];
  lds128(&linear_6_all_part[0], linear_6_all_x);
  linear_6_all = linear_6_all_part[0] + linear_6_all_part[1] + (linear_6_all_part[2] + linear_6_all_part[3]);
  const float add_91 = a + linear_6_all;
  if (t < 1) {
    stg32(add_9_at, add_91);
  }
}
