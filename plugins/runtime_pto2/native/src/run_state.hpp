// The data that the classes of the submit path share.
//
// Used by the orchestrator only, except for the members whose classes state otherwise.
#pragma once

#include <cstdint>

#include "clusters.hpp"
#include "free_space.hpp"
#include "planner.hpp"
#include "pto/engine/access_log.hpp"
#include "pto/engine/context.hpp"
#include "pto/engine/scope_stack.hpp"
#include "rings.hpp"
#include "scheduler.hpp"
#include "statistics.hpp"

namespace pto::ring_buffer {

// The orchestrator's end of the stream of submits; see rings.hpp.
//
// All schedulers read the word `submitted`. So while they have other work, up to kInterval submits
// share one store of it. Still, no submit depends on the next one: a scheduler that is about to
// become idle also reads `logged`, and if all schedulers are idle, the next submit advances
// `submitted` and wakes one of them.
//
// Called by the orchestrator only.
class Stream {
 public:
  Stream(Context& context, Rings& rings, Scheduler& scheduler)
      : context_(context), rings_(rings), scheduler_(scheduler) {}

  void begin() { appended_ = announced_ = 0; }

  // Append a submit to the log; `head` is its first slot.
  void append(SlotRef head) {
    rings_.log[appended_++ & (rings_.log_size - 1)] = head;
    rings_.logged.store(appended_, std::memory_order_seq_cst);
  }

  // Advance `submitted` to the end of the stream, so that schedulers see all submits.
  void announce() {
    if (announced_ == appended_) return;
    announced_ = appended_;
    rings_.submitted.store(appended_, std::memory_order_seq_cst);
    scheduler_.published();
    pto_yield(context_.platform, PTO_YIELD_SUBMIT);
  }

  // Advance `submitted` if enough submits are in the log, or if all schedulers are idle.
  void announce_if_due() {
    if (appended_ - announced_ >= kInterval || scheduler_.is_resting() ||
        context_.platform->deterministic != 0) {
      announce();
    }
  }

  // Return the number of the first task of `ring`, before `end`, that no scheduler has connected;
  // `end` if there is none. The state of a task is undefined until it is connected.
  int64_t first_unwired(uint32_t ring, int64_t end) const {
    const uint64_t wired = rings_.wired.load(std::memory_order_acquire);
    for (uint64_t entry = wired; entry != appended_; ++entry) {
      const SlotRef ref = rings_.log[entry & (rings_.log_size - 1)];
      if (ring_of(ref) == ring) return rings_.ring[ring].newest_in(slot_of(ref));
    }
    return end;
  }

 private:
  static constexpr uint64_t kInterval = 8;  // number of submits

  Context& context_;
  Rings& rings_;
  Scheduler& scheduler_;
  uint64_t appended_ = 0;
  uint64_t announced_ = 0;
};

using Scopes = ScopeStack<kRings>;

struct RunState {
  RunState(Context& shared_context, Rings& shared_rings, Clusters& shared_clusters,
           Scheduler& shared_scheduler)
      : context(shared_context),
        rings(shared_rings),
        clusters(shared_clusters),
        scheduler(shared_scheduler),
        stream(shared_context, shared_rings, shared_scheduler),
        space(shared_rings),
        log(shared_context.memory) {}

  // Add a row to the access log: add(log) returns false if memory is exhausted, which fails the
  // run.
  template <class Add>
  void log_if_on(Add add) {
    if (log.is_on() && !add(log)) reject_log();
  }

  bool has_failed() const { return context.latch.is_set(); }

  Context& context;
  Rings& rings;
  Clusters& clusters;
  Scheduler& scheduler;
  Stream stream;
  FreeSpace space;
  engine::AccessLog log;
  Scopes scopes;
  Sizes sizes;
  RunStatistics statistics = {};
  bool is_full = false;  // whether the run has full hazards

 private:
  [[gnu::cold, gnu::noinline]] void reject_log() {
    context.fail({PTO_ERROR_MEMORY},
                 "no memory for the access log; run a smaller program with enable_dep_gen");
  }
};

}  // namespace pto::ring_buffer
