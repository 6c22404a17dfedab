#include "trace_buffer.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "blocked_signals.hpp"
#include "errors.hpp"

namespace pto::core {
namespace {

nb::tuple pair_of(const pto_clock_pair& pair) {
  return nb::make_tuple(pair.ticks, pair.ns);
}

}  // namespace

TraceBuffer::TraceBuffer(DeviceTraceSettings settings) : settings_(std::move(settings)) {
  map();
  trace()->groups = (1u << settings_.level) - 1;
  if (settings_.overwrites) return;
  const auto now = Clock::now();
  window_begin_ = now + std::chrono::nanoseconds(settings_.after_ns);
  window_end_ = settings_.for_ns == 0 ? Clock::time_point::max()
                                      : window_begin_ + std::chrono::nanoseconds(settings_.for_ns);
  move_window(now);
  try {
    drainer_ = start_thread("the thread of a trace", [this] { drain_until_stopped(); });
  } catch (...) {
    munmap(mapping_, mapped_bytes_);
    throw;
  }
  pthread_setname_np(drainer_.native_handle(), "pto-trace");
}

TraceBuffer::~TraceBuffer() {
  finish();
  munmap(mapping_, mapped_bytes_);
}

// Only the pages that a writer touches use memory.
void TraceBuffer::map() {
  constexpr size_t kPage = 4096;
  const size_t rings_at =
      (sizeof(TraceFileHead) + settings_.names.size() + kPage - 1) / kPage * kPage;
  const size_t records_at =
      rings_at + (sizeof(pto_trace_ring) * PTO_TRACKS + kPage - 1) / kPage * kPage;
  mapped_bytes_ = records_at + PTO_TRACKS * settings_.ring_records * sizeof(pto_trace_record);
  const int file_descriptor = settings_.path.empty() ? -1 : open_file();
  const int kind = file_descriptor < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  mapping_ = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, kind | MAP_NORESERVE,
                  file_descriptor, 0);
  if (file_descriptor >= 0) close(file_descriptor);
  if (mapping_ == MAP_FAILED) {
    nb::dict fields;
    fields["value"] = mapped_bytes_;
    raise_error("CapacityError",
                "cannot map " + std::to_string(mapped_bytes_) +
                    " bytes for the trace of a run; lower the setting trace_ring_records",
                fields);
  }
  madvise(mapping_, mapped_bytes_, MADV_NOHUGEPAGE);
  TraceFileHead& start = file();
  std::memcpy(start.magic, "PTOTRACE", sizeof start.magic);
  start.tracks = PTO_TRACKS;
  start.blocks = settings_.blocks;
  start.ring_records = settings_.ring_records;
  start.rings_at = rings_at;
  start.records_at = records_at;
  start.names_bytes = settings_.names.size();
  std::memcpy(&start + 1, settings_.names.data(), settings_.names.size());
  char* const bytes = static_cast<char*>(mapping_);
  start.trace.rings = reinterpret_cast<pto_trace_ring*>(bytes + rings_at);
  auto* records = reinterpret_cast<pto_trace_record*>(bytes + records_at);
  for (uint32_t track = 0; track < PTO_TRACKS; ++track) {
    pto_trace_ring& ring = start.trace.rings[track];
    ring.records = records + track * settings_.ring_records;
    ring.mask = settings_.ring_records - 1;
    ring.overwrites = settings_.overwrites ? 1 : 0;
  }
}

// Return the descriptor of a new file of zeros.
int TraceBuffer::open_file() const {
  const char* path = settings_.path.c_str();
  const int descriptor = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (descriptor >= 0 && ftruncate(descriptor, static_cast<off_t>(mapped_bytes_)) == 0)
    return descriptor;
  const std::string why = std::strerror(errno);
  if (descriptor >= 0) close(descriptor);
  raise_usage("the file of the flight recorder, " + settings_.path + ", cannot be written: " + why +
              "; use another path");
}

void TraceBuffer::finish() {
  if (is_finished_) return;
  is_finished_ = true;
  if (drainer_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
    }
    stop_signal_.notify_one();
    drainer_.join();
  }
  drain();
}

void TraceBuffer::drain_until_stopped() {
  std::unique_lock lock(mutex_);
  for (int64_t interval_ms = 2 * kShortestMs; !is_stopping_;) {
    const auto now = Clock::now();
    auto next = now + std::chrono::milliseconds(interval_ms);
    if (now < window_begin_) next = std::min(next, window_begin_);
    if (now < window_end_) next = std::min(next, window_end_);
    stop_signal_.wait_until(lock, next);
    if (is_stopping_) return;
    interval_ms =
        drain() ? std::max(interval_ms / 2, kShortestMs) : std::min(interval_ms * 2, kLongestMs);
    move_window(Clock::now());
  }
}

// Call it after a drain: the records that follow are in the window or outside of it.
void TraceBuffer::move_window(Clock::time_point now) {
  is_inside_ = now >= window_begin_ && now < window_end_;
}

// Returns whether a ring was filled by more than a quarter.
bool TraceBuffer::drain() {
  bool is_filling = false;
  for (uint32_t track = 0; track < PTO_TRACKS; ++track) {
    pto_trace_ring& ring = trace()->rings[track];
    const uint64_t end = __atomic_load_n(&ring.written, __ATOMIC_ACQUIRE);
    const uint64_t drops = __atomic_load_n(&ring.attempts, __ATOMIC_RELAXED) - end;
    if (is_inside_) dropped_[track] += drops - seen_drops_[track];
    seen_drops_[track] = drops;
    if (settings_.overwrites) {
      const uint64_t count = std::min(end, ring.mask + 1);
      take(ring, end - count, count);
      continue;
    }
    const uint64_t begin = ring.read;
    const uint64_t space = settings_.most_records - records_.size();
    const uint64_t count = is_inside_ ? std::min(end - begin, space) : 0;
    is_filling |= end - begin > (ring.mask + 1) / 4 && (count > 0 || !is_inside_);
    take(ring, begin, count);
    if (is_finished_) dropped_[track] += is_inside_ ? end - begin - count : 0;
    __atomic_store_n(&ring.read, is_inside_ ? begin + count : end, __ATOMIC_RELEASE);
  }
  return is_filling;
}

void TraceBuffer::take(pto_trace_ring& ring, uint64_t begin, uint64_t count) {
  for (uint64_t done = 0; done < count;) {
    const uint64_t at = (begin + done) & ring.mask;
    const uint64_t length = std::min(count - done, ring.mask + 1 - at);
    records_.insert(records_.end(), ring.records + at, ring.records + at + length);
    done += length;
  }
}

nb::tuple TraceBuffer::to_python() const {
  nb::list lost;
  for (const uint64_t count : dropped_) lost.append(count);
  const nb::bytes records(reinterpret_cast<const char*>(records_.data()),
                          records_.size() * sizeof(pto_trace_record));
  const pto_run_trace& trace = file().trace;
  return nb::make_tuple(records, lost, trace.clock, pair_of(trace.first), pair_of(trace.last),
                        trace.workers);
}

}  // namespace pto::core
