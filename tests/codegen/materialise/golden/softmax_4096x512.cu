// rules: tileify and_others
// grid 1024 x 1 x 1, 128 threads
extern "C" __global__ void __launch_bounds__(128, 1)
softmax(const float* __restrict__ x, float* __restrict__ y) {
  const int i_o = blockIdx.x;
  const int tid = threadIdx.x;
  const int i = tid >> 5;
  const int t = tid & 31;
  const float* x_at = x + i_o * 2048 + i * 512 + t * 4;
  float* y_at = y + i_o * 2048 + i * 512 + t * 4;
  float a[4][4];
  #pragma unroll
  for (int q = 0; q < 4; ++q) {
    ldg128(a[q], x_at + q * 128);
  }
  float top[4];
  #pragma unroll
  for (int q = 0; q < 4; ++q) {
    #pragma unroll
    for (int v = 0; v < 4; ++v) {
      top[v] = q == 0 ? a[q][v] : max_nan(top[v], a[q][v]);
    }
  }
  float top_all = max_nan(max_nan(top[0], top[1]), max_nan(top[2], top[3]));
  #pragma unroll
  for (int lanes = 16; lanes >= 1; lanes >>= 1) top_all = max_nan(top_all, shfl_xor(top_all, lanes));
  float d[4][4];
  #pragma unroll
  for (int q = 0; q < 4; ++q) {
    #pragma unroll
    for (int v = 0; v < 4; ++v) {
      d[q][v] = exp2_approx(a[q][v] * 1.4426950408889634f - top_all * 1.4426950408889634f);
    }
  }
  float sum[4];
  #pragma unroll
  for (int q = 0; q < 4; ++q) {
    #pragma unroll
    for (int v = 0; v < 4; ++v) {
      sum[v] = q == 0 ? d[q][v] : sum[v] + d[q][v];
    }
  }
  float sum_all = sum[0] + sum[1] + (sum[2] + sum[3]);
  #pragma unroll
  for (int lanes = 16; lanes >= 1; lanes >>= 1) sum_all += shfl_xor(sum_all, lanes);
  const float r = rcp_approx(sum_all);
  #pragma unroll
  for (int q = 0; q < 4; ++q) {
    stg128(y_at + q * 128, float4{d[q][0] * r, d[q][1] * r, d[q][2] * r, d[q][3] * r});
  }
}
