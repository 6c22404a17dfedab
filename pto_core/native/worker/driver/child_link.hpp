// The parent's side of the connection to one child: the frames in flight, including frames that
// wait for free space in the queue, and the answers.
//
// A frame gets its number when the engine sends it. The transport receives all frames, control
// frames included, in the order of their numbers. Invariants: completed <= taken <= sent; frames
// completed + 1 to sent are in flight; the transport has accepted frames up to taken. Only the
// thread that has the driver role uses this class.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "engine/interface.hpp"
#include "pto/abi/endpoint.h"

namespace pto::worker {

// A member of a task in the queue of a child. Its pto_frame is created when the transport accepts
// it.
struct QueuedFrame {
  int64_t task;  // kNone: it was withdrawn
  int32_t member;
  int32_t required_child;  // kNone: nothing is required
  uint64_t required_count;
};

struct ControlFrame {
  uint64_t number;
  uint64_t after;  // sent after the transport has accepted this many task frames
  std::shared_ptr<const std::string> data;
};

// The interface that creates the frames of tasks.
class FrameSource {
 public:
  virtual ~FrameSource() = default;
  // Fill in `head` and return the frame for the transport. The data of the frame must live until
  // the task ends. `receives_use`: see ChildConfiguration.
  virtual pto_frame_view view_of(const QueuedFrame& frame, bool receives_use,
                                 pto_frame* head) const = 0;
};

// Whether the child accepts tasks.
struct ChildPresence {
  bool is_ready = false;
  bool is_lost = false;        // lost, and not being restarted
  bool is_returning = false;   // lost, and being restarted
  int64_t loss_cause = kNone;  // cause of the last loss; later tasks may fail with this cause
};

// The time limits of the frames of a child.
struct Lateness {
  uint64_t reported = 0;       // the last frame whose deadline was reported
  uint64_t next_to_start = 0;  // the frame that the idle child can start since can_start_ns
  uint64_t can_start_ns = 0;
};

class ChildLink {
 public:
  explicit ChildLink(const ChildConfiguration& configuration);
  ~ChildLink() { detach(); }
  ChildLink(const ChildLink&) = delete;
  ChildLink& operator=(const ChildLink&) = delete;

  // Take ownership of the end. The new end counts its frames from 1.
  void attach(const pto_transport_api* api, pto_parent_end* end, uint32_t largest_frame_bytes);
  void detach();
  bool is_attached() const { return end_ != nullptr; }
  // Return the number of connections that were opened so far, including the current one.
  uint64_t connection() const { return connection_; }
  // Send no more frames to the child, and ignore all its later answers, because it sent an invalid
  // answer.
  void distrust() { is_broken_ = is_distrusted_ = true; }
  bool is_distrusted() const { return is_distrusted_; }

  void send(uint64_t count, const QueuedFrame& frame);
  void control(uint64_t number, std::shared_ptr<const std::string> data);

  bool has_unsent() const { return taken_ < sent_ || !controls_.empty(); }
  // Return whether an answer may arrive.
  bool is_awaited() const { return completed_ < sent_ || !awaited.empty(); }
  // Return the number of frames in flight, without those that were withdrawn.
  uint32_t in_flight() const { return static_cast<uint32_t>(sent_ - completed_) - withdrawn_; }

  // Pass frames to the transport. Return false if the connection is broken; see error().
  bool flush(const FrameSource& source);
  // Receive answers. Return their number, or -1 if the connection is broken. The answers stay valid
  // until the next call.
  int32_t poll(pto_answer* answers, int32_t count);

  // Return the frame count of an answer. A count above taken() means that the answer is invalid.
  uint64_t count_of(const pto_answer& answer) const { return base_ + answer.number; }
  // Record that frames up to `count` have ended.
  void complete(uint64_t count) {
    for (uint64_t each = completed_ + 1; withdrawn_ > 0 && each <= count; ++each)
      withdrawn_ -= frame(each).task == kNone;
    completed_ = count;
  }
  // Forget the task of a frame in flight, which the child will skip.
  void withdraw(uint64_t count) {
    ring_[count & mask_] = {kNone, 0, static_cast<int32_t>(kNone), 0};
    ++withdrawn_;
  }
  // Record that the process has ended: no frame is in flight any more. Return the numbers of
  // control frames without a reply.
  std::vector<uint64_t> lose();

  const QueuedFrame& frame(uint64_t count) const { return ring_[count & mask_]; }
  uint64_t sent() const { return sent_; }
  uint64_t taken() const { return taken_; }
  uint64_t completed() const { return completed_; }
  const std::string& error() const { return error_; }
  uint32_t largest_frame_bytes() const { return largest_frame_bytes_; }

  const ChildConfiguration configuration;
  uint32_t configs_sent = 0;      // the child knows configurations up to this number
  std::vector<uint64_t> awaited;  // numbers of control frames without a reply
  Lateness lateness;
  ChildPresence presence;

 private:
  int32_t fill(const FrameSource& source, pto_frame* heads, pto_frame_view* views) const;
  bool note_broken(int32_t status, const char* what);

  const pto_transport_api* api_ = nullptr;
  pto_parent_end* end_ = nullptr;
  bool is_broken_ = false;
  bool is_distrusted_ = false;  // the child sent an invalid answer
  uint32_t largest_frame_bytes_ = 0;
  std::string error_;
  uint64_t connection_ = 0;
  uint64_t base_ = 0;  // number of task frames sent over earlier connections
  uint64_t sent_ = 0;
  uint64_t taken_ = 0;
  uint64_t completed_ = 0;
  uint32_t withdrawn_ = 0;         // number of frames in flight without a task
  std::vector<QueuedFrame> ring_;  // task frames, by count
  uint64_t mask_;
  std::deque<ControlFrame> controls_;
};

}  // namespace pto::worker
