// Builds the backend table (pto_backend_api) of a class, and the parts of a platform table that are
// the same for all backends whose runtime runs in this process.
//
// backend_table<Device>() fills in all functions of the table except open and close. Each calls the
// member function of the same name with the same arguments, without the handle. It returns a
// pto_status or nothing, and may throw a Refusal. No exception leaves the table.
//
// If `Device` has a public member function `pto_status usable(pto_error*) const`, its failure is
// the result of all calls except wait, abort, activity and close.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <type_traits>

#include "pto/abi/backend.h"
#include "pto/engine/error_record.hpp"

namespace pto::host {

// A refused call: the record of an error, thrown by the function that detects the error.
struct BackendRefusal {
  pto_error error;
};

[[noreturn]] inline void refuse(pto_status status, const std::string& message) {
  BackendRefusal refusal;
  engine::fail(&refusal.error, status, "%s", message.c_str());
  throw refusal;
}

// Return the status that `call` returns, or PTO_OK if it returns nothing. If it throws, write the
// error to `error`, unless that is null, and return its status.
template <class Call>
pto_status guarded(pto_error* error, Call call) noexcept {
  try {
    if constexpr (std::is_void_v<decltype(call())>) {
      call();
      return PTO_OK;
    } else {
      return call();
    }
  } catch (const BackendRefusal& refusal) {
    if (error != nullptr) *error = refusal.error;
    return refusal.error.status;
  } catch (const std::bad_alloc&) {
    return engine::fail(error, PTO_ERROR_MEMORY, "host memory is exhausted; close other programs");
  } catch (const std::system_error& failure) {
    if (failure.code() != std::errc::resource_unavailable_try_again)
      return engine::fail(error, PTO_ERROR_INTERNAL, "the backend failed: %s", failure.what());
    return engine::fail(error, PTO_ERROR_CAPACITY,
                        "the backend cannot start a thread: %s; end other processes, or raise the "
                        "limit of processes and threads: of this user (ulimit -u) or of a control "
                        "group (pids.max)",
                        failure.what());
  } catch (const std::exception& failure) {
    return engine::fail(error, PTO_ERROR_INTERNAL, "the backend failed: %s", failure.what());
  }
}

// Functions of a table that call a member function of the object behind the handle, a Device.
template <class Device, auto kMember>
struct Forward;
template <class Device, class Base, class Result, class... Arguments,
          Result (Base::*kMember)(Arguments...)>
struct Forward<Device, kMember> {
  static pto_status unchecked(void* device, Arguments... arguments) {
    return guarded(error_of(arguments...),
                   [&] { return (static_cast<Device*>(device)->*kMember)(arguments...); });
  }
  static pto_status call(void* device, Arguments... arguments) {
    if constexpr (requires { &Device::usable; }) {
      pto_error* const error = error_of(arguments...);
      const pto_status status =
          guarded(error, [&] { return static_cast<const Device*>(device)->usable(error); });
      if (status != PTO_OK) return status;
    }
    return unchecked(device, arguments...);
  }
  // For functions of the table that return nothing.
  static void notify(void* device, Arguments... arguments) { call(device, arguments...); }
  static void notify_unchecked(void* device, Arguments... arguments) {
    unchecked(device, arguments...);
  }

 private:
  static pto_error* error_of(auto... arguments) {
    pto_error* error = nullptr;
    [[maybe_unused]] const auto look = [&](auto argument) {
      if constexpr (std::is_same_v<decltype(argument), pto_error*>) error = argument;
    };
    (look(arguments), ...);
    return error;
  }
};

template <class Device>
constexpr pto_backend_api backend_table(const char* name, uint32_t capabilities) {
  pto_backend_api api{};
  api.abi_version = PTO_ABI_VERSION;
  api.struct_size = sizeof api;
  api.name = name;
  api.capabilities = capabilities;
  api.allocate = Forward<Device, &Device::allocate>::call;
  api.free = Forward<Device, &Device::free>::call;
  api.copy_in = Forward<Device, &Device::copy_in>::call;
  api.copy_out = Forward<Device, &Device::copy_out>::call;
  api.load_kernel = Forward<Device, &Device::load_kernel>::call;
  api.unload_kernel = Forward<Device, &Device::unload_kernel>::call;
  api.load_library = Forward<Device, &Device::load_library>::call;
  api.unload_library = Forward<Device, &Device::unload_library>::call;
  api.attach = Forward<Device, &Device::attach>::call;
  api.detach = Forward<Device, &Device::detach>::notify;
  api.start = Forward<Device, &Device::start>::call;
  api.orchestration_done = Forward<Device, &Device::orchestration_done>::notify;
  api.wait = Forward<Device, &Device::wait>::unchecked;
  api.finish = Forward<Device, &Device::finish>::call;
  api.abort = Forward<Device, &Device::abort>::notify_unchecked;
  api.activity = [](void* device) { return static_cast<const Device*>(device)->activity(); };
  if constexpr (requires { &Device::wait_stream; })
    api.wait_stream = Forward<Device, &Device::wait_stream>::call;
  return api;
}

// Sparse memory for the structures of a runtime. Huge pages are disabled: with them, writing one
// word would allocate two megabytes, and touched() would count them all.
inline void* reserve_pages(void*, size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  madvise(memory, bytes, MADV_NOHUGEPAGE);
  return memory;
}

// Count mapped pages: the system maps a page of a sparse mapping at the first access. Memory for
// which the system returns no information counts as touched. A page in swap space does not count.
inline size_t touched_bytes(void*, const void* memory, size_t bytes) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  auto* first = static_cast<char*>(const_cast<void*>(memory));
  size_t count = 0;
  for (size_t done = 0; done < bytes;) {
    unsigned char present[4096];
    const size_t length = std::min(bytes - done, page * sizeof present);
    if (mincore(first + done, length, present) != 0) std::memset(present, 1, sizeof present);
    for (size_t i = 0; i < (length + page - 1) / page; ++i) count += present[i] & 1;
    done += length;
  }
  return count * page;
}

// Check the shape that a run requests from a device with `most` blocks, and return its number of
// blocks. A null `config` requests all of them. `advice` continues the message about too many.
inline pto_status find_blocks(const pto_call_config* config, uint32_t most, uint32_t* blocks,
                              pto_error* error, const char* advice = "") {
  const int32_t asked = config != nullptr ? config->block_dim : 0;
  const int32_t threads = config != nullptr ? config->aicpu_thread_num : 1;
  *blocks = asked > 0 ? static_cast<uint32_t>(asked) : most;
  if (asked < 0 || *blocks > most) {
    return engine::fail(
        error, PTO_ERROR_USAGE,
        "block_dim is %d, but this device has %u blocks; use 0 (all blocks) to %u%s", asked, most,
        most, advice);
  }
  if (threads >= 1 && threads <= PTO_MAX_AICPU_THREADS) return PTO_OK;
  return engine::fail(error, PTO_ERROR_USAGE, "aicpu_thread_num is %d; use 1 to %d", threads,
                      PTO_MAX_AICPU_THREADS);
}

inline uint64_t monotonic_ns() {
  const std::chrono::nanoseconds now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(now.count());
}

// Return a platform table for a runtime in this process, without the functions that depend on the
// device: memory of the device, dispatch, poll, fault, resolve and wait. Its checks accept every
// address, and it never needs a wake-up.
inline pto_platform host_platform(void* self, const pto_topology& topology) {
  pto_platform table{};
  table.abi_version = PTO_ABI_VERSION;
  table.struct_size = sizeof table;
  table.self = self;
  table.topology = &topology;
  table.planning = 1;  // reserve() is sparse, and touched() is exact
  table.reserve = reserve_pages;
  table.release = [](void*, void* memory, size_t bytes) { munmap(memory, bytes); };
  table.touched = touched_bytes;
  table.check_value = [](void*, uint64_t, pto_error*) { return pto_status{PTO_OK}; };
  table.check_range = [](void*, uint64_t, size_t, pto_error*) { return pto_status{PTO_OK}; };
  table.lend = [](void*, uint64_t, size_t, pto_error*) { return pto_status{PTO_OK}; };
  // The core loads kernels from files instead.
  table.upload_kernel = [](void*, int32_t, const void*, size_t, uint64_t*) {
    return pto_status{PTO_ERROR_UNSUPPORTED};
  };
  table.wake = [](void*, uint32_t) {};
  table.notify = [](void*, const uint32_t*) {};
  table.now = [](void*) { return monotonic_ns(); };
  table.yield = [](void*, uint32_t) {};
  table.order = [](void*, uint32_t, uint64_t, uint64_t) {};
  table.log = [](void*, int32_t level, const char* message) {
    if (level <= PTO_LOG_WARN) std::fprintf(stderr, "pto: %s\n", message);
  };
  return table;
}

}  // namespace pto::host
