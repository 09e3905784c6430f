// rules: tileify chunk_matmul_k blockify_launch stage_inputs unguard register_tile slice_matmul_k spread_rows
//        permute_register_tile double_buffer async_copy permute_stage vector_reduce near_copies xor_smem
//        pipeline_predicated vector_axis snake
// grid 44 x -(-s // 8) x 1, 128 threads, 100352 bytes of shared memory
extern "C" __global__ void __launch_bounds__(128, 1)
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
  const int p = (tid >> 4) & 1;
  const int m2 = tid & 15;
  const uint32_t mul_10_smem = smem;
  const uint32_t mul_10_smem_wr = mul_10_smem + tid * 16;
  const float* mul_10_at = mul_10 + p_o * 16384 + (tid >> 3) * 2048 + (tid & 7) * 4;
  const uint32_t model_layers_0_mlp_gate_proj_weight_smem = smem + 2048;
  const uint32_t model_layers_0_mlp_gate_proj_weight_smem_wr = model_layers_0_mlp_gate_proj_weight_smem + (tid >> 1) * 128 + ((tid & 1) ^ (((tid >> 3) & 1) + ((tid >> 1) & 1) * 2 + ((tid >> 2) & 1) * 4)) * 16;
  const float* model_layers_0_mlp_gate_proj_weight_at = model_layers_0_mlp_gate_proj_weight + m2_o * 262144 + (tid >> 6) * 65536 + ((tid >> 4) & 3) * 2048 + ((tid >> 1) & 7) * 8192 + (tid & 1) * 4;
  const uint32_t model_layers_0_mlp_up_proj_weight_smem = smem + 34816;
  const uint32_t model_layers_0_mlp_up_proj_weight_smem_wr = model_layers_0_mlp_up_proj_weight_smem + (tid >> 1) * 128 + ((tid & 1) ^ (((tid >> 3) & 1) + ((tid >> 1) & 1) * 2 + ((tid >> 2) & 1) * 4)) * 16;
  const float* model_layers_0_mlp_up_proj_weight_at = model_layers_0_mlp_up_proj_weight + m2_o * 262144 + (tid >> 6) * 65536 + ((tid >> 4) & 3) * 2048 + ((tid >> 1) & 7) * 8192 + (tid & 1) * 4;
  const uint32_t m_rd = mul_10_smem + p * 128 + w * 32;
  const uint32_t m1_rd = model_layers_0_mlp_gate_proj_weight_smem + w * 32;
  const uint32_t m3_rd = model_layers_0_mlp_up_proj_weight_smem + w * 32;
  const uint32_t linear_4_x = smem + 67584;
  const uint32_t linear_4_put = linear_4_x + w * 512 + (tid & 31) * 16;
  const uint32_t linear_4_get = linear_4_x + (tid & 31) * 16;
  const uint32_t linear_5_x = smem + 83968;
  const uint32_t linear_5_put = linear_5_x + w * 512 + (tid & 31) * 16;
  const uint32_t linear_5_get = linear_5_x + (tid & 31) * 16;
  float* mul_11_at = mul_11 + p_o * 45056 + p * 5632 + m2_o * 128 + m2 * 4;
  float linear_4[4][2][4] = {};
  float linear_5[4][2][4] = {};
  cp_async16_if_zfill(tid >> 3 < 8, p_o * 8 + (tid >> 3) < s, mul_10_smem_wr, mul_10_at);
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    #pragma unroll
    for (int c = 0; c < 4; ++c) {
      cp_async16((model_layers_0_mlp_gate_proj_weight_smem_wr ^ c * 32) + r * 8192, model_layers_0_mlp_gate_proj_weight_at + r * 131072 + c * 8);
    }
  }
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    #pragma unroll
    for (int c = 0; c < 4; ++c) {
      cp_async16((model_layers_0_mlp_up_proj_weight_smem_wr ^ c * 32) + r * 8192, model_layers_0_mlp_up_proj_weight_at + r * 131072 + c * 8);
    }
  }
  cp_async_commit();
  const float* mul_10_at1 = mul_10_at;
  const float* model_layers_0_mlp_gate_proj_weight_at1 = model_layers_0_mlp_gate_proj_weight_at;
  const float* model_layers_0_mlp_up_proj_weight_at1 = model_layers_0_mlp_up_proj_weight_at;
  #pragma unroll 1
  for (int k2_o = 0; k2_o < 64; ++k2_o) {
    const int slot = ((k2_o + 1) & 1) * 1024;
    const uint32_t mul_10_smem_wr1 = mul_10_smem_wr + slot;
    const int slot1 = ((k2_o + 1) & 1) * 16384;
    const uint32_t model_layers_0_mlp_gate_proj_weight_smem_wr1 = model_layers_0_mlp_gate_proj_weight_smem_wr + slot1;
    const uint32_t model_layers_0_mlp_up_proj_weight_smem_wr1 = model_layers_0_mlp_up_proj_weight_smem_wr + slot1;
    const int slot2 = (k2_o & 1) * 1024;
    const uint32_t m_rd1 = m_rd + slot2;
    const int slot3 = (k2_o & 1) * 16384;
    const uint32_t m1_rd1 = m1_rd + slot3;
    const uint32_t m3_rd1 = m3_rd + slot3;
    cp_async_wait<0>();
    block_sync();
    cp_async16_if_zfill(tid >> 3 < 8 && k2_o + 1 < 64, p_o * 8 + (tid >> 3) < s, mul_10_smem_wr1, mul_10_at1 + 32);
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
      #pragma unroll
      for (int c = 0; c < 4; ++c) {
        cp_async16_if(k2_o + 1 < 64, (model_layers_0_mlp_gate_proj_weight_smem_wr1 ^ c * 32) + r * 8192, model_layers_0_mlp_gate_proj_weight_at1 + r * 131072 + c * 8 + 32);
      }
    }
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
      #pragma unroll
      for (int c = 0; c < 4; ++c) {
        cp_async16_if(k2_o + 1 < 64, (model_layers_0_mlp_up_proj_weight_smem_wr1 ^ c * 32) + r * 8192, model_layers_0_mlp_up_proj_weight_at1 + r * 131072 + c * 8 + 32);
      }
    }
    cp_async_commit();
    #pragma unroll
    for (int k2_o1 = 0; k2_o1 < 2; ++k2_o1) {
      float m[4][4];
      #pragma unroll
      for (int p_r_q = 0; p_r_q < 4; ++p_r_q) {
        lds128(m[p_r_q], m_rd1 + p_r_q * 256 + k2_o1 * 16);
      }
      float m1[2][4][4];
      #pragma unroll
      for (int m2_r_q = 0; m2_r_q < 2; ++m2_r_q) {
        #pragma unroll
        for (int m2_r = 0; m2_r < 4; ++m2_r) {
          lds128(m1[m2_r_q][m2_r], (m1_rd1 ^ (k2_o1 ^ ((((m2 * 4 + m2_r) & 31) >> 4) + ((((m2 * 4 + m2_r) & 31) >> 2) & 1) * 2 + ((((m2 * 4 + m2_r) & 31) >> 3) & 1) * 4)) * 16) + m2_r_q * 8192 + ((m2 * 4 + m2_r) >> 5) * 4096 + m2_r * 1024 + (((m2 * 4 + m2_r) & 31) >> 2) * 128);
        }
      }
      float m3[2][4][4];
      #pragma unroll
      for (int m2_r_q = 0; m2_r_q < 2; ++m2_r_q) {
        #pragma unroll
        for (int m2_r = 0; m2_r < 4; ++m2_r) {
          lds128(m3[m2_r_q][m2_r], (m3_rd1 ^ (k2_o1 ^ ((((m2 * 4 + m2_r) & 31) >> 4) + ((((m2 * 4 + m2_r) & 31) >> 2) & 1) * 2 + ((((m2 * 4 + m2_r) & 31) >> 3) & 1) * 4)) * 16) + m2_r_q * 8192 + ((m2 * 4 + m2_r) >> 5) * 4096 + m2_r * 1024 + (((m2 * 4 + m2_r) & 31) >> 2) * 128);
        }
      }
      #pragma unroll
      for (int k2 = 0; k2 < 4; ++k2) {
        #pragma unroll
        for (int p_r_q = 0; p_r_q < 4; ++p_r_q) {
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
        for (int p_r_q = 0; p_r_q < 4; ++p_r_q) {
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
    mul_10_at1 += 32;
    model_layers_0_mlp_gate_proj_weight_at1 += 32;
    model_layers_0_mlp_up_proj_weight_at1 += 32;
  }
  #pragma unroll
  for (int p_r_q = 0; p_r_q < 4; ++p_r_q) {
    #pragma unroll
    for (int m2_r_q = 0; m2_r_q < 2; ++m2_r_q) {
      sts128(linear_4_put + p_r_q * 4096 + m2_r_q * 2048, linear_4[p_r_q][m2_r_q]);
    }
  }
  block_sync();
  #pragma unroll
  for (int p_r_q = 0; p_r_q < 4; ++p_r_q) {
    #pragma unroll
    for (int m2_r_q = 0; m2_r_q < 2; ++m2_r_q) {
      float linear_4_part[4][4];
      lds128(linear_4_part[0], linear_4_get + p_r_q * 4096 + m2_r_q * 2048);
      lds128(linear_4_part[1], linear_4_get + p_r_q * 4096 + m2_r_q * 2048 + 512);
      lds128(linear_4_part[2], linear_4_get + p_r_q * 4096 + m2_r_q * 2048 + 1024);
      lds128(linear_4_part[3], linear_4_get + p_r_q * 4096 + m2_r_q * 2048 + 1536);
      linear_4[p_r_q][m2_r_q][0] = linear_4_part[0][0] + linear_4_part[1][0] + (linear_4_part[2][0] + linear_4_part[3][0]);
      linear_4[p_r_q][m2_r_q][1] = linear_4_part[0][1] + linear_4_part[1][1] + (linear_4_part[2][1] + linear_4_part[3][1]);
      linear_4[p_r_q][m2_r_q][2] = linear_4_part[0][2] + linear_4_part[1][2] + (linear_4_part[2][2] + linear_4_part[3][2]);
      linear_4[p_r_q][m2_r_q][3] = linear_4_part[0][3] + linear_4_part[1][3] + (linear_4_part[2][3] + linear_4_part[3][3]);
    }
  }
  #pragma unroll
  for (int p_r_q = 0; p_r_q < 4; ++p_r_q) {
    #pragma unroll
    for (int m2_r_q = 0; m2_r_q < 2; ++m2_r_q) {
      sts128(linear_5_put + p_r_q * 4096 + m2_r_q * 2048, linear_5[p_r_q][m2_r_q]);
    }
  }
  block_sync();
  #pragma unroll
  for (int p_r_q = 0; p_r_q < 4; ++p_r_q) {
    #pragma unroll
    for (int m2_r_q = 0; m2_r_q < 2; ++m2_r_q) {
      float linear_5_part[4][4];
      lds128(linear_5_part[0], linear_5_get + p_r_q * 4096 + m2_r_q * 2048);
      lds128(linear_5_part[1], linear_5_get + p_r_q * 4096 + m2_r_q * 2048 + 512);
      lds128(linear_5_part[2], linear_5_get + p_r_q * 4096 + m2_r_q * 2048 + 1024);
      lds128(linear_5_part[3], linear_5_get + p_r_q * 4096 + m2_r_q * 2048 + 1536);
      linear_5[p_r_q][m2_r_q][0] = linear_5_part[0][0] + linear_5_part[1][0] + (linear_5_part[2][0] + linear_5_part[3][0]);
      linear_5[p_r_q][m2_r_q][1] = linear_5_part[0][1] + linear_5_part[1][1] + (linear_5_part[2][1] + linear_5_part[3][1]);
      linear_5[p_r_q][m2_r_q][2] = linear_5_part[0][2] + linear_5_part[1][2] + (linear_5_part[2][2] + linear_5_part[3][2]);
      linear_5[p_r_q][m2_r_q][3] = linear_5_part[0][3] + linear_5_part[1][3] + (linear_5_part[2][3] + linear_5_part[3][3]);
    }
  }
  if (w < 1) {
    #pragma unroll
    for (int p_r_q = 0; p_r_q < 4; ++p_r_q) {
      if (p_o * 8 + p_r_q * 2 + p < s) {
        #pragma unroll
        for (int m2_r_q = 0; m2_r_q < 2; ++m2_r_q) {
          stg128(mul_11_at + p_r_q * 11264 + m2_r_q * 64, float4{
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
