// What a compiled kernel and the emulator's runtime share: the state a CUDA thread can see, and the calls a kernel
// makes.
//
// The runtime (machine.cpp and its neighbours) is compiled once into a shared library; every kernel is compiled
// against this header alone, which is why it is small and includes next to nothing.
#pragma once
#include <stdint.h>

namespace dplc {

struct Index3 {
  unsigned x, y, z;
};

constexpr int lanes_per_warp = 32;

// Values change hands through these slots. Two sets, used alternately: a lane that runs ahead to the next exchange
// must not overwrite what a slower lane has yet to read.
struct Warp {
  uint64_t slot[2][lanes_per_warp];
  uint32_t fragment[2][lanes_per_warp][6];  // operands of an mma: four registers of a, two of b
  unsigned exchanges;  // completed so far
};

struct ThreadView {
  Index3 index;  // within its block
  unsigned lane;
  Warp* warp;
  unsigned number;  // among all threads of the machine
  unsigned rank;    // of its block in its cluster
};

// The parts of a machine that kernels look at. One machine executes blocks, one after another, on one OS thread. The
// blocks of a cluster are one of all their threads, each with its part of the shared memory.
struct View {
  const ThreadView* thread;  // the one that is running
  Index3 block_index, block_shape, grid_shape;  // block_index: of the first block of a cluster
  char* shared;          // the block's dynamic shared memory; of a cluster one behind the other
  unsigned block_bytes;  // from one to the next
};

enum class Access : uint8_t { global_load, global_store, shared_load, shared_store, async_store, box_copy };

// How boxes of a tensor are found, innermost dimension first: what a CUtensorMap says, and as large. Mirrored in
// runtime.py.
struct TensorMap {
  const char* base;
  uint64_t extents[5], strides[5];  // elements; bytes
  uint16_t box[5];                  // elements
  uint8_t rank, item_bytes;
  uint16_t swizzle;  // bytes, 0: none
  uint8_t reserved[26];
};
static_assert(sizeof(TensorMap) == 128, "as a CUtensorMap");

}  // namespace dplc

extern "C" {
// Set by the runtime before a kernel runs on this OS thread. initial-exec: one instruction to reach, no call.
extern __thread dplc::View* dplc_view __attribute__((tls_model("initial-exec")));

// A shared address is a byte offset into this window, which holds the shared memory of every machine. It never moves.
char* dplc_shared_window(void);

// `line`: of the kernel text, in checked mode.
void dplc_block_barrier(int line);
void dplc_cluster_barrier(int line);
// Every barrier of a warp counts as an exchange: Warp::exchanges goes up by one. A shuffle does not order memory.
void dplc_warp_barrier(bool orders_memory, int line);

// The copy of 4, 8 or 16 bytes lands no sooner than its wait; until then its target holds poison. What is not inside
// lands as zeros, and is not read.
void dplc_copy_async(char* to, const void* from, unsigned bytes, bool inside);
void dplc_copy_commit(void);
void dplc_copy_wait(unsigned groups_left);

// Boxes land no sooner than a thread waits for the phase that they end; until then their target holds poison.
void dplc_mbarrier_init(char* barrier, unsigned arrivals, int line);
void dplc_mbarrier_fence(void);
void dplc_mbarrier_expect(char* barrier, int bytes, int line);
void dplc_mbarrier_wait(char* barrier, int parity, int line);
// blocks: of the cluster, at the same place of each.
void dplc_copy_box(char* to, const dplc::TensorMap* map, char* barrier, const int* at, int rank, unsigned blocks, int line);

// Products of matrices in shared memory, by groups of four warps; `a`, `b`: where a matrix is and how it goes on, as
// matrix_along and matrix_across pack it; `held`: the words of a left operand that is in registers, null where it is none;
// `item`, `element`: the bytes of an element, and what reads one. Until a wait covers it the sums hold poison.
void dplc_fence_products(void);
void dplc_queue_product(float* sums, unsigned columns, unsigned item, float (*element)(const char*),
                        const uint32_t* held, uint64_t a, uint64_t b, int line);
void dplc_commit_products(void);
void dplc_wait_products(unsigned groups_left, int line);

[[noreturn]] void dplc_misaligned(const void* address, unsigned bytes);
[[noreturn]] void dplc_divided_by_zero(void);
[[noreturn]] void dplc_no_place(long long place, long long extent, int line);

uint16_t dplc_float_to_f16(float value);
float dplc_f16_to_float(uint16_t bits);

// Checked mode: called before every access, with its line of kernel text and what a store is about to write.
void dplc_access(const void* address, unsigned bytes, dplc::Access access, int line, const void* value);
}
