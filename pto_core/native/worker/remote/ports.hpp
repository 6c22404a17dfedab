#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "progress_table.hpp"
#include "pto/abi/endpoint.h"
#include "remote/packed_tasks.hpp"

namespace pto::worker {

// The child's end of a connection, for a program that passes the frames on to another host.
//
// The relay uses a ChildPort instead of a ChildLoop: it receives frames ahead of time, keeps them
// until their requirements are met, and ends them in order. No call blocks. Used by one thread.
//
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
  // Record that frames or results move between the hosts, and how long the other host may be silent
  // now.
  void permit_silence(uint64_t duration_ns) const { progress_.permit_silence(child_, duration_ns); }
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

struct ReceivedAnswer {
  uint64_t number;
  uint16_t kind;
  uint16_t outcome;
  std::string data;
};

// The parent's end of a connection to one child, for a program that passes on frames from another
// host.
//
// The gateway uses it instead of a driver: frames arrive in order from the relay, and answers go
// back to it. No call blocks. Used by one thread.
class ParentPort {
 public:
  // Take ownership of the end. `progress` has one child.
  ParentPort(const pto_transport_api& api, pto_parent_end* end, const ProgressTable& progress)
      : api_(api), end_(end), progress_(progress) {}
  ~ParentPort() { close(); }
  ParentPort(const ParentPort&) = delete;
  ParentPort& operator=(const ParentPort&) = delete;

  // Return false if the queue has no free space. Throws Refusal (protocol), also for a frame that
  // is too large.
  bool submit(const pto_frame& head, const std::string& data);
  // Send packed plain tasks; return how many of them the queue accepted. Throws as submit() does.
  PlainTasks submit_plain(std::string_view packed);
  // Return the answers that have arrived, in order. Throws Refusal (protocol) if the child closed.
  std::vector<ReceivedAnswer> poll();

  // The number of the newest frame that has started, and of the newest that has completed.
  uint64_t started() const { return record().started.load(std::memory_order_acquire); }
  uint64_t completed() const { return record().completed.load(std::memory_order_acquire); }
  // Return the newest frame up to which all frames have succeeded. The caller passes `count`, a
  // frame up to which it knows this already. The answers report successes late; the progress table
  // has each success at once.
  uint64_t succeeded(uint64_t count) const;
  // Return the nanoseconds since the newest frame started. The child records start times only after
  // the first call.
  uint64_t started_age_ns() const;

  pto_bell* bell() const { return progress_.parent_bell(); }
  bool is_open() const { return end_ != nullptr; }
  void close();

 private:
  ChildRecord& record() const { return progress_.child(0); }
  int32_t checked(int32_t result) const;

  const pto_transport_api& api_;
  pto_parent_end* end_;
  const ProgressTable progress_;
};

}  // namespace pto::worker
