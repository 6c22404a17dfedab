// The side of the run that submits: slots, edges, heap, scopes, clusters, waits for room.
//
// One thread at a time owns everything here but is_blocked(), proof() and can_go_on(), which
// whoever proves a deadlock calls while the orchestrator is inside the platform's wait().
//
// The newest submit stays unpublished until the next call, and its edges in a list: add_dep() may
// still add some. While schedulers are busy a few more are in the stream unannounced, see
// publish.cpp; every call but submit(), add_dep() and scope_begin() announces all of them, and so
// does whatever waits for room.
//
// After a proven deadlock the planner stands in for rings and heaps: see planner.hpp.
#pragma once

#include <cstdint>

#include "blocked.hpp"
#include "clusters.hpp"
#include "deadlock.hpp"
#include "draft.hpp"
#include "edges.hpp"
#include "history.hpp"
#include "long_wait.hpp"
#include "options.hpp"
#include "payloads.hpp"
#include "planner.hpp"
#include "pto/abi/runtime.h"
#include "pto/engine/context.hpp"
#include "pto/engine/heap_ring.hpp"
#include "pto/engine/kernel_table.hpp"
#include "pto/engine/scope_stack.hpp"
#include "rings.hpp"
#include "scheduler.hpp"
#include "statistics.hpp"
#include "tensor_map.hpp"

namespace pto::ring_buffer {

class Orchestrator {
 public:
  Orchestrator(Context& context, Rings& rings, Clusters& clusters, Scheduler& scheduler)
      : context_(context),
        rings_(rings),
        clusters_(clusters),
        scheduler_(scheduler),
        planner_(context) {}

  // destroy() is to be called also after a shortage.
  Shortage create(const Options& options);
  void destroy();
  // Before the scheduler's begin().
  void forget_unfinished();
  void begin(const pto_run& run);

  // The id of the task, or of block 0; -1 after an error.
  int64_t submit(pto_tensor_task& task);
  // `to` is the task that was submitted last.
  pto_status add_dep(int64_t from, int64_t to, Place at = {});
  pto_status scope_begin(const char* file, int32_t line);
  pto_status scope_end(Place at = {});
  int32_t allocate_cluster(const char* file, int32_t line);
  pto_status free_cluster(int32_t cluster, Place at = {});
  // An error that the caller found.
  void fail(pto_status status, const char* what, const char* file, int32_t line);
  // The program will submit no more; a second call is a usage error.
  void close(Place at = {});
  // The orchestration has returned: publishes what is left, ends all scopes, completes the error of
  // a proven deadlock. `is_whole`: it did all that it would do, as far as it knows.
  void done(bool is_whole);
  // Between runs.
  void end();

  // Nobody else runs, and the orchestrator is in wait().
  bool is_blocked() const { return blocked_.what != Resource::kNone; }
  // Whether what it waits for has come; then the caller wakes it.
  bool can_go_on();
  Proof proof() const;
  void wake();
  // Any thread: logs the wait that it is in, once for each time that it counts as long.
  void tell_long_wait();
  const LongWait& long_wait() const { return long_wait_; }

  KernelTable& kernels() { return kernels_; }
  Deadlock& deadlock() { return deadlock_; }
  const RunStatistics& statistics() const { return statistics_; }
  const TensorMap& tensor_map() const { return map_; }
  const Options& options() const { return sizes_.options; }
  // What the rings hold at this moment.
  RingUse use(uint32_t ring) const {
    const Side& side = sides_[ring];
    const int64_t next = rings_.ring[ring].next;
    return {static_cast<uint64_t>(next - side.alive), side.heap.used(side.heap_tail),
            side.edges.used(side.edges_tail)};
  }
  // The run's, as calls report it; PTO_OK while a plan is made.
  pto_status status() const { return is_stopped_ ? PTO_ERROR_DEADLOCK : context_.latch.status(); }

 private:
  using Scopes = ScopeStack<kRings>;

  // The newest submit, until it is published.
  struct Held {
    uint32_t ring;
    uint32_t count;  // slots; 0: nothing is held back
    int64_t number;
  };

  // The orchestrator's side of one ring.
  struct Side {
    int64_t alive = 0;        // tasks before it have retired; their entries and payloads are free
    int64_t edges_alive = 0;  // edges of tasks before it are free
    uint64_t heap_tail = 0;   // virtual
    uint64_t edges_tail = 0;
    uint64_t heap_base = 0;  // device address; 0 until first used, then kept
    HeapRing heap;
    HeapRing edges;
  };

  static constexpr uint32_t kSyncInterval = 64;    // submits
  static constexpr int64_t kBatch = 64;            // retired tasks that are worth a walk
  static constexpr uint32_t kPublishInterval = 8;  // submits, while schedulers have other work

  Shortage create_rings();
  void destroy_rings();
  void begin_ring(uint32_t ring);
  void end_innermost_scope();

  // submit.cpp: the steps of a submit. False after an error.
  bool goes_on() const { return !context_.latch.is_set() && !is_stopped_; }
  int64_t put_together(Draft& draft);
  bool take_slots(Draft& draft);
  bool wait_for_slots(const Draft& draft);
  bool plan_slots(const Draft& draft);
  void find_edges(Draft& draft);
  void find_writers(const Access& access, uint32_t kind, uint64_t& counter);
  void find_readers(const Access& access);
  bool place_outputs(Draft& draft);
  bool reserve_outputs(Draft& draft, uint64_t* address);
  bool open_heap(const Draft& draft);
  bool lend(const Draft& draft, uint32_t index);
  bool make_room_for_entries(Draft& draft);
  void insert_accesses(Draft& draft);
  bool wait_for_entries(const Draft& draft);
  bool plan_entries(const Draft& draft);
  bool write_payload(Draft& draft);
  void write_slots(const Draft& draft);
  void write_descriptor(const Draft& draft, uint32_t block);
  void hold_back(const Draft& draft);

  // publish.cpp: the submit that is held back, and its edges. Does nothing without one; an error
  // shows in goes_on().
  void publish();
  void settle();  // into the log
  void flush();   // moves `submitted`
  bool place_edges();
  bool wait_for_fewer_edges(const Blocked& blocked);
  bool has_retired(SlotRef producer) const;
  uint32_t reserve_edges(uint32_t ring, uint32_t count);
  void write_edges(uint32_t first, SlotRef consumer);
  void announce_edge(const EdgeList::Item& item, SlotRef consumer);
  bool wait_for_edges(uint32_t* first);
  bool check_dep(int64_t from, int64_t to, Place at);

  // checks.cpp: what a submit may not be. They report.
  bool check(Draft& draft);
  bool check_kernel(Draft& draft);
  bool check_clusters(const Draft& draft);
  bool check_parameters(Draft& draft);
  bool check_tensor(Draft& draft, uint32_t index);
  bool check_fresh(Draft& draft, uint32_t index);
  bool check_address(const Draft& draft, uint32_t index);
  bool reject_kernel(const Draft& draft);
  bool reject_outputs(const Draft& draft);
  bool reject_entries(const Draft& draft);
  bool reject_view(const Draft& draft, uint32_t index);
  bool reject_owner(const Draft& draft, uint32_t index, int64_t owner);
  bool locate(const Draft& draft, uint32_t index, Access* access);
  bool reject_stranger(const Draft& draft, uint32_t index);
  bool is_output_of(int64_t id, uint64_t address) const;
  bool is_scope_open(int64_t id) const;
  bool is_in_heap(uint64_t address, uint32_t* ring) const;
  int64_t heap_owner(uint32_t ring, uint64_t address) const;
  template <class... Parts>
  [[gnu::cold, gnu::noinline]] bool reject(const Draft& draft, const ErrorFacts& facts,
                                           Parts... parts);
  // The same for calls that submit nothing.
  template <class... Parts>
  [[gnu::cold, gnu::noinline]] pto_status refuse(Place at, const ErrorFacts& facts, Parts... parts);
  int64_t next_id(const Draft& draft) const;
  void stop_planning();
  template <class... Parts>
  [[gnu::cold, gnu::noinline]] bool reject_parameter(const Draft& draft, uint32_t index,
                                                     Parts... parts);

  // room.cpp: watermarks and waits.
  // Rings in which at least so many tasks have retired since it looked last.
  void sync(CleanedBy reason, int64_t least);
  void sync_ring(uint32_t ring, CleanedBy reason);
  void free_done_edges(uint32_t ring);
  int64_t first_unwired(uint32_t ring) const;
  template <class Look>
  bool wait_until(const Blocked& blocked, Look look);
  bool wait(bool (*look)(void*), void* context);
  Blocked blocked_on(Resource what, const Draft& draft, uint64_t needed) const;
  void picture_wait();
  void enter_planning();

  Context& context_;
  Rings& rings_;
  Clusters& clusters_;
  Scheduler& scheduler_;
  Sizes sizes_;
  KernelTable kernels_;
  TensorMap map_;
  EdgeList edges_;
  Payloads payloads_;
  Scopes scopes_;
  History history_;
  Planner planner_;
  Deadlock deadlock_;
  RunStatistics statistics_;
  Side sides_[kRings];
  // All heaps lie in [heaps_low_, heaps_low_ + heaps_span_), with gaps.
  uint64_t heaps_low_ = 0;
  uint64_t heaps_span_ = 0;
  // 1 in checking mode, where what is at an offset of a heap lies twice as far from its base, and a
  // gap of its own size behind it; else 0.
  uint32_t heap_gaps_ = 0;

  bool is_full_ = false;    // hazards
  bool is_closed_ = false;  // no more submits
  Held held_ = {};
  uint32_t submits_to_sync_ = 0;
  uint64_t published_ = 0;  // of those in the log
  uint64_t logged_ = 0;     // submits in the log
  int64_t last_id_ = kNoTask;
  uint64_t next_key_ = 0;

  Access accesses_[PTO_MAX_TASK_TENSORS];  // of the submit under way
  Blocked blocked_;
  LongWait long_wait_;  // the same, for other threads
  bool (*look_)(void*) = nullptr;
  void* look_context_ = nullptr;
  bool is_quiet_ = false;    // can_go_on() looked: a wait for quiescence may go
  bool was_let_go_ = false;  // can_go_on() looked, with success: it has reserved what is waited for
  bool is_stopped_ = false;  // a deadlock is proven, and planning is over; submits are no-ops
};

// The task that `draft` would have been is part of every report.
template <class... Parts>
bool Orchestrator::reject(const Draft& draft, const ErrorFacts& given, Parts... parts) {
  stop_planning();
  ErrorFacts facts = given;
  facts.task = next_id(draft);
  facts.func_id = draft.task.func_id;
  context_.fail_at(draft.task.file, draft.task.line, facts, parts...);
  return false;
}

template <class... Parts>
pto_status Orchestrator::refuse(Place at, const ErrorFacts& facts, Parts... parts) {
  stop_planning();
  context_.fail_at(at.file, at.line, facts, parts...);
  return status();
}

template <class Look>
bool Orchestrator::wait_until(const Blocked& blocked, Look look) {
  blocked_ = blocked;
  return wait([](void* context) { return (*static_cast<Look*>(context))(); }, &look);
}

}  // namespace pto::ring_buffer
