// The data of a driver that threads read without the role. It is written with the role, except
// where a comment says otherwise.
#pragma once

#include <atomic>
#include <cstdint>

namespace pto::hierarchy {

struct SharedFlags {
  std::atomic<bool> is_running{false};  // from the start of a run until its last task has ended
  std::atomic<bool> is_closed{false};
  std::atomic<bool> calls_python{false};  // the engine, a policy or a transport is Python
  std::atomic<bool> has_work{false};
  std::atomic<uint32_t> timeouts{0};   // live tasks that have a deadline
  std::atomic<uint32_t> returning{0};  // lost children that restart
  // all tasks with smaller numbers have ended; never decreases
  std::atomic<int64_t> oldest_live{0};
  std::atomic<uint64_t> drives{0};  // how often the program took the role; written by any thread
  // number of waiting threads of the program; written by any thread
  std::atomic<uint32_t> waiting{0};
  std::atomic<uint64_t> last_look_ns{0};  // time of the last host call; written by any thread
  std::atomic<bool> is_look_due{false};
};

}  // namespace pto::hierarchy
