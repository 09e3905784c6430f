// mbarriers, and boxes of tensors that the TMA engine copies.
#include "boxes.cuh"

#include <stdio.h>
#include <string.h>

#include "checker.cuh"

namespace dplc {

namespace {

constexpr unsigned box_alignment = 128, mbarrier_bytes = 8, chunk_bytes = 16;

// The 16-byte chunk of a row is flipped by the number of the row of 128 bytes.
size_t swizzled(size_t offset, unsigned swizzle) {
  return swizzle == 0 ? offset : offset ^ ((offset >> 7 & (swizzle / chunk_bytes - 1)) << 4);
}

}  // namespace

unsigned box_bytes(const TensorMap& map) {
  unsigned bytes = map.item_bytes;
  for (int dim = 0; dim < map.rank; ++dim) bytes *= map.box[dim];
  return bytes;
}

void land_box(const PendingBox& box, char* window) {
  const TensorMap& map = box.map;
  const unsigned row_bytes = map.box[0] * map.item_bytes;
  memset(box.to, 0, box.bytes);
  each_row(map, box.at, [&](unsigned row, unsigned begin, const char* from, unsigned bytes) {
    const size_t target = static_cast<size_t>(box.to - window) + size_t{row} * row_bytes;
    if (map.swizzle == 0) {
      memcpy(window + target + begin, from, bytes);
      return;
    }
    for (unsigned done = 0; done < bytes; done += map.item_bytes)
      memcpy(window + swizzled(target + begin + done, map.swizzle), from + done, map.item_bytes);
  });
}

// ---- mbarriers ----------------------------------------------------------------------------------------------------

void Machine::mbarrier_init(char* address, unsigned arrivals, int line) {
  if ((byte_of(address)) % mbarrier_bytes != 0) fail_misaligned(address, mbarrier_bytes);
  if (checker) checker->mbarrier(address, true, line);
  for (Mbarrier& barrier : mbarriers_)
    if (barrier.address == address)
      fail("line %d: initialises the mbarrier at byte %td of shared memory again", line, byte_of(address));
  mbarriers_.emplace_back();
  Mbarrier& made = mbarriers_.back();
  made.address = address;
  made.arrivals = made.pending = arrivals;
  made.owner = view.thread->number;
}

void Machine::mbarrier_fence() {
  for (Mbarrier& barrier : mbarriers_)
    if (barrier.owner == view.thread->number) barrier.fenced = true;
}

Mbarrier& Machine::mbarrier_at(char* address, int line) {
  for (Mbarrier& barrier : mbarriers_)
    if (barrier.address == address) {
      if (checker) checker->mbarrier(address, false, line);
      return barrier;
    }
  fail("line %d: no mbarrier has been initialised at byte %td of shared memory", line, byte_of(address));
}

void Machine::mbarrier_expect(char* address, int bytes, int line) { arrive(mbarrier_at(address, line), bytes, line); }

// The shared memory of a block is there as long as one of its threads.
void Machine::fail_if_ended(unsigned block, int line) {
  if (live_[block] == 0)
    fail("line %d: reaches into the shared memory of block %u of the cluster, which has ended: no cluster_sync", line, block);
}

void Machine::arrive(Mbarrier& barrier, int bytes, int line) {
  if (barrier.complete()) land_boxes(barrier);  // nobody has looked
  if (barrier.pending == 0)
    fail("line %d: one arrival too many in phase %u of the mbarrier at byte %td of shared memory", line, barrier.phase,
         byte_of(barrier.address));
  --barrier.pending;
  barrier.expected += bytes;
  if (!barrier.complete() || !barrier.boxes.empty()) return notify(barrier);
  land_boxes(barrier);  // there is nothing to land: the phase is over now
  ready_.take(barrier.waiting);
}

void Machine::mbarrier_wait(char* address, int parity, int line) {
  Mbarrier& barrier = mbarrier_at(address, line);
  while ((barrier.phase & 1) == static_cast<unsigned>(parity)) {
    if (barrier.complete()) land_boxes(barrier);
    else barrier.line = line, park(barrier.waiting);
  }
  if (checker) checker->phase_seen(address, barrier.phase);
}

void Machine::notify(Mbarrier& barrier) {
  if (barrier.complete()) ready_.take(barrier.waiting);
}

// ---- boxes --------------------------------------------------------------------------------------------------------

// The blocks of a cluster get the box at the place that it has in this one.
void Machine::copy_box(char* to, const TensorMap& map, char* address, const int* at, int rank, unsigned blocks, int line) {
  if (rank != map.rank) fail("line %d: %d coordinates in a tensor of %d dimensions", line, rank, map.rank);
  if (blocks == 1) return copy_box(to, map, mbarrier_at(address, line), at, line, true);
  if (blocks != request_->cluster)
    fail("line %d: copies a box for %u blocks, in clusters of %u", line, blocks, request_->cluster);
  const ptrdiff_t own = ptrdiff_t{view.thread->rank} * view.block_bytes;
  for (unsigned block = 0; block < blocks; ++block) {
    const ptrdiff_t there = ptrdiff_t{block} * view.block_bytes - own;
    fail_if_ended(block, line);
    copy_box(to + there, map, mbarrier_at(address + there, line), at, line, block == 0);
  }
}

void Machine::copy_box(char* to, const TensorMap& map, Mbarrier& barrier, const int* at, int line, bool counted) {
  const unsigned bytes = box_bytes(map);
  const ptrdiff_t offset = to - view.shared;
  if (!barrier.fenced) fail("line %d: copies to an mbarrier that no mbarrier_fence shows to the TMA engine", line);
  if (offset < 0 || static_cast<size_t>(offset) + bytes > request_->shared_span)
    fail("line %d: box out of bounds, at byte %td of shared memory, which has %u bytes", line, byte_of(offset),
         request_->shared_bytes);
  if (offset % box_alignment != 0) fail_misaligned(to, box_alignment);
  if (barrier.complete()) land_boxes(barrier);
  if (checker) checker->box_issued(to, bytes, barrier.address, barrier.phase, map, at, line, counted);
  memset(to, poison, bytes);
  PendingBox box{to, map, {}, bytes};
  memcpy(box.at, at, static_cast<size_t>(map.rank) * sizeof(int));
  barrier.boxes.push_back(box);
  barrier.copied += bytes;
  notify(barrier);
}

void Machine::land_boxes(Mbarrier& barrier) {
  for (const PendingBox& box : barrier.boxes) {
    land_box(box, view.shared);
    if (checker) checker->copy_landed(box.to, box.bytes);
  }
  barrier.boxes.clear();
  barrier.pending = barrier.arrivals;
  barrier.expected = barrier.copied = 0;
  ++barrier.phase;
}

void Machine::fail_unless_landed() {
  for (const Mbarrier& barrier : mbarriers_)
    if (!barrier.boxes.empty())
      fail("the block ends with boxes in flight to byte %td of shared memory", byte_of(barrier.boxes.front().to));
}

void Machine::fail_deadlock() {
  unsigned waiting = 0;
  char why[240] = "";
  for (const Mbarrier& barrier : mbarriers_) {
    const unsigned here = barrier.waiting.length();
    if (here != 0 && waiting == 0)
      snprintf(why, sizeof why, "; phase %u of the mbarrier at byte %td%s lacks %u arrivals and %lld of %lld bytes",
               barrier.phase, byte_of(barrier.address), Line(barrier.line, ", waited for in line %d,").text, barrier.pending,
               static_cast<long long>(barrier.expected - barrier.copied), static_cast<long long>(barrier.expected));
    waiting += here;
  }
  const unsigned at_block = block_.waiting.length();
  int line = 0;
  for (const WarpState& warp : warps_)
    if (warp.barrier.arrived != 0 && line == 0) line = warp.barrier.line;
  const Line block(at_block != 0 ? block_.line : 0, " of line %d"), warp(line, " of line %d");
  if (waiting == 0)
    fail("deadlock: %u threads wait at block_sync%s and %u at a warp operation%s that the others never reach", at_block,
         block.text, block_.live - at_block, warp.text);
  fail("deadlock: %u threads wait at block_sync%s, %u at an mbarrier and %u at a warp operation%s%s", at_block,
       block.text, waiting, block_.live - at_block - waiting, warp.text, why);
}

}  // namespace dplc

extern "C" {

void dplc_mbarrier_init(char* barrier, unsigned arrivals, int line) {
  reinterpret_cast<dplc::Machine*>(dplc_view)->mbarrier_init(barrier, arrivals, line);
}
void dplc_mbarrier_fence(void) { reinterpret_cast<dplc::Machine*>(dplc_view)->mbarrier_fence(); }
void dplc_mbarrier_expect(char* barrier, int bytes, int line) {
  reinterpret_cast<dplc::Machine*>(dplc_view)->mbarrier_expect(barrier, bytes, line);
}
void dplc_mbarrier_wait(char* barrier, int parity, int line) {
  reinterpret_cast<dplc::Machine*>(dplc_view)->mbarrier_wait(barrier, parity, line);
}
void dplc_copy_box(char* to, const dplc::TensorMap* map, char* barrier, const int* at, int rank, unsigned blocks,
                   int line) {
  reinterpret_cast<dplc::Machine*>(dplc_view)->copy_box(to, *map, barrier, at, rank, blocks, line);
}
}
