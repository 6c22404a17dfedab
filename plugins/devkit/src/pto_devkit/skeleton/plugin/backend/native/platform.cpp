#include "platform.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <vector>

#include "refusal.hpp"

namespace pto_backend_template {
namespace {

void* reserve(void*, size_t bytes) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kFlags, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

size_t touched(void*, const void* memory, size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> present((bytes + page - 1) / page);
  if (mincore(const_cast<void*>(memory), bytes, present.data()) != 0) return bytes;
  size_t count = 0;
  for (const unsigned char flags : present) count += flags & 1;
  return count * page;
}

void log(void*, int32_t level, const char* message) {
  if (level <= PTO_LOG_WARN) std::fprintf(stderr, "template: %s\n", message);
}

void add_memory(pto_platform& table) {
  table.reserve = reserve;
  table.release = [](void*, void* memory, size_t bytes) { munmap(memory, bytes); };
  table.touched = touched;
  table.planning = 1;  // reserve() is sparse, and touched() is exact
  table.allocate = [](void* self, size_t bytes, uint64_t* address) {
    return guarded(nullptr,
                   [&] { *address = device_of(self).memory.allocate(bytes, Owner::kRun); });
  };
  table.free = [](void* self, uint64_t address) {
    return guarded(nullptr, [&] { device_of(self).memory.free(address); });
  };
  table.allocate_ring = [](void* self, size_t bytes, uint64_t* address) {
    return guarded(nullptr,
                   [&] { *address = device_of(self).memory.allocate(bytes, Owner::kCaller); });
  };
  table.copy_in = [](void* self, uint64_t address, const void* host, size_t bytes) {
    return guarded(nullptr, [&] { device_of(self).memory.copy_in(address, host, bytes); });
  };
  table.copy_out = [](void* self, void* host, uint64_t address, size_t bytes) {
    device_of(self).attend();
    return guarded(nullptr, [&] { device_of(self).memory.copy_out(host, address, bytes); });
  };
  // Never called, because `checking` is 0.
  table.check_value = [](void*, uint64_t, pto_error*) { return pto_status{PTO_OK}; };
  table.check_range = [](void*, uint64_t, size_t, pto_error*) { return pto_status{PTO_OK}; };
  table.lend = [](void*, uint64_t, size_t, pto_error*) { return pto_status{PTO_OK}; };
}

void add_cores(pto_platform& table) {
  // The core loads kernels from files instead.
  table.upload_kernel = [](void*, int32_t, const void*, size_t, uint64_t*) {
    return pto_status{PTO_ERROR_UNSUPPORTED};
  };
  table.resolve = [](void*, uint64_t library, const char* symbol, void** address) {
    *address = Libraries::symbol_of(library, symbol);
    return *address != nullptr ? pto_status{PTO_OK} : PTO_ERROR_LOAD;
  };
  table.dispatch = [](void* self, uint32_t, const pto_dispatch* batch, uint32_t count) {
    device_of(self).dispatch(batch, count);
  };
  table.poll = [](void* self, uint32_t, pto_poll_result* result) { device_of(self).poll(*result); };
  table.fault = [](void* self, uint32_t core, pto_error* error) {
    *error = device_of(self).fault(core);
  };
}

// There is only one thread. It sleeps only when it has no work, so it needs no wake-up.
void add_waiting(pto_platform& table) {
  table.wake = [](void*, uint32_t) {};
  table.wait = [](void* self, const uint32_t* word, uint32_t expected) {
    return device_of(self).wait_for_change(word, expected);
  };
  table.notify = [](void*, const uint32_t*) {};
  table.now = [](void*) { return now_ns(); };
  table.yield = [](void*, uint32_t) {};
  table.order = [](void*, uint32_t, uint64_t, uint64_t) {};
  table.log = log;
}

}  // namespace

uint64_t now_ns() {
  const std::chrono::nanoseconds now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(now.count());
}

pto_platform platform_of(Device& device, const pto_topology& topology) {
  pto_platform table{};
  table.abi_version = PTO_ABI_VERSION;
  table.struct_size = sizeof table;
  table.self = &device;
  table.topology = &topology;
  add_memory(table);
  add_cores(table);
  add_waiting(table);
  return table;
}

}  // namespace pto_backend_template
