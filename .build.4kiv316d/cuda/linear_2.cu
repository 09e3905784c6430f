// rules: tileify chunk_matmul_k blockify_launch stage_inputs unguard register_tile slice_matmul_k spread_rows
//        double_buffer async_copy permute_stage vector_reduce near_copies xor_smem pipeline_predicated vector_axis
//        snake residency
// grid 8 x -(-s // 32) x 1, 64 threads, 40960 bytes of shared memory
extern "C" __global__ void __launch_bounds__(64, 2)
linear_2(
    const float* __restrict__ mul_4,
    const float* __restrict__ model_layers_0_self_attn_k_proj_weight,
    const float* __restrict__ model_layers_0_self_attn_v_proj_weight,
    float* __restrict__ linear_1,
    float* __restrict__ linear_2,
    const int s) {
  DPLC_DYN_SMEM(float, smem_buf);
  const uint32_t smem = smem_addr(smem_buf);
  const int i1_o = blockIdx.x;
  const int k_o = blockIdx.y;
  const int tid = threadIdx.x;
  const int w = tid >> 5;
  const int k = (tid >> 3) & 3;
  const int i1 = tid & 7;
  const uint32_t mul_4_smem = smem;
  const uint32_t mul_4_smem_wr = mul_4_smem + (tid >> 1) * 64 + ((tid & 1) ^ ((tid >> 2) & 1) * 2) * 16;
  const float* mul_4_at = mul_4 + k_o * 65536 + (tid >> 1) * 2048 + (tid & 1) * 4;
  const uint32_t model_layers_0_self_attn_k_proj_weight_smem = smem + 8192;
  const uint32_t model_layers_0_self_attn_k_proj_weight_smem_wr = model_layers_0_self_attn_k_proj_weight_smem + (tid >> 1) * 64 + ((tid & 1) ^ (((tid >> 3) & 1) + ((tid >> 2) & 1) * 2)) * 16;
  const float* model_layers_0_self_attn_k_proj_weight_at = model_layers_0_self_attn_k_proj_weight + i1_o * 65536 + (tid >> 4) * 2048 + ((tid >> 1) & 7) * 8192 + (tid & 1) * 4;
  const uint32_t model_layers_0_self_attn_v_proj_weight_smem = smem + 16384;
  const uint32_t model_layers_0_self_attn_v_proj_weight_smem_wr = model_layers_0_self_attn_v_proj_weight_smem + (tid >> 1) * 64 + ((tid & 1) ^ (((tid >> 3) & 1) + ((tid >> 2) & 1) * 2)) * 16;
  const float* model_layers_0_self_attn_v_proj_weight_at = model_layers_0_self_attn_v_proj_weight + i1_o * 65536 + (tid >> 4) * 2048 + ((tid >> 1) & 7) * 8192 + (tid & 1) * 4;
  const uint32_t m_rd = mul_4_smem + k * 64 + (w * 2 ^ (k >> 1) * 2) * 16;
  const uint32_t m1_rd = model_layers_0_self_attn_k_proj_weight_smem + i1 * 64 + (w * 2 ^ ((i1 >> 2) + ((i1 >> 1) & 1) * 2)) * 16;
  const uint32_t m2_rd = model_layers_0_self_attn_v_proj_weight_smem + i1 * 64 + (w * 2 ^ ((i1 >> 2) + ((i1 >> 1) & 1) * 2)) * 16;
  const uint32_t linear_11_x = smem + 24576;
  const uint32_t linear_11_put = linear_11_x + w * 512 + (tid & 31) * 16;
  const uint32_t linear_11_get = linear_11_x + (tid & 31) * 16;
  const uint32_t linear_21_x = smem + 32768;
  const uint32_t linear_21_put = linear_21_x + w * 512 + (tid & 31) * 16;
  const uint32_t linear_21_get = linear_21_x + (tid & 31) * 16;
  float* linear_1_at = linear_1 + k_o * 8192 + k * 256 + i1_o * 32 + i1 * 4;
  float* linear_2_at = linear_2 + k_o * 8192 + k * 256 + i1_o * 32 + i1 * 4;
  float linear_11[8][4] = {};
  float linear_21[8][4] = {};
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    cp_async16_zfill(k_o * 32 + (tid >> 1) < s, mul_4_smem_wr ^ c * 32, mul_4_at + c * 8);
  }
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    cp_async16(model_layers_0_self_attn_k_proj_weight_smem_wr ^ c * 32, model_layers_0_self_attn_k_proj_weight_at + c * 8);
  }
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    cp_async16(model_layers_0_self_attn_v_proj_weight_smem_wr ^ c * 32, model_layers_0_self_attn_v_proj_weight_at + c * 8);
  }
  cp_async_commit();
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    cp_async16_zfill(k_o * 32 + (tid >> 1) < s, (mul_4_smem_wr ^ c * 32) + 2048, mul_4_at + c * 8 + 16);
  }
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    cp_async16((model_layers_0_self_attn_k_proj_weight_smem_wr ^ c * 32) + 2048, model_layers_0_self_attn_k_proj_weight_at + c * 8 + 16);
  }
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    cp_async16((model_layers_0_self_attn_v_proj_weight_smem_wr ^ c * 32) + 2048, model_layers_0_self_attn_v_proj_weight_at + c * 8 + 16);
  }
  cp_async_commit();
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    cp_async16_zfill(k_o * 32 + (tid >> 1) < s, (mul_4_smem_wr ^ c * 32) + 4096, mul_4_at + c * 8 + 32);
  }
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    cp_async16((model_layers_0_self_attn_k_proj_weight_smem_wr ^ c * 32) + 4096, model_layers_0_self_attn_k_proj_weight_at + c * 8 + 32);
  }
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    cp_async16((model_layers_0_self_attn_v_proj_weight_smem_wr ^ c * 32) + 4096, model_layers_0_self_attn_v_proj_weight_at + c * 8 + 32);
  }
  cp_async_commit();
  const float* mul_4_at1 = mul_4_at;
  const float* model_layers_0_self_attn_k_proj_weight_at1 = model_layers_0_self_attn_k_proj_weight_at;
  const float* model_layers_0_self_attn_v_proj_weight_at1 = model_layers_0_self_attn_v_proj_weight_at;
  #pragma unroll 1
  for (int j_o = 0; j_o < 128; ++j_o) {
    const int slot = ((j_o + 3) & 3) * 2048;
    const uint32_t mul_4_smem_wr1 = mul_4_smem_wr + slot;
    const uint32_t model_layers_0_self_attn_k_proj_weight_smem_wr1 = model_layers_0_self_attn_k_proj_weight_smem_wr + slot;
    const uint32_t model_layers_0_self_attn_v_proj_weight_smem_wr1 = model_layers_0_self_attn_v_proj_weight_smem_wr + slot;
    const int slot1 = (j_o & 3) * 2048;
    const uint32_t m_rd1 = m_rd + slot1;
    const uint32_t m1_rd1 = m1_rd + slot1;
    const uint32_t m2_rd1 = m2_rd + slot1;
    cp_async_wait<2>();
    block_sync();
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      cp_async16_if_zfill(j_o + 3 < 128, k_o * 32 + (tid >> 1) < s, mul_4_smem_wr1 ^ c * 32, mul_4_at1 + c * 8 + 48);
    }
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      cp_async16_if(j_o + 3 < 128, model_layers_0_self_attn_k_proj_weight_smem_wr1 ^ c * 32, model_layers_0_self_attn_k_proj_weight_at1 + c * 8 + 48);
    }
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      cp_async16_if(j_o + 3 < 128, model_layers_0_self_attn_v_proj_weight_smem_wr1 ^ c * 32, model_layers_0_self_attn_v_proj_weight_at1 + c * 8 + 48);
    }
    cp_async_commit();
    #pragma unroll
    for (int j_o1 = 0; j_o1 < 2; ++j_o1) {
      float m[8][4];
      #pragma unroll
      for (int k_r_q = 0; k_r_q < 8; ++k_r_q) {
        lds128(m[k_r_q], (m_rd1 ^ j_o1 * 16) + k_r_q * 256);
      }
      float m1[4][4];
      #pragma unroll
      for (int i1_r = 0; i1_r < 4; ++i1_r) {
        lds128(m1[i1_r], (m1_rd1 ^ j_o1 * 16) + i1_r * 512);
      }
      float m2[4][4];
      #pragma unroll
      for (int i1_r = 0; i1_r < 4; ++i1_r) {
        lds128(m2[i1_r], (m2_rd1 ^ j_o1 * 16) + i1_r * 512);
      }
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        #pragma unroll
        for (int k_r_q = 0; k_r_q < 8; ++k_r_q) {
          #pragma unroll
          for (int i1_r_ = 0; i1_r_ < 4; ++i1_r_) {
            const int i1_r = k_r_q & 1 ? 3 - i1_r_ : i1_r_;
            linear_11[k_r_q][i1_r] += m[k_r_q][j] * m1[i1_r][j];
          }
        }
        #pragma unroll
        for (int k_r_q = 0; k_r_q < 8; ++k_r_q) {
          #pragma unroll
          for (int i1_r_ = 0; i1_r_ < 4; ++i1_r_) {
            const int i1_r = k_r_q & 1 ? 3 - i1_r_ : i1_r_;
            linear_21[k_r_q][i1_r] += m[k_r_q][j] * m2[i1_r][j];
          }
        }
      }
    }
    mul_4_at1 += 16;
    model_layers_0_self_attn_k_proj_weight_at1 += 16;
    model_layers_0_self_attn_v_proj_weight_at1 += 16;
  }
  #pragma unroll
  for (int k_r_q = 0; k_r_q < 8; ++k_r_q) {
    sts128(linear_11_put + k_r_q * 1024, linear_11[k_r_q]);
  }
  block_sync();
  #pragma unroll
  for (int k_r_q = 0; k_r_q < 8; ++k_r_q) {
    float linear_11_part[2][4];
    lds128(linear_11_part[0], linear_11_get + k_r_q * 1024);
    lds128(linear_11_part[1], linear_11_get + k_r_q * 1024 + 512);
    linear_11[k_r_q][0] = linear_11_part[0][0] + linear_11_part[1][0];
    linear_11[k_r_q][1] = linear_11_part[0][1] + linear_11_part[1][1];
    linear_11[k_r_q][2] = linear_11_part[0][2] + linear_11_part[1][2];
    linear_11[k_r_q][3] = linear_11_part[0][3] + linear_11_part[1][3];
  }
  #pragma unroll
  for (int k_r_q = 0; k_r_q < 8; ++k_r_q) {
    sts128(linear_21_put + k_r_q * 1024, linear_21[k_r_q]);
  }
  block_sync();
  #pragma unroll
  for (int k_r_q = 0; k_r_q < 8; ++k_r_q) {
    float linear_21_part[2][4];
    lds128(linear_21_part[0], linear_21_get + k_r_q * 1024);
    lds128(linear_21_part[1], linear_21_get + k_r_q * 1024 + 512);
    linear_21[k_r_q][0] = linear_21_part[0][0] + linear_21_part[1][0];
    linear_21[k_r_q][1] = linear_21_part[0][1] + linear_21_part[1][1];
    linear_21[k_r_q][2] = linear_21_part[0][2] + linear_21_part[1][2];
    linear_21[k_r_q][3] = linear_21_part[0][3] + linear_21_part[1][3];
  }
  if (w < 1) {
    #pragma unroll
    for (int k_r_q = 0; k_r_q < 8; ++k_r_q) {
      if (k_o * 32 + k_r_q * 4 + k < s) {
        stg128(linear_1_at + k_r_q * 1024, linear_11[k_r_q]);
        stg128(linear_2_at + k_r_q * 1024, linear_21[k_r_q]);
      }
    }
  }
}
