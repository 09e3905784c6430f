// Runs one block: starts a fiber per CUDA thread, switches at barriers, lands asynchronous copies at their waits.
//
// A thread runs until it must wait. Then the longest-waiting ready thread goes on, or else the next thread starts, on
// a stack that a finished thread has left warm if there is one. A kernel without barriers thus runs on a single
// stack, as a plain loop.
#define DPLC_DEFINE_SWITCH
#include "checker.cuh"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <random>

__thread dplc::View* dplc_view = nullptr;

namespace dplc {

namespace {

Machine& machine() { return *reinterpret_cast<Machine*>(dplc_view); }

char* map_pages(size_t bytes, int protection) {
  void* pages = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return pages == MAP_FAILED ? nullptr : static_cast<char*>(pages);
}

constexpr size_t stack_stride = stack_bytes + page_bytes;  // each stack has a guard page below it

}  // namespace

// ---- asynchronous copies ------------------------------------------------------------------------------------------

// Widths are 4, 8 and 16 bytes: told so, a compiler moves a register where it would call memcpy.
inline void move_bytes(char* to, const void* from, unsigned bytes) {
  if (bytes == 16) memcpy(to, from, 16);
  else if (bytes == 8) memcpy(to, from, 8);
  else memcpy(to, from, 4);
}

void CopyQueue::grow() {
  std::vector<PendingCopy> ring(2 * ring_.size());
  for (size_t place = first_; place != end_; ++place) ring[place & (ring.size() - 1)] = at(place);
  ring_ = std::move(ring);
}

void CopyQueue::push(char* to, const void* from, unsigned bytes, bool inside) {
  __builtin_prefetch(from);  // by the time it lands it is near, as on a GPU
  if (end_ - first_ == ring_.size()) grow();
  static const auto spoilt = [] {
    std::array<char, 16> filled;
    filled.fill(static_cast<char>(poison));
    return filled;
  }();
  move_bytes(to, spoilt.data(), bytes);
  at(end_++) = {to, from, static_cast<uint16_t>(bytes), inside, committed_};
}

void CopyQueue::land_all_but(unsigned groups_left, Checker* checker) {
  for (; first_ != end_; ++first_) {
    const PendingCopy& copy = at(first_);
    if (copy.group + groups_left >= committed_) return;
    if (copy.inside) move_bytes(copy.to, copy.from, copy.bytes);
    else memset(copy.to, 0, copy.bytes);
    if (checker) checker->copy_landed(copy.to, copy.bytes);
  }
}

// ---- a block ------------------------------------------------------------------------------------------------------

Machine::Machine(char* region) : shared_end_(region + shared_region) {
  fibers_.resize(max_fibers);
  stacks_ = map_pages(max_fibers * stack_stride, PROT_NONE);
  signal_stack = map_pages(64 << 10, PROT_READ | PROT_WRITE);
  has_memory = stacks_ != nullptr && signal_stack != nullptr &&
               mprotect(region, shared_region, PROT_READ | PROT_WRITE) == 0;
}

Machine::~Machine() {
  if (stacks_ != nullptr) munmap(stacks_, max_fibers * stack_stride);
  if (signal_stack != nullptr) munmap(signal_stack, 64 << 10);
}

void Machine::begin_launch(const LaunchRequest& request) {
  request_ = &request;
  view.block_shape = {request.threads / request.cluster, 1, 1};
  view.grid_shape = {request.grid[0] * request.cluster, request.grid[1], request.grid[2]};
  view.block_bytes = request.shared_span / request.cluster;
  // Right against the guard, so that an access past the end faults.
  // Aligned for the hardware's swizzles where it holds more than one of their patterns.
  const uint32_t unit = request.shared_span < 1024 ? 128 : 1024;
  view.shared = shared_end_ - (request.shared_span + unit - 1) / unit * unit;
  threads_.resize(request.threads);
  warps_.resize((request.threads + lanes_per_warp - 1) / lanes_per_warp);
  set_order(request.order);
}

void Machine::set_order(uint32_t order) {
  std::vector<unsigned> starts(threads_.size());
  for (unsigned i = 0; i < starts.size(); ++i) starts[i] = i;
  if (order == 1) std::reverse(starts.begin(), starts.end());
  if (order > 1) std::shuffle(starts.begin(), starts.end(), std::minstd_rand(order));
  for (size_t i = 0; i < starts.size(); ++i)
    threads_[i].view = {{starts[i] % view.block_shape.x, 0, 0},
                        starts[i] % lanes_per_warp,
                        &warps_[starts[i] / lanes_per_warp].shared,
                        starts[i],
                        starts[i] / view.block_shape.x};
}

bool Machine::run_block(uint64_t linear_index) {
  const uint32_t* grid = request_->grid;
  view.block_index = {static_cast<unsigned>(linear_index % grid[0]) * request_->cluster,
                      static_cast<unsigned>(linear_index / grid[0] % grid[1]),
                      static_cast<unsigned>(linear_index / grid[0] / grid[1])};
  memset(view.shared, poison, static_cast<size_t>(shared_end_ - view.shared));
  view.thread = nullptr;
  ready_.clear();
  by_data = false;
  started_ = 0;
  block_ = {request_->threads, 0, {}, 0};
  live_.assign(request_->cluster, view.block_shape.x);
  for (size_t i = 0; i < warps_.size(); ++i) {
    const unsigned lanes =
        i + 1 < warps_.size() ? lanes_per_warp : request_->threads - static_cast<unsigned>(i) * lanes_per_warp;
    warps_[i].barrier = {lanes, 0, {}, 0};
    warps_[i].live_lanes = lanes == lanes_per_warp ? ~0u : (1u << lanes) - 1;
  }
  free_fibers_.clear();
  for (unsigned i = usable_stacks_; i > 0; --i) free_fibers_.push_back(&fibers_[i - 1]);
  mbarriers_.clear();
  groups_.clear();
  if (checker) checker->begin_block(linear_index);
  running = true;
  const bool failed = sigsetjmp(escape_, 1) != 0;
  if (!failed) run_another(main_);
  running = false;
  if (checker) checker->end_block();
  if (failed)
    for (Thread& thread : threads_) thread.copies.clear(), thread.products.clear();  // the abandoned never got there
  return !failed;
}

void fiber_main() {
  Machine& self = machine();
  Fiber* fiber = self.free_fibers_.back();
  self.free_fibers_.pop_back();
  do {
    Thread* thread = self.start_next();
    thread->fiber = fiber;
    self.request_->entry(self.request_->arguments);
    self.finish(thread);
  } while (self.ready_.empty() && self.started_ < self.request_->threads);
  self.leave_fiber(fiber);
}

Thread* Machine::start_next() {
  Thread* thread = &threads_[started_++];
  view.thread = &thread->view;
  return thread;
}

void Machine::finish(Thread* thread) {
  thread->copies.clear();
  finish_products(thread);
  --block_.live;
  --live_[thread->view.rank];
  if (block_.arrived > 0 && block_.arrived >= block_.live) complete_block_barrier();
  WarpState& warp = warp_of(thread);
  warp.live_lanes &= ~(1u << thread->view.lane);
  --warp.barrier.live;
  if (warp.barrier.arrived > 0 && warp.barrier.arrived >= warp.barrier.live) complete_warp_exchange(warp);
}

void Machine::leave_fiber(Fiber* fiber) {
  free_fibers_.push_back(fiber);
  if (block_.live == 0) {
    fail_unless_landed();
    switch_to(fiber->context, main_);
  }
  run_another(fiber->context);
  __builtin_unreachable();
}

void Machine::park(ThreadQueue& queue) {
  Thread* thread = current();
  queue.push(thread);
  run_another(thread->fiber->context);
}

void Machine::run_another(Context& from) {
  if (!ready_.empty()) {
    Thread* thread = ready_.pop();
    view.thread = &thread->view;
    switch_to(from, thread->fiber->context);
  } else if (started_ < request_->threads) {
    switch_to(from, take_fiber()->context);
  } else {
    fail_deadlock();
  }
}

// The fiber stays on the free list until it runs, when fiber_main takes it off.
Fiber* Machine::take_fiber() {
  if (free_fibers_.empty()) {
    Fiber& fiber = fibers_[usable_stacks_];
    fiber.bottom = stacks_ + usable_stacks_ * stack_stride + page_bytes;
    if (mprotect(fiber.bottom, stack_bytes, PROT_READ | PROT_WRITE) != 0) fail("%s", out_of_memory);
    // Tops at equal offsets in their pages would all fall into the same few cache sets.
    fiber.top = fiber.bottom + stack_bytes - usable_stacks_ * 320 % page_bytes;
    ++usable_stacks_;
    free_fibers_.push_back(&fiber);
  }
  Fiber* fiber = free_fibers_.back();
  prepare(fiber->context, fiber->bottom, fiber->top, fiber_main);
  return fiber;
}

// ---- barriers -----------------------------------------------------------------------------------------------------

void Machine::release(Barrier& barrier) {
  barrier.arrived = 0;
  ready_.take(barrier.waiting);
}

// What one block of a cluster does by itself is not told apart from what all do.
void Machine::block_barrier(int line) {
  if (request_->cluster > 1)
    fail("line %d: block_sync, where the blocks of a cluster copy boxes for each other: cluster_sync orders them", line);
  cluster_barrier(line);
}

void Machine::cluster_barrier(int line) {
  if (block_.arrived == 0) block_.line = line;
  else if (block_.line != line)
    fail("line %d: block_sync, where other threads wait at the one of line %d", line, block_.line);
  if (++block_.arrived >= block_.live) complete_block_barrier();
  else park(block_.waiting);
}

void Machine::complete_block_barrier() {
  if (checker) checker->block_released();
  release(block_);
}

void Machine::warp_barrier(bool orders_memory, int line) {
  WarpState& warp = warp_of(current());
  warp.orders_memory = orders_memory;
  if (warp.barrier.arrived == 0) warp.barrier.line = line;
  else if (warp.barrier.line != line)
    fail("line %d: a warp operation, where other lanes wait at the one of line %d", line, warp.barrier.line);
  if (++warp.barrier.arrived >= warp.barrier.live) complete_warp_exchange(warp);
  else park(warp.barrier.waiting);
}

void Machine::complete_warp_exchange(WarpState& warp) {
  if (warp.live_lanes != ~0u)  // what a lane that is not there would say
    for (int lane = 0; lane < lanes_per_warp; ++lane)
      if (!(warp.live_lanes >> lane & 1))
        memset(&warp.shared.slot[warp.shared.exchanges & 1][lane], poison, sizeof(uint64_t));
  ++warp.shared.exchanges;
  if (checker && warp.orders_memory) checker->warp_released(static_cast<unsigned>(&warp - warps_.data()));
  release(warp.barrier);
}

// ---- failures -----------------------------------------------------------------------------------------------------

void Machine::fail(const char* format, ...) {
  Index3 block = view.block_index;
  if (view.thread != nullptr) block.x += view.thread->rank;
  int used = view.thread == nullptr ? 0
                                    : snprintf(failure, sizeof failure, "block (%u, %u, %u), thread %u: ", block.x,
                                               block.y, block.z, view.thread->index.x);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(failure + used, sizeof failure - static_cast<size_t>(used), format, arguments);
  va_end(arguments);
  siglongjmp(escape_, 1);
}

}  // namespace dplc

extern "C" {

void dplc_block_barrier(int line) { dplc::machine().block_barrier(line); }
void dplc_cluster_barrier(int line) { dplc::machine().cluster_barrier(line); }
void dplc_warp_barrier(bool orders_memory, int line) { dplc::machine().warp_barrier(orders_memory, line); }
void dplc_copy_async(char* to, const void* from, unsigned bytes, bool inside) {
  dplc::machine().copies().push(to, from, bytes, inside);
}
void dplc_copy_commit(void) { dplc::machine().copies().commit(); }
void dplc_copy_wait(unsigned groups_left) {
  dplc::Machine& machine = dplc::machine();
  machine.copies().land_all_but(groups_left, machine.checker);
}
void dplc_divided_by_zero(void) {
  dplc::machine().by_data = true;
  dplc::machine().fail("integer division by zero");
}
void dplc_no_place(long long place, long long extent, int line) {
  dplc::machine().by_data = true;
  dplc::machine().fail("place %lld on an axis that has %lld, at line %d", place, extent, line);
}
void dplc_misaligned(const void* address, unsigned bytes) { dplc::machine().fail_misaligned(address, bytes); }
}
