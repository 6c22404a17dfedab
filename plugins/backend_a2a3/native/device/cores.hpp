// The cores of one run: opening them, passing tasks, polling, and making them leave.
//
// The leader opens and closes the cores. In between, the scheduler thread of a core passes tasks to
// it and polls it.
#pragma once

#include <cstdint>

#include "abi/launch.h"
#include "core/core_link.hpp"
#include "device/access.hpp"
#include "device/dump.hpp"
#include "pto/abi/backend.h"
#include "pto/engine/core_mask.hpp"

namespace pto::a2a3 {

class Cores {
 public:
  void open(const pto_a2a3_device& config);
  DeviceDump& dump() { return dump_; }

  // Waits until each core of the run has reported and is ready.
  pto_status start(const pto_topology& topology, uint64_t launch, pto_error& error);
  // Asks the cores to leave, and waits for them. Running kernels end first; `is_abandoned()` ends
  // the wait for them. A core without a task must leave in time. Returns PTO_ERROR_LOST, and names
  // a core, if one has not left.
  template <class IsAbandoned>
  pto_status stop(uint64_t launch, IsAbandoned is_abandoned, pto_error& error);

  void dispatch(const pto_dispatch& dispatch);
  // Reports the cores of `in_flight` that have finished, and removes them.
  void poll(pto_core_mask& in_flight, pto_poll_result& result);
  void describe_fault(uint32_t core, pto_error& error) const;

  uint64_t tasks() const;
  void fill(pto_run_report& report) const;
  // Writes back which tasks have finished, so that the host can read it.
  void clean_progress();
  bool is_busy(uint32_t core) const { return slot(core).sequence != finished(core); }
  const pto_a2a3_slot& slot(uint32_t core) const { return cores_->slot[core]; }

 private:
  struct alignas(64) Counter {
    uint64_t tasks;
  };

  uint32_t finished(uint32_t core) const {
    return __atomic_load_n(&progress_->finished[core], __ATOMIC_RELAXED);
  }
  pto_status wait_for_reports(uint64_t launch, pto_error& error);
  pto_status open_core(uint32_t core, uint64_t launch, pto_error& error);
  pto_status refuse(uint32_t core, const char* what, pto_error& error);
  pto_status name_lost(uint32_t core, pto_error& error) const;

  const pto_a2a3_device* config_ = nullptr;
  pto_a2a3_cores* cores_ = nullptr;
  pto_a2a3_progress* progress_ = nullptr;
  uint64_t timeout_ns_ = 0;
  uint32_t count_ = 0;  // of the run
  const pto_topology* topology_ = nullptr;
  DeviceDump dump_;
  CoreLink<Aicpu> links_[PTO_MAX_CORES];
  Counter counters_[PTO_MAX_CORES];
};

template <class IsAbandoned>
pto_status Cores::stop(uint64_t launch, IsAbandoned is_abandoned, pto_error& error) {
  for (uint32_t core = 0; core < count_; ++core) {
    if (links_[core].is_open()) links_[core].ask_to_leave();
  }
  Aicpu::store_flag(&cores_->closed, launch);
  Aicpu::clean(&cores_->closed, sizeof cores_->closed);
  Aicpu::order_stores();
  uint64_t end = Aicpu::now_ns() + timeout_ns_;
  for (uint32_t core = 0; core < count_; ++core) {
    CoreLink<Aicpu>& link = links_[core];
    if (!link.is_open()) continue;
    while (!link.has_left()) {
      const uint32_t seen = Aicpu::changes();
      const bool is_free = !is_busy(core);
      if (!is_free) end = Aicpu::now_ns() + timeout_ns_;
      const bool is_late = is_free && Aicpu::now_ns() >= end;
      if (is_late || is_abandoned()) return name_lost(core, error);
      if (!link.has_left()) Aicpu::rest(seen);
    }
    // It had a task when the run ended.
    if (dump_.is_on() && is_busy(core)) dump_.after(slot(core), core, link.has_fault());
    progress_->finished[core] = link.sequence();
    link.close();
  }
  clean_progress();
  return PTO_OK;
}

}  // namespace pto::a2a3
