// The parent's side of one child: what is in flight to it, what waits for room in its queue, and
// what it answered.
//
// Frames get their number when the engine sends them, and leave in that order, control frames
// between them where they were put. Invariants: completed <= taken <= sent; in flight are the
// frames completed + 1 to sent; taken are those that the transport has. The driver's role owns it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "engine/interface.hpp"
#include "pto/abi/endpoint.h"

namespace pto::hierarchy {

// A member of a task in the queue of a child. Its pto_frame is made when the transport takes it.
struct Frame {
  int64_t task;
  int32_t member;
  int32_t required_child;  // kNone: nothing is required
  uint64_t required_count;
};

struct ControlFrame {
  uint64_t number;
  uint64_t after;  // goes once this many task frames have been taken
  std::shared_ptr<const std::string> data;
};

// What fills in the head of a task's frame.
class FrameSource {
 public:
  virtual ~FrameSource() = default;
  // The data stays until the task ends.
  virtual pto_frame_view view_of(const Frame& frame, pto_frame* head) const = 0;
};

// Whether the child takes tasks.
struct ChildPresence {
  bool is_ready = false;
  bool is_lost = false;        // and does not come back
  bool is_returning = false;   // lost, and another is being started
  int64_t loss_cause = kNone;  // of the last loss, which later tasks may fail for
};

class ChildLink {
 public:
  explicit ChildLink(const ChildConfiguration& configuration);
  ~ChildLink() { detach(); }
  ChildLink(const ChildLink&) = delete;
  ChildLink& operator=(const ChildLink&) = delete;

  // The link owns the end from now on. Frames that the new end is given count from 1 for it.
  void attach(const pto_transport_api* api, pto_parent_end* end, uint32_t largest_frame_bytes);
  void detach();
  bool is_attached() const { return end_ != nullptr; }
  // How many connections there were, with this one.
  uint64_t connection() const { return connection_; }
  // Nothing is sent any more, and nothing believed that came after.
  void disbelieve() { is_broken_ = is_disbelieved_ = true; }
  bool is_disbelieved() const { return is_disbelieved_; }

  void send(uint64_t count, const Frame& frame);
  void control(uint64_t number, std::shared_ptr<const std::string> data);

  bool has_unsent() const { return taken_ < sent_ || !controls_.empty(); }
  // Something may be answered.
  bool is_awaited() const { return completed_ < sent_ || replies_ > 0; }
  uint32_t in_flight() const { return static_cast<uint32_t>(sent_ - completed_); }

  // Gives the transport what it takes. False when the connection is broken; see error().
  bool flush(const FrameSource& source);
  // How many answers came; -1 when the connection is broken. The answers stay until the next call.
  int32_t poll(pto_answer* answers, int32_t count);

  // The child's count that an answer means; more than taken() when it means no frame that it has.
  uint64_t count_of(const pto_answer& answer) const { return base_ + answer.number; }
  // Frames up to `count` have ended.
  void complete(uint64_t count) { completed_ = count; }
  void replied() { replies_ -= 1; }
  // The process is gone: nothing is in flight any more. Gives the numbers of control frames that
  // nobody will answer.
  std::vector<uint64_t> lose();

  const Frame& frame(uint64_t count) const { return ring_[count & mask_]; }
  uint64_t sent() const { return sent_; }
  uint64_t taken() const { return taken_; }
  uint64_t completed() const { return completed_; }
  const std::string& error() const { return error_; }
  uint32_t largest_frame_bytes() const { return largest_frame_bytes_; }

  const ChildConfiguration configuration;
  uint32_t configs_sent = 0;      // numbers up to this are known to the child
  std::vector<uint64_t> awaited;  // numbers of control frames without a reply
  uint64_t late = 0;              // the last frame whose deadline was told
  ChildPresence presence;

 private:
  int32_t fill(const FrameSource& source, pto_frame* heads, pto_frame_view* views) const;
  bool note_broken(int32_t status, const char* what);

  const pto_transport_api* api_ = nullptr;
  pto_parent_end* end_ = nullptr;
  bool is_broken_ = false;
  bool is_disbelieved_ = false;  // it answered what cannot be
  uint32_t largest_frame_bytes_ = 0;
  std::string error_;
  uint64_t connection_ = 0;
  uint64_t base_ = 0;  // task frames sent over earlier connections
  uint64_t sent_ = 0;
  uint64_t taken_ = 0;
  uint64_t completed_ = 0;
  uint32_t replies_ = 0;     // control frames not yet answered
  std::vector<Frame> ring_;  // by count
  uint64_t mask_;
  std::deque<ControlFrame> controls_;
};

}  // namespace pto::hierarchy
