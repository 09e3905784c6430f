// The mock driver's streams, events and graphs, and what tests ask of it. A graph is a list of launches.
//
// As with a driver, an event recorded on a captured stream makes whoever waits for it part of the capture; at its end
// every stream that joined must have been waited for in turn, and a launch that fails spoils the capture.
#include <string.h>
#include <time.h>

#include <set>

#include "mock_driver.hpp"

namespace mock {
namespace {

struct Graph {
  std::vector<Launch> launches;
};

struct Capture {
  Graph graph;
  const void* origin;
  CUstreamCaptureMode mode;
  bool spoiled;
};

struct Stream {
  Capture* capture;  // null: none
  unsigned enqueued;
  bool open;  // it joined a capture, and nobody has waited for its latest work
  const void* context;
};

struct Event {
  double milliseconds;
  Capture* capture;
  Stream* source;
  unsigned after;  // what was enqueued on the source
};

Stream default_stream;
std::set<Stream*> streams;
std::map<std::string, long> counts;
struct Refusal {
  int error;
  long spared, times;  // calls that still succeed before, and calls that do not
};
std::map<std::string, Refusal> refusals;

Stream* of(CUstream handle) { return handle == nullptr ? &default_stream : reinterpret_cast<Stream*>(handle); }

double now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

}  // namespace

bool strictly_capturing() {
  for (const Stream* stream : streams)
    if (stream->capture != nullptr && stream->capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED) return true;
  return false;
}

bool usable(CUstream stream) { return stream == nullptr || of(stream)->context == current_context(); }

CUresult called(const char* name) {
  ++counts[name];
  const auto refused = refusals.find(name);
  if (refused == refusals.end() || refused->second.spared-- > 0 || refused->second.times-- <= 0) return CUDA_SUCCESS;
  if (strcmp(name, "cuLaunchKernel") == 0)
    for (Stream* stream : streams)
      if (stream->capture != nullptr) stream->capture->spoiled = true;
  return static_cast<CUresult>(refused->second.error);
}

CUresult enqueue(CUstream handle, Launch launch) {
  Stream* stream = of(handle);
  if (stream->capture == nullptr) return run(launch);
  ++stream->enqueued;
  stream->open = stream != stream->capture->origin;
  stream->capture->graph.launches.push_back(std::move(launch));
  return CUDA_SUCCESS;
}

}  // namespace mock

using namespace mock;

extern "C" {

// ---- for tests ----------------------------------------------------------------------------------------------------

long mock_count(const char* name) { return counts[name]; }

// So many calls return an error, after some that succeed.
void mock_refuse(const char* name, int error, long after, long times) { refusals[name] = {error, after, times}; }

// ---- streams and events -------------------------------------------------------------------------------------------

CUresult cuStreamCreate(CUstream* stream, unsigned) {
  MOCK_CALL;
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  auto* made = new Stream{};
  made->context = current_context();
  streams.insert(made);
  *stream = reinterpret_cast<CUstream>(made);
  return CUDA_SUCCESS;
}
CUresult cuStreamDestroy(CUstream stream) {
  MOCK_CALL;
  streams.erase(of(stream));
  delete of(stream);
  return CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream stream) {
  return of(stream)->capture != nullptr ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}
CUresult cuStreamWaitEvent(CUstream handle, CUevent waited, unsigned) {
  MOCK_CALL;
  Stream* stream = of(handle);
  const auto* event = reinterpret_cast<Event*>(waited);
  if (event->capture == nullptr)
    return stream->capture == nullptr ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  if (stream == &default_stream) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  if (stream->capture != nullptr && stream->capture != event->capture) return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  if (event->source->enqueued == event->after) event->source->open = false;
  stream->open = stream->open || (stream->capture == nullptr && stream != event->capture->origin);
  stream->capture = event->capture;
  return CUDA_SUCCESS;
}
CUresult cuEventCreate(CUevent* event, unsigned) {
  MOCK_CALL;
  *event = reinterpret_cast<CUevent>(new Event{});
  return CUDA_SUCCESS;
}
CUresult cuEventDestroy(CUevent event) {
  MOCK_CALL;
  delete reinterpret_cast<Event*>(event);
  return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream handle) {
  MOCK_CALL;
  Stream* stream = of(handle);
  const double time = made_times() != nullptr ? made_milliseconds : now();
  *reinterpret_cast<Event*>(event) = {time, stream->capture, stream, stream->enqueued};
  return CUDA_SUCCESS;
}
CUresult cuEventSynchronize(CUevent) { return CUDA_SUCCESS; }
CUresult cuEventElapsedTime(float* milliseconds, CUevent from, CUevent to) {
  *milliseconds =
      static_cast<float>(reinterpret_cast<Event*>(to)->milliseconds - reinterpret_cast<Event*>(from)->milliseconds);
  return CUDA_SUCCESS;
}

// ---- capture and graphs -------------------------------------------------------------------------------------------

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  MOCK_CALL;
  *status = of(stream)->capture != nullptr ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
CUresult cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
  MOCK_CALL;
  Stream* stream = of(handle);
  if (stream == &default_stream) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  stream->capture = new Capture{{}, stream, mode, false};
  return CUDA_SUCCESS;
}
CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  Capture* capture = of(handle)->capture;
  *graph = nullptr;
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != of(handle)) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  CUresult result = capture->spoiled ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
  for (Stream* stream : streams)
    if (stream->capture == capture) {
      if (stream->open) result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
      stream->capture = nullptr, stream->open = false;
    }
  const CUresult told = called(__func__);  // refused or not, the capture is over
  if (told != CUDA_SUCCESS) result = told;
  if (result == CUDA_SUCCESS) {
    *graph = reinterpret_cast<CUgraph>(new Graph(std::move(capture->graph)));
    ++counts["graphs"];
  }
  delete capture;
  return result;
}
CUresult cuGraphDestroy(CUgraph graph) {
  MOCK_CALL;
  delete reinterpret_cast<Graph*>(graph);
  --counts["graphs"];
  return CUDA_SUCCESS;
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph, unsigned long long) {
  MOCK_CALL;
  *executable = reinterpret_cast<CUgraphExec>(new Graph(*reinterpret_cast<Graph*>(graph)));
  ++counts["executables"];
  return CUDA_SUCCESS;
}
CUresult cuGraphExecDestroy(CUgraphExec executable) {
  MOCK_CALL;
  delete reinterpret_cast<Graph*>(executable);
  --counts["executables"];
  return CUDA_SUCCESS;
}
CUresult cuGraphExecUpdate(CUgraphExec executable, CUgraph graph, CUgraphExecUpdateResultInfo* info) {
  MOCK_CALL;
  auto &old = reinterpret_cast<Graph*>(executable)->launches, &made = reinterpret_cast<Graph*>(graph)->launches;
  info->result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  if (old.size() != made.size()) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  info->result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
  old = made;
  return CUDA_SUCCESS;
}
CUresult cuGraphLaunch(CUgraphExec executable, CUstream handle) {
  MOCK_CALL;
  if (of(handle)->capture != nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  for (Launch& launch : reinterpret_cast<Graph*>(executable)->launches)
    if (const CUresult failed = run(launch)) return failed;
  return CUDA_SUCCESS;
}

}  // extern "C"
