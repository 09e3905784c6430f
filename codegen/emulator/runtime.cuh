// The inside of the emulator's runtime: a machine that executes the blocks of a grid, one CUDA thread per fiber.
#pragma once
#include <setjmp.h>
#include <stddef.h>
#include <stdio.h>

#include <deque>
#include <vector>

#include "boxes.cuh"
#include "queue.cuh"

namespace dplc {

constexpr unsigned max_threads = 1024;  // of a block
constexpr unsigned max_cluster = 8;      // blocks, on every device that has clusters
constexpr unsigned max_fibers = max_threads * max_cluster;
constexpr size_t page_bytes = 4096;
constexpr size_t stack_bytes = 128 << 10;      // pages are taken when touched; most threads touch one or two
constexpr size_t shared_capacity = 256 << 10;  // of a block; no device has more
constexpr size_t shared_region = 2 << 20;      // the same with the gaps of checked mode (mirrored in runtime.py)
constexpr size_t shared_guard = 256 << 10;     // inaccessible bytes behind it
constexpr char out_of_memory[] = "out of memory: this process may not have more for the stacks of threads";
constexpr int poison = 0xff;                   // a NaN in every float, and a conspicuous integer

// ---- what Python hands over (mirrored in runtime.py) --------------------------------------------------------------

struct BufferInfo {
  const char* name;
  char* base;
  uint64_t bytes;
  uint64_t item_bytes;
};

// What the accesses of one line, kind and width cost, summed over requests (one instruction of one warp each):
// sectors of 32 bytes for global memory, wavefronts for shared memory; ideal is the least that many bytes can cost.
struct SiteReport {
  uint32_t line, kind, bytes, reserved;
  uint64_t requests, cost, ideal;
};

// A tile of shared memory: where it starts in the kernel's layout, where it begins in the one that it runs with.
struct SharedTileInfo {
  const char* name;
  uint32_t start, begin, bytes, reserved;
};

struct LaunchRequest {
  void (*entry)(void* const* arguments);
  void* const* arguments;
  const BufferInfo* buffers;
  uint64_t buffer_count;
  const uint64_t* blocks;  // linear indices of the blocks to run, or null for all
  uint64_t block_count;
  uint32_t grid[3];
  uint32_t threads;       // of the blocks of a cluster together
  uint32_t shared_bytes;  // of one block
  uint32_t workers;   // OS threads
  uint32_t order;     // in which the threads of a block start: 0 forwards, 1 backwards, else a seed to shuffle them by
  uint32_t checked;   // 1: checked mode, for kernels built for it, on one worker
  SiteReport* sites;  // of checked mode: what accesses cost. Null: not counted, which is several times as fast
  uint64_t site_capacity;
  uint64_t* site_count;
  const SharedTileInfo* shared_tiles;  // of checked mode, in order, with gaps between them; none: the layout is the kernel's
  uint32_t shared_tile_count;
  uint32_t shared_span;  // bytes of shared memory, gaps among them, of the blocks of a cluster together
  uint32_t cluster;      // blocks that are one here; grid counts clusters in x
};

// ---- barriers -------------------------------------------------------------------------------------------------------

// A line of the kernel as words of a failure; nothing where it is not known, outside of checked mode.
struct Line {
  char text[32] = "";
  Line(int line, const char* format) {
    if (line != 0) snprintf(text, sizeof text, format, line);
  }
};

struct Barrier {
  unsigned live, arrived;  // threads that have exited are no longer waited for, as on hardware since sm_70
  ThreadQueue waiting;
  int line;  // where the first to arrive stands
};

struct WarpState {
  Warp shared;  // what its lanes can see
  Barrier barrier;
  uint32_t live_lanes;
  bool orders_memory;  // the exchange under way
};

// ---- machine ------------------------------------------------------------------------------------------------------

class Machine {
 public:
  View view;  // first: dplc_view points here

  explicit Machine(char* region);
  ~Machine();
  Machine(const Machine&) = delete;

  void begin_launch(const LaunchRequest& request);
  // Runs one block to its end. False: it failed, and `failure` says how.
  bool run_block(uint64_t linear_index);

  void block_barrier(int line);
  void cluster_barrier(int line);
  void warp_barrier(bool orders_memory, int line);
  CopyQueue& copies() { return current()->copies; }
  ProductQueue& products() { return current()->products; }
  unsigned group_of(const ThreadView& thread) const;
  void group_meets(const AsynchronousMma& product, uint32_t number);
  void check_matrix(const AsynchronousMatrix& matrix, uint32_t bytes, int line);
  void wait_products(unsigned groups_left, int line);
  void mbarrier_init(char* address, unsigned arrivals, int line);
  void mbarrier_fence();
  void mbarrier_expect(char* address, int bytes, int line);
  void mbarrier_wait(char* address, int parity, int line);
  void copy_box(char* to, const TensorMap& map, char* barrier, const int* at, int rank, unsigned blocks, int line);

  // Ends the block at once, abandoning every fiber; kernels own nothing that would need unwinding.
  [[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 2, 3)));
  // From the signal handler: says what an address that faulted has to do with the launch, then fails.
  [[noreturn]] void fail_at_address(int signal, const char* address);
  [[noreturn]] void fail_misaligned(const void* address, unsigned bytes, int line = 0);
  void describe_address(const char* address, char* text, size_t bytes) const;
  // The shared tile that an offset into shared memory is in, or next to; null where shared tiles are not apart.
  const SharedTileInfo* shared_tile_at(ptrdiff_t offset) const;
  // The byte of shared memory that an offset is in the kernel's own layout.
  ptrdiff_t byte_of(ptrdiff_t offset) const;
  ptrdiff_t byte_of(const char* address) const { return byte_of(address - view.shared); }

  Checker* checker = nullptr;  // null: fast mode
  bool running = false;
  bool has_memory = false;
  bool by_data = false;  // the failure: an input holds what it must not, and the kernel is right
  char failure[512];
  char* signal_stack;

 private:
  friend void fiber_main();

  Thread* current() { return reinterpret_cast<Thread*>(const_cast<ThreadView*>(view.thread)); }
  WarpState& warp_of(Thread* thread) { return *reinterpret_cast<WarpState*>(thread->view.warp); }
  Thread* start_next();
  void finish(Thread* thread);
  [[noreturn]] void leave_fiber(Fiber* fiber);
  void park(ThreadQueue& queue);
  void run_another(Context& from);
  void release(Barrier& barrier);
  void complete_block_barrier();
  void set_order(uint32_t order);
  void complete_warp_exchange(WarpState& warp);
  Fiber* take_fiber();
  Mbarrier& mbarrier_at(char* address, int line);
  void copy_box(char* to, const TensorMap& map, Mbarrier& barrier, const int* at, int line, bool counted);
  void arrive(Mbarrier& barrier, int bytes, int line);
  void fail_if_ended(unsigned block, int line);
  void land_boxes(Mbarrier& barrier);
  void notify(Mbarrier& barrier);
  void fail_unless_landed();
  void finish_products(Thread* thread);
  [[noreturn]] void fail_deadlock();

  const LaunchRequest* request_ = nullptr;
  ThreadQueue ready_;
  unsigned started_ = 0;
  Barrier block_{};
  std::vector<unsigned> live_;  // of each block of the cluster: threads that have not ended
  std::deque<Mbarrier> mbarriers_;
  struct GroupProduct {
    AsynchronousMma product;
    unsigned thread;  // the first to issue it
  };
  std::vector<std::vector<GroupProduct>> groups_;  // of four warps: what they have multiplied in this block
  std::vector<Thread> threads_;
  std::vector<WarpState> warps_;
  std::vector<Fiber> fibers_;
  std::vector<Fiber*> free_fibers_;
  char* stacks_;
  unsigned usable_stacks_ = 0;
  char* shared_end_;  // of this machine's shared memory
  Context main_{};
  sigjmp_buf escape_;
};

// Where the shared memory of every machine lies: one region after another, each with a guard behind.
char* shared_window();

// While one lives, a fault on an OS thread that runs a kernel fails its block instead of the process.
class FaultGuard {
 public:
  FaultGuard();
  ~FaultGuard();
  FaultGuard(const FaultGuard&) = delete;
};

}  // namespace dplc
