// rules: tileify blockify_launch reuse vector_axis residency
// grid -(-s // 16) x 1 x 1, 256 threads
extern "C" __global__ void __launch_bounds__(256, 2)
arange_to_mul_cos(const float* __restrict__ to_3, float* __restrict__ cos_1, const int s) {
  const int l_o = blockIdx.x;
  const int tid = threadIdx.x;
  const int l = tid >> 4;
  const int t = tid & 15;
  const float* to_3_at = to_3 + t * 4;
  float* cos_1_at = cos_1 + l_o * 1024 + l * 64 + t * 4;
  if (l_o * 16 + l < s) {
    const float to_2 = (float)(l_o * 16 + l);
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
    stg128(cos_1_at, float4{
        cosf(t * 4 < 32 ? to_2 * t1[0] : to_2 * t2[0]),
        cosf(t * 4 + 1 < 32 ? to_2 * t1[1] : to_2 * t2[1]),
        cosf(t * 4 + 2 < 32 ? to_2 * t1[2] : to_2 * t2[2]),
        cosf(t * 4 + 3 < 32 ? to_2 * t1[3] : to_2 * t2[3]),
    });
  }
}
