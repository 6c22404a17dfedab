#include "ready.hpp"

#include "pto/abi/dtype.h"

namespace pto::ring_buffer {

void Ready::begin() {
  has_had_mixed_.store(false, std::memory_order_relaxed);
  const pto_topology& topology = *context_.platform->topology;
  threads_ = topology.schedulers;
  used_ = shards_ < threads_ ? shards_ : threads_;
  uint32_t shard = 0;
  for (uint32_t thread = 0; thread < threads_; ++thread) {
    Lane& lane = lanes_[thread];
    lane.own_shard = lane.other_shard = shard;
    lane.inbox.store(kNoSlot, std::memory_order_relaxed);
    lane.dummies.clear();
    shard = next_shard(shard);
    for (TaskList& tasks : lane.local) tasks.clear();
    for (uint32_t& clusters : lane.pinned) clusters = 0;
    for (uint32_t cluster = 0; cluster < topology.blocks; ++cluster) {
      if (topology.thread_cores[thread].words[0] >> cluster & 1) {
        lane_of_cluster_[cluster] = static_cast<uint8_t>(thread);
      }
    }
  }
  cohorts.begin();
  for (auto& of_type : pinned_) {
    for (TaskList& tasks : of_type) tasks.clear();
  }
  for (auto& of_queue : shard_) {
    for (Shard& one : of_queue) {
      one.is_locked.store(0, std::memory_order_relaxed);
      one.size.store(0, std::memory_order_relaxed);
      one.tasks.clear();
    }
  }
}

void Ready::add(uint32_t thread, SlotRef head, SlotRef producer) {
  uint32_t& traits = rings_.state(head).traits;
  if ((traits & (kHasPredicate | kIsBlock)) == 0) return add_one(thread, head, producer);
  const bool is_skipped = (traits & kHasPredicate) != 0 && !is_predicate_true(head);
  if (is_skipped) traits |= kIsDummy;
  if ((traits & kIsBlock) == 0) return add_one(thread, head, producer);
  const TaskRing& ring = rings_.ring[ring_of(head)];
  const uint32_t blocks = rings_.descriptor(head).block_dim;
  const bool is_cohort = (traits & kIsCohort) != 0 && !is_skipped;
  for (uint32_t block = 0; block < blocks; ++block) {
    const SlotRef slot = ring.block(head, block);
    if (is_skipped) rings_.state(slot).traits |= kIsDummy;
    if (is_cohort) {
      satisfy(thread, slot, producer);
    } else {
      add_one(thread, slot, producer);
    }
  }
  if (is_cohort) cohorts.add(rings_, head);
}

namespace {

template <class Integer>
int64_t read(uint64_t address) {
  return static_cast<int64_t>(*reinterpret_cast<const Integer*>(static_cast<uintptr_t>(address)));
}

int64_t read_integer(const pto_predicate& predicate) {
  switch (predicate.dtype) {
    case PTO_DTYPE_INT8:
      return read<int8_t>(predicate.address);
    case PTO_DTYPE_INT16:
      return read<int16_t>(predicate.address);
    case PTO_DTYPE_INT32:
      return read<int32_t>(predicate.address);
    default:
      return read<int64_t>(predicate.address);
  }
}

}  // namespace

// Its producers have completed, so the operand has its final value.
bool Ready::is_predicate_true(SlotRef head) const {
  const auto* payload = reinterpret_cast<const ChipPayload*>(rings_.descriptor(head).payload);
  const pto_predicate& predicate = payload->predicate;
  const int64_t value = read_integer(predicate);
  switch (predicate.op) {
    case PTO_PREDICATE_EQ:
      return value == predicate.target;
    case PTO_PREDICATE_NE:
      return value != predicate.target;
    case PTO_PREDICATE_GT:
      return value > predicate.target;
    case PTO_PREDICATE_LT:
      return value < predicate.target;
    case PTO_PREDICATE_GE:
      return value >= predicate.target;
    case PTO_PREDICATE_LE:
      return value <= predicate.target;
    default:
      return true;
  }
}

void Ready::trace_ready(uint32_t thread, SlotRef task, SlotRef producer) {
  const auto id_of = [this](SlotRef slot) {
    return static_cast<uint64_t>(rings_.descriptor(slot).id);
  };
  pto_order(context_.platform, PTO_TRACE_READY, id_of(task), thread);
  pto_record(context_.platform, PTO_TRACK_SCHEDULER + thread, PTO_TRACE_READY, id_of(task),
             producer == kNoSlot ? 0 : id_of(producer) + 1);
}

void Ready::satisfy(uint32_t thread, SlotRef task, SlotRef producer) {
  move<Event::kSatisfy>(rings_.state(task).phase);
  if (context_.platform->tracing) trace_ready(thread, task, producer);
}

void Ready::add_one(uint32_t thread, SlotRef task, SlotRef producer) {
  satisfy(thread, task, producer);
  const RingTaskState& state = rings_.state(task);
  if ((state.traits & kIsDummy) != 0) return lanes_[thread].dummies.push(rings_, task);
  const bool is_mixed = (state.traits & kIsMixed) != 0;
  if (is_mixed) has_had_mixed_.store(true, std::memory_order_relaxed);
  const uint32_t type = is_mixed ? kClusterQueue : state.traits & kCoreType;
  const uint32_t cluster = state.traits >> kClusterShift;
  if (cluster == 0) {
    lanes_[thread].local[type].push(rings_, task);
  } else {
    pin(thread, task, cluster - 1, type);
  }
}

void Ready::pin(uint32_t thread, SlotRef task, uint32_t cluster, uint32_t type) {
  const uint32_t owner = lane_of_cluster_[cluster];
  Lane& lane = lanes_[owner];
  if (owner == thread) {
    pinned_[type][cluster].push(rings_, task);
    lane.pinned[type] |= 1u << cluster;
    return;
  }
  RingTaskState& state = rings_.state(task);
  SlotRef first = lane.inbox.load(std::memory_order_relaxed);
  do {
    state.next_ready = first;
  } while (!lane.inbox.compare_exchange_weak(first, task, std::memory_order_seq_cst,
                                             std::memory_order_relaxed));
  resting_.wake(owner);
}

void Ready::receive_all(uint32_t thread) {
  SlotRef next = lanes_[thread].inbox.exchange(kNoSlot, std::memory_order_acquire);
  TaskList oldest_first;
  while (next != kNoSlot) {
    const SlotRef task = next;
    next = rings_.state(task).next_ready;
    oldest_first.push_first(rings_, task);
  }
  while (oldest_first.size() > 0) {
    const SlotRef task = oldest_first.pop(rings_);
    const uint32_t traits = rings_.state(task).traits;
    pin(thread, task, (traits >> kClusterShift) - 1, traits & kCoreType);
  }
}

SlotRef Ready::take_pinned(uint32_t thread, uint32_t type, uint32_t cluster) {
  TaskList& tasks = pinned_[type][cluster];
  const SlotRef task = tasks.pop(rings_);
  if (tasks.size() == 0) lanes_[thread].pinned[type] &= ~(1u << cluster);
  return task;
}

uint32_t Ready::take(uint32_t thread, uint32_t type, bool others_first, uint32_t limit,
                     SlotRef* out, LaneStatistics& statistics) {
  Lane& lane = lanes_[thread];
  const uint32_t waiting = lane.local[type].size();
  if (waiting > statistics.ready_peak) statistics.ready_peak = waiting;
  if (threads_ == 1) return take_local(thread, type, limit, out);
  uint32_t count = 0;
  if (others_first) {
    lane.other_shard = next_shard(lane.other_shard);
    count = take_shards(thread, type, lane.other_shard, limit, out, statistics);
  }
  count += take_local(thread, type, limit - count, out + count);
  if (others_first || count == limit) return count;
  return count + take_shards(thread, type, lane.own_shard, limit - count, out + count, statistics);
}

uint32_t Ready::take_local(uint32_t thread, uint32_t type, uint32_t limit, SlotRef* out) {
  TaskList& local = lanes_[thread].local[type];
  const uint32_t count = local.size() < limit ? local.size() : limit;
  for (uint32_t i = 0; i < count; ++i) out[i] = local.pop(rings_);
  return count;
}

// Take tasks from the shards in turn, beginning with `first`.
uint32_t Ready::take_shards(uint32_t thread, uint32_t type, uint32_t first, uint32_t limit,
                            SlotRef* out, LaneStatistics& statistics) {
  uint32_t count = 0;
  uint32_t shard = first;
  do {
    const uint32_t taken = take_shard(shard_[type][shard], limit - count, out + count);
    (shard == lanes_[thread].own_shard ? statistics.taken : statistics.steals) += taken;
    count += taken;
    shard = next_shard(shard);
  } while (count < limit && shard != first);
  return count;
}

uint32_t Ready::take_shard(Shard& shard, uint32_t limit, SlotRef* out) {
  if (shard.size.load(std::memory_order_relaxed) == 0 || !shard.try_lock()) return 0;
  uint32_t count = 0;
  while (count < limit && shard.tasks.size() > 0) out[count++] = shard.tasks.pop(rings_);
  shard.size.store(shard.tasks.size(), std::memory_order_relaxed);
  shard.unlock();
  return count;
}

void Ready::leave(uint32_t thread, uint32_t type, LaneStatistics& statistics) {
  TaskList& local = lanes_[thread].local[type];
  if (threads_ == 1) return;
  uint32_t left = local.size();
  uint32_t number = lanes_[thread].own_shard;
  for (uint32_t tries = 0; tries < used_ && local.size() > 0; ++tries) {
    Shard& shard = shard_[type][number];
    number = next_shard(number);
    if (!shard.try_lock()) continue;
    statistics.shared += local.size();
    shard.tasks.append(rings_, local);
    left = shard.tasks.size();
    shard.size.store(left, std::memory_order_seq_cst);
    shard.unlock();
  }
  if (has_shared(type)) statistics.wakes += resting_.wake_hungry(type, left > 0 ? left : 1);
}

bool Ready::has_shared(uint32_t type) const {
  for (uint32_t shard = 0; shard < used_; ++shard) {
    if (shard_[type][shard].size.load(std::memory_order_seq_cst) > 0) return true;
  }
  return false;
}

}  // namespace pto::ring_buffer
