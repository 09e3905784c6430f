// rules: tileify tile_axes online_tile lift_guards stage_once stage_inputs unguard warp_tile permute_stage
//        vector_reduce xor_smem scalar vector_axis snake residency
// grid -(-s // 16) x 32 x 1, 64 threads, 22528 bytes of shared memory
extern "C" __global__ void __launch_bounds__(64, 2)
arange_le_index_maximum(
    const long long* __restrict__ cumsum,
    const float* __restrict__ add_5,
    const float* __restrict__ add_6,
    const float* __restrict__ linear_2,
    float* __restrict__ scaled_dot_product_attention,
    const int s) {
  DPLC_DYN_SMEM(float, smem_buf);
  const uint32_t smem = smem_addr(smem_buf);
  const int p_o = blockIdx.x;
  const int i2 = blockIdx.y;
  const int tid = threadIdx.x;
  const int p_w = tid >> 5;
  const int p = (tid >> 3) & 3;
  const int n = tid & 7;
  const uint32_t add_5_smem = smem;
  const uint32_t add_5_smem_wr = add_5_smem + (tid >> 4) * 256 + ((tid & 15) ^ ((tid >> 4) & 1)) * 16;
  const float* add_5_at = add_5 + p_o * 32768 + (tid >> 4) * 2048 + i2 * 64 + (tid & 15) * 4;
  const uint32_t add_6_smem = smem + 4096;
  const uint32_t add_6_smem_wr = add_6_smem + (tid >> 2) * 16 + (tid & 3) * 4;
  const float* add_6_at = add_6 + tid * 4 + (i2 >> 3);
  const uint32_t linear_2_smem = smem + 12288;
  const uint32_t linear_2_smem_wr = linear_2_smem + tid * 16;
  const float* linear_2_at = linear_2 + (tid >> 4) * 256 + (i2 >> 3) * 64 + (tid & 15) * 4;
  const uint32_t a_rd = add_5_smem + p_w * 1024 + p * 256 + (p & 1) * 16;
  const uint32_t a1_rd = add_6_smem + n * 256 + (n & 1) * 16 + ((n >> 1) & 1) * 32 + (n >> 2) * 64;
  const long long* cumsum_at = cumsum + p_o * 16 + p_w * 4 + p;
  const long long* cumsum_at1 = cumsum + n * 4;
  const uint32_t weights = smem + 20480;
  const uint32_t weights_wr = weights + p_w * 512 + p * 128 + (n ^ (p & 1)) * 16;
  const uint32_t w_rd = weights + p_w * 512 + p * 128 + (p & 1) * 16;
  const uint32_t l_rd = linear_2_smem + n * 16;
  float* scaled_dot_product_attention_at = scaled_dot_product_attention + p_o * 32768 + p_w * 8192 + p * 2048 + i2 * 64 + n * 4;
  float m2[2];
  #pragma unroll
  for (int ri = 0; ri < 2; ++ri) {
    m2[ri] = -DPLC_INF;
  }
  float s2[2] = {};
  float s1[2][2][4] = {};
  float add_5_smem_cp[4][4];
  #pragma unroll
  for (int r_ = 0; r_ < 4; ++r_) {
    if (p_o * 16 + (tid >> 4) + r_ * 4 < s) {
      ldg128(add_5_smem_cp[r_], add_5_at + r_ * 8192);
    } else {
      add_5_smem_cp[r_][0] = add_5_smem_cp[r_][1] = add_5_smem_cp[r_][2] = add_5_smem_cp[r_][3] = 0.0f;
    }
  }
  #pragma unroll
  for (int r_ = 0; r_ < 4; ++r_) {
    sts128(add_5_smem_wr + r_ * 1024, add_5_smem_cp[r_]);
  }
  block_sync();
  const float* add_6_at1 = add_6_at;
  const float* linear_2_at1 = linear_2_at;
  const long long* cumsum_at2 = cumsum_at1;
  #pragma unroll 1
  for (int jo = 0; jo < -(-s >> 5); ++jo) {
    float sum[2][4] = {};
    float t[2][4];
    #pragma unroll
    for (int ri = 0; ri < 2; ++ri) {
      #pragma unroll
      for (int r = 0; r < 4; ++r) {
        t[ri][r] = -DPLC_INF;
      }
    }
    float add_6_smem_cp[32];
    #pragma unroll
    for (int r_ = 0; r_ < 32; ++r_) {
      add_6_smem_cp[r_] = jo * 32 + (r_ >> 3) + (r_ & 7) * 4 < s ? ldg32(add_6_at1 + (r_ >> 3) * 256 + (r_ & 7) * 1024) : 0.0f;
    }
    #pragma unroll
    for (int r_ = 0; r_ < 32; ++r_) {
      sts32((add_6_smem_wr ^ ((r_ & 1) * 16 + ((r_ >> 1) & 1) * 32 + ((r_ >> 2) & 1) * 64)) + r_ * 256, add_6_smem_cp[r_]);
    }
    float linear_2_smem_cp[8][4];
    #pragma unroll
    for (int r_ = 0; r_ < 8; ++r_) {
      if (jo * 32 + (tid >> 4) + r_ * 4 < s) {
        ldg128(linear_2_smem_cp[r_], linear_2_at1 + r_ * 1024);
      } else {
        linear_2_smem_cp[r_][0] = linear_2_smem_cp[r_][1] = linear_2_smem_cp[r_][2] = linear_2_smem_cp[r_][3] = 0.0f;
      }
    }
    #pragma unroll
    for (int r_ = 0; r_ < 8; ++r_) {
      sts128(linear_2_smem_wr + r_ * 1024, linear_2_smem_cp[r_]);
    }
    block_sync();
    #pragma unroll
    for (int t1_o = 0; t1_o < 16; ++t1_o) {
      float a[2][4];
      #pragma unroll
      for (int ri = 0; ri < 2; ++ri) {
        lds128(a[ri], (a_rd ^ t1_o * 16) + ri * 2048);
      }
      float a1[4][4];
      #pragma unroll
      for (int r = 0; r < 4; ++r) {
        lds128(a1[r], (a1_rd ^ t1_o * 16) + r * 2048);
      }
      #pragma unroll
      for (int t1 = 0; t1 < 4; ++t1) {
        #pragma unroll
        for (int ri = 0; ri < 2; ++ri) {
          #pragma unroll
          for (int r__ = 0; r__ < 4; ++r__) {
            const int r = ri & 1 ? 3 - r__ : r__;
            sum[ri][r] += a[ri][t1] * a1[r][t1];
          }
        }
      }
    }
    long long c[2][4];
    #pragma unroll
    for (int ri = 0; ri < 2; ++ri) {
      #pragma unroll
      for (int r = 0; r < 4; ++r) {
        c[ri][r] = p_o * 16 + ri * 8 + p_w * 4 + p < s && jo * 32 + n * 4 + r < s ? ldg(cumsum_at + ri * 8) : 0LL;
      }
    }
    long long j4[4];
    #pragma unroll
    for (int r = 0; r < 4; ++r) {
      j4[r] = (long long)(jo * 32 + n * 4 + r);
    }
    long long c1[2][4];
    #pragma unroll
    for (int ri = 0; ri < 2; ++ri) {
      #pragma unroll
      for (int r = 0; r < 4; ++r) {
        c1[ri][r] = p_o * 16 + ri * 8 + p_w * 4 + p < s && jo * 32 + n * 4 + r < s ? ldg(cumsum_at2 + r) : 0LL;
      }
    }
    float kept[2][4];
    #pragma unroll
    for (int ri = 0; ri < 2; ++ri) {
      #pragma unroll
      for (int r = 0; r < 4; ++r) {
        kept[ri][r] = j4[r] <= (long long)(p_o * 16 + ri * 8 + p_w * 4 + p) && c[ri][r] == c1[ri][r] ? sum[ri][r] * 0.125f : -DPLC_INF;
      }
    }
    #pragma unroll
    for (int ri = 0; ri < 2; ++ri) {
      if (p_o * 16 + ri * 8 + p_w * 4 + p < s) {
        #pragma unroll
        for (int r = 0; r < 4; ++r) {
          if (jo * 32 + n * 4 + r < s) {
            t[ri][r] = max_nan(t[ri][r], kept[ri][r]);
          }
        }
      }
    }
    float c2[2][4];
    #pragma unroll
    for (int ri = 0; ri < 2; ++ri) {
      #pragma unroll
      for (int r = 0; r < 4; ++r) {
        c2[ri][r] = t[ri][r];
      }
    }
    float c2_all[2];
    #pragma unroll
    for (int ri = 0; ri < 2; ++ri) {
      c2_all[ri] = max_nan(max_nan(c2[ri][0], c2[ri][1]), max_nan(c2[ri][2], c2[ri][3]));
    }
    #pragma unroll
    for (int ri = 0; ri < 2; ++ri) {
      #pragma unroll
      for (int lanes = 4; lanes >= 1; lanes >>= 1) c2_all[ri] = max_nan(c2_all[ri], shfl_xor(c2_all[ri], lanes));
    }
    float top[2];
    #pragma unroll
    for (int ri = 0; ri < 2; ++ri) {
      top[ri] = max_nan(max_nan(m2[ri], c2_all[ri]), -3e+38f);
    }
    float fix[2];
    #pragma unroll
    for (int ri = 0; ri < 2; ++ri) {
      fix[ri] = exp2_approx((m2[ri] - top[ri]) * 1.4426950408889634f);
    }
    #pragma unroll
    for (int ri = 0; ri < 2; ++ri) {
      m2[ri] = max_nan(m2[ri], top[ri]);
    }
    float p1[2][4];
    #pragma unroll
    for (int ri = 0; ri < 2; ++ri) {
      #pragma unroll
      for (int r = 0; r < 4; ++r) {
        p1[ri][r] = exp2_approx((t[ri][r] - top[ri]) * 1.4426950408889634f);
      }
    }
    float total[2][4];
    #pragma unroll
    for (int ri = 0; ri < 2; ++ri) {
      #pragma unroll
      for (int r = 0; r < 4; ++r) {
        total[ri][r] = p1[ri][r];
      }
    }
    float total_all[2];
    #pragma unroll
    for (int ri = 0; ri < 2; ++ri) {
      total_all[ri] = total[ri][0] + total[ri][1] + (total[ri][2] + total[ri][3]);
    }
    #pragma unroll
    for (int ri = 0; ri < 2; ++ri) {
      #pragma unroll
      for (int lanes = 4; lanes >= 1; lanes >>= 1) total_all[ri] += shfl_xor(total_all[ri], lanes);
    }
    #pragma unroll
    for (int ri = 0; ri < 2; ++ri) {
      s2[ri] *= fix[ri];
    }
    #pragma unroll
    for (int ri = 0; ri < 2; ++ri) {
      s2[ri] += total_all[ri];
    }
    #pragma unroll
    for (int eo = 0; eo < 2; ++eo) {
      #pragma unroll
      for (int ri = 0; ri < 2; ++ri) {
        #pragma unroll
        for (int s3 = 0; s3 < 4; ++s3) {
          s1[eo][ri][s3] *= fix[ri];
        }
      }
    }
    #pragma unroll
    for (int ri = 0; ri < 2; ++ri) {
      sts128(weights_wr + ri * 1024, p1[ri]);
    }
    block_sync();
    #pragma unroll
    for (int q_o = 0; q_o < 8; ++q_o) {
      float w[2][4];
      #pragma unroll
      for (int ri = 0; ri < 2; ++ri) {
        lds128(w[ri], (w_rd ^ q_o * 16) + ri * 1024);
      }
      #pragma unroll
      for (int q = 0; q < 4; ++q) {
        float l[2][4];
        #pragma unroll
        for (int eo = 0; eo < 2; ++eo) {
          if (jo * 32 + q_o * 4 + q < s) {
            lds128(l[eo], l_rd + q_o * 1024 + q * 256 + eo * 128);
          } else {
            l[eo][0] = l[eo][1] = l[eo][2] = l[eo][3] = 0.0f;
          }
        }
        #pragma unroll
        for (int eo = 0; eo < 2; ++eo) {
          #pragma unroll
          for (int ri_ = 0; ri_ < 2; ++ri_) {
            const int ri = eo & 1 ? 1 - ri_ : ri_;
            #pragma unroll
            for (int s3_ = 0; s3_ < 4; ++s3_) {
              const int s3 = eo & 1 ? 3 - s3_ : s3_;
              s1[eo][ri][s3] += w[ri][q] * l[eo][s3];
            }
          }
        }
      }
    }
    block_sync();
    add_6_at1 += 8192;
    linear_2_at1 += 8192;
    cumsum_at2 += 32;
  }
  float r1[2];
  #pragma unroll
  for (int ri = 0; ri < 2; ++ri) {
    r1[ri] = rcp_approx(max_nan(s2[ri], 1.0f));
  }
  float scaled_dot_product_attention1[2][2][4];
  #pragma unroll
  for (int eo = 0; eo < 2; ++eo) {
    #pragma unroll
    for (int ri = 0; ri < 2; ++ri) {
      #pragma unroll
      for (int s3 = 0; s3 < 4; ++s3) {
        scaled_dot_product_attention1[eo][ri][s3] = s1[eo][ri][s3] * r1[ri];
      }
    }
  }
  #pragma unroll
  for (int ri = 0; ri < 2; ++ri) {
    if (p_o * 16 + ri * 8 + p_w * 4 + p < s) {
      #pragma unroll
      for (int eo = 0; eo < 2; ++eo) {
        stg128(scaled_dot_product_attention_at + ri * 16384 + eo * 32, scaled_dot_product_attention1[eo][ri]);
      }
    }
  }
}
