// rules: tileify chunk_matmul_k blockify_launch stage_inputs unguard register_tile warp_tile spread_rows
//        permute_register_tile double_buffer async_copy permute_stage vector_reduce near_copies xor_smem
//        pipeline_predicated vector_axis snake residency
// grid 16 x -(-s // 64) x 1, 128 threads, 49152 bytes of shared memory
extern "C" __global__ void __launch_bounds__(128, 2)
linear(
    const float* __restrict__ mul_4,
    const float* __restrict__ model_layers_0_self_attn_q_proj_weight,
    float* __restrict__ linear,
    const int s) {
  DPLC_DYN_SMEM(float, smem_buf);
  const uint32_t smem = smem_addr(smem_buf);
  const int u_o = blockIdx.x;
  const int k_o = blockIdx.y;
  const int tid = threadIdx.x;
  const int k_w = tid >> 6;
  const int u_w = (tid >> 5) & 1;
  const int k = (tid >> 3) & 3;
  const int u = tid & 7;
  const uint32_t mul_4_smem = smem;
  const uint32_t mul_4_smem_wr = mul_4_smem + (tid >> 1) * 64 + ((tid & 1) ^ ((tid >> 2) & 1) * 2) * 16;
  const float* mul_4_at = mul_4 + k_o * 131072 + (tid >> 1) * 2048 + (tid & 1) * 4;
  const uint32_t model_layers_0_self_attn_q_proj_weight_smem = smem + 16384;
  const uint32_t model_layers_0_self_attn_q_proj_weight_smem_wr = model_layers_0_self_attn_q_proj_weight_smem + (tid >> 1) * 64 + ((tid & 1) ^ (((tid >> 3) & 1) + ((tid >> 2) & 1) * 2)) * 16;
  const float* model_layers_0_self_attn_q_proj_weight_at = model_layers_0_self_attn_q_proj_weight + u_o * 262144 + (tid >> 6) * 65536 + ((tid >> 4) & 3) * 2048 + ((tid >> 1) & 7) * 8192 + (tid & 1) * 4;
  const uint32_t m_rd = mul_4_smem + k * 64 + k_w * 256 + (k >> 1) * 32;
  const uint32_t m1_rd = model_layers_0_self_attn_q_proj_weight_smem + u_w * 2048 + u * 64 + (u >> 2) * 16 + ((u >> 1) & 1) * 32;
  float* linear_at = linear + k_o * 131072 + k * 2048 + k_w * 8192 + u_o * 128 + u * 4 + u_w * 32;
  float linear1[8][2][4] = {};
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    cp_async16_zfill(k_o * 64 + (tid >> 1) < s, mul_4_smem_wr ^ c * 32, mul_4_at + c * 8);
  }
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      cp_async16((model_layers_0_self_attn_q_proj_weight_smem_wr ^ c * 32) + r * 4096, model_layers_0_self_attn_q_proj_weight_at + r * 131072 + c * 8);
    }
  }
  cp_async_commit();
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    cp_async16_zfill(k_o * 64 + (tid >> 1) < s, (mul_4_smem_wr ^ c * 32) + 4096, mul_4_at + c * 8 + 16);
  }
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      cp_async16((model_layers_0_self_attn_q_proj_weight_smem_wr ^ c * 32) + r * 4096 + 8192, model_layers_0_self_attn_q_proj_weight_at + r * 131072 + c * 8 + 16);
    }
  }
  cp_async_commit();
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    cp_async16_zfill(k_o * 64 + (tid >> 1) < s, (mul_4_smem_wr ^ c * 32) + 8192, mul_4_at + c * 8 + 32);
  }
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      cp_async16((model_layers_0_self_attn_q_proj_weight_smem_wr ^ c * 32) + r * 4096 + 16384, model_layers_0_self_attn_q_proj_weight_at + r * 131072 + c * 8 + 32);
    }
  }
  cp_async_commit();
  const float* mul_4_at1 = mul_4_at;
  const float* model_layers_0_self_attn_q_proj_weight_at1 = model_layers_0_self_attn_q_proj_weight_at;
  #pragma unroll 1
  for (int j_o = 0; j_o < 128; ++j_o) {
    const int slot = ((j_o + 3) & 3) * 4096;
    const uint32_t mul_4_smem_wr1 = mul_4_smem_wr + slot;
    const int slot1 = ((j_o + 3) & 3) * 8192;
    const uint32_t model_layers_0_self_attn_q_proj_weight_smem_wr1 = model_layers_0_self_attn_q_proj_weight_smem_wr + slot1;
    const int slot2 = (j_o & 3) * 4096;
    const uint32_t m_rd1 = m_rd + slot2;
    const int slot3 = (j_o & 3) * 8192;
    const uint32_t m1_rd1 = m1_rd + slot3;
    cp_async_wait<2>();
    block_sync();
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      cp_async16_if_zfill(j_o + 3 < 128, k_o * 64 + (tid >> 1) < s, mul_4_smem_wr1 ^ c * 32, mul_4_at1 + c * 8 + 48);
    }
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
      #pragma unroll
      for (int c = 0; c < 2; ++c) {
        cp_async16_if(j_o + 3 < 128, (model_layers_0_self_attn_q_proj_weight_smem_wr1 ^ c * 32) + r * 4096, model_layers_0_self_attn_q_proj_weight_at1 + r * 131072 + c * 8 + 48);
      }
    }
    cp_async_commit();
    #pragma unroll
    for (int j_o1 = 0; j_o1 < 4; ++j_o1) {
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
          lds128(m1[u_r_q_q][u_r], (m1_rd1 ^ j_o1 * 16) + u_r_q_q * 4096 + u_r * 512);
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
    mul_4_at1 += 16;
    model_layers_0_self_attn_q_proj_weight_at1 += 16;
  }
  #pragma unroll
  for (int k_r_q_q = 0; k_r_q_q < 8; ++k_r_q_q) {
    if (k_o * 64 + k + k_r_q_q * 8 + k_w * 4 < s) {
      #pragma unroll
      for (int u_r_q_q = 0; u_r_q_q < 2; ++u_r_q_q) {
        stg128(linear_at + k_r_q_q * 16384 + u_r_q_q * 64, linear1[k_r_q_q][u_r_q_q]);
      }
    }
  }
}
