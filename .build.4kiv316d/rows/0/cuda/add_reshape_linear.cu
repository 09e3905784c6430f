// rules: tileify cooperative_reduce register_row rows_per_thread vector_axis residency
// grid 256 x 1 x 1, 256 threads, 256 bytes of shared memory
extern "C" __global__ void __launch_bounds__(256, 2)
add_reshape_linear(
    const float* __restrict__ model_embed_tokens_weight,
    const long long* __restrict__ input_ids,
    const float* __restrict__ scaled_dot_product_attention,
    const float* __restrict__ model_layers_0_self_attn_o_proj_weight,
    float* __restrict__ add_7) {
  DPLC_DYN_SMEM(float, smem_buf);
  const uint32_t smem = smem_addr(smem_buf);
  const int p1_o = blockIdx.x;
  const int t = threadIdx.x;
  const float* model_embed_tokens_weight_at = model_embed_tokens_weight + p1_o * 8;
  const float* scaled_dot_product_attention_at = scaled_dot_product_attention + t * 4;
  const float* model_layers_0_self_attn_o_proj_weight_at = model_layers_0_self_attn_o_proj_weight + p1_o * 16384 + t * 4;
  const uint32_t linear_3_all_x = smem;
  const uint32_t linear_3_all_put = linear_3_all_x + (t >> 5) * 4;
  float* add_7_at = add_7 + p1_o * 8;
  const long long i = ldg(input_ids);
  check_place(i, 32000);
  float m[8];
  #pragma unroll
  for (int p1_r = 0; p1_r < 8; ++p1_r) {
    m[p1_r] = ldg32(model_embed_tokens_weight_at + i * 2048 + p1_r);
  }
  float s[2][4];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    ldg128(s[q], scaled_dot_product_attention_at + q * 1024);
  }
  float m1[2][8][4];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    #pragma unroll
    for (int p1_r = 0; p1_r < 8; ++p1_r) {
      ldg128(m1[q][p1_r], model_layers_0_self_attn_o_proj_weight_at + p1_r * 2048 + q * 1024);
    }
  }
  float linear_3[4][8];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    #pragma unroll
    for (int v = 0; v < 4; ++v) {
      #pragma unroll
      for (int p1_r = 0; p1_r < 8; ++p1_r) {
        const float product8 = s[q][v] * m1[q][p1_r][v];
        linear_3[v][p1_r] = q == 0 ? product8 : linear_3[v][p1_r] + product8;
      }
    }
  }
  float linear_3_all[8];
  #pragma unroll
  for (int p1_r = 0; p1_r < 8; ++p1_r) {
    linear_3_all[p1_r] = linear_3[0][p1_r] + linear_3[1][p1_r] + (linear_3[2][p1_r] + linear_3[3][p1_r]);
  }
  #pragma unroll
  for (int p1_r = 0; p1_r < 8; ++p1_r) {
    #pragma unroll
    for (int lanes = 16; lanes >= 1; lanes >>= 1) linear_3_all[p1_r] += shfl_xor(linear_3_all[p1_r], lanes);
  }
  if ((t & 31) == 0) {
    #pragma unroll
    for (int p1_r = 0; p1_r < 8; ++p1_r) {
      sts32(linear_3_all_put + p1_r * 32, linear_3_all[p1_r]);
    }
  }
  block_sync();
  #pragma unroll
  for (int p1_r = 0; p1_r < 8; ++p1_r) {
    float linear_3_all_part[8];
    lds128(&linear_3_all_part[0], linear_3_all_x + p1_r * 32);
    lds128(&linear_3_all_part[4], linear_3_all_x + p1_r * 32 + 16);
    linear_3_all[p1_r] = linear_3_all_part[0] + linear_3_all_part[1] + (linear_3_all_part[2] + linear_3_all_part[3]) + (linear_3_all_part[4] + linear_3_all_part[5] + (linear_3_all_part[6] + linear_3_all_part[7]));
  }
  float add_71[8];
  #pragma unroll
  for (int p1_r = 0; p1_r < 8; ++p1_r) {
    add_71[p1_r] = m[p1_r] + linear_3_all[p1_r];
  }
  if (t < 1) {
    #pragma unroll
    for (int p1_r = 0; p1_r < 8; ++p1_r) {
      stg32(add_7_at + p1_r, add_71[p1_r]);
    }
  }
}
