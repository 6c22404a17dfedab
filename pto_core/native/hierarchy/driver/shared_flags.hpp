// The data of a driver that threads read without the role. Only the thread that has the role writes
// it, unless a comment states otherwise.
#pragma once

#include <atomic>
#include <cstdint>

namespace pto::hierarchy {

struct SharedFlags {
  std::atomic<bool> is_running{false};  // from the start of a run until its last task has ended
  std::atomic<bool> is_closed{false};
  // whether the policy or a transport is in Python
  std::atomic<bool> calls_python{false};
  std::atomic<bool> has_work{false};
  std::atomic<uint32_t> timeouts{0};   // number of live tasks that have a deadline
  std::atomic<uint32_t> returning{0};  // number of lost children that are being restarted
  // all tasks with smaller numbers have ended; never decreases
  std::atomic<int64_t> oldest_live{0};
  std::atomic<uint64_t> drives{0};  // how often the program took the role; any thread may write it
  // number of program threads that wait; any thread may write it
  std::atomic<uint32_t> waiting{0};
  // time of the last host call; any thread may write it
  std::atomic<uint64_t> last_host_call_ns{0};
  std::atomic<bool> is_host_call_due{false};
  std::atomic<bool> traces_waits{false};
};

}  // namespace pto::hierarchy
