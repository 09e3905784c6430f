// The host half of prelude.cuh: what each of its functions means, in C++, on the CPU emulator.
//
// Also the CUDA C++ a kernel text uses itself (__global__, threadIdx, float4, expf, ...). Written without standard
// headers: <math.h> alone takes g++ five times as long to read as a kernel takes to compile.
//
// Compiled with DPLC_CHECKED, every access reports itself to the runtime first, with the line of kernel text that
// made it.
#pragma once
#include "machine.cuh"

// ---- CUDA C++ -----------------------------------------------------------------------------------------------------

#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __cluster_dims__(...)
#define __align__(n) __attribute__((aligned(n)))
#define threadIdx (dplc_view->thread->index)
#define blockIdx (dplc_block_index())
#define blockDim (dplc_view->block_shape)
#define gridDim (dplc_view->grid_shape)

static inline __attribute__((always_inline)) dplc::Index3 dplc_block_index() {
  const dplc::Index3& first = dplc_view->block_index;
  return {first.x + dplc_view->thread->rank, first.y, first.z};
}
using TensorMap = dplc::TensorMap;
struct __align__(8) float2 {
  float x, y;
};
struct __align__(16) float4 {
  float x, y, z, w;
};
struct __align__(8) int2 {
  int x, y;
};
struct __align__(16) int4 {
  int x, y, z, w;
};
struct f16 {
  uint16_t bits;
};
struct bf16 {
  uint16_t bits;
};

// A kernel's argument before its type is known: entry points are written by arity alone.
struct dplc_argument {
  void* pointer;
  template <class T> operator T*() const { return static_cast<T*>(pointer); }
};

// always_inline: these must vanish, whatever the compiler thinks of their number.
#define DPLC_FN static inline __attribute__((always_inline))
#define DPLC_INF __builtin_inff()
#define DPLC_NAN __builtin_nanf("")

// ---- hooks of checked mode ----------------------------------------------------------------------------------------
// DPLC_SITE is a last parameter nobody passes: its default is the line of the call. An access is checked before it is
// made, and before its alignment is, so that the message can say where it stands.

#ifdef DPLC_CHECKED
#define DPLC_SITE , int site = __builtin_LINE()
#define DPLC_SITE_OF_CALLER , int site
#define DPLC_SAME_SITE , site
#define DPLC_SITE_ALONE int site = __builtin_LINE()
#define DPLC_LINE site
#define DPLC_ACCESS(pointer, bytes, kind) dplc_access(pointer, bytes, dplc::Access::kind, site, nullptr)
#define DPLC_STORE(pointer, bytes, kind, value) dplc_access(pointer, bytes, dplc::Access::kind, site, value)
#else
#define DPLC_SITE
#define DPLC_SITE_OF_CALLER
#define DPLC_SAME_SITE
#define DPLC_SITE_ALONE
#define DPLC_LINE 0
#define DPLC_ACCESS(pointer, bytes, kind) static_cast<void>(0)
#define DPLC_STORE(pointer, bytes, kind, value) static_cast<void>(0)
#endif

// ---- memory -------------------------------------------------------------------------------------------------------

// The window never moves. Static and set once on load, so that g++ may keep it in a register across a kernel's
// stores.
static char* dplc_window;
__attribute__((constructor)) static void dplc_find_window() { dplc_window = dplc_shared_window(); }

#define DPLC_DYN_SMEM(T, name) T* name = reinterpret_cast<T*>(dplc_view->shared + dplc_view->thread->rank * dplc_view->block_bytes)
DPLC_FN uint32_t smem_addr(const void* p) { return static_cast<uint32_t>(static_cast<const char*>(p) - dplc_window); }
DPLC_FN char* dplc_shared(uint32_t a) { return dplc_window + a; }

// A GPU faults on a vector access that is not aligned to its width; so does the emulator, in every mode.
template <unsigned bytes, class T> DPLC_FN T* dplc_aligned(T* p) {
  if (__builtin_expect(reinterpret_cast<uintptr_t>(p) % bytes != 0, 0)) dplc_misaligned(p, bytes);
  return p;
}

// So many bytes and no more. g++ may join two plain loads to one that is wider than both, if it thinks that what it reads
// besides is there; at the end of a buffer it is not. A volatile load stays as it is, and no load is wider than 16 bytes.
template <unsigned bytes> struct dplc_word { using type = unsigned char; };
template <> struct dplc_word<2> { using type = uint16_t; };
template <> struct dplc_word<4> { using type = uint32_t; };
template <> struct dplc_word<8> { using type = uint64_t; };
template <unsigned bytes> DPLC_FN void dplc_read(void* d, const void* p) {
  if constexpr (bytes > 8) {
    __builtin_memcpy(d, p, bytes);
  } else {
    using word = typename dplc_word<bytes>::type;
    const word w = *static_cast<const volatile word*>(p);
    __builtin_memcpy(d, &w, bytes);
  }
}

DPLC_FN void check_place(long long place, long long extent, int line = __builtin_LINE()) {
  if (__builtin_expect(static_cast<uint64_t>(place) >= static_cast<uint64_t>(extent), 0))
    dplc_no_place(place, extent, line);
}

// One element.
template <class T> DPLC_FN T ldg(const T* p DPLC_SITE) {
  DPLC_ACCESS(p, sizeof(T), global_load);
  T v;
  dplc_read<sizeof(T)>(&v, p);
  return v;
}
template <class T> DPLC_FN void stg(T* p, T v DPLC_SITE) {
  DPLC_STORE(p, sizeof(T), global_store, &v);
  *p = v;
}
template <class T> DPLC_FN T lds(uint32_t a DPLC_SITE) {
  DPLC_ACCESS(dplc_shared(a), sizeof(T), shared_load);
  T v;
  dplc_read<sizeof(T)>(&v, dplc_aligned<sizeof(T)>(dplc_shared(a)));
  return v;
}
template <class T> DPLC_FN void sts(uint32_t a, T v DPLC_SITE) {
  DPLC_ACCESS(dplc_shared(a), sizeof(T), shared_store);
  __builtin_memcpy(dplc_aligned<sizeof(T)>(dplc_shared(a)), &v, sizeof(T));
}

// One width: loads into an array, stores from an array.
#define DPLC_WIDTH(bits)                                                        \
  template <class T> DPLC_FN void ldg##bits(T* d, const T* p DPLC_SITE) {       \
    DPLC_ACCESS(p, bits / 8, global_load);                                      \
    dplc_read<bits / 8>(d, dplc_aligned<bits / 8>(p));                          \
  }                                                                             \
  template <class T> DPLC_FN void lds##bits(T* d, uint32_t a DPLC_SITE) {       \
    DPLC_ACCESS(dplc_shared(a), bits / 8, shared_load);                         \
    dplc_read<bits / 8>(d, dplc_aligned<bits / 8>(dplc_shared(a)));             \
  }                                                                             \
  template <class T> DPLC_FN void stg##bits(T* p, const T* v DPLC_SITE) {       \
    DPLC_STORE(p, bits / 8, global_store, v);                                   \
    __builtin_memcpy(dplc_aligned<bits / 8>(p), v, bits / 8);                   \
  }                                                                             \
  template <class T> DPLC_FN void sts##bits(uint32_t a, const T* v DPLC_SITE) { \
    DPLC_ACCESS(dplc_shared(a), bits / 8, shared_store);                        \
    __builtin_memcpy(dplc_aligned<bits / 8>(dplc_shared(a)), v, bits / 8);      \
  }
DPLC_WIDTH(32)
DPLC_WIDTH(64)
DPLC_WIDTH(128)
#undef DPLC_WIDTH

// The same by value.
#define DPLC_STORE_VALUE(bits, T)                                           \
  DPLC_FN void stg##bits(decltype(T{}.x)* p, T v DPLC_SITE) {               \
    DPLC_STORE(p, bits / 8, global_store, &v);                              \
    __builtin_memcpy(dplc_aligned<bits / 8>(p), &v, bits / 8);              \
  }                                                                         \
  DPLC_FN void sts##bits(uint32_t a, T v DPLC_SITE) {                       \
    DPLC_ACCESS(dplc_shared(a), bits / 8, shared_store);                    \
    __builtin_memcpy(dplc_aligned<bits / 8>(dplc_shared(a)), &v, bits / 8); \
  }
DPLC_STORE_VALUE(64, float2)
DPLC_STORE_VALUE(64, int2)
DPLC_STORE_VALUE(128, float4)
DPLC_STORE_VALUE(128, int4)
#undef DPLC_STORE_VALUE

DPLC_FN void ldg128_stream(float* d, const float* p DPLC_SITE) {
  DPLC_ACCESS(p, 16, global_load);
  __builtin_memcpy(d, dplc_aligned<16>(p), 16);
}
#define DPLC_WORD(T)                        \
  DPLC_FN T ldg32(const T* p DPLC_SITE) {   \
    DPLC_ACCESS(p, 4, global_load);         \
    return *const_cast<const volatile T*>(p); \
  }                                         \
  DPLC_FN void stg32(T* p, T v DPLC_SITE) { \
    DPLC_STORE(p, 4, global_store, &v);     \
    *p = v;                                 \
  }
DPLC_WORD(float)
DPLC_WORD(int)
#undef DPLC_WORD
DPLC_FN float lds32(uint32_t a DPLC_SITE) {
  DPLC_ACCESS(dplc_shared(a), 4, shared_load);
  return *reinterpret_cast<const volatile float*>(dplc_aligned<4>(dplc_shared(a)));
}
DPLC_FN void sts32(uint32_t a, float v DPLC_SITE) {
  DPLC_ACCESS(dplc_shared(a), 4, shared_store);
  __builtin_memcpy(dplc_aligned<4>(dplc_shared(a)), &v, 4);
}

// ---- asynchronous copies ------------------------------------------------------------------------------------------

template <unsigned bytes> DPLC_FN void dplc_copy(uint32_t s, const void* g, bool inside DPLC_SITE_OF_CALLER) {
  if (inside) DPLC_ACCESS(dplc_aligned<bytes>(g), bytes, global_load);
  DPLC_ACCESS(dplc_shared(s), bytes, async_store);
  dplc_copy_async(dplc_aligned<bytes>(dplc_shared(s)), dplc_aligned<bytes>(g), bytes, inside);
}
#define DPLC_CP_ASYNC(name, bytes)                                                                        \
  DPLC_FN void name(uint32_t s, const void* g DPLC_SITE) { dplc_copy<bytes>(s, g, true DPLC_SAME_SITE); } \
  DPLC_FN void name##_if(bool on, uint32_t s, const void* g DPLC_SITE) {                                  \
    if (on) dplc_copy<bytes>(s, g, true DPLC_SAME_SITE);                                                  \
  }                                                                                                       \
  DPLC_FN void name##_zfill(bool inside, uint32_t s, const void* g DPLC_SITE) {                           \
    dplc_copy<bytes>(s, g, inside DPLC_SAME_SITE);                                                        \
  }                                                                                                       \
  DPLC_FN void name##_if_zfill(bool on, bool inside, uint32_t s, const void* g DPLC_SITE) {               \
    if (on) dplc_copy<bytes>(s, g, inside DPLC_SAME_SITE);                                                \
  }
DPLC_CP_ASYNC(cp_async4, 4)
DPLC_CP_ASYNC(cp_async8, 8)
DPLC_CP_ASYNC(cp_async16, 16)
#undef DPLC_CP_ASYNC

DPLC_FN void cp_async_commit() { dplc_copy_commit(); }
template <unsigned N> DPLC_FN void cp_async_wait() { dplc_copy_wait(N); }

// ---- boxes --------------------------------------------------------------------------------------------------------

DPLC_FN void mbarrier_init(uint32_t a, int arrivals DPLC_SITE) {
  dplc_mbarrier_init(dplc_shared(a), static_cast<unsigned>(arrivals), DPLC_LINE);
}
DPLC_FN void mbarrier_fence() { dplc_mbarrier_fence(); }
DPLC_FN void mbarrier_expect(uint32_t a, int bytes DPLC_SITE) {
  dplc_mbarrier_expect(dplc_shared(a), bytes, DPLC_LINE);
}
DPLC_FN void mbarrier_wait(uint32_t a, int parity DPLC_SITE) { dplc_mbarrier_wait(dplc_shared(a), parity, DPLC_LINE); }

#define DPLC_COPY_BOX(name, rank, parameters, ...)                                                                   \
  DPLC_FN void name(uint32_t s, const TensorMap& map, uint32_t barrier, parameters DPLC_SITE) {            \
    const int at[] = {__VA_ARGS__};                                                                            \
    dplc_copy_box(dplc_shared(s), &map, dplc_shared(barrier), at, rank, 1, DPLC_LINE);                         \
  }
#define DPLC_PLACES(...) __VA_ARGS__
DPLC_COPY_BOX(copy_box_1d, 1, int x, x)
DPLC_COPY_BOX(copy_box_2d, 2, DPLC_PLACES(int x, int y), x, y)
DPLC_COPY_BOX(copy_box_3d, 3, DPLC_PLACES(int x, int y, int z), x, y, z)
DPLC_COPY_BOX(copy_box_4d, 4, DPLC_PLACES(int x, int y, int z, int u), x, y, z, u)
DPLC_COPY_BOX(copy_box_5d, 5, DPLC_PLACES(int x, int y, int z, int u, int v), x, y, z, u, v)
#undef DPLC_COPY_BOX
#define DPLC_COPY_BOX(name, rank, parameters, ...)                                                                   \
  template <unsigned N> DPLC_FN void name(uint32_t s, const TensorMap& map, uint32_t barrier, parameters DPLC_SITE) { \
    const int at[] = {__VA_ARGS__};                                                                            \
    dplc_copy_box(dplc_shared(s), &map, dplc_shared(barrier), at, rank, N, DPLC_LINE);                         \
  }
DPLC_COPY_BOX(copy_box_2d_shared, 2, DPLC_PLACES(int x, int y), x, y)
DPLC_COPY_BOX(copy_box_3d_shared, 3, DPLC_PLACES(int x, int y, int z), x, y, z)
DPLC_COPY_BOX(copy_box_4d_shared, 4, DPLC_PLACES(int x, int y, int z, int u), x, y, z, u)
DPLC_COPY_BOX(copy_box_5d_shared, 5, DPLC_PLACES(int x, int y, int z, int u, int v), x, y, z, u, v)
#undef DPLC_PLACES
#undef DPLC_COPY_BOX

// ---- products of matrices in shared memory ------------------------------------------------------------------------
// What a descriptor says, in bits of its own: the address is one of the window here.

template <int across> struct Matrix {
  uint64_t bits;
};
template <int stride> DPLC_FN Matrix<0> matrix_along(uint32_t a, int offset = 0) {
  a += static_cast<uint32_t>(offset);
  return {a | uint64_t{stride >> 4} << 32};
}
template <int stride, int leading> DPLC_FN Matrix<1> matrix_across(uint32_t a, int offset = 0) {
  a += static_cast<uint32_t>(offset);
  return {a | uint64_t{stride >> 4} << 32 | uint64_t{leading >> 4} << 46 | uint64_t{1} << 60};
}
DPLC_FN void wgmma_fence() { dplc_fence_products(); }
DPLC_FN void wgmma_commit() { dplc_commit_products(); }
template <unsigned N> DPLC_FN void wgmma_wait(DPLC_SITE_ALONE) { dplc_wait_products(N, DPLC_LINE); }
template <class T> DPLC_FN void wgmma_done(T&) {}

// ---- barriers and lanes -------------------------------------------------------------------------------------------

DPLC_FN void block_sync(DPLC_SITE_ALONE) { dplc_block_barrier(DPLC_LINE); }
DPLC_FN int warp_uniform(int v) { return v; }
DPLC_FN bool one_thread(int thread) { return thread == 0; }
DPLC_FN void cluster_sync(DPLC_SITE_ALONE) { dplc_cluster_barrier(DPLC_LINE); }
DPLC_FN void warp_sync(DPLC_SITE_ALONE) { dplc_warp_barrier(true, DPLC_LINE); }
template <class T> DPLC_FN T shfl(T v, int lane DPLC_SITE) {
  const dplc::ThreadView* self = dplc_view->thread;
  dplc::Warp* warp = self->warp;
  uint64_t* slot = warp->slot[warp->exchanges & 1];
  __builtin_memcpy(&slot[self->lane], &v, sizeof(T));
  dplc_warp_barrier(false, DPLC_LINE);
  __builtin_memcpy(&v, &slot[lane & (dplc::lanes_per_warp - 1)], sizeof(T));
  return v;
}
template <class T> DPLC_FN T shfl_xor(T v, int lanes DPLC_SITE) {
  return shfl(v, static_cast<int>(dplc_view->thread->lane) ^ lanes DPLC_SAME_SITE);
}

// ---- fragments ----------------------------------------------------------------------------------------------------
// The lanes put what the others need where all can see it, meet, and each makes its own words and sums.

template <unsigned count, bool trans> DPLC_FN void dplc_ldmatrix(uint32_t* d, uint32_t a DPLC_SITE_OF_CALLER) {
  const dplc::ThreadView* self = dplc_view->thread;
  dplc::Warp* warp = self->warp;
  uint64_t* rows = warp->slot[warp->exchanges & 1];
  if (self->lane < 8 * count) {  // the addresses of the others are not looked at
    DPLC_ACCESS(dplc_shared(a), 16, shared_load);
    dplc_aligned<16>(dplc_shared(a));
  }
  rows[self->lane] = a;
  dplc_warp_barrier(false, DPLC_LINE);
  const unsigned g = self->lane >> 2, t = self->lane & 3;
  for (unsigned m = 0; m < count; ++m) {
    uint16_t half[2];
    for (unsigned w = 0; w < 2; ++w) {
      const unsigned row = trans ? 2 * t + w : g, column = trans ? g : 2 * t + w;
      __builtin_memcpy(&half[w], dplc_shared(static_cast<uint32_t>(rows[8 * m + row])) + 2 * column, 2);
    }
    d[m] = half[0] | static_cast<uint32_t>(half[1]) << 16;
  }
}
#define DPLC_LDMATRIX(name, count, trans) \
  DPLC_FN void name(uint32_t* d, uint32_t a DPLC_SITE) { dplc_ldmatrix<count, trans>(d, a DPLC_SAME_SITE); }
DPLC_LDMATRIX(ldmatrix_x2, 2, false)
DPLC_LDMATRIX(ldmatrix_x4, 4, false)
DPLC_LDMATRIX(ldmatrix_x2_trans, 2, true)
DPLC_LDMATRIX(ldmatrix_x4_trans, 4, true)
#undef DPLC_LDMATRIX

// ---- scalars ------------------------------------------------------------------------------------------------------

// The C library's own, which CUDA gives the same names.
extern "C" {
float expf(float), exp2f(float), expm1f(float), logf(float), log2f(float), log10f(float), log1pf(float);
float sinf(float), cosf(float), tanf(float), asinf(float), acosf(float), atanf(float);
float sinhf(float), coshf(float), tanhf(float), asinhf(float), acoshf(float), atanhf(float);
float j0f(float), j1f(float), y0f(float), y1f(float);
float erff(float), erfcf(float), lgammaf(float), tgammaf(float), sqrtf(float), cbrtf(float), fabsf(float);
float floorf(float), ceilf(float), truncf(float), roundf(float), rintf(float), nearbyintf(float);
float powf(float, float), fmodf(float, float), atan2f(float, float), hypotf(float, float);
float copysignf(float, float), fmaxf(float, float), fminf(float, float), fmaf(float, float, float);
double exp(double), exp2(double), expm1(double), log(double), log2(double), log10(double), log1p(double);
double sin(double), cos(double), tan(double), asin(double), acos(double), atan(double);
double sinh(double), cosh(double), tanh(double), asinh(double), acosh(double), atanh(double);
double j0(double), j1(double), y0(double), y1(double);
double erf(double), erfc(double), lgamma(double), sqrt(double), fabs(double), floor(double), ceil(double), trunc(double), rint(double);
double pow(double, double), fmod(double, double), atan2(double, double), hypot(double, double), copysign(double, double);
}

// Those that CUDA has and the C library has not. Inverses: Winitzki's approximation, then Halley's steps.
DPLC_FN double dplc_halley(double x, double over) {
  const double newton = over / (1.1283791670955126 * exp(-x * x)), turn = x * newton;
  return turn < 0.5 && turn > -0.5 ? x + newton / (1 - turn) : x + newton;
}
DPLC_FN double erfcinv(double share) {
  if (!(share >= 0 && share <= 2)) return __builtin_nan("");
  const double y = share > 1 ? 2 - share : share;
  if (y == 0) return share == 0 ? __builtin_inf() : -__builtin_inf();
  const double log_ = log(y * (2 - y)), middle = 2 / (3.141592653589793 * 0.147) + log_ / 2;
  double x = sqrt(fabs(sqrt(middle * middle - log_ / 0.147) - middle));
  for (int step = 0; step < 4; step++) x = dplc_halley(x, erfc(x) - y);
  return share > 1 ? -x : x;
}
DPLC_FN double erfinv(double y) {
  if (!(fabs(y) <= 0.5)) return copysign(erfcinv(1 - fabs(y)), y);
  double x = y * 0.886226925452758;
  for (int step = 0; step < 6; step++) x = dplc_halley(x, y - erf(x));
  return x;
}
DPLC_FN double erfcx(double x) {
  if (!(x >= 10)) return exp(x * x) * erfc(x);
  double term = 1, total = 1;
  for (int k = 1; k < 12; k++) total += term *= -(2 * k - 1) / (2 * x * x);
  return total / (x * 1.772453850905516);
}
DPLC_FN float erfcinvf(float y) { return static_cast<float>(erfcinv(y)); }
DPLC_FN float erfinvf(float y) { return static_cast<float>(erfinv(y)); }
DPLC_FN float erfcxf(float x) { return static_cast<float>(erfcx(x)); }
DPLC_FN float rsqrtf(float x) { return 1.0f / sqrtf(x); }
DPLC_FN bool isnan(float x) { return __builtin_isnan(x); }
DPLC_FN bool isinf(float x) { return __builtin_isinf(x); }
DPLC_FN bool isnan(double x) { return __builtin_isnan(x); }
DPLC_FN bool isinf(double x) { return __builtin_isinf(x); }
DPLC_FN bool isfinite(float x) { return __builtin_isfinite(x); }
template <class T> DPLC_FN T min(T a, T b) { return b < a ? b : a; }
template <class T> DPLC_FN T max(T a, T b) { return a < b ? b : a; }

DPLC_FN void divided_by_zero() { dplc_divided_by_zero(); }
DPLC_FN float exp2_approx(float x) { return exp2f(x); }
DPLC_FN float rcp_approx(float x) { return 1.0f / x; }
DPLC_FN float rsqrt_approx(float x) { return 1.0f / sqrtf(x); }
// Two roundings where the GPU has one: a fused fmaf without hardware for it is a call of 30 ns. Not fused anywhere,
// so that every host gives the same bits.
DPLC_FN float ffma(float a, float b, float c) { return a * b + c; }
DPLC_FN float max_nan(float a, float b) { return isnan(a) ? a : isnan(b) ? b : a < b ? b : a; }
DPLC_FN float min_nan(float a, float b) { return isnan(a) ? a : isnan(b) ? b : b < a ? b : a; }

DPLC_FN uint32_t dplc_bits(float x) {
  uint32_t u;
  __builtin_memcpy(&u, &x, 4);
  return u;
}
DPLC_FN float dplc_float(uint32_t u) {
  float x;
  __builtin_memcpy(&x, &u, 4);
  return x;
}
DPLC_FN float to_float(bf16 x) { return dplc_float(static_cast<uint32_t>(x.bits) << 16); }
DPLC_FN bf16 to_bf16(float x) {
  if (isnan(x)) return {0x7fff};
  const uint32_t u = dplc_bits(x);
  return {static_cast<uint16_t>((u + 0x7fff + (u >> 16 & 1)) >> 16)};  // to nearest, ties to even
}
DPLC_FN float to_float(f16 x) { return dplc_f16_to_float(x.bits); }
DPLC_FN f16 to_f16(float x) { return {dplc_float_to_f16(x)}; }

#include "../float8.cuh"

// Vectors of floats of 16 and 8 bits to and from floats.
DPLC_FN f16 dplc_rounded(f16, float x) { return to_f16(x); }
DPLC_FN bf16 dplc_rounded(bf16, float x) { return to_bf16(x); }
DPLC_FN e4m3 dplc_rounded(e4m3, float x) { return to_e4m3(x); }
DPLC_FN e5m2 dplc_rounded(e5m2, float x) { return to_e5m2(x); }
#define DPLC_GLOBAL_SMALL(bits, H)                                               \
  DPLC_FN void ldg##bits(float* d, const H* p DPLC_SITE) {                        \
    H h[bits / 8 / sizeof(H)];                                                       \
    ldg##bits(h, p DPLC_SAME_SITE);                                               \
    for (int i = 0; i < bits / 8 / sizeof(H); ++i) d[i] = to_float(h[i]);              \
  }                                                                               \
  DPLC_FN void stg##bits(H* p, const float* v DPLC_SITE) {                        \
    H h[bits / 8 / sizeof(H)];                                                       \
    for (int i = 0; i < bits / 8 / sizeof(H); ++i) h[i] = dplc_rounded(H{}, v[i]);          \
    stg##bits(p, static_cast<const H*>(h) DPLC_SAME_SITE);                        \
  }
#define DPLC_SHARED_SMALL(bits)                                                  \
  template <class H> DPLC_FN void lds##bits(float* d, uint32_t a DPLC_SITE) {     \
    H h[bits / 8 / sizeof(H)];                                                       \
    lds##bits(h, a DPLC_SAME_SITE);                                               \
    for (int i = 0; i < bits / 8 / sizeof(H); ++i) d[i] = to_float(h[i]);              \
  }                                                                               \
  template <class H> DPLC_FN void sts##bits(uint32_t a, const float* v DPLC_SITE) {\
    H h[bits / 8 / sizeof(H)];                                                       \
    for (int i = 0; i < bits / 8 / sizeof(H); ++i) h[i] = dplc_rounded(H{}, v[i]);          \
    sts##bits(a, static_cast<const H*>(h) DPLC_SAME_SITE);                        \
  }
#include "../small_vectors.cuh"

// ---- products of fragments ----------------------------------------------------------------------------------------
// A lane's sums need the rows g and g + 8 of a, from its quad, and the columns 2t and 2t + 1 of b. They are added up in
// f32 in the order of k; tensor cores keep more bits inside of an instruction, and cut them off at its end.

struct dplc_tf32 {};
DPLC_FN float dplc_element(bf16, uint32_t word, unsigned w) { return to_float(bf16{static_cast<uint16_t>(word >> 16 * w)}); }
DPLC_FN float dplc_element(f16, uint32_t word, unsigned w) { return to_float(f16{static_cast<uint16_t>(word >> 16 * w)}); }
DPLC_FN float dplc_element(dplc_tf32, uint32_t word, unsigned) {
  float x;
  word &= 0xffffe000u;
  __builtin_memcpy(&x, &word, 4);
  return x;
}
DPLC_FN float dplc_element(e4m3, uint32_t word, unsigned w) { return to_float(e4m3{static_cast<uint8_t>(word >> 8 * w)}); }
DPLC_FN float dplc_element(e5m2, uint32_t word, unsigned w) { return to_float(e5m2{static_cast<uint8_t>(word >> 8 * w)}); }
DPLC_FN int dplc_element(signed char, uint32_t word, unsigned w) { return static_cast<signed char>(word >> 8 * w); }
DPLC_FN void dplc_add_product(float& d, float a, float b) { d += a * b; }
DPLC_FN void dplc_add_product(int& d, int a, int b) { d = static_cast<int>(static_cast<unsigned>(d) + static_cast<unsigned>(a * b)); }
template <class A, unsigned per_word, class B = A, class D> static void dplc_mma(D* d, const uint32_t* a, const uint32_t* b DPLC_SITE_OF_CALLER) {
  const dplc::ThreadView* self = dplc_view->thread;
  dplc::Warp* warp = self->warp;
  auto& words = warp->fragment[warp->exchanges & 1];
  __builtin_memcpy(words[self->lane], a, 16);
  __builtin_memcpy(words[self->lane] + 4, b, 8);
  dplc_warp_barrier(false, DPLC_LINE);
  const unsigned g = self->lane >> 2, t = self->lane & 3;
  for (unsigned u = 0; u < 2; ++u)
    for (unsigned q = 0; q < 4; ++q)
      for (unsigned w = 0; w < per_word; ++w)
        for (unsigned v = 0; v < 2; ++v) {
          const D right = dplc_element(B{}, words[(2 * t + v) * 4 + q][4 + u], w);
          for (unsigned h = 0; h < 2; ++h)
            dplc_add_product(d[2 * h + v], dplc_element(A{}, words[g * 4 + q][2 * u + h], w), right);
        }
}
#define DPLC_MMA(name, T, ...) \
  DPLC_FN void name(T* d, const uint32_t* a, const uint32_t* b DPLC_SITE) { __VA_ARGS__(d, a, b DPLC_SAME_SITE); }
DPLC_MMA(mma_m16n8k16_bf16, float, dplc_mma<bf16, 2>)
DPLC_MMA(mma_m16n8k16_f16, float, dplc_mma<f16, 2>)
DPLC_MMA(mma_m16n8k8_f32, float, dplc_mma<dplc_tf32, 1>)
DPLC_MMA(mma_m16n8k32_f8_e4m3, float, dplc_mma<e4m3, 4>)
DPLC_MMA(mma_m16n8k32_f8_e4m3_e5m2, float, dplc_mma<e4m3, 4, e5m2>)
DPLC_MMA(mma_m16n8k32_f8_e5m2_e4m3, float, dplc_mma<e5m2, 4, e4m3>)
DPLC_MMA(mma_m16n8k32_f8_e5m2, float, dplc_mma<e5m2, 4>)
DPLC_MMA(mma_m16n8k32_i8, int, dplc_mma<signed char, 4>)
#undef DPLC_MMA
DPLC_FN uint32_t narrow_word(bf16, const float* v) {
  return to_bf16(v[0]).bits | static_cast<uint32_t>(to_bf16(v[1]).bits) << 16;
}
DPLC_FN uint32_t narrow_word(f16, const float* v) {
  return to_f16(v[0]).bits | static_cast<uint32_t>(to_f16(v[1]).bits) << 16;
}
DPLC_FN uint32_t to_tf32(float x) {  // to nearest, ties away from zero
  uint32_t word;
  __builtin_memcpy(&word, &x, 4);
  return isfinite(x) ? (word + 0x1000u) & 0xffffe000u : word;
}
DPLC_FN void round_word(uint32_t& word) {
  float x;
  __builtin_memcpy(&x, &word, 4);
  word = to_tf32(x);
}

// ---- products of matrices in shared memory, which the runtime makes ---------------------------------------------------

template <class T> static float dplc_read_element(const char* p) {
  T v;
  __builtin_memcpy(&v, p, sizeof(T));
  return to_float(v);
}
#define DPLC_WGMMA_OF(n, k, T)                                                                                \
  template <int A, int B> DPLC_FN void wgmma_m64n##n##k##_##T(float* d, Matrix<A> a, Matrix<B> b DPLC_SITE) { \
    static_assert(sizeof(T) == 2 || !(A || B), "only elements of 2 bytes run across");                        \
    dplc_queue_product(d, n, sizeof(T), dplc_read_element<T>, nullptr, a.bits, b.bits, DPLC_LINE);            \
  }                                                                                                           \
  template <int B> DPLC_FN void wgmma_m64n##n##k##_##T(float* d, const uint32_t* a, Matrix<B> b DPLC_SITE) {  \
    static_assert(sizeof(T) == 2 || !B, "only elements of 2 bytes run across");                               \
    dplc_queue_product(d, n, sizeof(T), dplc_read_element<T>, a, 0, b.bits, DPLC_LINE);                       \
  }
#define DPLC_WGMMA(n)            \
  DPLC_WGMMA_OF(n, k16, bf16)    \
  DPLC_WGMMA_OF(n, k16, f16)     \
  DPLC_WGMMA_OF(n, k32_f8, e4m3) \
  DPLC_WGMMA_OF(n, k32_f8, e5m2)
DPLC_WGMMA(32)
DPLC_WGMMA(48)
DPLC_WGMMA(64)
DPLC_WGMMA(80)
DPLC_WGMMA(96)
DPLC_WGMMA(112)
DPLC_WGMMA(128)
DPLC_WGMMA(144)
DPLC_WGMMA(160)
DPLC_WGMMA(176)
DPLC_WGMMA(192)
DPLC_WGMMA(208)
DPLC_WGMMA(224)
DPLC_WGMMA(240)
DPLC_WGMMA(256)
#undef DPLC_WGMMA
#undef DPLC_WGMMA_OF

// ---- registers that hold nothing yet (runtime.py puts the calls there in checked mode) --------------------------------

DPLC_FN void dplc_poison(float& v) { v = DPLC_NAN; }
DPLC_FN void dplc_poison(f16& v) { v = {0x7e00}; }
DPLC_FN void dplc_poison(bf16& v) { v = {0x7fc0}; }
DPLC_FN void dplc_poison(e4m3& v) { v = {0x7f}; }
DPLC_FN void dplc_poison(e5m2& v) { v = {0x7f}; }
DPLC_FN void dplc_poison(uint32_t& v) { v = 0x7fff7fffu; }  // of no format a number: one, two or four of them
DPLC_FN void dplc_poison(int& v) { v = -1234567891; }
DPLC_FN void dplc_poison(long long& v) { v = -1234567891234567891LL; }
DPLC_FN void dplc_poison(bool& v) { v = true; }
DPLC_FN void dplc_poison(double& v) { v = __builtin_nan(""); }
DPLC_FN void dplc_poison(signed char& v) { v = -91; }
DPLC_FN void dplc_poison(unsigned char& v) { v = 0xa5; }
DPLC_FN void dplc_poison(short& v) { v = -12345; }
template <class T, unsigned long n> DPLC_FN void dplc_poison(T (&v)[n]) {
  for (T& one : v) dplc_poison(one);
}
