// rules: tileify chunk_matmul_k split_matmul_k blockify_launch strip_flat mark_unroll vector_axis residency
// grid 2 x s x 1, 256 threads
extern "C" __global__ void __launch_bounds__(256, 2)
add_reshape_linear_2(
    const float* __restrict__ add_9,
    const float* __restrict__ scaled_dot_product_attention_1,
    const float* __restrict__ model_layers_1_self_attn_o_proj_weight,
    const float* __restrict__ part4,
    float* __restrict__ add_13,
    const int s) {
  const int t3_o = blockIdx.x;
  const int p = blockIdx.y;
  const int t3 = threadIdx.x;
  const float* add_9_at = add_9 + p * 2048 + t3_o * 1024 + t3 * 4;
  const float* part4_at = part4 + p * 2048 + t3_o * 1024 + t3 * 4;
  float* add_13_at = add_13 + p * 2048 + t3_o * 1024 + t3 * 4;
  float linear_10[4] = {};
  float a[4];
  ldg128(a, add_9_at);
  #pragma unroll
  for (int r5 = 0; r5 < 6; ++r5) {
    float linear_10_part[4];
    ldg128(linear_10_part, part4_at + r5 * s * 2048);
    #pragma unroll
    for (int v = 0; v < 4; ++v) {
      linear_10[v] += linear_10_part[v];
    }
  }
  stg128(add_13_at, float4{a[0] + linear_10[0], a[1] + linear_10[1], a[2] + linear_10[2], a[3] + linear_10[3]});
}
