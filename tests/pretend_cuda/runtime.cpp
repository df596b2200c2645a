// A pretend CUDA runtime: torch's own CUDA code runs on it without a GPU.
//
// Streams are timelines on the host's clock: a launch ends some microseconds after what is queued before it, a copy
// after its bytes. Copies and memsets move real bytes of host memory that stands in for device memory; kernels compute
// nothing. Written from the public documentation of the CUDA runtime API. Settings are read from the environment:
//
//   PRETEND_CUDA_DEVICES   devices there are (1)
//   PRETEND_CUDA_MEMORY    bytes of memory of each (8 GiB)
//   PRETEND_CUDA_KERNEL_NS least duration of a kernel (4000)
//   PRETEND_CUDA_QUEUE     launches that a stream holds before the host has to wait (1024)

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

enum Error {
  kSuccess = 0, kInvalidValue = 1, kMemoryAllocation = 2, kNoDevice = 100, kInvalidDevice = 101, kInvalidHandle = 400,
  kNotReady = 600, kIllegalAddress = 700, kPeerAlreadyEnabled = 704, kNotSupported = 801, kCaptureUnsupported = 900,
  kCaptureInvalidated = 901, kCaptureUnmatched = 903, kCaptureUnjoined = 904, kCaptureIsolation = 905,
  kCaptureImplicit = 906, kCapturedEvent = 907, kCaptureWrongThread = 908
};

const std::map<int, std::pair<const char*, const char*>> kErrors = {
    {kSuccess, {"cudaSuccess", "no error"}},
    {kInvalidValue, {"cudaErrorInvalidValue", "invalid argument"}},
    {kMemoryAllocation, {"cudaErrorMemoryAllocation", "out of memory"}},
    {kNoDevice, {"cudaErrorNoDevice", "no CUDA-capable device is detected"}},
    {kInvalidDevice, {"cudaErrorInvalidDevice", "invalid device ordinal"}},
    {kInvalidHandle, {"cudaErrorInvalidResourceHandle", "invalid resource handle"}},
    {kNotReady, {"cudaErrorNotReady", "device not ready"}},
    {kIllegalAddress, {"cudaErrorIllegalAddress", "an illegal memory access was encountered"}},
    {kPeerAlreadyEnabled, {"cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled"}},
    {kNotSupported, {"cudaErrorNotSupported", "operation not supported"}},
    {kCaptureUnsupported, {"cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"}},
    {kCaptureInvalidated,
     {"cudaErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture"}},
    {kCaptureUnmatched, {"cudaErrorStreamCaptureUnmatched", "capture was not ended in the same stream as it began"}},
    {kCaptureUnjoined, {"cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"}},
    {kCaptureIsolation,
     {"cudaErrorStreamCaptureIsolation", "dependency created on uncaptured work in another stream"}},
    {kCaptureImplicit,
     {"cudaErrorStreamCaptureImplicit",
      "operation would make the legacy stream depend on a capturing blocking stream"}},
    {kCapturedEvent, {"cudaErrorCapturedEvent", "operation not permitted on an event last recorded in a capturing stream"}},
    {kCaptureWrongThread,
     {"cudaErrorStreamCaptureWrongThread", "attempt to terminate a thread-local capture sequence from another thread"}},
};

int64_t setting(const char* name, int64_t usual) {
  const char* text = std::getenv(name);
  return text && *text ? std::atoll(text) : usual;
}

const int64_t kDevices = setting("PRETEND_CUDA_DEVICES", 1);
const int64_t kMemory = setting("PRETEND_CUDA_MEMORY", int64_t{8} << 30);
const double kKernelNs = static_cast<double>(setting("PRETEND_CUDA_KERNEL_NS", 4000));
const size_t kQueue = static_cast<size_t>(setting("PRETEND_CUDA_QUEUE", 1024));
constexpr double kClockHz = 1.98e9, kPinnedBytesPerNs = 25.0, kPageableBytesPerNs = 6.0, kDeviceBytesPerNs = 1500.0;
constexpr double kThreadNs = 1e-4;  // what each thread of a grid adds to a kernel
constexpr double kGraphNodeShare = 0.5;  // a graph's nodes follow each other in less time than launches do
constexpr uint64_t kPinned = 1, kDevice = 2;

struct Dim { unsigned x, y, z; };

struct Graph { std::vector<double> nodes; };

struct Stream;

struct Capture {
  uint64_t id;
  Stream* origin;
  int mode;
  unsigned long thread;
  Graph* graph;
  bool invalid;
  std::set<Stream*> streams;
};

struct Stream {
  int device = 0;
  int priority = 0;
  double busy_until = 0;
  std::deque<double> ends;
  Capture* capture = nullptr;
  uint64_t work = 0;                   // captured so far
  std::map<Stream*, uint64_t> joined;  // work of other captured streams that this one waits for
};

struct Event {
  bool timed = true, recorded = false;
  double time = 0;
  uint64_t capture = 0;
  std::map<Stream*, uint64_t> joined;
};

struct Block { size_t size; int device; uint64_t kind; };
struct Kernel { const char* name; double start, end; int device; };

std::recursive_mutex lock;
std::map<uintptr_t, Block> blocks;
std::vector<int64_t> used(64, 0);
std::vector<bool> context(64, false);
std::vector<Stream> defaults(64);
std::set<Capture*> captures;
std::map<const void*, std::string> names;
std::map<const void*, void*> symbols;
std::map<void*, Stream*> handles;  // of libraries: the stream that each was told to use
std::set<std::pair<int, int>> peers;
uint64_t next_id = 1;
int sticky = 0;
bool profiling = false;
std::vector<Kernel> profile;  // what ran while profiling
thread_local int current = 0, last = 0, thread_mode = 0;
thread_local struct { Dim grid, block; size_t shared; void* stream; } configuration;

double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return 1e9 * static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec);
}

void wait_until(double when) {  // never with the lock held
  for (double left = when - now(); left > 0; left = when - now()) {
    if (left > 60e3) {
      timespec t = {static_cast<time_t>(left / 1e9), static_cast<long>(std::min(left - 50e3, 999e6))};
      if (t.tv_sec) t.tv_nsec = 0;
      nanosleep(&t, nullptr);
    }
  }
}

int fail(int code) {
  if (code) last = code;
  return code;
}

int done(int code = kSuccess) { return fail(sticky ? sticky : code); }

unsigned long thread_id() { return reinterpret_cast<unsigned long>(&current); }

Stream* stream_of(void* handle) {
  context[current] = true;
  uintptr_t value = reinterpret_cast<uintptr_t>(handle);
  if (value <= 2) {  // the default stream, legacy or of the thread
    defaults[current].device = current;
    return &defaults[current];
  }
  return static_cast<Stream*>(handle);
}

bool is_default(Stream* stream) { return stream >= defaults.data() && stream < defaults.data() + defaults.size(); }

// What may not be called while this thread, or in global mode any thread, captures.
int unsafe() {
  if (thread_mode == 2) return kSuccess;
  for (Capture* capture : captures) {
    bool mine = capture->thread == thread_id();
    if ((mine && capture->mode != 2) || (!mine && capture->mode == 0 && thread_mode == 0)) {
      capture->invalid = true;
      return kCaptureUnsupported;
    }
  }
  return kSuccess;
}

// The legacy stream waits for all blocking streams; torch's are non-blocking, so only its use while capturing matters.
int capturing_error(Stream* stream) {
  if (stream->capture) return stream->capture->invalid ? kCaptureInvalidated : kSuccess;
  return kSuccess;
}

int submit(Stream* stream, double duration, const char* name = nullptr) {
  std::unique_lock<std::recursive_mutex> guard(lock);
  if (int code = capturing_error(stream)) return code;
  if (stream->capture) {
    stream->capture->graph->nodes.push_back(duration);
    stream->joined[stream] = ++stream->work;
    return kSuccess;
  }
  double time = now();
  while (!stream->ends.empty() && stream->ends.front() <= time) stream->ends.pop_front();
  while (stream->ends.size() >= kQueue) {
    double first = stream->ends.front();
    stream->ends.pop_front();
    guard.unlock();
    wait_until(first);
    guard.lock();
  }
  double start = std::max(now(), stream->busy_until);
  stream->busy_until = start + duration;
  stream->ends.push_back(stream->busy_until);
  if (profiling && name) profile.push_back({name, start, stream->busy_until, stream->device});
  return kSuccess;
}

int launch(void* handle, const std::string& name, Dim grid, Dim block, void** arguments) {
  Stream* stream = stream_of(handle);
  double threads = 1.0 * grid.x * grid.y * grid.z * block.x * block.y * block.z;
  double duration = kKernelNs + kThreadNs * threads;
  if (name.find("spin_kernel") != std::string::npos && arguments)
    duration = 1e9 * static_cast<double>(*static_cast<int64_t*>(arguments[0])) / kClockHz;
  return done(submit(stream, duration, name.c_str()));
}

std::map<uintptr_t, Block>::iterator block_at(const void* pointer) {
  uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
  auto after = blocks.upper_bound(address);
  if (after == blocks.begin()) return blocks.end();
  --after;
  return address < after->first + after->second.size ? after : blocks.end();
}

int allocate(void** pointer, size_t size, uint64_t kind) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  context[current] = true;
  *pointer = nullptr;
  if (int code = unsafe()) return done(code);
  if (!size) return done();
  if (kind == kDevice && used[current] + static_cast<int64_t>(size) > kMemory) return done(kMemoryAllocation);
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return done(kMemoryAllocation);
  if (kind == kDevice) used[current] += static_cast<int64_t>(size);
  blocks[reinterpret_cast<uintptr_t>(memory)] = {size, current, kind};
  *pointer = memory;
  return done();
}

void drain_device(int device);

int release(void* pointer) {
  if (!pointer) return done();
  int device;
  {
    std::lock_guard<std::recursive_mutex> guard(lock);
    if (int code = unsafe()) return done(code);
    auto block = blocks.find(reinterpret_cast<uintptr_t>(pointer));
    if (block == blocks.end()) return done(kInvalidValue);
    device = block->second.device;
  }
  drain_device(device);
  std::lock_guard<std::recursive_mutex> guard(lock);
  auto block = blocks.find(reinterpret_cast<uintptr_t>(pointer));
  if (block == blocks.end()) return done(kInvalidValue);
  if (block->second.kind == kDevice) used[block->second.device] -= static_cast<int64_t>(block->second.size);
  munmap(pointer, block->second.size);
  blocks.erase(block);
  return done();
}

std::set<Stream*>& streams() {
  static std::set<Stream*> all;
  return all;
}

void drain_device(int device) {
  double latest;
  {
    std::lock_guard<std::recursive_mutex> guard(lock);
    latest = defaults[device].busy_until;
    for (Stream* stream : streams())
      if (stream->device == device && !stream->capture) latest = std::max(latest, stream->busy_until);
  }
  wait_until(latest);
}

int copy(void* to, const void* from, size_t size, void* handle, bool synchronous) {
  if (!size) return done();
  Stream* stream = stream_of(handle);
  double duration;
  bool pageable;
  {
    std::lock_guard<std::recursive_mutex> guard(lock);
    auto target = block_at(to), source = block_at(from);
    bool host_target = target == blocks.end(), host_source = source == blocks.end();
    pageable = host_target || host_source;
    bool device_only = !pageable && target->second.kind == kDevice && source->second.kind == kDevice;
    double rate = pageable ? kPageableBytesPerNs : device_only ? kDeviceBytesPerNs : kPinnedBytesPerNs;
    duration = 1500 + static_cast<double>(size) / rate;
    if (stream->capture) {
      if (synchronous || host_target) {
        stream->capture->invalid = true;
        return done(kCaptureUnsupported);
      }
      return done(submit(stream, duration));
    }
  }
  if (int code = submit(stream, duration)) return done(code);
  double end = stream->busy_until;
  std::memmove(to, from, size);
  if (synchronous || pageable) wait_until(end);  // a pageable copy returns when the driver has staged it
  return done();
}

int fill(void* to, int value, size_t size, void* handle) {
  Stream* stream = stream_of(handle);
  if (int code = submit(stream, 1500 + static_cast<double>(size) / kDeviceBytesPerNs)) return done(code);
  if (!stream->capture) std::memset(to, value, size);
  return done();
}

}  // namespace

// Devices and versions -------------------------------------------------------------------------------------------------

EXPORT int cudaGetDeviceCount(int* count) {
  *count = static_cast<int>(kDevices);
  return done(kDevices ? kSuccess : kNoDevice);
}
EXPORT int cudaGetDevice(int* device) { *device = current; return kSuccess; }
EXPORT int cudaSetDevice(int device) {
  if (device < 0 || device >= kDevices) return done(kInvalidDevice);
  current = device;
  context[device] = true;
  return kSuccess;
}
EXPORT int cudaRuntimeGetVersion(int* version) { *version = 13000; return kSuccess; }
EXPORT int cudaDriverGetVersion(int* version) { *version = 13000; return kSuccess; }

// The fields of cudaDeviceProp of CUDA 13, in the order that its documentation lists them.
struct Properties {
  char name[256]; char uuid[16]; char luid[8]; unsigned luidDeviceNodeMask; size_t totalGlobalMem, sharedMemPerBlock;
  int regsPerBlock, warpSize; size_t memPitch; int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
  size_t totalConstMem; int major, minor; size_t textureAlignment, texturePitchAlignment; int multiProcessorCount,
      integrated, canMapHostMemory, textures[25], surfaces[14]; size_t surfaceAlignment; int concurrentKernels, ECCEnabled,
      pciBusID, pciDeviceID, pciDomainID, tccDriver, asyncEngineCount, unifiedAddressing, memoryBusWidth, l2CacheSize,
      persistingL2CacheMaxSize, maxThreadsPerMultiProcessor, streamPrioritiesSupported, globalL1CacheSupported,
      localL1CacheSupported; size_t sharedMemPerMultiprocessor; int regsPerMultiprocessor, managedMemory, isMultiGpuBoard,
      multiGpuBoardGroupID, hostNativeAtomicSupported, pageableMemoryAccess, concurrentManagedAccess,
      computePreemptionSupported, canUseHostPointerForRegisteredMem, cooperativeLaunch; size_t sharedMemPerBlockOptin;
  int pageableTables, directManaged, maxBlocksPerMultiProcessor, accessPolicyMaxWindowSize; size_t reservedSharedMemPerBlock;
  int rest[75];
};

EXPORT int cudaGetDeviceProperties(Properties* p, int device) {
  if (device < 0 || device >= kDevices) return done(kInvalidDevice);
  std::memset(p, 0, sizeof *p);
  std::snprintf(p->name, sizeof p->name, "Pretend GPU %d", device);
  std::memset(p->uuid, 0x10 + device, sizeof p->uuid);
  p->totalGlobalMem = static_cast<size_t>(kMemory);
  p->sharedMemPerBlock = 49152; p->regsPerBlock = 65536; p->warpSize = 32; p->maxThreadsPerBlock = 1024;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024; p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647; p->maxGridSize[1] = p->maxGridSize[2] = 65535; p->totalConstMem = 65536;
  p->major = 9; p->minor = 0; p->textureAlignment = 512; p->multiProcessorCount = 132; p->canMapHostMemory = 1;
  p->concurrentKernels = 1; p->pciBusID = device + 1; p->asyncEngineCount = 3; p->unifiedAddressing = 1;
  p->memoryBusWidth = 5120; p->l2CacheSize = 4 << 20; p->maxThreadsPerMultiProcessor = 2048;
  p->streamPrioritiesSupported = 1; p->sharedMemPerMultiprocessor = 233472; p->regsPerMultiprocessor = 65536;
  p->managedMemory = 1; p->cooperativeLaunch = 1; p->sharedMemPerBlockOptin = 232448; p->maxBlocksPerMultiProcessor = 32;
  return done();
}
EXPORT int cudaDeviceGetAttribute(int* value, int attribute, int device) {
  static const std::map<int, int> known = {{1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, {5, 2147483647}, {6, 65535},
      {7, 65535}, {8, 49152}, {9, 65536}, {10, 32}, {12, 65536}, {13, 1980000}, {16, 132}, {20, 0}, {31, 1},
      {36, 2619000}, {37, 5120}, {38, 4 << 20}, {39, 2048}, {40, 3}, {41, 1}, {75, 9}, {76, 0}, {78, 1}, {81, 233472},
      {82, 65536}, {83, 1}, {95, 1}, {97, 232448}, {106, 32}};
  auto found = known.find(attribute);
  *value = found == known.end() ? 0 : found->second;
  return done(device < kDevices ? kSuccess : kInvalidDevice);
}
EXPORT int cudaDeviceGetPCIBusId(char* text, int length, int device) {
  std::snprintf(text, static_cast<size_t>(length), "0000:%02x:00.0", device + 1);
  return done();
}
EXPORT int cudaDeviceGetStreamPriorityRange(int* least, int* greatest) { *least = 0; *greatest = -5; return done(); }
EXPORT int cudaDeviceCanAccessPeer(int* can, int device, int peer) { *can = device != peer; return done(); }
EXPORT int cudaDeviceEnablePeerAccess(int peer, unsigned) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  return done(peers.insert({current, peer}).second ? kSuccess : kPeerAlreadyEnabled);
}
EXPORT int cudaDeviceSynchronize() {
  {
    std::lock_guard<std::recursive_mutex> guard(lock);
    if (int code = unsafe()) return done(code);
  }
  drain_device(current);
  return done();
}
EXPORT int cudaMemGetInfo(size_t* available, size_t* total) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  context[current] = true;
  *total = static_cast<size_t>(kMemory);
  *available = static_cast<size_t>(kMemory - used[current]);
  return done();
}

// Errors ---------------------------------------------------------------------------------------------------------------

EXPORT int cudaGetLastError() {
  int code = sticky ? sticky : last;
  last = kSuccess;
  return code;
}
EXPORT int cudaPeekAtLastError() { return sticky ? sticky : last; }
EXPORT const char* cudaGetErrorName(int code) {
  auto found = kErrors.find(code);
  return found == kErrors.end() ? "cudaErrorUnknown" : found->second.first;
}
EXPORT const char* cudaGetErrorString(int code) {
  auto found = kErrors.find(code);
  return found == kErrors.end() ? "unknown error" : found->second.second;
}

// Memory ---------------------------------------------------------------------------------------------------------------

EXPORT int cudaMalloc(void** pointer, size_t size) { return allocate(pointer, size, kDevice); }
EXPORT int cudaMallocAsync(void** pointer, size_t size, void*) { return allocate(pointer, size, kDevice); }
EXPORT int cudaHostAlloc(void** pointer, size_t size, unsigned) { return allocate(pointer, size, kPinned); }
EXPORT int cudaFree(void* pointer) { return release(pointer); }
EXPORT int cudaFreeAsync(void* pointer, void*) { return release(pointer); }
EXPORT int cudaFreeHost(void* pointer) { return release(pointer); }
EXPORT int cudaHostRegister(void* pointer, size_t size, unsigned) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  blocks[reinterpret_cast<uintptr_t>(pointer)] = {size, current, kPinned};
  return done();
}
EXPORT int cudaHostUnregister(void* pointer) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  blocks.erase(reinterpret_cast<uintptr_t>(pointer));
  return done();
}
struct PointerAttributes { int type, device; void *device_pointer, *host_pointer; };
EXPORT int cudaPointerGetAttributes(PointerAttributes* attributes, const void* pointer) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  auto block = block_at(pointer);
  void* address = const_cast<void*>(pointer);
  if (block == blocks.end()) *attributes = {0, -2, nullptr, address};
  else *attributes = {static_cast<int>(block->second.kind), block->second.device, address,
                      block->second.kind == kPinned ? address : nullptr};
  return done();
}
EXPORT int cudaMemcpy(void* to, const void* from, size_t size, int) {
  std::unique_lock<std::recursive_mutex> guard(lock);
  if (int code = unsafe()) return done(code);
  guard.unlock();
  return copy(to, from, size, nullptr, true);
}
EXPORT int cudaMemcpyAsync(void* to, const void* from, size_t size, int, void* stream) {
  return copy(to, from, size, stream, false);
}
EXPORT int cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t size, void* stream) {
  return copy(to, from, size, stream, false);
}
EXPORT int cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, int,
                             void* stream) {
  for (size_t row = 0; row < height; ++row)
    if (int code = copy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width,
                        stream, false))
      return code;
  return done();
}
EXPORT int cudaMemset(void* to, int value, size_t size) { return fill(to, value, size, nullptr); }
EXPORT int cudaMemsetAsync(void* to, int value, size_t size, void* stream) { return fill(to, value, size, stream); }
EXPORT int cudaGetSymbolAddress(void** pointer, const void* symbol) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  if (!symbols[symbol]) allocate(&symbols[symbol], 1 << 16, kDevice);
  *pointer = symbols[symbol];
  return done();
}
EXPORT int cudaMemcpyToSymbol(const void* symbol, const void* from, size_t size, size_t offset, int) {
  void* to;
  cudaGetSymbolAddress(&to, symbol);
  return copy(static_cast<char*>(to) + offset, from, size, nullptr, true);
}
EXPORT int cudaDeviceGetDefaultMemPool(void** pool, int) { *pool = &defaults; return done(); }
EXPORT int cudaMemPoolGetAttribute(void*, int, void* value) { std::memset(value, 0, 4); return done(); }
EXPORT int cudaMemPoolSetAttribute(void*, int, void*) { return done(); }
EXPORT int cudaMemPoolSetAccess(void*, const void*, size_t) { return done(); }
EXPORT int cudaMemPoolTrimTo(void*, size_t) { return done(); }
EXPORT int cudaIpcGetMemHandle(void*, void*) { return done(kNotSupported); }
EXPORT int cudaIpcOpenMemHandle(void**, char[64], unsigned) { return done(kNotSupported); }
EXPORT int cudaIpcCloseMemHandle(void*) { return done(kNotSupported); }
EXPORT int cudaIpcGetEventHandle(void*, void*) { return done(kNotSupported); }
EXPORT int cudaIpcOpenEventHandle(void**, char[64]) { return done(kNotSupported); }

// Streams and events ---------------------------------------------------------------------------------------------------

EXPORT int cudaStreamCreateWithPriority(void** handle, unsigned, int priority) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  context[current] = true;
  Stream* stream = new Stream;
  stream->device = current;
  stream->priority = priority;
  streams().insert(stream);
  *handle = stream;
  return done();
}
EXPORT int cudaStreamCreate(void** handle) { return cudaStreamCreateWithPriority(handle, 0, 0); }
EXPORT int cudaStreamDestroy(void* handle) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  streams().erase(static_cast<Stream*>(handle));
  return done();  // not deleted: an event may still name it
}
EXPORT int cudaStreamGetPriority(void* handle, int* priority) { *priority = stream_of(handle)->priority; return done(); }
EXPORT int cudaStreamSynchronize(void* handle) {
  Stream* stream = stream_of(handle);
  double end;
  {
    std::lock_guard<std::recursive_mutex> guard(lock);
    if (stream->capture) {
      stream->capture->invalid = true;
      return done(kCaptureUnsupported);
    }
    end = stream->busy_until;
  }
  wait_until(end);
  return done();
}
EXPORT int cudaStreamQuery(void* handle) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  Stream* stream = stream_of(handle);
  if (stream->capture) {
    stream->capture->invalid = true;
    return done(kCaptureUnsupported);
  }
  if (stream->busy_until > now()) return sticky ? done() : kNotReady;
  return done();
}
EXPORT int cudaStreamWaitEvent(void* handle, void* event_handle, unsigned) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  Stream* stream = stream_of(handle);
  Event* event = static_cast<Event*>(event_handle);
  Capture* capture = nullptr;
  for (Capture* each : captures)
    if (event->capture == each->id) capture = each;
  if (capture) {
    if (capture->invalid) return done(kCaptureInvalidated);
    if (is_default(stream)) {
      capture->invalid = true;
      return done(kCaptureImplicit);
    }
    if (!stream->capture) {
      stream->capture = capture;
      stream->work = 0;
      stream->joined.clear();
      capture->streams.insert(stream);
    }
    for (auto& [other, work] : event->joined) stream->joined[other] = std::max(stream->joined[other], work);
    return done();
  }
  if (stream->capture && event->recorded) {
    stream->capture->invalid = true;
    return done(kCaptureIsolation);
  }
  if (event->recorded) stream->busy_until = std::max(stream->busy_until, event->time);
  return done();
}
EXPORT int cudaLaunchHostFunc(void*, void (*function)(void*), void* data) { function(data); return done(); }
EXPORT int cudaStreamAddCallback(void* stream, void (*function)(void*, int, void*), void* data, unsigned) {
  function(stream, 0, data);
  return done();
}
EXPORT int cudaEventCreateWithFlags(void** handle, unsigned flags) {
  Event* event = new Event;
  event->timed = !(flags & 2);
  *handle = event;
  context[current] = true;
  return done();
}
EXPORT int cudaEventCreate(void** handle) { return cudaEventCreateWithFlags(handle, 0); }
EXPORT int cudaEventDestroy(void* handle) { delete static_cast<Event*>(handle); return done(); }
EXPORT int cudaEventRecordWithFlags(void* handle, void* stream_handle, unsigned) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  Event* event = static_cast<Event*>(handle);
  Stream* stream = stream_of(stream_handle);
  if (int code = capturing_error(stream)) return done(code);
  event->recorded = true;
  event->capture = stream->capture ? stream->capture->id : 0;
  if (stream->capture) {
    event->joined = stream->joined;
    event->joined[stream] = stream->work;
  }
  event->time = std::max(now(), stream->busy_until);
  return done();
}
EXPORT int cudaEventRecord(void* event, void* stream) { return cudaEventRecordWithFlags(event, stream, 0); }
EXPORT int cudaEventQuery(void* handle) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  if (int code = unsafe()) return done(code);
  Event* event = static_cast<Event*>(handle);
  if (event->capture) return done(kCapturedEvent);
  if (event->recorded && event->time > now()) return sticky ? done() : kNotReady;
  return done();
}
EXPORT int cudaEventSynchronize(void* handle) {
  Event* event = static_cast<Event*>(handle);
  {
    std::lock_guard<std::recursive_mutex> guard(lock);
    if (event->capture) return done(kCapturedEvent);
  }
  if (event->recorded) wait_until(event->time);
  return done();
}
EXPORT int cudaEventElapsedTime(float* milliseconds, void* start_handle, void* end_handle) {
  Event *start = static_cast<Event*>(start_handle), *end = static_cast<Event*>(end_handle);
  if (!start->recorded || !end->recorded || !start->timed || !end->timed || start->capture || end->capture)
    return done(kInvalidHandle);
  if (std::max(start->time, end->time) > now()) return done(kNotReady);
  *milliseconds = static_cast<float>((end->time - start->time) / 1e6);
  return done();
}

// Capture and graphs ---------------------------------------------------------------------------------------------------

EXPORT int cudaThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, thread_mode);
  return done();
}
EXPORT int cudaStreamBeginCapture(void* handle, int mode) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  Stream* stream = stream_of(handle);
  if (is_default(stream)) return done(kCaptureUnsupported);
  if (stream->capture) return done(kInvalidValue);
  Capture* capture = new Capture{next_id++, stream, mode, thread_id(), new Graph, false, {stream}};
  stream->capture = capture;
  stream->work = 0;
  stream->joined.clear();
  captures.insert(capture);
  return done();
}
EXPORT int cudaStreamEndCapture(void* handle, void** graph) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  Stream* stream = stream_of(handle);
  *graph = nullptr;
  Capture* capture = stream->capture;
  if (!capture) return done(kInvalidValue);
  if (capture->origin != stream) {
    capture->invalid = true;
    return done(kCaptureUnmatched);
  }
  if (capture->mode != 2 && capture->thread != thread_id()) return done(kCaptureWrongThread);
  bool unjoined = false;
  for (Stream* other : capture->streams) {
    auto joined = stream->joined.find(other);
    unjoined = unjoined || (other != stream && (joined == stream->joined.end() ? 0 : joined->second) < other->work);
    other->capture = nullptr;
  }
  captures.erase(capture);
  int code = capture->invalid ? kCaptureInvalidated : unjoined ? kCaptureUnjoined : kSuccess;
  if (code) delete capture->graph;
  else *graph = capture->graph;
  delete capture;
  return done(code);
}
EXPORT int cudaStreamIsCapturing(void* handle, int* status) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  Stream* stream = stream_of(handle);
  *status = !stream->capture ? 0 : stream->capture->invalid ? 2 : 1;
  return done();
}
EXPORT int cudaStreamGetCaptureInfo(void* handle, int* status, unsigned long long* id, void** graph, const void*** nodes,
                                    const void** edges, size_t* count) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  Stream* stream = stream_of(handle);
  *status = !stream->capture ? 0 : stream->capture->invalid ? 2 : 1;
  if (id && stream->capture) *id = stream->capture->id;
  if (graph && stream->capture) *graph = stream->capture->graph;
  if (nodes) *nodes = nullptr;
  if (edges) *edges = nullptr;
  if (count) *count = 0;
  return done();
}
EXPORT int cudaGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long) {
  *executable = new Graph(*static_cast<Graph*>(graph));
  return done();
}
EXPORT int cudaGraphLaunch(void* executable, void* stream) {
  double duration = 2000;
  for (double node : static_cast<Graph*>(executable)->nodes) duration += kGraphNodeShare * node;
  return done(submit(stream_of(stream), duration, "graph"));
}
EXPORT int cudaGraphDestroy(void* graph) { delete static_cast<Graph*>(graph); return done(); }
EXPORT int cudaGraphExecDestroy(void* graph) { delete static_cast<Graph*>(graph); return done(); }
EXPORT int cudaGraphGetNodes(void* graph, void** nodes, size_t* count) {
  size_t all = static_cast<Graph*>(graph)->nodes.size();
  if (nodes) std::memset(nodes, 0, sizeof(void*) * std::min(*count, all));
  *count = all;
  return done();
}
EXPORT int cudaGraphNodeGetDependencies(void*, void**, void*, size_t* count) { *count = 0; return done(); }
EXPORT int cudaGraphDebugDotPrint(void*, const char*, unsigned) { return done(kNotSupported); }

// Kernels --------------------------------------------------------------------------------------------------------------

EXPORT void** __cudaRegisterFatBinary(void*) { return new void*(nullptr); }
EXPORT void __cudaRegisterFatBinaryEnd(void**) {}
EXPORT void __cudaUnregisterFatBinary(void**) {}
EXPORT char __cudaInitModule(void**) { return 0; }
EXPORT void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, void*, void*, void*, void*, int*) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  names[host] = name;
}
EXPORT void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
EXPORT unsigned __cudaPushCallConfiguration(Dim grid, Dim block, size_t shared, void* stream) {
  configuration = {grid, block, shared, stream};
  return 0;
}
EXPORT int __cudaPopCallConfiguration(Dim* grid, Dim* block, size_t* shared, void** stream) {
  *grid = configuration.grid;
  *block = configuration.block;
  *shared = configuration.shared;
  *stream = configuration.stream;
  return kSuccess;
}
EXPORT int __cudaGetKernel(const void** kernel, const void* host) { *kernel = host; return kSuccess; }
EXPORT int cudaLaunchKernel(const void* host, Dim grid, Dim block, void** arguments, size_t, void* stream) {
  static const std::string unknown = "kernel";
  auto name = names.find(host);
  return launch(stream, name == names.end() ? unknown : name->second, grid, block, arguments);
}
EXPORT int __cudaLaunchKernel(const void* kernel, Dim grid, Dim block, void** arguments, size_t shared, void* stream) {
  return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}
EXPORT int cudaLaunchCooperativeKernel(const void* kernel, Dim grid, Dim block, void** arguments, size_t shared, void* stream) {
  return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}
struct LaunchConfiguration { Dim grid, block; size_t shared; void* stream; };
EXPORT int cudaLaunchKernelExC(const LaunchConfiguration* c, const void* kernel, void** arguments) {
  return cudaLaunchKernel(kernel, c->grid, c->block, arguments, c->shared, c->stream);
}
struct FunctionAttributes { size_t shared, constant, local; int most_threads, registers, ptx, binary, cache, dynamic, carveout; };
EXPORT int cudaFuncGetAttributes(FunctionAttributes* attributes, const void*) {
  *attributes = {0, 0, 0, 1024, 32, 90, 90, 0, 232448, -1};
  return done();
}
EXPORT int cudaFuncSetAttribute(const void*, int, int) { return done(); }
EXPORT int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, size_t) { *blocks = 2; return done(); }
EXPORT int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int, size_t, unsigned) {
  *blocks = 2;
  return done();
}
EXPORT int cudaProfilerStart() { return done(); }
EXPORT int cudaProfilerStop() { return done(); }

// For the pretend libraries: cuBLAS and its like launch on the stream that their handle was given ----------------------

EXPORT int pretend_set_stream(void* handle, void* stream) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  handles[handle] = stream_of(stream);
  return 0;
}
EXPORT int pretend_launch(void* handle) {
  Stream* stream;
  {
    std::lock_guard<std::recursive_mutex> guard(lock);
    auto found = handles.find(handle);
    stream = found == handles.end() ? stream_of(nullptr) : found->second;
  }
  submit(stream, 2 * kKernelNs, "library");
  return 0;
}
EXPORT int pretend_capturing(void* stream) { return stream_of(stream)->capture != nullptr; }
// For the pretend CUPTI: the kernels since profiling began, their times on the monotonic clock.
EXPORT void pretend_profile(int on) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  profiling = on;
}
EXPORT size_t pretend_profiled(Kernel* kernels, size_t room) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  size_t count = std::min(room, profile.size());
  std::copy(profile.begin(), profile.begin() + static_cast<long>(count), kernels);
  profile.erase(profile.begin(), profile.begin() + static_cast<long>(count));
  return count;
}
EXPORT void pretend_break() { sticky = kIllegalAddress; }
EXPORT int pretend_context(int device) { return context[device]; }

// The driver's functions that torch asks for by name -------------------------------------------------------------------

namespace {
int primary_context(int device, unsigned* flags, int* active) {
  *flags = 0;
  *active = context[device];
  return 0;
}
int error_text(int code, const char** text) {
  *text = cudaGetErrorString(code);
  return 0;
}
int unsupported() { return kNotSupported; }
}  // namespace

EXPORT int cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned, unsigned long long, int* status) {
  std::string name = symbol;
  *function = name == "cuDevicePrimaryCtxGetState" ? reinterpret_cast<void*>(primary_context)
              : name == "cuGetErrorString"         ? reinterpret_cast<void*>(error_text)
                                                   : reinterpret_cast<void*>(unsupported);
  if (status) *status = 0;
  return done();
}
