// rules: tileify scan lift_guards residency
// grid 1 x 1 x 1, 256 threads, 512 bytes of shared memory
extern "C" __global__ void __launch_bounds__(256, 2)
cumsum_slice(const long long* __restrict__ i64_1, long long* __restrict__ cumsum, const int s) {
  DPLC_DYN_SMEM(float, smem_buf);
  const uint32_t smem = smem_addr(smem_buf);
  const int t = threadIdx.x;
  const long long* i64_1_at = i64_1 + t;
  const uint32_t cumsum1_all_x5 = smem;
  const uint32_t cumsum1_all_put = cumsum1_all_x5 + (t >> 5) * 8;
  long long* cumsum_at = cumsum + t;
  long long cumsum1[8] = {};
  long long i[8];
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    i[q] = q * 256 + t < s ? ldg(i64_1_at + q * 256) : 0LL;
  }
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    if (q * 256 + t < s) {
      cumsum1[q] = wrap_add(cumsum1[q], i[q]);
    }
  }
  long long cumsum1_all[8];
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_all[q] = cumsum1[q];
  }
  long long cumsum1_before[8];
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_before[q] = 0LL;
  }
  long long cumsum1_all_x[8];
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_all_x[q] = cumsum1_all[q];
  }
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_all_x[q] = shfl_xor(cumsum1_all_x[q], 1);
  }
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_before[q] = (t & 1) == 1 ? wrap_add(cumsum1_all_x[q], cumsum1_before[q]) : cumsum1_before[q];
  }
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_all[q] = wrap_add(cumsum1_all[q], cumsum1_all_x[q]);
  }
  long long cumsum1_all_x1[8];
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_all_x1[q] = cumsum1_all[q];
  }
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_all_x1[q] = shfl_xor(cumsum1_all_x1[q], 2);
  }
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_before[q] = ((t >> 1) & 1) == 1 ? wrap_add(cumsum1_all_x1[q], cumsum1_before[q]) : cumsum1_before[q];
  }
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_all[q] = wrap_add(cumsum1_all[q], cumsum1_all_x1[q]);
  }
  long long cumsum1_all_x2[8];
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_all_x2[q] = cumsum1_all[q];
  }
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_all_x2[q] = shfl_xor(cumsum1_all_x2[q], 4);
  }
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_before[q] = ((t >> 2) & 1) == 1 ? wrap_add(cumsum1_all_x2[q], cumsum1_before[q]) : cumsum1_before[q];
  }
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_all[q] = wrap_add(cumsum1_all[q], cumsum1_all_x2[q]);
  }
  long long cumsum1_all_x3[8];
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_all_x3[q] = cumsum1_all[q];
  }
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_all_x3[q] = shfl_xor(cumsum1_all_x3[q], 8);
  }
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_before[q] = ((t >> 3) & 1) == 1 ? wrap_add(cumsum1_all_x3[q], cumsum1_before[q]) : cumsum1_before[q];
  }
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_all[q] = wrap_add(cumsum1_all[q], cumsum1_all_x3[q]);
  }
  long long cumsum1_all_x4[8];
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_all_x4[q] = cumsum1_all[q];
  }
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_all_x4[q] = shfl_xor(cumsum1_all_x4[q], 16);
  }
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_before[q] = ((t >> 4) & 1) == 1 ? wrap_add(cumsum1_all_x4[q], cumsum1_before[q]) : cumsum1_before[q];
  }
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_all[q] = wrap_add(cumsum1_all[q], cumsum1_all_x4[q]);
  }
  if ((t & 31) == 0) {
    #pragma unroll
    for (int q = 0; q < 8; ++q) {
      sts(cumsum1_all_put + q * 64, (long long)(cumsum1_all[q]));
    }
  }
  block_sync();
  long long cumsum1_all_part[8][8];
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    lds128(&cumsum1_all_part[q][0], cumsum1_all_x5 + q * 64);
    lds128(&cumsum1_all_part[q][2], cumsum1_all_x5 + q * 64 + 16);
    lds128(&cumsum1_all_part[q][4], cumsum1_all_x5 + q * 64 + 32);
    lds128(&cumsum1_all_part[q][6], cumsum1_all_x5 + q * 64 + 48);
  }
  long long cumsum1_all_part1[8];
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_all_part1[q] = cumsum1_all_part[q][0];
  }
  long long cumsum1_all_part2[8];
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_all_part2[q] = cumsum1_all_part[q][1];
  }
  long long cumsum1_all_part3[8];
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_all_part3[q] = cumsum1_all_part[q][2];
  }
  long long cumsum1_all_part4[8];
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_all_part4[q] = cumsum1_all_part[q][3];
  }
  long long cumsum1_all_part5[8];
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_all_part5[q] = cumsum1_all_part[q][4];
  }
  long long cumsum1_all_part6[8];
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_all_part6[q] = cumsum1_all_part[q][5];
  }
  long long cumsum1_all_part7[8];
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_all_part7[q] = cumsum1_all_part[q][6];
  }
  long long cumsum1_all_part8[8];
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_all_part8[q] = cumsum1_all_part[q][7];
  }
  long long cumsum1_earlier[8];
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_earlier[q] = 0LL;
  }
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_earlier[q] = 0 < t >> 5 ? wrap_add(cumsum1_earlier[q], cumsum1_all_part1[q]) : cumsum1_earlier[q];
  }
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_earlier[q] = 1 < t >> 5 ? wrap_add(cumsum1_earlier[q], cumsum1_all_part2[q]) : cumsum1_earlier[q];
  }
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_earlier[q] = 2 < t >> 5 ? wrap_add(cumsum1_earlier[q], cumsum1_all_part3[q]) : cumsum1_earlier[q];
  }
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_earlier[q] = 3 < t >> 5 ? wrap_add(cumsum1_earlier[q], cumsum1_all_part4[q]) : cumsum1_earlier[q];
  }
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_earlier[q] = 4 < t >> 5 ? wrap_add(cumsum1_earlier[q], cumsum1_all_part5[q]) : cumsum1_earlier[q];
  }
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_earlier[q] = 5 < t >> 5 ? wrap_add(cumsum1_earlier[q], cumsum1_all_part6[q]) : cumsum1_earlier[q];
  }
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_earlier[q] = 6 < t >> 5 ? wrap_add(cumsum1_earlier[q], cumsum1_all_part7[q]) : cumsum1_earlier[q];
  }
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_before[q] = wrap_add(cumsum1_earlier[q], cumsum1_before[q]);
  }
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_all_part1[q] = wrap_add(cumsum1_all_part1[q], cumsum1_all_part2[q]);
  }
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_all_part3[q] = wrap_add(cumsum1_all_part3[q], cumsum1_all_part4[q]);
  }
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_all_part5[q] = wrap_add(cumsum1_all_part5[q], cumsum1_all_part6[q]);
  }
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_all_part7[q] = wrap_add(cumsum1_all_part7[q], cumsum1_all_part8[q]);
  }
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_all_part1[q] = wrap_add(cumsum1_all_part1[q], cumsum1_all_part3[q]);
  }
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_all_part5[q] = wrap_add(cumsum1_all_part5[q], cumsum1_all_part7[q]);
  }
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1_all_part1[q] = wrap_add(cumsum1_all_part1[q], cumsum1_all_part5[q]);
  }
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    cumsum1[q] = wrap_add(cumsum1_before[q], cumsum1[q]);
  }
  long long cumsum1_before1 = cumsum1_all_part1[0];
  cumsum1[1] = wrap_add(cumsum1_before1, cumsum1[1]);
  cumsum1_before1 = wrap_add(cumsum1_before1, cumsum1_all_part1[1]);
  cumsum1[2] = wrap_add(cumsum1_before1, cumsum1[2]);
  cumsum1_before1 = wrap_add(cumsum1_before1, cumsum1_all_part1[2]);
  cumsum1[3] = wrap_add(cumsum1_before1, cumsum1[3]);
  cumsum1_before1 = wrap_add(cumsum1_before1, cumsum1_all_part1[3]);
  cumsum1[4] = wrap_add(cumsum1_before1, cumsum1[4]);
  cumsum1_before1 = wrap_add(cumsum1_before1, cumsum1_all_part1[4]);
  cumsum1[5] = wrap_add(cumsum1_before1, cumsum1[5]);
  cumsum1_before1 = wrap_add(cumsum1_before1, cumsum1_all_part1[5]);
  cumsum1[6] = wrap_add(cumsum1_before1, cumsum1[6]);
  cumsum1_before1 = wrap_add(cumsum1_before1, cumsum1_all_part1[6]);
  cumsum1[7] = wrap_add(cumsum1_before1, cumsum1[7]);
  cumsum1_before1 = wrap_add(cumsum1_before1, cumsum1_all_part1[7]);
  #pragma unroll
  for (int q = 0; q < 8; ++q) {
    if (q * 256 + t < s) {
      stg(cumsum_at + q * 256, cumsum1[q]);
    }
  }
}
