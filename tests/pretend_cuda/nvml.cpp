// A pretend NVML: the functions that gpubench asks, of as many GPUs as the pretend runtime has.
//
// Written from the public documentation of NVML's API. A GPU's clocks fall when it is told to slow down, and its energy
// counter moves in ticks. A test tells it by pretend_nvml_set(device, name, value), as the environment does at first:
//
//   PRETEND_NVML_SM_MHZ, _MEMORY_MHZ  clocks now (1980, 2619)
//   PRETEND_NVML_REASONS              bits of why the clocks are held down (0)
//   PRETEND_NVML_WATTS, _LIMIT_WATTS  power, and its limit (300, 700)
//   PRETEND_NVML_TICK_MS              between two steps of the energy counter (100)
//   PRETEND_NVML_POWER_NS, _HEAT_NS   how long power and heat have held the clocks down (0)
//   PRETEND_NVML_PIDS                 process ids listed beside the caller's own (0)
//   PRETEND_NVML_NVLINK               whether NVLink joins the GPUs (1)

#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

enum Error { kSuccess = 0, kUninitialized = 1, kInvalidArgument = 2, kNotSupported = 3, kNotFound = 6, kInsufficientSize = 7 };
const std::map<std::string, int64_t> kUsual = {{"SM_MHZ", 1980}, {"MEMORY_MHZ", 2619}, {"REASONS", 0}, {"WATTS", 300},
    {"LIMIT_WATTS", 700}, {"TICK_MS", 100}, {"POWER_NS", 0}, {"HEAT_NS", 0}, {"PIDS", 0}, {"NVLINK", 1}};
std::mutex lock;
std::map<std::pair<int, std::string>, int64_t> changed;
bool initialized = false;

int64_t environment(const std::string& name, int64_t usual) {
  const char* text = std::getenv(name.c_str());
  return text && *text ? std::atoll(text) : usual;
}
int64_t get(int device, const std::string& name) {
  std::lock_guard<std::mutex> guard(lock);
  auto found = changed.find({device, name});
  return found == changed.end() ? environment("PRETEND_NVML_" + name, kUsual.at(name)) : found->second;
}
int64_t devices() { return environment("PRETEND_CUDA_DEVICES", 1); }
int index_of(void* handle) { return static_cast<int>(reinterpret_cast<intptr_t>(handle)) - 1; }
int check() { return initialized ? kSuccess : kUninitialized; }

}  // namespace

EXPORT int pretend_nvml_set(int device, const char* name, int64_t value) {
  if (!kUsual.count(name)) return kNotFound;
  std::lock_guard<std::mutex> guard(lock);
  changed[{device, name}] = value;
  return kSuccess;
}

EXPORT int nvmlInitWithFlags(unsigned) {
  initialized = true;
  return kSuccess;
}
EXPORT int nvmlInit_v2() { return nvmlInitWithFlags(0); }
EXPORT int nvmlShutdown() { initialized = false; return kSuccess; }
EXPORT const char* nvmlErrorString(int code) { return code ? "pretend NVML: not known" : "no error"; }
EXPORT int nvmlSystemGetDriverVersion(char* text, unsigned length) {
  std::snprintf(text, length, "580.00.01");
  return check();
}
EXPORT int nvmlDeviceGetHandleByUUID(const char* uuid, void** handle) {
  if (int code = check()) return code;
  for (int device = 0; device < devices(); ++device) {
    char name[64];  // as the pretend runtime's cudaDeviceProp.uuid
    unsigned byte = 0x10u + static_cast<unsigned>(device), four = byte * 0x01010101u, two = byte * 0x0101u;
    std::snprintf(name, sizeof name, "GPU-%08x-%04x-%04x-%04x-%08x%04x", four, two, two, two, four, two);
    if (!std::strcmp(name, uuid)) {
      *handle = reinterpret_cast<void*>(static_cast<intptr_t>(device) + 1);
      return kSuccess;
    }
  }
  return kNotFound;
}

// For torch itself, which lists a full device's processes and asks for nothing else here.
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char* place, void** handle) {
  unsigned domain, bus, device;
  bool known = std::sscanf(place, "%x:%x:%x", &domain, &bus, &device) == 3 && bus && static_cast<int64_t>(bus) <= devices();
  if (!known) return kNotFound;
  *handle = reinterpret_cast<void*>(static_cast<intptr_t>(bus));  // the pretend runtime counts buses from 1
  return check();
}
struct OldProcess { unsigned pid; unsigned long long bytes; };
EXPORT int nvmlDeviceGetComputeRunningProcesses(void*, unsigned* count, OldProcess* processes) {
  if (*count < 1) return kInsufficientSize;
  *count = 1;
  processes[0] = {static_cast<unsigned>(getpid()), 1ull << 28};
  return check();
}
EXPORT int nvmlDeviceGetGpuFabricInfoV(void*, void*) { return kNotSupported; }
EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(void*, unsigned, int*) { return kNotSupported; }
EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(void*, unsigned, void*) { return kNotSupported; }
EXPORT int nvmlSystemGetCudaDriverVersion_v2(int* version) { *version = 13000; return kSuccess; }

EXPORT int nvmlDeviceGetClockInfo(void* handle, int type, unsigned* mhz) {
  if (type != 1 && type != 2) return kNotSupported;
  *mhz = static_cast<unsigned>(get(index_of(handle), type == 1 ? "SM_MHZ" : "MEMORY_MHZ"));
  return check();
}
EXPORT int nvmlDeviceGetCurrentClocksEventReasons(void* handle, unsigned long long* bits) {
  *bits = static_cast<unsigned long long>(get(index_of(handle), "REASONS"));
  return check();
}
struct Violation { unsigned long long reference, violation; };
EXPORT int nvmlDeviceGetViolationStatus(void* handle, int policy, Violation* time) {
  if (policy != 0 && policy != 1) return kNotSupported;
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  time->reference = static_cast<unsigned long long>(now.tv_sec) * 1000000ull;
  time->violation = static_cast<unsigned long long>(get(index_of(handle), policy == 0 ? "POWER_NS" : "HEAT_NS"));
  return check();
}
EXPORT int nvmlDeviceGetTotalEnergyConsumption(void* handle, unsigned long long* millijoules) {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  int64_t ms = static_cast<int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1000000;
  int64_t tick = get(index_of(handle), "TICK_MS");
  *millijoules = static_cast<unsigned long long>(ms / tick * tick * get(index_of(handle), "WATTS"));
  return check();
}
EXPORT int nvmlDeviceGetPowerManagementLimit(void* handle, unsigned* milliwatts) {
  *milliwatts = static_cast<unsigned>(1000 * get(index_of(handle), "LIMIT_WATTS"));
  return check();
}
EXPORT int nvmlDeviceGetP2PStatus(void* handle, void*, int capability, int* status) {
  *status = capability == 2 && !get(index_of(handle), "NVLINK") ? 4 : 0;
  return check();
}
struct Process { unsigned pid; unsigned long long bytes; unsigned instance, compute; };
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void* handle, unsigned* count, Process* processes) {
  unsigned room = *count, others = static_cast<unsigned>(get(index_of(handle), "PIDS"));
  *count = others + 1;
  if (room < *count) return kInsufficientSize;
  for (unsigned i = 0; i <= others; ++i)
    processes[i] = {i ? 0x40000000u + i : static_cast<unsigned>(getpid()), 1ull << 28, ~0u, ~0u};
  return check();
}
