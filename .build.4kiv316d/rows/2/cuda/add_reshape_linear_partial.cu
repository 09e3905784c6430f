// rules: tileify chunk_matmul_k split_matmul_k blockify_launch stage_inputs drop_zero_guard unguard register_tile
//        slice_matmul_k spread_rows permute_register_tile double_buffer async_copy permute_stage vector_reduce
//        near_copies xor_smem pipeline_predicated vector_axis snake
// grid 16 x -(-s // 16) x 6, 128 threads, 106496 bytes of shared memory
extern "C" __global__ void __launch_bounds__(128, 1)
add_reshape_linear_partial(
    const float* __restrict__ model_embed_tokens_weight,
    const long long* __restrict__ input_ids,
    const float* __restrict__ scaled_dot_product_attention,
    const float* __restrict__ model_layers_0_self_attn_o_proj_weight,
    float* __restrict__ part2,
    const int s) {
  DPLC_DYN_SMEM(float, smem_buf);
  const uint32_t smem = smem_addr(smem_buf);
  const int k2_o = blockIdx.x;
  const int p_o = blockIdx.y;
  const int s6 = blockIdx.z;
  const int tid = threadIdx.x;
  const int w = tid >> 5;
  const int p = (tid >> 4) & 1;
  const int k2 = tid & 15;
  const uint32_t scaled_dot_product_attention_smem = smem;
  const uint32_t scaled_dot_product_attention_smem_wr = scaled_dot_product_attention_smem + tid * 16;
  const float* scaled_dot_product_attention_at = scaled_dot_product_attention + p_o * 32768 + (tid >> 3) * 2048 + s6 * 352 + (tid & 7) * 4;
  const uint32_t model_layers_0_self_attn_o_proj_weight_smem = smem + 8192;
  const uint32_t model_layers_0_self_attn_o_proj_weight_smem_wr = model_layers_0_self_attn_o_proj_weight_smem + (tid >> 1) * 128 + ((tid & 1) ^ (((tid >> 3) & 1) + ((tid >> 1) & 1) * 2 + ((tid >> 2) & 1) * 4)) * 16;
  const float* model_layers_0_self_attn_o_proj_weight_at = model_layers_0_self_attn_o_proj_weight + k2_o * 262144 + (tid >> 6) * 65536 + ((tid >> 4) & 3) * 2048 + ((tid >> 1) & 7) * 8192 + s6 * 352 + (tid & 1) * 4;
  const uint32_t s1_rd = scaled_dot_product_attention_smem + p * 128 + w * 32;
  const uint32_t m1_rd = model_layers_0_self_attn_o_proj_weight_smem + w * 32;
  const uint32_t linear_3_x = smem + 73728;
  const uint32_t linear_3_put = linear_3_x + w * 512 + (tid & 31) * 16;
  const uint32_t linear_3_get = linear_3_x + (tid & 31) * 16;
  float* part2_at = part2 + s6 * s * 2048 + p_o * 32768 + p * 2048 + k2_o * 128 + k2 * 4;
  float linear_3[8][2][4] = {};
  cp_async16_zfill(p_o * 16 + (tid >> 3) < s, scaled_dot_product_attention_smem_wr, scaled_dot_product_attention_at);
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    #pragma unroll
    for (int c = 0; c < 4; ++c) {
      cp_async16((model_layers_0_self_attn_o_proj_weight_smem_wr ^ c * 32) + r * 8192, model_layers_0_self_attn_o_proj_weight_at + r * 131072 + c * 8);
    }
  }
  cp_async_commit();
  cp_async16_zfill(p_o * 16 + (tid >> 3) < s, scaled_dot_product_attention_smem_wr + 2048, scaled_dot_product_attention_at + 32);
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    #pragma unroll
    for (int c = 0; c < 4; ++c) {
      cp_async16((model_layers_0_self_attn_o_proj_weight_smem_wr ^ c * 32) + r * 8192 + 16384, model_layers_0_self_attn_o_proj_weight_at + r * 131072 + c * 8 + 32);
    }
  }
  cp_async_commit();
  cp_async16_zfill(p_o * 16 + (tid >> 3) < s, scaled_dot_product_attention_smem_wr + 4096, scaled_dot_product_attention_at + 64);
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    #pragma unroll
    for (int c = 0; c < 4; ++c) {
      cp_async16((model_layers_0_self_attn_o_proj_weight_smem_wr ^ c * 32) + r * 8192 + 32768, model_layers_0_self_attn_o_proj_weight_at + r * 131072 + c * 8 + 64);
    }
  }
  cp_async_commit();
  const float* scaled_dot_product_attention_at1 = scaled_dot_product_attention_at;
  const float* model_layers_0_self_attn_o_proj_weight_at1 = model_layers_0_self_attn_o_proj_weight_at;
  #pragma unroll 1
  for (int j2_o = 0; j2_o < 11; ++j2_o) {
    const int slot = ((j2_o + 3) & 3) * 2048;
    const uint32_t scaled_dot_product_attention_smem_wr1 = scaled_dot_product_attention_smem_wr + slot;
    const int slot1 = ((j2_o + 3) & 3) * 16384;
    const uint32_t model_layers_0_self_attn_o_proj_weight_smem_wr1 = model_layers_0_self_attn_o_proj_weight_smem_wr + slot1;
    const int slot2 = (j2_o & 3) * 2048;
    const uint32_t s1_rd1 = s1_rd + slot2;
    const int slot3 = (j2_o & 3) * 16384;
    const uint32_t m1_rd1 = m1_rd + slot3;
    cp_async_wait<2>();
    block_sync();
    cp_async16_if_zfill(j2_o + 3 < 11, p_o * 16 + (tid >> 3) < s && s6 * 11 + j2_o + 3 < 64, scaled_dot_product_attention_smem_wr1, scaled_dot_product_attention_at1 + 96);
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
      #pragma unroll
      for (int c = 0; c < 4; ++c) {
        cp_async16_if_zfill(j2_o + 3 < 11, s6 * 11 + j2_o + 3 < 64, (model_layers_0_self_attn_o_proj_weight_smem_wr1 ^ c * 32) + r * 8192, model_layers_0_self_attn_o_proj_weight_at1 + r * 131072 + c * 8 + 96);
      }
    }
    cp_async_commit();
    #pragma unroll
    for (int j2_o1 = 0; j2_o1 < 2; ++j2_o1) {
      float s1[8][4];
      #pragma unroll
      for (int p_r_q = 0; p_r_q < 8; ++p_r_q) {
        lds128(s1[p_r_q], s1_rd1 + p_r_q * 256 + j2_o1 * 16);
      }
      float m1[2][4][4];
      #pragma unroll
      for (int k2_r_q = 0; k2_r_q < 2; ++k2_r_q) {
        #pragma unroll
        for (int k2_r = 0; k2_r < 4; ++k2_r) {
          lds128(m1[k2_r_q][k2_r], (m1_rd1 ^ (j2_o1 ^ ((((k2 * 4 + k2_r) & 31) >> 4) + ((((k2 * 4 + k2_r) & 31) >> 2) & 1) * 2 + ((((k2 * 4 + k2_r) & 31) >> 3) & 1) * 4)) * 16) + k2_r_q * 8192 + ((k2 * 4 + k2_r) >> 5) * 4096 + k2_r * 1024 + (((k2 * 4 + k2_r) & 31) >> 2) * 128);
        }
      }
      #pragma unroll
      for (int j2 = 0; j2 < 4; ++j2) {
        #pragma unroll
        for (int p_r_q = 0; p_r_q < 8; ++p_r_q) {
          #pragma unroll
          for (int k2_r_q_ = 0; k2_r_q_ < 2; ++k2_r_q_) {
            const int k2_r_q = p_r_q & 1 ? 1 - k2_r_q_ : k2_r_q_;
            #pragma unroll
            for (int k2_r_ = 0; k2_r_ < 4; ++k2_r_) {
              const int k2_r = p_r_q & 1 ? 3 - k2_r_ : k2_r_;
              linear_3[p_r_q][k2_r_q][k2_r] += s1[p_r_q][j2] * m1[k2_r_q][k2_r][j2];
            }
          }
        }
      }
    }
    scaled_dot_product_attention_at1 += 32;
    model_layers_0_self_attn_o_proj_weight_at1 += 32;
  }
  #pragma unroll
  for (int p_r_q = 0; p_r_q < 8; ++p_r_q) {
    #pragma unroll
    for (int k2_r_q = 0; k2_r_q < 2; ++k2_r_q) {
      sts128(linear_3_put + p_r_q * 4096 + k2_r_q * 2048, linear_3[p_r_q][k2_r_q]);
    }
  }
  block_sync();
  #pragma unroll
  for (int p_r_q = 0; p_r_q < 8; ++p_r_q) {
    #pragma unroll
    for (int k2_r_q = 0; k2_r_q < 2; ++k2_r_q) {
      float linear_3_part[4][4];
      lds128(linear_3_part[0], linear_3_get + p_r_q * 4096 + k2_r_q * 2048);
      lds128(linear_3_part[1], linear_3_get + p_r_q * 4096 + k2_r_q * 2048 + 512);
      lds128(linear_3_part[2], linear_3_get + p_r_q * 4096 + k2_r_q * 2048 + 1024);
      lds128(linear_3_part[3], linear_3_get + p_r_q * 4096 + k2_r_q * 2048 + 1536);
      linear_3[p_r_q][k2_r_q][0] = linear_3_part[0][0] + linear_3_part[1][0] + (linear_3_part[2][0] + linear_3_part[3][0]);
      linear_3[p_r_q][k2_r_q][1] = linear_3_part[0][1] + linear_3_part[1][1] + (linear_3_part[2][1] + linear_3_part[3][1]);
      linear_3[p_r_q][k2_r_q][2] = linear_3_part[0][2] + linear_3_part[1][2] + (linear_3_part[2][2] + linear_3_part[3][2]);
      linear_3[p_r_q][k2_r_q][3] = linear_3_part[0][3] + linear_3_part[1][3] + (linear_3_part[2][3] + linear_3_part[3][3]);
    }
  }
  if (w < 1) {
    #pragma unroll
    for (int p_r_q = 0; p_r_q < 8; ++p_r_q) {
      if (p_o * 16 + p_r_q * 2 + p < s) {
        #pragma unroll
        for (int k2_r_q = 0; k2_r_q < 2; ++k2_r_q) {
          stg128(part2_at + p_r_q * 4096 + k2_r_q * 64, linear_3[p_r_q][k2_r_q]);
        }
      }
    }
  }
}
