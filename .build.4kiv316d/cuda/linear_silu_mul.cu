// rules: tileify chunk_matmul_k blockify_launch stage_inputs unguard register_tile warp_tile spread_rows double_buffer
//        async_copy vector_reduce near_copies xor_smem pipeline_predicated snake
// grid 71 x -(-s // 128) x 1, 256 threads, 73728 bytes of shared memory
extern "C" __global__ void __launch_bounds__(256, 1)
linear_silu_mul(
    const float* __restrict__ mul_10,
    const float* __restrict__ model_layers_0_mlp_gate_proj_weight,
    const float* __restrict__ model_layers_0_mlp_up_proj_weight,
    float* __restrict__ mul_11,
    const int s) {
  DPLC_DYN_SMEM(float, smem_buf);
  const uint32_t smem = smem_addr(smem_buf);
  const int m2_o = blockIdx.x;
  const int p_o = blockIdx.y;
  const int tid = threadIdx.x;
  const int p_w = tid >> 6;
  const int m2_w = (tid >> 5) & 1;
  const int p = (tid >> 3) & 3;
  const int m2 = tid & 7;
  const uint32_t mul_10_smem = smem;
  const uint32_t mul_10_smem_wr = mul_10_smem + (tid >> 1) * 64 + ((tid & 1) ^ ((tid >> 2) & 1) * 2) * 16;
  const float* mul_10_at = mul_10 + p_o * 262144 + (tid >> 1) * 2048 + (tid & 1) * 4;
  const uint32_t model_layers_0_mlp_gate_proj_weight_smem = smem + 32768;
  const uint32_t model_layers_0_mlp_gate_proj_weight_smem_wr = model_layers_0_mlp_gate_proj_weight_smem + (tid >> 2) * 64 + ((tid & 3) ^ (((tid >> 3) & 1) + ((tid >> 4) & 1) * 2)) * 16;
  const float* model_layers_0_mlp_gate_proj_weight_at = model_layers_0_mlp_gate_proj_weight + m2_o * 163840 + (tid >> 2) * 2048 + (tid & 3) * 4;
  const uint32_t model_layers_0_mlp_up_proj_weight_smem = smem + 53248;
  const uint32_t model_layers_0_mlp_up_proj_weight_smem_wr = model_layers_0_mlp_up_proj_weight_smem + (tid >> 2) * 64 + ((tid & 3) ^ (((tid >> 3) & 1) + ((tid >> 4) & 1) * 2)) * 16;
  const float* model_layers_0_mlp_up_proj_weight_at = model_layers_0_mlp_up_proj_weight + m2_o * 163840 + (tid >> 2) * 2048 + (tid & 3) * 4;
  const uint32_t m_rd = mul_10_smem + p * 64 + p_w * 256 + (p >> 1) * 32;
  const uint32_t m1_rd = model_layers_0_mlp_gate_proj_weight_smem + m2 * 64 + m2_w * 512 + ((m2 >> 1) & 1) * 16 + (m2 >> 2) * 32;
  const uint32_t m3_rd = model_layers_0_mlp_up_proj_weight_smem + m2 * 64 + m2_w * 512 + ((m2 >> 1) & 1) * 16 + (m2 >> 2) * 32;
  float* mul_11_at = mul_11 + p_o * 720896 + p * 5632 + p_w * 22528 + m2_o * 80 + m2 + m2_w * 8;
  float linear_4[8][5] = {};
  float linear_5[8][5] = {};
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    cp_async16_zfill(p_o * 128 + (tid >> 1) < s, mul_10_smem_wr ^ c * 32, mul_10_at + c * 8);
  }
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    cp_async16_if_zfill((tid >> 2) + r * 64 < 80, m2_o * 80 + (tid >> 2) + r * 64 < 5632, model_layers_0_mlp_gate_proj_weight_smem_wr + r * 4096, model_layers_0_mlp_gate_proj_weight_at + r * 131072);
  }
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    cp_async16_if_zfill((tid >> 2) + r * 64 < 80, m2_o * 80 + (tid >> 2) + r * 64 < 5632, model_layers_0_mlp_up_proj_weight_smem_wr + r * 4096, model_layers_0_mlp_up_proj_weight_at + r * 131072);
  }
  cp_async_commit();
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    cp_async16_zfill(p_o * 128 + (tid >> 1) < s, (mul_10_smem_wr ^ c * 32) + 8192, mul_10_at + c * 8 + 16);
  }
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    cp_async16_if_zfill((tid >> 2) + r * 64 < 80, m2_o * 80 + (tid >> 2) + r * 64 < 5632, model_layers_0_mlp_gate_proj_weight_smem_wr + r * 4096 + 5120, model_layers_0_mlp_gate_proj_weight_at + r * 131072 + 16);
  }
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    cp_async16_if_zfill((tid >> 2) + r * 64 < 80, m2_o * 80 + (tid >> 2) + r * 64 < 5632, model_layers_0_mlp_up_proj_weight_smem_wr + r * 4096 + 5120, model_layers_0_mlp_up_proj_weight_at + r * 131072 + 16);
  }
  cp_async_commit();
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    cp_async16_zfill(p_o * 128 + (tid >> 1) < s, (mul_10_smem_wr ^ c * 32) + 16384, mul_10_at + c * 8 + 32);
  }
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    cp_async16_if_zfill((tid >> 2) + r * 64 < 80, m2_o * 80 + (tid >> 2) + r * 64 < 5632, model_layers_0_mlp_gate_proj_weight_smem_wr + r * 4096 + 10240, model_layers_0_mlp_gate_proj_weight_at + r * 131072 + 32);
  }
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    cp_async16_if_zfill((tid >> 2) + r * 64 < 80, m2_o * 80 + (tid >> 2) + r * 64 < 5632, model_layers_0_mlp_up_proj_weight_smem_wr + r * 4096 + 10240, model_layers_0_mlp_up_proj_weight_at + r * 131072 + 32);
  }
  cp_async_commit();
  const float* mul_10_at1 = mul_10_at;
  const float* model_layers_0_mlp_gate_proj_weight_at1 = model_layers_0_mlp_gate_proj_weight_at;
  const float* model_layers_0_mlp_up_proj_weight_at1 = model_layers_0_mlp_up_proj_weight_at;
  #pragma unroll 1
  for (int k2_o = 0; k2_o < 128; ++k2_o) {
    const int slot = ((k2_o + 3) & 3) * 8192;
    const uint32_t mul_10_smem_wr1 = mul_10_smem_wr + slot;
    const int slot1 = ((k2_o + 3) & 3) * 5120;
    const uint32_t model_layers_0_mlp_gate_proj_weight_smem_wr1 = model_layers_0_mlp_gate_proj_weight_smem_wr + slot1;
    const uint32_t model_layers_0_mlp_up_proj_weight_smem_wr1 = model_layers_0_mlp_up_proj_weight_smem_wr + slot1;
    const int slot2 = (k2_o & 3) * 8192;
    const uint32_t m_rd1 = m_rd + slot2;
    const int slot3 = (k2_o & 3) * 5120;
    const uint32_t m1_rd1 = m1_rd + slot3;
    const uint32_t m3_rd1 = m3_rd + slot3;
    cp_async_wait<2>();
    block_sync();
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      cp_async16_if_zfill(k2_o + 3 < 128, p_o * 128 + (tid >> 1) < s, mul_10_smem_wr1 ^ c * 32, mul_10_at1 + c * 8 + 48);
    }
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
      cp_async16_if_zfill((tid >> 2) + r * 64 < 80 && k2_o + 3 < 128, m2_o * 80 + (tid >> 2) + r * 64 < 5632, model_layers_0_mlp_gate_proj_weight_smem_wr1 + r * 4096, model_layers_0_mlp_gate_proj_weight_at1 + r * 131072 + 48);
    }
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
      cp_async16_if_zfill((tid >> 2) + r * 64 < 80 && k2_o + 3 < 128, m2_o * 80 + (tid >> 2) + r * 64 < 5632, model_layers_0_mlp_up_proj_weight_smem_wr1 + r * 4096, model_layers_0_mlp_up_proj_weight_at1 + r * 131072 + 48);
    }
    cp_async_commit();
    #pragma unroll
    for (int k2_o1 = 0; k2_o1 < 4; ++k2_o1) {
      float m[8][4];
      #pragma unroll
      for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
        lds128(m[p_r_q_q], (m_rd1 ^ k2_o1 * 16) + p_r_q_q * 1024);
      }
      float m1[5][4];
      #pragma unroll
      for (int m2_r_q_q = 0; m2_r_q_q < 5; ++m2_r_q_q) {
        lds128(m1[m2_r_q_q], (m1_rd1 ^ k2_o1 * 16) + m2_r_q_q * 1024);
      }
      float m3[5][4];
      #pragma unroll
      for (int m2_r_q_q = 0; m2_r_q_q < 5; ++m2_r_q_q) {
        lds128(m3[m2_r_q_q], (m3_rd1 ^ k2_o1 * 16) + m2_r_q_q * 1024);
      }
      #pragma unroll
      for (int k2 = 0; k2 < 4; ++k2) {
        #pragma unroll
        for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
          #pragma unroll
          for (int m2_r_q_q_ = 0; m2_r_q_q_ < 5; ++m2_r_q_q_) {
            const int m2_r_q_q = p_r_q_q & 1 ? 4 - m2_r_q_q_ : m2_r_q_q_;
            linear_4[p_r_q_q][m2_r_q_q] += m[p_r_q_q][k2] * m1[m2_r_q_q][k2];
          }
        }
        #pragma unroll
        for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
          #pragma unroll
          for (int m2_r_q_q_ = 0; m2_r_q_q_ < 5; ++m2_r_q_q_) {
            const int m2_r_q_q = p_r_q_q & 1 ? 4 - m2_r_q_q_ : m2_r_q_q_;
            linear_5[p_r_q_q][m2_r_q_q] += m[p_r_q_q][k2] * m3[m2_r_q_q][k2];
          }
        }
      }
    }
    mul_10_at1 += 16;
    model_layers_0_mlp_gate_proj_weight_at1 += 16;
    model_layers_0_mlp_up_proj_weight_at1 += 16;
  }
  #pragma unroll
  for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
    if (p_o * 128 + p + p_r_q_q * 16 + p_w * 4 < s) {
      #pragma unroll
      for (int m2_r_q_q = 0; m2_r_q_q < 5; ++m2_r_q_q) {
        if (m2_o * 80 + m2 + m2_r_q_q * 16 + m2_w * 8 < 5632) {
          stg32(mul_11_at + p_r_q_q * 90112 + m2_r_q_q * 16, linear_4[p_r_q_q][m2_r_q_q] * rcp_approx(1.0f + exp2_approx(linear_4[p_r_q_q][m2_r_q_q] * -1.4426950408889634f)) * linear_5[p_r_q_q][m2_r_q_q]);
        }
      }
    }
  }
}
