#include "trace/tracer.hpp"

#include <algorithm>
#include <cstring>

#include "trace/child_ring.hpp"

namespace pto::hierarchy {
namespace {

constexpr uint64_t kDrainsARing = 16;

}  // namespace

void Tracer::begin(uint32_t groups, const TraceMemory& memory, uint64_t most_records) {
  memory_ = memory;
  most_records_ = most_records;
  frames_a_drain_ = std::max<uint64_t>(memory.ring_records / kDrainsARing, 1);
  first_ = read_clock_pair();
  for (int32_t child = 0; child < children(); ++child) {
    ChildRecord& record = progress_.child(child);
    record.trace_ring.store(prepare_ring(ring(child), memory.ring_records),
                            std::memory_order_relaxed);
    record.trace_groups.store(groups, std::memory_order_release);
  }
  groups_ = groups;
}

WorkerRecords Tracer::end() {
  for (int32_t child = 0; child < children(); ++child)
    progress_.child(child).trace_groups.store(0, std::memory_order_relaxed);
  WorkerRecords found;
  if (!is_on()) {
    found.lost.resize(2 + static_cast<size_t>(children()));
    return found;
  }
  drain();
  found.records.reserve(count_ * sizeof(pto_trace_record));
  for (uint64_t at = 0; at < count_; at += kChunkRecords) {
    const uint64_t records = std::min(count_ - at, kChunkRecords);
    found.records.append(reinterpret_cast<const char*>(chunks_[at / kChunkRecords].get()),
                         records * sizeof(pto_trace_record));
  }
  found.lost.assign(lost_, lost_ + 2);
  for (int32_t child = 0; child < children(); ++child) {
    const pto_trace_ring& each = *ring(child);
    // Records that still lie in the ring were not taken because of the limit.
    found.lost.push_back(__atomic_load_n(&each.attempts, __ATOMIC_RELAXED) - each.read);
  }
  found.first = first_;
  found.last = read_clock_pair();
  found.runs = std::move(runs_);
  found.kinds.resize(kinds_.size() * sizeof(ArgumentKind));
  for (const auto& [kind, number] : kinds_)
    std::memcpy(found.kinds.data() + number * sizeof kind, &kind, sizeof kind);
  groups_ = 0;
  count_ = 0;
  chunks_.clear();
  runs_.clear();
  kinds_.clear();
  std::fill(attempts_, attempts_ + 2, 0);
  std::fill(lost_, lost_ + 2, 0);
  return found;
}

void Tracer::drain() {
  undrained_ = 0;
  for (int32_t child = 0; child < children(); ++child) {
    pto_trace_ring& from = *ring(child);
    const uint64_t end = __atomic_load_n(&from.written, __ATOMIC_ACQUIRE);
    if (end == from.read) continue;
    uint64_t at = from.read;
    for (; at < end; ++at) {
      pto_trace_record* to = place();
      if (!to) break;
      *to = from.records[at & from.mask];
    }
    __atomic_store_n(&from.read, at, __ATOMIC_RELEASE);
  }
}

void Tracer::add_at(uint64_t clock, uint16_t track, uint16_t event, uint64_t a, uint64_t b) {
  const auto number = static_cast<uint32_t>(attempts_[track]++);
  pto_trace_record* to = place();
  if (to)
    *to = {clock, a, b, number, event, track};
  else
    ++lost_[track];
}

// Return the number of a kind of argument. If there are too many kinds, later ones have the number
// of an undefined one.
uint32_t Tracer::number_of(const ArgumentKind& kind) {
  constexpr uint32_t kLargest = (1u << 24) - 1;
  const auto found = kinds_.find(kind);
  if (found != kinds_.end()) return found->second;
  const auto number = static_cast<uint32_t>(kinds_.size());
  if (number < kLargest) kinds_.emplace(kind, number);
  return number;
}

// Return the place of the next record, or null if the limit is reached.
pto_trace_record* Tracer::place() {
  if (count_ == most_records_) return nullptr;
  if (count_ % kChunkRecords == 0)
    chunks_.push_back(std::make_unique_for_overwrite<pto_trace_record[]>(kChunkRecords));
  pto_trace_record* to = &chunks_.back()[count_ % kChunkRecords];
  ++count_;
  return to;
}

}  // namespace pto::hierarchy
