// Requests of the driver: memory, libraries, launches.
#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <thread>

#include "device_process/silicon.hpp"

namespace silicon {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kMachine = EM_AARCH64;
#endif

// Processor 0 runs the operating system, processor 1 does not exist.
constexpr uint32_t kAicpuMask = 0xFC;

constexpr int kFewClusters = 20;
constexpr int kManyClusters = 24;

// Returns a bit for each cluster that the chip lacks.
uint32_t choose_masked(std::minstd_rand& random, uint32_t blocks) {
  const int missing = PTO_A2A3_CLUSTERS - (blocks <= kFewClusters ? kFewClusters : kManyClusters);
  uint32_t masked = 0;
  while (__builtin_popcount(masked) < missing) masked |= 1u << random() % PTO_A2A3_CLUSTERS;
  return masked;
}

// One launch: its threads share this record, and the last one to end sends the answer.
struct Launch {
  uint64_t tag;
  std::atomic<uint32_t> left;
  std::atomic<uint32_t> result{0};
  std::vector<uint8_t> arguments;
  const Link& link;
  std::atomic<uint32_t>& launches;

  Launch(const silicon_request& request, uint32_t threads, const Link& to,
         std::atomic<uint32_t>& counter)
      : tag(request.tag),
        left(threads),
        arguments(request.arguments, request.arguments + request.argument_bytes),
        link(to),
        launches(counter) {}

  void end(uint32_t returned) {
    uint32_t none = 0;
    if (returned != 0) result.compare_exchange_strong(none, returned);
    if (left.fetch_sub(1) != 1) return;
    silicon_answer answer{};
    answer.kind = SILICON_COMPLETED;
    answer.tag = tag;
    answer.result = result.load();
    launches.fetch_sub(1);
    link.send(answer);
  }
};

// Calls `body` on a thread of its own, which is at `where`, with a copy of the arguments.
template <class Body>
void start_thread(const std::shared_ptr<Launch>& launch, const Place& where, Body body) {
  std::thread([launch, where, body] {
    place = where;
    const size_t words = launch->arguments.size() / sizeof(uint64_t) + 1;
    std::vector<uint64_t> copy(words);
    std::memcpy(copy.data(), launch->arguments.data(), launch->arguments.size());
    launch->end(body(copy.data()));
  }).detach();
}

using AicpuEntry = uint32_t (*)(void* arguments);
using AicoreEntry = void (*)(const void* arguments);

void* find(uint64_t handle, const std::string& symbol) {
  return dlsym(reinterpret_cast<void*>(handle), symbol.c_str());
}

}  // namespace

Chip::Chip(const Settings& settings)
    : settings_(settings),
      random_(settings.seed),
      masked_(choose_masked(random_, settings.blocks)),
      registers_(masked_),
      link_(settings.socket) {
  report_crashes(settings.socket);
}

void Chip::serve() {
  silicon_request request;
  int descriptor = -1;
  while (link_.receive(request, descriptor) > 0 && request.kind != SILICON_EXIT) {
    answer(request, descriptor);
  }
  if (launches_.load() != 0) _exit(0);  // their threads still run
}

void Chip::answer(const silicon_request& request, int descriptor) {
  launches_.load();  // orders ended launches before this request, which a sanitizer cannot see
  switch (request.kind) {
    case SILICON_MAP:
      return map(request, descriptor);
    case SILICON_QUERY:
      return link_.send(info(request));
    case SILICON_LOAD:
    case SILICON_CODE:
      return load(request);
    case SILICON_AICPU:
      return launch_aicpu(request);
    case SILICON_AICORE:
      return launch_aicore(request);
    default:
      return fail(request, "unknown request");
  }
}

void Chip::map(const silicon_request& request, int descriptor) {
  void* wanted = reinterpret_cast<void*>(request.address);
  void* mapped = mmap(wanted, request.bytes, PROT_READ | PROT_WRITE | PROT_EXEC,
                      MAP_SHARED | MAP_FIXED_NOREPLACE, descriptor, 0);
  close(descriptor);
  if (mapped != wanted) {
    if (mapped != MAP_FAILED) munmap(mapped, request.bytes);
    return fail(request, std::string("cannot map device memory: ") + std::strerror(errno));
  }
  accept(request);
}

// The bytes become a memory file, because the loader reads files.
void Chip::load(const silicon_request& request) {
  const int file = memfd_create("device_code", MFD_CLOEXEC);
  const auto* bytes = reinterpret_cast<const char*>(request.address);
  for (uint64_t done = 0; done < request.bytes;) {
    const ssize_t written = write(file, bytes + done, request.bytes - done);
    if (written <= 0) return fail(request, std::string("cannot copy: ") + std::strerror(errno));
    done += static_cast<uint64_t>(written);
  }
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // `file` stays open: a unique path
  if (library == nullptr) return fail(request, dlerror());
  accept(request, reinterpret_cast<uint64_t>(library));
}

// Returns the processor of each thread, in a random order.
std::vector<int> Chip::processors(uint32_t threads) {
  std::vector<int> usable;
  for (int i = 0; i < 32; ++i) {
    if ((kAicpuMask >> i & 1) != 0) usable.push_back(i);
  }
  std::shuffle(usable.begin(), usable.end(), random_);
  std::vector<int> chosen;
  for (uint32_t i = 0; i < threads; ++i) chosen.push_back(usable[i % usable.size()]);
  if (settings_.has_duplicates) {
    for (uint32_t i = 0; i < threads / 2; ++i) chosen[random_() % threads] = chosen[i];
  }
  return chosen;
}

void Chip::launch_aicpu(const silicon_request& request) {
  const auto entry = reinterpret_cast<AicpuEntry>(find(request.handle, request.symbol));
  if (entry == nullptr) return fail(request, std::string("no symbol ") + request.symbol);
  const auto launch = std::make_shared<Launch>(request, request.threads, link_, launches_);
  launches_.fetch_add(1);
  accept(request);
  const uint32_t dead = request.threads > settings_.dead_threads ? settings_.dead_threads : 0;
  const std::vector<int> chosen = processors(request.threads);
  for (uint32_t i = dead; i < request.threads; ++i) {
    Place where;
    where.kind = SILICON_ON_AICPU;
    where.tag = request.tag;
    where.processor = chosen[i];
    start_thread(launch, where, [entry](void* arguments) { return entry(arguments); });
  }
}

void Chip::launch_aicore(const silicon_request& request) {
  const std::string symbol = request.symbol;
  const auto aic = reinterpret_cast<AicoreEntry>(find(request.handle, symbol + "_0_mix_aic"));
  const auto aiv = reinterpret_cast<AicoreEntry>(find(request.handle, symbol + "_0_mix_aiv"));
  if (aic == nullptr || aiv == nullptr) return fail(request, "no entries " + symbol);
  if (request.threads < 1 || request.threads > settings_.blocks) {
    return fail(request, "the chip has " + std::to_string(settings_.blocks) + " blocks");
  }
  std::vector<uint32_t> clusters;
  for (uint32_t c = 0; c < PTO_A2A3_CLUSTERS; ++c) {
    if ((masked_ >> c & 1) == 0) clusters.push_back(c);
  }
  std::shuffle(clusters.begin(), clusters.end(), random_);
  const auto launch = std::make_shared<Launch>(request, 3 * request.threads, link_, launches_);
  launches_.fetch_add(1);
  std::vector<Place> places;
  for (uint32_t i = 0; i < 3 * request.threads; ++i) {
    Place where;
    const uint32_t cluster = clusters[i / 3], part = i % 3;
    where.kind = part == 0 ? SILICON_ON_AIC : SILICON_ON_AIV;
    where.tag = request.tag;
    where.block = i / 3;
    where.blocks = request.threads;
    where.subblock = part == 0 ? 0 : part - 1;
    where.physical = part == 0 ? cluster : PTO_A2A3_CLUSTERS + 2 * cluster + where.subblock;
    where.page = registers_.page(where.physical);
    registers_.reset(where.physical);
    if (i + 1 != settings_.dead_core) places.push_back(where);
  }
  accept(request);
  std::shuffle(places.begin(), places.end(), random_);
  for (const Place& where : places) {
    const AicoreEntry entry = where.kind == SILICON_ON_AIC ? aic : aiv;
    start_thread(launch, where, [entry](const void* arguments) { return entry(arguments), 0u; });
  }
}

silicon_info Chip::info(const silicon_request& request) const {
  silicon_info info{};
  info.kind = SILICON_DONE;
  info.pid = static_cast<uint32_t>(getpid());
  info.tag = request.tag;
  info.machine = kMachine;
  info.blocks = settings_.blocks;
  info.cluster_mask = ((1u << PTO_A2A3_CLUSTERS) - 1) & ~masked_;
  info.aicpu_mask = kAicpuMask;
  info.register_base = registers_.base();
  info.register_bytes = PTO_A2A3_REGISTER_BYTES;
  for (uint32_t i = 0; i < PTO_A2A3_PHYSICAL_CORES; ++i) info.registers[i] = registers_.page(i);
  return info;
}

void Chip::fail(const silicon_request& request, const std::string& reason) const {
  silicon_answer answer{};
  answer.kind = SILICON_FAILED;
  answer.tag = request.tag;
  std::snprintf(answer.message, sizeof answer.message, "%s", reason.c_str());
  link_.send(answer);
}

void Chip::accept(const silicon_request& request, uint64_t handle) const {
  silicon_answer answer{};
  answer.kind = SILICON_DONE;
  answer.tag = request.tag;
  answer.handle = handle;
  link_.send(answer);
}

}  // namespace silicon
