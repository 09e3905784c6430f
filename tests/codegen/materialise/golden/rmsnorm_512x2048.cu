// rules: tileify and_others
// grid 512 x 1 x 1, 256 threads, 32 bytes of shared memory
extern "C" __global__ void __launch_bounds__(256, 1)
rms(const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ y) {
  DPLC_DYN_SMEM(float, smem_buf);
  const uint32_t smem = smem_addr(smem_buf);
  const int i = blockIdx.x;
  const int t = threadIdx.x;
  const float* x_at = x + i * 2048 + t * 4;
  const uint32_t acc_all_x = smem;
  const uint32_t acc_all_put = acc_all_x + (t >> 5) * 4;
  const float* w_at = w + t * 4;
  float* y_at = y + i * 2048 + t * 4;
  float a[2][4];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    ldg128(a[q], x_at + q * 1024);
  }
  float acc[4];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    #pragma unroll
    for (int v = 0; v < 4; ++v) {
      const float s = a[q][v] * a[q][v];
      acc[v] = q == 0 ? s : acc[v] + s;
    }
  }
  float acc_all = acc[0] + acc[1] + (acc[2] + acc[3]);
  #pragma unroll
  for (int lanes = 16; lanes >= 1; lanes >>= 1) acc_all += shfl_xor(acc_all, lanes);
  if ((t & 31) == 0) {
    sts32(acc_all_put, acc_all);
  }
  block_sync();
  float acc_all_part[8];
  lds128(&acc_all_part[0], acc_all_x);
  lds128(&acc_all_part[4], acc_all_x + 16);
  acc_all = acc_all_part[0] + acc_all_part[1] + (acc_all_part[2] + acc_all_part[3]) + (acc_all_part[4] + acc_all_part[5] + (acc_all_part[6] + acc_all_part[7]));
  const float r = rsqrt_approx(acc_all * 0.00048828125f + 1e-06f);
  float c[2][4];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    ldg128(c[q], w_at + q * 1024);
  }
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    stg128(y_at + q * 1024, float4{
        a[q][0] * r * c[q][0],
        a[q][1] * r * c[q][1],
        a[q][2] * r * c[q][2],
        a[q][3] * r * c[q][3],
    });
  }
}
