// rules: tileify blockify_launch reuse vector_axis residency
// grid s x 1 x 1, 16 threads
extern "C" __global__ void __launch_bounds__(16, 2)
arange_to_mul_sin(const float* __restrict__ to_3, float* __restrict__ sin_1, const int s) {
  const int l_o = blockIdx.x;
  const int t = threadIdx.x;
  const float* to_3_at = to_3 + t * 4;
  float* sin_1_at = sin_1 + l_o * 64 + t * 4;
  if (l_o < s) {
    const float to_2 = (float)l_o;
    float t1[4];
    if (t * 4 < 32) {
      ldg128(t1, to_3_at);
    } else {
      t1[0] = t1[1] = t1[2] = t1[3] = 0.0f;
    }
    float t2[4];
    if (t * 4 >= 32) {
      ldg128(t2, to_3_at - 32);
    } else {
      t2[0] = t2[1] = t2[2] = t2[3] = 0.0f;
    }
    stg128(sin_1_at, float4{
        sinf(t * 4 < 32 ? to_2 * t1[0] : to_2 * t2[0]),
        sinf(t * 4 + 1 < 32 ? to_2 * t1[1] : to_2 * t2[1]),
        sinf(t * 4 + 2 < 32 ? to_2 * t1[2] : to_2 * t2[2]),
        sinf(t * 4 + 3 < 32 ? to_2 * t1[3] : to_2 * t2[3]),
    });
  }
}
