// The records of the simulator itself: the order of a deterministic run, and its part of the trace.
//
// The device owns it. Between runs it selects the trace of the next run; during a run each function
// states which thread may call it.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <vector>

#include "counters.hpp"
#include "options.hpp"
#include "pto/abi/backend.h"
#include "waiting.hpp"

namespace pto::sim {

// The backend's events, in addition to the PTO_TRACE_* events of the runtime.
enum class BackendEvent : uint32_t {
  dispatch = 101,     // a = core, b = task
  acknowledge = 102,  // a = core, b = task
  finish = 103,       // a = core, b = task
  poll = 104,         // a = core, b = scheduler
  step = 105,         // a = scheduler, b = result
  yield = 106,        // a = point, b = agents stepped
  stalled = 107       // a = result
};

// A hash of the order of events in a deterministic run. It contains only ids, because addresses,
// times and pointers differ from process to process.
class Order {
 public:
  void reset() noexcept { hash_ = kStart; }

  void add(uint32_t event, uint64_t a, uint64_t b) noexcept {
    mix(event);
    mix(a);
    mix(b);
  }

  void add(BackendEvent event, uint64_t a, uint64_t b = 0) noexcept {
    add(static_cast<uint32_t>(event), a, b);
  }

  // The result is never 0, which means "no hash" in a report.
  uint64_t hash() const noexcept { return hash_ == 0 ? 1 : hash_; }

 private:
  static constexpr uint64_t kStart = 0xCBF29CE484222325u;

  void mix(uint64_t value) noexcept {
    hash_ = (hash_ ^ value) * 0x9E3779B97F4A7C15u;
    hash_ ^= hash_ >> 29;
  }

  uint64_t hash_ = kStart;
};

class Tracer {
 public:
  // The table that the runtime gets; the device fills in its functions before the first run.
  pto_platform& table() noexcept { return platform_; }
  const pto_platform& platform() const noexcept { return platform_; }
  Order& order() noexcept { return order_; }
  uint64_t clock() const noexcept { return pto_clock(&platform_); }

  // Called once, after the table is complete. `workers` is the number of threads that run kernels.
  void open(uint32_t workers) noexcept {
    platform_.steps = &steps_;
    workers_ = workers;
    opened_ = clock_pair();
  }
  // Called while no thread is inside a run. `trace` is NULL if the next run is not traced.
  // `counts`: the trace has the counters of each kernel. A deterministic run has none.
  void set_trace(pto_run_trace* trace, bool counts) noexcept {
    for (ThreadCounters* one : counting_) one->close();
    counting_.clear();
    steps_ = 0;
    begun_ = counted_ = 0;
    lacks_files_ = false;
    counts_ = counts && trace != nullptr && platform_.deterministic == 0;
    platform_.tracing = platform_.deterministic != 0 ? PTO_TRACE_ORDER : 0;
    platform_.tracks = nullptr;
    if (trace == nullptr) return;
    platform_.tracing |= trace->groups;
    platform_.tracks = trace->rings;
    trace->clock = platform_.clock;
    trace->workers = workers_;
    trace->first = opened_;
    trace->last = clock_pair();
  }
  // Called when the device is lost, whose threads end by themselves: each closes its own counters.
  void leave_counters() noexcept {
    const std::lock_guard lock(last_track_);
    counting_.clear();
    leaves_counters_ = true;
  }
  void finish(pto_run_trace* trace) noexcept {
    if (trace != nullptr) trace->last = clock_pair();
  }

  // Called after the run. The counters that had events in threads, but no value.
  uint32_t idle_counters() const noexcept { return begun_ & ~counted_; }
  // Called after the run. Whether a thread had too few file descriptors for its events.
  bool lacks_files() const noexcept { return lacks_files_; }

  bool has_tasks() const noexcept { return pto_is_traced(&platform_, PTO_TRACE_TASKS) != 0; }
  // Called in deterministic mode, by the thread that has the turn.
  void count_step() noexcept { ++steps_; }

  // Called by the orchestrator.
  void begin_build() noexcept { build_began_ = clock(); }
  void end_build() noexcept {
    pto_record(&platform_, PTO_TRACK_ORCHESTRATOR, PTO_TRACE_BUILD, build_began_, 0);
  }

  // Makes a copy for the orchestrator, or for the thread that finishes the run, and records it.
  template <typename Copy>
  pto_status record_copy(uint32_t event, size_t bytes, Copy copy) {
    if (!has_tasks()) return copy();
    const uint64_t began = clock();
    const pto_status status = copy();
    pto_record(&platform_, PTO_TRACK_ORCHESTRATOR, event, began, bytes);
    return status;
  }

  // Called inside a step of scheduler `thread`. The tasks of a batch have the same time.
  [[gnu::noinline]] void record_dispatches(uint32_t thread, const pto_dispatch* batch,
                                           uint32_t count) noexcept {
    const uint16_t track = static_cast<uint16_t>(PTO_TRACK_SCHEDULER + thread);
    pto_trace_record record{clock(), 0, 0, 0, PTO_TRACE_DISPATCH, track};
    for (uint32_t i = 0; i < count; ++i) {
      record.a = batch[i].payload->task;
      record.b = batch[i].core;
      pto_trace_write(&platform_.tracks[track], &record);
    }
  }

  // Called by worker `worker`. In deterministic mode a kernel takes one step, so its end is later
  // than its start. Returns the processor time of the thread, for end_kernel(); 0 if that is not
  // recorded. A reading is a system call (0.2 us, up to 7 us in a sandbox), so only level 3 has it,
  // and it is not within the time of the kernel.
  uint64_t start_kernel(uint32_t worker, const pto_payload& payload, uint32_t core) noexcept {
    if (counts_) begin_counters();
    const auto lock = lock_track(worker);
    const bool is_timed = pto_is_traced(&platform_, PTO_TRACE_WAITS) != 0;
    const uint64_t began = is_timed && platform_.clock != PTO_CLOCK_STEPS ? processor_time_ns() : 0;
    const uint64_t func_id = static_cast<uint32_t>(payload.func_id);
    pto_record(&platform_, PTO_TRACK_WORKER + worker, PTO_TRACE_START, payload.task,
               core | func_id << 32);
    return began;
  }
  void end_kernel(uint32_t worker, const pto_payload& payload, uint32_t core,
                  uint64_t began) noexcept {
    const auto lock = lock_track(worker);
    if (platform_.clock == PTO_CLOCK_STEPS) ++steps_;
    if (!has_tasks()) return;
    const auto track = static_cast<uint16_t>(PTO_TRACK_WORKER + worker);
    pto_trace_record record{clock(), payload.task, core, 0, PTO_TRACE_END, track};
    if (began != 0) record.b |= (processor_time_ns() - began) << 16;
    pto_trace_write(&platform_.tracks[track], &record);
    if (!counts_) return;
    record.event = PTO_TRACE_COUNTER;
    thread_counters().end([&](uint64_t counter, uint64_t value) {
      record.b = value | counter << 56;
      pto_trace_write(&platform_.tracks[track], &record);
      counted_.fetch_or(1u << counter, std::memory_order_relaxed);
    });
  }
  // Called by an active worker, so that the run cannot become over meanwhile.
  void record_park(uint32_t worker, uint64_t since) noexcept {
    pto_record(&platform_, PTO_TRACK_WORKER + worker, PTO_TRACE_PARK, since, 0);
  }

 private:
  void begin_counters() noexcept {
    ThreadCounters& counters = thread_counters();
    if (!counters.is_open()) {
      const std::lock_guard lock(last_track_);
      if (!leaves_counters_) counting_.push_back(&counters);
    }
    if (counters.begin() == EMFILE) lacks_files_ = true;
    begun_.fetch_or(counters.opened(), std::memory_order_relaxed);
  }
  static uint64_t processor_time_ns() noexcept {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
  }
  // Threads for which no track is left share the last one of the workers.
  std::unique_lock<std::mutex> lock_track(uint32_t worker) {
    if (worker < kMostWorkers - 1) return {};
    return std::unique_lock(last_track_);
  }
  pto_clock_pair clock_pair() const noexcept { return {clock(), clock_ns()}; }

  pto_platform platform_{};
  Order order_;         // deterministic mode only
  uint64_t steps_ = 0;  // of the current run, in deterministic mode
  uint64_t build_began_ = 0;
  uint32_t workers_ = 0;
  bool counts_ = false;
  std::atomic<uint32_t> begun_{0};    // the counters that have events, a bit for each
  std::atomic<uint32_t> counted_{0};  // those that have values
  std::atomic<bool> lacks_files_{false};
  std::mutex last_track_;  // also guards the next two
  bool leaves_counters_ = false;
  std::vector<ThreadCounters*> counting_;  // of the threads that have events; closed after the run
  pto_clock_pair opened_{};
};

}  // namespace pto::sim
