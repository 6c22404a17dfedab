#include "dispatcher.hpp"

#include <cstring>

#include "states.hpp"

namespace pto::ring_buffer {
namespace {

constexpr uint32_t kLine = 64;  // size of a cache line in bytes

}  // namespace

void Dispatcher::free_core(Lane& lane, uint32_t core) {
  const uint32_t type = context_.platform->topology->core_type[core];
  lane.free_cores[type].words[core / 64] |= uint64_t{1} << (core % 64);
  ++lane.free_count[type];
}

bool Dispatcher::fill_cores(Lane& lane) {
  const int64_t before = lane.dispatched.load(std::memory_order_relaxed);
  for (uint32_t type = 0; type < PTO_CORE_TYPES; ++type) {
    const uint32_t free_count = lane.free_count[type];
    if (free_count == 0) continue;
    const bool others_first = (lane.fills[type] + 1) % Ready::kFairTurn == 0;
    if (!others_first) fill_pinned(lane, type);
    fill_unpinned(lane, type, others_first);
    if (others_first) fill_pinned(lane, type);
    if (lane.free_count[type] != free_count) ++lane.fills[type];
  }
  if (lane.batched > 0) dispatch(lane);
  for (uint32_t type = 0; type < PTO_CORE_TYPES; ++type) {
    if (lane.free_count[type] == 0) ready_.leave(lane.thread, type, lane.statistics);
  }
  return lane.dispatched.load(std::memory_order_relaxed) != before;
}

void Dispatcher::fill_unpinned(Lane& lane, uint32_t type, bool others_first) {
  const uint32_t limit = lane.free_count[type];
  if (limit == 0) return;
  SlotRef tasks[PTO_MAX_CORES];
  const uint32_t count =
      ready_.take(lane.thread, type, others_first, limit, tasks, lane.statistics);
  for (uint32_t i = 0; i < count; ++i) __builtin_prefetch(&rings_.descriptor(tasks[i]));
  for (uint32_t i = 0; i < count; ++i) prefetch_payload(tasks[i]);
  for (uint32_t i = 0; i < count; ++i) {
    put_on_core(lane, type, first_of(lane.free_cores[type]), tasks[i]);
  }
}

void Dispatcher::prefetch_payload(SlotRef task) const {
  const TaskDescriptor& descriptor = rings_.descriptor(task);
  const char* payload = reinterpret_cast<const char*>(descriptor.payload);
  for (uint32_t at = 0; at < descriptor.payload_length; at += kLine) {
    __builtin_prefetch(payload + at);
  }
}

void Dispatcher::fill_pinned(Lane& lane, uint32_t type) {
  const uint32_t blocks = context_.platform->topology->blocks;
  for (uint32_t rest = ready_.pinned(lane.thread, type); rest != 0; rest &= rest - 1) {
    const uint32_t cluster = static_cast<uint32_t>(__builtin_ctz(rest));
    const uint32_t first = type == PTO_CORE_AIC ? cluster : blocks + 2 * cluster;
    const uint32_t end = first + (type == PTO_CORE_AIC ? 1 : 2);
    for (uint32_t core = first; core < end; ++core) {
      if (!contains(lane.free_cores[type], core)) continue;
      if ((ready_.pinned(lane.thread, type) >> cluster & 1) == 0) break;
      put_on_core(lane, type, core, ready_.take_pinned(lane.thread, type, cluster));
      ++lane.statistics.pinned;
    }
  }
}

void Dispatcher::put_on_core(Lane& lane, uint32_t type, uint32_t core, SlotRef task) {
  const TaskDescriptor& descriptor = rings_.descriptor(task);
  const uint32_t length = descriptor.payload_length;
  const pto_payload* payload = descriptor.payload;
  if (descriptor.block_dim > 0) {
    if (lane.used + length > kScratchBytes) dispatch(lane);
    payload = block_payload(lane, descriptor);
  }
  move<Event::kDispatch>(rings_.state(task).phase);
  lane.free_cores[type].words[core / 64] &= ~(uint64_t{1} << (core % 64));
  --lane.free_count[type];
  lane.running[core] = task;
  lane.batch[lane.batched++] = {core, length, payload};
}

const pto_payload* Dispatcher::block_payload(Lane& lane, const TaskDescriptor& descriptor) {
  const uint32_t length = descriptor.payload_length;
  auto* payload = reinterpret_cast<pto_payload*>(lane.scratch + lane.used);
  lane.used += (length + kLine - 1) & ~(kLine - 1);
  std::memcpy(payload, descriptor.payload, length);
  payload->task = static_cast<uint64_t>(descriptor.id);
  pto_payload_args(payload)[descriptor.block_id_arg] = descriptor.block_id;
  return payload;
}

void Dispatcher::dispatch(Lane& lane) {
  const uint32_t count = lane.batched;
  lane.in_flight += count;
  lane.statistics.dispatches += count;
  ++lane.statistics.batches;
  lane.dispatched.store(static_cast<int64_t>(lane.statistics.dispatches),
                        std::memory_order_relaxed);
  context_.platform->dispatch(context_.platform->self, lane.thread, lane.batch, count);
  lane.batched = lane.used = 0;
}

}  // namespace pto::ring_buffer
