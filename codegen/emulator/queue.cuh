// The threads of a block, and the queues they stand in while they wait.
#pragma once
#include <stddef.h>

#include <vector>

#include "context.cuh"
#include "machine.cuh"
#include "products.cuh"

namespace dplc {

class Checker;

// ---- threads ------------------------------------------------------------------------------------------------------

struct Fiber {
  Context context;
  char* bottom;
  char* top;
};

struct PendingCopy {
  char* to;
  const void* from;
  uint16_t bytes;
  bool inside;
  uint32_t group;
};

// The asynchronous copies of one thread that have not landed, in the order they were issued: a ring that grows when it
// is full, so that the copies of a block's threads stay in a cache together.
class CopyQueue {
 public:
  void push(char* to, const void* from, unsigned bytes, bool inside);
  void commit() { ++committed_; }
  void land_all_but(unsigned groups_left, Checker* checker);
  void clear() { first_ = end_ = 0, committed_ = 0; }

 private:
  PendingCopy& at(size_t place) { return ring_[place & (ring_.size() - 1)]; }
  void grow();

  std::vector<PendingCopy> ring_ = std::vector<PendingCopy>(8);  // a power of two
  size_t first_ = 0, end_ = 0;                                   // places since the thread began
  uint32_t committed_ = 0;
};

struct Thread {
  ThreadView view;  // first: View::thread points here
  Thread* next;     // in the queue it stands in
  Fiber* fiber;
  CopyQueue copies;
  ProductQueue products;
};

class ThreadQueue {
 public:
  bool empty() const { return first_ == nullptr; }
  void push(Thread* thread) {
    thread->next = nullptr;
    (first_ ? last_->next : first_) = thread;
    last_ = thread;
  }
  Thread* pop() {
    Thread* thread = first_;
    first_ = thread->next;
    return thread;
  }
  // Moves all of `other` to the end of this queue.
  void take(ThreadQueue& other) {
    if (other.empty()) return;
    (first_ ? last_->next : first_) = other.first_;
    last_ = other.last_;
    other.first_ = nullptr;
  }
  void clear() { first_ = nullptr; }
  unsigned length() const {
    unsigned count = 0;
    for (Thread* thread = first_; thread; thread = thread->next) ++count;
    return count;
  }

 private:
  Thread* first_ = nullptr;
  Thread* last_ = nullptr;
};

}  // namespace dplc
