// rules: join_rows tileify split_rows tile_axes chunk_matmul_k blockify_launch reuse stage_inputs unguard zero_filled
//        register_tile warp_tile spread_rows permute_register_tile double_buffer async_copy share_operand
//        vector_reduce near_copies xor_smem prepare_ahead scalar vector_axis snake residency addresses
// grid -(-s // 128) x 32 x 1, 128 threads, 49152 bytes of shared memory
extern "C" __global__ void __launch_bounds__(128, 2)
scaled_dot_product_attention_mul(
    const float* __restrict__ kept,
    const float* __restrict__ linear_2,
    const float* __restrict__ kept2,
    float* __restrict__ scaled_dot_product_attention,
    const int s) {
  DPLC_DYN_SMEM(float, smem_buf);
  const uint32_t smem = smem_addr(smem_buf);
  const int p_o = blockIdx.x;
  const int i2 = blockIdx.y;
  const int tid = threadIdx.x;
  const int p_w = tid >> 5;
  const int p = (tid >> 3) & 3;
  const int n1 = tid & 7;
  const float* kept2_at = kept2 + p_o * 4096 + p * 32 + p_w * 128 + i2;
  const uint32_t kept_smem = smem;
  const uint32_t kept_smem_wr = kept_smem + (tid >> 4) * 64 + (((tid & 15) >> 2) ^ ((tid >> 5) & 1) * 2) * 16 + (tid & 3) * 4;
  const float* kept_at = kept + p_o * s * 4096 + (tid >> 4) * s * 32 + i2 * s + (tid & 15);
  const uint32_t linear_2_smem = smem + 32768;
  const uint32_t linear_2_smem_wr = linear_2_smem + (tid >> 3) * 256 + (tid & 7) * 16;
  const float* linear_2_at = linear_2 + (tid >> 3) * 256 + (i2 >> 3) * 64 + (tid & 7) * 4;
  const float* linear_2_at1 = linear_2_at + 4096;
  const float* linear_2_at2 = linear_2_at + 8192;
  const uint32_t k2_rd = kept_smem + p * 64 + p_w * 256 + ((n1 >> 2) ^ (p >> 1) * 2) * 16 + (n1 & 3) * 4;
  const uint32_t v_rd = kept_smem + p * 64 + p_w * 256 + (p >> 1) * 32;
  const uint32_t l_rd = linear_2_smem + n1 * 16;
  float* scaled_dot_product_attention_at = scaled_dot_product_attention + p_o * 262144 + p * 2048 + p_w * 8192 + i2 * 64 + n1 * 4;
  float sum3[8] = {};
  float sum2[8][2][4] = {};
  float top[8];
  #pragma unroll
  for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
    top[p_r_q_q] = p_o * 128 + p + p_r_q_q * 16 + p_w * 4 < s ? ldg32(kept2_at + p_r_q_q * 512) : 0.0f;
  }
  #pragma unroll
  for (int r_ = 0; r_ < 16; ++r_) {
    cp_async4_zfill(p_o * 128 + (tid >> 4) + r_ * 8 < s && (tid & 15) < s, kept_smem_wr + r_ * 512, kept_at + r_ * s * 256);
  }
  #pragma unroll
  for (int c_ = 0; c_ < 2; ++c_) {
    cp_async16_zfill(tid >> 3 < s, linear_2_smem_wr + c_ * 128, linear_2_at + c_ * 32);
  }
  cp_async_commit();
  #pragma unroll
  for (int r_ = 0; r_ < 16; ++r_) {
    cp_async4_if_zfill(1 < -(-s >> 4), p_o * 128 + (tid >> 4) + r_ * 8 < s && (tid & 15) + 16 < s, kept_smem_wr + r_ * 512 + 8192, kept_at + r_ * s * 256 + 16);
  }
  #pragma unroll
  for (int c_ = 0; c_ < 2; ++c_) {
    cp_async16_if_zfill(1 < -(-s >> 4), (tid >> 3) + 16 < s, linear_2_smem_wr + c_ * 128 + 4096, linear_2_at1 + c_ * 32);
  }
  cp_async_commit();
  #pragma unroll
  for (int r_ = 0; r_ < 16; ++r_) {
    cp_async4_if_zfill(2 < -(-s >> 4), p_o * 128 + (tid >> 4) + r_ * 8 < s && (tid & 15) + 32 < s, kept_smem_wr + r_ * 512 + 16384, kept_at + r_ * s * 256 + 32);
  }
  #pragma unroll
  for (int c_ = 0; c_ < 2; ++c_) {
    cp_async16_if_zfill(2 < -(-s >> 4), (tid >> 3) + 32 < s, linear_2_smem_wr + c_ * 128 + 8192, linear_2_at2 + c_ * 32);
  }
  cp_async_commit();
  cp_async_wait<2>();
  block_sync();
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    float k2[8];
    #pragma unroll
    for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
      k2[p_r_q_q] = lds32((k2_rd ^ r * 32) + p_r_q_q * 1024);
    }
    const bool at = r * 8 + n1 < s;
    float p41[8];
    #pragma unroll
    for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
      p41[p_r_q_q] = at ? exp2_approx((k2[p_r_q_q] - top[p_r_q_q]) * 1.4426950408889634f) : 0.0f;
    }
    #pragma unroll
    for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
      sum3[p_r_q_q] += p41[p_r_q_q];
    }
    #pragma unroll
    for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
      sts32((k2_rd ^ r * 32) + p_r_q_q * 1024, p41[p_r_q_q]);
    }
  }
  const float* kept_at1 = kept_at;
  const float* linear_2_at3 = linear_2_at + 12288;
  #pragma unroll 1
  for (int q2_o = 0; q2_o < -(-s >> 4); ++q2_o) {
    const int slot = ((q2_o + 3) & 3) * 8192;
    const uint32_t kept_smem_wr1 = kept_smem_wr + slot;
    const int slot1 = ((q2_o + 3) & 3) * 4096;
    const uint32_t linear_2_smem_wr1 = linear_2_smem_wr + slot1;
    const int slot2 = ((q2_o + 1) & 3) * 8192;
    const uint32_t k2_rd1 = k2_rd + slot2;
    const int slot3 = (q2_o & 3) * 8192;
    const uint32_t v_rd1 = v_rd + slot3;
    const int slot4 = (q2_o & 3) * 4096;
    const uint32_t l_rd1 = l_rd + slot4;
    cp_async_wait<1>();
    block_sync();
    #pragma unroll
    for (int r_ = 0; r_ < 16; ++r_) {
      cp_async4_if_zfill(q2_o + 3 < -(-s >> 4), p_o * 128 + (tid >> 4) + r_ * 8 < s && q2_o * 16 + (tid & 15) + 48 < s, kept_smem_wr1 + r_ * 512, kept_at1 + r_ * s * 256 + 48);
    }
    #pragma unroll
    for (int c_ = 0; c_ < 2; ++c_) {
      cp_async16_if_zfill(q2_o + 3 < -(-s >> 4), q2_o * 16 + (tid >> 3) + 48 < s, linear_2_smem_wr1 + c_ * 128, linear_2_at3 + c_ * 32);
    }
    cp_async_commit();
    if (q2_o + 1 < -(-s >> 4)) {
      #pragma unroll
      for (int r = 0; r < 2; ++r) {
        float k21[8];
        #pragma unroll
        for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
          k21[p_r_q_q] = lds32((k2_rd1 ^ r * 32) + p_r_q_q * 1024);
        }
        const bool at1 = q2_o * 16 + r * 8 + n1 + 16 < s;
        float p411[8];
        #pragma unroll
        for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
          p411[p_r_q_q] = at1 ? exp2_approx((k21[p_r_q_q] - top[p_r_q_q]) * 1.4426950408889634f) : 0.0f;
        }
        #pragma unroll
        for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
          sum3[p_r_q_q] += p411[p_r_q_q];
        }
        #pragma unroll
        for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
          sts32((k2_rd1 ^ r * 32) + p_r_q_q * 1024, p411[p_r_q_q]);
        }
      }
    }
    #pragma unroll
    for (int q2_o1 = 0; q2_o1 < 4; ++q2_o1) {
      float v[8][4];
      #pragma unroll
      for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
        lds128(v[p_r_q_q], (v_rd1 ^ q2_o1 * 16) + p_r_q_q * 1024);
      }
      #pragma unroll
      for (int q2 = 0; q2 < 4; ++q2) {
        float l[2][4];
        #pragma unroll
        for (int n1_r_q_q = 0; n1_r_q_q < 2; ++n1_r_q_q) {
          lds128(l[n1_r_q_q], l_rd1 + q2_o1 * 1024 + q2 * 256 + n1_r_q_q * 128);
        }
        #pragma unroll
        for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
          #pragma unroll
          for (int n1_r_q_q_ = 0; n1_r_q_q_ < 2; ++n1_r_q_q_) {
            const int n1_r_q_q = p_r_q_q & 1 ? 1 - n1_r_q_q_ : n1_r_q_q_;
            #pragma unroll
            for (int n1_r_ = 0; n1_r_ < 4; ++n1_r_) {
              const int n1_r = p_r_q_q & 1 ? 3 - n1_r_ : n1_r_;
              sum2[p_r_q_q][n1_r_q_q][n1_r] += v[p_r_q_q][q2] * l[n1_r_q_q][n1_r];
            }
          }
        }
      }
    }
    kept_at1 += 16;
    linear_2_at3 += 4096;
  }
  #pragma unroll
  for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
    #pragma unroll
    for (int lanes = 4; lanes >= 1; lanes >>= 1) sum3[p_r_q_q] += shfl_xor(sum3[p_r_q_q], lanes);
  }
  #pragma unroll
  for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
    if (p_o * 128 + p + p_r_q_q * 16 + p_w * 4 < s) {
      const float r1 = rcp_approx(max_nan(sum3[p_r_q_q], 1.0f));
      #pragma unroll
      for (int n1_r_q_q = 0; n1_r_q_q < 2; ++n1_r_q_q) {
        stg128(scaled_dot_product_attention_at + p_r_q_q * 32768 + n1_r_q_q * 32, float4{
            sum2[p_r_q_q][n1_r_q_q][0] * r1,
            sum2[p_r_q_q][n1_r_q_q][1] * r1,
            sum2[p_r_q_q][n1_r_q_q][2] * r1,
            sum2[p_r_q_q][n1_r_q_q][3] * r1,
        });
      }
    }
  }
}
