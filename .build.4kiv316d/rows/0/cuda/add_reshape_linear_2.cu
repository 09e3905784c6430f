// rules: tileify cooperative_reduce register_row rows_per_thread vector_axis residency
// grid 256 x 1 x 1, 256 threads, 256 bytes of shared memory
extern "C" __global__ void __launch_bounds__(256, 2)
add_reshape_linear_2(
    const float* __restrict__ add_9,
    const float* __restrict__ scaled_dot_product_attention_1,
    const float* __restrict__ model_layers_1_self_attn_o_proj_weight,
    float* __restrict__ add_13) {
  DPLC_DYN_SMEM(float, smem_buf);
  const uint32_t smem = smem_addr(smem_buf);
  const int j3_o = blockIdx.x;
  const int t = threadIdx.x;
  const float* add_9_at = add_9 + j3_o * 8;
  const float* scaled_dot_product_attention_1_at = scaled_dot_product_attention_1 + t * 4;
  const float* model_layers_1_self_attn_o_proj_weight_at = model_layers_1_self_attn_o_proj_weight + j3_o * 16384 + t * 4;
  const uint32_t linear_10_all_x = smem;
  const uint32_t linear_10_all_put = linear_10_all_x + (t >> 5) * 4;
  float* add_13_at = add_13 + j3_o * 8;
  float a[8];
  #pragma unroll
  for (int j3_r = 0; j3_r < 8; ++j3_r) {
    a[j3_r] = ldg32(add_9_at + j3_r);
  }
  float s[2][4];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    ldg128(s[q], scaled_dot_product_attention_1_at + q * 1024);
  }
  float m[2][8][4];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    #pragma unroll
    for (int j3_r = 0; j3_r < 8; ++j3_r) {
      ldg128(m[q][j3_r], model_layers_1_self_attn_o_proj_weight_at + j3_r * 2048 + q * 1024);
    }
  }
  float linear_10[4][8];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    #pragma unroll
    for (int v = 0; v < 4; ++v) {
      #pragma unroll
      for (int j3_r = 0; j3_r < 8; ++j3_r) {
        const float product21 = s[q][v] * m[q][j3_r][v];
        linear_10[v][j3_r] = q == 0 ? product21 : linear_10[v][j3_r] + product21;
      }
    }
  }
  float linear_10_all[8];
  #pragma unroll
  for (int j3_r = 0; j3_r < 8; ++j3_r) {
    linear_10_all[j3_r] = linear_10[0][j3_r] + linear_10[1][j3_r] + (linear_10[2][j3_r] + linear_10[3][j3_r]);
  }
  #pragma unroll
  for (int j3_r = 0; j3_r < 8; ++j3_r) {
    #pragma unroll
    for (int lanes = 16; lanes >= 1; lanes >>= 1) linear_10_all[j3_r] += shfl_xor(linear_10_all[j3_r], lanes);
  }
  if ((t & 31) == 0) {
    #pragma unroll
    for (int j3_r = 0; j3_r < 8; ++j3_r) {
      sts32(linear_10_all_put + j3_r * 32, linear_10_all[j3_r]);
    }
  }
  block_sync();
  #pragma unroll
  for (int j3_r = 0; j3_r < 8; ++j3_r) {
    float linear_10_all_part[8];
    lds128(&linear_10_all_part[0], linear_10_all_x + j3_r * 32);
    lds128(&linear_10_all_part[4], linear_10_all_x + j3_r * 32 + 16);
    linear_10_all[j3_r] = linear_10_all_part[0] + linear_10_all_part[1] + (linear_10_all_part[2] + linear_10_all_part[3]) + (linear_10_all_part[4] + linear_10_all_part[5] + (linear_10_all_part[6] + linear_10_all_part[7]));
  }
  float add_131[8];
  #pragma unroll
  for (int j3_r = 0; j3_r < 8; ++j3_r) {
    add_131[j3_r] = a[j3_r] + linear_10_all[j3_r];
  }
  if (t < 1) {
    #pragma unroll
    for (int j3_r = 0; j3_r < 8; ++j3_r) {
      stg32(add_13_at + j3_r, add_131[j3_r]);
    }
  }
}
