// rules: tileify chunk_matmul_k split_matmul_k blockify_launch stage_inputs drop_zero_guard unguard register_tile
//        warp_tile slice_matmul_k spread_rows permute_register_tile double_buffer async_copy permute_stage
//        vector_reduce near_copies xor_smem pipeline_predicated vector_axis snake
// grid 16 x -(-s // 32) x 6, 256 threads, 106496 bytes of shared memory
extern "C" __global__ void __launch_bounds__(256, 1)
add_linear_partial(
    const float* __restrict__ add_7,
    const float* __restrict__ mul_11,
    const float* __restrict__ model_layers_0_mlp_down_proj_weight,
    float* __restrict__ part3,
    const int s) {
  DPLC_DYN_SMEM(float, smem_buf);
  const uint32_t smem = smem_addr(smem_buf);
  const int n2_o = blockIdx.x;
  const int p_o = blockIdx.y;
  const int s7 = blockIdx.z;
  const int tid = threadIdx.x;
  const int w = tid >> 6;
  const int n2_w = (tid >> 5) & 1;
  const int p = (tid >> 3) & 3;
  const int n2 = tid & 7;
  const uint32_t mul_11_smem = smem;
  const uint32_t mul_11_smem_wr = mul_11_smem + (tid >> 3) * 128 + ((tid & 7) ^ ((tid >> 3) & 1)) * 16;
  const float* mul_11_at = mul_11 + p_o * 180224 + (tid >> 3) * 5632 + s7 * 960 + (tid & 7) * 4;
  const uint32_t model_layers_0_mlp_down_proj_weight_smem = smem + 8192;
  const uint32_t model_layers_0_mlp_down_proj_weight_smem_wr = model_layers_0_mlp_down_proj_weight_smem + (tid >> 1) * 128 + ((tid & 1) ^ (((tid >> 3) & 1) + ((tid >> 1) & 1) * 2 + ((tid >> 2) & 1) * 4)) * 16;
  const float* model_layers_0_mlp_down_proj_weight_at = model_layers_0_mlp_down_proj_weight + n2_o * 720896 + (tid >> 6) * 180224 + ((tid >> 4) & 3) * 5632 + ((tid >> 1) & 7) * 22528 + s7 * 960 + (tid & 1) * 4;
  const uint32_t m_rd = mul_11_smem + p * 128 + (w * 2 ^ (p & 1)) * 16;
  const uint32_t m1_rd = model_layers_0_mlp_down_proj_weight_smem + n2_w * 4096 + n2 * 128 + (w * 2 ^ ((n2 >> 2) + (n2 & 1) * 2 + ((n2 >> 1) & 1) * 4)) * 16;
  const uint32_t linear_6_x = smem + 40960;
  const uint32_t linear_6_put = linear_6_x + w * 1024 + (tid & 63) * 16;
  const uint32_t linear_6_get = linear_6_x + (tid & 63) * 16;
  float* part3_at = part3 + s7 * s * 2048 + p_o * 65536 + p * 2048 + n2_o * 128 + n2 * 4 + n2_w * 32;
  float linear_6[8][2][4] = {};
  cp_async16_zfill(p_o * 32 + (tid >> 3) < s, mul_11_smem_wr, mul_11_at);
  #pragma unroll
  for (int c = 0; c < 4; ++c) {
    cp_async16(model_layers_0_mlp_down_proj_weight_smem_wr ^ c * 32, model_layers_0_mlp_down_proj_weight_at + c * 8);
  }
  cp_async_commit();
  const float* mul_11_at1 = mul_11_at;
  const float* model_layers_0_mlp_down_proj_weight_at1 = model_layers_0_mlp_down_proj_weight_at;
  #pragma unroll 1
  for (int m2_o = 0; m2_o < 30; ++m2_o) {
    const int slot = ((m2_o + 1) & 1) * 4096;
    const uint32_t mul_11_smem_wr1 = mul_11_smem_wr + slot;
    const int slot1 = ((m2_o + 1) & 1) * 16384;
    const uint32_t model_layers_0_mlp_down_proj_weight_smem_wr1 = model_layers_0_mlp_down_proj_weight_smem_wr + slot1;
    const int slot2 = (m2_o & 1) * 4096;
    const uint32_t m_rd1 = m_rd + slot2;
    const int slot3 = (m2_o & 1) * 16384;
    const uint32_t m1_rd1 = m1_rd + slot3;
    cp_async_wait<0>();
    block_sync();
    cp_async16_if_zfill(m2_o + 1 < 30, p_o * 32 + (tid >> 3) < s && s7 * 30 + m2_o + 1 < 176, mul_11_smem_wr1, mul_11_at1 + 32);
    #pragma unroll
    for (int c = 0; c < 4; ++c) {
      cp_async16_if_zfill(m2_o + 1 < 30, s7 * 30 + m2_o + 1 < 176, model_layers_0_mlp_down_proj_weight_smem_wr1 ^ c * 32, model_layers_0_mlp_down_proj_weight_at1 + c * 8 + 32);
    }
    cp_async_commit();
    #pragma unroll
    for (int m2_o1 = 0; m2_o1 < 2; ++m2_o1) {
      float m[8][4];
      #pragma unroll
      for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
        lds128(m[p_r_q_q], (m_rd1 ^ m2_o1 * 16) + p_r_q_q * 512);
      }
      float m1[2][4][4];
      #pragma unroll
      for (int n2_r_q_q = 0; n2_r_q_q < 2; ++n2_r_q_q) {
        #pragma unroll
        for (int n2_r = 0; n2_r < 4; ++n2_r) {
          lds128(m1[n2_r_q_q][n2_r], (m1_rd1 ^ m2_o1 * 16) + n2_r_q_q * 8192 + n2_r * 1024);
        }
      }
      #pragma unroll
      for (int m2 = 0; m2 < 4; ++m2) {
        #pragma unroll
        for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
          #pragma unroll
          for (int n2_r_q_q_ = 0; n2_r_q_q_ < 2; ++n2_r_q_q_) {
            const int n2_r_q_q = p_r_q_q & 1 ? 1 - n2_r_q_q_ : n2_r_q_q_;
            #pragma unroll
            for (int n2_r_ = 0; n2_r_ < 4; ++n2_r_) {
              const int n2_r = p_r_q_q & 1 ? 3 - n2_r_ : n2_r_;
              linear_6[p_r_q_q][n2_r_q_q][n2_r] += m[p_r_q_q][m2] * m1[n2_r_q_q][n2_r][m2];
            }
          }
        }
      }
    }
    mul_11_at1 += 32;
    model_layers_0_mlp_down_proj_weight_at1 += 32;
  }
  #pragma unroll
  for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
    #pragma unroll
    for (int n2_r_q_q = 0; n2_r_q_q < 2; ++n2_r_q_q) {
      sts128(linear_6_put + p_r_q_q * 8192 + n2_r_q_q * 4096, linear_6[p_r_q_q][n2_r_q_q]);
    }
  }
  block_sync();
  #pragma unroll
  for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
    #pragma unroll
    for (int n2_r_q_q = 0; n2_r_q_q < 2; ++n2_r_q_q) {
      float linear_6_part[4][4];
      lds128(linear_6_part[0], linear_6_get + p_r_q_q * 8192 + n2_r_q_q * 4096);
      lds128(linear_6_part[1], linear_6_get + p_r_q_q * 8192 + n2_r_q_q * 4096 + 1024);
      lds128(linear_6_part[2], linear_6_get + p_r_q_q * 8192 + n2_r_q_q * 4096 + 2048);
      lds128(linear_6_part[3], linear_6_get + p_r_q_q * 8192 + n2_r_q_q * 4096 + 3072);
      linear_6[p_r_q_q][n2_r_q_q][0] = linear_6_part[0][0] + linear_6_part[1][0] + (linear_6_part[2][0] + linear_6_part[3][0]);
      linear_6[p_r_q_q][n2_r_q_q][1] = linear_6_part[0][1] + linear_6_part[1][1] + (linear_6_part[2][1] + linear_6_part[3][1]);
      linear_6[p_r_q_q][n2_r_q_q][2] = linear_6_part[0][2] + linear_6_part[1][2] + (linear_6_part[2][2] + linear_6_part[3][2]);
      linear_6[p_r_q_q][n2_r_q_q][3] = linear_6_part[0][3] + linear_6_part[1][3] + (linear_6_part[2][3] + linear_6_part[3][3]);
    }
  }
  if (w < 1) {
    #pragma unroll
    for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
      if (p_o * 32 + p + p_r_q_q * 4 < s) {
        #pragma unroll
        for (int n2_r_q_q = 0; n2_r_q_q < 2; ++n2_r_q_q) {
          stg128(part3_at + p_r_q_q * 8192 + n2_r_q_q * 64, linear_6[p_r_q_q][n2_r_q_q]);
        }
      }
    }
  }
}
