// The child's end of a connection, for a program that passes the frames on to another host.
//
// The relay uses a ChildPort instead of a ChildLoop: it receives frames ahead of time, keeps them
// until their requirements are met, and ends them in order. No call blocks. Used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "progress_table.hpp"
#include "pto/abi/endpoint.h"

namespace pto::hierarchy {

// A frame that was taken from the queue. `count` is its number in the progress table; 0 for a
// control frame.
struct ReceivedFrame {
  pto_frame head;
  uint64_t count;
  std::string data;
};

// Plain tasks that were taken from the queue, packed for the other host. Their numbers in the
// progress table start at `first`.
struct ReceivedTasks {
  uint64_t first;
  uint64_t count;
  std::string packed;
  bool has_more;  // the queue may have more frames, of any kind
};

class ChildPort {
 public:
  // Take ownership of the end.
  ChildPort(const pto_transport_api& api, pto_child_end* end, const ProgressTable& progress,
            int32_t child);
  ~ChildPort() { close(); }
  ChildPort(const ChildPort&) = delete;
  ChildPort& operator=(const ChildPort&) = delete;

  // Take the next frames from the queue. Throws Refusal (protocol), or ParentClosed.
  std::vector<ReceivedFrame> receive(int32_t most);
  // Take the next frames from the queue while they are plain tasks without a requirement. Throws as
  // receive() does.
  ReceivedTasks receive_plain(int32_t most);
  // Return whether a frame may start. If it must wait, the completion of the required frame rings
  // the doorbell.
  Requirement requirement(uint64_t count, int32_t required_child, uint64_t required_count) const;
  // Return the number of frames of this child that have completed.
  uint64_t completed() const;

  // Record that frames up to `count` were sent to the other host.
  void left(uint64_t count) const;
  // Record the newest frame that runs; it started `age_ns` ago.
  void started(uint64_t count, uint64_t age_ns) const;
  // Record that the next `count` frames have ended, all with the same outcome.
  void ended(bool succeeded, uint64_t count) const {
    for (uint64_t i = 0; i < count; ++i) progress_.complete(child_, succeeded);
  }
  // Return false if the parent must poll first. Frames are answered in order. An answer that
  // reports a success also reports all successes before it.
  bool answer(uint64_t count, uint16_t outcome, const std::string& data) const;
  bool reply(uint64_t number, const std::string& data) const;

  pto_bell* bell() const { return &progress_.child(child_).bell; }
  bool is_open() const { return end_ != nullptr; }
  void close();

 private:
  bool try_answer(const pto_answer& answer) const;
  int32_t checked(int32_t result) const;

  const pto_transport_api& api_;
  pto_child_end* end_;
  const ProgressTable progress_;
  const int32_t child_;
  const uint64_t base_;  // frames that the table counted before this connection
  uint64_t count_;       // number of the last received frame in the table
};

}  // namespace pto::hierarchy
