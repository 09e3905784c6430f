// mbarriers and the copies that end their phases.
//
// A box may land any time between its issue and the end of its phase. Here it lands as late as it may: when a thread
// waits for that phase. A thread that does not wait finds poison.
#pragma once
#include <deque>
#include <vector>

#include "machine.cuh"
#include "queue.cuh"

namespace dplc {

struct PendingBox {
  char* to;
  TensorMap map;
  int at[5];
  unsigned bytes;
};

struct Mbarrier {
  char* address;
  unsigned arrivals, pending;  // of a phase; still to come in this one
  int64_t expected, copied;    // bytes announced and issued in this phase
  uint32_t phase;              // phases that have ended
  unsigned owner;              // the thread that initialised it
  bool fenced;                 // the TMA engine can see it
  ThreadQueue waiting;
  int line;  // where the latest to wait stands
  std::vector<PendingBox> boxes;

  bool complete() const { return pending == 0 && expected == copied; }
};

// Bytes of a whole box: those outside of the tensor arrive as zeros and count.
unsigned box_bytes(const TensorMap& map);
// Copies a box. `window` is where shared memory starts: a swizzle takes the row from the address.
void land_box(const PendingBox& box, char* window);
// Calls visit(row of the box, byte in that row, where it comes from, bytes) for each row that meets the tensor.
template <class Visit> void each_row(const TensorMap& map, const int* at, Visit visit) {
  unsigned rows = 1;
  for (int dim = 1; dim < map.rank; ++dim) rows *= map.box[dim];
  for (unsigned row = 0; row < rows; ++row) {
    unsigned rest = row;
    const char* from = map.base;
    bool inside = true;
    for (int dim = 1; dim < map.rank; ++dim) {
      const int64_t place = at[dim] + static_cast<int64_t>(rest % map.box[dim]);
      rest /= map.box[dim];
      inside = inside && place >= 0 && place < static_cast<int64_t>(map.extents[dim]);
      from += place * static_cast<int64_t>(map.strides[dim]);
    }
    const int64_t first = at[0] < 0 ? -int64_t{at[0]} : 0, all = map.box[0];
    const int64_t left = static_cast<int64_t>(map.extents[0]) - at[0], last = left < all ? left : all;
    if (inside && first < last)
      visit(row, static_cast<unsigned>(first) * map.item_bytes, from + (at[0] + first) * map.item_bytes,
            static_cast<unsigned>(last - first) * map.item_bytes);
  }
}

}  // namespace dplc
