#include "checker.cuh"

#include <string.h>

#include <algorithm>
#include <utility>

namespace dplc {

Checker::Checker(Machine& machine, const LaunchRequest& request)
    : machine_(machine),
      request_(request),
      warp_epochs_((request.threads + lanes_per_warp - 1) / lanes_per_warp),
      words_((request.shared_span + 3) / 4),
      split_(words_.size()),
      phases_(request.threads),
      global_writer_(request.buffer_count) {}

void Checker::begin_block(uint64_t linear_index) {
  block_ = linear_index;
  mbarriers_.clear();
  for (std::vector<uint32_t>& phases : phases_) phases.clear();
  block_began_ = ++epoch_;  // whatever an earlier block left behind is older than this, so nothing needs clearing
}

void Checker::end_block() {
  for (auto& [key, site] : sites_) {
    for (std::deque<Request>& requests : site.open) {
      for (const Request& request : requests) close(key, site, request);
      requests.clear();
    }
    std::fill(site.executed.begin(), site.executed.end(), 0);
    std::fill(site.closed.begin(), site.closed.end(), 0);
  }
}

void Checker::access(const char* address, unsigned bytes, Access kind, int line, const void* value) {
  if (reinterpret_cast<uintptr_t>(address) % bytes != 0) machine_.fail_misaligned(address, bytes, line);
  if (kind == Access::global_load || kind == Access::global_store) access_global(address, bytes, kind, line, value);
  else access_shared(address, bytes, kind, line);
  if (request_.sites != nullptr) join_request(address, {line, kind, bytes});
}

// ---- shared memory ------------------------------------------------------------------------------------------------

bool Checker::warp_has_met_since(const Touch& touch) {
  return touch.thread / lanes_per_warp == self() / lanes_per_warp && touch.warp_epoch < warp_epoch();
}

bool Checker::write_is_ordered(const Shadow& piece) {
  if (piece.write.epoch < epoch_ || warp_has_met_since(piece.write)) return true;
  return piece.mbarrier != 0 ? phases_[self()][piece.mbarrier - 1] > piece.phase : piece.write.thread == self();
}

bool Checker::reads_are_ordered(Shadow& piece) {
  if (piece.read.epoch < epoch_) return true;
  if (piece.readers == Readers::one && piece.read.thread == self()) return true;
  return piece.readers != Readers::several_warps && warp_has_met_since(piece.read);
}

// Calls visit(offset) for every piece of a range: a word whose bytes have one history, or a byte.
template <class Visit> void Checker::each_piece(size_t first, size_t bytes, Visit visit) {
  for (size_t at = first; at < first + bytes;) {
    const bool whole = at % 4 == 0 && at + 4 <= first + bytes;
    if (!whole) split(at / 4);
    visit(at);
    at += split_[at / 4] ? 1 : 4;
  }
}

void Checker::split(size_t word) {
  if (split_[word]) return;
  bytes_.resize(words_.size());
  bytes_[word].fill(words_[word]);
  split_[word] = true;
}

void Checker::access_shared(const char* address, unsigned bytes, Access kind, int line) {
  const ptrdiff_t offset = address - machine_.view.shared;
  if (offset < 0 || static_cast<size_t>(offset) + bytes > request_.shared_span)
    machine_.fail("line %d: access out of bounds, at byte %td of shared memory, which has %u bytes", line,
                  machine_.byte_of(offset), request_.shared_bytes);
  stay_in_shared_tile(offset, bytes, line);
  each_piece(static_cast<size_t>(offset), bytes, [&](size_t at) {
    if (kind == Access::shared_load) return read(at, line);
    Shadow& piece = write(at, line, kind == Access::async_store ? "copies to" : "writes");
    piece.in_flight = kind == Access::async_store;
    piece.mbarrier = 0;
  });
}

// Between two shared tiles there is nothing; an access that ends there began in one of them.
void Checker::stay_in_shared_tile(ptrdiff_t offset, unsigned bytes, int line) {
  const SharedTileInfo* tile = machine_.shared_tile_at(offset);
  if (tile == nullptr) return;
  const ptrdiff_t byte = offset - tile->begin;
  if (byte < 0 || byte + bytes > tile->bytes)
    machine_.fail("line %d: access out of bounds, at byte %td of shared tile `%s`, which has %u bytes", line, byte, tile->name,
                  tile->bytes);
}

void Checker::read(size_t offset, int line) {
  Shadow& piece = shadow(offset);
  const char* what = "reads";
  if (piece.write.epoch < block_began_)
    machine_.fail("line %d: reads byte %td of shared memory, which nothing has written", line,
                  machine_.byte_of(static_cast<ptrdiff_t>(offset)));
  if (piece.in_flight) fail_in_flight(what, offset, line);
  if (!write_is_ordered(piece)) fail_race(what, offset, line, "writes", piece.write);
  note_reader(piece, line);
}

void Checker::note_reader(Shadow& piece, int line) {
  if (reads_are_ordered(piece)) {
    piece.readers = Readers::one;
    piece.read = now(line);
  } else if (piece.readers != Readers::several_warps &&
             piece.read.thread / lanes_per_warp == self() / lanes_per_warp) {
    if (piece.read.thread != self()) piece.readers = Readers::several_of_a_warp;
    piece.read.warp_epoch = warp_epoch();
  } else {
    piece.readers = Readers::several_warps;
  }
}

Checker::Shadow& Checker::write(size_t offset, int line, const char* what) {
  Shadow& piece = shadow(offset);
  if (piece.write.epoch >= block_began_ && piece.in_flight) fail_in_flight(what, offset, line);
  if (!write_is_ordered(piece)) fail_race(what, offset, line, "writes", piece.write);
  if (!reads_are_ordered(piece)) fail_race(what, offset, line, "reads", piece.read);
  if (piece.asynchronous != 0)
    machine_.fail("line %d: %s byte %td of shared memory, which a product still reads (line %u): no wgmma_wait covers it",
                  line, what, machine_.byte_of(static_cast<ptrdiff_t>(offset)), piece.asynchronous_line);
  piece.write = now(line);
  return piece;
}

void Checker::fail_in_flight(const char* what, size_t offset, int line) {
  const Touch& copy = shadow(offset).write;
  machine_.fail(
      "line %d: %s byte %td of shared memory, to which thread %u copies asynchronously (line %u) and has not waited",
      line, what, machine_.byte_of(static_cast<ptrdiff_t>(offset)), copy.thread, copy.line);
}

void Checker::fail_race(const char* what, size_t offset, int line, const char* other_what, const Touch& other) {
  machine_.fail("line %d: race: %s byte %td of shared memory, which thread %u %s (line %u), with no barrier between",
                line, what, machine_.byte_of(static_cast<ptrdiff_t>(offset)), other.thread, other_what, other.line);
}

// A box's write is nobody's: who has waited for the phase may read, others behind the next barrier.
void Checker::copy_landed(const char* to, unsigned bytes) {
  each_piece(static_cast<size_t>(to - machine_.view.shared), bytes, [&](size_t at) {
    Shadow& piece = shadow(at);
    piece.write = now(piece.write.line);
    piece.in_flight = false;
  });
}

// ---- products -----------------------------------------------------------------------------------------------------

void Checker::asynchronous_read(size_t offset, int line) {
  each_piece(offset, 4, [&](size_t at) {
    read(at, line);
    Shadow& piece = shadow(at);
    if (piece.mbarrier == 0)
      machine_.fail("line %d: multiplies byte %td of shared memory, which thread %u wrote (line %u): only what boxes bring "
                    "is there for tensor cores",
                    line, machine_.byte_of(static_cast<ptrdiff_t>(at)), piece.write.thread, piece.write.line);
    ++piece.asynchronous;
    piece.asynchronous_line = static_cast<uint16_t>(line);
  });
}

// It has been read until now, not only when the product was issued.
void Checker::asynchronous_done(size_t offset, int line) {
  each_piece(offset, 4, [&](size_t at) {
    --shadow(at).asynchronous;
    note_reader(shadow(at), line);
  });
}

// ---- boxes --------------------------------------------------------------------------------------------------------

uint16_t Checker::mbarrier_number(const char* address) {
  const auto found = std::find(mbarriers_.begin(), mbarriers_.end(), address);
  return static_cast<uint16_t>(found - mbarriers_.begin() + 1);
}

void Checker::mbarrier(const char* address, bool initialised, int line) {
  access_shared(address, 8, initialised ? Access::shared_store : Access::shared_load, line);
  if (!initialised) return;
  mbarriers_.push_back(address);
  for (std::vector<uint32_t>& phases : phases_) phases.resize(mbarriers_.size());
}

void Checker::box_issued(const char* to, unsigned bytes, const char* mbarrier, uint32_t phase, const TensorMap& map,
                         const int* at, int line, bool counted) {
  const uint16_t number = mbarrier_number(mbarrier);
  stay_in_shared_tile(to - machine_.view.shared, bytes, line);
  each_piece(static_cast<size_t>(to - machine_.view.shared), bytes, [&](size_t at) {
    Shadow& piece = write(at, line, "copies a box to");
    piece.in_flight = true;
    piece.mbarrier = number;
    piece.phase = phase;
  });
  if (counted) count_box(map, at, line);  // for the blocks of a cluster it is read once
}

void Checker::phase_seen(const char* mbarrier, uint32_t phases) {
  phases_[self()][mbarrier_number(mbarrier) - 1] = phases;
}

// The tensor must lie in a buffer; what the rows of the box cost.
void Checker::count_box(const TensorMap& map, const int* at, int line) {
  uint64_t sectors = 0, bytes = 0;
  each_row(map, at, [&](unsigned, unsigned, const char* from, unsigned length) {
    const uintptr_t first = reinterpret_cast<uintptr_t>(from), last = first + length - 1;
    sectors += last / 32 - first / 32 + 1;
    bytes += length;
    const auto holds = [&](const BufferInfo& buffer) {
      return from >= buffer.base && from + length <= buffer.base + buffer.bytes;
    };
    if (std::none_of(request_.buffers, request_.buffers + request_.buffer_count, holds))
      machine_.fail("line %d: a box of a tensor map that leaves its buffer", line);
  });
  Site& site = sites_.try_emplace({line, Access::box_copy, 16}, request_.threads, warp_epochs_.size()).first->second;
  ++site.requests;
  site.cost += sectors;
  site.ideal += (bytes + 31) / 32;
}

// ---- global memory ------------------------------------------------------------------------------------------------

void Checker::access_global(const char* address, unsigned bytes, Access kind, int line, const void* value) {
  for (uint64_t i = 0; i < request_.buffer_count; ++i) {
    const BufferInfo& buffer = request_.buffers[i];
    if (address < buffer.base || address + bytes > buffer.base + buffer.bytes) continue;
    for (unsigned at = 0; at < bytes; at += buffer.item_bytes) {
      const uint64_t element = static_cast<uint64_t>(address + at - buffer.base) / buffer.item_bytes;
      if (kind == Access::global_store)
        store_global(i, element, address + at, static_cast<const char*>(value) + at, buffer.item_bytes, line);
      else if (global_writer_[i] != nullptr && global_writer_[i][element] != 0)
        machine_.fail("line %d: reads element %llu of buffer `%s`, which this kernel writes", line,
                      static_cast<unsigned long long>(element), buffer.name);
    }
    return;
  }
  char text[256];
  machine_.describe_address(address, text, sizeof text);
  machine_.fail("line %d: access out of bounds, at %s", line, text);
}

// The same value stored twice is waste, another value is a race.
void Checker::store_global(size_t buffer, uint64_t element, const char* address, const char* value, unsigned bytes,
                           int line) {
  const uint64_t writer = 1 + block_ * max_fibers + self();
  auto& writers = global_writer_[buffer];
  if (writers == nullptr) {
    const BufferInfo& whole = request_.buffers[buffer];
    writers.reset(static_cast<uint64_t*>(calloc(whole.bytes / whole.item_bytes, sizeof(uint64_t))));
  }
  const uint64_t before = std::exchange(writers[element], writer);
  if (before != 0 && before != writer && memcmp(address, value, bytes) != 0)
    machine_.fail(
        "line %d: race: stores element %llu of buffer `%s`, where thread %u of block number %llu stored another value",
        line, static_cast<unsigned long long>(element), request_.buffers[buffer].name,
        static_cast<unsigned>((before - 1) % max_fibers), static_cast<unsigned long long>((before - 1) / max_fibers));
}

// ---- requests -----------------------------------------------------------------------------------------------------

// Lanes of a warp do not run in step here: the n-th time one executes a site joins the n-th time the others do.
void Checker::join_request(const char* address, const SiteKey& key) {
  Site& site = sites_.try_emplace(key, request_.threads, warp_epochs_.size()).first->second;
  const unsigned warp = self() / lanes_per_warp, lane = self() % lanes_per_warp;
  std::deque<Request>& open = site.open[warp];
  const size_t position = site.executed[self()]++ - site.closed[warp];
  if (open.size() <= position) open.resize(position + 1);
  open[position].lanes |= 1u << lane;
  open[position].address[lane] = address;
  const unsigned left = request_.threads - warp * lanes_per_warp;
  const uint32_t all = left >= lanes_per_warp ? ~0u : (1u << left) - 1;
  while (!open.empty() && open.front().lanes == all) {
    close(key, site, open.front());
    open.pop_front();
    ++site.closed[warp];
  }
}

namespace {

// Whether lanes that are `step` apart have one address, wherever both are there.
bool paired(const char* const* address, uint32_t lanes, unsigned step) {
  for (unsigned lane = 0; lane < lanes_per_warp; ++lane)
    if (lanes >> lane & lanes >> (lane ^ step) & 1 && address[lane] != address[lane ^ step]) return false;
  return true;
}

// Passes over the banks of shared memory that serve these lanes: the largest number of distinct words in one bank.
// Wide accesses are served in two halves or four quarters of a warp, in half as many where lanes are read in pairs.
unsigned wavefronts(const char* const* address, uint32_t lanes, unsigned bytes, unsigned& ideal) {
  unsigned together = bytes == 16 ? 8 : bytes == 8 ? 16 : 32;
  if (together < 32 && (paired(address, lanes, 1) || paired(address, lanes, 2))) together *= 2;
  unsigned total = 0;
  for (unsigned first = 0; first < lanes_per_warp; first += together) {
    std::vector<uintptr_t> words;
    for (unsigned lane = first; lane < first + together; ++lane)
      for (unsigned at = 0; lanes >> lane & 1 && at < bytes; at += 4)
        words.push_back((reinterpret_cast<uintptr_t>(address[lane]) + at) / 4);
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    unsigned in_bank[32] = {}, most = 0;
    for (uintptr_t word : words) most = std::max(most, ++in_bank[word % 32]);
    total += most;
    ideal += most > 0;
  }
  return total;
}

// Pieces of 32 bytes that these lanes touch; an aligned access never touches two.
unsigned sectors(const char* const* address, uint32_t lanes) {
  std::vector<uintptr_t> touched;
  for (unsigned lane = 0; lane < lanes_per_warp; ++lane)
    if (lanes >> lane & 1) touched.push_back(reinterpret_cast<uintptr_t>(address[lane]) / 32);
  std::sort(touched.begin(), touched.end());
  return static_cast<unsigned>(std::unique(touched.begin(), touched.end()) - touched.begin());
}

}  // namespace

void Checker::close(const SiteKey& key, Site& site, const Request& request) {
  ++site.requests;
  unsigned ideal = 0;
  if (key.kind == Access::global_load || key.kind == Access::global_store) {
    site.cost += sectors(request.address, request.lanes);
    ideal = (static_cast<unsigned>(__builtin_popcount(request.lanes)) * key.bytes + 31) / 32;
  } else {
    site.cost += wavefronts(request.address, request.lanes, key.bytes, ideal);
  }
  site.ideal += ideal;
}

void Checker::write_sites() const {
  if (request_.sites == nullptr) return;
  uint64_t count = 0;
  for (const auto& [key, site] : sites_) {
    if (count == request_.site_capacity) break;
    const auto line = static_cast<uint32_t>(key.line), kind = static_cast<uint32_t>(key.kind);
    request_.sites[count++] = {line, kind, key.bytes, 0, site.requests, site.cost, site.ideal};
  }
  *request_.site_count = count;
}

}  // namespace dplc

extern "C" void dplc_access(const void* address, unsigned bytes, dplc::Access access, int line, const void* value) {
  dplc::Machine& machine = *reinterpret_cast<dplc::Machine*>(dplc_view);
  machine.checker->access(static_cast<const char*>(address), bytes, access, line, value);
}
