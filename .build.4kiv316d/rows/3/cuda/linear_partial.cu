// rules: tileify chunk_matmul_k split_matmul_k blockify_launch stage_inputs drop_zero_guard unguard register_tile
//        warp_tile slice_matmul_k spread_rows permute_register_tile double_buffer async_copy permute_stage
//        vector_reduce near_copies xor_smem pipeline_predicated vector_axis snake
// grid 16 x -(-s // 32) x 6, 256 threads, 106496 bytes of shared memory
extern "C" __global__ void __launch_bounds__(256, 1)
linear_partial(
    const float* __restrict__ mul_4,
    const float* __restrict__ model_layers_0_self_attn_q_proj_weight,
    float* __restrict__ part,
    const int s) {
  DPLC_DYN_SMEM(float, smem_buf);
  const uint32_t smem = smem_addr(smem_buf);
  const int u_o = blockIdx.x;
  const int k_o = blockIdx.y;
  const int s4 = blockIdx.z;
  const int tid = threadIdx.x;
  const int w = tid >> 6;
  const int u_w = (tid >> 5) & 1;
  const int k = (tid >> 3) & 3;
  const int u = tid & 7;
  const uint32_t mul_4_smem = smem;
  const uint32_t mul_4_smem_wr = mul_4_smem + (tid >> 3) * 128 + ((tid & 7) ^ ((tid >> 3) & 1)) * 16;
  const float* mul_4_at = mul_4 + k_o * 65536 + (tid >> 3) * 2048 + s4 * 352 + (tid & 7) * 4;
  const uint32_t model_layers_0_self_attn_q_proj_weight_smem = smem + 8192;
  const uint32_t model_layers_0_self_attn_q_proj_weight_smem_wr = model_layers_0_self_attn_q_proj_weight_smem + (tid >> 1) * 128 + ((tid & 1) ^ (((tid >> 3) & 1) + ((tid >> 1) & 1) * 2 + ((tid >> 2) & 1) * 4)) * 16;
  const float* model_layers_0_self_attn_q_proj_weight_at = model_layers_0_self_attn_q_proj_weight + u_o * 262144 + (tid >> 6) * 65536 + ((tid >> 4) & 3) * 2048 + ((tid >> 1) & 7) * 8192 + s4 * 352 + (tid & 1) * 4;
  const uint32_t m_rd = mul_4_smem + k * 128 + (w * 2 ^ (k & 1)) * 16;
  const uint32_t m1_rd = model_layers_0_self_attn_q_proj_weight_smem + u_w * 4096 + u * 128 + (w * 2 ^ ((u >> 2) + (u & 1) * 2 + ((u >> 1) & 1) * 4)) * 16;
  const uint32_t linear1_x = smem + 40960;
  const uint32_t linear1_put = linear1_x + w * 1024 + (tid & 63) * 16;
  const uint32_t linear1_get = linear1_x + (tid & 63) * 16;
  float* part_at = part + s4 * s * 2048 + k_o * 65536 + k * 2048 + u_o * 128 + u * 4 + u_w * 32;
  float linear1[8][2][4] = {};
  cp_async16_zfill(k_o * 32 + (tid >> 3) < s, mul_4_smem_wr, mul_4_at);
  #pragma unroll
  for (int c = 0; c < 4; ++c) {
    cp_async16(model_layers_0_self_attn_q_proj_weight_smem_wr ^ c * 32, model_layers_0_self_attn_q_proj_weight_at + c * 8);
  }
  cp_async_commit();
  const float* mul_4_at1 = mul_4_at;
  const float* model_layers_0_self_attn_q_proj_weight_at1 = model_layers_0_self_attn_q_proj_weight_at;
  #pragma unroll 1
  for (int j_o = 0; j_o < 11; ++j_o) {
    const int slot = ((j_o + 1) & 1) * 4096;
    const uint32_t mul_4_smem_wr1 = mul_4_smem_wr + slot;
    const int slot1 = ((j_o + 1) & 1) * 16384;
    const uint32_t model_layers_0_self_attn_q_proj_weight_smem_wr1 = model_layers_0_self_attn_q_proj_weight_smem_wr + slot1;
    const int slot2 = (j_o & 1) * 4096;
    const uint32_t m_rd1 = m_rd + slot2;
    const int slot3 = (j_o & 1) * 16384;
    const uint32_t m1_rd1 = m1_rd + slot3;
    cp_async_wait<0>();
    block_sync();
    cp_async16_if_zfill(j_o + 1 < 11, k_o * 32 + (tid >> 3) < s && s4 * 11 + j_o + 1 < 64, mul_4_smem_wr1, mul_4_at1 + 32);
    #pragma unroll
    for (int c = 0; c < 4; ++c) {
      cp_async16_if_zfill(j_o + 1 < 11, s4 * 11 + j_o + 1 < 64, model_layers_0_self_attn_q_proj_weight_smem_wr1 ^ c * 32, model_layers_0_self_attn_q_proj_weight_at1 + c * 8 + 32);
    }
    cp_async_commit();
    #pragma unroll
    for (int j_o1 = 0; j_o1 < 2; ++j_o1) {
      float m[8][4];
      #pragma unroll
      for (int k_r_q_q = 0; k_r_q_q < 8; ++k_r_q_q) {
        lds128(m[k_r_q_q], (m_rd1 ^ j_o1 * 16) + k_r_q_q * 512);
      }
      float m1[2][4][4];
      #pragma unroll
      for (int u_r_q_q = 0; u_r_q_q < 2; ++u_r_q_q) {
        #pragma unroll
        for (int u_r = 0; u_r < 4; ++u_r) {
          lds128(m1[u_r_q_q][u_r], (m1_rd1 ^ j_o1 * 16) + u_r_q_q * 8192 + u_r * 1024);
        }
      }
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        #pragma unroll
        for (int k_r_q_q = 0; k_r_q_q < 8; ++k_r_q_q) {
          #pragma unroll
          for (int u_r_q_q_ = 0; u_r_q_q_ < 2; ++u_r_q_q_) {
            const int u_r_q_q = k_r_q_q & 1 ? 1 - u_r_q_q_ : u_r_q_q_;
            #pragma unroll
            for (int u_r_ = 0; u_r_ < 4; ++u_r_) {
              const int u_r = k_r_q_q & 1 ? 3 - u_r_ : u_r_;
              linear1[k_r_q_q][u_r_q_q][u_r] += m[k_r_q_q][j] * m1[u_r_q_q][u_r][j];
            }
          }
        }
      }
    }
    mul_4_at1 += 32;
    model_layers_0_self_attn_q_proj_weight_at1 += 32;
  }
  #pragma unroll
  for (int k_r_q_q = 0; k_r_q_q < 8; ++k_r_q_q) {
    #pragma unroll
    for (int u_r_q_q = 0; u_r_q_q < 2; ++u_r_q_q) {
      sts128(linear1_put + k_r_q_q * 8192 + u_r_q_q * 4096, linear1[k_r_q_q][u_r_q_q]);
    }
  }
  block_sync();
  #pragma unroll
  for (int k_r_q_q = 0; k_r_q_q < 8; ++k_r_q_q) {
    #pragma unroll
    for (int u_r_q_q = 0; u_r_q_q < 2; ++u_r_q_q) {
      float linear1_part[4][4];
      lds128(linear1_part[0], linear1_get + k_r_q_q * 8192 + u_r_q_q * 4096);
      lds128(linear1_part[1], linear1_get + k_r_q_q * 8192 + u_r_q_q * 4096 + 1024);
      lds128(linear1_part[2], linear1_get + k_r_q_q * 8192 + u_r_q_q * 4096 + 2048);
      lds128(linear1_part[3], linear1_get + k_r_q_q * 8192 + u_r_q_q * 4096 + 3072);
      linear1[k_r_q_q][u_r_q_q][0] = linear1_part[0][0] + linear1_part[1][0] + (linear1_part[2][0] + linear1_part[3][0]);
      linear1[k_r_q_q][u_r_q_q][1] = linear1_part[0][1] + linear1_part[1][1] + (linear1_part[2][1] + linear1_part[3][1]);
      linear1[k_r_q_q][u_r_q_q][2] = linear1_part[0][2] + linear1_part[1][2] + (linear1_part[2][2] + linear1_part[3][2]);
      linear1[k_r_q_q][u_r_q_q][3] = linear1_part[0][3] + linear1_part[1][3] + (linear1_part[2][3] + linear1_part[3][3]);
    }
  }
  if (w < 1) {
    #pragma unroll
    for (int k_r_q_q = 0; k_r_q_q < 8; ++k_r_q_q) {
      if (k_o * 32 + k + k_r_q_q * 4 < s) {
        #pragma unroll
        for (int u_r_q_q = 0; u_r_q_q < 2; ++u_r_q_q) {
          stg128(part_at + k_r_q_q * 8192 + u_r_q_q * 64, linear1[k_r_q_q][u_r_q_q]);
        }
      }
    }
  }
}
