#include "driver/hold.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "processes/current_process.hpp"
#include "pto/engine/bell.hpp"

namespace pto::hierarchy {
namespace {

constexpr uint64_t kLongestNs = 20'000'000;
constexpr uint64_t kLookAgainNs = 5'000'000;
// A thread that has computed for so long has done something else than to call at once.
constexpr uint64_t kMostUsedNs = 1'000'000;

// Its number, without a system call each time; another one in a forked process.
pid_t current_thread() {
  struct Known {
    pid_t process;
    pid_t thread;
  };
  thread_local Known known{0, 0};
  const pid_t process = current_process();
  if (known.process != process) known = {process, static_cast<pid_t>(syscall(SYS_gettid))};
  return known.thread;
}

// The time on a core that a thread of this process has had, as pthread_getcpuclockid() has it for
// threads that are known to live; UINT64_MAX of one that is gone.
uint64_t used_ns(pid_t thread) {
  constexpr clockid_t kOfThread = 4 | 2;  // of one thread, in ns
  const auto clock = static_cast<clockid_t>(~static_cast<unsigned>(thread) << 3) | kOfThread;
  timespec used{};
  if (clock_gettime(clock, &used) != 0) return UINT64_MAX;
  return static_cast<uint64_t>(used.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(used.tv_nsec);
}

// Whether the thread runs or would, if it had a core.
bool is_runnable(pid_t thread) {
  char text[512];
  std::snprintf(text, sizeof(text), "/proc/self/task/%d/stat", thread);
  const int file = open(text, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const ssize_t bytes = read(file, text, sizeof(text) - 1);
  close(file);
  text[bytes > 0 ? bytes : 0] = 0;
  const char* name_end = std::strrchr(text, ')');
  return name_end && std::strncmp(name_end, ") R", 3) == 0;
}

}  // namespace

void Hold::begin(int64_t task) {
  thread_.store(current_thread(), std::memory_order_relaxed);
  task_.store(task, std::memory_order_release);
}

void Hold::let_go(int64_t task) {
  task_.compare_exchange_strong(task, -1, std::memory_order_relaxed);
}

void Hold::let_go() {
  task_.store(-1, std::memory_order_relaxed);
}

uint64_t Hold::left_ns() {
  const int64_t task = task_.load(std::memory_order_acquire);
  if (task == -1) return kNotHeld;
  const bool is_its_own = thread_.load(std::memory_order_relaxed) == current_thread();
  const uint64_t left = is_its_own ? kNotHeld : look_ns(task);
  if (left == kNotHeld) let_go(task);
  return left;
}

uint64_t Hold::look_ns(int64_t task) {
  const std::lock_guard lock(mutex_);
  const pid_t thread = thread_.load(std::memory_order_relaxed);
  const uint64_t now = engine::monotonic_ns();
  if (task != seen_) {
    seen_ = task;
    since_ns_ = now;
    used_ns_ = used_ns(thread);
  }
  if (now - since_ns_ < kLongestNs) return kLongestNs - (now - since_ns_);
  const uint64_t used = used_ns(thread);
  const bool has_run = used == UINT64_MAX || used - used_ns_ >= kMostUsedNs;
  if (has_run || !is_runnable(thread)) return kNotHeld;
  since_ns_ = now - kLongestNs + kLookAgainNs;
  return kLookAgainNs;
}

}  // namespace pto::hierarchy
