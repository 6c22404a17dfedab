// Return the id of this process without a system call.
#pragma once

#include <sys/types.h>

#include <atomic>

namespace pto::worker {

extern std::atomic<pid_t> current_process_number;

inline pid_t current_process() {
  return current_process_number.load(std::memory_order_relaxed);
}

}  // namespace pto::worker
