// A pretend NCCL: what one rank sends reaches the others, as files in a folder that all of them know.
//
// Written from the public documentation of NCCL's API. Bytes are moved and reduced at once, as copies are in the
// pretend runtime; the stream gets a launch, for its time. In a group all sends come before the first wait.

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

extern "C" int pretend_set_stream(void* handle, void* stream);
extern "C" int pretend_launch(void* handle);
extern "C" int pretend_capturing(void* stream);

namespace {

enum Result { kSuccess = 0, kSystemError = 2, kInvalidArgument = 4, kInvalidUsage = 5 };
enum Type { kInt8, kUint8, kInt32, kUint32, kInt64, kUint64, kFloat16, kFloat32, kFloat64, kBfloat16 };
enum Reduction { kSum, kProduct, kMax, kMin, kAverage };
constexpr size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

struct Id { char folder[128]; };

struct Communicator {
  std::string folder;
  int rank, size;
  std::atomic<bool> aborted{false};
  uint64_t collectives = 0;
  std::map<std::string, uint64_t> pairs;  // messages so far of each pair of ranks
};

struct Bfloat16 {
  uint16_t bits;
  Bfloat16(float value = 0) { uint32_t whole; std::memcpy(&whole, &value, 4); bits = static_cast<uint16_t>((whole + 0x8000) >> 16); }
  operator float() const { uint32_t whole = uint32_t{bits} << 16; float value; std::memcpy(&value, &whole, 4); return value; }
};

struct Step { std::function<int()> send, receive; };
thread_local int depth = 0;
thread_local std::vector<Step> waiting;

int post(Communicator* comm, const std::string& name, const void* data, size_t bytes) {
  std::string path = comm->folder + "/" + name, part = path + ".part";
  FILE* file = std::fopen(part.c_str(), "wb");
  if (!file) return kSystemError;
  bool whole = std::fwrite(data, 1, bytes, file) == bytes;
  return std::fclose(file) || !whole || std::rename(part.c_str(), path.c_str()) ? kSystemError : kSuccess;
}

int fetch(Communicator* comm, const std::string& name, void* data, size_t bytes) {
  std::string path = comm->folder + "/" + name;
  FILE* file;
  while (!(file = std::fopen(path.c_str(), "rb"))) {
    if (comm->aborted || access(comm->folder.c_str(), F_OK)) return kSystemError;
    timespec pause = {0, 20000};
    nanosleep(&pause, nullptr);
  }
  bool whole = std::fread(data, 1, bytes, file) == bytes;
  std::fclose(file);
  unlink(path.c_str());
  return whole ? kSuccess : kSystemError;
}

template <typename T>
void combine(void* into, const void* from, size_t count, int reduction) {
  T* left = static_cast<T*>(into);
  const T* right = static_cast<const T*>(from);
  for (size_t i = 0; i < count; ++i)
    left[i] = reduction == kProduct ? T(left[i] * right[i]) : reduction == kMax ? std::max<T>(left[i], right[i])
              : reduction == kMin   ? std::min<T>(left[i], right[i]) : T(left[i] + right[i]);
}

template <typename T>
void divide(void* data, size_t count, int by) {
  for (size_t i = 0; i < count; ++i) static_cast<T*>(data)[i] = T(static_cast<T*>(data)[i] / by);
}

void reduce(std::vector<std::vector<char>>& parts, size_t count, int type, int reduction) {
  using Combine = void (*)(void*, const void*, size_t, int);
  using Divide = void (*)(void*, size_t, int);
  static const Combine combines[] = {combine<int8_t>, combine<uint8_t>, combine<int32_t>, combine<uint32_t>, combine<int64_t>,
      combine<uint64_t>, combine<_Float16>, combine<float>, combine<double>, combine<Bfloat16>};
  static const Divide divides[] = {divide<int8_t>, divide<uint8_t>, divide<int32_t>, divide<uint32_t>, divide<int64_t>,
      divide<uint64_t>, divide<_Float16>, divide<float>, divide<double>, divide<Bfloat16>};
  for (size_t other = 1; other < parts.size(); ++other)
    combines[type](parts[0].data(), parts[other].data(), count, reduction);
  if (reduction == kAverage) divides[type](parts[0].data(), count, static_cast<int>(parts.size()));
}

int run(std::vector<Step>& steps) {
  for (auto& step : steps)
    if (int code = step.send()) return code;
  for (auto& step : steps)
    if (int code = step.receive()) return code;
  return kSuccess;
}

// Now, or at the end of the group. What a stream captures moves no bytes.
int enqueue(Communicator* comm, void* stream, Step step) {
  pretend_set_stream(comm, stream);
  pretend_launch(comm);
  if (pretend_capturing(stream)) return kSuccess;
  waiting.push_back(std::move(step));
  if (depth) return kSuccess;
  std::vector<Step> steps;
  steps.swap(waiting);
  return run(steps);
}

// Every rank's bytes for every rank: `from(peer)` is what this one sends there, `done(parts)` gets what came, by rank.
int exchange(Communicator* comm, void* stream, size_t bytes, std::function<const void*(int)> from,
             std::function<void(std::vector<std::vector<char>>&)> done) {
  std::string number = std::to_string(comm->collectives++);
  auto name = [=](int source, int target) {
    return "all-" + number + "-" + std::to_string(source) + "-" + std::to_string(target);
  };
  auto send = [=]() -> int {
    for (int peer = 0; peer < comm->size; ++peer)
      if (const void* data = from(peer))
        if (int code = post(comm, name(comm->rank, peer), data, bytes)) return code;
    return kSuccess;
  };
  auto receive = [=]() -> int {
    std::vector<std::vector<char>> parts(static_cast<size_t>(comm->size), std::vector<char>(bytes));
    for (int peer = 0; peer < comm->size; ++peer)
      if (int code = fetch(comm, name(peer, comm->rank), parts[static_cast<size_t>(peer)].data(), bytes)) return code;
    done(parts);
    return kSuccess;
  };
  return enqueue(comm, stream, {send, receive});
}

int join(Communicator** comm, int size, const std::string& folder, int rank) {
  *comm = new Communicator{folder, rank, size};
  return kSuccess;
}

std::string pair_name(Communicator* comm, int source, int target) {
  std::string pair = "from-" + std::to_string(source) + "-" + std::to_string(target);
  return pair + "-" + std::to_string(comm->pairs[pair]++);
}

}  // namespace

EXPORT int ncclGetVersion(int* version) { *version = 22809; return kSuccess; }
EXPORT const char* ncclGetErrorString(int code) { return code ? "pretend NCCL failed" : "no error"; }
EXPORT const char* ncclGetLastError(Communicator*) { return ""; }
EXPORT int ncclGetUniqueId(Id* id) {
  const char* place = std::getenv("TMPDIR");
  std::snprintf(id->folder, sizeof id->folder, "%s/pretend-nccl-XXXXXX", place && *place ? place : "/tmp");
  return mkdtemp(id->folder) ? kSuccess : kSystemError;
}
EXPORT int ncclCommInitRank(Communicator** comm, int size, Id id, int rank) { return join(comm, size, id.folder, rank); }
EXPORT int ncclCommInitRankConfig(Communicator** comm, int size, Id id, int rank, void*) {
  return join(comm, size, id.folder, rank);
}
EXPORT int ncclCommInitRankScalable(Communicator** comm, int size, int rank, int, Id* ids, void*) {
  return join(comm, size, ids[0].folder, rank);
}
EXPORT int ncclCommInitAll(Communicator** comms, int count, const int*) {
  Id id;
  if (int code = ncclGetUniqueId(&id)) return code;
  for (int rank = 0; rank < count; ++rank) join(&comms[rank], count, id.folder, rank);
  return kSuccess;
}
EXPORT int ncclCommSplit(Communicator* comm, int color, int key, Communicator** part, void*) {
  int mine[2] = {color, key};
  *part = nullptr;
  std::string name = comm->folder + "/split-" + std::to_string(comm->collectives) + "-" + std::to_string(color);
  return exchange(comm, nullptr, sizeof mine, [=](int) { return mine; }, [=](std::vector<std::vector<char>>& parts) {
    std::vector<std::pair<int, int>> ranks;  // by key, then by rank
    for (int rank = 0; rank < comm->size; ++rank) {
      int theirs[2];
      std::memcpy(theirs, parts[static_cast<size_t>(rank)].data(), sizeof theirs);
      if (theirs[0] == color) ranks.emplace_back(theirs[1], rank);
    }
    if (color < 0) return;
    std::sort(ranks.begin(), ranks.end());
    auto place = std::find(ranks.begin(), ranks.end(), std::make_pair(key, comm->rank));
    mkdir(name.c_str(), 0700);
    join(part, static_cast<int>(ranks.size()), name, static_cast<int>(place - ranks.begin()));
  });
}
EXPORT int ncclCommCount(Communicator* comm, int* count) { *count = comm->size; return kSuccess; }
EXPORT int ncclCommUserRank(Communicator* comm, int* rank) { *rank = comm->rank; return kSuccess; }
EXPORT int ncclCommGetAsyncError(Communicator*, int* code) { *code = kSuccess; return kSuccess; }
EXPORT int ncclCommFinalize(Communicator*) { return kSuccess; }
EXPORT int ncclCommDestroy(Communicator* comm) {
  rmdir(comm->folder.c_str());  // once the last message is taken
  return kSuccess;              // not deleted: a watchdog may still ask
}
EXPORT int ncclCommAbort(Communicator* comm) { comm->aborted = true; return kSuccess; }
EXPORT int ncclGroupStart() { ++depth; return kSuccess; }
EXPORT int ncclGroupEnd() {
  if (--depth) return kSuccess;
  std::vector<Step> steps;
  steps.swap(waiting);
  return run(steps);
}

EXPORT int ncclAllReduce(const void* from, void* to, size_t count, int type, int reduction, Communicator* comm, void* stream) {
  size_t bytes = count * kSizes[type];
  return exchange(comm, stream, bytes, [=](int) { return from; }, [=](std::vector<std::vector<char>>& parts) {
    reduce(parts, count, type, reduction);
    std::memcpy(to, parts[0].data(), bytes);
  });
}
EXPORT int ncclReduce(const void* from, void* to, size_t count, int type, int reduction, int root, Communicator* comm,
                      void* stream) {
  size_t bytes = count * kSizes[type];
  return exchange(comm, stream, bytes, [=](int) { return from; }, [=](std::vector<std::vector<char>>& parts) {
    reduce(parts, count, type, reduction);
    if (comm->rank == root) std::memcpy(to, parts[0].data(), bytes);
  });
}
EXPORT int ncclReduceScatter(const void* from, void* to, size_t count, int type, int reduction, Communicator* comm,
                             void* stream) {
  size_t bytes = count * kSizes[type];
  auto part = [=](int peer) { return static_cast<const void*>(static_cast<const char*>(from) + static_cast<size_t>(peer) * bytes); };
  return exchange(comm, stream, bytes, part, [=](std::vector<std::vector<char>>& parts) {
    reduce(parts, count, type, reduction);
    std::memcpy(to, parts[0].data(), bytes);
  });
}
EXPORT int ncclAllGather(const void* from, void* to, size_t count, int type, Communicator* comm, void* stream) {
  size_t bytes = count * kSizes[type];
  return exchange(comm, stream, bytes, [=](int) { return from; }, [=](std::vector<std::vector<char>>& parts) {
    for (size_t rank = 0; rank < parts.size(); ++rank) std::memcpy(static_cast<char*>(to) + rank * bytes, parts[rank].data(), bytes);
  });
}
EXPORT int ncclAlltoAll(const void* from, void* to, size_t count, int type, Communicator* comm, void* stream) {
  size_t bytes = count * kSizes[type];
  auto part = [=](int peer) { return static_cast<const void*>(static_cast<const char*>(from) + static_cast<size_t>(peer) * bytes); };
  return exchange(comm, stream, bytes, part, [=](std::vector<std::vector<char>>& parts) {
    for (size_t rank = 0; rank < parts.size(); ++rank) std::memcpy(static_cast<char*>(to) + rank * bytes, parts[rank].data(), bytes);
  });
}
EXPORT int ncclBroadcast(const void* from, void* to, size_t count, int type, int root, Communicator* comm, void* stream) {
  size_t bytes = count * kSizes[type];
  const void* own = comm->rank == root ? from : to;  // what others than the root send is thrown away
  return exchange(comm, stream, bytes, [=](int) { return own; }, [=](std::vector<std::vector<char>>& parts) {
    std::memcpy(to, parts[static_cast<size_t>(root)].data(), bytes);
  });
}
EXPORT int ncclBcast(void* data, size_t count, int type, int root, Communicator* comm, void* stream) {
  return ncclBroadcast(data, data, count, type, root, comm, stream);
}
EXPORT int ncclSend(const void* from, size_t count, int type, int peer, Communicator* comm, void* stream) {
  std::string name = pair_name(comm, comm->rank, peer);
  auto send = [=]() -> int { return post(comm, name, from, count * kSizes[type]); };
  return enqueue(comm, stream, {send, []() -> int { return kSuccess; }});
}
EXPORT int ncclRecv(void* to, size_t count, int type, int peer, Communicator* comm, void* stream) {
  std::string name = pair_name(comm, peer, comm->rank);
  auto receive = [=]() -> int { return fetch(comm, name, to, count * kSizes[type]); };
  return enqueue(comm, stream, {[]() -> int { return kSuccess; }, receive});
}
