// rules: tileify scan residency
// grid 1 x 1 x 1, 16 threads
extern "C" __global__ void __launch_bounds__(16, 2)
cumsum_sub_diff_slice(long long* __restrict__ cumsum, const int s) {
  const int t = threadIdx.x;
  long long* cumsum_at = cumsum + t;
  long long cumsum1 = 0LL;
  if (t < s) {
    cumsum1 = wrap_add(cumsum1, (long long)(wrap_sub(t, t < 1 ? -1 : t - 1) != 1));
  }
  long long cumsum1_all = cumsum1;
  long long cumsum1_before = 0LL;
  long long cumsum1_all_x = cumsum1_all;
  cumsum1_all_x = shfl_xor(cumsum1_all_x, 1);
  cumsum1_before = (t & 1) == 1 ? wrap_add(cumsum1_all_x, cumsum1_before) : cumsum1_before;
  cumsum1_all = wrap_add(cumsum1_all, cumsum1_all_x);
  long long cumsum1_all_x1 = cumsum1_all;
  cumsum1_all_x1 = shfl_xor(cumsum1_all_x1, 2);
  cumsum1_before = ((t >> 1) & 1) == 1 ? wrap_add(cumsum1_all_x1, cumsum1_before) : cumsum1_before;
  cumsum1_all = wrap_add(cumsum1_all, cumsum1_all_x1);
  long long cumsum1_all_x2 = cumsum1_all;
  cumsum1_all_x2 = shfl_xor(cumsum1_all_x2, 4);
  cumsum1_before = ((t >> 2) & 1) == 1 ? wrap_add(cumsum1_all_x2, cumsum1_before) : cumsum1_before;
  cumsum1_all = wrap_add(cumsum1_all, cumsum1_all_x2);
  long long cumsum1_all_x3 = cumsum1_all;
  cumsum1_all_x3 = shfl_xor(cumsum1_all_x3, 8);
  cumsum1_before = t >> 3 == 1 ? wrap_add(cumsum1_all_x3, cumsum1_before) : cumsum1_before;
  cumsum1_all = wrap_add(cumsum1_all, cumsum1_all_x3);
  cumsum1 = wrap_add(cumsum1_before, cumsum1);
  if (t < s) {
    stg(cumsum_at, cumsum1);
  }
}
