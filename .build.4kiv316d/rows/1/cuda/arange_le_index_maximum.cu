// rules: tileify chunk_matmul_k blockify_launch reuse stage_inputs register_tile spread_rows double_buffer async_copy
//        vector_reduce pipeline_predicated snake residency
// grid -(-s // 8) x 64 x 1, 32 threads, 4608 bytes of shared memory
extern "C" __global__ void __launch_bounds__(32, 2)
arange_le_index_maximum(
    const long long* __restrict__ cumsum,
    const float* __restrict__ linear,
    const float* __restrict__ cos_1,
    const float* __restrict__ sin_1,
    const float* __restrict__ linear_1,
    const float* __restrict__ linear_2,
    float* __restrict__ scaled_dot_product_attention,
    const int s) {
  DPLC_DYN_SMEM(float, smem_buf);
  const uint32_t smem = smem_addr(smem_buf);
  const int p_o = blockIdx.x;
  const int n1 = blockIdx.y;
  const int tid = threadIdx.x;
  const int p = tid >> 3;
  const int i2 = tid & 7;
  const long long* cumsum_at = cumsum + p_o * 8 + p;
  const uint32_t cos_1_smem = smem;
  const uint32_t cos_1_smem_wr = cos_1_smem + tid * 16;
  const float* cos_1_at = cos_1 + p_o * 512 + (tid >> 2) * 64 + (tid & 3) * 4;
  const uint32_t cos_1_smem1 = smem + 2048;
  const uint32_t cos_1_smem1_wr = cos_1_smem1 + tid * 16;
  const float* cos_1_at1 = cos_1 + (tid & 3) * 4;
  const uint32_t sin_1_smem = smem + 2304;
  const uint32_t sin_1_smem_wr = sin_1_smem + tid * 16;
  const float* sin_1_at = sin_1 + p_o * 512 + (tid >> 2) * 64 + (tid & 3) * 4;
  const uint32_t sin_1_smem1 = smem + 4352;
  const uint32_t sin_1_smem1_wr = sin_1_smem1 + tid * 16;
  const float* sin_1_at1 = sin_1 + (tid & 3) * 4;
  const float* linear_at = linear + p_o * 16384 + p * 2048 + i2 * 64;
  const uint32_t c2_rd = cos_1_smem + p * 64;
  const uint32_t s2_rd = sin_1_smem + p * 64;
  const float* linear_2_at = linear_2 + n1;
  float* scaled_dot_product_attention_at = scaled_dot_product_attention + p_o * 16384 + p * 2048 + n1 + i2 * 64;
  float m[2][4];
  #pragma unroll
  for (int p_r_q = 0; p_r_q < 2; ++p_r_q) {
    #pragma unroll
    for (int i2_r_q = 0; i2_r_q < 4; ++i2_r_q) {
      m[p_r_q][i2_r_q] = -3e+38f;
    }
  }
  float s1[2][4] = {};
  float m1[2][4];
  #pragma unroll
  for (int p_r_q = 0; p_r_q < 2; ++p_r_q) {
    #pragma unroll
    for (int i2_r_q = 0; i2_r_q < 4; ++i2_r_q) {
      m1[p_r_q][i2_r_q] = -3e+38f;
    }
  }
  float s4[2][4] = {};
  long long j5[2];
  #pragma unroll
  for (int p_r_q = 0; p_r_q < 2; ++p_r_q) {
    j5[p_r_q] = (long long)(p_o * 8 + p_r_q * 4 + p);
  }
  long long c[2];
  #pragma unroll
  for (int p_r_q = 0; p_r_q < 2; ++p_r_q) {
    c[p_r_q] = p_o * 8 + p_r_q * 4 + p < s ? ldg(cumsum_at + p_r_q * 4) : 0LL;
  }
  const long long* cumsum_at1 = cumsum;
  const float* cos_1_at2 = cos_1_at1;
  const float* sin_1_at2 = sin_1_at1;
  const float* linear_1_at = linear_1;
  const float* linear_2_at1 = linear_2_at;
  for (int q = 0; q < s; ++q) {
    float sum[2][4] = {};
    const long long j4 = (long long)q;
    long long c1[2];
    #pragma unroll
    for (int p_r_q = 0; p_r_q < 2; ++p_r_q) {
      c1[p_r_q] = p_o * 8 + p_r_q * 4 + p < s ? ldg(cumsum_at1) : 0LL;
    }
    bool and_2[2];
    #pragma unroll
    for (int p_r_q = 0; p_r_q < 2; ++p_r_q) {
      and_2[p_r_q] = j4 <= j5[p_r_q] && c[p_r_q] == c1[p_r_q];
    }
    cp_async16_zfill(p_o * 8 + (tid >> 2) < s, cos_1_smem_wr, cos_1_at);
    cp_async16_if_zfill(tid >> 2 < 1, q < s, cos_1_smem1_wr, cos_1_at2);
    cp_async16_zfill(p_o * 8 + (tid >> 2) < s, sin_1_smem_wr, sin_1_at);
    cp_async16_if_zfill(tid >> 2 < 1, q < s, sin_1_smem1_wr, sin_1_at2);
    cp_async_commit();
    cp_async16_zfill(p_o * 8 + (tid >> 2) < s, cos_1_smem_wr + 512, cos_1_at + 16);
    cp_async16_if_zfill(tid >> 2 < 1, q < s, cos_1_smem1_wr + 64, cos_1_at2 + 16);
    cp_async16_zfill(p_o * 8 + (tid >> 2) < s, sin_1_smem_wr + 512, sin_1_at + 16);
    cp_async16_if_zfill(tid >> 2 < 1, q < s, sin_1_smem1_wr + 64, sin_1_at2 + 16);
    cp_async_commit();
    cp_async16_zfill(p_o * 8 + (tid >> 2) < s, cos_1_smem_wr + 1024, cos_1_at + 32);
    cp_async16_if_zfill(tid >> 2 < 1, q < s, cos_1_smem1_wr + 128, cos_1_at2 + 32);
    cp_async16_zfill(p_o * 8 + (tid >> 2) < s, sin_1_smem_wr + 1024, sin_1_at + 32);
    cp_async16_if_zfill(tid >> 2 < 1, q < s, sin_1_smem1_wr + 128, sin_1_at2 + 32);
    cp_async_commit();
    const float* cos_1_at3 = cos_1_at;
    const float* cos_1_at4 = cos_1_at2;
    const float* sin_1_at3 = sin_1_at;
    const float* sin_1_at4 = sin_1_at2;
    const float* linear_at1 = linear_at;
    const float* linear_1_at1 = linear_1_at;
    #pragma unroll 1
    for (int t1_o = 0; t1_o < 4; ++t1_o) {
      const int slot = ((t1_o + 3) & 3) * 512;
      const uint32_t cos_1_smem_wr1 = cos_1_smem_wr + slot;
      const int slot1 = ((t1_o + 3) & 3) * 64;
      const uint32_t cos_1_smem1_wr1 = cos_1_smem1_wr + slot1;
      const uint32_t sin_1_smem_wr1 = sin_1_smem_wr + slot;
      const uint32_t sin_1_smem1_wr1 = sin_1_smem1_wr + slot1;
      const uint32_t c2_rd1 = c2_rd + t1_o * 512;
      const uint32_t s2_rd1 = s2_rd + t1_o * 512;
      const uint32_t c3_rd = cos_1_smem1 + t1_o * 64;
      const uint32_t s3_rd = sin_1_smem1 + t1_o * 64;
      cp_async_wait<2>();
      block_sync();
      cp_async16_if_zfill(t1_o + 3 < 4, p_o * 8 + (tid >> 2) < s, cos_1_smem_wr1, cos_1_at3 + 48);
      cp_async16_if_zfill(tid >> 2 < 1 && t1_o + 3 < 4, q < s, cos_1_smem1_wr1, cos_1_at4 + 48);
      cp_async16_if_zfill(t1_o + 3 < 4, p_o * 8 + (tid >> 2) < s, sin_1_smem_wr1, sin_1_at3 + 48);
      cp_async16_if_zfill(tid >> 2 < 1 && t1_o + 3 < 4, q < s, sin_1_smem1_wr1, sin_1_at4 + 48);
      cp_async_commit();
      #pragma unroll
      for (int p_r_q = 0; p_r_q < 2; ++p_r_q) {
        if (p_o * 8 + p_r_q * 4 + p < s) {
          #pragma unroll
          for (int t1_o1 = 0; t1_o1 < 4; ++t1_o1) {
            float l[4][4];
            #pragma unroll
            for (int i2_r_q = 0; i2_r_q < 4; ++i2_r_q) {
              ldg128(l[i2_r_q], linear_at1 + p_r_q * 8192 + t1_o1 * 4 + i2_r_q * 512);
            }
            float c2[4];
            lds128(c2, c2_rd1 + p_r_q * 256 + t1_o1 * 16);
            float l1[4][4];
            #pragma unroll
            for (int i2_r_q = 0; i2_r_q < 4; ++i2_r_q) {
              if (t1_o * 16 + t1_o1 * 4 < 32) {
                ldg128(l1[i2_r_q], linear_at1 + p_r_q * 8192 + t1_o1 * 4 + i2_r_q * 512 + 32);
              } else {
                l1[i2_r_q][0] = l1[i2_r_q][1] = l1[i2_r_q][2] = l1[i2_r_q][3] = 0.0f;
              }
            }
            float l2[4][4];
            #pragma unroll
            for (int i2_r_q = 0; i2_r_q < 4; ++i2_r_q) {
              if (t1_o * 16 + t1_o1 * 4 >= 32) {
                ldg128(l2[i2_r_q], linear_at1 + p_r_q * 8192 + t1_o1 * 4 + i2_r_q * 512 - 32);
              } else {
                l2[i2_r_q][0] = l2[i2_r_q][1] = l2[i2_r_q][2] = l2[i2_r_q][3] = 0.0f;
              }
            }
            float s2[4];
            lds128(s2, s2_rd1 + p_r_q * 256 + t1_o1 * 16);
            float l3[4][4];
            #pragma unroll
            for (int i2_r_q = 0; i2_r_q < 4; ++i2_r_q) {
              ldg128(l3[i2_r_q], linear_1_at1 + i2_r_q * 64 + t1_o1 * 4);
            }
            float c3[4];
            lds128(c3, c3_rd + t1_o1 * 16);
            float l4[4][4];
            #pragma unroll
            for (int i2_r_q = 0; i2_r_q < 4; ++i2_r_q) {
              if (t1_o * 16 + t1_o1 * 4 < 32) {
                ldg128(l4[i2_r_q], linear_1_at1 + i2_r_q * 64 + t1_o1 * 4 + 32);
              } else {
                l4[i2_r_q][0] = l4[i2_r_q][1] = l4[i2_r_q][2] = l4[i2_r_q][3] = 0.0f;
              }
            }
            float l5[4][4];
            #pragma unroll
            for (int i2_r_q = 0; i2_r_q < 4; ++i2_r_q) {
              if (t1_o * 16 + t1_o1 * 4 >= 32) {
                ldg128(l5[i2_r_q], linear_1_at1 + i2_r_q * 64 + t1_o1 * 4 - 32);
              } else {
                l5[i2_r_q][0] = l5[i2_r_q][1] = l5[i2_r_q][2] = l5[i2_r_q][3] = 0.0f;
              }
            }
            float s3[4];
            lds128(s3, s3_rd + t1_o1 * 16);
            #pragma unroll
            for (int t1 = 0; t1 < 4; ++t1) {
              const bool cond = t1_o * 16 + t1_o1 * 4 + t1 < 32;
              float product5[4];
              #pragma unroll
              for (int i2_r_q = 0; i2_r_q < 4; ++i2_r_q) {
                product5[i2_r_q] = (l[i2_r_q][t1] * c2[t1] + (cond ? -l1[i2_r_q][t1] : l2[i2_r_q][t1]) * s2[t1]) * (l3[i2_r_q][t1] * c3[t1] + (cond ? -l4[i2_r_q][t1] : l5[i2_r_q][t1]) * s3[t1]);
              }
              #pragma unroll
              for (int i2_r_q = 0; i2_r_q < 4; ++i2_r_q) {
                sum[p_r_q][i2_r_q] += product5[i2_r_q];
              }
            }
          }
        }
      }
      cos_1_at3 += 16;
      cos_1_at4 += 16;
      sin_1_at3 += 16;
      sin_1_at4 += 16;
      linear_at1 += 16;
      linear_1_at1 += 16;
    }
    block_sync();
    #pragma unroll
    for (int p_r_q = 0; p_r_q < 2; ++p_r_q) {
      if (p_o * 8 + p_r_q * 4 + p < s) {
        float kept[4];
        #pragma unroll
        for (int i2_r_q = 0; i2_r_q < 4; ++i2_r_q) {
          kept[i2_r_q] = and_2[p_r_q] ? sum[p_r_q][i2_r_q] * 0.125f : -DPLC_INF;
        }
        float l6[4];
        #pragma unroll
        for (int i2_r_q = 0; i2_r_q < 4; ++i2_r_q) {
          l6[i2_r_q] = ldg32(linear_2_at1 + i2_r_q * 64);
        }
        #pragma unroll
        for (int i2_r_q = 0; i2_r_q < 4; ++i2_r_q) {
          const float m2 = max_nan(m[p_r_q][i2_r_q], kept[i2_r_q]);
          const float a = m[p_r_q][i2_r_q] - m2;
          const float b = kept[i2_r_q] - m2;
          const float s5 = s1[p_r_q][i2_r_q] * exp2_approx(a * 1.4426950408889634f) + exp2_approx(b * 1.4426950408889634f) * l6[i2_r_q];
          m[p_r_q][i2_r_q] = m2;
          s1[p_r_q][i2_r_q] = s5;
        }
        #pragma unroll
        for (int i2_r_q = 0; i2_r_q < 4; ++i2_r_q) {
          const float m3 = max_nan(m1[p_r_q][i2_r_q], kept[i2_r_q]);
          const float a1 = m1[p_r_q][i2_r_q] - m3;
          const float b1 = kept[i2_r_q] - m3;
          const float s6 = s4[p_r_q][i2_r_q] * exp2_approx(a1 * 1.4426950408889634f) + exp2_approx(b1 * 1.4426950408889634f) * 1.0f;
          m1[p_r_q][i2_r_q] = m3;
          s4[p_r_q][i2_r_q] = s6;
        }
      }
    }
    cumsum_at1 += 1;
    cos_1_at2 += 64;
    sin_1_at2 += 64;
    linear_1_at += 256;
    linear_2_at1 += 256;
  }
  #pragma unroll
  for (int p_r_q = 0; p_r_q < 2; ++p_r_q) {
    if (p_o * 8 + p_r_q * 4 + p < s) {
      #pragma unroll
      for (int i2_r_q = 0; i2_r_q < 4; ++i2_r_q) {
        stg32(scaled_dot_product_attention_at + p_r_q * 8192 + i2_r_q * 512, s1[p_r_q][i2_r_q] / max_nan(s4[p_r_q][i2_r_q], 1.0f));
      }
    }
  }
}
