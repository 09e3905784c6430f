// rules: tileify cooperative_reduce register_row reuse scalar vector_axis residency
// grid 32 x 1 x 1, 16 threads
extern "C" __global__ void __launch_bounds__(16, 2)
mul_slice_neg_reshape(
    const float* __restrict__ linear,
    const float* __restrict__ linear_1,
    const float* __restrict__ linear_2,
    float* __restrict__ scaled_dot_product_attention) {
  const int n1 = blockIdx.x;
  const int t = threadIdx.x;
  const float* linear_at = linear + n1 * 64 + t * 4;
  const float* linear_1_at = linear_1 + (n1 >> 3) * 64 + t * 4;
  const float* linear_2_at = linear_2 + (n1 >> 3) * 64 + t * 4;
  float* scaled_dot_product_attention_at = scaled_dot_product_attention + n1 * 64 + t * 4;
  float l[4];
  if (t * 4 < 32) {
    ldg128(l, linear_at + 32);
  } else {
    l[0] = l[1] = l[2] = l[3] = 0.0f;
  }
  float l1[4];
  if (t * 4 >= 32) {
    ldg128(l1, linear_at - 32);
  } else {
    l1[0] = l1[1] = l1[2] = l1[3] = 0.0f;
  }
  bool cond[4];
  #pragma unroll
  for (int v = 0; v < 4; ++v) {
    cond[v] = t * 4 + v < 32;
  }
  float l2[4];
  ldg128(l2, linear_at);
  float l3[4];
  if (t * 4 < 32) {
    ldg128(l3, linear_1_at + 32);
  } else {
    l3[0] = l3[1] = l3[2] = l3[3] = 0.0f;
  }
  float l4[4];
  if (t * 4 >= 32) {
    ldg128(l4, linear_1_at - 32);
  } else {
    l4[0] = l4[1] = l4[2] = l4[3] = 0.0f;
  }
  float l5[4];
  ldg128(l5, linear_1_at);
  float product5[4];
  #pragma unroll
  for (int v = 0; v < 4; ++v) {
    product5[v] = (l2[v] + (cond[v] ? -l[v] : l1[v]) * 0.0f) * (l5[v] + (cond[v] ? -l3[v] : l4[v]) * 0.0f);
  }
  float sum_all = product5[0] + product5[1] + (product5[2] + product5[3]);
  #pragma unroll
  for (int lanes = 8; lanes >= 1; lanes >>= 1) sum_all += shfl_xor(sum_all, lanes);
  const float dots = sum_all * 0.125f;
  const float p3 = exp2_approx((dots - max_nan(dots, -3e+38f)) * 1.4426950408889634f);
  float l6[4];
  ldg128(l6, linear_2_at);
  const float r = rcp_approx(max_nan(p3, 1.0f));
  stg128(scaled_dot_product_attention_at, float4{p3 * l6[0] * r, p3 * l6[1] * r, p3 * l6[2] * r, p3 * l6[3] * r});
}
