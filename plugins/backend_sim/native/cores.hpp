// The simulated cores: registers, payload buffers, and the execution of kernels.
//
// The register protocol of pto/abi/payload.h orders all accesses. A core belongs to its scheduler
// until dispatch() writes DATA_MAIN_BASE. Then the core belongs to the thread that runs it. When
// COND reports the end of the kernel, it belongs to the scheduler again. No lock guards a core.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "dump.hpp"
#include "kernel_hooks.hpp"
#include "memory/device_memory.hpp"
#include "pto/abi/activity.h"
#include "pto/abi/backend.h"
#include "pto/abi/payload.h"
#include "pto/abi/topology.h"
#include "recorder.hpp"
#include "run/tracer.hpp"

namespace pto::sim {

struct alignas(64) Core {
  std::atomic<uint32_t> data_main_base{0};
  std::atomic<uint32_t> cond{PTO_COND_FINISHED};
  pto_payload* payload = nullptr;
  uint32_t payload_bytes = 0;
  uint8_t scheduler = 0;  // which polls the core
  std::atomic<bool> faulted{false};
  bool is_together = false;  // whether other kernels run while this one does
  bool has_place = false;    // whether the kernel uses its KernelPlace
  uint64_t tasks = 0;
  uint64_t busy_ns = 0;
};

constexpr uint32_t next_sequence(uint32_t sequence) noexcept {
  return sequence >= PTO_SEQUENCE_MAX ? 1 : sequence + 1;
}

class Cores {
 public:
  // `log_json`: whether texts of kernels are written as JSON, with the number of the device.
  Cores(DeviceMemory& memory, Tracer& tracer, Dump& dump, int32_t device, bool log_json,
        bool timing) noexcept
      : memory_(memory), tracer_(tracer), dump_(dump), log_(device, log_json), timing_(timing) {}
  Cores(const Cores&) = delete;
  Cores& operator=(const Cores&) = delete;
  ~Cores();

  pto_status open(pto_error* error);
  // Sets the capabilities of the runtime. They determine the form of task names in messages.
  void set_capabilities(uint32_t capabilities) noexcept { capabilities_ = capabilities; }
  // Called between runs, before reset(). NULL: the next run is not measured.
  // `is_alone`: no other thread uses device memory while a kernel runs.
  void set_measurement(const pto_measurement* measurement, bool is_alone);
  // Reports a range to the measurement, if the run is measured. Called only during a run.
  void report_range(const pto_measured_range& range) const {
    if (measurement_ != nullptr) measurement_->add(measurement_->context, &range, 1);
  }
  // Called between runs. Marks all cores as free, and resets the counters.
  void reset(const pto_topology& topology) noexcept;

  // Only scheduler `thread`, which owns the core until it has polled its end, calls this.
  void dispatch(const pto_dispatch& dispatch, uint32_t thread) noexcept;
  bool finished(uint32_t index) const noexcept {
    const Core& core = cores_[index];
    const uint32_t sequence = core.data_main_base.load(std::memory_order_relaxed);
    return core.cond.load(std::memory_order_acquire) == (sequence | PTO_COND_FINISHED);
  }
  bool faulted(uint32_t core) const noexcept { return cores_[core].faulted; }
  const pto_error& fault(uint32_t core) const noexcept { return faults_[core]; }

  // Only the thread that runs the core calls this.
  void acknowledge(uint32_t index) noexcept {
    Core& core = cores_[index];
    const uint32_t sequence = core.data_main_base.load(std::memory_order_acquire);
    core.cond.store(sequence, std::memory_order_relaxed);
  }
  // `worker` is the number of the calling thread, which selects its track; kUntraced: the caller
  // records the start and the end of the kernel.
  static constexpr uint32_t kUntraced = UINT32_MAX;
  void execute(uint32_t core, pto_activity_slot& slot, uint32_t worker) noexcept;
  // Ends the task because the kernel has no thread on which it could run.
  void fail_to_start(uint32_t core) noexcept;
  // Whether the kernel of the core is a callback, not a function of a library.
  bool calls_back(uint32_t core) const noexcept;

  uint32_t scheduler(uint32_t core) const noexcept { return cores_[core].scheduler; }
  const pto_payload& payload(uint32_t core) const noexcept { return *cores_[core].payload; }
  pto_core_usage usage(uint32_t core) const noexcept {
    return {cores_[core].tasks, cores_[core].busy_ns};
  }

 private:
  void call(Core& core, uint32_t index) noexcept;
  void call_observed(Core& core, uint32_t index, uint32_t worker) noexcept;
  void call_measured(Core& core, uint32_t index) noexcept;
  void call_recorded(Core& core, uint32_t index, std::vector<pto_measured_range>& ranges) noexcept;
  // Ends the task of a measured kernel that crashed, and adds its last access to `ranges`.
  void fail_crashed(Core& core, uint32_t index, int signal, const Recorder::Access& access,
                    std::vector<pto_measured_range>& ranges) noexcept;
  // Returns false, without a call, if pages cannot be guarded.
  bool call_guarded(Core& core, uint32_t index, std::vector<pto_measured_range>& ranges) noexcept;
  void call_back(Core& core, uint32_t index) noexcept;
  void check_buffers(Core& core, uint32_t index) noexcept;
  void complete_fault(Core& core, uint32_t index) noexcept;

  DeviceMemory& memory_;
  Tracer& tracer_;
  Dump& dump_;
  host::KernelLog log_;
  const bool timing_;
  const pto_measurement* measurement_ = nullptr;
  std::unique_ptr<PageGuard> guard_;
  bool is_observed_ = false;  // whether this run times, traces, measures or dumps kernels
  uint32_t capabilities_ = 0;
  PipeStates pipe_states_;
  std::array<Core, PTO_MAX_CORES> cores_{};
  char* payloads_ = nullptr;  // a sparse mapping that contains a payload buffer for each core
  std::unique_ptr<pto_error[]> faults_;
};

}  // namespace pto::sim
