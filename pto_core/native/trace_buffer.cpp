#include "trace_buffer.hpp"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>

#include "errors.hpp"

namespace pto::core {
namespace {

// The signals of the process are handled by other threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

nb::tuple pair_of(const pto_clock_pair& pair) {
  return nb::make_tuple(pair.ticks, pair.ns);
}

}  // namespace

TraceBuffer::TraceBuffer(int32_t level, const TraceLimits& limits) : limits_(limits) {
  trace_.groups = (1u << level) - 1;
  map(limits.ring_records);
  const SignalsBlocked blocked;
  drainer_ = std::thread([this] { drain_until_stopped(); });
  pthread_setname_np(drainer_.native_handle(), "pto-trace");
}

TraceBuffer::~TraceBuffer() {
  finish();
  munmap(mapping_, mapped_bytes_);
}

// Only the pages that a writer touches use memory.
void TraceBuffer::map(uint64_t entries) {
  constexpr size_t kHeader = sizeof(pto_trace_ring) * PTO_TRACKS;
  mapped_bytes_ = kHeader + PTO_TRACKS * entries * sizeof(pto_trace_record);
  mapping_ = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping_ == MAP_FAILED) {
    nb::dict fields;
    fields["value"] = mapped_bytes_;
    raise_error("CapacityError",
                "cannot map " + std::to_string(mapped_bytes_) +
                    " bytes for the trace of a run; use a smaller --set trace_ring_records",
                fields);
  }
  madvise(mapping_, mapped_bytes_, MADV_NOHUGEPAGE);
  trace_.rings = static_cast<pto_trace_ring*>(mapping_);
  auto* records = reinterpret_cast<pto_trace_record*>(static_cast<char*>(mapping_) + kHeader);
  for (uint32_t track = 0; track < PTO_TRACKS; ++track) {
    trace_.rings[track].records = records + track * entries;
    trace_.rings[track].mask = entries - 1;
  }
}

void TraceBuffer::finish() {
  if (!drainer_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  stop_signal_.notify_one();
  drainer_.join();
  drain();
}

void TraceBuffer::drain_until_stopped() {
  std::unique_lock lock(mutex_);
  for (int64_t interval_ms = 2 * kShortestMs; !is_stopping_;) {
    stop_signal_.wait_for(lock, std::chrono::milliseconds(interval_ms));
    if (is_stopping_) return;
    interval_ms =
        drain() ? std::max(interval_ms / 2, kShortestMs) : std::min(interval_ms * 2, kLongestMs);
  }
}

// Returns whether a ring was filled by more than a quarter.
bool TraceBuffer::drain() {
  bool is_filling = false;
  for (uint32_t track = 0; track < PTO_TRACKS; ++track) {
    pto_trace_ring& ring = trace_.rings[track];
    const uint64_t end = __atomic_load_n(&ring.written, __ATOMIC_ACQUIRE);
    const uint64_t space = limits_.most_records - records_.size();
    const uint64_t begin = ring.read;
    const uint64_t count = std::min(end - begin, space);
    is_filling |= count > (ring.mask + 1) / 4;
    for (uint64_t done = 0; done < count;) {
      const uint64_t at = (begin + done) & ring.mask;
      const uint64_t length = std::min(count - done, ring.mask + 1 - at);
      records_.insert(records_.end(), ring.records + at, ring.records + at + length);
      done += length;
    }
    __atomic_store_n(&ring.read, begin + count, __ATOMIC_RELEASE);
  }
  return is_filling;
}

// Records that still lie in the ring were not taken because of the limit.
uint64_t TraceBuffer::dropped(const pto_trace_ring& ring) const {
  return __atomic_load_n(&ring.attempts, __ATOMIC_RELAXED) - ring.read;
}

nb::tuple TraceBuffer::to_python() const {
  nb::list lost;
  for (uint32_t track = 0; track < PTO_TRACKS; ++track) lost.append(dropped(trace_.rings[track]));
  const nb::bytes records(reinterpret_cast<const char*>(records_.data()),
                          records_.size() * sizeof(pto_trace_record));
  return nb::make_tuple(records, lost, trace_.clock, pair_of(trace_.first), pair_of(trace_.last));
}

}  // namespace pto::core
