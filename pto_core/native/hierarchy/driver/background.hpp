// The driver's own thread. It drives a run while the program neither submits nor waits.
//
// The thread checks every millisecond whether the program has driven since the last check. If it
// has not, and if there is work, the thread takes the role. If there is no work for a long time,
// the thread checks less often, then sleeps. It starts with the first run. During a fork it is
// parked and holds no lock.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

namespace pto::hierarchy {

class Drive;
class Role;

class Background {
 public:
  explicit Background(Drive& drive) : drive_(drive) {}
  ~Background() { stop(); }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Start the thread unless it exists. Throws std::system_error.
  void start();
  // Called on the thread itself, inside a host call. The thread ends after the call; see
  // end_by_itself().
  void stop();
  bool is_own_thread() const { return id_ == std::this_thread::get_id(); }
  // Called on the thread itself. No other thread waits for its end, so its last action is to call
  // `rest`, which may delete the driver.
  void end_by_itself(std::function<void()> rest);
  void park();
  void unpark();

  // Called after a submit, or the end of a wait. Cheap unless the thread sleeps.
  void wake_if_asleep() {
    if (is_asleep_.load()) wake();
  }
  // Drive at once instead of after the current nap. Called when the program waits in an event loop.
  void drive_now();

 private:
  void wake();
  void loop();
  void drive(uint64_t drives);
  bool is_wanted(uint64_t drives) const;
  void call_host(bool has_actions);
  bool poll(const Role& role, uint64_t drives, bool* has_actions);

  Drive& drive_;
  std::thread thread_;                 // used by start() and stop() only
  std::atomic<std::thread::id> id_{};  // set while the thread exists
  std::function<void()> rest_;         // the last action of the driver's own thread
  pid_t process_ = 0;                  // the process that started the thread
  sigset_t program_mask_{};
  std::mutex mutex_;
  std::condition_variable changed_;
  uint32_t parks_ = 0;      // number of park() calls without unpark()
  bool is_parked_ = false;  // whether the thread is parked or has ended its work
  bool is_asked_ = false;   // set by drive_now()
  std::atomic<bool> is_stopping_{false};
  std::atomic<bool> is_asleep_{false};
  std::atomic<bool> is_park_wanted_{false};
};

}  // namespace pto::hierarchy
