// rules: tileify chunk_matmul_k blockify_launch stage_inputs unguard register_tile slice_matmul_k spread_rows
//        permute_register_tile double_buffer async_copy permute_stage vector_reduce xor_smem pipeline_predicated
//        vector_axis snake residency
// grid 250 x -(-s // 16) x 1, 64 threads, 53248 bytes of shared memory
extern "C" __global__ void __launch_bounds__(64, 2)
linear_5(
    const float* __restrict__ mul_22,
    const float* __restrict__ lm_head_weight,
    float* __restrict__ linear_14,
    const int s) {
  DPLC_DYN_SMEM(float, smem_buf);
  const uint32_t smem = smem_addr(smem_buf);
  const int i4_o = blockIdx.x;
  const int p_o = blockIdx.y;
  const int tid = threadIdx.x;
  const int w = tid >> 5;
  const int p = (tid >> 4) & 1;
  const int i4 = tid & 15;
  const uint32_t mul_22_smem = smem;
  const uint32_t mul_22_smem_wr = mul_22_smem + tid * 16;
  const float* mul_22_at = mul_22 + p_o * 32768 + (tid >> 2) * 2048 + (tid & 3) * 4;
  const uint32_t lm_head_weight_smem = smem + 4096;
  const uint32_t lm_head_weight_smem_wr = lm_head_weight_smem + (tid >> 2) * 64 + ((tid & 3) ^ (((tid >> 3) & 1) + ((tid >> 4) & 1) * 2)) * 16;
  const float* lm_head_weight_at = lm_head_weight + i4_o * 262144 + ((tid >> 2) & 7) * 8192 + (tid & 3) * 4;
  const uint32_t m_rd = mul_22_smem + p * 64 + w * 32;
  const uint32_t l_rd = lm_head_weight_smem + w * 32;
  const uint32_t sum_x = smem + 36864;
  const uint32_t sum_put = sum_x + w * 512 + (tid & 31) * 16;
  const uint32_t sum_get = sum_x + (tid & 31) * 16;
  float* linear_14_at = linear_14 + p_o * 512000 + p * 32000 + i4_o * 128 + i4 * 4;
  float sum[8][2][4] = {};
  cp_async16_zfill(p_o * 16 + (tid >> 2) < s, mul_22_smem_wr, mul_22_at);
  #pragma unroll
  for (int r = 0; r < 8; ++r) {
    cp_async16(lm_head_weight_smem_wr + r * 1024, lm_head_weight_at + (((tid >> 2) + r * 16) >> 5) * 65536 + ((r * 2 + (tid >> 5)) & 3) * 2048);
  }
  cp_async_commit();
  cp_async16_zfill(p_o * 16 + (tid >> 2) < s, mul_22_smem_wr + 1024, mul_22_at + 16);
  #pragma unroll
  for (int r = 0; r < 8; ++r) {
    cp_async16(lm_head_weight_smem_wr + r * 1024 + 8192, lm_head_weight_at + (((tid >> 2) + r * 16) >> 5) * 65536 + ((r * 2 + (tid >> 5)) & 3) * 2048 + 16);
  }
  cp_async_commit();
  cp_async16_zfill(p_o * 16 + (tid >> 2) < s, mul_22_smem_wr + 2048, mul_22_at + 32);
  #pragma unroll
  for (int r = 0; r < 8; ++r) {
    cp_async16(lm_head_weight_smem_wr + r * 1024 + 16384, lm_head_weight_at + (((tid >> 2) + r * 16) >> 5) * 65536 + ((r * 2 + (tid >> 5)) & 3) * 2048 + 32);
  }
  cp_async_commit();
  const float* mul_22_at1 = mul_22_at;
  const float* lm_head_weight_at1 = lm_head_weight_at;
  #pragma unroll 1
  for (int w3_o = 0; w3_o < 128; ++w3_o) {
    const int slot = ((w3_o + 3) & 3) * 1024;
    const uint32_t mul_22_smem_wr1 = mul_22_smem_wr + slot;
    const int slot1 = ((w3_o + 3) & 3) * 8192;
    const uint32_t lm_head_weight_smem_wr1 = lm_head_weight_smem_wr + slot1;
    const int slot2 = (w3_o & 3) * 1024;
    const uint32_t m_rd1 = m_rd + slot2;
    const int slot3 = (w3_o & 3) * 8192;
    const uint32_t l_rd1 = l_rd + slot3;
    cp_async_wait<2>();
    block_sync();
    cp_async16_if_zfill(w3_o + 3 < 128, p_o * 16 + (tid >> 2) < s, mul_22_smem_wr1, mul_22_at1 + 48);
    #pragma unroll
    for (int r = 0; r < 8; ++r) {
      cp_async16_if(w3_o + 3 < 128, lm_head_weight_smem_wr1 + r * 1024, lm_head_weight_at1 + (((tid >> 2) + r * 16) >> 5) * 65536 + ((r * 2 + (tid >> 5)) & 3) * 2048 + 48);
    }
    cp_async_commit();
    #pragma unroll
    for (int w3_o1 = 0; w3_o1 < 2; ++w3_o1) {
      float m[8][4];
      #pragma unroll
      for (int p_r_q = 0; p_r_q < 8; ++p_r_q) {
        lds128(m[p_r_q], m_rd1 + p_r_q * 128 + w3_o1 * 16);
      }
      float l[2][4][4];
      #pragma unroll
      for (int i4_r_q = 0; i4_r_q < 2; ++i4_r_q) {
        #pragma unroll
        for (int i4_r = 0; i4_r < 4; ++i4_r) {
          lds128(l[i4_r_q][i4_r], (l_rd1 ^ (w3_o1 ^ (((i4 * 4 + i4_r) & 31) >> 3)) * 16) + i4_r_q * 4096 + ((i4 * 4 + i4_r) >> 5) * 2048 + i4_r * 512 + (((i4 * 4 + i4_r) & 31) >> 2) * 64);
        }
      }
      #pragma unroll
      for (int w3 = 0; w3 < 4; ++w3) {
        #pragma unroll
        for (int p_r_q = 0; p_r_q < 8; ++p_r_q) {
          #pragma unroll
          for (int i4_r_q_ = 0; i4_r_q_ < 2; ++i4_r_q_) {
            const int i4_r_q = p_r_q & 1 ? 1 - i4_r_q_ : i4_r_q_;
            #pragma unroll
            for (int i4_r_ = 0; i4_r_ < 4; ++i4_r_) {
              const int i4_r = p_r_q & 1 ? 3 - i4_r_ : i4_r_;
              sum[p_r_q][i4_r_q][i4_r] += m[p_r_q][w3] * l[i4_r_q][i4_r][w3];
            }
          }
        }
      }
    }
    mul_22_at1 += 16;
    lm_head_weight_at1 += 16;
  }
  #pragma unroll
  for (int p_r_q = 0; p_r_q < 8; ++p_r_q) {
    #pragma unroll
    for (int i4_r_q = 0; i4_r_q < 2; ++i4_r_q) {
      sts128(sum_put + p_r_q * 2048 + i4_r_q * 1024, sum[p_r_q][i4_r_q]);
    }
  }
  block_sync();
  #pragma unroll
  for (int p_r_q = 0; p_r_q < 8; ++p_r_q) {
    #pragma unroll
    for (int i4_r_q = 0; i4_r_q < 2; ++i4_r_q) {
      float sum_part[2][4];
      lds128(sum_part[0], sum_get + p_r_q * 2048 + i4_r_q * 1024);
      lds128(sum_part[1], sum_get + p_r_q * 2048 + i4_r_q * 1024 + 512);
      sum[p_r_q][i4_r_q][0] = sum_part[0][0] + sum_part[1][0];
      sum[p_r_q][i4_r_q][1] = sum_part[0][1] + sum_part[1][1];
      sum[p_r_q][i4_r_q][2] = sum_part[0][2] + sum_part[1][2];
      sum[p_r_q][i4_r_q][3] = sum_part[0][3] + sum_part[1][3];
    }
  }
  if (w < 1) {
    #pragma unroll
    for (int p_r_q = 0; p_r_q < 8; ++p_r_q) {
      if (p_o * 16 + p_r_q * 2 + p < s) {
        #pragma unroll
        for (int i4_r_q = 0; i4_r_q < 2; ++i4_r_q) {
          stg128(linear_14_at + p_r_q * 64000 + i4_r_q * 64, sum[p_r_q][i4_r_q]);
        }
      }
    }
  }
}
