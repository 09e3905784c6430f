// rules: tileify chunk_matmul_k blockify_launch stage_inputs unguard register_tile slice_matmul_k spread_rows
//        permute_register_tile double_buffer async_copy permute_stage vector_reduce near_copies xor_smem
//        pipeline_predicated vector_axis snake residency
// grid 88 x -(-s // 32) x 1, 64 threads, 73728 bytes of shared memory
extern "C" __global__ void __launch_bounds__(64, 2)
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
  const int w = tid >> 5;
  const int p = (tid >> 3) & 3;
  const int m2 = tid & 7;
  const uint32_t mul_10_smem = smem;
  const uint32_t mul_10_smem_wr = mul_10_smem + (tid >> 1) * 64 + ((tid & 1) ^ ((tid >> 2) & 1) * 2) * 16;
  const float* mul_10_at = mul_10 + p_o * 65536 + (tid >> 1) * 2048 + (tid & 1) * 4;
  const uint32_t model_layers_0_mlp_gate_proj_weight_smem = smem + 8192;
  const uint32_t model_layers_0_mlp_gate_proj_weight_smem_wr = model_layers_0_mlp_gate_proj_weight_smem + (tid >> 1) * 64 + ((tid & 1) ^ (((tid >> 3) & 1) + ((tid >> 2) & 1) * 2)) * 16;
  const float* model_layers_0_mlp_gate_proj_weight_at = model_layers_0_mlp_gate_proj_weight + m2_o * 131072 + (tid >> 4) * 2048 + ((tid >> 1) & 7) * 8192 + (tid & 1) * 4;
  const uint32_t model_layers_0_mlp_up_proj_weight_smem = smem + 24576;
  const uint32_t model_layers_0_mlp_up_proj_weight_smem_wr = model_layers_0_mlp_up_proj_weight_smem + (tid >> 1) * 64 + ((tid & 1) ^ (((tid >> 3) & 1) + ((tid >> 2) & 1) * 2)) * 16;
  const float* model_layers_0_mlp_up_proj_weight_at = model_layers_0_mlp_up_proj_weight + m2_o * 131072 + (tid >> 4) * 2048 + ((tid >> 1) & 7) * 8192 + (tid & 1) * 4;
  const uint32_t m_rd = mul_10_smem + p * 64 + (w * 2 ^ (p >> 1) * 2) * 16;
  const uint32_t m1_rd = model_layers_0_mlp_gate_proj_weight_smem + m2 * 64 + (w * 2 ^ ((m2 >> 2) + ((m2 >> 1) & 1) * 2)) * 16;
  const uint32_t m3_rd = model_layers_0_mlp_up_proj_weight_smem + m2 * 64 + (w * 2 ^ ((m2 >> 2) + ((m2 >> 1) & 1) * 2)) * 16;
  const uint32_t linear_4_x = smem + 40960;
  const uint32_t linear_4_put = linear_4_x + w * 512 + (tid & 31) * 16;
  const uint32_t linear_4_get = linear_4_x + (tid & 31) * 16;
  const uint32_t linear_5_x = smem + 57344;
  const uint32_t linear_5_put = linear_5_x + w * 512 + (tid & 31) * 16;
  const uint32_t linear_5_get = linear_5_x + (tid & 31) * 16;
  float* mul_11_at = mul_11 + p_o * 180224 + p * 5632 + m2_o * 64 + m2 * 4;
  float linear_4[8][2][4] = {};
  float linear_5[8][2][4] = {};
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    cp_async16_zfill(p_o * 32 + (tid >> 1) < s, mul_10_smem_wr ^ c * 32, mul_10_at + c * 8);
  }
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      cp_async16((model_layers_0_mlp_gate_proj_weight_smem_wr ^ c * 32) + r * 2048, model_layers_0_mlp_gate_proj_weight_at + r * 65536 + c * 8);
    }
  }
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      cp_async16((model_layers_0_mlp_up_proj_weight_smem_wr ^ c * 32) + r * 2048, model_layers_0_mlp_up_proj_weight_at + r * 65536 + c * 8);
    }
  }
  cp_async_commit();
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    cp_async16_zfill(p_o * 32 + (tid >> 1) < s, (mul_10_smem_wr ^ c * 32) + 2048, mul_10_at + c * 8 + 16);
  }
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      cp_async16((model_layers_0_mlp_gate_proj_weight_smem_wr ^ c * 32) + r * 2048 + 4096, model_layers_0_mlp_gate_proj_weight_at + r * 65536 + c * 8 + 16);
    }
  }
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      cp_async16((model_layers_0_mlp_up_proj_weight_smem_wr ^ c * 32) + r * 2048 + 4096, model_layers_0_mlp_up_proj_weight_at + r * 65536 + c * 8 + 16);
    }
  }
  cp_async_commit();
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    cp_async16_zfill(p_o * 32 + (tid >> 1) < s, (mul_10_smem_wr ^ c * 32) + 4096, mul_10_at + c * 8 + 32);
  }
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      cp_async16((model_layers_0_mlp_gate_proj_weight_smem_wr ^ c * 32) + r * 2048 + 8192, model_layers_0_mlp_gate_proj_weight_at + r * 65536 + c * 8 + 32);
    }
  }
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      cp_async16((model_layers_0_mlp_up_proj_weight_smem_wr ^ c * 32) + r * 2048 + 8192, model_layers_0_mlp_up_proj_weight_at + r * 65536 + c * 8 + 32);
    }
  }
  cp_async_commit();
  const float* mul_10_at1 = mul_10_at;
  const float* model_layers_0_mlp_gate_proj_weight_at1 = model_layers_0_mlp_gate_proj_weight_at;
  const float* model_layers_0_mlp_up_proj_weight_at1 = model_layers_0_mlp_up_proj_weight_at;
  #pragma unroll 1
  for (int k2_o = 0; k2_o < 128; ++k2_o) {
    const int slot = ((k2_o + 3) & 3) * 2048;
    const uint32_t mul_10_smem_wr1 = mul_10_smem_wr + slot;
    const int slot1 = ((k2_o + 3) & 3) * 4096;
    const uint32_t model_layers_0_mlp_gate_proj_weight_smem_wr1 = model_layers_0_mlp_gate_proj_weight_smem_wr + slot1;
    const uint32_t model_layers_0_mlp_up_proj_weight_smem_wr1 = model_layers_0_mlp_up_proj_weight_smem_wr + slot1;
    const int slot2 = (k2_o & 3) * 2048;
    const uint32_t m_rd1 = m_rd + slot2;
    const int slot3 = (k2_o & 3) * 4096;
    const uint32_t m1_rd1 = m1_rd + slot3;
    const uint32_t m3_rd1 = m3_rd + slot3;
    cp_async_wait<2>();
    block_sync();
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      cp_async16_if_zfill(k2_o + 3 < 128, p_o * 32 + (tid >> 1) < s, mul_10_smem_wr1 ^ c * 32, mul_10_at1 + c * 8 + 48);
    }
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
      #pragma unroll
      for (int c = 0; c < 2; ++c) {
        cp_async16_if(k2_o + 3 < 128, (model_layers_0_mlp_gate_proj_weight_smem_wr1 ^ c * 32) + r * 2048, model_layers_0_mlp_gate_proj_weight_at1 + r * 65536 + c * 8 + 48);
      }
    }
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
      #pragma unroll
      for (int c = 0; c < 2; ++c) {
        cp_async16_if(k2_o + 3 < 128, (model_layers_0_mlp_up_proj_weight_smem_wr1 ^ c * 32) + r * 2048, model_layers_0_mlp_up_proj_weight_at1 + r * 65536 + c * 8 + 48);
      }
    }
    cp_async_commit();
    #pragma unroll
    for (int k2_o1 = 0; k2_o1 < 2; ++k2_o1) {
      float m[8][4];
      #pragma unroll
      for (int p_r_q = 0; p_r_q < 8; ++p_r_q) {
        lds128(m[p_r_q], (m_rd1 ^ k2_o1 * 16) + p_r_q * 256);
      }
      float m1[2][4][4];
      #pragma unroll
      for (int m2_r_q = 0; m2_r_q < 2; ++m2_r_q) {
        #pragma unroll
        for (int m2_r = 0; m2_r < 4; ++m2_r) {
          lds128(m1[m2_r_q][m2_r], (m1_rd1 ^ k2_o1 * 16) + m2_r_q * 2048 + m2_r * 512);
        }
      }
      float m3[2][4][4];
      #pragma unroll
      for (int m2_r_q = 0; m2_r_q < 2; ++m2_r_q) {
        #pragma unroll
        for (int m2_r = 0; m2_r < 4; ++m2_r) {
          lds128(m3[m2_r_q][m2_r], (m3_rd1 ^ k2_o1 * 16) + m2_r_q * 2048 + m2_r * 512);
        }
      }
      #pragma unroll
      for (int k2 = 0; k2 < 4; ++k2) {
        #pragma unroll
        for (int p_r_q = 0; p_r_q < 8; ++p_r_q) {
          #pragma unroll
          for (int m2_r_q_ = 0; m2_r_q_ < 2; ++m2_r_q_) {
            const int m2_r_q = p_r_q & 1 ? 1 - m2_r_q_ : m2_r_q_;
            #pragma unroll
            for (int m2_r_ = 0; m2_r_ < 4; ++m2_r_) {
              const int m2_r = p_r_q & 1 ? 3 - m2_r_ : m2_r_;
              linear_4[p_r_q][m2_r_q][m2_r] += m[p_r_q][k2] * m1[m2_r_q][m2_r][k2];
            }
          }
        }
        #pragma unroll
        for (int p_r_q = 0; p_r_q < 8; ++p_r_q) {
          #pragma unroll
          for (int m2_r_q_ = 0; m2_r_q_ < 2; ++m2_r_q_) {
            const int m2_r_q = p_r_q & 1 ? 1 - m2_r_q_ : m2_r_q_;
            #pragma unroll
            for (int m2_r_ = 0; m2_r_ < 4; ++m2_r_) {
              const int m2_r = p_r_q & 1 ? 3 - m2_r_ : m2_r_;
              linear_5[p_r_q][m2_r_q][m2_r] += m[p_r_q][k2] * m3[m2_r_q][m2_r][k2];
            }
          }
        }
      }
    }
    mul_10_at1 += 16;
    model_layers_0_mlp_gate_proj_weight_at1 += 16;
    model_layers_0_mlp_up_proj_weight_at1 += 16;
  }
  #pragma unroll
  for (int p_r_q = 0; p_r_q < 8; ++p_r_q) {
    #pragma unroll
    for (int m2_r_q = 0; m2_r_q < 2; ++m2_r_q) {
      sts128(linear_4_put + p_r_q * 2048 + m2_r_q * 1024, linear_4[p_r_q][m2_r_q]);
    }
  }
  block_sync();
  #pragma unroll
  for (int p_r_q = 0; p_r_q < 8; ++p_r_q) {
    #pragma unroll
    for (int m2_r_q = 0; m2_r_q < 2; ++m2_r_q) {
      float linear_4_part[2][4];
      lds128(linear_4_part[0], linear_4_get + p_r_q * 2048 + m2_r_q * 1024);
      lds128(linear_4_part[1], linear_4_get + p_r_q * 2048 + m2_r_q * 1024 + 512);
      linear_4[p_r_q][m2_r_q][0] = linear_4_part[0][0] + linear_4_part[1][0];
      linear_4[p_r_q][m2_r_q][1] = linear_4_part[0][1] + linear_4_part[1][1];
      linear_4[p_r_q][m2_r_q][2] = linear_4_part[0][2] + linear_4_part[1][2];
      linear_4[p_r_q][m2_r_q][3] = linear_4_part[0][3] + linear_4_part[1][3];
    }
  }
  #pragma unroll
  for (int p_r_q = 0; p_r_q < 8; ++p_r_q) {
    #pragma unroll
    for (int m2_r_q = 0; m2_r_q < 2; ++m2_r_q) {
      sts128(linear_5_put + p_r_q * 2048 + m2_r_q * 1024, linear_5[p_r_q][m2_r_q]);
    }
  }
  block_sync();
  #pragma unroll
  for (int p_r_q = 0; p_r_q < 8; ++p_r_q) {
    #pragma unroll
    for (int m2_r_q = 0; m2_r_q < 2; ++m2_r_q) {
      float linear_5_part[2][4];
      lds128(linear_5_part[0], linear_5_get + p_r_q * 2048 + m2_r_q * 1024);
      lds128(linear_5_part[1], linear_5_get + p_r_q * 2048 + m2_r_q * 1024 + 512);
      linear_5[p_r_q][m2_r_q][0] = linear_5_part[0][0] + linear_5_part[1][0];
      linear_5[p_r_q][m2_r_q][1] = linear_5_part[0][1] + linear_5_part[1][1];
      linear_5[p_r_q][m2_r_q][2] = linear_5_part[0][2] + linear_5_part[1][2];
      linear_5[p_r_q][m2_r_q][3] = linear_5_part[0][3] + linear_5_part[1][3];
    }
  }
  if (w < 1) {
    #pragma unroll
    for (int p_r_q = 0; p_r_q < 8; ++p_r_q) {
      if (p_o * 32 + p_r_q * 4 + p < s) {
        #pragma unroll
        for (int m2_r_q = 0; m2_r_q < 2; ++m2_r_q) {
          stg128(mul_11_at + p_r_q * 22528 + m2_r_q * 32, float4{
              linear_4[p_r_q][m2_r_q][0] * rcp_approx(1.0f + exp2_approx(linear_4[p_r_q][m2_r_q][0] * -1.4426950408889634f)) * linear_5[p_r_q][m2_r_q][0],
              linear_4[p_r_q][m2_r_q][1] * rcp_approx(1.0f + exp2_approx(linear_4[p_r_q][m2_r_q][1] * -1.4426950408889634f)) * linear_5[p_r_q][m2_r_q][1],
              linear_4[p_r_q][m2_r_q][2] * rcp_approx(1.0f + exp2_approx(linear_4[p_r_q][m2_r_q][2] * -1.4426950408889634f)) * linear_5[p_r_q][m2_r_q][2],
              linear_4[p_r_q][m2_r_q][3] * rcp_approx(1.0f + exp2_approx(linear_4[p_r_q][m2_r_q][3] * -1.4426950408889634f)) * linear_5[p_r_q][m2_r_q][3],
          });
        }
      }
    }
  }
}
