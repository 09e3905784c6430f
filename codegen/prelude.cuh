// The one header a generated kernel includes.
//
// Every hardware instruction a kernel uses is a small function named here, so that one kernel text means the same on
// a GPU and on the CPU emulator. For the GPU (nvcc or NVRTC) the functions below are inline PTX, or the one C++
// expression that already is the instruction; for a host compiler emulator/host_prelude.cuh gives each the same
// meaning in C++. A kernel file itself holds no asm and no #ifdef, and touches memory through these functions only.
//
// Conventions
//   A pointer is global memory, its buffer 16-byte aligned (a launch contract). A `uint32_t` address is shared memory.
//   A width is part of a name where it picks an instruction: ldg32, ldg64, ldg128.
//   Vectors go to and from arrays: ldg128(d, p) fills the 16 / sizeof(T) elements from d on.
//   ldg, stg, lds<T> and sts move one element of any dtype: float, f16, bf16, int, long long, bool, double, i8, u8, i16.
//   Floats of 16 and 8 bits are floats in registers. A vector load into floats widens (lds128<bf16>(d, a)), a vector
//   store of floats rounds to nearest even; a single element goes through to_float, to_f16, to_bf16, to_e4m3, to_e5m2.
#pragma once

#if defined(__CUDACC__)

#if defined(__CUDACC_RTC__)  // NVRTC finds no standard headers
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#else
#include <cstdint>
#endif

#define DPLC_FN static __device__ __forceinline__
#define DPLC_INF __int_as_float(0x7f800000)
#define DPLC_NAN __int_as_float(0x7fc00000)
#define DPLC_DYN_SMEM(T, name)                                        \
  extern __shared__ __align__(1024) unsigned char dplc_dynamic_smem[]; \
  T* name = reinterpret_cast<T*>(dplc_dynamic_smem)

struct f16 {
  uint16_t bits;
};
struct bf16 {
  uint16_t bits;
};

// ---- global memory ------------------------------------------------------------------------------------------------
// Loads are `.nc`: a kernel must not write what it loads with these (parameters of role "in").
// Vector stores are asm because nvcc splits `*(float4*)p = v` into four scalar stores now and then (seen on sm_90a).

#define DPLC_GLOBAL(p) "l"(__cvta_generic_to_global(p))

template <class T> DPLC_FN T ldg(const T* p) {
  if constexpr (sizeof(T) == 1) {
    const uint8_t bits = __ldg(reinterpret_cast<const unsigned char*>(p));
    T v;
    memcpy(&v, &bits, 1);
    return v;
  } else if constexpr (sizeof(T) == 2) {
    const uint16_t bits = __ldg(reinterpret_cast<const unsigned short*>(p));
    T v;
    memcpy(&v, &bits, 2);
    return v;
  } else {
    return __ldg(p);
  }
}
template <class T> DPLC_FN void stg(T* p, T v) { *p = v; }

DPLC_FN float ldg32(const float* p) { return __ldg(p); }
DPLC_FN int ldg32(const int* p) { return __ldg(p); }
DPLC_FN void ldg64(float* d, const float* p) {
  asm("ld.global.nc.v2.f32 {%0,%1}, [%2];" : "=f"(d[0]), "=f"(d[1]) : DPLC_GLOBAL(p));
}
DPLC_FN void ldg128(float* d, const float* p) {
  asm("ld.global.nc.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3]) : DPLC_GLOBAL(p));
}
// Touched once: keep it out of L1.
DPLC_FN void ldg128_stream(float* d, const float* p) {
  asm("ld.global.nc.L1::no_allocate.v4.f32 {%0,%1,%2,%3}, [%4];"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : DPLC_GLOBAL(p));
}
template <class T> DPLC_FN void ldg32(T* d, const T* p) {
  uint32_t w;
  asm("ld.global.nc.b32 %0, [%1];" : "=r"(w) : DPLC_GLOBAL(p));
  memcpy(d, &w, 4);
}
template <class T> DPLC_FN void ldg64(T* d, const T* p) {
  uint32_t w[2];
  asm("ld.global.nc.v2.b32 {%0,%1}, [%2];" : "=r"(w[0]), "=r"(w[1]) : DPLC_GLOBAL(p));
  memcpy(d, w, 8);
}
template <class T> DPLC_FN void ldg128(T* d, const T* p) {
  uint32_t w[4];
  asm("ld.global.nc.v4.b32 {%0,%1,%2,%3}, [%4];" : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : DPLC_GLOBAL(p));
  memcpy(d, w, 16);
}

// A place that data says: outside of its axis the kernel stops, as PyTorch's do, and never reads another tensor's memory.
DPLC_FN void check_place(long long place, long long extent) {
  if (static_cast<unsigned long long>(place) >= static_cast<unsigned long long>(extent)) __trap();
}

DPLC_FN void stg32(float* p, float v) { *p = v; }
DPLC_FN void stg32(int* p, int v) { *p = v; }
DPLC_FN void stg64(float* p, float2 v) {
  asm volatile("st.global.v2.f32 [%0], {%1,%2};" : : DPLC_GLOBAL(p), "f"(v.x), "f"(v.y) : "memory");
}
DPLC_FN void stg128(float* p, float4 v) {
  asm volatile("st.global.v4.f32 [%0], {%1,%2,%3,%4};" : : DPLC_GLOBAL(p), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
               : "memory");
}
DPLC_FN void stg64(int* p, int2 v) {
  asm volatile("st.global.v2.b32 [%0], {%1,%2};" : : DPLC_GLOBAL(p), "r"(v.x), "r"(v.y) : "memory");
}
DPLC_FN void stg128(int* p, int4 v) {
  asm volatile("st.global.v4.b32 [%0], {%1,%2,%3,%4};" : : DPLC_GLOBAL(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}
template <class T> DPLC_FN void stg32(T* p, const T* v) {
  uint32_t w;
  memcpy(&w, v, 4);
  asm volatile("st.global.b32 [%0], %1;" : : DPLC_GLOBAL(p), "r"(w) : "memory");
}
template <class T> DPLC_FN void stg64(T* p, const T* v) {
  uint32_t w[2];
  memcpy(w, v, 8);
  asm volatile("st.global.v2.b32 [%0], {%1,%2};" : : DPLC_GLOBAL(p), "r"(w[0]), "r"(w[1]) : "memory");
}
template <class T> DPLC_FN void stg128(T* p, const T* v) {
  uint32_t w[4];
  memcpy(w, v, 16);
  asm volatile("st.global.v4.b32 [%0], {%1,%2,%3,%4};" : : DPLC_GLOBAL(p), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])
               : "memory");
}

// ---- shared memory ------------------------------------------------------------------------------------------------
// By 32-bit byte address: one add per slot, and offsets become immediates. `volatile` and the clobber are needed:
// without them nvcc hoists a load out of a loop over its barriers, silently wrong.

DPLC_FN uint32_t smem_addr(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

DPLC_FN float lds32(uint32_t a) {
  float v;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(a) : "memory");
  return v;
}
DPLC_FN void lds64(float* d, uint32_t a) {
  asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(d[0]), "=f"(d[1]) : "r"(a) : "memory");
}
DPLC_FN void lds128(float* d, uint32_t a) {
  asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
               : "r"(a)
               : "memory");
}
template <class T> DPLC_FN T lds(uint32_t a) {
  T v;
  if constexpr (sizeof(T) == 8) {
    uint64_t w;
    asm volatile("ld.shared.b64 %0, [%1];" : "=l"(w) : "r"(a) : "memory");
    memcpy(&v, &w, 8);
  } else {
    uint32_t w;
    if constexpr (sizeof(T) == 4) asm volatile("ld.shared.b32 %0, [%1];" : "=r"(w) : "r"(a) : "memory");
    else if constexpr (sizeof(T) == 2) asm volatile("ld.shared.u16 %0, [%1];" : "=r"(w) : "r"(a) : "memory");
    else asm volatile("ld.shared.u8 %0, [%1];" : "=r"(w) : "r"(a) : "memory");
    memcpy(&v, &w, sizeof(T));
  }
  return v;
}
template <class T> DPLC_FN void lds32(T* d, uint32_t a) {
  uint32_t w;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(w) : "r"(a) : "memory");
  memcpy(d, &w, 4);
}
template <class T> DPLC_FN void lds64(T* d, uint32_t a) {
  uint32_t w[2];
  asm volatile("ld.shared.v2.b32 {%0,%1}, [%2];" : "=r"(w[0]), "=r"(w[1]) : "r"(a) : "memory");
  memcpy(d, w, 8);
}
template <class T> DPLC_FN void lds128(T* d, uint32_t a) {
  uint32_t w[4];
  asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
               : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
               : "r"(a)
               : "memory");
  memcpy(d, w, 16);
}

DPLC_FN void sts32(uint32_t a, float v) { asm volatile("st.shared.f32 [%0], %1;" : : "r"(a), "f"(v) : "memory"); }
DPLC_FN void sts64(uint32_t a, float2 v) {
  asm volatile("st.shared.v2.f32 [%0], {%1,%2};" : : "r"(a), "f"(v.x), "f"(v.y) : "memory");
}
DPLC_FN void sts128(uint32_t a, float4 v) {
  asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};" : : "r"(a), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
}
DPLC_FN void sts64(uint32_t a, int2 v) {
  asm volatile("st.shared.v2.b32 [%0], {%1,%2};" : : "r"(a), "r"(v.x), "r"(v.y) : "memory");
}
DPLC_FN void sts128(uint32_t a, int4 v) {
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" : : "r"(a), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
template <class T> DPLC_FN void sts(uint32_t a, T v) {
  if constexpr (sizeof(T) == 8) {
    uint64_t w;
    memcpy(&w, &v, 8);
    asm volatile("st.shared.b64 [%0], %1;" : : "r"(a), "l"(w) : "memory");
  } else {
    uint32_t w = 0;
    memcpy(&w, &v, sizeof(T));
    if constexpr (sizeof(T) == 4) asm volatile("st.shared.b32 [%0], %1;" : : "r"(a), "r"(w) : "memory");
    else if constexpr (sizeof(T) == 2) asm volatile("st.shared.u16 [%0], %1;" : : "r"(a), "r"(w) : "memory");
    else asm volatile("st.shared.u8 [%0], %1;" : : "r"(a), "r"(w) : "memory");
  }
}
template <class T> DPLC_FN void sts32(uint32_t a, const T* v) {
  uint32_t w;
  memcpy(&w, v, 4);
  asm volatile("st.shared.b32 [%0], %1;" : : "r"(a), "r"(w) : "memory");
}
template <class T> DPLC_FN void sts64(uint32_t a, const T* v) {
  uint32_t w[2];
  memcpy(w, v, 8);
  asm volatile("st.shared.v2.b32 [%0], {%1,%2};" : : "r"(a), "r"(w[0]), "r"(w[1]) : "memory");
}
template <class T> DPLC_FN void sts128(uint32_t a, const T* v) {
  uint32_t w[4];
  memcpy(w, v, 16);
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" : : "r"(a), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])
               : "memory");
}

// ---- asynchronous copies, global to shared ------------------------------------------------------------------------
// `_if`: the copy happens only when `on`; predicated inside the asm, because a branch around a copy splits the basic
// block and ptxas then rederives lane addresses. `_zfill`: when not `inside`, zeros land and nothing is read.

#define DPLC_IF "{ .reg .pred p; setp.ne.b32 p, %2, 0; "
#define DPLC_CP_ASYNC(name, cache, bytes)                                                                       \
  DPLC_FN void name(uint32_t s, const void* g) {                                                                \
    asm volatile("cp.async." cache ".shared.global [%0], [%1], " #bytes ";"                                     \
                 : : "r"(s), DPLC_GLOBAL(g) : "memory");                                                        \
  }                                                                                                             \
  DPLC_FN void name##_if(bool on, uint32_t s, const void* g) {                                                  \
    asm volatile(DPLC_IF "@p cp.async." cache ".shared.global [%0], [%1], " #bytes "; }"                        \
                 : : "r"(s), DPLC_GLOBAL(g), "r"(static_cast<int>(on)) : "memory");                             \
  }                                                                                                             \
  DPLC_FN void name##_zfill(bool inside, uint32_t s, const void* g) {                                           \
    asm volatile("cp.async." cache ".shared.global [%0], [%1], " #bytes ", %2;"                                 \
                 : : "r"(s), DPLC_GLOBAL(g), "r"(inside ? bytes : 0) : "memory");                               \
  }                                                                                                             \
  DPLC_FN void name##_if_zfill(bool on, bool inside, uint32_t s, const void* g) {                               \
    asm volatile(DPLC_IF "@p cp.async." cache ".shared.global [%0], [%1], " #bytes ", %3; }"                    \
                 : : "r"(s), DPLC_GLOBAL(g), "r"(static_cast<int>(on)), "r"(inside ? bytes : 0) : "memory");    \
  }
DPLC_CP_ASYNC(cp_async4, "ca", 4)
DPLC_CP_ASYNC(cp_async8, "ca", 8)
DPLC_CP_ASYNC(cp_async16, "cg", 16)
#undef DPLC_CP_ASYNC
#undef DPLC_IF

DPLC_FN void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until all but the latest N committed groups of this thread have landed.
template <int N> DPLC_FN void cp_async_wait() { asm volatile("cp.async.wait_group %0;" : : "n"(N) : "memory"); }

// ---- boxes, global to shared, by the TMA engine (sm_90 and later) --------------------------------------------------
// One thread announces bytes at an mbarrier and copies boxes of a tensor; a phase of the mbarrier ends when all of them
// have landed. `x` is the element of the innermost dimension where the box begins; what lies outside is zero.

struct __align__(64) TensorMap {  // a CUtensorMap
  uint64_t opaque[16];
};

DPLC_FN void mbarrier_init(uint32_t a, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(a), "r"(arrivals) : "memory");
}
// What this thread initialised is there for the TMA engine; other threads need a block_sync.
DPLC_FN void mbarrier_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;\n\tfence.proxy.async.shared::cta;" : : : "memory");
}
// Arrives, and lets the phase end only after so many bytes.
DPLC_FN void mbarrier_expect(uint32_t a, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" : : "r"(a), "r"(bytes) : "memory");
}
// Until the latest phase of this parity has ended.
DPLC_FN void mbarrier_wait(uint32_t a, int parity) {
  int done;
  do {
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(a), "r"(parity) : "memory");
  } while (!done);
}

#define DPLC_COPY_BOX(name, rank, parameters, places, ...)                                                    \
  DPLC_FN void name(uint32_t s, const TensorMap& map, uint32_t barrier, parameters) {                         \
    asm volatile("cp.async.bulk.tensor." rank ".shared::cluster.global.mbarrier::complete_tx::bytes "         \
                 "[%0], [%1, {" places "}], [%2];"                                                            \
                 : : "r"(s), "l"(&map), "r"(barrier), __VA_ARGS__ : "memory");                                \
  }
#define DPLC_PLACES(...) __VA_ARGS__
DPLC_COPY_BOX(copy_box_1d, "1d", int x, "%3", "r"(x))
DPLC_COPY_BOX(copy_box_2d, "2d", DPLC_PLACES(int x, int y), "%3,%4", "r"(x), "r"(y))
DPLC_COPY_BOX(copy_box_3d, "3d", DPLC_PLACES(int x, int y, int z), "%3,%4,%5", "r"(x), "r"(y), "r"(z))
DPLC_COPY_BOX(copy_box_4d, "4d", DPLC_PLACES(int x, int y, int z, int u), "%3,%4,%5,%6", "r"(x), "r"(y), "r"(z),
              "r"(u))
DPLC_COPY_BOX(copy_box_5d, "5d", DPLC_PLACES(int x, int y, int z, int u, int v), "%3,%4,%5,%6,%7", "r"(x), "r"(y),
              "r"(z), "r"(u), "r"(v))
#undef DPLC_COPY_BOX
// Into the same place of N blocks of a cluster, counted at the mbarrier that each has there.
#define DPLC_COPY_BOX(name, rank, parameters, places, mask, ...)                                              \
  template <int N> DPLC_FN void name(uint32_t s, const TensorMap& map, uint32_t barrier, parameters) {        \
    asm volatile("cp.async.bulk.tensor." rank                                                                 \
                 ".shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "                   \
                 "[%0], [%1, {" places "}], [%2], " mask ";"                                                  \
                 : : "r"(s), "l"(&map), "r"(barrier), __VA_ARGS__, "h"((uint16_t)((1 << N) - 1)) : "memory"); \
  }
DPLC_COPY_BOX(copy_box_2d_shared, "2d", DPLC_PLACES(int x, int y), "%3,%4", "%5", "r"(x), "r"(y))
DPLC_COPY_BOX(copy_box_3d_shared, "3d", DPLC_PLACES(int x, int y, int z), "%3,%4,%5", "%6", "r"(x), "r"(y), "r"(z))
DPLC_COPY_BOX(copy_box_4d_shared, "4d", DPLC_PLACES(int x, int y, int z, int u), "%3,%4,%5,%6", "%7", "r"(x), "r"(y),
              "r"(z), "r"(u))
DPLC_COPY_BOX(copy_box_5d_shared, "5d", DPLC_PLACES(int x, int y, int z, int u, int v), "%3,%4,%5,%6,%7", "%8",
              "r"(x), "r"(y), "r"(z), "r"(u), "r"(v))
#undef DPLC_PLACES
#undef DPLC_COPY_BOX

// ---- barriers and lanes -------------------------------------------------------------------------------------------

DPLC_FN void block_sync() { __syncthreads(); }
// All threads of a cluster; what they have written is there for the threads of their own block. Blocks give each other
// boxes alone, which mbarriers bring, and those are made known by mbarrier_fence.
DPLC_FN void cluster_sync() {
  asm volatile("fence.acq_rel.cta;\n\tbarrier.cluster.arrive.relaxed;\n\tbarrier.cluster.wait.acquire;" : : : "memory");
}
DPLC_FN void warp_sync() { __syncwarp(); }
// What all lanes of a warp have alike: the compiler may keep it in a register of the warp.
DPLC_FN int warp_uniform(int v) { return __shfl_sync(0xffffffffu, v, 0); }
// Holds in one thread of a block, of its first warp: the compiler then knows that it is alone (sm_90).
DPLC_FN bool one_thread(int thread) {
  uint32_t one;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.b32 %0, 1, 0, p; }" : "=r"(one));
  return warp_uniform(thread >> 5) == 0 && one;
}
template <class T> DPLC_FN T shfl_xor(T v, int lanes) { return __shfl_xor_sync(0xffffffffu, v, lanes); }
template <class T> DPLC_FN T shfl(T v, int lane) { return __shfl_sync(0xffffffffu, v, lane); }

// ---- fragments: matrices that a warp holds in words, and multiplies ------------------------------------------------
// ldmatrix: lane 8*m + r gives the address of row r of the m-th matrix of 8 rows of 16 bytes. mma: d += a*b, in the
// layouts of ir/atoms.py.

#define DPLC_LDMATRIX(name, form, n, words, ...)                                                              \
  DPLC_FN void name(uint32_t* d, uint32_t a) {                                                                \
    asm volatile("ldmatrix.sync.aligned.m8n8." form ".shared.b16 {" words "}, [%" #n "];"                     \
                 : __VA_ARGS__ : "r"(a) : "memory");                                                          \
  }
#define DPLC_FOUR_WORDS "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
DPLC_LDMATRIX(ldmatrix_x2, "x2", 2, "%0,%1", "=r"(d[0]), "=r"(d[1]))
DPLC_LDMATRIX(ldmatrix_x4, "x4", 4, "%0,%1,%2,%3", DPLC_FOUR_WORDS)
DPLC_LDMATRIX(ldmatrix_x2_trans, "x2.trans", 2, "%0,%1", "=r"(d[0]), "=r"(d[1]))
DPLC_LDMATRIX(ldmatrix_x4_trans, "x4.trans", 4, "%0,%1,%2,%3", DPLC_FOUR_WORDS)
#undef DPLC_FOUR_WORDS
#undef DPLC_LDMATRIX
#define DPLC_MMA(name, T, r, form)                                                                            \
  DPLC_FN void name(T* d, const uint32_t* a, const uint32_t* b) {                                             \
    asm("mma.sync.aligned." form " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                     \
        : "+" r(d[0]), "+" r(d[1]), "+" r(d[2]), "+" r(d[3])                                                  \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                                  \
  }
DPLC_MMA(mma_m16n8k16_bf16, float, "f", "m16n8k16.row.col.f32.bf16.bf16.f32")
DPLC_MMA(mma_m16n8k16_f16, float, "f", "m16n8k16.row.col.f32.f16.f16.f32")
DPLC_MMA(mma_m16n8k8_f32, float, "f", "m16n8k8.row.col.f32.tf32.tf32.f32")
DPLC_MMA(mma_m16n8k32_f8_e4m3, float, "f", "m16n8k32.row.col.f32.e4m3.e4m3.f32")
DPLC_MMA(mma_m16n8k32_f8_e4m3_e5m2, float, "f", "m16n8k32.row.col.f32.e4m3.e5m2.f32")
DPLC_MMA(mma_m16n8k32_f8_e5m2_e4m3, float, "f", "m16n8k32.row.col.f32.e5m2.e4m3.f32")
DPLC_MMA(mma_m16n8k32_f8_e5m2, float, "f", "m16n8k32.row.col.f32.e5m2.e5m2.f32")
DPLC_MMA(mma_m16n8k32_i8, int, "r", "m16n8k32.row.col.s32.s8.s8.s32")
#undef DPLC_MMA

// ---- products of matrices in shared memory, by groups of four warps (sm_90a) --------------------------------------------
// They are queued: from wgmma_fence to the wgmma_wait that covers their group nobody may touch the sums, or write to the
// matrices. A matrix has rows of 128 bytes that are swizzled as TMA does it. Its lines (rows of a, columns of b) run along
// those rows, or across them; the bytes are those from 8 rows to the next 8, and from 64 lines to the next.
// An address names the block of the cluster in its high bits, and a descriptor has room for 14 bits of it alone.

template <int across> struct Matrix {  // a descriptor
  uint64_t bits;
};
template <int stride> DPLC_FN constexpr Matrix<0> matrix_along(uint32_t a, int offset = 0) {
  return {uint64_t{((a >> 4 & 0x3fff) | 1u << 16) + (offset >> 4)} | uint64_t{stride >> 4} << 32 | uint64_t{1} << 62};
}
template <int stride, int leading> DPLC_FN constexpr Matrix<1> matrix_across(uint32_t a, int offset = 0) {
  return {uint64_t{((a >> 4 & 0x3fff) | (leading >> 4) << 16) + (offset >> 4)} | uint64_t{stride >> 4} << 32 | uint64_t{1} << 62};
}
#define DPLC_SUM(i) "+f"(d[i])
#define DPLC_SUMS(i)                                                                                              \
  DPLC_SUM(i), DPLC_SUM(i + 1), DPLC_SUM(i + 2), DPLC_SUM(i + 3), DPLC_SUM(i + 4), DPLC_SUM(i + 5), DPLC_SUM(i + 6), \
      DPLC_SUM(i + 7)
#define DPLC_NAMES_1 "%0,%1,%2,%3,%4,%5,%6,%7"
#define DPLC_SUMS_1 DPLC_SUMS(0)
#define DPLC_NAMES_2 DPLC_NAMES_1 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define DPLC_SUMS_2 DPLC_SUMS_1, DPLC_SUMS(8)
#define DPLC_NAMES_3 DPLC_NAMES_2 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define DPLC_SUMS_3 DPLC_SUMS_2, DPLC_SUMS(16)
#define DPLC_NAMES_4 DPLC_NAMES_3 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define DPLC_SUMS_4 DPLC_SUMS_3, DPLC_SUMS(24)
#define DPLC_NAMES_5 DPLC_NAMES_4 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define DPLC_SUMS_5 DPLC_SUMS_4, DPLC_SUMS(32)
#define DPLC_NAMES_6 DPLC_NAMES_5 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define DPLC_SUMS_6 DPLC_SUMS_5, DPLC_SUMS(40)
#define DPLC_NAMES_7 DPLC_NAMES_6 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define DPLC_SUMS_7 DPLC_SUMS_6, DPLC_SUMS(48)
#define DPLC_NAMES_8 DPLC_NAMES_7 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define DPLC_SUMS_8 DPLC_SUMS_7, DPLC_SUMS(56)
#define DPLC_NAMES_9 DPLC_NAMES_8 ",%64,%65,%66,%67,%68,%69,%70,%71"
#define DPLC_SUMS_9 DPLC_SUMS_8, DPLC_SUMS(64)
#define DPLC_NAMES_10 DPLC_NAMES_9 ",%72,%73,%74,%75,%76,%77,%78,%79"
#define DPLC_SUMS_10 DPLC_SUMS_9, DPLC_SUMS(72)
#define DPLC_NAMES_11 DPLC_NAMES_10 ",%80,%81,%82,%83,%84,%85,%86,%87"
#define DPLC_SUMS_11 DPLC_SUMS_10, DPLC_SUMS(80)
#define DPLC_NAMES_12 DPLC_NAMES_11 ",%88,%89,%90,%91,%92,%93,%94,%95"
#define DPLC_SUMS_12 DPLC_SUMS_11, DPLC_SUMS(88)
#define DPLC_NAMES_13 DPLC_NAMES_12 ",%96,%97,%98,%99,%100,%101,%102,%103"
#define DPLC_SUMS_13 DPLC_SUMS_12, DPLC_SUMS(96)
#define DPLC_NAMES_14 DPLC_NAMES_13 ",%104,%105,%106,%107,%108,%109,%110,%111"
#define DPLC_SUMS_14 DPLC_SUMS_13, DPLC_SUMS(104)
#define DPLC_NAMES_15 DPLC_NAMES_14 ",%112,%113,%114,%115,%116,%117,%118,%119"
#define DPLC_SUMS_15 DPLC_SUMS_14, DPLC_SUMS(112)
#define DPLC_NAMES_16 DPLC_NAMES_15 ",%120,%121,%122,%123,%124,%125,%126,%127"
#define DPLC_SUMS_16 DPLC_SUMS_15, DPLC_SUMS(120)
#define DPLC_WORDS "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])
#define DPLC_PRODUCT(n, type, k, rows) \
  "{ .reg .pred p; setp.eq.b32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n" #n k ".f32." #type "." #type " {" DPLC_NAMES_##rows "}, "
// a0 to a5: the names of the operands behind the sums. The left one is a matrix, or four words in registers.
#define DPLC_WGMMA_OF(n, type, rows, a0, a1, a2, a3, a4, a5)                                                       \
  template <int A, int B> DPLC_FN void wgmma_m64n##n##k16_##type(float* d, Matrix<A> a, Matrix<B> b) {                        \
    asm volatile(DPLC_PRODUCT(n, type, "k16", rows) a0 ", " a1 ", p, 1, 1, " a2 ", " a3 "; }"                      \
                 : DPLC_SUMS_##rows                                                                               \
                 : "l"(a.bits), "l"(b.bits), "n"(A), "n"(B));                                     \
  }                                                                                                               \
  template <int B> DPLC_FN void wgmma_m64n##n##k16_##type(float* d, const uint32_t* a, Matrix<B> b) {                   \
    asm volatile(DPLC_PRODUCT(n, type, "k16", rows) "{" a0 "," a1 "," a2 "," a3 "}, " a4 ", p, 1, 1, " a5 "; }"    \
                 : DPLC_SUMS_##rows                                                                               \
                 : DPLC_WORDS, "l"(b.bits), "n"(B));                                                      \
  }
// Of bytes: lines run along rows alone, so the instruction does not say how.
#define DPLC_WGMMA_OF_BYTES(n, type, rows, a0, a1, a2, a3, a4, a5)                                                 \
  template <int A, int B> DPLC_FN void wgmma_m64n##n##k32_f8_##type(float* d, Matrix<A> a, Matrix<B> b) {                     \
    static_assert(!A && !B, "only elements of 2 bytes run across");                               \
    asm volatile(DPLC_PRODUCT(n, type, "k32", rows) a0 ", " a1 ", p, 1, 1; }"                                      \
                 : DPLC_SUMS_##rows                                                                               \
                 : "l"(a.bits), "l"(b.bits));                                                                     \
  }                                                                                                               \
  template <int B> DPLC_FN void wgmma_m64n##n##k32_f8_##type(float* d, const uint32_t* a, Matrix<B> b) {                \
    static_assert(!B, "only elements of 2 bytes run across");                                             \
    asm volatile(DPLC_PRODUCT(n, type, "k32", rows) "{" a0 "," a1 "," a2 "," a3 "}, " a4 ", p, 1, 1; }"            \
                 : DPLC_SUMS_##rows                                                                               \
                 : DPLC_WORDS, "l"(b.bits));                                                                      \
  }
#define DPLC_WGMMA(n, ...)                     \
  DPLC_WGMMA_OF(n, bf16, __VA_ARGS__)          \
  DPLC_WGMMA_OF(n, f16, __VA_ARGS__)           \
  DPLC_WGMMA_OF_BYTES(n, e4m3, __VA_ARGS__)    \
  DPLC_WGMMA_OF_BYTES(n, e5m2, __VA_ARGS__)
DPLC_WGMMA(32, 2, "%16", "%17", "%18", "%19", "%20", "%21")
DPLC_WGMMA(48, 3, "%24", "%25", "%26", "%27", "%28", "%29")
DPLC_WGMMA(64, 4, "%32", "%33", "%34", "%35", "%36", "%37")
DPLC_WGMMA(80, 5, "%40", "%41", "%42", "%43", "%44", "%45")
DPLC_WGMMA(96, 6, "%48", "%49", "%50", "%51", "%52", "%53")
DPLC_WGMMA(112, 7, "%56", "%57", "%58", "%59", "%60", "%61")
DPLC_WGMMA(128, 8, "%64", "%65", "%66", "%67", "%68", "%69")
DPLC_WGMMA(144, 9, "%72", "%73", "%74", "%75", "%76", "%77")
DPLC_WGMMA(160, 10, "%80", "%81", "%82", "%83", "%84", "%85")
DPLC_WGMMA(176, 11, "%88", "%89", "%90", "%91", "%92", "%93")
DPLC_WGMMA(192, 12, "%96", "%97", "%98", "%99", "%100", "%101")
DPLC_WGMMA(208, 13, "%104", "%105", "%106", "%107", "%108", "%109")
DPLC_WGMMA(224, 14, "%112", "%113", "%114", "%115", "%116", "%117")
DPLC_WGMMA(240, 15, "%120", "%121", "%122", "%123", "%124", "%125")
DPLC_WGMMA(256, 16, "%128", "%129", "%130", "%131", "%132", "%133")
#undef DPLC_WGMMA
#undef DPLC_WGMMA_OF
#undef DPLC_WGMMA_OF_BYTES
#undef DPLC_PRODUCT
#undef DPLC_WORDS
#undef DPLC_SUMS
#undef DPLC_SUM
// Before the first product of a group: what was done to the sums comes first.
DPLC_FN void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" : : : "memory"); }
DPLC_FN void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory"); }
template <int N> DPLC_FN void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(N) : "memory"); }
// The sums are there: the compiler must not read them before this.
template <class T> DPLC_FN void wgmma_done(T& sums) {
  float* d = reinterpret_cast<float*>(&sums);
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(T) / sizeof(float)); ++i) asm volatile("" : "+f"(d[i]) : : "memory");
}
// Nobody reads these words any more: until here their registers are not given to others.
template <int N> DPLC_FN void wgmma_done(uint32_t (&words)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+r"(words[i]) : : "memory");
}
DPLC_FN uint32_t to_tf32(float x) {
  uint32_t w;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(w) : "f"(x));
  return w;
}
DPLC_FN void round_word(uint32_t& word) { word = to_tf32(__uint_as_float(word)); }

// ---- scalars ------------------------------------------------------------------------------------------------------
// Approximations are one MUFU each, good to about 2 ulp. Everything else keeps CUDA's own name: expf, logf, tanhf,
// erff, ...

DPLC_FN void divided_by_zero() {}
DPLC_FN float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DPLC_FN float rcp_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DPLC_FN float rsqrt_approx(float x) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DPLC_FN float ffma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
// torch.maximum and torch.minimum: a NaN on either side is the answer (fmaxf and fminf drop it).
DPLC_FN float max_nan(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
DPLC_FN float min_nan(float a, float b) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}

DPLC_FN float to_float(bf16 x) { return __uint_as_float(static_cast<uint32_t>(x.bits) << 16); }
DPLC_FN float to_float(f16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
DPLC_FN bf16 to_bf16(float x) {
  bf16 y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}
DPLC_FN f16 to_f16(float x) {
  f16 y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}

DPLC_FN uint32_t dplc_bits(float x) { return __float_as_uint(x); }
DPLC_FN float dplc_float(uint32_t u) { return __uint_as_float(u); }

// Two at once: the element at the lower address is the lower half of a word.
DPLC_FN void widen_word(bf16, float* d, uint32_t w) {
  d[0] = __uint_as_float(w << 16);
  d[1] = __uint_as_float(w & 0xffff0000u);
}
DPLC_FN void widen_word(f16, float* d, uint32_t w) {
  asm("{ .reg .b16 a, b; mov.b32 {a, b}, %2; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b; }"
      : "=f"(d[0]), "=f"(d[1]) : "r"(w));
}
DPLC_FN uint32_t narrow_word(bf16, const float* v) {
  uint32_t w;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(v[1]), "f"(v[0]));
  return w;
}
DPLC_FN uint32_t narrow_word(f16, const float* v) {
  uint32_t w;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(v[1]), "f"(v[0]));
  return w;
}

#include "float8.cuh"

// H is a float of 16 or 8 bits, a word of them 4 / sizeof(H).
#define DPLC_GLOBAL_SMALL(bits, H)                                               \
  DPLC_FN void ldg##bits(float* d, const H* p) {                                  \
    uint32_t w[bits / 32];                                                        \
    ldg##bits(w, reinterpret_cast<const uint32_t*>(p));                           \
    for (int i = 0; i < bits / 32; ++i) widen_word(H{}, d + 4 / sizeof(H) * i, w[i]); \
  }                                                                               \
  DPLC_FN void stg##bits(H* p, const float* v) {                                  \
    uint32_t w[bits / 32];                                                        \
    for (int i = 0; i < bits / 32; ++i) w[i] = narrow_word(H{}, v + 4 / sizeof(H) * i); \
    stg##bits(reinterpret_cast<uint32_t*>(p), static_cast<const uint32_t*>(w));   \
  }
#define DPLC_SHARED_SMALL(bits)                                                  \
  template <class H> DPLC_FN void lds##bits(float* d, uint32_t a) {               \
    uint32_t w[bits / 32];                                                        \
    lds##bits(w, a);                                                              \
    for (int i = 0; i < bits / 32; ++i) widen_word(H{}, d + 4 / sizeof(H) * i, w[i]); \
  }                                                                               \
  template <class H> DPLC_FN void sts##bits(uint32_t a, const float* v) {         \
    uint32_t w[bits / 32];                                                        \
    for (int i = 0; i < bits / 32; ++i) w[i] = narrow_word(H{}, v + 4 / sizeof(H) * i); \
    sts##bits(a, w);                                                              \
  }
#include "small_vectors.cuh"

#else
#include "emulator/host_prelude.cuh"
#endif

typedef signed char i8;
typedef unsigned char u8;
typedef short i16;

// ---- scalars that are the same C++ on both sides ------------------------------------------------------------------

DPLC_FN float round_f16(float x) { return to_float(to_f16(x)); }
DPLC_FN float round_bf16(float x) { return to_float(to_bf16(x)); }
DPLC_FN float round_e4m3(float x) { return to_float(to_e4m3(x)); }
DPLC_FN float round_e5m2(float x) { return to_float(to_e5m2(x)); }

// A word of a fragment: values rounded, the first of them lowest.
template <class H> DPLC_FN uint32_t pack(float low, float high) {
  const float both[2] = {low, high};
  return narrow_word(H{}, both);
}
template <class T> DPLC_FN uint32_t pack(float x) { return to_tf32(x); }
template <class T> DPLC_FN auto pack(T a, T b, T c, T d) -> decltype(a & 0xffu) {  // of a byte each
  return (a & 0xffu) | (b & 0xffu) << 8 | (c & 0xffu) << 16 | static_cast<uint32_t>(d) << 24;
}
template <class F> DPLC_FN auto pack(float a, float b, float c, float d) -> decltype(narrow_word(F{}, &a)) {
  const float all[4] = {a, b, c, d};
  return narrow_word(F{}, all);
}

DPLC_FN float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// Integers that are values of a program wrap around, as torch's do. Compilers take it that signed ones never overflow
// (`a + 1 > a` is true to them), so the arithmetic is unsigned.
#define DPLC_WRAPPING(T, U)                                                                                     \
  DPLC_FN T wrap_add(T a, T b) { return static_cast<T>(static_cast<U>(a) + static_cast<U>(b)); }                \
  DPLC_FN T wrap_sub(T a, T b) { return static_cast<T>(static_cast<U>(a) - static_cast<U>(b)); }                \
  DPLC_FN T wrap_mul(T a, T b) { return static_cast<T>(static_cast<U>(a) * static_cast<U>(b)); }                \
  DPLC_FN T wrap_neg(T a) { return static_cast<T>(static_cast<U>(0) - static_cast<U>(a)); }                      \
  DPLC_FN T wrap_abs(T a) { return a < 0 ? wrap_neg(a) : a; }
DPLC_WRAPPING(int, unsigned int)
DPLC_WRAPPING(long long, unsigned long long)
// What is narrower than an int is computed in one and cut to its width.
DPLC_WRAPPING(i8, unsigned int)
DPLC_WRAPPING(u8, unsigned int)
DPLC_WRAPPING(i16, unsigned int)
#undef DPLC_WRAPPING

// Integer division and remainder rounding down, as in Python and torch.floor_divide / torch.remainder. The least number
// by -1 wraps around too: x86 faults there, and CUDA leaves it undefined. By 0 a GPU goes on with a quotient of -1 and a
// remainder of the dividend; the emulator stops, as PyTorch does on the CPU.
template <class T> DPLC_FN T floor_div(T a, T b) {
  if (b == 0) return divided_by_zero(), -1;
  if (b == -1) return wrap_neg(a);
  const T q = a / b;
  return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}
template <class T> DPLC_FN T trunc_mod(T a, T b) {
  if (b == 0) return divided_by_zero(), a;
  return b == -1 ? 0 : a % b;
}
template <class T> DPLC_FN T floor_mod(T a, T b) {
  const T r = trunc_mod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

// Rounding to zero. What has no integer of the type (too large, infinite, no number) becomes the least one on every
// device, as torch has it on x86.
DPLC_FN int to_i32(float x) { return x >= -2147483648.0f && x < 2147483648.0f ? static_cast<int>(x) : -2147483647 - 1; }
DPLC_FN long long to_i64(float x) {
  const bool fits = x >= -9223372036854775808.0f && x < 9223372036854775808.0f;
  return fits ? static_cast<long long>(x) : -9223372036854775807LL - 1;
}
DPLC_FN int to_i32(double x) { return x > -2147483649.0 && x < 2147483648.0 ? static_cast<int>(x) : -2147483647 - 1; }
DPLC_FN long long to_i64(double x) {
  const bool fits = x >= -9223372036854775808.0 && x < 9223372036854775808.0;
  return fits ? static_cast<long long>(x) : -9223372036854775807LL - 1;
}
// Of fewer than 32 bits: by way of an int, whose lowest bits stay, as torch has it on x86.
template <class T> DPLC_FN i8 to_i8(T x) { return static_cast<i8>(to_i32(x)); }
template <class T> DPLC_FN u8 to_u8(T x) { return static_cast<u8>(to_i32(x)); }
template <class T> DPLC_FN i16 to_i16(T x) { return static_cast<i16>(to_i32(x)); }

// The C library's functions on doubles, by names that no value of a kernel has.
#define DPLC_F64_1(name, call) DPLC_FN double name(double x) { return call(x); }
#define DPLC_F64_2(name, call) DPLC_FN double name(double x, double y) { return call(x, y); }
DPLC_F64_1(exp_f64, exp)
DPLC_F64_1(exp2_f64, exp2)
DPLC_F64_1(expm1_f64, expm1)
DPLC_F64_1(log_f64, log)
DPLC_F64_1(log2_f64, log2)
DPLC_F64_1(log10_f64, log10)
DPLC_F64_1(log1p_f64, log1p)
DPLC_F64_1(sqrt_f64, sqrt)
DPLC_F64_1(sin_f64, sin)
DPLC_F64_1(cos_f64, cos)
DPLC_F64_1(tan_f64, tan)
DPLC_F64_1(asin_f64, asin)
DPLC_F64_1(acos_f64, acos)
DPLC_F64_1(atan_f64, atan)
DPLC_F64_1(sinh_f64, sinh)
DPLC_F64_1(cosh_f64, cosh)
DPLC_F64_1(tanh_f64, tanh)
DPLC_F64_1(asinh_f64, asinh)
DPLC_F64_1(acosh_f64, acosh)
DPLC_F64_1(atanh_f64, atanh)
DPLC_F64_1(erf_f64, erf)
DPLC_F64_1(erfc_f64, erfc)
DPLC_F64_1(erfinv_f64, erfinv)
DPLC_F64_1(erfcinv_f64, erfcinv)
DPLC_F64_1(erfcx_f64, erfcx)
DPLC_F64_1(lgamma_f64, lgamma)
DPLC_F64_1(floor_f64, floor)
DPLC_F64_1(ceil_f64, ceil)
DPLC_F64_1(trunc_f64, trunc)
DPLC_F64_1(rint_f64, rint)
DPLC_F64_1(fabs_f64, fabs)
DPLC_F64_2(pow_f64, pow)
DPLC_F64_2(atan2_f64, atan2)
DPLC_F64_2(hypot_f64, hypot)
DPLC_F64_2(fmod_f64, fmod)
#undef DPLC_F64_1
#undef DPLC_F64_2

DPLC_FN double max_nan(double a, double b) { return isnan(a) ? a : isnan(b) ? b : a < b ? b : a; }
DPLC_FN double min_nan(double a, double b) { return isnan(a) ? a : isnan(b) ? b : b < a ? b : a; }

DPLC_FN float floor_mod(float a, float b) {
  const float r = fmodf(a, b);
  return r != 0.0f && (r < 0.0f) != (b < 0.0f) ? r + b : r;
}

// As torch does: from the exact remainder, since a / b may round up to the next integer.
DPLC_FN float floor_div(float a, float b) {
  if (b == 0.0f) return a / b;
  const float r = fmodf(a, b);
  const float exact = (a - r) / b - (r != 0.0f && (b < 0.0f) != (r < 0.0f) ? 1.0f : 0.0f);
  const float floor = floorf(exact);
  return exact == 0.0f ? copysignf(0.0f, a / b) : exact - floor > 0.5f ? floor + 1.0f : floor;
}

DPLC_FN double floor_mod(double a, double b) {
  const double r = fmod(a, b);
  return r != 0.0 && (r < 0.0) != (b < 0.0) ? r + b : r;
}
DPLC_FN double floor_div(double a, double b) {
  if (b == 0.0) return a / b;
  const double r = fmod(a, b);
  const double exact = (a - r) / b - (r != 0.0 && (b < 0.0) != (r < 0.0) ? 1.0 : 0.0);
  const double floor = floor_f64(exact);
  return exact == 0.0 ? copysign(0.0, a / b) : exact - floor > 0.5 ? floor + 1.0 : floor;
}

// torch.sign: of a NaN, 0.
template <class T> DPLC_FN T sign(T x) { return static_cast<T>((x > 0) - (x < 0)); }

// torch.pow of integers: wraps around, and a negative exponent leaves only what is exact (1, -1, or else 0).
template <class T> DPLC_FN T int_pow(T base, T exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
  unsigned long long power = 1, square = static_cast<unsigned long long>(base);  // unsigned, for signed may not wrap
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) power *= square;
    square *= square;
  }
  return static_cast<T>(power);
}

// The greatest common divisor, by Euclid. As in PyTorch, the least number stays negative, and remainders have its sign.
template <class T> DPLC_FN T common_divisor(T a, T b) {
  if (a < 0) a = static_cast<T>(0 - static_cast<unsigned long long>(a));
  if (b < 0) b = static_cast<T>(0 - static_cast<unsigned long long>(b));
  while (a != 0) {
    const T rest = static_cast<T>(b % a);
    b = a;
    a = rest;
  }
  return b;
}

// The sum of (q + k) ** -s over all k >= 0: nine terms and all up to 9, the rest by Euler and Maclaurin.
DPLC_FN double zeta_sum(double s, double q) {
  if (s == 1.0) return DPLC_INF;
  if (s < 1.0) return DPLC_NAN;
  if (q <= 0.0 && q == floor(q)) return DPLC_INF;
  if (isnan(s) || isnan(q) || (q <= 0.0 && s != floor(s))) return DPLC_NAN;
  double total = 0.0, end = q;
  for (int k = 0; k < 9 || end <= 9.0; k++, end += 1.0) total += pow(end, -s);
  if (s > 1e13 || isinf(q)) return total > 0.0 ? total : DPLC_NAN;  // one term is all, or none; of none PyTorch says nan
  total += pow(end, 1.0 - s) / (s - 1.0) + 0.5 * pow(end, -s);
  const double bernoulli[7] = {1.0 / 12, -1.0 / 720, 1.0 / 30240, -1.0 / 1209600, 1.0 / 47900160,
                               -691.0 / 1307674368000.0, 1.0 / 74724249600.0};  // B(2j) / (2j)!
  double factor = s * pow(end, -s - 1.0);
  for (int j = 0; j < 7; j++) {
    total += bernoulli[j] * factor;
    factor *= (s + (2 * j + 1)) * (s + (2 * j + 2)) / (end * end);
  }
  return total;
}
// In f32 four terms leave a rest of which four of Euler's and Maclaurin's are exact to 1e-7 of the sum, for every s.
DPLC_FN float zeta_sum(float s, float q) {
  if (s == 1.0f) return DPLC_INF;
  if (s < 1.0f) return DPLC_NAN;
  if (q <= 0.0f && q == floorf(q)) return DPLC_INF;
  if (isnan(s) || isnan(q) || (q <= 0.0f && s != floorf(s))) return DPLC_NAN;
  float total = 0.0f, end = q;
  for (; end <= 0.0f; end += 1.0f) total += powf(end, -s);
  for (int k = 0; k < 4; k++, end += 1.0f) total += powf(end, -s);
  if (s > 1e13f || isinf(q)) return total > 0.0f ? total : DPLC_NAN;  // one term is all, or none; of none PyTorch says nan
  const float last = powf(end, 1.0f - s), one = 1.0f / end, square = one * one;
  float factor = s * last * square;  // of end ** (-s - 1)
  total += last / (s - 1.0f) + 0.5f * last * one + factor * (1.0f / 12);
  factor *= (s + 1.0f) * (s + 2.0f) * square;
  total -= factor * (1.0f / 720);
  factor *= (s + 3.0f) * (s + 4.0f) * square;
  total += factor * (1.0f / 30240);
  factor *= (s + 5.0f) * (s + 6.0f) * square;
  return total - factor * (1.0f / 1209600);
}

// Shares of the gamma function's integral, in f64: of f32 the power alone would lose four digits. ir/functions.py says by what.
DPLC_FN double gamma_weight(double a, double x) {
  if (a < 20.0) return exp(a * log(x) - x - lgamma(a + 1.0));
  const double over = (x - a) / a, square = a * a;
  const double rest = (1.0 / 12 - (1.0 / 360 - (1.0 / 1260 - 1.0 / (1680 * square)) / square) / square) / a;
  const double logarithm = over < -0.5 ? log(x / a) : log1p(over);
  return exp(a * (logarithm - over) - rest) / sqrt(6.283185307179586 * a);
}
DPLC_FN double gamma_share_of_large(double a, double x, bool above) {
  const double over = (x - a) / a;
  double half = over - log1p(over);
  if (fabs(over) < 0.01) {
    half = 0.0;
    for (int k = 9; k > 1; k--) half = half * -over + 1.0 / k;
    half *= over * over;
  }
  const double eta = copysign(sqrt(2.0 * half), over), near = max_nan(min_nan(eta, 1.0), -1.0);
  double sum = 1.0 / 25515 - 571.0 / 261273600 * near;
  sum = ((sum * near - 139.0 / 777600) * near + 1.0 / 2835) * near + 1.0 / 864;
  sum = ((sum * near - 2.0 / 135) * near + 1.0 / 12) * near - 1.0 / 3;
  const double small = (((1.0 / 4860 * near - 77.0 / 77760) * near + 1.0 / 378) * near - 1.0 / 288) * near - 1.0 / 540;
  const double rest = exp(-a * half) / sqrt(6.283185307179586 * a) * (sum + small / a);
  const double place = eta * sqrt(0.5 * a);
  return above ? 0.5 * erfc(place) + rest : 0.5 * erfc(-place) - rest;
}
DPLC_FN double gamma_share(double a, double x, bool above) {
  if (!(a >= 0.0 && x >= 0.0) || (a == x && (a == 0.0 || isinf(a)))) return DPLC_NAN;
  if (a == 0.0 || isinf(x)) return above ? 0.0 : 1.0;
  if (x == 0.0 || isinf(a)) return above ? 1.0 : 0.0;
  if (a > 20000.0) return gamma_share_of_large(a, x, above);
  if (x < a + 1.0) {
    double term = 1.0, total = 1.0;
    for (int k = 1; k < 2000 && term >= 1e-17 * total; k++) {
      term *= x / (a + k);
      total += term;
    }
    const double below = min_nan(gamma_weight(a, x) * total, 1.0);
    return above ? 1.0 - below : below;
  }
  double step = x + 1.0 - a, before = DPLC_INF, now = 1.0 / step, fraction = now, factor = 0.0;
  for (int k = 1; k < 2000 && fabs(factor - 1.0) >= 1e-16; k++) {
    step += 2.0;
    now = 1.0 / (step - k * (k - a) * now);
    before = step - k * (k - a) / before;
    factor = now * before;
    fraction *= factor;
  }
  const double rest = min_nan(gamma_weight(a, x) * a * fraction, 1.0);
  return above ? rest : 1.0 - rest;
}
DPLC_FN double gamma_share_below(double a, double x) { return gamma_share(a, x, false); }
DPLC_FN double gamma_share_above(double a, double x) { return gamma_share(a, x, true); }
DPLC_FN float gamma_share_below(float a, float x) { return (float)gamma_share(a, x, false); }
DPLC_FN float gamma_share_above(float a, float x) { return (float)gamma_share(a, x, true); }

// Bessel functions, by names that no value of a kernel has.
#define DPLC_BESSEL(name, call, call_of_float)                     \
  DPLC_FN double name(double x) { return call(x); }                \
  DPLC_FN float name(float x) { return call_of_float(x); }
DPLC_BESSEL(bessel_j0, j0, j0f)
DPLC_BESSEL(bessel_j1, j1, j1f)
DPLC_BESSEL(bessel_y0, y0, y0f)
DPLC_BESSEL(bessel_y1, y1, y1f)
#undef DPLC_BESSEL

// p_n, where p_0 = 1, p_1 = first and (1 + e k) p_(k+1) = (a + b k) p_k - (c + d k) p_(k-1). What is not a number stays so.
template <class T> DPLC_FN T three_terms(T n, T first, T a, T b, T c, T d, T e) {
  T before = 1, now = first;
  if (!(n >= 1)) return before;
  for (long long k = 1, end = to_i64(n); k < end && !isnan(now); k++) {
    const T next = ((a + b * k) * now - (c + d * k) * before) / (1 + e * k);
    before = now;
    now = next;
  }
  return now;
}

// The bits of integers, of the same type again. As torch shifts: what is out of range, or negative, moves every bit out.
template <class T> DPLC_FN T bits_and(T a, T b) { return static_cast<T>(a & b); }
template <class T> DPLC_FN T bits_or(T a, T b) { return static_cast<T>(a | b); }
template <class T> DPLC_FN T bits_xor(T a, T b) { return static_cast<T>(a ^ b); }
template <class T> DPLC_FN T shift_left(T a, T by) {
  const bool out = by < 0 || by >= static_cast<T>(8 * sizeof(T));
  return out ? 0 : static_cast<T>(static_cast<unsigned long long>(a) << static_cast<int>(by));
}
template <class T> DPLC_FN T shift_right(T a, T by) {
  const int most = 8 * static_cast<int>(sizeof(T)) - (static_cast<T>(-1) < 0);
  const bool out = by < 0 || by >= static_cast<T>(most);
  return out ? static_cast<T>((a >> (most - 1)) >> 1) : static_cast<T>(a >> static_cast<int>(by));
}
