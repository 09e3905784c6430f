// rules: tileify and_others
// grid 16 x 4 x 1, 256 threads, 49152 bytes of shared memory
extern "C" __global__ void __launch_bounds__(256, 1)
mm(const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ y) {
  DPLC_DYN_SMEM(float, smem_buf);
  const uint32_t smem = smem_addr(smem_buf);
  const int j_o = blockIdx.x;
  const int i_o = blockIdx.y;
  const int tid = threadIdx.x;
  const int i_w = tid >> 6;
  const int j_w = (tid >> 5) & 1;
  const int i = (tid >> 3) & 3;
  const int j = tid & 7;
  const uint32_t x_smem = smem;
  const uint32_t x_smem_wr = x_smem + (tid >> 1) * 64 + ((tid & 1) ^ ((tid >> 2) & 1) * 2) * 16;
  const float* x_at = x + i_o * 262144 + (tid >> 1) * 2048 + (tid & 1) * 4;
  const uint32_t w_smem = smem + 24576;
  const uint32_t w_smem_wr = w_smem + (tid >> 4) * 512 + (tid & 15) * 16;
  const float* w_at = w + (tid >> 4) * 2048 + j_o * 128 + (tid & 15) * 4;
  const float* w_at1 = w + (tid >> 4) * 2048 + j_o * 128 + (tid & 15) * 4 + 32768;
  const uint32_t a_rd = x_smem + i_w * 2048 + i * 64 + (i >> 1) * 32;
  const uint32_t b_rd = w_smem + j_w * 256 + j * 16;
  float* y_at = y + i_o * 262144 + i_w * 65536 + i * 2048 + j_o * 128 + j_w * 64 + j * 4;
  float acc[8][2][4] = {};
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    cp_async16(x_smem_wr ^ c * 32, x_at + c * 8);
  }
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    cp_async16(w_smem_wr + c * 256, w_at + c * 64);
  }
  cp_async_commit();
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    cp_async16((x_smem_wr ^ c * 32) + 8192, x_at + c * 8 + 16);
  }
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    cp_async16(w_smem_wr + c * 256 + 8192, w_at1 + c * 64);
  }
  cp_async_commit();
  int slot = 16384;
  const float* x_at1 = x_at;
  const float* w_at2 = w_at + 65536;
  int slot1 = 0;
  #pragma unroll 1
  for (int k_o = 0; k_o < 128; ++k_o) {
    const uint32_t x_smem_wr1 = x_smem_wr + slot;
    const uint32_t w_smem_wr1 = w_smem_wr + slot;
    const uint32_t a_rd1 = a_rd + slot1;
    const uint32_t b_rd1 = b_rd + slot1;
    cp_async_wait<1>();
    block_sync();
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      cp_async16_if(k_o + 2 < 128, x_smem_wr1 ^ c * 32, x_at1 + c * 8 + 32);
    }
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      cp_async16_if(k_o + 2 < 128, w_smem_wr1 + c * 256, w_at2 + c * 64);
    }
    cp_async_commit();
    #pragma unroll
    for (int k_o1 = 0; k_o1 < 4; ++k_o1) {
      float a[8][4];
      #pragma unroll
      for (int i_r_q = 0; i_r_q < 8; ++i_r_q) {
        lds128(a[i_r_q], (a_rd1 ^ k_o1 * 16) + i_r_q * 256);
      }
      #pragma unroll
      for (int k = 0; k < 4; ++k) {
        float b[2][4];
        #pragma unroll
        for (int j_r_q = 0; j_r_q < 2; ++j_r_q) {
          lds128(b[j_r_q], b_rd1 + k_o1 * 2048 + k * 512 + j_r_q * 128);
        }
        #pragma unroll
        for (int i_r_q = 0; i_r_q < 8; ++i_r_q) {
          #pragma unroll
          for (int j_r_q_ = 0; j_r_q_ < 2; ++j_r_q_) {
            const int j_r_q = i_r_q & 1 ? 1 - j_r_q_ : j_r_q_;
            #pragma unroll
            for (int j_r_ = 0; j_r_ < 4; ++j_r_) {
              const int j_r = i_r_q & 1 ? 3 - j_r_ : j_r_;
              acc[i_r_q][j_r_q][j_r] += a[i_r_q][k] * b[j_r_q][j_r];
            }
          }
        }
      }
    }
    slot = slot == 16384 ? 0 : slot + 8192;
    x_at1 += 16;
    w_at2 += 32768;
    slot1 = slot1 == 16384 ? 0 : slot1 + 8192;
  }
  #pragma unroll
  for (int i_r_q = 0; i_r_q < 8; ++i_r_q) {
    #pragma unroll
    for (int j_r_q = 0; j_r_q < 2; ++j_r_q) {
      stg128(y_at + i_r_q * 8192 + j_r_q * 32, acc[i_r_q][j_r_q]);
    }
  }
}
