// One run of a graph on the device: its agents are the AICPU threads that have a role.
//
// The leader prepares the run while no other thread is inside it, lets the others in, and waits
// until all have left. pto/engine/drive.hpp has the proof of stalls. A thread never waits for
// another without a bound, except for the end of the run.
#pragma once

#include <atomic>
#include <cstdint>

#include "abi/launch.h"
#include "device/access.hpp"
#include "device/cores.hpp"
#include "device/log.hpp"
#include "pto/abi/runtime.h"
#include "pto/engine/drive.hpp"

namespace pto::a2a3 {

// How the AICPU threads share the work of a run.
struct CardRunShape {
  pto_topology topology;
  bool shares_thread;     // one thread orchestrates and schedules
  bool has_orchestrator;  // a thread orchestrates on the device

  uint32_t threads() const {
    return topology.schedulers + (has_orchestrator && !shares_thread ? 1 : 0);
  }
};

class CardRun : public engine::Drive<CardRun> {
 public:
  // Gives way to a thread that holds a lock for a short time.
  struct Pause {
    void operator()() noexcept;
  };

  void open(const pto_a2a3_device& config, Log& log);
  void attach(const pto_runtime_api* api, void* runtime) noexcept;
  Cores& cores() noexcept { return cores_; }
  const pto_topology& topology() const noexcept { return shape_.topology; }
  // Between runs: the topology that the variant sees until the first run.
  void set_topology(const pto_topology& topology) noexcept { shape_.topology = topology; }
  uint32_t threads() const noexcept { return shape_.threads(); }

  // Leader: before the other threads come in.
  void prepare(const CardRunShape& shape, uint64_t sequence) noexcept;
  // A thread with a role, until the run has ended for it. The last role orchestrates, if it is not
  // shared.
  void take_part(uint32_t role) noexcept;
  void end_run(bool is_success) noexcept;
  bool running() const noexcept { return state_.load(std::memory_order_seq_cst) == kRunning; }
  bool has_succeeded() const noexcept { return state_.load() == kSucceeded; }
  bool is_abandoned() const noexcept { return is_abandoned_; }

  // Reads what the host asks for, and writes progress. `is_due`: even if it was done just now.
  void tend(bool is_due) noexcept;
  void set_phase(uint32_t phase) noexcept;
  void fill(pto_run_report& report) const noexcept;

  int32_t call_step(uint32_t thread) noexcept { return api_->schedule_step(runtime_, thread); }
  int32_t call_stalled() noexcept { return api_->stalled(runtime_); }

  // Calls that the variant makes.
  void dispatch(uint32_t thread, const pto_dispatch* batch, uint32_t count) noexcept;
  void poll(uint32_t thread, pto_poll_result* result) noexcept;
  pto_status wait(const uint32_t* word, uint32_t expected) noexcept;

 private:
  enum State : uint32_t { kRunning, kSucceeded, kFailed };

  void orchestrate() noexcept;
  bool try_step(uint32_t thread) noexcept;
  void schedule(uint32_t thread, const uint32_t* word, uint32_t expected) noexcept;
  void read_control() noexcept;
  void explain(uint64_t request) noexcept;

  const pto_a2a3_device* config_ = nullptr;
  Log* log_ = nullptr;
  pto_a2a3_control* control_ = nullptr;
  pto_a2a3_progress* progress_ = nullptr;
  const pto_runtime_api* api_ = nullptr;
  void* runtime_ = nullptr;
  CardRunShape shape_{};
  uint64_t sequence_ = 0;
  Cores cores_;
  std::atomic<uint32_t> state_{kFailed};
  std::atomic<bool> tending_{false};  // the lock of the members below
  bool is_abandoned_ = false;
  bool is_aborted_ = false;
  uint64_t tended_ns_ = 0, attended_ns_ = 0;
  // Of the report.
  std::atomic<uint64_t> started_ns_{0}, built_ns_{0}, ended_ns_{0};
};

}  // namespace pto::a2a3
