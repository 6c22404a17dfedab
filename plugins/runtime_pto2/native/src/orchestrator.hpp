// The calls of an orchestration: submits, scopes, clusters, and the end.
//
// Only one thread at a time may call these methods, except wait() and deadlock(); see their
// comments.
//
// Calls after an error do nothing. After a proven deadlock, the calls continue on planned rings, to
// find the sizes that would suffice.
#pragma once

#include <cstdint>

#include "clusters.hpp"
#include "current_rings.hpp"
#include "deadlock.hpp"
#include "free_space.hpp"
#include "options.hpp"
#include "pto/abi/runtime.h"
#include "pto/engine/kernel_table.hpp"
#include "run_state.hpp"
#include "space_wait.hpp"
#include "submit.hpp"

namespace pto::ring_buffer {

class Orchestrator {
 public:
  Orchestrator(Context& context, Rings& rings, Clusters& clusters, Scheduler& scheduler)
      : run_(context, rings, clusters, scheduler),
        wait_(run_),
        current_(run_, wait_, deadlock_),
        publisher_(run_, current_),
        submitter_(run_, kernels_, current_, publisher_) {}

  // Call destroy() even if create() fails because memory is exhausted.
  Shortage create(const Options& options);
  void destroy();
  // Called after the scheduler's begin().
  void begin(const pto_run& run);
  // Called between runs.
  void end() { current_.end(); }

  // Return the id of the task (of block 0 for a block task); -1 after an error.
  int64_t submit(pto_tensor_task& task) {
    if (run_.has_failed()) return -1;
    return is_closed_ ? reject_submit(task) : submitter_.submit(task);
  }
  // Add an edge. `to` must be the task that was submitted last.
  pto_status add_dep(int64_t from, int64_t to, CallSite at = {});
  pto_status scope_begin(const char* file, int32_t line);
  pto_status scope_end(CallSite at = {});
  // Return the id of a cluster; -1 after an error.
  int32_t allocate_cluster(const char* file, int32_t line);
  pto_status free_cluster(int32_t cluster, CallSite at = {});
  // Wait until the writers of the memory have completed, and, if `for_write` is set, its readers.
  // Return 0; -1 after an error; 1 while a plan is made, because then no task runs.
  int32_t wait_for_tensor(const pto_tensor_data& tensor, bool for_write, CallSite at);
  // Fail the run with an error that the caller found.
  void fail(pto_status status, const char* what, const char* file, int32_t line);
  // Record that the program submits no more tasks. A second call is a usage error.
  void close(CallSite at = {});
  // Called when the orchestration has returned. Publish the newest submit, end all scopes, and
  // complete the error of a proven deadlock. `is_whole`: the orchestration reported no error.
  void done(bool is_whole);

  // Any thread may call this; see space_wait.hpp.
  SpaceWait& wait() { return wait_; }
  const SpaceWait& wait() const { return wait_; }
  // Any thread may call this; see deadlock.hpp.
  Deadlock& deadlock() { return deadlock_; }
  KernelTable& kernels() { return kernels_; }
  // For reports: any thread may call this, and may read a partly updated state.
  const RunStatistics& statistics() const { return run_.statistics; }
  pto_access_log access_log() const { return run_.log.content(); }
  const FreeSpace& space() const { return run_.space; }

 private:
  // Return the status for calls of the orchestration: the status of the run, or PTO_OK while a plan
  // is made.
  pto_status status() const {
    if (!run_.has_failed()) return PTO_OK;
    return deadlock_.is_proven() ? PTO_ERROR_DEADLOCK : run_.context.latch.status();
  }
  int64_t reject_submit(const pto_tensor_task& task);
  void log_event(uint32_t kind, int64_t first, int64_t second, CallSite at);
  void end_innermost_scope();

  RunState run_;
  KernelTable kernels_;
  Deadlock deadlock_;
  SpaceWait wait_;
  CurrentRings current_;
  Publisher publisher_;
  RingSubmitter submitter_;
  bool is_closed_ = false;  // whether the program submits no more tasks
};

}  // namespace pto::ring_buffer
