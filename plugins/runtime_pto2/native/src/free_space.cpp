#include "free_space.hpp"

namespace pto::ring_buffer {
namespace {

// The number of tasks in advance at which sync_ring() prefetches the map entry of a retired task.
constexpr int64_t kAhead = 8;

}  // namespace

Shortage FreeSpace::create(Memory& memory, const Options& options) {
  if (!payloads_.create(memory)) return {"the payloads of tasks"};
  if (!map_.create(memory, static_cast<uint32_t>(options.tensor_map_pool))) {
    return {"the tensor map", "pto2.tensor_map_pool"};
  }
  return {};
}

void FreeSpace::destroy() {
  map_.destroy();
  payloads_.destroy();
}

void FreeSpace::begin(const Options& options, bool full_hazards) {
  for (uint32_t index = 0; index < kRings; ++index) {
    RingSpace& space = spaces_[index];
    space.alive = space.edges_alive = 0;
    space.heap_tail = space.edges_tail = 0;
    space.heap.restart(options.heap[index]);
    space.edges.restart(options.dep_pool[index], 1);
  }
  payloads_.begin();
  map_.begin(rings_, full_hazards);
  submits_to_sync_ = kSyncInterval;
}

void FreeSpace::sync(CleanedBy reason, int64_t least) {
  submits_to_sync_ = kSyncInterval;
  for (uint32_t index = 0; index < kRings; ++index) {
    const int64_t retired = rings_.ring[index].watermark.load(std::memory_order_seq_cst);
    if (retired - spaces_[index].alive >= least) sync_ring(index, reason);
  }
}

void FreeSpace::free_retired(uint32_t index, int64_t retired, CleanedBy reason) {
  const TaskRing& ring = rings_.ring[index];
  RingSpace& space = spaces_[index];
  for (int64_t number = space.alive; number < retired; ++number) {
    if (number + kAhead < retired) map_.prepare_to_retire(ring.record(number + kAhead));
    RingTask& record = ring.record(number);
    if (record.first_entry != 0) map_.retire(record, reason);
    if (record.payload != nullptr) payloads_.give_back(record.payload, record.payload_class);
  }
  const RingTask& newest = ring.record(retired - 1);
  space.heap_tail = newest.heap_end;
  if (space.edges_alive < retired) {
    space.edges_alive = retired;
    space.edges_tail += newest.edges_end - static_cast<uint32_t>(space.edges_tail);
  }
  space.alive = retired;
  map_.saw(index, retired);
}

void FreeSpace::free_done_edges(uint32_t index, int64_t end) {
  const TaskRing& ring = rings_.ring[index];
  RingSpace& space = spaces_[index];
  while (space.edges_alive < end) {
    const uint32_t phase = ring.state(space.edges_alive).phase.load(std::memory_order_acquire);
    if (phase != kDone && phase != kConsumed) return;
    const uint32_t tail = ring.record(space.edges_alive).edges_end;
    space.edges_tail += tail - static_cast<uint32_t>(space.edges_tail);
    ++space.edges_alive;
  }
}

bool FreeSpace::has_retired(SlotRef task) const {
  return rings_.ring[ring_of(task)].newest_in(slot_of(task)) < spaces_[ring_of(task)].alive;
}

RingUse FreeSpace::use(uint32_t index) const {
  const RingSpace& space = spaces_[index];
  return {static_cast<uint64_t>(rings_.ring[index].next - space.alive),
          space.heap.used(space.heap_tail), space.edges.used(space.edges_tail)};
}

}  // namespace pto::ring_buffer
