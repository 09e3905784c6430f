// A libcuda.so.1 without a GPU: the real PyCUDA loads it, and what it launches runs on dplc's emulator.
//
// A "cubin" is the shared library that dplc builds for the emulator, and device memory is host memory. There are two
// devices with a context each: what belongs to one cannot be used in the other. Only what PyCUDA needs for contexts,
// modules, launches, streams and events is here; the rest of the driver stays unresolved, so that a call of it ends the process by name (PyCUDA must be loaded with RTLD_LAZY). Work is
// done when it is enqueued; what is enqueued on a stream that is being captured becomes part of a graph (mock_graphs.cpp).
//
// $DPLC_MOCK_RUNTIME is the path of the emulator's runtime library. With $DPLC_MOCK_TIMES, a file of lines
// "KERNEL MICROSECONDS", events tell made times: of the launches between them, and a microsecond for each kilobyte that
// a memset writes.
#include <cuda.h>
#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <string>
#include <vector>

#include "emulator/runtime.cuh"
#include "mock_driver.hpp"

namespace mock {

double made_milliseconds;
std::recursive_mutex one_thread;

}  // namespace mock

namespace {

using namespace mock;

constexpr unsigned default_dynamic_smem = 48 << 10;
constexpr int optin_smem = 227 << 10;

struct Module {
  void* library;
  std::map<std::string, Function> functions;
};

int contexts[devices];  // by device; a context is the address of its number here
thread_local std::vector<CUcontext> entered;
std::map<CUdeviceptr, size_t> allocations;

}  // namespace

namespace mock {

const void* current_context() { return entered.empty() ? nullptr : entered.back(); }

const std::map<std::string, double>* made_times() {
  static const std::map<std::string, double>* const times = [] {
    const char* path = getenv("DPLC_MOCK_TIMES");
    FILE* file = path ? fopen(path, "r") : nullptr;
    if (file == nullptr) return static_cast<std::map<std::string, double>*>(nullptr);
    auto* read = new std::map<std::string, double>;
    char name[256];
    for (double microseconds; fscanf(file, "%255s %lf", name, &microseconds) == 2;) (*read)[name] = microseconds * 1e-3;
    fclose(file);
    return read;
  }();
  return times;
}

}  // namespace mock

namespace {

void* runtime() {
  static void* const library = [] {
    const char* path = getenv("DPLC_MOCK_RUNTIME");
    void* loaded = path ? dlopen(path, RTLD_NOW | RTLD_GLOBAL) : nullptr;
    if (loaded == nullptr)
      fprintf(stderr, "mock CUDA driver: set DPLC_MOCK_RUNTIME to the emulator's runtime\n"), abort();
    return loaded;
  }();
  return library;
}

template <class F> F* runtime_function(const char* name) { return reinterpret_cast<F*>(dlsym(runtime(), name)); }

// An image comes as a bare pointer; a shared library says itself where it ends.
size_t image_bytes(const void* image) {
  const auto* header = static_cast<const Elf64_Ehdr*>(image);
  if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return 0;
  return header->e_shoff + size_t{header->e_shentsize} * header->e_shnum;
}

// An argument for each parameter: a pointer by its value, a tensor map by its place, a multiple of 64 bytes; a size by its
// place.
std::vector<void*> unpacked(char* buffer, const char* maps) {
  std::vector<void*> arguments;
  size_t at = 0;
  for (; *maps != 0; ++maps) {
    if (*maps == '1') {
      at = (at + 63) / 64 * 64;
      arguments.push_back(buffer + at);
      at += sizeof(CUtensorMap);
    } else if (*maps == '2') {
      arguments.push_back(buffer + at);
      at += sizeof(int);
    } else {
      arguments.push_back(*reinterpret_cast<void**>(buffer + at));
      at += sizeof(void*);
    }
  }
  return arguments;
}

// The same buffer from a pointer to each argument.
std::vector<Chunk> packed(void** arguments, const char* maps) {
  std::vector<char> bytes;
  for (; *maps != 0; ++maps, ++arguments) {
    const size_t size = *maps == '1' ? sizeof(CUtensorMap) : *maps == '2' ? sizeof(int) : sizeof(void*);
    if (*maps == '1') bytes.resize((bytes.size() + 63) / 64 * 64);
    bytes.insert(bytes.end(), static_cast<char*>(*arguments), static_cast<char*>(*arguments) + size);
  }
  std::vector<Chunk> made(bytes.size() / sizeof(Chunk) + 1);
  memcpy(made.data(), bytes.data(), bytes.size());
  return made;
}

}  // namespace

namespace mock {

CUresult run(Launch& launch) {
  dplc::LaunchRequest request{};
  request.entry = launch.function.entry;
  const std::vector<void*> arguments = unpacked(reinterpret_cast<char*>(launch.parameters.data()), launch.function.maps);
  request.arguments = arguments.data();
  memcpy(request.grid, launch.grid, sizeof launch.grid);
  const unsigned cluster = request.cluster = launch.function.cluster;
  if (request.grid[0] % cluster != 0) return CUDA_ERROR_INVALID_VALUE;
  request.grid[0] /= cluster;
  request.threads = launch.threads * cluster;
  request.shared_bytes = launch.shared_bytes;  // those of a cluster start at multiples of 1024 bytes
  request.shared_span = cluster == 1 ? launch.shared_bytes : (launch.shared_bytes + 1023) / 1024 * 1024 * cluster;
  request.workers = 1;
  if (made_times() != nullptr) {
    const auto known = made_times()->find(launch.function.name);
    if (known != made_times()->end()) made_milliseconds += known->second;
  }
  char message[1024];
  if (runtime_function<int(const dplc::LaunchRequest*, char*, uint64_t)>("dplc_launch")(&request, message,
                                                                                        sizeof message) == 0)
    return CUDA_SUCCESS;
  fprintf(stderr, "mock CUDA driver: kernel %s, %s\n", launch.function.name.c_str(), message);
  return CUDA_ERROR_ILLEGAL_ADDRESS;
}

}  // namespace mock

extern "C" {

// ---- device and context -------------------------------------------------------------------------------------------

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int* version) {
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult, const char** text) {
  *text = "error of dplc's mock driver";
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int* count) {
  *count = devices;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if (ordinal < 0 || ordinal >= devices) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char* name, int bytes, CUdevice) {
  snprintf(name, static_cast<size_t>(bytes), "dplc mock GPU");
  return CUDA_SUCCESS;
}
CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice) {
  *major = 9, *minor = 0;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  static const std::map<int, int> values = {
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
      {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 1 << 20},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, default_dynamic_smem},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, optin_smem},
  };
  const auto found = values.find(attribute);
  *value = found == values.end() ? 0 : found->second;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  MOCK_CALL;
  *context = reinterpret_cast<CUcontext>(&contexts[device]);
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice) {
  MOCK_CALL;
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent(CUcontext context) {
  entered.push_back(context);
  return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent(CUcontext* context) {
  if (entered.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (context != nullptr) *context = entered.back();
  entered.pop_back();
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice* device) {
  if (entered.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *device = static_cast<int>(reinterpret_cast<int*>(entered.back()) - contexts);
  return CUDA_SUCCESS;
}
CUresult cuCtxGetApiVersion(CUcontext, unsigned* version) {
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}
CUresult cuCtxSynchronize(void) {
  MOCK_CALL;
  return strictly_capturing() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}
CUresult cuCtxAttach(CUcontext* context, unsigned) {
  *context = entered.empty() ? nullptr : entered.back();
  return CUDA_SUCCESS;
}
CUresult cuCtxDetach(CUcontext) { return CUDA_SUCCESS; }

// ---- memory -------------------------------------------------------------------------------------------------------

CUresult cuMemAlloc(CUdeviceptr* pointer, size_t bytes) {
  MOCK_CALL;
  if (strictly_capturing()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  char* memory = runtime_function<char*(uint64_t)>("dplc_buffer_create")(bytes);
  if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *pointer = reinterpret_cast<CUdeviceptr>(memory);
  allocations[*pointer] = bytes;
  return CUDA_SUCCESS;
}
CUresult cuMemFree(CUdeviceptr pointer) {
  const auto found = allocations.find(pointer);
  if (found == allocations.end()) return CUDA_ERROR_INVALID_VALUE;
  runtime_function<void(char*, uint64_t)>("dplc_buffer_free")(reinterpret_cast<char*>(pointer), found->second);
  allocations.erase(found);
  return CUDA_SUCCESS;
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream) {
  memset(reinterpret_cast<void*>(to), value, bytes);
  made_milliseconds += static_cast<double>(bytes) / 1024 * 1e-3;
  return CUDA_SUCCESS;
}
CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t bytes) {
  memcpy(reinterpret_cast<void*>(to), from, bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, size_t bytes) {
  memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return CUDA_SUCCESS;
}

// ---- modules and launches -----------------------------------------------------------------------------------------

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned count, CUjit_option* options, void** values) {
  for (unsigned i = 0; i < count; ++i) {  // nothing is logged: PyCUDA makes a text of what stands there
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER || options[i] == CU_JIT_INFO_LOG_BUFFER) *static_cast<char*>(values[i]) = 0;
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES || options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES)
      values[i] = nullptr;
  }
  MOCK_CALL;
  if (strictly_capturing()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const size_t bytes = image_bytes(image);
  if (bytes == 0) return CUDA_ERROR_INVALID_IMAGE;
  runtime();  // before the library, which takes its symbols from there
  const int file = memfd_create("dplc-module", 0);
  if (file < 0 || write(file, image, bytes) != static_cast<ssize_t>(bytes)) return CUDA_ERROR_OPERATING_SYSTEM;
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // by its name: the next image needs another number
  if (library == nullptr) {
    fprintf(stderr, "mock CUDA driver: %s\n", dlerror());
    return CUDA_ERROR_INVALID_IMAGE;
  }
  *module = reinterpret_cast<CUmodule>(new Module{library, {}});
  return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule module) {
  MOCK_CALL;
  delete reinterpret_cast<Module*>(
      module);  // its library stays: another module may have been loaded from the same file
  return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule handle, const char* name) {
  auto* module = reinterpret_cast<Module*>(handle);
  void* entry = dlsym(module->library, ("dplc_enter_" + std::string(name)).c_str());
  if (entry == nullptr) return CUDA_ERROR_NOT_FOUND;
  Function& made = module->functions[name];
  const void* maps = dlsym(module->library, ("dplc_maps_" + std::string(name)).c_str());
  const auto* cluster = static_cast<const unsigned*>(dlsym(module->library, ("dplc_cluster_" + std::string(name)).c_str()));
  made = {name, reinterpret_cast<void (*)(void* const*)>(entry), static_cast<const char*>(maps), default_dynamic_smem,
          current_context(), cluster != nullptr ? *cluster : 1};
  *function = reinterpret_cast<CUfunction>(&made);
  return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_ERROR_NOT_SUPPORTED;
  if (value > optin_smem) return CUDA_ERROR_INVALID_VALUE;
  reinterpret_cast<Function*>(function)->max_dynamic_smem = static_cast<unsigned>(value);
  return CUDA_SUCCESS;
}
// Long superseded, but PyCUDA calls it before every launch.
CUresult cuFuncSetBlockShape(CUfunction, int, int, int) { return CUDA_SUCCESS; }
CUresult cuFuncGetAttribute(int* value, CUfunction_attribute, CUfunction) {
  *value = 0;
  return CUDA_SUCCESS;
}

// What the driver would encode, in the emulator's words: it is as large.
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* base,
                                const cuuint64_t* extents, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* steps, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  static const std::map<CUtensorMapDataType, unsigned> bytes = {
      {CU_TENSOR_MAP_DATA_TYPE_UINT8, 1},   {CU_TENSOR_MAP_DATA_TYPE_INT32, 4},    {CU_TENSOR_MAP_DATA_TYPE_INT64, 8},
      {CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2}, {CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2}, {CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4},
  };
  const unsigned item = bytes.at(type), span = swizzle == CU_TENSOR_MAP_SWIZZLE_NONE ? 0 : 16u << swizzle;
  const unsigned row = box[0] * item;
  if (rank < 1 || rank > 5 || row % 16 != 0) return CUDA_ERROR_INVALID_VALUE;
  if (reinterpret_cast<uintptr_t>(base) % 16 != 0) return CUDA_ERROR_INVALID_VALUE;
  if (reinterpret_cast<uintptr_t>(map) % 64 != 0 || (span != 0 && row > span)) return CUDA_ERROR_INVALID_VALUE;
  dplc::TensorMap made{};
  made.base = static_cast<const char*>(base);
  made.rank = static_cast<uint8_t>(rank), made.item_bytes = static_cast<uint8_t>(item);
  made.swizzle = static_cast<uint16_t>(span), made.strides[0] = item;
  for (unsigned dim = 0; dim < rank; ++dim) {
    if (box[dim] < 1 || box[dim] > 256 || steps[dim] != 1 || extents[dim] < 1) return CUDA_ERROR_INVALID_VALUE;
    if (dim > 0 && strides[dim - 1] % 16 != 0) return CUDA_ERROR_INVALID_VALUE;
    made.extents[dim] = extents[dim], made.box[dim] = static_cast<uint16_t>(box[dim]);
    if (dim > 0) made.strides[dim] = strides[dim - 1];
  }
  memcpy(map, &made, sizeof made);
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction handle, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void** arguments,
                        void** extra) {
  MOCK_CALL;
  const auto* function = reinterpret_cast<const Function*>(handle);
  if (function->context != current_context() || !usable(stream)) return CUDA_ERROR_INVALID_CONTEXT;
  if (block_y != 1 || block_z != 1 || shared_bytes > function->max_dynamic_smem) return CUDA_ERROR_INVALID_VALUE;
  Launch launch{*function, {grid_x, grid_y, grid_z}, block_x, shared_bytes, {}};
  if (arguments != nullptr) {
    launch.parameters = packed(arguments, function->maps);
    return enqueue(stream, std::move(launch));
  }
  if (extra == nullptr || extra[0] != CU_LAUNCH_PARAM_BUFFER_POINTER || extra[2] != CU_LAUNCH_PARAM_BUFFER_SIZE)
    return CUDA_ERROR_INVALID_VALUE;
  launch.parameters.resize((*static_cast<size_t*>(extra[3]) + sizeof(Chunk) - 1) / sizeof(Chunk));
  memcpy(launch.parameters.data(), extra[1], *static_cast<size_t*>(extra[3]));
  return enqueue(stream, std::move(launch));
}

}  // extern "C"
