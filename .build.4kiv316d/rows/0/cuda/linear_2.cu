// rules: tileify cooperative_reduce register_row vector_axis residency guards
// grid 256 x 1 x 1, 256 threads, 160 bytes of shared memory
extern "C" __global__ void __launch_bounds__(256, 2)
linear_2(
    const float* __restrict__ mul_4,
    const float* __restrict__ model_layers_0_self_attn_k_proj_weight,
    const float* __restrict__ model_layers_0_self_attn_v_proj_weight,
    float* __restrict__ linear_1,
    float* __restrict__ linear_2) {
  DPLC_DYN_SMEM(float, smem_buf);
  const uint32_t smem = smem_addr(smem_buf);
  const int n = blockIdx.x;
  const int t = threadIdx.x;
  const float* mul_4_at = mul_4 + t * 4;
  const float* model_layers_0_self_attn_k_proj_weight_at = model_layers_0_self_attn_k_proj_weight + n * 2048 + t * 4;
  const float* model_layers_0_self_attn_v_proj_weight_at = model_layers_0_self_attn_v_proj_weight + n * 2048 + t * 4;
  const uint32_t linear_11_all_x = smem;
  const uint32_t linear_11_all_put = linear_11_all_x + (t >> 5) * 4;
  const uint32_t linear_21_all_x = smem + 128;
  const uint32_t linear_21_all_put = linear_21_all_x + (t >> 5) * 4;
  float* linear_1_at = linear_1 + n;
  float* linear_2_at = linear_2 + n;
  float m[2][4];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    ldg128(m[q], mul_4_at + q * 1024);
  }
  float m1[2][4];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    ldg128(m1[q], model_layers_0_self_attn_k_proj_weight_at + q * 1024);
  }
  float linear_11[4];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    #pragma unroll
    for (int v = 0; v < 4; ++v) {
      const float product3 = m[q][v] * m1[q][v];
      linear_11[v] = q == 0 ? product3 : linear_11[v] + product3;
    }
  }
  float m2[2][4];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    ldg128(m2[q], model_layers_0_self_attn_v_proj_weight_at + q * 1024);
  }
  float linear_21[4];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    #pragma unroll
    for (int v = 0; v < 4; ++v) {
      const float product6 = m[q][v] * m2[q][v];
      linear_21[v] = q == 0 ? product6 : linear_21[v] + product6;
    }
  }
  float linear_11_all = linear_11[0] + linear_11[1] + (linear_11[2] + linear_11[3]);
  #pragma unroll
  for (int lanes = 16; lanes >= 1; lanes >>= 1) linear_11_all += shfl_xor(linear_11_all, lanes);
  if ((t & 31) == 0) {
    sts32(linear_11_all_put, linear_11_all);
  }
  block_sync();
  float linear_11_all_part[8];
  lds128(&linear_11_all_part[0], linear_11_all_x);
  lds128(&linear_11_all_part[4], linear_11_all_x + 16);
  linear_11_all = linear_11_all_part[0] + linear_11_all_part[1] + (linear_11_all_part[2] + linear_11_all_part[3]) + (linear_11_all_part[4] + linear_11_all_part[5] + (linear_11_all_part[6] + linear_11_all_part[7]));
  float linear_21_all = linear_21[0] + linear_21[1] + (linear_21[2] + linear_21[3]);
  #pragma unroll
  for (int lanes = 16; lanes >= 1; lanes >>= 1) linear_21_all += shfl_xor(linear_21_all, lanes);
  if ((t & 31) == 0) {
    sts32(linear_21_all_put, linear_21_all);
  }
  block_sync();
  float linear_21_all_part[8];
  lds128(&linear_21_all_part[0], linear_21_all_x);
  lds128(&linear_21_all_part[4], linear_21_all_x + 16);
  linear_21_all = linear_21_all_part[0] + linear_21_all_part[1] + (linear_21_all_part[2] + linear_21_all_part[3]) + (linear_21_all_part[4] + linear_21_all_part[5] + (linear_21_all_part[6] + linear_21_all_part[7]));
  if (t < 1) {
    stg32(linear_1_at, linear_11_all);
    stg32(linear_2_at, linear_21_all);
  }
}
