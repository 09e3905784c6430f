// rules: tileify cooperative_reduce register_row reuse vector_axis residency parts_by_threads
// grid s x 1 x 1, 256 threads, 32 bytes of shared memory
extern "C" __global__ void __launch_bounds__(256, 2)
pow_mean_add_mul(
    const float* __restrict__ add_7,
    const float* __restrict__ model_layers_0_post_attention_layernorm_weight,
    float* __restrict__ mul_10,
    const int s) {
  DPLC_DYN_SMEM(float, smem_buf);
  const uint32_t smem = smem_addr(smem_buf);
  const int p = blockIdx.x;
  const int t = threadIdx.x;
  const float* add_7_at = add_7 + p * 2048 + t * 4;
  const uint32_t total3_all_x = smem;
  const uint32_t total3_all_put = total3_all_x + (t >> 5) * 4;
  const float* model_layers_0_post_attention_layernorm_weight_at = model_layers_0_post_attention_layernorm_weight + t * 4;
  float* mul_10_at = mul_10 + p * 2048 + t * 4;
  float a1[2][4];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    ldg128(a1[q], add_7_at + q * 1024);
  }
  float total3[4];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    #pragma unroll
    for (int v = 0; v < 4; ++v) {
      const float pow_2 = a1[q][v] * a1[q][v];
      total3[v] = q == 0 ? pow_2 : total3[v] + pow_2;
    }
  }
  float total3_all = total3[0] + total3[1] + (total3[2] + total3[3]);
  #pragma unroll
  for (int lanes = 16; lanes >= 1; lanes >>= 1) total3_all += shfl_xor(total3_all, lanes);
  if ((t & 31) == 0) {
    sts32(total3_all_put, total3_all);
  }
  block_sync();
  float total3_all_part[8];
  lds128(&total3_all_part[0], total3_all_x);
  lds128(&total3_all_part[4], total3_all_x + 16);
  total3_all = total3_all_part[0] + total3_all_part[1] + (total3_all_part[2] + total3_all_part[3]) + (total3_all_part[4] + total3_all_part[5] + (total3_all_part[6] + total3_all_part[7]));
  const float rsqrt_2 = rsqrt_approx(total3_all * 0.00048828125f + 1e-05f);
  float m[2][4];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    ldg128(m[q], model_layers_0_post_attention_layernorm_weight_at + q * 1024);
  }
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    stg128(mul_10_at + q * 1024, float4{
        m[q][0] * (a1[q][0] * rsqrt_2),
        m[q][1] * (a1[q][1] * rsqrt_2),
        m[q][2] * (a1[q][2] * rsqrt_2),
        m[q][3] * (a1[q][3] * rsqrt_2),
    });
  }
}
