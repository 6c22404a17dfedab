#include "trace/tracer.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

namespace pto::worker {
namespace {

constexpr uint64_t kDrainsPerRing = 20;

}  // namespace

void Tracer::begin(const WorkerTraceSettings& settings, const TraceMemory& memory) {
  settings_ = settings;
  memory_ = memory;
  frames_per_drain_ = std::max<uint64_t>(memory.ring_records / kDrainsPerRing, 1);
  drops_.assign(static_cast<size_t>(children()), {});
  first_ = read_clock_pair();
  set_window();
  if (keeps_last())
    memory_.begin_flight(static_cast<uint32_t>(children()), first_, settings_.description);
  for (int32_t child = 0; child < children(); ++child) {
    ChildRecord& record = progress_.child(child);
    pto_trace_ring* prepared = prepare_ring(child_ring(child), memory.ring_records);
    prepared->overwrites = keeps_last() ? 1 : 0;
    record.trace_ring.store(prepared, std::memory_order_relaxed);
    record.trace_groups.store(settings.groups, std::memory_order_release);
  }
  groups_ = settings.groups;
}

void Tracer::run_began(int64_t first_task) {
  if (keeps_last()) runs_.clear();
  runs_.push_back({first_task, trace_clock()});
  if (!keeps_last()) return;
  memory_.head().run = runs_.back();
  memory_.head().last = read_clock_pair();
}

void Tracer::run_built(int64_t first_task) {
  const auto is_it = [=](const TracedRun& run) { return run.first_task == first_task; };
  const auto run = std::find_if(runs_.rbegin(), runs_.rend(), is_it);
  if (run != runs_.rend())
    lasted_until(trace_clock(), kOrchestratorTrack, PTO_TRACE_BUILD, run->clock);
}

// Convert the window to ticks. This measures the rate of the clock for a moment, so the window is
// made longer by more than the error.
void Tracer::set_window() {
  constexpr uint64_t kMarginNs = 2'000'000;
  constexpr double kMargin = 1e-3;
  window_begin_ = 0;
  window_length_ = UINT64_MAX;
  if (settings_.window_begin_ns == 0 && settings_.window_end_ns == UINT64_MAX) return;
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  const pto_clock_pair later = read_clock_pair();
  const double rate =
      static_cast<double>(later.ticks - first_.ticks) / static_cast<double>(later.ns - first_.ns);
  const auto ticks_at = [&](uint64_t ns, double margin) {
    const double distance = ns > first_.ns ? static_cast<double>(ns - first_.ns) : 0.0;
    const double moved = distance * (1 + margin * kMargin) + margin * kMarginNs;
    return first_.ticks + static_cast<uint64_t>(std::max(moved, 0.0) * rate);
  };
  window_begin_ = ticks_at(settings_.window_begin_ns, -1);
  window_length_ = UINT64_MAX - window_begin_;
  if (settings_.window_end_ns != UINT64_MAX)
    window_length_ = ticks_at(settings_.window_end_ns, 1) - window_begin_;
}

WorkerRecords Tracer::end() {
  for (int32_t child = 0; child < children(); ++child)
    progress_.child(child).trace_groups.store(0, std::memory_order_relaxed);
  WorkerRecords found;
  found.lost.resize(2 + static_cast<size_t>(children()));
  if (!is_on()) return found;
  drain();
  found.records = keeps_last() ? last_records() : collected();
  if (!keeps_last()) {
    std::copy(lost_, lost_ + 2, found.lost.begin());
    for (size_t child = 0; child < drops_.size(); ++child)
      found.lost[2 + child] = drops_[child].over_limit + drops_[child].seen - drops_[child].outside;
  }
  found.first = first_;
  found.last = read_clock_pair();
  found.runs = std::move(runs_);
  found.kinds.resize(kinds_.size() * sizeof(ArgumentKind));
  for (const auto& [kind, number] : kinds_)
    std::memcpy(found.kinds.data() + number * sizeof kind, &kind, sizeof kind);
  if (keeps_last()) std::memset(memory_.head().magic, 0, sizeof memory_.head().magic);
  groups_ = 0;
  count_ = 0;
  chunks_.clear();
  runs_.clear();
  kinds_.clear();
  std::fill(attempts_, attempts_ + 2, 0);
  std::fill(lost_, lost_ + 2, 0);
  return found;
}

std::string Tracer::collected() const {
  std::string found;
  found.reserve(count_ * sizeof(pto_trace_record));
  for (uint64_t at = 0; at < count_; at += kChunkRecords) {
    const uint64_t records = std::min(count_ - at, kChunkRecords);
    found.append(reinterpret_cast<const char*>(chunks_[at / kChunkRecords].get()),
                 records * sizeof(pto_trace_record));
  }
  return found;
}

// Return the last records of each track. A child may still write: its oldest record may be
// incomplete.
std::string Tracer::last_records() const {
  std::string found;
  const uint64_t rings = kDriverTracks + static_cast<uint64_t>(children());
  for (uint64_t number = 0; number < rings; ++number) {
    const pto_trace_ring& from = *memory_.ring(number);
    const uint64_t end = __atomic_load_n(&from.written, __ATOMIC_ACQUIRE);
    const uint64_t complete = number < kDriverTracks ? from.mask + 1 : from.mask;
    for (uint64_t at = end - std::min(end, complete); at < end; ++at)
      found.append(reinterpret_cast<const char*>(&from.records[at & from.mask]),
                   sizeof(pto_trace_record));
  }
  return found;
}

void Tracer::drain() {
  undrained_ = 0;
  if (keeps_last()) {
    memory_.head().last = read_clock_pair();
    return;
  }
  for (int32_t child = 0; child < children(); ++child) drain_ring(child);
}

void Tracer::drain_ring(int32_t child) {
  pto_trace_ring& from = *child_ring(child);
  Drops& drops = drops_[static_cast<size_t>(child)];
  const uint64_t end = __atomic_load_n(&from.written, __ATOMIC_ACQUIRE);
  for (uint64_t at = from.read; at < end; ++at) {
    const pto_trace_record& record = from.records[at & from.mask];
    if (!is_inside(record.clock)) continue;
    if (pto_trace_record* to = place())
      *to = record;
    else
      ++drops.over_limit;
  }
  __atomic_store_n(&from.read, end, __ATOMIC_RELEASE);
  // The child may have written more records since, so a drop may be counted now and taken back by
  // the next drain.
  const uint64_t dropped = __atomic_load_n(&from.attempts, __ATOMIC_RELAXED) - end;
  if (!is_inside(trace_clock())) drops.outside += dropped - drops.seen;
  drops.seen = dropped;
}

void Tracer::add_at(uint64_t clock, uint16_t track, uint16_t event, uint64_t a, uint64_t b) {
  if (!is_inside(clock)) return;
  if (keeps_last()) {
    const pto_trace_record record{clock, a, b, 0, event, track};
    pto_trace_write(memory_.ring(track), &record);
    return;
  }
  const uint64_t number = attempts_[track]++;
  if (pto_trace_record* to = place())
    *to = {clock, a, b, static_cast<uint32_t>(number), event, track};
  else
    ++lost_[track];
}

// Return the number of a kind of argument. If there are too many kinds, later kinds have the number
// of an undefined kind.
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
  if (count_ == settings_.most_records) return nullptr;
  if (count_ % kChunkRecords == 0)
    chunks_.push_back(std::make_unique_for_overwrite<pto_trace_record[]>(kChunkRecords));
  pto_trace_record* to = &chunks_.back()[count_ % kChunkRecords];
  ++count_;
  return to;
}

}  // namespace pto::worker
