// What the two files of the mock driver share.
#pragma once

#include <cuda.h>

#include <map>
#include <mutex>
#include <string>
#include <vector>

// At the start of a call: one thread at a time, counted, and refused where a test has said so.
#define MOCK_CALL                                                     \
  const std::lock_guard<std::recursive_mutex> alone(mock::one_thread); \
  if (const CUresult told = mock::called(__func__)) return told

namespace mock {

constexpr int devices = 2;
extern std::recursive_mutex one_thread;

struct Function {
  std::string name;
  void (*entry)(void* const*);
  const char* maps;  // by parameter: '1' for a tensor map, '2' for a size, '0' for a pointer
  unsigned max_dynamic_smem;
  const void* context;  // where it was loaded
  unsigned cluster;
};

struct alignas(64) Chunk {
  char bytes[64];
};

struct Launch {
  Function function;
  unsigned grid[3], threads, shared_bytes;
  std::vector<Chunk> parameters;  // as they were when it was enqueued
};

extern double made_milliseconds;  // of everything that ran

// {kernel: milliseconds}, where times are made; else null.
const std::map<std::string, double>* made_times();

// Run a launch now.
CUresult run(Launch& launch);

// Run a launch, or make it part of the graph that its stream is being captured into.
CUresult enqueue(CUstream stream, Launch launch);

// Whether a capture is under way during which nothing may be allocated or loaded.
bool strictly_capturing();

CUresult called(const char* name);

// The context that this thread is in; null for none.
const void* current_context();

// Whether a stream belongs to the current context; the default one belongs to each.
bool usable(CUstream stream);

}  // namespace mock
