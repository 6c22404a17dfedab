// The replies of children to control frames. They are stored until the caller takes them. Only the
// thread that has the driver role uses this class.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>

namespace pto::hierarchy {

enum class ReplyState { kPending, kGiven, kLost };

class Replies {
 public:
  // Return a number for a control frame whose reply is dropped.
  uint64_t next() { return next_++; }
  // Return a number for a control frame whose reply the caller will take. If too many replies are
  // stored, the oldest are dropped.
  uint64_t expect() {
    if (replies_.size() >= kMost)
      std::erase_if(replies_,
                    [](const auto& each) { return each.second.state != ReplyState::kPending; });
    replies_[next_];
    return next_++;
  }
  void give(uint64_t number, const void* data, size_t bytes) {
    const auto found = replies_.find(number);
    if (found == replies_.end()) return;
    found->second.state = ReplyState::kGiven;
    found->second.data.assign(static_cast<const char*>(data), data ? bytes : 0);
  }
  void lose(uint64_t number) {
    const auto found = replies_.find(number);
    if (found != replies_.end()) found->second.state = ReplyState::kLost;
  }
  // Return the state of a reply. If it has arrived, move it to `data` and forget the number. Return
  // kLost if no reply with this number is expected.
  ReplyState take(uint64_t number, std::string* data) {
    const auto found = replies_.find(number);
    if (found == replies_.end()) return ReplyState::kLost;
    const ReplyState state = found->second.state;
    if (state == ReplyState::kPending) return state;
    *data = std::move(found->second.data);
    replies_.erase(found);
    return state;
  }

 private:
  static constexpr size_t kMost = 1024;

  struct Reply {
    ReplyState state = ReplyState::kPending;
    std::string data;
  };

  std::unordered_map<uint64_t, Reply> replies_;
  uint64_t next_ = 1;
};

}  // namespace pto::hierarchy
