// Floor of a one-task run on a parked Worker: bare processes over shared memory with a Worker's
// waiting policy.
//
// usage: parked_processes CHILDREN ROUND_TRIPS PAUSE_US
//   prints the median time of a round trip in nanoseconds. All children park during a pause before
//   each trip. The first child answers, because a Worker sends a single task to its first child.
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

void futex(std::atomic<uint32_t>& word, int operation, uint32_t value) {
  syscall(SYS_futex, &word, operation, value, nullptr, nullptr, 0);
}

void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// A word on which one process waits for another. The waiting policy is that of a Worker: spin for
// about 1 us, yield until 75 us have passed, then park.
class alignas(64) Gate {
 public:
  void open() {
    if (word_.exchange(kOpen) == kParked) futex(word_, FUTEX_WAKE, 1);
  }

  void pass() {
    const auto start = Clock::now();
    while (word_.load() != kOpen) {
      const auto waited = Clock::now() - start;
      if (waited < microseconds(1)) {
        pause_core();
      } else if (waited < microseconds(75)) {
        sched_yield();
      } else {
        uint32_t closed = kClosed;
        word_.compare_exchange_strong(closed, kParked);
        if (closed != kOpen) futex(word_, FUTEX_WAIT, kParked);
      }
    }
    word_.store(kClosed);
  }

 private:
  static constexpr uint32_t kClosed = 0, kOpen = 1, kParked = 2;
  std::atomic<uint32_t> word_{kClosed};
};

struct Shared {
  static constexpr size_t kMostChildren = 8;

  Gate there[kMostChildren];
  Gate back;
  std::atomic<bool> is_over{false};
};

void answer(Shared& shared, Gate& there, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  for (there.pass(); !shared.is_over; there.pass()) shared.back.open();
  _exit(0);
}

double median_ns(Shared& shared, size_t round_trips, microseconds pause) {
  std::vector<double> taken;
  for (size_t i = 0; i < 2 * round_trips; ++i) {
    if (pause.count() > 0) std::this_thread::sleep_for(pause);
    const auto start = Clock::now();
    shared.there[0].open();
    shared.back.pass();
    const std::chrono::duration<double, std::nano> passed = Clock::now() - start;
    if (i >= round_trips) taken.push_back(passed.count());  // the first half is the warm-up
  }
  std::sort(taken.begin(), taken.end());
  return taken[taken.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const auto children = static_cast<size_t>(std::atol(argv[1]));
  const auto round_trips = static_cast<size_t>(std::atol(argv[2]));
  if (children < 1 || children > Shared::kMostChildren || round_trips < 1) return 2;
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 3;
  Shared& shared = *new (memory) Shared;
  const pid_t parent = getpid();
  for (size_t child = 0; child < children; ++child) {
    const pid_t pid = fork();
    if (pid < 0) return 4;
    if (pid == 0) answer(shared, shared.there[child], parent);
  }
  std::printf("%.1f\n", median_ns(shared, round_trips, microseconds(std::atol(argv[3]))));
  shared.is_over = true;
  for (size_t child = 0; child < children; ++child) shared.there[child].open();
  while (wait(nullptr) > 0) {
  }
  return 0;
}
