// Children that come, go, and are told something.
#include <algorithm>

#include "driver/driver.hpp"
#include "driver/role.hpp"
#include "pto/engine/bell.hpp"

namespace pto::hierarchy {
namespace {

constexpr size_t kRepliesKept = 1024;

}  // namespace

void Driver::attach(int32_t child, const pto_transport_api* api, pto_parent_end* end,
                    uint32_t largest_frame_bytes, bool is_python) {
  Role role(*this, Role::kAsks);
  if (is_closed_) return api->close_parent(end);
  links_[static_cast<size_t>(child)]->attach(api, end, largest_frame_bytes, is_python);
  if (is_python) needs_python_ = true;
}

void Driver::detach_all() {
  Role role(*this);
  for (const auto& link : links_) link->detach();
}

void Driver::child_ready(int32_t child) {
  Role role(*this);
  if (is_closed_) return;
  engine_->child_ready(child, out_);
  ChildLink& link = *links_[static_cast<size_t>(child)];
  link.is_ready = true;
  note_returning(&link, false);
  is_dirty_ = true;
  process();
  pump();
}

void Driver::child_lost(int32_t child, int64_t cause, bool returns) {
  Role role(*this);
  if (is_closed_) return;
  lose(child, cause, returns);
  pump();
  engine::ring(board_.parent_bell());
}

void Driver::note_returning(ChildLink* link, bool returns) {
  if (link->is_returning == returns) return;
  link->is_returning = returns;
  returns ? ++returning_ : --returning_;
}

// What it answered, then the successes that it marked on the board without an answer, then the rest
// as lost, with a failure or a skip that it had no time to tell; the others are told before the
// board lets them go on.
void Driver::lose(int32_t child, int64_t cause, bool returns) {
  ChildLink& link = *links_[static_cast<size_t>(child)];
  pto_answer answers[16];
  int32_t got = 0;
  while ((got = link.poll(answers, 16)) > 0) take_answers(child, answers, got);
  read_board(child);
  process();
  const uint64_t started = last_started(child);
  for (uint64_t count = link.completed() + 1; count <= link.sent(); ++count)
    skip_consumers(child, count);
  for (const uint64_t number : link.lose()) {
    const auto wanted = replies_.find(number);
    if (wanted != replies_.end()) wanted->second.state = ReplyState::kLost;
  }
  link.detach();
  link.is_lost = !returns;
  note_returning(&link, returns);
  link.loss_cause = cause;
  std::erase_if(actions_, [&](const Action& action) { return action.child == child; });
  board_.lose(child, link.sent());
  engine_->child_lost(child, cause, started, returns, out_);
  is_dirty_ = true;
  process();
}

// The last frame that has begun in a child that is gone: the one it was killed in or, where it had
// no time to tell how that ended, after. A skip is marked as an end that had no beginning.
uint64_t Driver::last_started(int32_t child) const {
  const ChildLink& link = *links_[static_cast<size_t>(child)];
  const ChildRecord& seen = board_.child(child);
  const uint64_t started =
      std::clamp(seen.started.load(std::memory_order_acquire), link.completed(), link.sent());
  if (started == link.completed() || seen.completed.load() < started) return started;
  const Frame& frame = link.frame(started);
  const bool is_skip = frame.required_child != kNone &&
                       board_.requirement(child, started, frame.required_child,
                                          frame.required_count) == Requirement::kFailed;
  return is_skip ? started - 1 : started;
}

uint64_t Driver::control(int32_t child, std::string data) {
  Role role(*this);
  check_open();
  ChildLink& link = *links_[static_cast<size_t>(child)];
  if (!link.is_attached()) {
    throw Refusal(Refusal::Kind::kProtocol,
                  "child " + std::to_string(child) + " is gone and takes no control frame");
  }
  const size_t bytes = sizeof(pto_frame) + data.size();
  if (bytes > link.largest_frame_bytes()) {
    throw Refusal(Refusal::Kind::kCapacity, "a control frame of " + std::to_string(bytes) +
                                                " bytes; the child takes up to " +
                                                std::to_string(link.largest_frame_bytes()) +
                                                ", set a larger child_queue_bytes");
  }
  const uint64_t number = next_control_++;
  // Of those that are there to be asked for, somebody who forgot to would keep all of them.
  if (replies_.size() >= kRepliesKept)
    std::erase_if(replies_,
                  [](const auto& each) { return each.second.state != ReplyState::kPending; });
  replies_[number];
  link.control(number, std::make_shared<const std::string>(std::move(data)));
  pump();
  return number;
}

}  // namespace pto::hierarchy
