// rules: tileify turned_tiles spread_rows vector_axis residency
// grid s x 1 x 1, 16 threads
extern "C" __global__ void __launch_bounds__(16, 2)
mul_slice_neg_add_2(
    const float* __restrict__ linear_1,
    const float* __restrict__ cos_1,
    const float* __restrict__ sin_1,
    float* __restrict__ add_6,
    const int s) {
  const int l = blockIdx.x;
  const int t1 = threadIdx.x;
  const float* cos_1_at = cos_1 + l * 64 + t1;
  const float* sin_1_at = sin_1 + l * 64 + t1;
  const float* linear_1_at = linear_1 + l * 256 + t1;
  float* add_6_at = add_6 + l * 256 + t1 * 4;
  float c[4];
  #pragma unroll
  for (int r_q = 0; r_q < 4; ++r_q) {
    c[r_q] = ldg32(cos_1_at + r_q * 16);
  }
  float s1[4];
  #pragma unroll
  for (int r_q = 0; r_q < 4; ++r_q) {
    s1[r_q] = ldg32(sin_1_at + r_q * 16);
  }
  float l1[4][4];
  #pragma unroll
  for (int r_q = 0; r_q < 4; ++r_q) {
    #pragma unroll
    for (int v = 0; v < 4; ++v) {
      l1[r_q][v] = ldg32(linear_1_at + v * 64 + r_q * 16);
    }
  }
  float l2[4][4];
  #pragma unroll
  for (int r_q = 0; r_q < 4; ++r_q) {
    #pragma unroll
    for (int v = 0; v < 4; ++v) {
      l2[r_q][v] = r_q * 16 + t1 < 32 ? ldg32(linear_1_at + v * 64 + r_q * 16 + 32) : 0.0f;
    }
  }
  float l3[4][4];
  #pragma unroll
  for (int r_q = 0; r_q < 4; ++r_q) {
    #pragma unroll
    for (int v = 0; v < 4; ++v) {
      l3[r_q][v] = r_q * 16 + t1 >= 32 ? ldg32(linear_1_at + v * 64 + r_q * 16 - 32) : 0.0f;
    }
  }
  bool cond[4];
  #pragma unroll
  for (int r_q = 0; r_q < 4; ++r_q) {
    cond[r_q] = r_q * 16 + t1 < 32;
  }
  #pragma unroll
  for (int r_q = 0; r_q < 4; ++r_q) {
    stg128(add_6_at + r_q * 64, float4{
        l1[r_q][0] * c[r_q] + (cond[r_q] ? -l2[r_q][0] : l3[r_q][0]) * s1[r_q],
        l1[r_q][1] * c[r_q] + (cond[r_q] ? -l2[r_q][1] : l3[r_q][1]) * s1[r_q],
        l1[r_q][2] * c[r_q] + (cond[r_q] ? -l2[r_q][2] : l3[r_q][2]) * s1[r_q],
        l1[r_q][3] * c[r_q] + (cond[r_q] ? -l2[r_q][3] : l3[r_q][3]) * s1[r_q],
    });
  }
}
