// rules: tileify chunk_matmul_k split_matmul_k blockify_launch strip_flat mark_unroll vector_axis residency
// grid s x 1 x 1, 64 threads
extern "C" __global__ void __launch_bounds__(64, 2)
linear_2(
    const float* __restrict__ mul_4,
    const float* __restrict__ model_layers_0_self_attn_k_proj_weight,
    const float* __restrict__ model_layers_0_self_attn_v_proj_weight,
    const float* __restrict__ part1,
    float* __restrict__ linear_1,
    float* __restrict__ linear_2,
    const int s) {
  const int k = blockIdx.x;
  const int i1 = threadIdx.x;
  const float* part1_at = part1 + k * 256 + i1 * 4;
  const float* part1_at1 = part1 + s * 3328 + k * 256 + i1 * 4;
  float* linear_1_at = linear_1 + k * 256 + i1 * 4;
  float* linear_2_at = linear_2 + k * 256 + i1 * 4;
  float linear_11[4] = {};
  float linear_21[4] = {};
  #pragma unroll
  for (int r2 = 0; r2 < 13; ++r2) {
    float linear_11_part[4];
    ldg128(linear_11_part, part1_at + r2 * s * 256);
    #pragma unroll
    for (int v = 0; v < 4; ++v) {
      linear_11[v] += linear_11_part[v];
    }
    float linear_21_part[4];
    ldg128(linear_21_part, part1_at1 + r2 * s * 256);
    #pragma unroll
    for (int v = 0; v < 4; ++v) {
      linear_21[v] += linear_21_part[v];
    }
  }
  stg128(linear_1_at, linear_11);
  stg128(linear_2_at, linear_21);
}
