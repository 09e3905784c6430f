// rules: tileify chunk_matmul_k split_matmul_k blockify_launch strip_flat mark_unroll vector_axis residency
// grid s x 1 x 1, 256 threads
extern "C" __global__ void __launch_bounds__(256, 2)
add_linear(
    const float* __restrict__ add_7,
    const float* __restrict__ mul_11,
    const float* __restrict__ model_layers_0_mlp_down_proj_weight,
    const float* __restrict__ part,
    float* __restrict__ add_9,
    const int s) {
  const int p = blockIdx.x;
  const int n2 = threadIdx.x;
  const float* add_7_at = add_7 + p * 2048 + n2 * 4;
  const float* part_at = part + p * 2048 + n2 * 4;
  float* add_9_at = add_9 + p * 2048 + n2 * 4;
  float linear_6[2][4] = {};
  float a[2][4];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    ldg128(a[q], add_7_at + q * 1024);
  }
  #pragma unroll
  for (int r = 0; r < 4; ++r) {
    float linear_6_part[2][4];
    #pragma unroll
    for (int q = 0; q < 2; ++q) {
      ldg128(linear_6_part[q], part_at + r * s * 2048 + q * 1024);
    }
    #pragma unroll
    for (int q = 0; q < 2; ++q) {
      #pragma unroll
      for (int v = 0; v < 4; ++v) {
        linear_6[q][v] += linear_6_part[q][v];
      }
    }
  }
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    stg128(add_9_at + q * 1024, float4{
        a[q][0] + linear_6[q][0],
        a[q][1] + linear_6[q][1],
        a[q][2] + linear_6[q][2],
        a[q][3] + linear_6[q][3],
    });
  }
}
