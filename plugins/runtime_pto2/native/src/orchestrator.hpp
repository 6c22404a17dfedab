// The calls of an orchestration: submits, scopes, clusters, and the end.
//
// One thread at a time calls everything here, but for wait() and deadlock(), see there.
//
// Calls after an error do nothing. After a proven deadlock the calls continue on planned rings, to
// find the sizes that suffice.
#pragma once

#include <cstdint>

#include "clusters.hpp"
#include "current_rings.hpp"
#include "deadlock.hpp"
#include "free_space.hpp"
#include "options.hpp"
#include "pto/abi/runtime.h"
#include "pto/engine/kernel_table.hpp"
#include "publisher.hpp"
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

  // Call destroy() also after a shortage.
  Shortage create(const Options& options);
  void destroy();
  // After the scheduler's begin().
  void begin(const pto_run& run);
  // Between runs.
  void end() { current_.end(); }

  // Returns the id of the task, or of block 0; -1 after an error.
  int64_t submit(pto_tensor_task& task) {
    if (run_.has_failed()) return -1;
    return is_closed_ ? reject_submit(task) : submitter_.submit(task);
  }
  // `to` is the task that was submitted last.
  pto_status add_dep(int64_t from, int64_t to, Place at = {});
  pto_status scope_begin(const char* file, int32_t line);
  pto_status scope_end(Place at = {});
  // Returns the id of a cluster; -1 after an error.
  int32_t allocate_cluster(const char* file, int32_t line);
  pto_status free_cluster(int32_t cluster, Place at = {});
  // Reports an error that the caller found.
  void fail(pto_status status, const char* what, const char* file, int32_t line);
  // The program submits no more. A second call is a usage error.
  void close(Place at = {});
  // The orchestration has returned: publishes the newest submit, ends all scopes, and completes the
  // error of a proven deadlock. `is_whole`: the orchestration reported no error.
  void done(bool is_whole);

  // Any thread, see space_wait.hpp.
  SpaceWait& wait() { return wait_; }
  const SpaceWait& wait() const { return wait_; }
  // Any thread, see deadlock.hpp.
  Deadlock& deadlock() { return deadlock_; }
  KernelTable& kernels() { return kernels_; }
  // For statistics: from any thread, which may see a torn copy.
  const RunStatistics& statistics() const { return run_.statistics; }
  const FreeSpace& space() const { return run_.space; }

 private:
  // The status of the run for calls. PTO_OK during planning.
  pto_status status() const {
    if (!run_.has_failed()) return PTO_OK;
    return deadlock_.is_proven() ? PTO_ERROR_DEADLOCK : run_.context.latch.status();
  }
  int64_t reject_submit(const pto_tensor_task& task);
  void end_innermost_scope();

  RunState run_;
  KernelTable kernels_;
  Deadlock deadlock_;
  SpaceWait wait_;
  CurrentRings current_;
  Publisher publisher_;
  Submitter submitter_;
  bool is_closed_ = false;  // no more submits
};

}  // namespace pto::ring_buffer
