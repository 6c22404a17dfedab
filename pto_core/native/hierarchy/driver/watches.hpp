// The tasks that event loops await, and the descriptor that wakes the loops.
//
// The descriptor is readable while take() has tasks to return. Only the thread that has the driver
// role uses this class.
#pragma once

#include <cstdint>
#include <unordered_set>
#include <utility>
#include <vector>

namespace pto::hierarchy {

class Watches {
 public:
  Watches() = default;
  ~Watches() { stop(); }
  Watches(const Watches&) = delete;
  Watches& operator=(const Watches&) = delete;

  // Return the descriptor, an eventfd that is created on demand. On failure return -1 and set
  // errno. stop() closes the descriptor and drops all tasks.
  int descriptor();
  void stop();
  bool is_empty() const { return watched_.empty(); }
  void add(int64_t task) { watched_.insert(task); }
  // Record that the task has ended.
  void end(int64_t task) {
    if (watched_.erase(task) > 0) report(task);
  }
  // Return all watched tasks from the next take(), although they have not ended, so that the loops
  // check them again.
  void end_all();
  // Return the watched tasks that have ended since the last call.
  std::vector<int64_t> take();

 private:
  void report(int64_t task);

  std::unordered_set<int64_t> watched_;
  std::vector<int64_t> ended_;
  int descriptor_ = -1;
};

}  // namespace pto::hierarchy
