// Between the engine and the children: answers in, instructions out. Only for a thread that holds
// the driver's role.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "driver/core.hpp"

namespace pto::hierarchy {

class Exchange : private FrameSource {
 public:
  explicit Exchange(DriverCore& core) : core_(core) {}

  // Takes the answers of the children, lets the engine dispatch, and sends. `waiters`: how many of
  // the waiting threads this call is made for. Returns whether anything has happened.
  bool poll_and_dispatch(uint32_t waiters = 0);
  // Follows the engine's instructions.
  void process();
  void flush_children();
  // A task that ran past its deadline ends its child; the time counts from the start in the child.
  void check_deadlines();
  // The child that got the first task of the last run probably gets the first one of this run, too.
  // It wakes while the program makes that task.
  void wake_first_child();
  // Wakes the waiting threads: what they wait for, such as free space, may be there.
  void wake_waiting();

  void set_ready(int32_t child);
  // The process of the child is gone. `returns`: another one will take its place.
  void lose(int32_t child, int64_t cause, bool returns);
  // All children; a run that is open ends.
  void lose_all(int64_t cause);

 private:
  pto_frame_view view_of(const Frame& frame, pto_frame* head) const override;
  bool poll_children();
  bool read_progress(int32_t child);
  void take_answers(int32_t child, const pto_answer* answers, int32_t count);
  void take_completion(int32_t child, const pto_answer& answer);
  void take_reply(int32_t child, const pto_answer& answer);
  void report_completion(int32_t child, uint64_t count, Outcome outcome, int64_t cause);
  void skip_consumers(int32_t child, uint64_t count);
  void send(const Instruction& instruction);
  void finish(const Instruction& instruction);
  void stop_clocks();
  void note_broken(int32_t child, const std::string& message);
  void reject(int32_t child, const std::string& message);
  uint64_t last_started(int32_t child) const;
  void note_returning(ChildLink& link, bool returns);

  DriverCore& core_;
  int32_t first_child_ = static_cast<int32_t>(kNone);  // that got the first task of the last run
  bool has_sent_ = false;                              // a task, in this run
};

// The task's record, and the child that runs it, for a task that is live.
std::optional<EndedTask> describe_live(DriverCore& core, int64_t task, int32_t* child);

}  // namespace pto::hierarchy
