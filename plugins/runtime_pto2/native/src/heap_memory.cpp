#include "heap_memory.hpp"

namespace pto::ring_buffer {

void HeapMemory::destroy() {
  for (uint64_t& base : bases_) {
    if (base != 0) context_.platform->free(context_.platform->self, base);
    base = 0;
  }
}

pto_status HeapMemory::open(uint32_t ring) {
  const pto_platform* platform = context_.platform;
  const uint64_t bytes = space_.ring(ring).heap.capacity();
  uint64_t base = 0;
  const pto_status status = platform->allocate_ring(platform->self, bytes, &base);
  if (status != PTO_OK) return status;
  bases_[ring] = base;
  const uint64_t end = base + (bytes << gap_shift_);
  const uint64_t high = span_ != 0 && low_ + span_ > end ? low_ + span_ : end;
  if (span_ == 0 || base < low_) low_ = base;
  span_ = high - low_;
  return PTO_OK;
}

bool HeapMemory::find_ring_of(uint64_t address, uint32_t* ring) const {
  for (*ring = 0; *ring < kRings; ++*ring) {
    if (bases_[*ring] == 0) continue;
    if (address - bases_[*ring] < space_.ring(*ring).heap.capacity() << gap_shift_) return true;
  }
  return false;
}

// The heap ranges of live tasks have the order of the task numbers. So only the last range that
// starts at or before the address can contain it.
int64_t HeapMemory::owner_of(uint32_t index, uint64_t address) const {
  const TaskRing& ring = rings_.ring[index];
  const RingSpace& space = space_.ring(index);
  const uint64_t size = space.heap.capacity();
  const uint64_t head = space.heap.head();
  uint64_t offset = head - head % size + ((address - bases_[index]) >> gap_shift_);
  if (offset >= head) offset -= size;
  int64_t low = space.alive;
  int64_t high = ring.next;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (ring.record(middle).heap_begin <= offset) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low == space.alive) return kNoTask;
  const TaskRecord& record = ring.record(low - 1);
  const bool is_inside = offset >= record.heap_begin && offset < record.heap_end;
  return is_inside ? TaskId{index, low - 1}.value() : kNoTask;
}

}  // namespace pto::ring_buffer
