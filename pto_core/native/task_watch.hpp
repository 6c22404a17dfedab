// Reads the activity page, which contains the running kernels.
#pragma once

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
  uint64_t since_ns;  // see note_running(); 0 if it was not called yet
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

// Record in the page since when each kernel runs: since the first call that saw it, so its time is
// never overestimated. Only the thread of the run calls this.
void note_running(const pto_activity_page* page, uint64_t now_ns);

// Return a task that runs on a core for longer than a limit, by these times.
std::optional<RunningTask> find_late(const pto_activity_page* page, uint64_t now_ns,
                                     uint64_t limit_ns);

}  // namespace pto::core
