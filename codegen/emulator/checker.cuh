// Checked mode: looks at every access of a kernel before it happens.
//
// It refuses accesses out of bounds, reads of shared memory nobody wrote or whose asynchronous copy has not been
// waited for, and pairs of accesses to shared memory that no barrier orders, whatever order the threads happened to
// run in. It also gathers the lanes of a warp into requests, as hardware does, and counts what they cost.
//
// What orders two accesses of different threads: a block_sync between them, or a warp_sync if both are of that warp.
// A shuffle orders nothing. A copy is a write from its issue to its wait, and the waiting thread's until the next
// barrier. A box is a write from its issue to the end of its phase; then it is there for every thread that has waited
// for that phase, and behind a barrier for the others.
#pragma once
#include <stdlib.h>

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "runtime.cuh"

namespace dplc {

class Checker {
 public:
  Checker(Machine& machine, const LaunchRequest& request);

  void begin_block(uint64_t linear_index);
  void end_block();
  void block_released() { ++epoch_; }
  void warp_released(unsigned warp) { ++warp_epochs_[warp]; }
  // `value` is what a store is about to write.
  void access(const char* address, unsigned bytes, Access kind, int line, const void* value);
  void copy_landed(const char* to, unsigned bytes);
  // An mbarrier is about to be initialised, or used.
  void mbarrier(const char* address, bool initialised, int line);
  void box_issued(const char* to, unsigned bytes, const char* mbarrier, uint32_t phase, const TensorMap& map,
                  const int* at, int line, bool counted);
  // The running thread has waited, and `phases` phases have ended.
  void phase_seen(const char* mbarrier, uint32_t phases);
  // A product reads a word from its issue until it is done: a write in between is wrong.
  void asynchronous_read(size_t offset, int line);
  void asynchronous_done(size_t offset, int line);
  void write_sites() const;

 private:
  // Who touched a piece of shared memory last, and when: block barriers completed so far, and warp barriers of their
  // warp.
  struct Touch {
    uint32_t epoch, warp_epoch;
    uint16_t thread, line;
  };
  enum class Readers : uint8_t { one, several_of_a_warp, several_warps };
  struct Shadow {
    Touch write;
    Touch read;  // the latest, or the first of several that no barrier orders
    Readers readers;
    bool in_flight;     // an asynchronous copy has been issued and not waited for
    uint16_t mbarrier;  // of the box that wrote it, counted from 1; 0: no box did
    uint32_t phase;     // that the box ends
    uint16_t asynchronous;      // products under way that read it
    uint16_t asynchronous_line;
  };

  // One instruction of one warp: the addresses of its lanes.
  struct Request {
    uint32_t lanes;
    const char* address[lanes_per_warp];
  };
  // An access as it stands in the kernel text.
  struct SiteKey {
    int line;
    Access kind;
    unsigned bytes;
    bool operator<(const SiteKey& other) const {
      return std::tie(line, kind, bytes) < std::tie(other.line, other.kind, other.bytes);
    }
  };
  struct Site {
    uint64_t requests = 0, cost = 0, ideal = 0;
    std::vector<uint32_t> executed;         // times, by thread of the block
    std::vector<std::deque<Request>> open;  // by warp: requests that some lanes have yet to join
    std::vector<uint32_t> closed;           // by warp: requests before the first open one
    Site(size_t threads, size_t warps) : executed(threads), open(warps), closed(warps) {}
  };

  unsigned self() const { return machine_.view.thread->number; }
  uint32_t& warp_epoch() { return warp_epochs_[self() / lanes_per_warp]; }
  bool warp_has_met_since(const Touch& touch);
  Shadow& shadow(size_t offset) { return split_[offset / 4] ? bytes_[offset / 4][offset % 4] : words_[offset / 4]; }
  template <class Visit> void each_piece(size_t first, size_t bytes, Visit visit);
  void split(size_t word);
  uint16_t mbarrier_number(const char* address);
  bool write_is_ordered(const Shadow& piece);
  bool reads_are_ordered(Shadow& piece);
  Touch now(int line) { return {epoch_, warp_epoch(), static_cast<uint16_t>(self()), static_cast<uint16_t>(line)}; }

  void access_shared(const char* address, unsigned bytes, Access kind, int line);
  void stay_in_shared_tile(ptrdiff_t offset, unsigned bytes, int line);
  void read(size_t offset, int line);
  void note_reader(Shadow& piece, int line);
  Shadow& write(size_t offset, int line, const char* what);
  [[noreturn]] void fail_in_flight(const char* what, size_t offset, int line);
  [[noreturn]] void fail_race(const char* what, size_t offset, int line, const char* other_what, const Touch& other);
  void access_global(const char* address, unsigned bytes, Access kind, int line, const void* value);
  void store_global(size_t buffer, uint64_t element, const char* address, const char* value, unsigned bytes, int line);
  void count_box(const TensorMap& map, const int* at, int line);
  void join_request(const char* address, const SiteKey& key);
  static void close(const SiteKey& key, Site& site, const Request& request);

  Machine& machine_;
  const LaunchRequest& request_;
  uint32_t epoch_ = 1, block_began_ = 1;
  uint64_t block_ = 0;
  std::vector<uint32_t> warp_epochs_;
  // Shared memory by word, until an access takes a part of a word: then by byte.
  std::vector<Shadow> words_;
  std::vector<std::array<Shadow, 4>> bytes_;  // empty before the first such access
  std::vector<uint8_t> split_;
  std::vector<const char*> mbarriers_;    // of the block
  std::vector<std::vector<uint32_t>> phases_;  // by thread, by mbarrier: the phases that it knows to be over
  // By buffer, by element: block and thread, packed and counted from 1. Pages of zeros until a store touches them.
  struct Free {
    void operator()(uint64_t* pages) const { free(pages); }
  };
  std::vector<std::unique_ptr<uint64_t[], Free>> global_writer_;
  std::map<SiteKey, Site> sites_;
};

}  // namespace dplc
