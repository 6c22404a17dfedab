// The data of a driver that threads read without the role. Written with the role, except where a
// comment states otherwise.
#pragma once

#include <atomic>
#include <cstdint>

namespace pto::hierarchy {

struct SharedFlags {
  std::atomic<bool> is_running{false};  // from the begin of a run until its last task has ended
  std::atomic<bool> is_closed{false};
  std::atomic<bool> calls_python{false};  // the engine, a policy or a transport is Python
  std::atomic<bool> has_work{false};
  std::atomic<uint32_t> timeouts{0};    // live tasks that have a deadline
  std::atomic<uint32_t> returning{0};   // lost children that restart
  std::atomic<int64_t> oldest_live{0};  // all tasks before this number have ended; grows
  std::atomic<uint64_t> drives{0};   // number of times that the program took the role; any thread
  std::atomic<uint32_t> waiting{0};  // waiting threads of the program; any thread
  std::atomic<uint64_t> last_look_ns{0};  // time of the last host call; any thread
  std::atomic<bool> is_look_due{false};
};

}  // namespace pto::hierarchy
