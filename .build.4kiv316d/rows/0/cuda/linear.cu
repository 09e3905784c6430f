// rules: tileify cooperative_reduce register_row rows_per_thread vector_axis residency
// grid 256 x 1 x 1, 256 threads, 256 bytes of shared memory
extern "C" __global__ void __launch_bounds__(256, 2)
linear(
    const float* __restrict__ mul_4,
    const float* __restrict__ model_layers_0_self_attn_q_proj_weight,
    float* __restrict__ linear) {
  DPLC_DYN_SMEM(float, smem_buf);
  const uint32_t smem = smem_addr(smem_buf);
  const int k_o = blockIdx.x;
  const int t = threadIdx.x;
  const float* mul_4_at = mul_4 + t * 4;
  const float* model_layers_0_self_attn_q_proj_weight_at = model_layers_0_self_attn_q_proj_weight + k_o * 16384 + t * 4;
  const uint32_t linear1_all_x = smem;
  const uint32_t linear1_all_put = linear1_all_x + (t >> 5) * 4;
  float* linear_at = linear + k_o * 8;
  float m[2][4];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    ldg128(m[q], mul_4_at + q * 1024);
  }
  float m1[2][8][4];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    #pragma unroll
    for (int k_r = 0; k_r < 8; ++k_r) {
      ldg128(m1[q][k_r], model_layers_0_self_attn_q_proj_weight_at + k_r * 2048 + q * 1024);
    }
  }
  float linear1[4][8];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    #pragma unroll
    for (int v = 0; v < 4; ++v) {
      #pragma unroll
      for (int k_r = 0; k_r < 8; ++k_r) {
        const float product = m[q][v] * m1[q][k_r][v];
        linear1[v][k_r] = q == 0 ? product : linear1[v][k_r] + product;
      }
    }
  }
  float linear1_all[8];
  #pragma unroll
  for (int k_r = 0; k_r < 8; ++k_r) {
    linear1_all[k_r] = linear1[0][k_r] + linear1[1][k_r] + (linear1[2][k_r] + linear1[3][k_r]);
  }
  #pragma unroll
  for (int k_r = 0; k_r < 8; ++k_r) {
    #pragma unroll
    for (int lanes = 16; lanes >= 1; lanes >>= 1) linear1_all[k_r] += shfl_xor(linear1_all[k_r], lanes);
  }
  if ((t & 31) == 0) {
    #pragma unroll
    for (int k_r = 0; k_r < 8; ++k_r) {
      sts32(linear1_all_put + k_r * 32, linear1_all[k_r]);
    }
  }
  block_sync();
  #pragma unroll
  for (int k_r = 0; k_r < 8; ++k_r) {
    float linear1_all_part[8];
    lds128(&linear1_all_part[0], linear1_all_x + k_r * 32);
    lds128(&linear1_all_part[4], linear1_all_x + k_r * 32 + 16);
    linear1_all[k_r] = linear1_all_part[0] + linear1_all_part[1] + (linear1_all_part[2] + linear1_all_part[3]) + (linear1_all_part[4] + linear1_all_part[5] + (linear1_all_part[6] + linear1_all_part[7]));
  }
  if (t < 1) {
    #pragma unroll
    for (int k_r = 0; k_r < 8; ++k_r) {
      stg32(linear_at + k_r, linear1_all[k_r]);
    }
  }
}
