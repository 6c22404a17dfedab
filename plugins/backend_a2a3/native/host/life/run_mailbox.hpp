// What host and device tell each other during a run: the end of the run, and explanations.
//
// It uses pto_a2a3_control, which the host writes, and pto_a2a3_progress, which the device writes.
// Any thread may call.
#pragma once

#include <mutex>
#include <string>

#include "abi/launch.h"
#include "life/card.hpp"

namespace pto::a2a3 {

class RunMailbox {
 public:
  explicit RunMailbox(Card& card) : card_(card) {}

  // Clears the block of the host. The addresses are those of both blocks in device memory.
  pto_status open(uint64_t control, uint64_t progress, pto_error* error);

  // A run begins with the sequence number of its launch, and ends.
  void begin(uint64_t sequence);
  void end();

  // Ends the run early. With `abandons`, the device does not wait for running kernels.
  void abort(const pto_error* cause, bool abandons);
  // Returns whether the device has not ended an abandoned run in time.
  bool is_overdue();
  // Writes a description of the run to `text`. If the device does not answer soon, it is the
  // previous one, with a first line that says so. Returns false if there is no run.
  bool explain(std::string& text);
  // Tells the device how many messages of its log the host has read.
  void set_log_read(uint64_t count);

 private:
  std::string ask();

  Card& card_;
  uint64_t control_ = 0;
  uint64_t progress_ = 0;
  std::mutex mutex_;  // of the members below
  pto_a2a3_control asked_ = {};
  uint64_t run_ = 0;             // sequence of the current run; 0: none
  int64_t abandoned_at_ns_ = 0;  // 0: not abandoned
};

}  // namespace pto::a2a3
