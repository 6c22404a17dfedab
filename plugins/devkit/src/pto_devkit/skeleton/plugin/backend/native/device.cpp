#include "device.hpp"

#include <cstring>
#include <string>

#include "pto/engine/core_mask.hpp"
#include "pto/host/backend_table.hpp"

namespace pto_backend_template {
namespace {

using pto::host::guarded;
using pto::host::monotonic_ns;

pto_error error_record(pto_status status) {
  pto_error error;
  pto::engine::clear(error);
  error.status = status;
  return error;
}

Device& of(void* handle) {
  return *static_cast<Device*>(handle);
}

constexpr uint64_t kAttendEveryNs = 20'000'000;

// AIC cores have the lowest numbers. All cores belong to the only scheduler.
pto_topology topology_of(const pto_call_config& config) {
  const auto most = static_cast<int32_t>(Device::kBlocks);
  if (config.block_dim < 0 || config.block_dim > most) {
    refuse(PTO_ERROR_USAGE, "block_dim is " + std::to_string(config.block_dim) +
                                "; this device has " + std::to_string(most) +
                                " blocks: use 0 (all) to " + std::to_string(most));
  }
  if (config.aicpu_thread_num < 1 || config.aicpu_thread_num > PTO_MAX_AICPU_THREADS) {
    refuse(PTO_ERROR_USAGE, "aicpu_thread_num is " + std::to_string(config.aicpu_thread_num) +
                                "; use 1 to " + std::to_string(PTO_MAX_AICPU_THREADS));
  }
  const int32_t blocks = config.block_dim == 0 ? most : config.block_dim;
  return pto::engine::make_topology(static_cast<uint32_t>(blocks), 1);
}

}  // namespace

// Returns the functions through which the runtime uses the device. There is only one thread. It
// sleeps only when it has no work, so it needs no wake-up.
pto_platform Device::make_platform() {
  pto_platform table = pto::host::host_platform(this, topology_);
  table.allocate = [](void* self, size_t bytes, uint64_t* address) {
    return guarded(nullptr, [&] { *address = of(self).memory_.allocate(bytes, Owner::kRun); });
  };
  table.free = [](void* self, uint64_t address) {
    return guarded(nullptr, [&] { of(self).memory_.free(address); });
  };
  table.allocate_ring = [](void* self, size_t bytes, uint64_t* address) {
    return guarded(nullptr, [&] { *address = of(self).memory_.allocate(bytes, Owner::kCaller); });
  };
  table.copy_in = [](void* self, uint64_t address, const void* host, size_t bytes) {
    return guarded(nullptr, [&] { of(self).memory_.copy_in(address, host, bytes); });
  };
  table.copy_out = [](void* self, void* host, uint64_t address, size_t bytes) {
    of(self).attend();
    return guarded(nullptr, [&] { of(self).memory_.copy_out(host, address, bytes); });
  };
  table.resolve = [](void*, uint64_t library, const char* symbol, void** address) {
    *address = Libraries::symbol_of(library, symbol);
    return *address != nullptr ? pto_status{PTO_OK} : PTO_ERROR_LOAD;
  };
  table.dispatch = [](void* self, uint32_t, const pto_dispatch* batch, uint32_t count) {
    of(self).dispatch(batch, count);
  };
  table.poll = [](void* self, uint32_t, pto_poll_result* result) { of(self).poll(*result); };
  table.fault = [](void* self, uint32_t core, pto_error* error) { *error = of(self).fault(core); };
  table.wait = [](void* self, const uint32_t* word, uint32_t expected) {
    return of(self).wait_for_change(word, expected);
  };
  return table;
}

// The variant runs in this process, so the core uses its own table. A backend that runs it on the
// processor of a device returns the table of a proxy.
pto_status Device::attach(const pto_attachment* attachment, const pto_option* options,
                          uint32_t num_options, const pto_runtime_api** table, void** runtime,
                          pto_error* error) {
  const pto_runtime_api* api = *table = attachment->api;
  platform_ = make_platform();
  const pto_status status = api->create(&platform_, options, num_options, runtime, error);
  if (status != PTO_OK) return status;
  api_ = api;
  runtime_ = *runtime;
  return PTO_OK;
}

void Device::detach() {
  if (api_ != nullptr) api_->destroy(runtime_);
  api_ = nullptr;
}

void Device::start(const pto_run* run, pto_error*) {
  if (is_lost_) refuse(PTO_ERROR_LOST, "the device is lost; close it and open another");
  topology_ = topology_of(*run->config);
  run_ = *run;
  report_ = {};
  report_.blocks = topology_.blocks;
  finished_ = {};
  faults_.clear();
  is_built_ = is_over_ = false;
  start_ns_ = attended_ns_ = monotonic_ns();
  memory_.begin_run();
  const pto_status status = api_->begin(runtime_, &run_);
  const std::lock_guard lock(abort_mutex_);
  is_in_run_ = true;
  if (status == PTO_OK) return;
  pto_error error = error_record(status);
  api_->last_error(runtime_, &error);
  leave_run();
  throw pto::host::BackendRefusal{error};
}

void Device::orchestration_done(int32_t result) {
  api_->orchestration_done(runtime_, result);
  is_built_ = true;
  built_ns_ = monotonic_ns();
}

// Orchestrations and kernels run on this thread and are not interrupted. Therefore this call can
// last longer than the timeout: as long as the orchestration or a kernel.
pto_status Device::wait(int64_t timeout_ns) {
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

int32_t Device::step() {
  const int32_t outcome = api_->schedule_step(runtime_, 0);
  return outcome == PTO_STEP_IDLE ? api_->stalled(runtime_) : outcome;
}

void Device::dispatch(const pto_dispatch* batch, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) run_kernel(batch[i]);
}

// Runs the kernel on a copy of the payload, in which addresses replace the offsets.
void Device::run_kernel(const pto_dispatch& item) {
  uint64_t words[PTO_MAX_PAYLOAD / sizeof(uint64_t)];
  std::memcpy(words, item.payload, item.length);
  auto* payload = reinterpret_cast<pto_payload*>(words);
  uint64_t* args = pto_payload_args(payload);
  for (uint32_t i = 0; i < payload->num_args; ++i) {
    if (payload->relative_args >> i & 1) args[i] += reinterpret_cast<uint64_t>(words);
  }
  pto_error error = error_record(PTO_ERROR_KERNEL);
  const uint64_t bit = uint64_t{1} << item.core % 64;
  if (Kernels::run(*payload, item.core, &error) != 0) {
    error.task = static_cast<int64_t>(payload->task);
    error.func_id = payload->func_id;
    error.core = static_cast<int32_t>(item.core);
    faults_[item.core] = error;
    finished_.faulted.words[item.core / 64] |= bit;
  }
  finished_.done.words[item.core / 64] |= bit;
  ++report_.tasks;
  ++report_.cores[item.core].tasks;
  report_.run_ns = monotonic_ns() - built_ns_;
}

void Device::poll(pto_poll_result& result) {
  result = finished_;
  finished_ = {};
}

// Called when the orchestrator waits for free space. The scheduler steps below create the free
// space, on the same thread.
pto_status Device::wait_for_change(const uint32_t* word, uint32_t expected) {
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
void Device::attend() {
  if (run_.attend == nullptr || monotonic_ns() - attended_ns_ < kAttendEveryNs) return;
  attended_ns_ = monotonic_ns();
  run_.attend(run_.attend_context);
}

void Device::finish(pto_run_report* report, pto_error*) {
  pto_error error{};
  if (api_->last_error(runtime_, &error) == PTO_OK && api_->finalise(runtime_) != PTO_OK) {
    api_->last_error(runtime_, &error);
  }
  const std::lock_guard lock(abort_mutex_);
  leave_run();
  report_.build_ns = built_ns_ - start_ns_;
  *report = report_;
  if (is_lost_) refuse(PTO_ERROR_LOST, "the device is lost; close it and open another");
  if (error.status != PTO_OK) throw pto::host::BackendRefusal{error};
}

// Take the lock, so that abort() does not call the runtime after this point.
void Device::leave_run() {
  is_in_run_ = false;
  api_->end(runtime_);
  memory_.end_run(report_);
}

void Device::abort(const pto_error* cause, int32_t is_lost) {
  const std::lock_guard lock(abort_mutex_);
  if (is_lost != 0) is_lost_ = true;
  if (is_in_run_) api_->abort(runtime_, cause);
}

}  // namespace pto_backend_template
