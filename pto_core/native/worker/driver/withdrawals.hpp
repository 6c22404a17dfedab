// Takes back tasks that were sent to a child and have not begun: to cancel them, or to let an idle
// child run them.
//
// The driver marks a frame in the progress table, and its child skips a marked frame. A child first
// publishes that it begins a frame, and then reads the mark. The driver first writes the mark, and
// then reads which frames have begun. So if it reads that the frame has not begun, the child
// certainly skips it, and the task can be sent elsewhere at once. Otherwise the child may still
// skip the frame; its report decides.
//
// A child that passes frames on to another host keeps them. Groups stay where they are. Only the
// thread that has the driver role uses this class.
#pragma once

#include <cstdint>
#include <vector>

#include "driver/core.hpp"
#include "driver/exchange.hpp"

namespace pto::worker {

class Withdrawals {
 public:
  Withdrawals(DriverCore& core, Exchange& exchange)
      : core_(core), exchange_(exchange), paces_(core.links.size()) {}

  // Cancel a task, which fails with this cause when its last producer has ended. Return false if it
  // may have begun, or has ended.
  bool cancel(int64_t task, int64_t cause);
  // Take back every task of a run that has not begun. Called when the run is cancelled.
  void withdraw_run(const RunOutcomes& run);
  // If a child is idle while another one has run the same task for half a millisecond, let the
  // dispatcher choose again among the children for the tasks that wait there. While a child may
  // become such a child, SharedFlags::is_unbalanced is set, and waits are short.
  void balance();

 private:
  // The last look at a child: the frame that it ran, and since when.
  struct Pace {
    uint64_t started = 0;
    uint64_t sent = 0;
    uint64_t since_ns = 0;
    bool has_nothing = false;  // whether none of its tasks may move
  };

  bool keeps_frames(int32_t child) const { return core_.link(child).configuration.receives_use; }
  // Return the frames of single tasks that have not begun, oldest first.
  std::vector<uint64_t> waiting_in(int32_t child) const;
  void take_back(int32_t child, const std::vector<uint64_t>& counts);
  void skip_followers(int32_t child, const std::vector<uint64_t>& counts, uint64_t started);
  bool is_slow(int32_t child, uint64_t now_ns);
  bool move_from(int32_t child);

  DriverCore& core_;
  Exchange& exchange_;
  std::vector<Pace> paces_;
};

}  // namespace pto::worker
