// The queues in which ready tasks wait for a core.
//
//   local    one queue for each lane, with the tasks that the lane has just made ready. With
//            several schedulers, tasks for which the lane has no free core move to a shard. With
//            one scheduler all tasks stay here.
//   shards   several queues for each core type. Lane t fills shard t mod shards. It takes tasks
//            from this shard first, then from the others (steals). No lane waits for a locked
//            shard: it tries the next one.
//   dummies  tasks without a kernel. The lane that makes one ready completes it in the same step.
//   pinned   tasks of a cluster: one queue for each cluster and core type, which belongs to the
//            lane of these cores. Other lanes put such tasks into the inbox of that lane.
//   cohorts  tasks whose blocks start at the same time; see cohorts.hpp. They take free cores
//   first.
//
// All queues are first in, first out. They are linked through TaskState::next_ready, so they have
// no size limit. No ready task starves. Only tasks that are local, pinned or in other shards can
// overtake the first task of a shard; therefore every kFairTurn-th time that a lane fills cores of
// a type, it takes tasks from the shards first, and starts with a different shard each time.
#pragma once

#include <atomic>
#include <cstdint>

#include "cohorts.hpp"
#include "pto/abi/topology.h"
#include "pto/engine/context.hpp"
#include "rings.hpp"
#include "states.hpp"

namespace pto::ring_buffer {

// The counters of one scheduler. Only its thread writes them; other threads read them after the
// run.
struct LaneStatistics {
  uint64_t dispatches;
  uint64_t batches;
  uint64_t wired;            // number of submits
  uint64_t edges;            // ordering edges that the scheduler connected
  uint64_t edges_satisfied;  // of these, edges to producers that had already completed
  uint64_t early_ready;      // tasks that were ready when they were connected
  uint64_t shared;           // ready tasks that it offered to all schedulers
  uint64_t taken;            // tasks that it took from its own queue shard
  uint64_t steals;           // tasks that it took from the shard of another scheduler
  uint64_t pinned;           // tasks of clusters that it dispatched
  uint64_t retired;          // tasks that it retired
  uint64_t wakes;            // number of times that it woke an idle scheduler
  uint64_t ready_peak;       // maximum number of ready tasks that waited for its cores
};

// The set of schedulers that are idle or about to become idle.
//
// The wake protocol loses no wake-up. A thread that creates work stores the work (seq_cst) and then
// reads this word. A scheduler without work enters itself here (seq_cst) and then checks for work
// once more. So either the thread sees the scheduler here, or the scheduler sees the work. The
// thread that removes a scheduler from this word wakes it.
class Resting {
 public:
  explicit Resting(engine::Context& context) : context_(context) {}

  // At the start of a run no scheduler is idle, because the backend steps every scheduler at least
  // once.
  void begin(uint32_t threads) {
    all_ = 0;
    for (uint32_t thread = 0; thread < threads; ++thread) all_ |= kRests << (kBits * thread);
    word_.store(0, std::memory_order_relaxed);
  }

  // Called when scheduler `thread` is about to become idle. Bit t of `free_types` is set if it has
  // a free core of type t.
  void enter(uint32_t thread, uint32_t free_types) {
    word_.fetch_or((kRests | free_types << 1) << (kBits * thread), std::memory_order_seq_cst);
  }
  void leave(uint32_t thread) {
    if (word_.load(std::memory_order_relaxed) & mine(thread)) {
      word_.fetch_and(~mine(thread), std::memory_order_relaxed);
    }
  }

  // Wake idle schedulers that may have a free core for a task of queue `type`, at most `tasks` of
  // them, because that many more tasks are ready. Return the number of woken schedulers.
  uint32_t wake_hungry(uint32_t type, uint32_t tasks) {
    uint32_t hungry = word_.load(std::memory_order_seq_cst) & hungry_bits(type);
    uint32_t woken = 0;
    for (; hungry != 0 && woken < tasks; hungry &= hungry - 1) {
      woken += wake(static_cast<uint32_t>(__builtin_ctz(hungry)) / kBits);
    }
    return woken;
  }

  // Return whether all schedulers are idle, so that no scheduler would find new work. Call this
  // after the work was stored (seq_cst). If the result is false, a scheduler will find the work
  // before it becomes idle.
  bool do_all_rest() const { return (word_.load(std::memory_order_seq_cst) & all_) == all_; }

  // Wake a scheduler if all are idle. For work that any scheduler can do: a scheduler that is awake
  // finds it without a wake-up.
  void wake_if_all_rest() {
    if ((word_.load(std::memory_order_seq_cst) & all_) == all_) wake(0);
  }

  // Remove `thread` from the set and wake it. Return whether it was in the set.
  bool wake(uint32_t thread) {
    if ((word_.load(std::memory_order_seq_cst) & mine(thread)) == 0) return false;
    const uint32_t before = word_.fetch_and(~mine(thread), std::memory_order_seq_cst);
    if ((before & mine(thread)) == 0) return false;
    context_.platform->wake(context_.platform->self, thread);
    return true;
  }

 private:
  // Each scheduler has a byte with three bits: the scheduler is idle; it has a free AIC core; it
  // has a free AIV core.
  static constexpr uint32_t kBits = 8;
  static constexpr uint32_t kRests = 1;
  static_assert(kBits * PTO_MAX_AICPU_THREADS <= 32, "the word needs a byte for each scheduler");

  static uint32_t mine(uint32_t thread) { return 0xFFu << (kBits * thread); }
  // For tasks that need a whole cluster, every idle scheduler counts.
  static uint32_t hungry_bits(uint32_t queue) {
    return queue == kClusterQueue ? 0x01010101u : 0x02020202u << queue;
  }

  engine::Context& context_;
  uint32_t all_ = 0;
  alignas(64) std::atomic<uint32_t> word_{0};
};

// A linked list of tasks. Only one thread at a time may use it.
class TaskList {
 public:
  void clear() {
    first_ = last_ = kNoSlot;
    size_ = 0;
  }

  void push(const Rings& rings, SlotRef task) {
    rings.state(task).next_ready = kNoSlot;
    if (first_ == kNoSlot) {
      first_ = task;
    } else {
      rings.state(last_).next_ready = task;
    }
    last_ = task;
    ++size_;
  }

  void push_first(const Rings& rings, SlotRef task) {
    rings.state(task).next_ready = first_;
    if (first_ == kNoSlot) last_ = task;
    first_ = task;
    ++size_;
  }

  SlotRef pop(const Rings& rings) {
    const SlotRef task = first_;
    first_ = rings.state(task).next_ready;
    --size_;
    return task;
  }

  // Move all tasks of `other` to the end of this list.
  void append(const Rings& rings, TaskList& other) {
    if (other.size_ == 0) return;
    if (first_ == kNoSlot) {
      first_ = other.first_;
    } else {
      rings.state(last_).next_ready = other.first_;
    }
    last_ = other.last_;
    size_ += other.size_;
    other.clear();
  }

  uint32_t size() const { return size_; }

 private:
  SlotRef first_ = kNoSlot;
  SlotRef last_ = kNoSlot;
  uint32_t size_ = 0;
};

class Ready {
 public:
  static constexpr uint32_t kMostShards = 16;
  static constexpr uint32_t kFairTurn = 8;

  Cohorts cohorts;

  Ready(Context& context, Rings& rings, Resting& resting)
      : context_(context), rings_(rings), resting_(resting) {}

  void create(uint32_t shards) { shards_ = shards < kMostShards ? shards : kMostShards; }
  void begin();

  // Called by lane `thread` when all producers of the submit at `head` have completed. Adds the
  // task or all its blocks. `producer`: the task that completed last, if this call follows from its
  // completion.
  void add(uint32_t thread, SlotRef head, SlotRef producer = kNoSlot);

  // Called by lane `thread`: take at most `limit` tasks of `type`. Return their number. If
  // `others_first` is set, take tasks from the shared queues first.
  uint32_t take(uint32_t thread, uint32_t type, bool others_first, uint32_t limit, SlotRef* out,
                LaneStatistics& statistics);

  // Called by lane `thread`: whether a task that runs no kernel is ready, and such a task.
  bool has_dummy(uint32_t thread) const { return lanes_[thread].dummies.size() > 0; }
  SlotRef take_dummy(uint32_t thread) { return lanes_[thread].dummies.pop(rings_); }
  // Return whether the run has had a ready task that needs several cores of a cluster.
  bool has_had_mixed() const { return has_had_mixed_.load(std::memory_order_relaxed); }
  // Wake all idle lanes, so that they leave cores to a cohort, or use the cores again.
  void wake_lanes() { resting_.wake_hungry(kClusterQueue, PTO_MAX_AICPU_THREADS); }

  // Called by lane `thread`: move tasks from its inbox to the queues of their clusters.
  void receive(uint32_t thread) {
    if (lanes_[thread].inbox.load(std::memory_order_relaxed) != kNoSlot) receive_all(thread);
  }
  // Return the clusters of lane `thread` that have a task of `type`, as bits.
  uint32_t pinned(uint32_t thread, uint32_t type) const { return lanes_[thread].pinned[type]; }
  SlotRef take_pinned(uint32_t thread, uint32_t type, uint32_t cluster);

  // Called by lane `thread` when it has no free core of `type` left. Moves its local tasks to a
  // shard for other lanes, and wakes them. If every shard is locked, the next step tries again.
  void leave(uint32_t thread, uint32_t type, LaneStatistics& statistics);

  // Return whether there is a task that the lane could take. A lane calls these functions after it
  // has entered itself in resting_.
  bool has_shared(uint32_t type) const;
  bool has_local(uint32_t thread, uint32_t type) const {
    return lanes_[thread].local[type].size() > 0;
  }
  bool has_mail(uint32_t thread) const {
    return lanes_[thread].inbox.load(std::memory_order_seq_cst) != kNoSlot;
  }

 private:
  struct alignas(64) Shard {
    std::atomic<uint32_t> is_locked;
    std::atomic<uint32_t> size;
    TaskList tasks;

    bool try_lock() {
      return is_locked.load(std::memory_order_relaxed) == 0 &&
             is_locked.exchange(1, std::memory_order_acquire) == 0;
    }
    void unlock() { is_locked.store(0, std::memory_order_release); }
  };

  struct alignas(64) Lane {
    TaskList local[kQueues];
    TaskList dummies;  // tasks without a kernel, which the lane completes in the same step
    uint32_t pinned[PTO_CORE_TYPES];
    uint32_t own_shard;
    uint32_t other_shard;  // where to start when the shared queues are tried first
    alignas(64) std::atomic<SlotRef> inbox;  // a stack of tasks from other lanes
  };

  bool is_predicate_true(SlotRef head) const;
  void satisfy(uint32_t thread, SlotRef task, SlotRef producer);
  void add_one(uint32_t thread, SlotRef task, SlotRef producer);
  void trace_ready(uint32_t thread, SlotRef task, SlotRef producer);
  void pin(uint32_t thread, SlotRef task, uint32_t cluster, uint32_t type);
  void receive_all(uint32_t thread);
  uint32_t take_local(uint32_t thread, uint32_t type, uint32_t limit, SlotRef* out);
  uint32_t take_shard(Shard& shard, uint32_t limit, SlotRef* out);
  uint32_t take_shards(uint32_t thread, uint32_t type, uint32_t first, uint32_t limit, SlotRef* out,
                       LaneStatistics& statistics);
  uint32_t next_shard(uint32_t shard) const { return shard + 1 < used_ ? shard + 1 : 0; }

  Context& context_;
  Rings& rings_;
  Resting& resting_;
  uint32_t shards_ = 1;  // the requested number of shards
  uint32_t used_ = 1;    // the number of shards in this run: at most one for each scheduler
  uint32_t threads_ = 1;
  std::atomic<bool> has_had_mixed_{false};
  uint8_t lane_of_cluster_[PTO_MAX_BLOCKS] = {};
  Lane lanes_[PTO_MAX_AICPU_THREADS] = {};
  TaskList pinned_[PTO_CORE_TYPES][PTO_MAX_BLOCKS];
  Shard shard_[kQueues][kMostShards] = {};
};

}  // namespace pto::ring_buffer
