// rules: tileify blockify_launch residency
// grid -(-s // 256) x 1 x 1, 256 threads
extern "C" __global__ void __launch_bounds__(256, 2)
sub_diff_ne_cumsum(long long* __restrict__ i64_1, const int s) {
  const int n_o = blockIdx.x;
  const int n = threadIdx.x;
  long long* i64_1_at = i64_1 + n_o * 256 + n;
  if (n_o * 256 + n < s) {
    stg(i64_1_at, (long long)(wrap_sub(n_o * 256 + n, n_o * 256 + n < 1 ? -1 : n_o * 256 + n - 1) != 1));
  }
}
