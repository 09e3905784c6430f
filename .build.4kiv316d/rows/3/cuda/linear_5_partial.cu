// rules: tileify chunk_matmul_k split_matmul_k blockify_launch stage_inputs drop_zero_guard unguard register_tile
//        warp_tile slice_matmul_k spread_rows permute_register_tile double_buffer async_copy permute_stage
//        vector_reduce near_copies xor_smem pipeline_predicated vector_axis snake residency
// grid 250 x -(-s // 32) x 3, 128 threads, 73728 bytes of shared memory
extern "C" __global__ void __launch_bounds__(128, 2)
linear_5_partial(
    const float* __restrict__ mul_22,
    const float* __restrict__ lm_head_weight,
    float* __restrict__ part5,
    const int s) {
  DPLC_DYN_SMEM(float, smem_buf);
  const uint32_t smem = smem_addr(smem_buf);
  const int i4_o = blockIdx.x;
  const int p_o = blockIdx.y;
  const int s9 = blockIdx.z;
  const int tid = threadIdx.x;
  const int w = tid >> 6;
  const int i4_w = (tid >> 5) & 1;
  const int p = (tid >> 3) & 3;
  const int i4 = tid & 7;
  const uint32_t mul_22_smem = smem;
  const uint32_t mul_22_smem_wr = mul_22_smem + tid * 16;
  const float* mul_22_at = mul_22 + p_o * 65536 + (tid >> 2) * 2048 + s9 * 688 + (tid & 3) * 4;
  const uint32_t lm_head_weight_smem = smem + 8192;
  const uint32_t lm_head_weight_smem_wr = lm_head_weight_smem + (tid >> 1) * 64 + ((tid & 1) ^ (((tid >> 3) & 1) + ((tid >> 2) & 1) * 2)) * 16;
  const float* lm_head_weight_at = lm_head_weight + i4_o * 262144 + (tid >> 6) * 65536 + ((tid >> 4) & 3) * 2048 + ((tid >> 1) & 7) * 8192 + s9 * 688 + (tid & 1) * 4;
  const uint32_t m_rd = mul_22_smem + p * 64 + w * 32;
  const uint32_t l_rd = lm_head_weight_smem + i4_w * 2048 + i4 * 64 + (w * 2 ^ ((i4 >> 2) + ((i4 >> 1) & 1) * 2)) * 16;
  const uint32_t sum_x = smem + 40960;
  const uint32_t sum_put = sum_x + w * 1024 + (tid & 63) * 16;
  const uint32_t sum_get = sum_x + (tid & 63) * 16;
  float* part5_at = part5 + s9 * s * 32000 + p_o * 1024000 + p * 32000 + i4_o * 128 + i4 * 4 + i4_w * 32;
  float sum[8][2][4] = {};
  cp_async16_zfill(p_o * 32 + (tid >> 2) < s, mul_22_smem_wr, mul_22_at);
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      cp_async16((lm_head_weight_smem_wr ^ c * 32) + r * 4096, lm_head_weight_at + r * 131072 + c * 8);
    }
  }
  cp_async_commit();
  cp_async16_zfill(p_o * 32 + (tid >> 2) < s, mul_22_smem_wr + 2048, mul_22_at + 16);
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      cp_async16((lm_head_weight_smem_wr ^ c * 32) + r * 4096 + 8192, lm_head_weight_at + r * 131072 + c * 8 + 16);
    }
  }
  cp_async_commit();
  cp_async16_zfill(p_o * 32 + (tid >> 2) < s, mul_22_smem_wr + 4096, mul_22_at + 32);
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      cp_async16((lm_head_weight_smem_wr ^ c * 32) + r * 4096 + 16384, lm_head_weight_at + r * 131072 + c * 8 + 32);
    }
  }
  cp_async_commit();
  const float* mul_22_at1 = mul_22_at;
  const float* lm_head_weight_at1 = lm_head_weight_at;
  #pragma unroll 1
  for (int w3_o = 0; w3_o < 43; ++w3_o) {
    const int slot = ((w3_o + 3) & 3) * 2048;
    const uint32_t mul_22_smem_wr1 = mul_22_smem_wr + slot;
    const int slot1 = ((w3_o + 3) & 3) * 8192;
    const uint32_t lm_head_weight_smem_wr1 = lm_head_weight_smem_wr + slot1;
    const int slot2 = (w3_o & 3) * 2048;
    const uint32_t m_rd1 = m_rd + slot2;
    const int slot3 = (w3_o & 3) * 8192;
    const uint32_t l_rd1 = l_rd + slot3;
    cp_async_wait<2>();
    block_sync();
    cp_async16_if_zfill(w3_o + 3 < 43, p_o * 32 + (tid >> 2) < s && s9 * 43 + w3_o + 3 < 128, mul_22_smem_wr1, mul_22_at1 + 48);
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
      #pragma unroll
      for (int c = 0; c < 2; ++c) {
        cp_async16_if_zfill(w3_o + 3 < 43, s9 * 43 + w3_o + 3 < 128, (lm_head_weight_smem_wr1 ^ c * 32) + r * 4096, lm_head_weight_at1 + r * 131072 + c * 8 + 48);
      }
    }
    cp_async_commit();
    #pragma unroll
    for (int w3_o1 = 0; w3_o1 < 2; ++w3_o1) {
      float m[8][4];
      #pragma unroll
      for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
        lds128(m[p_r_q_q], m_rd1 + p_r_q_q * 256 + w3_o1 * 16);
      }
      float l[2][4][4];
      #pragma unroll
      for (int i4_r_q_q = 0; i4_r_q_q < 2; ++i4_r_q_q) {
        #pragma unroll
        for (int i4_r = 0; i4_r < 4; ++i4_r) {
          lds128(l[i4_r_q_q][i4_r], (l_rd1 ^ w3_o1 * 16) + i4_r_q_q * 4096 + i4_r * 512);
        }
      }
      #pragma unroll
      for (int w3 = 0; w3 < 4; ++w3) {
        #pragma unroll
        for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
          #pragma unroll
          for (int i4_r_q_q_ = 0; i4_r_q_q_ < 2; ++i4_r_q_q_) {
            const int i4_r_q_q = p_r_q_q & 1 ? 1 - i4_r_q_q_ : i4_r_q_q_;
            #pragma unroll
            for (int i4_r_ = 0; i4_r_ < 4; ++i4_r_) {
              const int i4_r = p_r_q_q & 1 ? 3 - i4_r_ : i4_r_;
              sum[p_r_q_q][i4_r_q_q][i4_r] += m[p_r_q_q][w3] * l[i4_r_q_q][i4_r][w3];
            }
          }
        }
      }
    }
    mul_22_at1 += 16;
    lm_head_weight_at1 += 16;
  }
  #pragma unroll
  for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
    #pragma unroll
    for (int i4_r_q_q = 0; i4_r_q_q < 2; ++i4_r_q_q) {
      sts128(sum_put + p_r_q_q * 4096 + i4_r_q_q * 2048, sum[p_r_q_q][i4_r_q_q]);
    }
  }
  block_sync();
  #pragma unroll
  for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
    #pragma unroll
    for (int i4_r_q_q = 0; i4_r_q_q < 2; ++i4_r_q_q) {
      float sum_part[2][4];
      lds128(sum_part[0], sum_get + p_r_q_q * 4096 + i4_r_q_q * 2048);
      lds128(sum_part[1], sum_get + p_r_q_q * 4096 + i4_r_q_q * 2048 + 1024);
      sum[p_r_q_q][i4_r_q_q][0] = sum_part[0][0] + sum_part[1][0];
      sum[p_r_q_q][i4_r_q_q][1] = sum_part[0][1] + sum_part[1][1];
      sum[p_r_q_q][i4_r_q_q][2] = sum_part[0][2] + sum_part[1][2];
      sum[p_r_q_q][i4_r_q_q][3] = sum_part[0][3] + sum_part[1][3];
    }
  }
  if (w < 1) {
    #pragma unroll
    for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
      if (p_o * 32 + p + p_r_q_q * 4 < s) {
        #pragma unroll
        for (int i4_r_q_q = 0; i4_r_q_q < 2; ++i4_r_q_q) {
          stg128(part5_at + p_r_q_q * 128000 + i4_r_q_q * 64, sum[p_r_q_q][i4_r_q_q]);
        }
      }
    }
  }
}
