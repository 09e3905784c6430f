// rules: tileify cooperative_reduce register_row reuse rows_per_thread vector_axis residency
// grid -(-s // 8) x 1 x 1, 256 threads, 256 bytes of shared memory
extern "C" __global__ void __launch_bounds__(256, 2)
embedding_pow_mean_mul(
    const float* __restrict__ model_embed_tokens_weight,
    const long long* __restrict__ input_ids,
    const float* __restrict__ model_layers_0_input_layernorm_weight,
    float* __restrict__ mul_4,
    const int s) {
  DPLC_DYN_SMEM(float, smem_buf);
  const uint32_t smem = smem_addr(smem_buf);
  const int k_o = blockIdx.x;
  const int t = threadIdx.x;
  const long long* input_ids_at = input_ids + k_o * 8;
  const float* model_embed_tokens_weight_at = model_embed_tokens_weight + t * 4;
  const uint32_t total_all_x = smem;
  const uint32_t total_all_put = total_all_x + (t >> 5) * 4;
  const float* model_layers_0_input_layernorm_weight_at = model_layers_0_input_layernorm_weight + t * 4;
  float* mul_4_at = mul_4 + k_o * 16384 + t * 4;
  long long i[8];
  #pragma unroll
  for (int k_r = 0; k_r < 8; ++k_r) {
    i[k_r] = k_o * 8 + k_r < s ? ldg(input_ids_at + k_r) : 0LL;
  }
  #pragma unroll
  for (int k_r = 0; k_r < 8; ++k_r) {
    check_place(i[k_r], 32000);
  }
  float m[2][8][4];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    #pragma unroll
    for (int k_r = 0; k_r < 8; ++k_r) {
      ldg128(m[q][k_r], model_embed_tokens_weight_at + i[k_r] * 2048 + q * 1024);
    }
  }
  float total[4][8];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    #pragma unroll
    for (int v = 0; v < 4; ++v) {
      #pragma unroll
      for (int k_r = 0; k_r < 8; ++k_r) {
        const float pow_1 = m[q][k_r][v] * m[q][k_r][v];
        total[v][k_r] = q == 0 ? pow_1 : total[v][k_r] + pow_1;
      }
    }
  }
  float total_all[8];
  #pragma unroll
  for (int k_r = 0; k_r < 8; ++k_r) {
    total_all[k_r] = total[0][k_r] + total[1][k_r] + (total[2][k_r] + total[3][k_r]);
  }
  #pragma unroll
  for (int k_r = 0; k_r < 8; ++k_r) {
    #pragma unroll
    for (int lanes = 16; lanes >= 1; lanes >>= 1) total_all[k_r] += shfl_xor(total_all[k_r], lanes);
  }
  if ((t & 31) == 0) {
    #pragma unroll
    for (int k_r = 0; k_r < 8; ++k_r) {
      sts32(total_all_put + k_r * 32, total_all[k_r]);
    }
  }
  block_sync();
  #pragma unroll
  for (int k_r = 0; k_r < 8; ++k_r) {
    float total_all_part[8];
    lds128(&total_all_part[0], total_all_x + k_r * 32);
    lds128(&total_all_part[4], total_all_x + k_r * 32 + 16);
    total_all[k_r] = total_all_part[0] + total_all_part[1] + (total_all_part[2] + total_all_part[3]) + (total_all_part[4] + total_all_part[5] + (total_all_part[6] + total_all_part[7]));
  }
  float rsqrt_1[8];
  #pragma unroll
  for (int k_r = 0; k_r < 8; ++k_r) {
    rsqrt_1[k_r] = rsqrt_approx(total_all[k_r] * 0.00048828125f + 1e-05f);
  }
  float m2[2][4];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    ldg128(m2[q], model_layers_0_input_layernorm_weight_at + q * 1024);
  }
  float mul_41[2][4][8];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    #pragma unroll
    for (int v = 0; v < 4; ++v) {
      #pragma unroll
      for (int k_r = 0; k_r < 8; ++k_r) {
        mul_41[q][v][k_r] = m2[q][v] * (m[q][k_r][v] * rsqrt_1[k_r]);
      }
    }
  }
  #pragma unroll
  for (int k_r = 0; k_r < 8; ++k_r) {
    if (k_o * 8 + k_r < s) {
      #pragma unroll
      for (int q = 0; q < 2; ++q) {
        stg128(mul_4_at + k_r * 2048 + q * 1024, float4{
            mul_41[q][0][k_r],
            mul_41[q][1][k_r],
            mul_41[q][2][k_r],
            mul_41[q][3][k_r],
        });
      }
    }
  }
}
