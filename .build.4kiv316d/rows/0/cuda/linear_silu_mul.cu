// rules: tileify cooperative_reduce register_row rows_per_thread vector_axis
// grid 704 x 1 x 1, 256 threads, 512 bytes of shared memory
extern "C" __global__ void __launch_bounds__(256, 1)
linear_silu_mul(
    const float* __restrict__ mul_10,
    const float* __restrict__ model_layers_0_mlp_gate_proj_weight,
    const float* __restrict__ model_layers_0_mlp_up_proj_weight,
    float* __restrict__ mul_11) {
  DPLC_DYN_SMEM(float, smem_buf);
  const uint32_t smem = smem_addr(smem_buf);
  const int r1_o = blockIdx.x;
  const int t = threadIdx.x;
  const float* mul_10_at = mul_10 + t * 4;
  const float* model_layers_0_mlp_gate_proj_weight_at = model_layers_0_mlp_gate_proj_weight + r1_o * 16384 + t * 4;
  const float* model_layers_0_mlp_up_proj_weight_at = model_layers_0_mlp_up_proj_weight + r1_o * 16384 + t * 4;
  const uint32_t linear_4_all_x = smem;
  const uint32_t linear_4_all_put = linear_4_all_x + (t >> 5) * 4;
  const uint32_t linear_5_all_x = smem + 256;
  const uint32_t linear_5_all_put = linear_5_all_x + (t >> 5) * 4;
  float* mul_11_at = mul_11 + r1_o * 8;
  float m[2][4];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    ldg128(m[q], mul_10_at + q * 1024);
  }
  float m1[2][8][4];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    #pragma unroll
    for (int r1_r = 0; r1_r < 8; ++r1_r) {
      ldg128(m1[q][r1_r], model_layers_0_mlp_gate_proj_weight_at + r1_r * 2048 + q * 1024);
    }
  }
  float linear_4[4][8];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    #pragma unroll
    for (int v = 0; v < 4; ++v) {
      #pragma unroll
      for (int r1_r = 0; r1_r < 8; ++r1_r) {
        const float product10 = m[q][v] * m1[q][r1_r][v];
        linear_4[v][r1_r] = q == 0 ? product10 : linear_4[v][r1_r] + product10;
      }
    }
  }
  float m2[2][8][4];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    #pragma unroll
    for (int r1_r = 0; r1_r < 8; ++r1_r) {
      ldg128(m2[q][r1_r], model_layers_0_mlp_up_proj_weight_at + r1_r * 2048 + q * 1024);
    }
  }
  float linear_5[4][8];
  #pragma unroll
  for (int q = 0; q < 2; ++q) {
    #pragma unroll
    for (int v = 0; v < 4; ++v) {
      #pragma unroll
      for (int r1_r = 0; r1_r < 8; ++r1_r) {
        const float product11 = m[q][v] * m2[q][r1_r][v];
        linear_5[v][r1_r] = q == 0 ? product11 : linear_5[v][r1_r] + product11;
      }
    }
  }
  float linear_4_all[8];
  #pragma unroll
  for (int r1_r = 0; r1_r < 8; ++r1_r) {
    linear_4_all[r1_r] = linear_4[0][r1_r] + linear_4[1][r1_r] + (linear_4[2][r1_r] + linear_4[3][r1_r]);
  }
  #pragma unroll
  for (int r1_r = 0; r1_r < 8; ++r1_r) {
    #pragma unroll
    for (int lanes = 16; lanes >= 1; lanes >>= 1) linear_4_all[r1_r] += shfl_xor(linear_4_all[r1_r], lanes);
  }
  if ((t & 31) == 0) {
    #pragma unroll
    for (int r1_r = 0; r1_r < 8; ++r1_r) {
      sts32(linear_4_all_put + r1_r * 32, linear_4_all[r1_r]);
    }
  }
  block_sync();
  #pragma unroll
  for (int r1_r = 0; r1_r < 8; ++r1_r) {
    float linear_4_all_part[8];
    lds128(&linear_4_all_part[0], linear_4_all_x + r1_r * 32);
    lds128(&linear_4_all_part[4], linear_4_all_x + r1_r * 32 + 16);
    linear_4_all[r1_r] = linear_4_all_part[0] + linear_4_all_part[1] + (linear_4_all_part[2] + linear_4_all_part[3]) + (linear_4_all_part[4] + linear_4_all_part[5] + (linear_4_all_part[6] + linear_4_all_part[7]));
  }
  float linear_5_all[8];
  #pragma unroll
  for (int r1_r = 0; r1_r < 8; ++r1_r) {
    linear_5_all[r1_r] = linear_5[0][r1_r] + linear_5[1][r1_r] + (linear_5[2][r1_r] + linear_5[3][r1_r]);
  }
  #pragma unroll
  for (int r1_r = 0; r1_r < 8; ++r1_r) {
    #pragma unroll
    for (int lanes = 16; lanes >= 1; lanes >>= 1) linear_5_all[r1_r] += shfl_xor(linear_5_all[r1_r], lanes);
  }
  if ((t & 31) == 0) {
    #pragma unroll
    for (int r1_r = 0; r1_r < 8; ++r1_r) {
      sts32(linear_5_all_put + r1_r * 32, linear_5_all[r1_r]);
    }
  }
  block_sync();
  #pragma unroll
  for (int r1_r = 0; r1_r < 8; ++r1_r) {
    float linear_5_all_part[8];
    lds128(&linear_5_all_part[0], linear_5_all_x + r1_r * 32);
    lds128(&linear_5_all_part[4], linear_5_all_x + r1_r * 32 + 16);
    linear_5_all[r1_r] = linear_5_all_part[0] + linear_5_all_part[1] + (linear_5_all_part[2] + linear_5_all_part[3]) + (linear_5_all_part[4] + linear_5_all_part[5] + (linear_5_all_part[6] + linear_5_all_part[7]));
  }
  float mul_111[8];
  #pragma unroll
  for (int r1_r = 0; r1_r < 8; ++r1_r) {
    mul_111[r1_r] = linear_4_all[r1_r] * rcp_approx(1.0f + exp2_approx(linear_4_all[r1_r] * -1.4426950408889634f)) * linear_5_all[r1_r];
  }
  if (t < 1) {
    #pragma unroll
    for (int r1_r = 0; r1_r < 8; ++r1_r) {
      stg32(mul_11_at + r1_r, mul_111[r1_r]);
    }
  }
}
