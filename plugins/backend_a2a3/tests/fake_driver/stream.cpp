#include "stream.hpp"

#include <chrono>
#include <utility>

namespace pto::fake {

namespace {

// Sets a flag when the limit of an operation has passed.
class Deadline {
 public:
  Deadline(uint64_t limit_ms, std::atomic<int>& flag) {
    if (limit_ms == 0) return;
    thread_ = std::thread([this, limit_ms, &flag] {
      std::unique_lock lock(mutex_);
      const auto limit = std::chrono::milliseconds(limit_ms);
      if (!changed_.wait_for(lock, limit, [this] { return is_over_; })) {
        has_passed_ = true;
        flag = 1;
      }
    });
  }
  // Returns whether the limit has passed.
  bool end() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    changed_.notify_one();
    if (thread_.joinable()) thread_.join();
    return has_passed_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_over_ = false;
  bool has_passed_ = false;
  std::thread thread_;
};

}  // namespace

Stream::Stream(Device& device, uint64_t number)
    : Object(kName, device, true), number(number), thread_([this] { run(); }) {}

Stream::~Stream() {
  is_stopped_ = 1;
  {
    const std::lock_guard lock(state().mutex);
    is_closed_ = true;
  }
  state().changed.notify_all();
  thread_.join();
}

void Stream::add(Item item) {
  queue_.push_back(std::move(item));
  state().changed.notify_all();
}

bool Stream::wait(std::unique_lock<std::mutex>& lock, int32_t limit_ms) {
  const auto is_done = [this] { return is_idle(); };
  if (limit_ms >= 0) {
    return state().changed.wait_for(lock, std::chrono::milliseconds(limit_ms), is_done);
  }
  state().changed.wait(lock, is_done);
  return true;
}

Code Stream::take_failure() {
  if (failure_ != 0) return std::exchange(failure_, 0);
  return device.poison != 0 ? kCascade : 0;
}

void Stream::run() {
  std::unique_lock lock(state().mutex);
  for (;;) {
    state().changed.wait(lock, [this] { return is_closed_ || !queue_.empty(); });
    if (is_closed_) return;
    Item item = std::move(queue_.front());
    queue_.pop_front();
    is_running_ = true;
    const Code code = perform(item, lock);
    is_running_ = false;
    if (code != 0 && !is_abandoned_) {
      // A later failure replaces an earlier one that was not read.
      failure_ = device.poison != 0 ? kCascade : code;
      if (a2a3::cann::is_poison(code)) state().poison(device, code);
    }
    state().changed.notify_all();
  }
}

Code Stream::perform(Item& item, std::unique_lock<std::mutex>& lock) {
  if (device.poison != 0) return kCascade;
  const uint64_t limit_ms = item.is_core ? device.operation_timeout_ms : 0;
  lock.unlock();
  Deadline deadline(limit_ms, is_stopped_);
  Code code = item.work(is_stopped_);
  if (deadline.end()) code = kCoreTimeout;
  lock.lock();
  return code;
}

}  // namespace pto::fake
