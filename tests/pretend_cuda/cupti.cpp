// A pretend CUPTI: activity records of the kernels that the pretend runtime has run, for torch's profiler.
//
// Written from the public documentation of CUPTI's activity API.

#include <time.h>

#include <cstdint>
#include <cstring>

#define EXPORT extern "C" __attribute__((visibility("default")))

struct Kernel { const char* name; double start, end; int device; };
extern "C" void pretend_profile(int on);
extern "C" size_t pretend_profiled(Kernel* kernels, size_t room);

namespace {

enum Result { kSuccess = 0, kMaxLimitReached = 12 };
constexpr int kConcurrentKernel = 10;

// CUpti_ActivityKernel10 of CUDA 13.
struct Record {
  int kind;
  uint8_t cache, shared;
  uint16_t registers;
  int requested, executed;
  uint64_t start, end, completed;
  uint32_t device, context, stream;
  int32_t grid[3], block[3], static_shared, dynamic_shared;
  uint32_t local_of_thread, local_total, correlation;
  int64_t grid_id;
  const char* name;
  void* reserved;
  uint64_t queued, submitted;
  uint8_t launch, carveout_requested, carveout, padding;
  uint32_t shared_executed;
  uint64_t graph_node;
  int limit;
  uint32_t graph;
  void* window;
  uint32_t channel;
  int channel_type;
  uint32_t cluster[3], scheduling;
  uint64_t local_total_2;
  uint32_t most_potential, most_active;
  uint8_t device_launched, padding_3[7];
};

void (*requested)(uint8_t**, size_t*, size_t*) = nullptr;
void (*completed)(void*, uint32_t, uint8_t*, size_t, size_t) = nullptr;
uint64_t (*clock_of_host)() = nullptr;
uint32_t correlations = 0;

double nanoseconds(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return 1e9 * static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec);
}

// Of a moment on the monotonic clock, in the unit and from the origin that records are wanted in.
struct Conversion {
  double from, to, rate = 1;
  Conversion() : from(nanoseconds(CLOCK_MONOTONIC)), to(host()) {
    if (!clock_of_host) return;
    while (nanoseconds(CLOCK_MONOTONIC) < from + 2e6) {}
    rate = (host() - to) / (nanoseconds(CLOCK_MONOTONIC) - from);
  }
  static double host() { return clock_of_host ? static_cast<double>(clock_of_host()) : nanoseconds(CLOCK_REALTIME); }
  uint64_t operator()(double moment) const { return static_cast<uint64_t>(to + rate * (moment - from)); }
};

uint8_t* buffer = nullptr;
size_t room = 0, used = 0;

void request() {
  size_t most = 0;
  used = 0;
  requested(&buffer, &room, &most);
}

void write(const Kernel& kernel) {
  static const Conversion converted;
  Record record;
  std::memset(&record, 0, sizeof record);
  record.kind = kConcurrentKernel;
  record.start = converted(kernel.start);
  record.end = record.completed = converted(kernel.end);
  record.device = static_cast<uint32_t>(kernel.device);
  record.context = 1;
  record.stream = 7;
  record.correlation = ++correlations;
  record.name = kernel.name;
  for (int axis = 0; axis < 3; ++axis) record.grid[axis] = record.block[axis] = 1;
  std::memcpy(buffer + used, &record, sizeof record);
  used += sizeof record;
}

}  // namespace

EXPORT int cuptiGetVersion(uint32_t* version) { *version = 130000; return kSuccess; }
EXPORT int cuptiGetResultString(int, const char** text) { *text = "pretend CUPTI"; return kSuccess; }
EXPORT int cuptiActivityRegisterCallbacks(void (*request)(uint8_t**, size_t*, size_t*),
                                          void (*complete)(void*, uint32_t, uint8_t*, size_t, size_t)) {
  requested = request;
  completed = complete;
  return kSuccess;
}
EXPORT int cuptiActivityRegisterTimestampCallback(uint64_t (*clock)()) { clock_of_host = clock; return kSuccess; }
EXPORT int cuptiActivityEnable(int kind) {
  if (kind != kConcurrentKernel) return kSuccess;
  pretend_profile(1);
  if (!buffer && requested) request();  // torch asks for records only once it has given a buffer
  return kSuccess;
}
EXPORT int cuptiActivityDisable(int kind) {
  if (kind == kConcurrentKernel) pretend_profile(0);
  return kSuccess;
}
EXPORT int cuptiActivityFlushAll(uint32_t) {
  Kernel kernel;
  while (buffer && pretend_profiled(&kernel, 1)) {
    if (used + sizeof(Record) > room) {
      completed(nullptr, 0, buffer, room, used);
      request();
    }
    write(kernel);
  }
  if (used) {
    completed(nullptr, 0, buffer, room, used);
    buffer = nullptr;
    used = 0;
  }
  return kSuccess;
}
EXPORT int cuptiActivityGetNextRecord(uint8_t* buffer, size_t used, uint8_t** record) {
  uint8_t* next = *record ? *record + sizeof(Record) : buffer;
  if (next >= buffer + used) return kMaxLimitReached;
  *record = next;
  return kSuccess;
}
EXPORT int cuptiActivityGetNumDroppedRecords(void*, uint32_t, size_t* dropped) { *dropped = 0; return kSuccess; }
