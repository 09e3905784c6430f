// rules: tileify tile_axes chunk_matmul_k blockify_launch stage_inputs unguard register_tile warp_tile spread_rows
//        double_buffer async_copy vector_reduce near_copies xor_smem pipeline_predicated snake
// grid -(-s // 128) x -(-s // 128) x 32, 256 threads, 65536 bytes of shared memory
extern "C" __global__ void __launch_bounds__(256, 1)
arange_le_index_scaled_dot_product_attention(
    const long long* __restrict__ cumsum,
    const float* __restrict__ add_5,
    const float* __restrict__ add_6,
    float* __restrict__ kept,
    const int s) {
  DPLC_DYN_SMEM(float, smem_buf);
  const uint32_t smem = smem_addr(smem_buf);
  const int q_o = blockIdx.x;
  const int p_o = blockIdx.y;
  const int i2 = blockIdx.z;
  const int tid = threadIdx.x;
  const int p_w = tid >> 6;
  const int q_w = (tid >> 5) & 1;
  const int p = (tid >> 3) & 3;
  const int q = tid & 7;
  const long long* cumsum_at = cumsum + p_o * 128 + p + p_w * 4;
  const long long* cumsum_at1 = cumsum + q_o * 128 + q + q_w * 8;
  const uint32_t add_5_smem = smem;
  const uint32_t add_5_smem_wr = add_5_smem + (tid >> 1) * 64 + ((tid & 1) ^ ((tid >> 2) & 1) * 2) * 16;
  const float* add_5_at = add_5 + p_o * 262144 + (tid >> 1) * 2048 + i2 * 64 + (tid & 1) * 4;
  const uint32_t add_6_smem = smem + 32768;
  const uint32_t add_6_smem_wr = add_6_smem + (tid >> 4) * 64 + (((tid & 15) >> 2) ^ (((tid >> 5) & 1) + ((tid >> 6) & 1) * 2)) * 16 + (tid & 3) * 4;
  const float* add_6_at = add_6 + q_o * 32768 + (tid >> 4) * 256 + (tid & 15) * 4 + (i2 >> 3);
  const uint32_t a_rd = add_5_smem + p * 64 + p_w * 256 + (p >> 1) * 32;
  const uint32_t a1_rd = add_6_smem + q * 64 + q_w * 512 + ((q >> 1) & 1) * 16 + (q >> 2) * 32;
  float* kept_at = kept + p_o * s * 4096 + p * s * 32 + p_w * s * 128 + i2 * s + q_o * 128 + q + q_w * 8;
  float sum[8][8] = {};
  long long c[8][8];
  #pragma unroll
  for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
    #pragma unroll
    for (int q_r_q_q = 0; q_r_q_q < 8; ++q_r_q_q) {
      c[p_r_q_q][q_r_q_q] = p_o * 128 + p + p_r_q_q * 16 + p_w * 4 < s && q_o * 128 + q + q_r_q_q * 16 + q_w * 8 < s ? ldg(cumsum_at + p_r_q_q * 16) : 0LL;
    }
  }
  long long j4[8];
  #pragma unroll
  for (int q_r_q_q = 0; q_r_q_q < 8; ++q_r_q_q) {
    j4[q_r_q_q] = (long long)(q_o * 128 + q + q_r_q_q * 16 + q_w * 8);
  }
  long long c1[8][8];
  #pragma unroll
  for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
    #pragma unroll
    for (int q_r_q_q = 0; q_r_q_q < 8; ++q_r_q_q) {
      c1[p_r_q_q][q_r_q_q] = p_o * 128 + p + p_r_q_q * 16 + p_w * 4 < s && q_o * 128 + q + q_r_q_q * 16 + q_w * 8 < s ? ldg(cumsum_at1 + q_r_q_q * 16) : 0LL;
    }
  }
  bool and_2[8][8];
  #pragma unroll
  for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
    #pragma unroll
    for (int q_r_q_q = 0; q_r_q_q < 8; ++q_r_q_q) {
      and_2[p_r_q_q][q_r_q_q] = j4[q_r_q_q] <= (long long)(p_o * 128 + p + p_r_q_q * 16 + p_w * 4) && c[p_r_q_q][q_r_q_q] == c1[p_r_q_q][q_r_q_q];
    }
  }
  #pragma unroll
  for (int c_ = 0; c_ < 2; ++c_) {
    cp_async16_zfill(p_o * 128 + (tid >> 1) < s, add_5_smem_wr ^ c_ * 32, add_5_at + c_ * 8);
  }
  #pragma unroll
  for (int r_ = 0; r_ < 8; ++r_) {
    cp_async4_zfill(q_o * 128 + (tid >> 4) + r_ * 16 < s, add_6_smem_wr + r_ * 1024, add_6_at + r_ * 4096);
  }
  cp_async_commit();
  #pragma unroll
  for (int c_ = 0; c_ < 2; ++c_) {
    cp_async16_zfill(p_o * 128 + (tid >> 1) < s, (add_5_smem_wr ^ c_ * 32) + 8192, add_5_at + c_ * 8 + 16);
  }
  #pragma unroll
  for (int r_ = 0; r_ < 8; ++r_) {
    cp_async4_zfill(q_o * 128 + (tid >> 4) + r_ * 16 < s, add_6_smem_wr + r_ * 1024 + 8192, add_6_at + r_ * 4096 + 64);
  }
  cp_async_commit();
  #pragma unroll
  for (int c_ = 0; c_ < 2; ++c_) {
    cp_async16_zfill(p_o * 128 + (tid >> 1) < s, (add_5_smem_wr ^ c_ * 32) + 16384, add_5_at + c_ * 8 + 32);
  }
  #pragma unroll
  for (int r_ = 0; r_ < 8; ++r_) {
    cp_async4_zfill(q_o * 128 + (tid >> 4) + r_ * 16 < s, add_6_smem_wr + r_ * 1024 + 16384, add_6_at + r_ * 4096 + 128);
  }
  cp_async_commit();
  const float* add_5_at1 = add_5_at;
  const float* add_6_at1 = add_6_at;
  #pragma unroll 1
  for (int t1_o = 0; t1_o < 4; ++t1_o) {
    const int slot = ((t1_o + 3) & 3) * 8192;
    const uint32_t add_5_smem_wr1 = add_5_smem_wr + slot;
    const uint32_t add_6_smem_wr1 = add_6_smem_wr + slot;
    const int slot1 = (t1_o & 3) * 8192;
    const uint32_t a_rd1 = a_rd + slot1;
    const uint32_t a1_rd1 = a1_rd + slot1;
    cp_async_wait<2>();
    block_sync();
    #pragma unroll
    for (int c_ = 0; c_ < 2; ++c_) {
      cp_async16_if_zfill(t1_o + 3 < 4, p_o * 128 + (tid >> 1) < s, add_5_smem_wr1 ^ c_ * 32, add_5_at1 + c_ * 8 + 48);
    }
    #pragma unroll
    for (int r_ = 0; r_ < 8; ++r_) {
      cp_async4_if_zfill(t1_o + 3 < 4, q_o * 128 + (tid >> 4) + r_ * 16 < s, add_6_smem_wr1 + r_ * 1024, add_6_at1 + r_ * 4096 + 192);
    }
    cp_async_commit();
    #pragma unroll
    for (int t1_o1 = 0; t1_o1 < 4; ++t1_o1) {
      float a[8][4];
      #pragma unroll
      for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
        lds128(a[p_r_q_q], (a_rd1 ^ t1_o1 * 16) + p_r_q_q * 1024);
      }
      float a1[8][4];
      #pragma unroll
      for (int q_r_q_q = 0; q_r_q_q < 8; ++q_r_q_q) {
        lds128(a1[q_r_q_q], (a1_rd1 ^ t1_o1 * 16) + q_r_q_q * 1024);
      }
      #pragma unroll
      for (int t1 = 0; t1 < 4; ++t1) {
        #pragma unroll
        for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
          #pragma unroll
          for (int q_r_q_q_ = 0; q_r_q_q_ < 8; ++q_r_q_q_) {
            const int q_r_q_q = p_r_q_q & 1 ? 7 - q_r_q_q_ : q_r_q_q_;
            sum[p_r_q_q][q_r_q_q] += a[p_r_q_q][t1] * a1[q_r_q_q][t1];
          }
        }
      }
    }
    add_5_at1 += 16;
    add_6_at1 += 64;
  }
  #pragma unroll
  for (int p_r_q_q = 0; p_r_q_q < 8; ++p_r_q_q) {
    if (p_o * 128 + p + p_r_q_q * 16 + p_w * 4 < s) {
      #pragma unroll
      for (int q_r_q_q = 0; q_r_q_q < 8; ++q_r_q_q) {
        if (q_o * 128 + q + q_r_q_q * 16 + q_w * 8 < s) {
          stg32(kept_at + p_r_q_q * s * 512 + q_r_q_q * 16, and_2[p_r_q_q][q_r_q_q] ? sum[p_r_q_q][q_r_q_q] * 0.125f : -DPLC_INF);
        }
      }
    }
  }
}
