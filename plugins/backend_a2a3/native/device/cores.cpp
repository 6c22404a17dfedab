#include "device/cores.hpp"

#include <cstring>

#include "device/error.hpp"

namespace pto::a2a3 {

void Cores::open(const pto_a2a3_device& config) {
  config_ = &config;
  cores_ = from_host<pto_a2a3_cores>(config.cores);
  progress_ = from_host<pto_a2a3_progress>(config.progress);
  std::memset(static_cast<void*>(progress_), 0, sizeof *progress_);
  Aicpu::clean(progress_, sizeof *progress_);
  timeout_ns_ = uint64_t{config.gate_timeout_ms} * 1'000'000;
  for (uint32_t core = 0; core < PTO_MAX_CORES; ++core) {
    links_[core].bind(&cores_->slot[core], &cores_->handshake[core], 0);
  }
}

pto_status Cores::start(const pto_topology& topology, uint64_t launch, pto_error& error) {
  topology_ = &topology;
  count_ = topology.cores;
  std::memset(static_cast<void*>(counters_), 0, sizeof counters_);
  const pto_status status = wait_for_reports(launch, error);
  if (status != PTO_OK) return status;
  for (uint32_t core = 0; core < count_; ++core) {
    const pto_status opened = open_core(core, launch, error);
    if (opened != PTO_OK) return opened;
  }
  const uint64_t end = Aicpu::now_ns() + timeout_ns_;
  for (uint32_t core = 0; core < count_; ++core) {
    while (!links_[core].is_ready()) {
      const uint32_t seen = Aicpu::changes();
      if (Aicpu::now_ns() >= end) return refuse(core, "does not answer at its register", error);
      if (!links_[core].is_ready()) Aicpu::rest(seen);
    }
  }
  return PTO_OK;
}

// Cores report through memory, which wakes no thread, so the wait is a poll.
pto_status Cores::wait_for_reports(uint64_t launch, pto_error& error) {
  const uint64_t end = Aicpu::now_ns() + timeout_ns_;
  for (uint32_t core = 0; core < count_; ++core) {
    while (!links_[core].has_reported(launch)) {
      if (Aicpu::now_ns() >= end) return refuse(core, "has not reported", error);
      Aicpu::rest(Aicpu::changes());
    }
  }
  return PTO_OK;
}

pto_status Cores::open_core(uint32_t core, uint64_t launch, pto_error& error) {
  CoreLink<Aicpu>& link = links_[core];
  const uint32_t physical = link.physical();
  if (physical >= PTO_A2A3_PHYSICAL_CORES || config_->registers[physical] == 0) {
    return refuse(core, "reports a physical core without registers", error);
  }
  for (uint32_t other = 0; other < core; ++other) {
    if (links_[other].physical() == physical) {
      return refuse(core, "reports the physical core of another", error);
    }
  }
  if (link.core_type() != topology_->core_type[core]) {
    return refuse(core, "reports the wrong core type", error);
  }
  link.open(config_->registers[physical], launch);
  return PTO_OK;
}

pto_status Cores::refuse(uint32_t core, const char* what, pto_error& error) {
  const pto_a2a3_handshake report = links_[core].report();
  fail(error, PTO_ERROR_LOST, "core ", core, " of ", count_, " ", what, " within ",
       config_->gate_timeout_ms, " ms (launch ", report.launch, ", physical core ", report.physical,
       "); reset the device, and open it with the number of blocks that it has");
  error.core = static_cast<int32_t>(core);
  return error.status;
}

pto_status Cores::name_lost(uint32_t core, pto_error& error) const {
  const pto_payload& task = slot(core).payload;
  if (is_busy(core)) {
    fail(error, PTO_ERROR_LOST, "core ", core, " still runs kernel ", task.func_id, " of task ",
         task.task, "; the run is abandoned, so reset the device");
    error.func_id = task.func_id;
    error.task = static_cast<int64_t>(task.task);
  } else {
    fail(error, PTO_ERROR_LOST, "core ", core, " has no task but does not leave within ",
         config_->gate_timeout_ms, " ms; reset the device");
  }
  error.core = static_cast<int32_t>(core);
  return error.status;
}

void Cores::dispatch(const pto_dispatch& dispatch) {
  CoreLink<Aicpu>& link = links_[dispatch.core];
  link.place(*dispatch.payload, dispatch.length);
  if (dump_.is_on()) {
    const bool is_together = (dispatch.flags & PTO_DISPATCH_TOGETHER) != 0;
    dump_.before(slot(dispatch.core), dispatch.core, is_together);
  }
  link.start();
}

void Cores::poll(pto_core_mask& in_flight, pto_poll_result& result) {
  for (pto_core_mask rest = in_flight; !engine::empty(rest);) {
    const uint32_t core = engine::take_first(rest);
    CoreLink<Aicpu>& link = links_[core];
    const CoreTaskState state = link.poll();
    if (state == CoreTaskState::running) continue;
    if (dump_.is_on()) dump_.after(slot(core), core, state == CoreTaskState::faulted);
    engine::insert(result.done, core);
    if (state == CoreTaskState::faulted) engine::insert(result.faulted, core);
    engine::remove(in_flight, core);
    __atomic_store_n(&progress_->finished[core], link.sequence(), __ATOMIC_RELAXED);
    const uint64_t tasks = counters_[core].tasks + 1;
    __atomic_store_n(&counters_[core].tasks, tasks, __ATOMIC_RELAXED);
  }
}

void Cores::describe_fault(uint32_t core, pto_error& error) const {
  const pto_a2a3_handshake report = links_[core].report();
  const pto_payload& task = slot(core).payload;
  if (report.fault == PTO_A2A3_FAULT_KERNEL) {
    fail(error, PTO_ERROR_KERNEL, "kernel ", task.func_id, " of task ", task.task, " on core ",
         core, " has no code at address ", engine::Address{report.value},
         "; pass the address that load_kernel() returned");
  } else if (report.fault == PTO_A2A3_FAULT_ASSERTION) {
    const auto* failure = from_host<pto_a2a3_text>(report.value);
    const char *file = failure->file, *text = failure->text;
    fail(error, PTO_ERROR_KERNEL, "kernel ", task.func_id, " of task ", task.task, " on core ",
         core, ": the assertion at ", file, ":", failure->line, " failed: ", text);
  } else {
    fail(error, PTO_ERROR_KERNEL, "core ", core, " was told to run task number ", report.expected,
         " but found number ", report.value, " in its slot; this is a fault of the device");
  }
  error.func_id = task.func_id;
  error.task = static_cast<int64_t>(task.task);
  error.core = static_cast<int32_t>(core);
}

uint64_t Cores::tasks() const {
  uint64_t tasks = 0;
  for (uint32_t core = 0; core < count_; ++core) {
    tasks += __atomic_load_n(&counters_[core].tasks, __ATOMIC_RELAXED);
  }
  return tasks;
}

void Cores::fill(pto_run_report& report) const {
  for (uint32_t core = 0; core < count_; ++core) report.cores[core].tasks = counters_[core].tasks;
  report.tasks = tasks();
  report.blocks = topology_->blocks;
}

void Cores::clean_progress() {
  Aicpu::clean(progress_->finished, sizeof progress_->finished);
  Aicpu::order_stores();
}

}  // namespace pto::a2a3
