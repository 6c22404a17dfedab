// The device with its attached runtime and its current run, and the backend table, through which
// the core uses it. The library exports one function, which returns the table.
//
// The calling thread does all work. A kernel runs when the runtime dispatches it. The runtime takes
// its steps inside wait(), or while the orchestrator waits for free space. Other threads may only
// copy and call abort().
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "kernels.hpp"
#include "memory.hpp"
#include "pto/engine/core_mask.hpp"
#include "pto/host/backend_table.hpp"
#include "pto/host/own_library.hpp"

namespace pto_backend_template {
namespace {

using pto::engine::fail;
using pto::host::guarded;
using pto::host::monotonic_ns;

constexpr int32_t kDevices = 16;
constexpr uint32_t kBlocks = PTO_MAX_BLOCKS;  // each has one AIC core and two AIV cores
constexpr uint64_t kAttendEveryNs = 20'000'000;

// The functions of the backend table; see pto/abi/backend.h and pto/host/backend_table.hpp. Those
// for memory and kernels are in the base classes.
class Device : public Memory, public Kernels {
 public:
  explicit Device(size_t memory_bytes) : Memory(memory_bytes) {}

  pto_status usable(pto_error* error) const {
    if (!is_lost_) return PTO_OK;
    return fail(error, PTO_ERROR_LOST, "the device is lost; close it and open another");
  }

  pto_status load_library(const char* path, uint64_t* library, pto_error* error) {
    return libraries_.load(path, library, error);
  }
  pto_status unload_library(uint64_t library) { return libraries_.unload(library); }

  // The variant runs in this process, so the core uses its own table. A backend that runs it on the
  // processor of a device returns the table of a proxy.
  pto_status attach(const pto_attachment* attachment, const pto_option* options,
                    uint32_t num_options, const pto_runtime_api** table, void** runtime,
                    pto_error* error) {
    *table = attachment->api;
    platform_ = make_platform();
    const pto_status status = (*table)->create(&platform_, options, num_options, runtime, error);
    if (status != PTO_OK) return status;
    api_ = *table;
    runtime_ = *runtime;
    return PTO_OK;
  }

  void detach() {
    if (api_ != nullptr) api_->destroy(runtime_);
    api_ = nullptr;
  }

  pto_status start(const pto_run* run, pto_error* error) {
    uint32_t blocks = 0;
    pto_status status = pto::host::find_blocks(run->config, kBlocks, &blocks, error);
    if (status != PTO_OK) return status;
    topology_ = pto::engine::make_topology(blocks, 1);  // all cores belong to the only scheduler
    run_ = *run;
    finished_ = {};
    faults_.clear();
    is_built_ = is_over_ = false;
    start_ns_ = attended_ns_ = monotonic_ns();
    begin_report();
    report_.blocks = blocks;
    status = api_->begin(runtime_, &run_);
    if (status == PTO_OK) {
      const std::lock_guard lock(abort_mutex_);
      is_in_run_ = true;
      return PTO_OK;
    }
    fail(error, status, "the runtime did not begin the run, and gave no reason");
    api_->last_error(runtime_, error);
    leave_run();
    return status;
  }

  void orchestration_done(int32_t result) {
    api_->orchestration_done(runtime_, result);
    is_built_ = true;
    built_ns_ = monotonic_ns();
  }

  // Orchestrations and kernels run on this thread and are not interrupted. Therefore this call can
  // last longer than the timeout: as long as the orchestration or a kernel.
  pto_status wait(int64_t timeout_ns) {
    const uint64_t deadline_ns = monotonic_ns() + static_cast<uint64_t>(timeout_ns);
    if (!is_built_) {
      if (run_.library == 0) return PTO_PENDING;
      api_->orchestrate(runtime_);
      is_built_ = true;
      built_ns_ = monotonic_ns();
    }
    while (!is_over_ && !is_lost_) {
      is_over_ = step() >= PTO_STEP_DONE;
      if (!is_over_ && monotonic_ns() >= deadline_ns) return PTO_PENDING;
    }
    return PTO_OK;
  }

  pto_status finish(pto_run_report* report, pto_error* error) {
    if (api_->last_error(runtime_, nullptr) == PTO_OK) api_->finalise(runtime_);
    const pto_status status = api_->last_error(runtime_, error);
    report_.build_ns = built_ns_ - start_ns_;
    *report = leave_run();
    return status;
  }

  // Any thread may call this. It calls the runtime only between begin() and end().
  void abort(const pto_error* cause, int32_t is_lost) {
    const std::lock_guard lock(abort_mutex_);
    if (is_lost != 0) is_lost_ = true;
    if (is_in_run_) api_->abort(runtime_, cause);
  }

  // Returns null: this backend does not report running kernels. A backend that reports them, for
  // messages about hangs and crashes, returns their page here.
  const pto_activity_page* activity() const { return nullptr; }

 private:
  static Device& of(void* handle) { return *static_cast<Device*>(handle); }

  // Returns the functions through which the runtime uses the device; see pto/abi/platform.h. There
  // is only one thread. It sleeps only when it has no work, so it needs no wake-up.
  pto_platform make_platform() {
    pto_platform table = pto::host::host_platform(this, topology_);
    table.allocate = [](void* self, size_t bytes, uint64_t* address) {
      return guarded(nullptr, [&] { *address = of(self).allocate_for(Owner::kRun, bytes); });
    };
    table.free = [](void* self, uint64_t address) {
      return guarded(nullptr, [&] { of(self).free(address, nullptr); });
    };
    table.allocate_ring = [](void* self, size_t bytes, uint64_t* address) {
      return guarded(nullptr, [&] { *address = of(self).allocate_for(Owner::kCaller, bytes); });
    };
    table.copy_in = [](void* self, uint64_t address, const void* host, size_t bytes) {
      return guarded(nullptr, [&] { of(self).copy_in(address, host, bytes, nullptr); });
    };
    table.copy_out = [](void* self, void* host, uint64_t address, size_t bytes) {
      of(self).attend();
      return guarded(nullptr, [&] { of(self).copy_out(host, address, bytes, nullptr); });
    };
    table.resolve = [](void* self, uint64_t library, const char* symbol, void** address) {
      return of(self).libraries_.resolve(library, symbol, address);
    };
    table.dispatch = [](void* self, uint32_t, const pto_dispatch* batch, uint32_t count) {
      for (uint32_t i = 0; i < count; ++i) of(self).run_kernel(batch[i]);
    };
    table.poll = [](void* self, uint32_t, pto_poll_result* result) {
      *result = std::exchange(of(self).finished_, {});
    };
    table.fault = [](void* self, uint32_t core, pto_error* error) {
      *error = of(self).faults_.at(core);
    };
    table.wait = [](void* self, const uint32_t* word, uint32_t expected) {
      return of(self).wait_for_change(word, expected);
    };
    return table;
  }

  int32_t step() {
    const int32_t outcome = api_->schedule_step(runtime_, 0);
    return outcome == PTO_STEP_IDLE ? api_->stalled(runtime_) : outcome;
  }

  // Runs the kernel on a copy of the payload, in which addresses replace the offsets.
  void run_kernel(const pto_dispatch& item) {
    uint64_t words[PTO_MAX_PAYLOAD / sizeof(uint64_t)];
    std::memcpy(words, item.payload, item.length);
    auto* payload = reinterpret_cast<pto_payload*>(words);
    uint64_t* args = pto_payload_args(payload);
    for (uint32_t i = 0; i < payload->num_args; ++i) {
      if (payload->relative_args >> i & 1) args[i] += reinterpret_cast<uint64_t>(words);
    }
    pto_error error;
    pto::engine::clear(error);
    if (call_kernel(*payload, item.core, &error) != 0) {
      error.status = PTO_ERROR_KERNEL;
      error.task = static_cast<int64_t>(payload->task);
      error.func_id = payload->func_id;
      error.core = static_cast<int32_t>(item.core);
      faults_[item.core] = error;
      pto::engine::insert(finished_.faulted, item.core);
    }
    pto::engine::insert(finished_.done, item.core);
    ++report_.tasks;
    ++report_.cores[item.core].tasks;
    report_.run_ns = monotonic_ns() - built_ns_;
  }

  // Called when the orchestrator waits for free space. The scheduler steps below create the free
  // space, on the same thread.
  pto_status wait_for_change(const uint32_t* word, uint32_t expected) {
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == expected) {
      attend();
      if (step() == PTO_STEP_ERROR) {
        const bool is_stuck = api_->last_error(runtime_, nullptr) == PTO_ERROR_DEADLOCK;
        return is_stuck ? PTO_ERROR_DEADLOCK : PTO_ERROR_ABORTED;
      }
    }
    return PTO_OK;
  }

  // Calls the caller's `attend` function at intervals, so that the caller can check for Ctrl-C and
  // its time limits.
  void attend() {
    if (run_.attend == nullptr || monotonic_ns() - attended_ns_ < kAttendEveryNs) return;
    attended_ns_ = monotonic_ns();
    run_.attend(run_.attend_context);
  }

  pto_run_report leave_run() {
    const std::lock_guard lock(abort_mutex_);
    is_in_run_ = false;
    api_->end(runtime_);
    return end_report();
  }

  pto::host::OwnLibraries libraries_;

  pto_platform platform_{};
  pto_topology topology_{};
  const pto_runtime_api* api_ = nullptr;
  void* runtime_ = nullptr;

  pto_run run_{};
  uint64_t start_ns_ = 0, built_ns_ = 0, attended_ns_ = 0;
  bool is_built_ = false;                 // the orchestration has ended
  bool is_over_ = false;                  // the runtime returned DONE or ERROR
  pto_poll_result finished_{};            // completions since the last poll
  std::map<uint32_t, pto_error> faults_;  // by core

  std::mutex abort_mutex_;  // guards is_in_run_
  bool is_in_run_ = false;
  std::atomic<bool> is_lost_{false};
};

// Reads the settings. The keys are the `native` names in the plugin's options().
size_t memory_bytes(const pto_option* options, uint32_t num_options) {
  size_t bytes = size_t{8} << 30;
  for (uint32_t i = 0; i < num_options; ++i) {
    if (std::strcmp(options[i].key, "memory_bytes") != 0) {
      refuse(PTO_ERROR_USAGE, std::string("the backend template has no option \"") +
                                  options[i].key + "\"; its only option is memory_bytes");
    }
    bytes = std::strtoull(options[i].value, nullptr, 10);
  }
  return bytes;
}

pto_status open(int32_t device_id, const pto_option* options, uint32_t num_options, void** device,
                pto_device_shape* shape, pto_error* error) {
  return guarded(error, [&] {
    if (device_id < 0 || device_id >= kDevices) {
      refuse(PTO_ERROR_USAGE, "there is no device " + std::to_string(device_id) + "; use 0 to " +
                                  std::to_string(kDevices - 1));
    }
    *device = std::make_unique<Device>(memory_bytes(options, num_options)).release();
    *shape = {kBlocks, 0, 1, 0, 0, 0, nullptr};
  });
}

void close(void* device, pto_leak_report* leaks) {
  const std::unique_ptr<Device> closing(static_cast<Device*>(device));
  closing->detach();
  if (leaks != nullptr) *leaks = closing->leaks();
}

constexpr pto_backend_api make_table() {
  pto_backend_api api = pto::host::backend_table<Device>(
      "template", PTO_BACKEND_CALLBACKS | PTO_BACKEND_SAME_PROCESS | PTO_BACKEND_PLANNING);
  api.open = open;
  api.close = close;
  return api;
}

constexpr pto_backend_api table = make_table();

}  // namespace
}  // namespace pto_backend_template

PTO_ABI_EXPORT const pto_backend_api* pto_backend_entry(void) {
  return &pto_backend_template::table;
}
