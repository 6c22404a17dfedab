// The cost of a trace record for the thread that writes it.
//
// usage: trace_records RECORDS. Prints nanoseconds for each call, the median of batches: with a
// trace; without a trace, where the call tests the mask; of the floor, which reads the same clock
// and stores 32 bytes; and of a loop that does nothing. A second thread takes the records from the
// ring, so the writer finds them in another core's cache. The ring never becomes full: the writer
// waits between batches, and this time is not measured.
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "pto/abi/platform.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kEntries = 1 << 16;
constexpr uint64_t kBatch = 1 << 14;

class Ring {
 public:
  Ring() {
    void* memory = mmap(nullptr, kEntries * sizeof(pto_trace_record), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    ring_.records = static_cast<pto_trace_record*>(memory);
    ring_.mask = kEntries - 1;
    reader_ = std::thread([this] { read(); });
  }
  ~Ring() {
    is_over_ = true;
    reader_.join();
    munmap(ring_.records, kEntries * sizeof(pto_trace_record));
  }

  pto_trace_ring* ring() { return &ring_; }
  uint64_t written() const { return ring_.written; }
  void wait_until_empty() const {
    while (__atomic_load_n(&ring_.read, __ATOMIC_ACQUIRE) != ring_.written) sched_yield();
  }

 private:
  void read() {
    uint64_t sum = 0;
    while (!is_over_) {
      const uint64_t end = __atomic_load_n(&ring_.written, __ATOMIC_ACQUIRE);
      if (end == ring_.read) std::this_thread::sleep_for(std::chrono::microseconds(100));
      for (uint64_t at = ring_.read; at < end; ++at) sum += ring_.records[at & ring_.mask].a;
      __atomic_store_n(&ring_.read, end, __ATOMIC_RELEASE);
    }
    asm volatile("" : : "r"(sum));
  }

  pto_trace_ring ring_{};
  std::atomic<bool> is_over_{false};
  std::thread reader_;
};

// Returns nanoseconds for each call of `write`: the median of batches, so that a batch in which the
// thread lost its core has no weight.
template <typename Write, typename Pause>
double measure(uint64_t records, Write write, Pause pause) {
  std::vector<double> taken;
  for (uint64_t done = 0; done < records; done += kBatch) {
    pause();
    const auto start = Clock::now();
    for (uint64_t i = done; i < done + kBatch; ++i) write(i);
    const std::chrono::duration<double, std::nano> time = Clock::now() - start;
    taken.push_back(time.count() / static_cast<double>(kBatch));
  }
  std::sort(taken.begin(), taken.end());
  return taken[taken.size() / 2];
}

uint32_t clock_source() {
#if defined(__x86_64__)
  return PTO_CLOCK_TSC;
#else
  return PTO_CLOCK_CNTVCT;
#endif
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto records = static_cast<uint64_t>(std::atol(argv[1]));
  Ring ring;
  pto_platform traced{};
  traced.clock = clock_source();
  traced.tracing = PTO_TRACE_TASKS;
  traced.tracks = ring.ring();
  pto_platform untraced = traced;
  untraced.tracing = 0;
  // The compiler must not assume anything about the table, as in a runtime.
  const auto record = [](pto_platform* platform, uint64_t i) {
    asm volatile("" : "+r"(platform) : : "memory");
    pto_record(platform, PTO_TRACK_ORCHESTRATOR, PTO_TRACE_START, i, i);
  };
  static std::array<pto_trace_record, kBatch> stored;
  const auto wait = [&] { ring.wait_until_empty(); };
  const auto nothing = [] {};
  const auto on = [&](uint64_t i) { record(&traced, i); };
  const auto off = [&](uint64_t i) { record(&untraced, i); };
  const auto floor = [&](uint64_t i) {
    pto_trace_record& record = stored[i % kBatch];
    record.clock = pto_clock(&traced);
    record.a = record.b = i;
    record.number = static_cast<uint32_t>(i);
    record.event = record.track = 0;
    asm volatile("" : : : "memory");
  };
  // The first round touches the memory.
  measure(kEntries, on, wait);
  measure(kEntries, floor, nothing);
  const uint64_t before = ring.written();
  const double on_ns = measure(records, on, wait);
  if (ring.written() - before < records) return 3;
  const double off_ns = measure(records, off, nothing);
  const double floor_ns = measure(records, floor, nothing);
  const auto empty = [](uint64_t i) { asm volatile("" : : "r"(i) : "memory"); };
  std::printf("%.3f %.3f %.3f %.3f\n", on_ns, off_ns, floor_ns, measure(records, empty, nothing));
}
