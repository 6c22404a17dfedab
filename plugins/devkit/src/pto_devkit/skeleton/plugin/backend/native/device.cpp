#include "device.hpp"

#include <cstring>
#include <string>

#include "platform.hpp"
#include "refusal.hpp"

namespace pto_backend_template {
namespace {

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
  pto_topology topology{};
  topology.blocks = static_cast<uint32_t>(config.block_dim == 0 ? most : config.block_dim);
  topology.cores = 3 * topology.blocks;
  topology.schedulers = 1;
  for (uint32_t core = 0; core < topology.cores; ++core) {
    topology.core_type[core] = core < topology.blocks ? PTO_CORE_AIC : PTO_CORE_AIV;
    topology.thread_cores[0].words[core / 64] |= uint64_t{1} << core % 64;
  }
  return topology;
}

}  // namespace

pto_status Device::attach(const pto_runtime_api& api, const pto_option* options,
                          uint32_t num_options, void** runtime, pto_error* error) {
  platform_ = platform_of(*this, topology_);
  const pto_status status = api.create(&platform_, options, num_options, runtime, error);
  if (status != PTO_OK) return status;
  api_ = &api;
  runtime_ = *runtime;
  return PTO_OK;
}

void Device::detach() {
  if (api_ != nullptr) api_->destroy(runtime_);
  api_ = nullptr;
}

void Device::start(const pto_run& run) {
  if (is_lost_) refuse(PTO_ERROR_LOST, "the device is lost; close it and open another");
  topology_ = topology_of(*run.config);
  run_ = run;
  report_ = {};
  report_.blocks = topology_.blocks;
  finished_ = {};
  faults_.clear();
  is_built_ = is_over_ = false;
  start_ns_ = attended_ns_ = now_ns();
  memory.begin_run();
  const pto_status status = api_->begin(runtime_, &run_);
  const std::lock_guard lock(abort_mutex_);
  is_in_run_ = true;
  if (status == PTO_OK) return;
  pto_error error = error_record(status, "");
  api_->last_error(runtime_, &error);
  leave_run();
  throw Refusal{error};
}

void Device::orchestration_done(int32_t result) {
  api_->orchestration_done(runtime_, result);
  is_built_ = true;
  built_ns_ = now_ns();
}

// Orchestrations and kernels run on this thread and are not interrupted. Therefore this call can
// last longer than the timeout: as long as the orchestration or a kernel.
pto_status Device::wait(int64_t timeout_ns) {
  const uint64_t deadline_ns = now_ns() + static_cast<uint64_t>(timeout_ns);
  if (!is_built_) {
    if (run_.library == 0) return PTO_PENDING;
    api_->orchestrate(runtime_);
    is_built_ = true;
    built_ns_ = now_ns();
  }
  while (!is_over_ && !is_lost_) {
    is_over_ = step() >= PTO_STEP_DONE;
    if (!is_over_ && now_ns() >= deadline_ns) return PTO_PENDING;
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
  pto_error error = error_record(PTO_ERROR_KERNEL, "");
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
  report_.run_ns = now_ns() - built_ns_;
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
  if (run_.attend == nullptr || now_ns() - attended_ns_ < kAttendEveryNs) return;
  attended_ns_ = now_ns();
  run_.attend(run_.attend_context);
}

void Device::finish(pto_run_report& report) {
  pto_error error{};
  if (api_->last_error(runtime_, &error) == PTO_OK && api_->finalise(runtime_) != PTO_OK) {
    api_->last_error(runtime_, &error);
  }
  const std::lock_guard lock(abort_mutex_);
  leave_run();
  report_.build_ns = built_ns_ - start_ns_;
  report = report_;
  if (is_lost_) refuse(PTO_ERROR_LOST, "the device is lost; close it and open another");
  if (error.status != PTO_OK) throw Refusal{error};
}

// Take the lock, so that abort() does not call the runtime after this point.
void Device::leave_run() {
  is_in_run_ = false;
  api_->end(runtime_);
  memory.end_run(report_);
}

void Device::abort(const pto_error* cause, bool is_lost) {
  const std::lock_guard lock(abort_mutex_);
  if (is_lost) is_lost_ = true;
  if (is_in_run_) api_->abort(runtime_, cause);
}

}  // namespace pto_backend_template
