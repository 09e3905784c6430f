// rules: tileify cooperative_reduce register_row reuse vector_axis residency
// grid s x 1 x 1, 256 threads, 32 bytes of shared memory
extern "C" __global__ void __launch_bounds__(256, 2)
embedding_pow_mean_mul(
    const float* __restrict__ model_embed_tokens_weight,
    const long long* __restrict__ input_ids,
    const float* __restrict__ model_layers_0_input_layernorm_weight,
    float* __restrict__ mul_4,
    const int s) {
  DPLC_DYN_SMEM(float, smem_buf);
  const uint32_t smem = smem_addr(smem_buf);
  const int k = blockIdx.x;
  const int t = threadIdx.x;
  const long long* input_ids_at = input_ids + k;
  const float* model_embed_tokens_weight_at = model_embed_tokens_weight + t * 4;
  const uint32_t total_all_x = smem;
  const uint32_t total_all_put = total_all_x + (t >> 5) * 4;
  const float* model_layers_0_input_layernorm_weight_at = model_layers_0_input_layernorm_weight + t * 4;
  float* mul_4_at = mul_4 + k * 2048 + t * 4;
  const long long i = ldg(input_ids_at);
  check_place(i, 32000);
  float m[2][4];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    ldg128(m[q], model_embed_tokens_weight_at + i * 2048 + q * 1024);
  }
  float total[4];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    #pragma unroll
    for (int v = 0; v < 4; ++v) {
      const float pow_1 = m[q][v] * m[q][v];
      total[v] = q == 0 ? pow_1 : total[v] + pow_1;
    }
  }
  float total_all = total[0] + total[1] + (total[2] + total[3]);
  #pragma unroll
  for (int lanes = 16; lanes >= 1; lanes >>= 1) total_all += shfl_xor(total_all, lanes);
  if ((t & 31) == 0) {
    sts32(total_all_put, total_all);
  }
  block_sync();
  float total_all_part[8];
  lds128(&total_all_part[0], total_all_x);
  lds128(&total_all_part[4], total_all_x + 16);
  total_all = total_all_part[0] + total_all_part[1] + (total_all_part[2] + total_all_part[3]) + (total_all_part[4] + total_all_part[5] + (total_all_part[6] + total_all_part[7]));
  const float rsqrt_1 = rsqrt_approx(total_all * 0.00048828125f + 1e-05f);
  float m2[2][4];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    ldg128(m2[q], model_layers_0_input_layernorm_weight_at + q * 1024);
  }
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    stg128(mul_4_at + q * 1024, float4{
        m2[q][0] * (m[q][0] * rsqrt_1),
        m2[q][1] * (m[q][1] * rsqrt_1),
        m2[q][2] * (m[q][2] * rsqrt_1),
        m2[q][3] * (m[q][3] * rsqrt_1),
    });
  }
}
