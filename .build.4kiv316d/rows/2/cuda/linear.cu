// rules: tileify chunk_matmul_k split_matmul_k blockify_launch strip_flat mark_unroll vector_axis residency
// grid 2 x s x 1, 256 threads
extern "C" __global__ void __launch_bounds__(256, 2)
linear(
    const float* __restrict__ mul_4,
    const float* __restrict__ model_layers_0_self_attn_q_proj_weight,
    const float* __restrict__ part,
    float* __restrict__ linear,
    const int s) {
  const int u_o = blockIdx.x;
  const int k = blockIdx.y;
  const int u = threadIdx.x;
  const float* part_at = part + k * 2048 + u_o * 1024 + u * 4;
  float* linear_at = linear + k * 2048 + u_o * 1024 + u * 4;
  float linear1[4] = {};
  #pragma unroll
  for (int r1 = 0; r1 < 6; ++r1) {
    float linear1_part[4];
    ldg128(linear1_part, part_at + r1 * s * 2048);
    #pragma unroll
    for (int v = 0; v < 4; ++v) {
      linear1[v] += linear1_part[v];
    }
  }
  stg128(linear_at, linear1);
}
