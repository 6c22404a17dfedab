// Reads the activity page, which contains the running kernels.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pto/abi/activity.h"

namespace pto::core {

struct RunningTask {
  uint64_t task;
  int32_t func_id;
  int32_t core;
  uint64_t kernel;
  uint64_t sequence;
  uint32_t slot;
};

// Return the name of a task in messages: "task 3", or "task 3 of ring 1" for runtimes that number
// tasks by ring.
std::string task_name(uint64_t task, uint32_t capabilities);

// Return the kernels that are running now. Any thread may call this.
std::vector<RunningTask> running_tasks(const pto_activity_page* page);

// The numbers of kernels that have begun and have ended since the device was opened.
struct KernelCounts {
  uint64_t begun = 0;
  uint64_t ended = 0;
};

// Return these numbers, or zeros without a page. Any thread may call this.
KernelCounts count_kernels(const pto_activity_page* page);

// Finds a task that runs on a core for longer than a limit. The time counts from the first call
// that saw the task, so a task is never reported too early.
class TaskWatch {
 public:
  std::optional<RunningTask> find_late(const pto_activity_page* page, uint64_t now_ns,
                                       uint64_t limit_ns);

 private:
  struct Seen {
    uint64_t sequence = 0;
    uint64_t since_ns = 0;
  };
  std::array<Seen, PTO_ACTIVITY_SLOTS> seen_{};
};

}  // namespace pto::core
