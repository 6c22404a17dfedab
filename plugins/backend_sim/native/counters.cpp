#include "counters.hpp"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

namespace pto::sim {
namespace {

struct Source {
  const char* name;
  uint32_t type;
  uint64_t config;
};

constexpr Source kSources[] = {
    {"task-clock", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK},
    {"page-faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS},
    {"context-switches", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CONTEXT_SWITCHES},
    {"cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES},
    {"instructions", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS},
    {"cache-misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES},
    {"branch-misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_MISSES},
};
static_assert(std::size(kSources) == PTO_COUNTERS);
// The counter that leads the events of software. Some systems count no page faults in a group that
// task-clock leads.
constexpr uint32_t kLeader = PTO_COUNTER_PAGE_FAULTS;

}  // namespace

void ThreadCounters::close() noexcept {
  if (!is_open_) return;
  for (Group& group : groups_) {
    for (uint32_t place = 0; place < group.count; ++place) ::close(group.files[place]);
    group.count = 0;
  }
  opened_ = 0;
  is_open_ = false;
}

int ThreadCounters::add(uint32_t counter) noexcept {
  perf_event_attr wanted{};
  wanted.size = sizeof wanted;
  wanted.type = kSources[counter].type;
  wanted.config = kSources[counter].config;
  // Context switches happen in the system only.
  wanted.exclude_kernel = counter != PTO_COUNTER_CONTEXT_SWITCHES;
  wanted.exclude_hv = 1;
  wanted.read_format =
      PERF_FORMAT_GROUP | PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
  Group& group = groups_[wanted.type == PERF_TYPE_HARDWARE ? 1 : 0];
  const int leader = group.count == 0 ? -1 : group.files[0];
  const long file =
      syscall(SYS_perf_event_open, &wanted, 0, -1, leader, long{PERF_FLAG_FD_CLOEXEC});
  if (file < 0) return errno;
  group.files[group.count] = static_cast<int>(file);
  group.counters[group.count++] = counter;
  opened_ |= 1u << counter;
  is_open_ = true;
  return 0;
}

int ThreadCounters::begin() noexcept {
  int failure = 0;
  if (!is_open_) {
    add(kLeader);
    for (uint32_t counter = 0; counter < PTO_COUNTERS; ++counter) {
      if (counter != kLeader) failure = add(counter);
    }
    is_open_ = true;
  }
  for (Group& group : groups_) group.read(group.begun);
  return failure;
}

bool ThreadCounters::Group::read(Reading& reading) const noexcept {
  return count > 0 && ::read(files[0], &reading, sizeof reading) > 0;
}

std::string ThreadCounters::names(uint32_t counters) {
  std::string text;
  for (uint32_t counter = 0; counter < PTO_COUNTERS; ++counter) {
    if ((counters >> counter & 1) == 0) continue;
    text += (text.empty() ? "" : ", ") + std::string(kSources[counter].name);
  }
  return text;
}

std::string ThreadCounters::explain_missing() {
  ThreadCounters probe;
  std::string reasons;
  uint32_t absent = 0;
  for (uint32_t counter = 0; counter < PTO_COUNTERS; ++counter) {
    const int failure = probe.add(counter);
    if (failure == 0) continue;
    const std::string reason = std::string(strerrorname_np(failure)) + ", " + strerror(failure);
    absent |= 1u << counter;
    if (reasons.find(reason) != std::string::npos) continue;
    reasons += (reasons.empty() ? "" : "; ") + reason;
  }
  if (absent == 0) return "";
  std::string level = "unknown";
  std::ifstream("/proc/sys/kernel/perf_event_paranoid") >> level;
  return "the counters " + names(absent) + " are not available: perf_event_open failed (" +
         reasons + "), kernel.perf_event_paranoid is " + level +
         ". ENOENT: the machine has no such counter, as most virtual machines; EACCES: a lower "
         "kernel.perf_event_paranoid permits it";
}

ThreadCounters& thread_counters() noexcept {
  static thread_local ThreadCounters counters;
  return counters;
}

}  // namespace pto::sim
