// Products of matrices in shared memory, which groups of four warps multiply later (wgmma).
//
// A product may be made any time between its issue and the wait that covers it. Here it is made as late as it may: in
// that wait, by each thread for its own sums. Until then the sums are poison, and what writes to the matrices is wrong.
#pragma once
#include <stdint.h>

#include <map>
#include <vector>

namespace dplc {

class Checker;
class Machine;

constexpr unsigned lanes_per_group = 128;

// What a descriptor says. A line (a row of a, a column of b) runs along a row of 128 bytes, or across such rows.
struct AsynchronousMatrix {
  uint32_t start;  // byte of the shared window, before the swizzle
  uint32_t stride, leading;
  bool across;  // of elements of two bytes

  uint32_t offset(unsigned line, unsigned place, unsigned item) const {
    return across ? line / 64 * leading + line % 64 * item + place / 8 * stride + place % 8 * 128
                  : line / 8 * stride + line % 8 * 128 + place * item;
  }
  bool operator==(const AsynchronousMatrix& other) const {
    return start == other.start && stride == other.stride && leading == other.leading && across == other.across;
  }
};

// A left operand in registers: where a thread has its words, what they were, and the words of its two rows.
struct HeldRows {
  const uint32_t* place;  // null: the operand is a matrix
  uint32_t own[4];
  uint32_t rows[2][8];
};

struct AsynchronousMma {
  float* sums;
  unsigned columns;
  unsigned item;                  // bytes of an element
  float (*element)(const char*);  // read there
  AsynchronousMatrix a, b;
  HeldRows held;  // in place of a
  uint32_t group;
  int line;
};

// The products of one thread that are not done, in the order of their issue.
class ProductQueue {
 public:
  void fence() { fenced_ = true; }
  void push(Machine& machine, AsynchronousMma product);
  void commit();
  void finish_all_but(Machine& machine, unsigned groups_left, int line);
  bool empty() const { return pending_.empty(); }
  int line() const { return pending_.front().line; }
  uint32_t issued() const { return issued_; }
  void clear();

 private:
  void finish(Machine& machine, const AsynchronousMma& product);

  std::vector<AsynchronousMma> pending_;
  std::map<float*, std::vector<float>> held_;  // what the sums are, while their registers hold poison
  uint32_t committed_ = 0, issued_ = 0;
  bool fenced_ = false;
};

}  // namespace dplc
