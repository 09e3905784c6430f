// rules: tileify blockify_launch vector_axis residency
// grid 4 x s x 1, 128 threads
extern "C" __global__ void __launch_bounds__(128, 2)
mul_slice_neg_add(
    const float* __restrict__ linear,
    const float* __restrict__ cos_1,
    const float* __restrict__ sin_1,
    float* __restrict__ add_5,
    const int s) {
  const int i2_o = blockIdx.x;
  const int p = blockIdx.y;
  const int tid = threadIdx.x;
  const int i2 = tid >> 4;
  const int t1 = tid & 15;
  const float* linear_at = linear + p * 2048 + i2_o * 512 + i2 * 64 + t1 * 4;
  const float* cos_1_at = cos_1 + p * 64 + t1 * 4;
  const float* sin_1_at = sin_1 + p * 64 + t1 * 4;
  float* add_5_at = add_5 + p * 2048 + i2_o * 512 + i2 * 64 + t1 * 4;
  float l[4];
  ldg128(l, linear_at);
  float c[4];
  ldg128(c, cos_1_at);
  float l1[4];
  if (t1 * 4 < 32) {
    ldg128(l1, linear_at + 32);
  } else {
    l1[0] = l1[1] = l1[2] = l1[3] = 0.0f;
  }
  float l2[4];
  if (t1 * 4 >= 32) {
    ldg128(l2, linear_at - 32);
  } else {
    l2[0] = l2[1] = l2[2] = l2[3] = 0.0f;
  }
  float s1[4];
  ldg128(s1, sin_1_at);
  stg128(add_5_at, float4{
      l[0] * c[0] + (t1 * 4 < 32 ? -l1[0] : l2[0]) * s1[0],
      l[1] * c[1] + (t1 * 4 + 1 < 32 ? -l1[1] : l2[1]) * s1[1],
      l[2] * c[2] + (t1 * 4 + 2 < 32 ? -l1[2] : l2[2]) * s1[2],
      l[3] * c[3] + (t1 * 4 + 3 < 32 ? -l1[3] : l2[3]) * s1[3],
  });
}
