// Runs a grid: shares its blocks out to OS threads, each with a machine of its own.
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "checker.cuh"

namespace dplc {

namespace {

constexpr size_t region_bytes = shared_region + shared_guard;
constexpr size_t max_machines = 1024;
constexpr uint64_t no_failure = ~uint64_t{0};

std::mutex machines_mutex;
std::vector<std::unique_ptr<Machine>> idle_machines;
size_t machines_made = 0;

// Machines are kept: their stacks stay mapped and warm.
std::unique_ptr<Machine> take_machine() {
  std::lock_guard<std::mutex> lock(machines_mutex);
  if (!idle_machines.empty()) {
    std::unique_ptr<Machine> machine = std::move(idle_machines.back());
    idle_machines.pop_back();
    return machine;
  }
  if (machines_made == max_machines || shared_window() == MAP_FAILED) return nullptr;
  auto machine = std::make_unique<Machine>(shared_window() + region_bytes * machines_made);
  if (!machine->has_memory) return nullptr;
  ++machines_made;
  return machine;
}

void give_back(std::unique_ptr<Machine> machine) {
  std::lock_guard<std::mutex> lock(machines_mutex);
  idle_machines.push_back(std::move(machine));
}

// A fault on an overflown stack can only be handled on another one.
class SignalStack {
 public:
  explicit SignalStack(char* base) {
    stack_t stack{};
    stack.ss_sp = base;
    stack.ss_size = 64 << 10;
    sigaltstack(&stack, &previous_);
  }
  ~SignalStack() { sigaltstack(&previous_, nullptr); }
  SignalStack(const SignalStack&) = delete;

 private:
  stack_t previous_;
};

// One launch. Worker w runs the blocks at positions w, w + workers, ... of the list of blocks to run. When one fails,
// the others go on up to its position, so that the failure reported is always the first one in block order.
class Grid {
 public:
  explicit Grid(const LaunchRequest& request) : request_(request) {
    const uint64_t all = uint64_t{request.grid[0]} * request.grid[1] * request.grid[2];
    positions_ = request.blocks ? request.block_count : all;
  }

  // What dplc_launch gives.
  int run(std::string& message) {
    const unsigned workers =
        static_cast<unsigned>(std::max<uint64_t>(1, std::min<uint64_t>(request_.workers, positions_)));
    std::vector<std::thread> helpers;
    for (unsigned worker = 1; worker < workers; ++worker) try {
        helpers.emplace_back([=] { work(worker, workers); });
      } catch (const std::system_error&) {
        work(worker, workers);  // there is no memory for another thread
      }
    work(0, workers);
    for (std::thread& helper : helpers) helper.join();
    message = message_;
    return failed_at_ == no_failure ? 0 : by_data_ ? 2 : 1;
  }

 private:
  void work(unsigned worker, unsigned workers) {
    std::unique_ptr<Machine> machine = take_machine();
    if (machine == nullptr)
      return report(worker, machines_made == max_machines ? "too many kernels run at once" : out_of_memory);
    View* outer = dplc_view;
    dplc_view = &machine->view;
    {
      SignalStack signal_stack(machine->signal_stack);
      machine->begin_launch(request_);
      std::unique_ptr<Checker> checker;
      if (request_.checked) checker = std::make_unique<Checker>(*machine, request_);
      machine->checker = checker.get();
      for (uint64_t position = worker; position < positions_ && position < failed_at_; position += workers)
        if (!machine->run_block(request_.blocks ? request_.blocks[position] : position))
          report(position, machine->failure, machine->by_data);
      if (checker) checker->write_sites();
      machine->checker = nullptr;
    }
    dplc_view = outer;
    give_back(std::move(machine));
  }

  void report(uint64_t position, const char* message, bool by_data = false) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (position >= failed_at_) return;
    failed_at_ = position;
    message_ = message;
    by_data_ = by_data;
  }

  const LaunchRequest& request_;
  uint64_t positions_;
  std::mutex mutex_;
  std::atomic<uint64_t> failed_at_{no_failure};
  std::string message_;
  bool by_data_ = false;
};

}  // namespace

char* shared_window() {
  static char* const window = static_cast<char*>(
      mmap(nullptr, region_bytes * max_machines, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  return window;
}

}  // namespace dplc

extern "C" {

char* dplc_shared_window(void) { return dplc::shared_window(); }

// 0: every block ran. 1: the message says which block failed, and why. 2: so it does, and it is the data's fault.
int dplc_launch(const dplc::LaunchRequest* request, char* message, uint64_t message_bytes) {
  const unsigned threads = request->cluster == 0 ? 0 : request->threads / request->cluster;
  if (threads == 0 || threads > dplc::max_threads || request->cluster > dplc::max_cluster ||
      request->shared_bytes > dplc::shared_capacity || request->shared_span > dplc::shared_region) {
    snprintf(message, message_bytes,
             "%u blocks of %u threads with %u bytes of shared memory are beyond the emulator (%u, %u threads, %zu bytes)",
             request->cluster, threads, request->shared_bytes, dplc::max_cluster, dplc::max_threads,
             dplc::shared_capacity);
    return 1;
  }
  dplc::FaultGuard guard;
  std::string text;
  const int how = dplc::Grid(*request).run(text);
  if (how != 0) snprintf(message, message_bytes, "%s", text.c_str());
  return how;
}
}
