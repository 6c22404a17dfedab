#include "tensor_map.hpp"

#include "pto/engine/tensor_region.hpp"

namespace pto::ring_buffer {

using engine::Region;
using engine::RegionRemoval;
using engine::RegionState;

bool TensorMap::create(engine::Memory& memory, uint32_t capacity) {
  memory_ = &memory;
  configured_ = limit_ = capacity_ = capacity;
  const bool has_readers = reader_pool_.create(memory, capacity);
  return writers_.create(memory, capacity) && readers_.create(memory, capacity) && has_readers;
}

void TensorMap::destroy() {
  if (memory_ == nullptr) return;
  writers_.destroy();
  readers_.destroy();
  reader_pool_.destroy(*memory_, capacity_);
}

void TensorMap::begin(const Rings& rings, bool full_hazards) {
  rings_ = &rings;
  full_hazards_ = full_hazards;
  writers_.restart();
  readers_.restart();
  for (int64_t& number : alive_from_) number = 0;
  limit_ = configured_;
  reader_pool_.restart();
  visited_before_ = writers_.visited() + readers_.visited();
  statistics_ = {};
}

bool TensorMap::grow_for(uint32_t entries) {
  uint32_t capacity = capacity_;
  while (capacity < needed(entries)) capacity *= 2;
  if (capacity > capacity_) {
    if (!reader_pool_.grow(*memory_, capacity_, capacity)) return false;
    capacity_ = capacity;
    if (!writers_.grow(capacity) || !readers_.grow(capacity)) return false;
  }
  limit_ = capacity;
  return true;
}

Access locate_access(const pto_tensor_data& tensor) {
  Access access;
  access.owner = tensor.owner;
  engine::locate_region(tensor, access.region);
  return access;
}

void TensorMap::insert_writer(const Access& access, int64_t task, bool is_fresh) {
  if (full_hazards_ && !is_fresh) {
    ReaderPolicy readers{*this};
    readers_.remove_covered(access.region, access.readers, readers);
  }
  WriterPolicy writers{*this};
  const uint32_t node = writers_.replace(access.region, access.writers, writers, is_fresh);
  link(writers_.value(node), node, task, access.owner);
  count_live();
}

void TensorMap::insert_reader(const Access& access, int64_t task) {
  if (!full_hazards_) return;
  ReaderPolicy policy{*this};
  bool is_new;
  const uint32_t node = readers_.obtain(access.region, access.readers, policy, &is_new);
  ReaderList& list = readers_.value(node);
  if (is_new) list.first = 0;
  if (list.first != 0 && reader_pool_[list.first].entry.task == task) return;
  const uint32_t index = reader_pool_.take();
  ReaderEntry& reader = reader_pool_[index];
  reader.node = node;
  reader.older = list.first;
  reader.newer = 0;
  if (list.first != 0) reader_pool_[list.first].newer = index;
  list.first = index;
  link(reader.entry, index | kReaderLink, task, access.owner);
  count_live();
}

void TensorMap::retire(RingTask& record, CleanedBy reason) {
  uint64_t entries = 0;
  Link next = record.first_entry;
  record.first_entry = 0;
  for (; next != 0; ++entries) {
    const Link self = next;
    next = entry_at(self).next;
    if ((self & kReaderLink) != 0) {
      retire_reader(self & ~kReaderLink);
    } else {
      writers_.erase(self);
    }
  }
  (reason == CleanedBy::kBatch ? statistics_.cleaned_by_batch
                               : statistics_.cleaned_by_back_pressure) += entries;
}

TensorMap::Statistics TensorMap::statistics() const {
  Statistics statistics = statistics_;
  statistics.nodes_visited = writers_.visited() + readers_.visited() - visited_before_;
  statistics.live = writers_.live() + reader_pool_.live();
  return statistics;
}

void TensorMap::link(Entry& entry, Link self, int64_t task, int64_t owner) {
  uint32_t& first = first_of(task);
  entry.task = task;
  entry.owner = owner;
  entry.next = first;
  entry.previous = 0;
  if (first != 0) entry_at(first).previous = self;
  first = self;
}

void TensorMap::count_live() {
  const uint64_t live = writers_.live() + reader_pool_.live();
  if (live > statistics_.peak) statistics_.peak = live;
}

void TensorMap::forget(const Entry& entry, RegionRemoval why) {
  if (entry.next != 0) entry_at(entry.next).previous = entry.previous;
  if (entry.previous != 0) {
    entry_at(entry.previous).next = entry.next;
  } else {
    first_of(entry.task) = entry.next;
  }
  ++(why == RegionRemoval::kCovered ? statistics_.covered : statistics_.cleaned_by_lookup);
}

// Remove retired readers, newest first, up to the first live one. A region is live while any of its
// readers is live. Later visits remove the rest of the list, so the cost is amortised.
RegionState TensorMap::prune(ReaderList& list) {
  while (list.first != 0) {
    const uint32_t index = list.first;
    const ReaderEntry& reader = reader_pool_[index];
    if (state_of(reader.entry) == RegionState::kLive) return RegionState::kLive;
    list.first = reader.older;
    if (list.first != 0) reader_pool_[list.first].newer = 0;
    forget(reader.entry, RegionRemoval::kStale);
    reader_pool_.free(index);
  }
  return RegionState::kGone;
}

void TensorMap::forget_all(ReaderList& list, RegionRemoval why) {
  while (list.first != 0) {
    const uint32_t index = list.first;
    list.first = reader_pool_[index].older;
    forget(reader_pool_[index].entry, why);
    reader_pool_.free(index);
  }
}

// Remove the reader from the list of its region. The caller updates the list of the task's entries.
void TensorMap::retire_reader(uint32_t index) {
  const ReaderEntry& reader = reader_pool_[index];
  ReaderList& list = readers_.value(reader.node);
  if (reader.older != 0) reader_pool_[reader.older].newer = reader.newer;
  if (reader.newer != 0) {
    reader_pool_[reader.newer].older = reader.older;
  } else {
    list.first = reader.older;
  }
  if (list.first == 0) readers_.erase(reader.node);
  reader_pool_.free(index);
}

}  // namespace pto::ring_buffer
