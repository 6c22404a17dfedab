// A working backend with one defect, which the environment variable PTO_BREAK names. The
// conformance kit has to find each defect. PTO_WORKING_LIBRARY is the library that it wraps. One
// device at a time has a runtime.
#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "pto/abi/backend.h"

#define DEFECTS(X)         \
  X(nothing)               \
  X(loses_a_byte)          \
  X(forgets_leaks)         \
  X(leaks)                 \
  X(skips_a_task)          \
  X(runs_a_task_twice)     \
  X(keeps_the_payload)     \
  X(reports_twice)         \
  X(ignores_the_seed)      \
  X(has_an_unstable_trace) \
  X(refuses_callbacks)     \
  X(hides_callbacks)       \
  X(does_not_check)        \
  X(hides_what_runs)       \
  X(miscounts_bytes)       \
  X(accepts_any_option)    \
  X(hides_a_block)         \
  X(hides_determinism)     \
  X(accepts_any_address)
#include "defect.hpp"

namespace {

// The defect shows in this dispatch of each run, or in this run of each device. A few short runs
// end before that.
constexpr int kUnluckyDispatch = 250;
constexpr int kUnluckyRun = 40;

const pto_backend_api* working = nullptr;
const pto_runtime_api* runtime = nullptr;
const pto_platform* platform = nullptr;
pto_runtime_api runtime_table;
pto_platform platform_table;
void* device_of_runtime = nullptr;

std::mutex mutex;  // guards all variables below
std::array<std::vector<pto_dispatch>, PTO_MAX_AICPU_THREADS> held_back;
// tasks reported as completed that were not dispatched
std::array<pto_core_mask, PTO_MAX_AICPU_THREADS> extra;
std::vector<char> repeated;  // the payload that is run twice
uint32_t repeated_core = PTO_MAX_CORES;
pto_core_mask busy;
int dispatches = 0;
int runs = 0;

bool has(const pto_core_mask& mask, uint32_t core) {
  return (mask.words[core / 64] >> core % 64 & 1) != 0;
}

void set(pto_core_mask& mask, uint32_t core, bool value) {
  const uint64_t bit = uint64_t{1} << core % 64;
  mask.words[core / 64] = (mask.words[core / 64] & ~bit) | (value ? bit : 0);
}

void dispatch(void* self, uint32_t thread, const pto_dispatch* batch, uint32_t count) {
  const std::lock_guard lock(mutex);
  for (uint32_t i = 0; i < count; ++i) {
    const bool unlucky = ++dispatches == kUnluckyDispatch;
    set(busy, batch[i].core, true);
    if (breaks(Defect::keeps_the_payload)) {
      held_back[thread].push_back(batch[i]);
    } else if (breaks(Defect::skips_a_task) && unlucky) {
      set(extra[thread], batch[i].core, true);
    } else {
      if (breaks(Defect::runs_a_task_twice) && unlucky) {
        const char* bytes = reinterpret_cast<const char*>(batch[i].payload);
        repeated.assign(bytes, bytes + batch[i].length);
        repeated_core = batch[i].core;
      }
      platform->dispatch(self, thread, &batch[i], 1);
    }
  }
}

void repeat(void* self, uint32_t thread, pto_poll_result* result) {
  if (repeated_core == PTO_MAX_CORES || !has(result->done, repeated_core)) return;
  set(result->done, repeated_core, false);
  const pto_dispatch again = {repeated_core, static_cast<uint16_t>(repeated.size()), 0,
                              reinterpret_cast<const pto_payload*>(repeated.data())};
  repeated_core = PTO_MAX_CORES;
  platform->dispatch(self, thread, &again, 1);
}

void report_idle_core(uint32_t thread, pto_poll_result* result) {
  for (uint32_t core = 0; core < platform->topology->cores; ++core) {
    if (!has(platform->topology->thread_cores[thread], core)) continue;
    if (has(busy, core) || has(result->done, core)) continue;
    set(result->done, core, true);
    return;
  }
}

void poll(void* self, uint32_t thread, pto_poll_result* result) {
  const std::lock_guard lock(mutex);
  if (!held_back[thread].empty()) {
    const auto batch = std::exchange(held_back[thread], {});
    platform->dispatch(self, thread, batch.data(), static_cast<uint32_t>(batch.size()));
  }
  platform->poll(self, thread, result);
  if (breaks(Defect::runs_a_task_twice)) repeat(self, thread, result);
  const pto_core_mask added = std::exchange(extra[thread], {});
  for (int word = 0; word < 2; ++word) result->done.words[word] |= added.words[word];
  bool any = false;
  for (uint32_t core = 0; core < PTO_MAX_CORES; ++core) {
    if (!has(result->done, core)) continue;
    set(busy, core, false);
    any = true;
  }
  if (breaks(Defect::reports_twice) && any && runs >= kUnluckyRun) {
    report_idle_core(thread, result);
  }
}

pto_status begin(void* instance, const pto_run* run) {
  {
    const std::lock_guard lock(mutex);
    dispatches = 0;
    ++runs;
    busy = {};
    platform_table = *platform;
    platform_table.dispatch = dispatch;
    platform_table.poll = poll;
    if (breaks(Defect::leaks)) {
      platform_table.allocate = [](void*, size_t bytes, uint64_t* address) {
        pto_error error;
        return working->allocate(device_of_runtime, bytes, address, &error);
      };
    }
  }
  return runtime->begin(instance, run);
}

pto_status create(const pto_platform* given, const pto_option* options, uint32_t count, void** out,
                  pto_error* error) {
  platform = given;
  platform_table = *given;
  runs = 0;
  return runtime->create(&platform_table, options, count, out, error);
}

pto_status attach(void* device, const pto_attachment* attachment, const pto_option* options,
                  uint32_t count, const pto_runtime_api** table, void** out, pto_error* error) {
  device_of_runtime = device;
  runtime = attachment->api;
  runtime_table = *runtime;
  runtime_table.create = create;
  runtime_table.begin = begin;
  pto_attachment wrapped = *attachment;
  wrapped.api = &runtime_table;
  return working->attach(device, &wrapped, options, count, table, out, error);
}

pto_status open(int32_t id, const pto_option* options, uint32_t count, void** device,
                pto_device_shape* shape, pto_error* error) {
  std::vector<pto_option> kept;
  for (uint32_t i = 0; i < count; ++i) {
    const std::string_view key = options[i].key;
    pto_option option = options[i];
    if (breaks(Defect::ignores_the_seed) && key == "seed") option.value = "1";
    if (breaks(Defect::does_not_check) && key == "check") continue;
    if (breaks(Defect::accepts_any_option) && key.substr(0, 3) == "no_") continue;
    kept.push_back(option);
  }
  const auto num_kept = static_cast<uint32_t>(kept.size());
  const pto_status status = working->open(id, kept.data(), num_kept, device, shape, error);
  if (breaks(Defect::hides_determinism)) shape->is_deterministic = 0;
  if (breaks(Defect::hides_a_block)) --shape->blocks;
  return status;
}

void close(void* device, pto_leak_report* leaks) {
  working->close(device, leaks);
  if (breaks(Defect::forgets_leaks)) *leaks = {};
}

pto_status free_memory(void* device, uint64_t address, pto_error* error) {
  const pto_status status = working->free(device, address, error);
  return breaks(Defect::accepts_any_address) ? PTO_OK : status;
}

pto_status copy_out(void* device, void* host, uint64_t address, size_t bytes, pto_error* error) {
  const pto_status status = working->copy_out(device, host, address, bytes, error);
  if (breaks(Defect::loses_a_byte) && address % 2 == 1 && bytes > 1) {
    static_cast<char*>(host)[bytes - 1] ^= 1;
  }
  return status;
}

pto_status load_kernel(void* device, const pto_kernel_source* source, uint64_t* address,
                       pto_error* error) {
  if (breaks(Defect::refuses_callbacks) && source->callback != nullptr) {
    return error->status = PTO_ERROR_UNSUPPORTED;
  }
  return working->load_kernel(device, source, address, error);
}

pto_status finish(void* device, pto_run_report* report, pto_error* error) {
  static std::atomic<uint64_t> calls{0};
  const pto_status status = working->finish(device, report, error);
  if (breaks(Defect::has_an_unstable_trace)) report->trace_hash ^= ++calls;
  if (breaks(Defect::miscounts_bytes)) ++report->bytes_in;
  return status;
}

const pto_activity_page* activity(void* device) {
  static const pto_activity_page blank = [] {
    pto_activity_page page{};
    page.magic = PTO_ACTIVITY_MAGIC;
    page.version = PTO_ACTIVITY_VERSION;
    page.slots = 1;
    return page;
  }();
  return breaks(Defect::hides_what_runs) ? &blank : working->activity(device);
}

}  // namespace

PTO_ABI_EXPORT const pto_backend_api* pto_backend_entry() {
  static const pto_backend_api table = [] {
    void* library = dlopen(PTO_WORKING_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    working = reinterpret_cast<pto_backend_entry_fn>(dlsym(library, PTO_BACKEND_ENTRY_SYMBOL))();
    pto_backend_api broken = *working;
    broken.name = "broken";
    if (breaks(Defect::hides_callbacks)) broken.capabilities &= ~PTO_BACKEND_CALLBACKS;
    broken.attach = attach;
    broken.open = open;
    broken.close = close;
    broken.free = free_memory;
    broken.copy_out = copy_out;
    broken.load_kernel = load_kernel;
    broken.finish = finish;
    broken.activity = activity;
    return broken;
  }();
  return &table;
}
