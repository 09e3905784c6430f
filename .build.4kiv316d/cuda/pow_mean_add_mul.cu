// rules: tileify cooperative_reduce register_row reuse rows_per_thread vector_axis residency
// grid -(-s // 8) x 1 x 1, 256 threads, 256 bytes of shared memory
extern "C" __global__ void __launch_bounds__(256, 2)
pow_mean_add_mul(
    const float* __restrict__ add_7,
    const float* __restrict__ model_layers_0_post_attention_layernorm_weight,
    float* __restrict__ mul_10,
    const int s) {
  DPLC_DYN_SMEM(float, smem_buf);
  const uint32_t smem = smem_addr(smem_buf);
  const int p_o = blockIdx.x;
  const int t = threadIdx.x;
  const float* add_7_at = add_7 + p_o * 16384 + t * 4;
  const uint32_t total3_all_x = smem;
  const uint32_t total3_all_put = total3_all_x + (t >> 5) * 4;
  const float* model_layers_0_post_attention_layernorm_weight_at = model_layers_0_post_attention_layernorm_weight + t * 4;
  float* mul_10_at = mul_10 + p_o * 16384 + t * 4;
  float a1[2][8][4];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    #pragma unroll
    for (int p_r = 0; p_r < 8; ++p_r) {
      if (p_o * 8 + p_r < s) {
        ldg128(a1[q][p_r], add_7_at + p_r * 2048 + q * 1024);
      } else {
        a1[q][p_r][0] = a1[q][p_r][1] = a1[q][p_r][2] = a1[q][p_r][3] = 0.0f;
      }
    }
  }
  float total3[4][8];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    #pragma unroll
    for (int v = 0; v < 4; ++v) {
      #pragma unroll
      for (int p_r = 0; p_r < 8; ++p_r) {
        const float pow_2 = a1[q][p_r][v] * a1[q][p_r][v];
        total3[v][p_r] = q == 0 ? pow_2 : total3[v][p_r] + pow_2;
      }
    }
  }
  float total3_all[8];
  #pragma unroll
  for (int p_r = 0; p_r < 8; ++p_r) {
    total3_all[p_r] = total3[0][p_r] + total3[1][p_r] + (total3[2][p_r] + total3[3][p_r]);
  }
  #pragma unroll
  for (int p_r = 0; p_r < 8; ++p_r) {
    #pragma unroll
    for (int lanes = 16; lanes >= 1; lanes >>= 1) total3_all[p_r] += shfl_xor(total3_all[p_r], lanes);
  }
  if ((t & 31) == 0) {
    #pragma unroll
    for (int p_r = 0; p_r < 8; ++p_r) {
      sts32(total3_all_put + p_r * 32, total3_all[p_r]);
    }
  }
  block_sync();
  #pragma unroll
  for (int p_r = 0; p_r < 8; ++p_r) {
    float total3_all_part[8];
    lds128(&total3_all_part[0], total3_all_x + p_r * 32);
    lds128(&total3_all_part[4], total3_all_x + p_r * 32 + 16);
    total3_all[p_r] = total3_all_part[0] + total3_all_part[1] + (total3_all_part[2] + total3_all_part[3]) + (total3_all_part[4] + total3_all_part[5] + (total3_all_part[6] + total3_all_part[7]));
  }
  float rsqrt_2[8];
  #pragma unroll
  for (int p_r = 0; p_r < 8; ++p_r) {
    rsqrt_2[p_r] = rsqrt_approx(total3_all[p_r] * 0.00048828125f + 1e-05f);
  }
  float m[2][4];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    ldg128(m[q], model_layers_0_post_attention_layernorm_weight_at + q * 1024);
  }
  float mul_101[2][4][8];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    #pragma unroll
    for (int v = 0; v < 4; ++v) {
      #pragma unroll
      for (int p_r = 0; p_r < 8; ++p_r) {
        mul_101[q][v][p_r] = m[q][v] * (a1[q][p_r][v] * rsqrt_2[p_r]);
      }
    }
  }
  #pragma unroll
  for (int p_r = 0; p_r < 8; ++p_r) {
    if (p_o * 8 + p_r < s) {
      #pragma unroll
      for (int q = 0; q < 2; ++q) {
        stg128(mul_10_at + p_r * 2048 + q * 1024, float4{
            mul_101[q][0][p_r],
            mul_101[q][1][p_r],
            mul_101[q][2][p_r],
            mul_101[q][3][p_r],
        });
      }
    }
  }
}
