// What threads read of a driver without holding its role. Written with the role, except where a
// comment says otherwise.
#pragma once

#include <atomic>
#include <cstdint>

namespace pto::hierarchy {

struct SharedFlags {
  std::atomic<bool> is_running{false};  // from the begin of a run until its last task has ended
  std::atomic<bool> is_closed{false};
  std::atomic<bool> calls_python{false};  // the engine, a policy or a transport is Python
  std::atomic<bool> has_work{false};
  std::atomic<uint32_t> timeouts{0};      // live tasks that have one
  std::atomic<uint32_t> returning{0};     // children that are lost and come back
  std::atomic<int64_t> oldest_live{0};    // all earlier tasks have ended; grows
  std::atomic<uint64_t> drives{0};        // how often the program has taken the role; any thread
  std::atomic<uint32_t> waiting{0};       // threads of the program that wait; any thread
  std::atomic<uint64_t> last_look_ns{0};  // when the host was last called; any thread
  std::atomic<bool> is_look_due{false};
};

}  // namespace pto::hierarchy
