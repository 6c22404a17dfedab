// The reports of children: completions, and the loss of a child.
#pragma once

#include <cstdint>

#include "engine/core.hpp"
#include "engine/endings.hpp"

namespace pto::hierarchy {

class Reports {
 public:
  Reports(Core& core, Endings& endings) : core_(core), endings_(endings) {}

  // Report the completion of frames up to `count`. For an invalid report, throw and change nothing.
  void completed(int32_t child, uint64_t count, Outcome outcome, int64_t cause);
  // Mark the child as ready for frames.
  void ready(int32_t child);
  // Report the loss of a child: end or repeat the tasks of its frames in flight, oldest first. The
  // frames up to `started` had begun. For an invalid report, throw and change nothing.
  void lost(int32_t child, int64_t cause, uint64_t started, bool returns);
  // Report a timeout: request the end of the child if frame `count` is still in flight.
  void deadline(int32_t child, uint64_t count, int64_t cause);

 private:
  void check(const Child& child, uint64_t count, Outcome outcome) const;
  void check_skip(const Child& child, uint64_t count, bool is_skip) const;
  void member_lost(const InFlight& frame, int64_t cause, bool has_begun);

  Core& core_;
  Endings& endings_;
};

}  // namespace pto::hierarchy
