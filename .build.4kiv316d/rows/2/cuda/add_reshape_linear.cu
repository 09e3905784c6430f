// rules: tileify chunk_matmul_k split_matmul_k blockify_launch strip_flat mark_unroll vector_axis residency
// grid 2 x s x 1, 256 threads
extern "C" __global__ void __launch_bounds__(256, 2)
add_reshape_linear(
    const float* __restrict__ model_embed_tokens_weight,
    const long long* __restrict__ input_ids,
    const float* __restrict__ scaled_dot_product_attention,
    const float* __restrict__ model_layers_0_self_attn_o_proj_weight,
    const float* __restrict__ part2,
    float* __restrict__ add_7,
    const int s) {
  const int k2_o = blockIdx.x;
  const int p = blockIdx.y;
  const int k2 = threadIdx.x;
  const long long* input_ids_at = input_ids + p;
  const float* model_embed_tokens_weight_at = model_embed_tokens_weight + k2_o * 1024 + k2 * 4;
  const float* part2_at = part2 + p * 2048 + k2_o * 1024 + k2 * 4;
  float* add_7_at = add_7 + p * 2048 + k2_o * 1024 + k2 * 4;
  float linear_3[4] = {};
  const long long i = ldg(input_ids_at);
  check_place(i, 32000);
  float m[4];
  ldg128(m, model_embed_tokens_weight_at + i * 2048);
  #pragma unroll
  for (int r3 = 0; r3 < 6; ++r3) {
    float linear_3_part[4];
    ldg128(linear_3_part, part2_at + r3 * s * 2048);
    #pragma unroll
    for (int v = 0; v < 4; ++v) {
      linear_3[v] += linear_3_part[v];
    }
  }
  stg128(add_7_at, float4{m[0] + linear_3[0], m[1] + linear_3[1], m[2] + linear_3[2], m[3] + linear_3[3]});
}
