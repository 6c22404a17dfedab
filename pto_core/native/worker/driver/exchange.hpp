// Connects the engine and the children: passes the answers of children to the engine and carries
// out its instructions. Only a thread with the driver role may use it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "driver/core.hpp"

namespace pto::worker {

class Exchange : private FrameSource {
 public:
  explicit Exchange(DriverCore& core) : core_(core) {}

  // Process the answers of the children, let the engine dispatch tasks, and send the frames.
  // `waiters`: 1 if the caller is a waiting thread, otherwise 0. Return whether any event occurred.
  bool poll_and_dispatch(uint32_t waiters = 0);
  // Let the engine dispatch tasks, and send the frames. Return whether there were any.
  bool dispatch();
  // Carry out the engine's instructions.
  void process();
  void flush_children();
  // End the children of tasks that exceeded their time limits. The time of a task counts from its
  // start in the child. The wait for the start has the same limit, but at least two seconds. For
  // another host, the wait begins again when frames or results move between the hosts. Also let
  // tasks run again whose wait before the next attempt has ended.
  void check_deadlines();
  // The child that ran the first task of the last run probably gets the first task of this run too.
  // Wake it while the program prepares that task.
  void wake_first_child();
  // Wake the waiting threads, because their condition (for example free space) may be true now.
  void wake_waiting();

  void set_ready(int32_t child);
  // Called when the process of the child has ended. `returns`: the child will be restarted.
  void lose(int32_t child, int64_t cause, bool returns);
  // Mark all children as lost; the open runs end.
  void lose_all(int64_t cause);

 private:
  pto_frame_view view_of(const QueuedFrame& frame, bool receives_use,
                         pto_frame* head) const override;
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
  uint64_t last_begun(int32_t child) const;
  void note_returning(ChildLink& link, bool returns);

  DriverCore& core_;
  // the child that received the first task of the last run
  int32_t first_child_ = static_cast<int32_t>(kNone);
  bool has_sent_ = false;  // whether a task was sent in this run
};

// Return the record of a live task and the child that runs it.
std::optional<EndedTask> describe_live(DriverCore& core, int64_t task, int32_t* child);

}  // namespace pto::worker
