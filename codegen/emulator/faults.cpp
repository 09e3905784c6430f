// What becomes of a kernel that touches memory it must not: an explanation, and a process that lives on.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <mutex>

#include "runtime.cuh"

namespace dplc {

namespace {

constexpr int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
struct sigaction previous[sizeof signals / sizeof *signals];
std::mutex guards_mutex;
int guards = 0;

void on_fault(int signal, siginfo_t* info, void*) {
  Machine* machine = reinterpret_cast<Machine*>(dplc_view);
  if (machine != nullptr && machine->running) machine->fail_at_address(signal, static_cast<const char*>(info->si_addr));
  // Not ours: put the previous handler back and let the instruction fault again.
  for (size_t i = 0; i < sizeof signals / sizeof *signals; ++i)
    if (signals[i] == signal) sigaction(signal, &previous[i], nullptr);
}

}  // namespace

FaultGuard::FaultGuard() {
  std::lock_guard<std::mutex> lock(guards_mutex);
  if (guards++ > 0) return;
  struct sigaction action{};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < sizeof signals / sizeof *signals; ++i) sigaction(signals[i], &action, &previous[i]);
}

FaultGuard::~FaultGuard() {
  std::lock_guard<std::mutex> lock(guards_mutex);
  if (--guards > 0) return;
  for (size_t i = 0; i < sizeof signals / sizeof *signals; ++i) sigaction(signals[i], &previous[i], nullptr);
}

// ---- explanations -------------------------------------------------------------------------------------------------

const SharedTileInfo* Machine::shared_tile_at(ptrdiff_t offset) const {
  const SharedTileInfo* nearest = nullptr;
  ptrdiff_t least = PTRDIFF_MAX;
  for (uint32_t i = 0; i < request_->shared_tile_count; ++i) {
    const SharedTileInfo& tile = request_->shared_tiles[i];
    const ptrdiff_t before = tile.begin - offset, behind = offset - (ptrdiff_t{tile.begin} + tile.bytes - 1);
    const ptrdiff_t distance = before > 0 ? before : behind > 0 ? behind : 0;
    if (distance < least) nearest = &tile, least = distance;
  }
  return nearest;
}

ptrdiff_t Machine::byte_of(ptrdiff_t offset) const {
  const SharedTileInfo* tile = shared_tile_at(offset);
  return tile == nullptr ? offset : offset - tile->begin + tile->start;
}

void Machine::describe_address(const char* address, char* text, size_t bytes) const {
  const char* shared = view.shared;
  if (address >= shared && address < shared_end_ + shared_guard) {
    snprintf(text, bytes, "byte %td of shared memory, which has %u bytes", byte_of(address), request_->shared_bytes);
    return;
  }
  const BufferInfo* nearest = nullptr;
  ptrdiff_t nearest_distance = PTRDIFF_MAX;
  for (uint64_t i = 0; i < request_->buffer_count; ++i) {
    const BufferInfo& buffer = request_->buffers[i];
    const ptrdiff_t end = static_cast<ptrdiff_t>(buffer.bytes), offset = address - buffer.base;
    const ptrdiff_t distance = offset < 0 ? -offset : offset < end ? 0 : offset - end;
    if (distance < nearest_distance) nearest = &buffer, nearest_distance = distance;
  }
  if (nearest == nullptr || nearest_distance > (ptrdiff_t{1} << 32))
    snprintf(text, bytes, "address %p, which is near none of its buffers", static_cast<const void*>(address));
  else
    snprintf(text, bytes, "byte %td of buffer `%s`, which has %llu bytes", address - nearest->base, nearest->name,
             static_cast<unsigned long long>(nearest->bytes));
}

void Machine::fail_at_address(int signal, const char* address) {
  if (signal == SIGFPE) fail("integer division by zero");
  if (signal == SIGILL) fail("illegal instruction (a trap in the kernel text?)");
  const char* stacks_end = stacks_ + max_fibers * (stack_bytes + page_bytes);
  if (address >= stacks_ && address < stacks_end)
    fail("stack overflow: a thread has %zu KB for its local arrays", stack_bytes >> 10);
  char text[256];
  describe_address(address, text, sizeof text);
  for (uint64_t i = 0; i < request_->buffer_count; ++i) {
    const BufferInfo& buffer = request_->buffers[i];
    if (address >= buffer.base && address < buffer.base + buffer.bytes) fail("write to %s and is read-only here", text);
  }
  fail("access out of bounds, at %s", text);
}

void Machine::fail_misaligned(const void* address, unsigned bytes, int line) {
  char text[256];
  describe_address(static_cast<const char*>(address), text, sizeof text);
  fail("%smisaligned %u-byte access, at %s", Line(line, "line %d: ").text, bytes, text);
}

}  // namespace dplc

// ---- buffers between guard pages ----------------------------------------------------------------------------------

namespace {

// Far more than a page: an index that is wrong is often wrong by a row or a tile. It costs address space only.
constexpr size_t guard_bytes = 16 << 20;

// The elements end as close to the guard page behind as 16-byte alignment permits.
struct Extent {
  size_t pages, offset;
  explicit Extent(uint64_t bytes) {
    const size_t used = (bytes + 15) / 16 * 16;
    pages = (used + dplc::page_bytes - 1) / dplc::page_bytes * dplc::page_bytes;
    offset = pages - used;
  }
};

}  // namespace

extern "C" {

// A buffer that faults when overrun, filled with poison. Null when there is no memory for it.
char* dplc_buffer_create(uint64_t bytes) {
  const Extent extent(bytes);
  void* mapped =
      mmap(nullptr, extent.pages + 2 * guard_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  char* first = static_cast<char*>(mapped) + guard_bytes;
  if (mprotect(first, extent.pages, PROT_READ | PROT_WRITE) != 0) {
    munmap(mapped, extent.pages + 2 * guard_bytes);
    return nullptr;
  }
  memset(first, dplc::poison, extent.pages);
  return first + extent.offset;
}

void dplc_buffer_protect(char* buffer, uint64_t bytes, int writable) {
  const Extent extent(bytes);
  mprotect(buffer - extent.offset, extent.pages, writable ? PROT_READ | PROT_WRITE : PROT_READ);
}

// How many of the bytes around the elements, up to the guard pages, no longer hold poison: a kernel wrote out of
// bounds.
uint64_t dplc_buffer_spoiled(const char* buffer, uint64_t bytes) {
  const Extent extent(bytes);
  const char* first = buffer - extent.offset;
  uint64_t spoiled = 0;
  for (const char* at = first; at < buffer; ++at) spoiled += static_cast<unsigned char>(*at) != dplc::poison;
  for (const char* at = buffer + bytes; at < first + extent.pages; ++at)
    spoiled += static_cast<unsigned char>(*at) != dplc::poison;
  return spoiled;
}

void dplc_buffer_free(char* buffer, uint64_t bytes) {
  const Extent extent(bytes);
  munmap(buffer - extent.offset - guard_bytes, extent.pages + 2 * guard_bytes);
}
}
