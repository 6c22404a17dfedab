// Floors of the figures: the cost of the same work in a plain loop, or between two threads.
//
// usage: floors handover ROUND_TRIPS    prints median and 99th percentile, ns per round trip
//        floors append TASKS            prints ns per task
//        floors call TASKS LIBRARY      prints ns per task
#include <dlfcn.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

double ns_since(Clock::time_point start) {
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

void futex(std::atomic<uint32_t>& word, int operation, uint32_t value) {
  syscall(SYS_futex, &word, operation, value, nullptr, nullptr, 0);
}

// A word on which one thread waits for another. The waiting policy is that of the simulator: spin
// for about 1 us, yield for 60 us, then park.
class Gate {
 public:
  void open() {
    if (word_.exchange(kOpen) == kParked) futex(word_, FUTEX_WAKE_PRIVATE, 1);
  }

  void pass() {
    const auto start = Clock::now();
    while (word_.load() != kOpen) {
      const auto waited = Clock::now() - start;
      if (waited < microseconds(1)) continue;
      if (waited < microseconds(60)) {
        sched_yield();
        continue;
      }
      uint32_t closed = kClosed;
      word_.compare_exchange_strong(closed, kParked);
      if (closed != kOpen) futex(word_, FUTEX_WAIT_PRIVATE, kParked);
    }
    word_.store(kClosed);
  }

 private:
  static constexpr uint32_t kClosed = 0, kOpen = 1, kParked = 2;
  std::atomic<uint32_t> word_{kClosed};
};

void measure_handover(size_t round_trips) {
  Gate there, back;
  std::vector<double> taken;
  std::thread other([&] {
    for (size_t i = 0; i < 2 * round_trips; ++i) there.pass(), back.open();
  });
  for (size_t i = 0; i < 2 * round_trips; ++i) {
    const auto start = Clock::now();
    there.open();
    back.pass();
    if (i >= round_trips) taken.push_back(ns_since(start));  // the first half is the warm-up
  }
  other.join();
  std::sort(taken.begin(), taken.end());
  std::printf("%.1f %.1f\n", taken[taken.size() / 2], taken[taken.size() * 99 / 100]);
}

// The minimum cost of a task: a record of one cache line, its argument, and the dispatch message to
// the core.
struct Record {
  std::array<uint64_t, 8> words;
};
struct Payload {
  std::array<uint64_t, 5> words;
};
static_assert(sizeof(Record) == 64 && sizeof(Payload) == 40);

[[gnu::noinline]] void append(std::vector<Record>& records, std::vector<Payload>& payloads,
                              uint64_t task) {
  records.push_back({{task, 0, 1, 0, 0, 0, 0, 0}});
  payloads.push_back({{task, 0, 1, 0, 0}});
}

double append_ns(std::vector<Record>& records, std::vector<Payload>& payloads, size_t tasks) {
  records.clear();
  payloads.clear();
  const auto start = Clock::now();
  for (size_t i = 0; i < tasks; ++i) append(records, payloads, i);
  return ns_since(start) / static_cast<double>(tasks);
}

using Kernel = void (*)(uint64_t*);

double call_ns(Kernel kernel, std::vector<Payload>& payloads) {
  const auto start = Clock::now();
  for (Payload& payload : payloads) kernel(payload.words.data());
  return ns_since(start) / static_cast<double>(payloads.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const auto count = static_cast<size_t>(std::atol(argv[2]));
  if (std::strcmp(argv[1], "handover") == 0) {
    return measure_handover(count), 0;
  }
  std::vector<Record> records;
  std::vector<Payload> payloads;
  // the first round allocates the memory, and the second reuses it
  append_ns(records, payloads, count);
  if (std::strcmp(argv[1], "append") == 0) {
    std::printf("%.3f\n", append_ns(records, payloads, count));
    return 0;
  }
  if (std::strcmp(argv[1], "call") != 0 || argc != 4) return 2;
  void* library = dlopen(argv[3], RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return 3;
  const auto kernel = reinterpret_cast<Kernel>(dlsym(library, "kernel_entry"));
  if (kernel == nullptr) return 4;
  call_ns(kernel, payloads);
  std::printf("%.3f\n", call_ns(kernel, payloads));
}
