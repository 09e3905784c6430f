// rules: tileify blockify_launch strip_rows vector_axis residency
// grid s x 1 x 1, 256 threads
extern "C" __global__ void __launch_bounds__(256, 2)
mul_slice_neg_add(
    const float* __restrict__ linear,
    const float* __restrict__ cos_1,
    const float* __restrict__ sin_1,
    float* __restrict__ add_5,
    const int s) {
  const int p = blockIdx.x;
  const int tid = threadIdx.x;
  const int i2 = tid >> 4;
  const int t1 = tid & 15;
  const float* linear_at = linear + p * 2048 + i2 * 64 + t1 * 4;
  const float* cos_1_at = cos_1 + p * 64 + t1 * 4;
  const float* sin_1_at = sin_1 + p * 64 + t1 * 4;
  float* add_5_at = add_5 + p * 2048 + i2 * 64 + t1 * 4;
  float l[2][4];
  #pragma unroll
  for (int i2_o_r = 0; i2_o_r < 2; ++i2_o_r) {
    ldg128(l[i2_o_r], linear_at + i2_o_r * 1024);
  }
  float c[4];
  ldg128(c, cos_1_at);
  float l1[2][4];
  #pragma unroll
  for (int i2_o_r = 0; i2_o_r < 2; ++i2_o_r) {
    if (t1 * 4 < 32) {
      ldg128(l1[i2_o_r], linear_at + i2_o_r * 1024 + 32);
    } else {
      l1[i2_o_r][0] = l1[i2_o_r][1] = l1[i2_o_r][2] = l1[i2_o_r][3] = 0.0f;
    }
  }
  float l2[2][4];
  #pragma unroll
  for (int i2_o_r = 0; i2_o_r < 2; ++i2_o_r) {
    if (t1 * 4 >= 32) {
      ldg128(l2[i2_o_r], linear_at + i2_o_r * 1024 - 32);
    } else {
      l2[i2_o_r][0] = l2[i2_o_r][1] = l2[i2_o_r][2] = l2[i2_o_r][3] = 0.0f;
    }
  }
  bool cond[4];
  #pragma unroll
  for (int v = 0; v < 4; ++v) {
    cond[v] = t1 * 4 + v < 32;
  }
  float s1[4];
  ldg128(s1, sin_1_at);
  #pragma unroll
  for (int i2_o_r = 0; i2_o_r < 2; ++i2_o_r) {
    stg128(add_5_at + i2_o_r * 1024, float4{
        l[i2_o_r][0] * c[0] + (cond[0] ? -l1[i2_o_r][0] : l2[i2_o_r][0]) * s1[0],
        l[i2_o_r][1] * c[1] + (cond[1] ? -l1[i2_o_r][1] : l2[i2_o_r][1]) * s1[1],
        l[i2_o_r][2] * c[2] + (cond[2] ? -l1[i2_o_r][2] : l2[i2_o_r][2]) * s1[2],
        l[i2_o_r][3] * c[3] + (cond[3] ? -l1[i2_o_r][3] : l2[i2_o_r][3]) * s1[3],
    });
  }
}
