// rules: tileify chunk_matmul_k split_matmul_k blockify_launch mark_unroll residency
// grid s x 1 x 1, 256 threads
extern "C" __global__ void __launch_bounds__(256, 2)
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
  const float* part1_at = part1 + k * 256 + i1;
  const float* part1_at1 = part1 + s * 4096 + k * 256 + i1;
  float* linear_1_at = linear_1 + k * 256 + i1;
  float* linear_2_at = linear_2 + k * 256 + i1;
  float linear_11 = 0.0f;
  float linear_21 = 0.0f;
  #pragma unroll
  for (int r1 = 0; r1 < 16; ++r1) {
    const float linear_11_part = ldg32(part1_at + r1 * s * 256);
    linear_11 += linear_11_part;
    const float linear_21_part = ldg32(part1_at1 + r1 * s * 256);
    linear_21 += linear_21_part;
  }
  stg32(linear_1_at, linear_11);
  stg32(linear_2_at, linear_21);
}
