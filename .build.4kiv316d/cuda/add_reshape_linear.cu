// rules: tileify chunk_matmul_k blockify_launch stage_inputs unguard register_tile warp_tile spread_rows
//        permute_register_tile double_buffer async_copy permute_stage vector_reduce near_copies xor_smem
//        pipeline_predicated vector_axis snake residency
// grid 16 x -(-s // 64) x 1, 128 threads, 49152 bytes of shared memory
extern "C" __global__ void __launch_bounds__(128, 2)
add_reshape_linear(
    const float* __restrict__ model_embed_tokens_weight,
    const long long* __restrict__ input_ids,
    const float* __restrict__ scaled_dot_product_attention,
    const float* __restrict__ model_layers_0_self_attn_o_proj_weight,
    float* __restrict__ add_7,
    const int s) {
  DPLC_DYN_SMEM(float, smem_buf);
  const uint32_t smem = smem_addr(smem_buf);
  const int k2_o = blockIdx.x;
  const int p_o = blockIdx.y;
  const int tid = threadIdx.x;
  const int p_w = tid >> 6;
  const int k2_w = (tid >> 5) & 1;
  const int p = (tid >> 3) & 3;
  const int k2 = tid & 7;
  const long long* input_ids_at = input_ids + p_o * 64 + p + p_w * 4;
  const float* model_embed_tokens_weight_at = model_embed_tokens_weight + k2_o * 128 + k2 * 4 + k2_w * 32;
  const uint32_t scaled_dot_product_attention_smem = smem;
  const uint32_t scaled_dot_product_attention_smem_wr = scaled_dot_product_attention_smem + (tid >> 1) * 64 + ((tid & 1) ^ ((tid >> 2) & 1) * 2) * 16;
  const float* scaled_dot_product_attention_at = scaled_dot_product_attention + p_o * 131072 + (tid >> 1) * 2048 + (tid & 1) * 4;
  const uint32_t model_layers_0_self_attn_o_proj_weight_smem = smem + 16384;
  const uint32_t model_layers_0_self_attn_o_proj_weight_smem_wr = model_layers_0_self_attn_o_proj_weight_smem + (tid >> 1) * 64 + ((tid & 1) ^ (((tid >> 3) & 1) + ((tid >> 2) & 1) * 2)) * 16;
  const float* model_layers_0_self_attn_o_proj_weight_at = model_layers_0_self_attn_o_proj_weight + k2_o * 262144 + (tid >> 6) * 65536 + ((tid >> 4) & 3) * 2048 + ((tid >> 1) & 7) * 8192 + (tid & 1) * 4;
  const uint32_t s1_rd = scaled_dot_product_attention_smem + p * 64 + p_w * 256 + (p >> 1) * 32;
  const uint32_t m1_rd = model_layers_0_self_attn_o_proj_weight_smem + k2_w * 2048 + k2 * 64 + (k2 >> 2) * 16 + ((k2 >> 1) & 1) * 32;
  float* add_7_at = add_7 + p_o * 131072 + p * 2048 + p_w * 8192 + k2_o * 128 + k2 * 4 + k2_w * 32;
  float linear_3[8][2][4] = {};
  long long i[8];
  #pragma unroll
  for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
    i[p_r_q_q] = p_o * 64 + p + p_r_q_q * 8 + p_w * 4 < s ? ldg(input_ids_at + p_r_q_q * 8) : 0LL;
  }
  #pragma unroll
  for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
    if (p_o * 64 + p + p_r_q_q * 8 + p_w * 4 < s) check_place(i[p_r_q_q], 32000);
  }
  float m[8][2][4];
  #pragma unroll
  for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
    #pragma unroll
    for (int k2_r_q_q = 0; k2_r_q_q < 2; ++k2_r_q_q) {
      if (p_o * 64 + p + p_r_q_q * 8 + p_w * 4 < s) {
        ldg128(m[p_r_q_q][k2_r_q_q], model_embed_tokens_weight_at + i[p_r_q_q] * 2048 + k2_r_q_q * 64);
      } else {
        m[p_r_q_q][k2_r_q_q][0] = m[p_r_q_q][k2_r_q_q][1] = m[p_r_q_q][k2_r_q_q][2] = m[p_r_q_q][k2_r_q_q][3] = 0.0f;
      }
    }
  }
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    cp_async16_zfill(p_o * 64 + (tid >> 1) < s, scaled_dot_product_attention_smem_wr ^ c * 32, scaled_dot_product_attention_at + c * 8);
  }
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      cp_async16((model_layers_0_self_attn_o_proj_weight_smem_wr ^ c * 32) + r * 4096, model_layers_0_self_attn_o_proj_weight_at + r * 131072 + c * 8);
    }
  }
  cp_async_commit();
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    cp_async16_zfill(p_o * 64 + (tid >> 1) < s, (scaled_dot_product_attention_smem_wr ^ c * 32) + 4096, scaled_dot_product_attention_at + c * 8 + 16);
  }
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      cp_async16((model_layers_0_self_attn_o_proj_weight_smem_wr ^ c * 32) + r * 4096 + 8192, model_layers_0_self_attn_o_proj_weight_at + r * 131072 + c * 8 + 16);
    }
  }
  cp_async_commit();
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    cp_async16_zfill(p_o * 64 + (tid >> 1) < s, (scaled_dot_product_attention_smem_wr ^ c * 32) + 8192, scaled_dot_product_attention_at + c * 8 + 32);
  }
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      cp_async16((model_layers_0_self_attn_o_proj_weight_smem_wr ^ c * 32) + r * 4096 + 16384, model_layers_0_self_attn_o_proj_weight_at + r * 131072 + c * 8 + 32);
    }
  }
  cp_async_commit();
  const float* scaled_dot_product_attention_at1 = scaled_dot_product_attention_at;
  const float* model_layers_0_self_attn_o_proj_weight_at1 = model_layers_0_self_attn_o_proj_weight_at;
  #pragma unroll 1
  for (int j2_o = 0; j2_o < 128; ++j2_o) {
    const int slot = ((j2_o + 3) & 3) * 4096;
    const uint32_t scaled_dot_product_attention_smem_wr1 = scaled_dot_product_attention_smem_wr + slot;
    const int slot1 = ((j2_o + 3) & 3) * 8192;
    const uint32_t model_layers_0_self_attn_o_proj_weight_smem_wr1 = model_layers_0_self_attn_o_proj_weight_smem_wr + slot1;
    const int slot2 = (j2_o & 3) * 4096;
    const uint32_t s1_rd1 = s1_rd + slot2;
    const int slot3 = (j2_o & 3) * 8192;
    const uint32_t m1_rd1 = m1_rd + slot3;
    cp_async_wait<2>();
    block_sync();
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      cp_async16_if_zfill(j2_o + 3 < 128, p_o * 64 + (tid >> 1) < s, scaled_dot_product_attention_smem_wr1 ^ c * 32, scaled_dot_product_attention_at1 + c * 8 + 48);
    }
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
      #pragma unroll
      for (int c = 0; c < 2; ++c) {
        cp_async16_if(j2_o + 3 < 128, (model_layers_0_self_attn_o_proj_weight_smem_wr1 ^ c * 32) + r * 4096, model_layers_0_self_attn_o_proj_weight_at1 + r * 131072 + c * 8 + 48);
      }
    }
    cp_async_commit();
    #pragma unroll
    for (int j2_o1 = 0; j2_o1 < 4; ++j2_o1) {
      float s1[8][4];
      #pragma unroll
      for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
        lds128(s1[p_r_q_q], (s1_rd1 ^ j2_o1 * 16) + p_r_q_q * 512);
      }
      float m1[2][4][4];
      #pragma unroll
      for (int k2_r_q_q = 0; k2_r_q_q < 2; ++k2_r_q_q) {
        #pragma unroll
        for (int k2_r = 0; k2_r < 4; ++k2_r) {
          lds128(m1[k2_r_q_q][k2_r], (m1_rd1 ^ j2_o1 * 16) + k2_r_q_q * 4096 + k2_r * 512);
        }
      }
      #pragma unroll
      for (int j2 = 0; j2 < 4; ++j2) {
        #pragma unroll
        for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
          #pragma unroll
          for (int k2_r_q_q_ = 0; k2_r_q_q_ < 2; ++k2_r_q_q_) {
            const int k2_r_q_q = p_r_q_q & 1 ? 1 - k2_r_q_q_ : k2_r_q_q_;
            #pragma unroll
            for (int k2_r_ = 0; k2_r_ < 4; ++k2_r_) {
              const int k2_r = p_r_q_q & 1 ? 3 - k2_r_ : k2_r_;
              linear_3[p_r_q_q][k2_r_q_q][k2_r] += s1[p_r_q_q][j2] * m1[k2_r_q_q][k2_r][j2];
            }
          }
        }
      }
    }
    scaled_dot_product_attention_at1 += 16;
    model_layers_0_self_attn_o_proj_weight_at1 += 16;
  }
  #pragma unroll
  for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
    if (p_o * 64 + p + p_r_q_q * 8 + p_w * 4 < s) {
      #pragma unroll
      for (int k2_r_q_q = 0; k2_r_q_q < 2; ++k2_r_q_q) {
        stg128(add_7_at + p_r_q_q * 16384 + k2_r_q_q * 64, float4{
            m[p_r_q_q][k2_r_q_q][0] + linear_3[p_r_q_q][k2_r_q_q][0],
            m[p_r_q_q][k2_r_q_q][1] + linear_3[p_r_q_q][k2_r_q_q][1],
            m[p_r_q_q][k2_r_q_q][2] + linear_3[p_r_q_q][k2_r_q_q][2],
            m[p_r_q_q][k2_r_q_q][3] + linear_3[p_r_q_q][k2_r_q_q][3],
        });
      }
    }
  }
}
