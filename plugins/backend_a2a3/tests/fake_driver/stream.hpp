// A stream of the fake driver: a queue that its own thread works off.
//
// A call that adds work returns at once. The failure of work appears at a later query or
// synchronisation; it poisons the device, and the failures of other streams follow as cascades.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <thread>

#include "state.hpp"

namespace pto::fake {

struct CoreBinary;

class Stream : public Object {
 public:
  static constexpr const char* kName = "stream";

  Stream(Device& device, uint64_t number);
  ~Stream() override;  // gives running work up; call it without the mutex

  // The result of work is a vendor's code. It runs without the mutex and polls `stop`.
  using Work = std::function<Code(const std::atomic<int>& stop)>;
  struct Item {
    Work work;
    bool is_core;  // the operation timeout applies
  };
  void add(Item item);  // with the mutex

  bool is_idle() const { return queue_.empty() && !is_running_; }
  // Waits until all work is done; a negative limit waits for ever. Returns whether it is.
  bool wait(std::unique_lock<std::mutex>& lock, int32_t limit_ms);
  // Returns the failure of the work, once. After that, a poisoned device gives cascades.
  Code take_failure();
  // Drops waiting work, and stops running work, whose result has no consequence then.
  void abandon() {
    queue_.clear();
    is_abandoned_ = true;
    is_stopped_ = 1;
  }

  const uint64_t number;
  // What a launch on cores runs: the first code of the stream stays in the instruction caches.
  std::shared_ptr<CoreBinary> code;

 private:
  void run();
  Code perform(Item& item, std::unique_lock<std::mutex>& lock);

  std::deque<Item> queue_;
  bool is_running_ = false;
  bool is_closed_ = false;
  bool is_abandoned_ = false;
  Code failure_ = 0;
  std::atomic<int> is_stopped_ = 0;
  std::thread thread_;
};

}  // namespace pto::fake
