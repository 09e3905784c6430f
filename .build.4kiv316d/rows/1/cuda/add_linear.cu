// rules: tileify chunk_matmul_k split_matmul_k blockify_launch strip_flat mark_unroll vector_axis residency
// grid 2 x s x 1, 256 threads
extern "C" __global__ void __launch_bounds__(256, 2)
add_linear(
    const float* __restrict__ add_7,
    const float* __restrict__ mul_11,
    const float* __restrict__ model_layers_0_mlp_down_proj_weight,
    const float* __restrict__ part3,
    float* __restrict__ add_9,
    const int s) {
  const int n2_o = blockIdx.x;
  const int p = blockIdx.y;
  const int n2 = threadIdx.x;
  const float* add_7_at = add_7 + p * 2048 + n2_o * 1024 + n2 * 4;
  const float* part3_at = part3 + p * 2048 + n2_o * 1024 + n2 * 4;
  float* add_9_at = add_9 + p * 2048 + n2_o * 1024 + n2 * 4;
  float linear_6[4] = {};
  float a[4];
  ldg128(a, add_7_at);
  #pragma unroll
  for (int r3 = 0; r3 < 4; ++r3) {
    float linear_6_part[4];
    ldg128(linear_6_part, part3_at + r3 * s * 2048);
    #pragma unroll
    for (int v = 0; v < 4; ++v) {
      linear_6[v] += linear_6_part[v];
    }
  }
  stg128(add_9_at, float4{a[0] + linear_6[0], a[1] + linear_6[1], a[2] + linear_6[2], a[3] + linear_6[3]});
}
