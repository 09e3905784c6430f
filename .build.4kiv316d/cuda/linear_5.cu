// rules: tileify chunk_matmul_k blockify_launch stage_inputs unguard register_tile warp_tile spread_rows
//        permute_register_tile double_buffer async_copy permute_stage vector_reduce near_copies xor_smem
//        pipeline_predicated vector_axis snake
// grid 250 x -(-s // 128) x 1, 256 threads, 65536 bytes of shared memory
extern "C" __global__ void __launch_bounds__(256, 1)
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
  const int p_w = tid >> 6;
  const int i4_w = (tid >> 5) & 1;
  const int p = (tid >> 3) & 3;
  const int i4 = tid & 7;
  const uint32_t mul_22_smem = smem;
  const uint32_t mul_22_smem_wr = mul_22_smem + (tid >> 1) * 64 + ((tid & 1) ^ ((tid >> 2) & 1) * 2) * 16;
  const float* mul_22_at = mul_22 + p_o * 262144 + (tid >> 1) * 2048 + (tid & 1) * 4;
  const uint32_t lm_head_weight_smem = smem + 32768;
  const uint32_t lm_head_weight_smem_wr = lm_head_weight_smem + (tid >> 1) * 64 + ((tid & 1) ^ (((tid >> 3) & 1) + ((tid >> 2) & 1) * 2)) * 16;
  const float* lm_head_weight_at = lm_head_weight + i4_o * 262144 + (tid >> 6) * 65536 + ((tid >> 4) & 3) * 2048 + ((tid >> 1) & 7) * 8192 + (tid & 1) * 4;
  const uint32_t m_rd = mul_22_smem + p * 64 + p_w * 256 + (p >> 1) * 32;
  const uint32_t l_rd = lm_head_weight_smem + i4_w * 2048 + i4 * 64 + (i4 >> 2) * 16 + ((i4 >> 1) & 1) * 32;
  float* linear_14_at = linear_14 + p_o * 4096000 + p * 32000 + p_w * 128000 + i4_o * 128 + i4 * 4 + i4_w * 32;
  float sum[8][2][4] = {};
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    cp_async16_zfill(p_o * 128 + (tid >> 1) < s, mul_22_smem_wr ^ c * 32, mul_22_at + c * 8);
  }
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    cp_async16(lm_head_weight_smem_wr ^ c * 32, lm_head_weight_at + c * 8);
  }
  cp_async_commit();
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    cp_async16_zfill(p_o * 128 + (tid >> 1) < s, (mul_22_smem_wr ^ c * 32) + 8192, mul_22_at + c * 8 + 16);
  }
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    cp_async16((lm_head_weight_smem_wr ^ c * 32) + 8192, lm_head_weight_at + c * 8 + 16);
  }
  cp_async_commit();
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    cp_async16_zfill(p_o * 128 + (tid >> 1) < s, (mul_22_smem_wr ^ c * 32) + 16384, mul_22_at + c * 8 + 32);
  }
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    cp_async16((lm_head_weight_smem_wr ^ c * 32) + 16384, lm_head_weight_at + c * 8 + 32);
  }
  cp_async_commit();
  const float* mul_22_at1 = mul_22_at;
  const float* lm_head_weight_at1 = lm_head_weight_at;
  #pragma unroll 1
  for (int w3_o = 0; w3_o < 128; ++w3_o) {
    const int slot = ((w3_o + 3) & 3) * 8192;
    const uint32_t mul_22_smem_wr1 = mul_22_smem_wr + slot;
    const uint32_t lm_head_weight_smem_wr1 = lm_head_weight_smem_wr + slot;
    const int slot1 = (w3_o & 3) * 8192;
    const uint32_t m_rd1 = m_rd + slot1;
    const uint32_t l_rd1 = l_rd + slot1;
    cp_async_wait<2>();
    block_sync();
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      cp_async16_if_zfill(w3_o + 3 < 128, p_o * 128 + (tid >> 1) < s, mul_22_smem_wr1 ^ c * 32, mul_22_at1 + c * 8 + 48);
    }
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      cp_async16_if(w3_o + 3 < 128, lm_head_weight_smem_wr1 ^ c * 32, lm_head_weight_at1 + c * 8 + 48);
    }
    cp_async_commit();
    #pragma unroll
    for (int w3_o1 = 0; w3_o1 < 4; ++w3_o1) {
      float m[8][4];
      #pragma unroll
      for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
        lds128(m[p_r_q_q], (m_rd1 ^ w3_o1 * 16) + p_r_q_q * 1024);
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
    if (p_o * 128 + p + p_r_q_q * 16 + p_w * 4 < s) {
      #pragma unroll
      for (int i4_r_q_q = 0; i4_r_q_q < 2; ++i4_r_q_q) {
        stg128(linear_14_at + p_r_q_q * 512000 + i4_r_q_q * 64, sum[p_r_q_q][i4_r_q_q]);
      }
    }
  }
}
