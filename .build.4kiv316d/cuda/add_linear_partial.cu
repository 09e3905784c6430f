// rules: tileify chunk_matmul_k split_matmul_k blockify_launch stage_inputs unguard register_tile warp_tile
//        spread_rows permute_register_tile double_buffer async_copy permute_stage vector_reduce near_copies xor_smem
//        pipeline_predicated vector_axis snake residency
// grid 16 x -(-s // 64) x 4, 128 threads, 49152 bytes of shared memory
extern "C" __global__ void __launch_bounds__(128, 2)
add_linear_partial(
    const float* __restrict__ add_7,
    const float* __restrict__ mul_11,
    const float* __restrict__ model_layers_0_mlp_down_proj_weight,
    float* __restrict__ part,
    const int s) {
  DPLC_DYN_SMEM(float, smem_buf);
  const uint32_t smem = smem_addr(smem_buf);
  const int n2_o = blockIdx.x;
  const int p_o = blockIdx.y;
  const int s2 = blockIdx.z;
  const int tid = threadIdx.x;
  const int p_w = tid >> 6;
  const int n2_w = (tid >> 5) & 1;
  const int p = (tid >> 3) & 3;
  const int n2 = tid & 7;
  const uint32_t mul_11_smem = smem;
  const uint32_t mul_11_smem_wr = mul_11_smem + (tid >> 1) * 64 + ((tid & 1) ^ ((tid >> 2) & 1) * 2) * 16;
  const float* mul_11_at = mul_11 + p_o * 360448 + (tid >> 1) * 5632 + s2 * 1408 + (tid & 1) * 4;
  const uint32_t model_layers_0_mlp_down_proj_weight_smem = smem + 16384;
  const uint32_t model_layers_0_mlp_down_proj_weight_smem_wr = model_layers_0_mlp_down_proj_weight_smem + (tid >> 1) * 64 + ((tid & 1) ^ (((tid >> 3) & 1) + ((tid >> 2) & 1) * 2)) * 16;
  const float* model_layers_0_mlp_down_proj_weight_at = model_layers_0_mlp_down_proj_weight + n2_o * 720896 + (tid >> 6) * 180224 + ((tid >> 4) & 3) * 5632 + ((tid >> 1) & 7) * 22528 + s2 * 1408 + (tid & 1) * 4;
  const uint32_t m_rd = mul_11_smem + p * 64 + p_w * 256 + (p >> 1) * 32;
  const uint32_t m1_rd = model_layers_0_mlp_down_proj_weight_smem + n2_w * 2048 + n2 * 64 + (n2 >> 2) * 16 + ((n2 >> 1) & 1) * 32;
  float* part_at = part + s2 * s * 2048 + p_o * 131072 + p * 2048 + p_w * 8192 + n2_o * 128 + n2 * 4 + n2_w * 32;
  float linear_6[8][2][4] = {};
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    cp_async16_zfill(p_o * 64 + (tid >> 1) < s, mul_11_smem_wr ^ c * 32, mul_11_at + c * 8);
  }
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      cp_async16((model_layers_0_mlp_down_proj_weight_smem_wr ^ c * 32) + r * 4096, model_layers_0_mlp_down_proj_weight_at + r * 360448 + c * 8);
    }
  }
  cp_async_commit();
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    cp_async16_zfill(p_o * 64 + (tid >> 1) < s, (mul_11_smem_wr ^ c * 32) + 4096, mul_11_at + c * 8 + 16);
  }
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      cp_async16((model_layers_0_mlp_down_proj_weight_smem_wr ^ c * 32) + r * 4096 + 8192, model_layers_0_mlp_down_proj_weight_at + r * 360448 + c * 8 + 16);
    }
  }
  cp_async_commit();
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    cp_async16_zfill(p_o * 64 + (tid >> 1) < s, (mul_11_smem_wr ^ c * 32) + 8192, mul_11_at + c * 8 + 32);
  }
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      cp_async16((model_layers_0_mlp_down_proj_weight_smem_wr ^ c * 32) + r * 4096 + 16384, model_layers_0_mlp_down_proj_weight_at + r * 360448 + c * 8 + 32);
    }
  }
  cp_async_commit();
  const float* mul_11_at1 = mul_11_at;
  const float* model_layers_0_mlp_down_proj_weight_at1 = model_layers_0_mlp_down_proj_weight_at;
  #pragma unroll 1
  for (int m2_o = 0; m2_o < 88; ++m2_o) {
    const int slot = ((m2_o + 3) & 3) * 4096;
    const uint32_t mul_11_smem_wr1 = mul_11_smem_wr + slot;
    const int slot1 = ((m2_o + 3) & 3) * 8192;
    const uint32_t model_layers_0_mlp_down_proj_weight_smem_wr1 = model_layers_0_mlp_down_proj_weight_smem_wr + slot1;
    const int slot2 = (m2_o & 3) * 4096;
    const uint32_t m_rd1 = m_rd + slot2;
    const int slot3 = (m2_o & 3) * 8192;
    const uint32_t m1_rd1 = m1_rd + slot3;
    cp_async_wait<2>();
    block_sync();
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      cp_async16_if_zfill(m2_o + 3 < 88, p_o * 64 + (tid >> 1) < s, mul_11_smem_wr1 ^ c * 32, mul_11_at1 + c * 8 + 48);
    }
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
      #pragma unroll
      for (int c = 0; c < 2; ++c) {
        cp_async16_if(m2_o + 3 < 88, (model_layers_0_mlp_down_proj_weight_smem_wr1 ^ c * 32) + r * 4096, model_layers_0_mlp_down_proj_weight_at1 + r * 360448 + c * 8 + 48);
      }
    }
    cp_async_commit();
    #pragma unroll
    for (int m2_o1 = 0; m2_o1 < 4; ++m2_o1) {
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
          lds128(m1[n2_r_q_q][n2_r], (m1_rd1 ^ m2_o1 * 16) + n2_r_q_q * 4096 + n2_r * 512);
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
    mul_11_at1 += 16;
    model_layers_0_mlp_down_proj_weight_at1 += 16;
  }
  #pragma unroll
  for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
    if (p_o * 64 + p + p_r_q_q * 8 + p_w * 4 < s) {
      #pragma unroll
      for (int n2_r_q_q = 0; n2_r_q_q < 2; ++n2_r_q_q) {
        stg128(part_at + p_r_q_q * 16384 + n2_r_q_q * 64, linear_6[p_r_q_q][n2_r_q_q]);
      }
    }
  }
}
