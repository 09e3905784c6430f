// Products of matrices in shared memory: what wgmma means.
#include "products.cuh"

#include <string.h>

#include "checker.cuh"

namespace dplc {

namespace {

// step: the bytes of a line that a product reads, eight words.
constexpr unsigned rows = 64, line_bytes = 128, repeat = 1024, step = 32, words = step / 4;
constexpr uint32_t sums_poison = 0x7fc0dead;

// The 16-byte chunk of a row of 128 bytes is flipped by the number of the row.
size_t swizzled(size_t offset) { return offset ^ ((offset >> 7 & 7) << 4); }

// Calls visit(byte of the machine's shared memory) for each word that this lane looks at: a warp all of b, and of a its rows.
template <class Visit> void each_word(const Machine& machine, const AsynchronousMatrix& matrix, unsigned item, unsigned first,
                                      unsigned lines, unsigned lane, Visit visit) {
  const ptrdiff_t start = shared_window() + matrix.start - machine.view.shared;
  for (unsigned word = lane; word < lines * words; word += lanes_per_warp) {
    const unsigned line = matrix.across ? first + word % (lines / 2) * 2 : first + word / words;
    const unsigned place = matrix.across ? word / (lines / 2) : word % words * (4 / item);
    visit(swizzled(static_cast<size_t>(start) + matrix.offset(line, place, item)));
  }
}

// Visits what a thread looks at of both matrices of a product.
template <class Visit> void each_word(const Machine& machine, const AsynchronousMma& product, Visit visit) {
  const unsigned thread = machine.view.thread->index.x, lane = thread % lanes_per_warp;
  const unsigned warp = thread % lanes_per_group / lanes_per_warp;
  if (product.held.place == nullptr) each_word(machine, product.a, product.item, warp * rows / 4, rows / 4, lane, visit);
  each_word(machine, product.b, product.item, 0, product.columns, lane, visit);
}

}  // namespace

void ProductQueue::push(Machine& machine, AsynchronousMma product) {
  if (!fenced_) machine.fail("line %d: multiplies before a wgmma_fence of its group of products", product.line);
  machine.group_meets(product, issued_++);
  const auto check = [&](const AsynchronousMatrix& matrix, unsigned lines) {
    machine.check_matrix(matrix, matrix.offset(lines - 1, step / product.item - 1, product.item) + product.item, product.line);
  };
  if (product.held.place == nullptr) check(product.a, rows);
  check(product.b, product.columns);
  if (machine.checker)
    each_word(machine, product, [&](size_t at) { machine.checker->asynchronous_read(at, product.line); });
  const unsigned count = product.columns / 2;
  if (held_.count(product.sums) == 0) held_[product.sums].assign(product.sums, product.sums + count);
  for (unsigned i = 0; i < count; ++i) memcpy(product.sums + i, &sums_poison, 4);
  product.group = committed_;
  pending_.push_back(product);
}

void ProductQueue::commit() {
  ++committed_;
  fenced_ = false;
}

void ProductQueue::finish_all_but(Machine& machine, unsigned groups_left, int line) {
  size_t done = 0;
  while (done < pending_.size() && pending_[done].group + groups_left < committed_) finish(machine, pending_[done++]);
  std::vector<AsynchronousMma> finished(pending_.begin(), pending_.begin() + static_cast<ptrdiff_t>(done));
  pending_.erase(pending_.begin(), pending_.begin() + static_cast<ptrdiff_t>(done));
  for (const AsynchronousMma& product : finished) {
    const auto found = held_.find(product.sums);
    bool more = found == held_.end();  // another product of the group has given them back
    for (const AsynchronousMma& other : pending_) more = more || other.sums == product.sums;
    if (more) continue;
    for (size_t i = 0; i < found->second.size(); ++i)
      if (memcmp(product.sums + i, &sums_poison, 4) != 0)
        machine.fail("line %d: waits for the product of line %d, whose sums were changed before it was done", line,
                     product.line);
    memcpy(product.sums, found->second.data(), found->second.size() * 4);
    held_.erase(found);
  }
}

void ProductQueue::finish(Machine& machine, const AsynchronousMma& product) {
  if (machine.checker) each_word(machine, product, [&](size_t at) { machine.checker->asynchronous_done(at, product.line); });
  const unsigned thread = machine.view.thread->index.x % lanes_per_group;
  const unsigned g = thread / 4 % 8, t = thread % 4, p = thread / lanes_per_warp;
  const ptrdiff_t a = shared_window() + product.a.start - machine.view.shared;
  const ptrdiff_t b = shared_window() + product.b.start - machine.view.shared;
  std::vector<float>& sums = held_[product.sums];
  const unsigned depth = step / product.item;
  float left[2][step];
  const HeldRows& held = product.held;
  if (held.place != nullptr && memcmp(held.place, held.own, sizeof held.own) != 0)
    machine.fail("line %d: the left operand of this product was changed in its registers before it was done", product.line);
  for (unsigned h = 0; h < 2; ++h)
    for (unsigned k = 0; k < depth; ++k) {
      const size_t at = static_cast<size_t>(a) + product.a.offset(p * 16 + h * 8 + g, k, product.item);
      const char* words = reinterpret_cast<const char*>(held.rows[h]) + k * product.item;
      left[h][k] = product.element(held.place != nullptr ? words : machine.view.shared + swizzled(at));
    }
  for (unsigned q = 0; q < product.columns / 8; ++q)
    for (unsigned v = 0; v < 2; ++v)
      for (unsigned k = 0; k < depth; ++k) {
        const size_t at = swizzled(static_cast<size_t>(b) + product.b.offset(q * 8 + t * 2 + v, k, product.item));
        const float right = product.element(machine.view.shared + at);
        for (unsigned h = 0; h < 2; ++h) sums[q * 4 + h * 2 + v] += left[h][k] * right;
      }
}

void ProductQueue::clear() {
  pending_.clear();
  held_.clear();
  committed_ = issued_ = 0;
  fenced_ = false;
}

// ---- the machine --------------------------------------------------------------------------------------------------

// The threads of a group multiply the same matrices, in the same order: `number` counts a thread's products.
void Machine::group_meets(const AsynchronousMma& product, uint32_t number) {
  const unsigned thread = view.thread->number, within = view.thread->index.x / lanes_per_group;
  if ((within + 1) * lanes_per_group > view.block_shape.x)
    fail("line %d: multiplies in a block of %u threads, where this one is of no whole group of %u", product.line,
         view.block_shape.x, lanes_per_group);
  groups_.resize(request_->threads / lanes_per_group);
  std::vector<GroupProduct>& known = groups_[group_of(*view.thread)];
  if (number == known.size()) return known.push_back({product, thread});
  const GroupProduct& first = known[number];
  if (!(first.product.a == product.a) || !(first.product.b == product.b) || first.product.line != product.line)
    fail("line %d: thread %u multiplies other matrices than thread %u of its group (line %d)", product.line, thread,
         first.thread, first.product.line);
}

void Machine::check_matrix(const AsynchronousMatrix& matrix, uint32_t bytes, int line) {
  const ptrdiff_t start = shared_window() + matrix.start - view.shared;
  if (start < 0 || static_cast<size_t>(start) + bytes > request_->shared_span)
    fail("line %d: a matrix out of bounds, at byte %td of shared memory, which has %u bytes", line, byte_of(start),
         request_->shared_bytes);
  if (start % (matrix.across ? repeat : 16) != 0 || start % repeat > line_bytes - step)
    fail("line %d: a matrix at byte %td of shared memory does not start where its swizzle does, at a multiple of %u", line,
         byte_of(start), repeat);
  const SharedTileInfo* tile = shared_tile_at(start);
  if (tile != nullptr && (start < tile->begin || start + bytes > tile->begin + tile->bytes))
    fail("line %d: a matrix out of bounds, at byte %td of shared tile `%s`, which has %u bytes", line, start - tile->begin,
         tile->name, tile->bytes);
}

void Machine::wait_products(unsigned groups_left, int line) {
  current()->products.finish_all_but(*this, groups_left, line);
}

// The whole groups of a block are counted, block by block of a cluster.
unsigned Machine::group_of(const ThreadView& thread) const {
  return thread.rank * (view.block_shape.x / lanes_per_group) + thread.index.x / lanes_per_group;
}

// A thread ends: its products must be done, and be those of its group.
void Machine::finish_products(Thread* thread) {
  ProductQueue& own = thread->products;
  if (!own.empty()) fail("the block ends with the product of line %d in flight", own.line());
  const unsigned group = group_of(thread->view);
  const bool whole = (thread->view.index.x / lanes_per_group + 1) * lanes_per_group <= view.block_shape.x;
  if (whole && group < groups_.size() && groups_[group].size() != own.issued())
    fail("thread %u ends after %u products, its group after %zu", thread->view.index.x, own.issued(),
         groups_[group].size());
  own.clear();
}

}  // namespace dplc

extern "C" {

void dplc_queue_product(float* sums, unsigned columns, unsigned item, float (*element)(const char*), const uint32_t* held,
                        uint64_t a, uint64_t b, int line) {
  const auto matrix = [](uint64_t bits) {
    const auto field = [&](unsigned low) { return static_cast<uint32_t>(bits >> low & 0x3fff) << 4; };
    return dplc::AsynchronousMatrix{static_cast<uint32_t>(bits), field(32), field(46), (bits >> 60 & 1) != 0};
  };
  auto& machine = *reinterpret_cast<dplc::Machine*>(dplc_view);
  dplc::HeldRows rows{held, {}, {}};
  const dplc::ThreadView* self = dplc_view->thread;
  auto& words = self->warp->fragment[self->warp->exchanges & 1];
  if (held != nullptr) memcpy(words[self->lane], held, sizeof rows.own), memcpy(rows.own, held, sizeof rows.own);
  dplc_warp_barrier(false, line);
  const unsigned first = self->lane & ~3u;  // of the lanes that have a row together
  for (unsigned lane = 0; held != nullptr && lane < 4; ++lane)
    for (unsigned n = 0; n < 4; ++n) rows.rows[n % 2][n / 2 * 4 + lane] = words[first + lane][n];
  machine.products().push(machine, {sums, columns, item, element, matrix(a), matrix(b), rows, 0, line});
}
void dplc_fence_products(void) { reinterpret_cast<dplc::Machine*>(dplc_view)->products().fence(); }
void dplc_commit_products(void) { reinterpret_cast<dplc::Machine*>(dplc_view)->products().commit(); }
void dplc_wait_products(unsigned groups_left, int line) {
  reinterpret_cast<dplc::Machine*>(dplc_view)->wait_products(groups_left, line);
}
}
