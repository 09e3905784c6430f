// rules: tileify chunk_matmul_k blockify_launch stage_inputs unguard register_tile warp_tile spread_rows
//        permute_register_tile double_buffer async_copy permute_stage vector_reduce near_copies xor_smem
//        pipeline_predicated vector_axis snake residency
// grid 16 x -(-s // 64) x 1, 128 threads, 49152 bytes of shared memory
extern "C" __global__ void __launch_bounds__(128, 2)
add_reshape_linear_2(
    const float* __restrict__ add_9,
    const float* __restrict__ scaled_dot_product_attention_1,
    const float* __restrict__ model_layers_1_self_attn_o_proj_weight,
    float* __restrict__ add_13,
    const int s) {
  DPLC_DYN_SMEM(float, smem_buf);
  const uint32_t smem = smem_addr(smem_buf);
  const int t3_o = blockIdx.x;
  const int p_o = blockIdx.y;
  const int tid = threadIdx.x;
  const int p_w = tid >> 6;
  const int t3_w = (tid >> 5) & 1;
  const int p = (tid >> 3) & 3;
  const int t3 = tid & 7;
  const float* add_9_at = add_9 + p_o * 131072 + p * 2048 + p_w * 8192 + t3_o * 128 + t3 * 4 + t3_w * 32;
  const uint32_t scaled_dot_product_attention_1_smem = smem;
  const uint32_t scaled_dot_product_attention_1_smem_wr = scaled_dot_product_attention_1_smem + (tid >> 1) * 64 + ((tid & 1) ^ ((tid >> 2) & 1) * 2) * 16;
  const float* scaled_dot_product_attention_1_at = scaled_dot_product_attention_1 + p_o * 131072 + (tid >> 1) * 2048 + (tid & 1) * 4;
  const uint32_t model_layers_1_self_attn_o_proj_weight_smem = smem + 16384;
  const uint32_t model_layers_1_self_attn_o_proj_weight_smem_wr = model_layers_1_self_attn_o_proj_weight_smem + (tid >> 1) * 64 + ((tid & 1) ^ (((tid >> 3) & 1) + ((tid >> 2) & 1) * 2)) * 16;
  const float* model_layers_1_self_attn_o_proj_weight_at = model_layers_1_self_attn_o_proj_weight + t3_o * 262144 + (tid >> 6) * 65536 + ((tid >> 4) & 3) * 2048 + ((tid >> 1) & 7) * 8192 + (tid & 1) * 4;
  const uint32_t s1_rd = scaled_dot_product_attention_1_smem + p * 64 + p_w * 256 + (p >> 1) * 32;
  const uint32_t m_rd = model_layers_1_self_attn_o_proj_weight_smem + t3_w * 2048 + t3 * 64 + (t3 >> 2) * 16 + ((t3 >> 1) & 1) * 32;
  float* add_13_at = add_13 + p_o * 131072 + p * 2048 + p_w * 8192 + t3_o * 128 + t3 * 4 + t3_w * 32;
  float linear_10[8][2][4] = {};
  float a[8][2][4];
  #pragma unroll
  for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
    #pragma unroll
    for (int t3_r_q_q = 0; t3_r_q_q < 2; ++t3_r_q_q) {
      if (p_o * 64 + p + p_r_q_q * 8 + p_w * 4 < s) {
        ldg128(a[p_r_q_q][t3_r_q_q], add_9_at + p_r_q_q * 16384 + t3_r_q_q * 64);
      } else {
        a[p_r_q_q][t3_r_q_q][0] = a[p_r_q_q][t3_r_q_q][1] = a[p_r_q_q][t3_r_q_q][2] = a[p_r_q_q][t3_r_q_q][3] = 0.0f;
      }
    }
  }
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    cp_async16_zfill(p_o * 64 + (tid >> 1) < s, scaled_dot_product_attention_1_smem_wr ^ c * 32, scaled_dot_product_attention_1_at + c * 8);
  }
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      cp_async16((model_layers_1_self_attn_o_proj_weight_smem_wr ^ c * 32) + r * 4096, model_layers_1_self_attn_o_proj_weight_at + r * 131072 + c * 8);
    }
  }
  cp_async_commit();
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    cp_async16_zfill(p_o * 64 + (tid >> 1) < s, (scaled_dot_product_attention_1_smem_wr ^ c * 32) + 4096, scaled_dot_product_attention_1_at + c * 8 + 16);
  }
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      cp_async16((model_layers_1_self_attn_o_proj_weight_smem_wr ^ c * 32) + r * 4096 + 8192, model_layers_1_self_attn_o_proj_weight_at + r * 131072 + c * 8 + 16);
    }
  }
  cp_async_commit();
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    cp_async16_zfill(p_o * 64 + (tid >> 1) < s, (scaled_dot_product_attention_1_smem_wr ^ c * 32) + 8192, scaled_dot_product_attention_1_at + c * 8 + 32);
  }
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      cp_async16((model_layers_1_self_attn_o_proj_weight_smem_wr ^ c * 32) + r * 4096 + 16384, model_layers_1_self_attn_o_proj_weight_at + r * 131072 + c * 8 + 32);
    }
  }
  cp_async_commit();
  const float* scaled_dot_product_attention_1_at1 = scaled_dot_product_attention_1_at;
  const float* model_layers_1_self_attn_o_proj_weight_at1 = model_layers_1_self_attn_o_proj_weight_at;
  #pragma unroll 1
  for (int s3_o = 0; s3_o < 128; ++s3_o) {
    const int slot = ((s3_o + 3) & 3) * 4096;
    const uint32_t scaled_dot_product_attention_1_smem_wr1 = scaled_dot_product_attention_1_smem_wr + slot;
    const int slot1 = ((s3_o + 3) & 3) * 8192;
    const uint32_t model_layers_1_self_attn_o_proj_weight_smem_wr1 = model_layers_1_self_attn_o_proj_weight_smem_wr + slot1;
    const int slot2 = (s3_o & 3) * 4096;
    const uint32_t s1_rd1 = s1_rd + slot2;
    const int slot3 = (s3_o & 3) * 8192;
    const uint32_t m_rd1 = m_rd + slot3;
    cp_async_wait<2>();
    block_sync();
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      cp_async16_if_zfill(s3_o + 3 < 128, p_o * 64 + (tid >> 1) < s, scaled_dot_product_attention_1_smem_wr1 ^ c * 32, scaled_dot_product_attention_1_at1 + c * 8 + 48);
    }
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
      #pragma unroll
      for (int c = 0; c < 2; ++c) {
        cp_async16_if(s3_o + 3 < 128, (model_layers_1_self_attn_o_proj_weight_smem_wr1 ^ c * 32) + r * 4096, model_layers_1_self_attn_o_proj_weight_at1 + r * 131072 + c * 8 + 48);
      }
    }
    cp_async_commit();
    #pragma unroll
    for (int s3_o1 = 0; s3_o1 < 4; ++s3_o1) {
      float s1[8][4];
      #pragma unroll
      for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
        lds128(s1[p_r_q_q], (s1_rd1 ^ s3_o1 * 16) + p_r_q_q * 512);
      }
      float m[2][4][4];
      #pragma unroll
      for (int t3_r_q_q = 0; t3_r_q_q < 2; ++t3_r_q_q) {
        #pragma unroll
        for (int t3_r = 0; t3_r < 4; ++t3_r) {
          lds128(m[t3_r_q_q][t3_r], (m_rd1 ^ s3_o1 * 16) + t3_r_q_q * 4096 + t3_r * 512);
        }
      }
      #pragma unroll
      for (int s3 = 0; s3 < 4; ++s3) {
        #pragma unroll
        for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
          #pragma unroll
          for (int t3_r_q_q_ = 0; t3_r_q_q_ < 2; ++t3_r_q_q_) {
            const int t3_r_q_q = p_r_q_q & 1 ? 1 - t3_r_q_q_ : t3_r_q_q_;
            #pragma unroll
            for (int t3_r_ = 0; t3_r_ < 4; ++t3_r_) {
              const int t3_r = p_r_q_q & 1 ? 3 - t3_r_ : t3_r_;
              linear_10[p_r_q_q][t3_r_q_q][t3_r] += s1[p_r_q_q][s3] * m[t3_r_q_q][t3_r][s3];
            }
          }
        }
      }
    }
    scaled_dot_product_attention_1_at1 += 16;
    model_layers_1_self_attn_o_proj_weight_at1 += 16;
  }
  #pragma unroll
  for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
    if (p_o * 64 + p + p_r_q_q * 8 + p_w * 4 < s) {
      #pragma unroll
      for (int t3_r_q_q = 0; t3_r_q_q < 2; ++t3_r_q_q) {
        stg128(add_13_at + p_r_q_q * 16384 + t3_r_q_q * 64, float4{
            a[p_r_q_q][t3_r_q_q][0] + linear_10[p_r_q_q][t3_r_q_q][0],
            a[p_r_q_q][t3_r_q_q][1] + linear_10[p_r_q_q][t3_r_q_q][1],
            a[p_r_q_q][t3_r_q_q][2] + linear_10[p_r_q_q][t3_r_q_q][2],
            a[p_r_q_q][t3_r_q_q][3] + linear_10[p_r_q_q][t3_r_q_q][3],
        });
      }
    }
  }
}
