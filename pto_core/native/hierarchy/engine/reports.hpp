// The reports of children: completions, and the loss of a child.
#pragma once

#include <cstdint>

#include "engine/core.hpp"
#include "engine/endings.hpp"

namespace pto::hierarchy {

class Reports {
 public:
  Reports(Core& core, Endings& endings) : core_(core), endings_(endings) {}

  // End the completed tasks, or throw and change nothing.
  void completed(int32_t child, uint64_t count, Outcome outcome, int64_t cause);
  // Mark the child as ready for frames.
  void ready(int32_t child);
  // End or repeat the frames in flight, oldest first; frames up to `started` had begun. Throws and
  // changes nothing if the report is invalid.
  void lost(int32_t child, int64_t cause, uint64_t started, bool returns);
  // Request that the child is killed if that frame is still in flight.
  void deadline(int32_t child, uint64_t count, int64_t cause);

 private:
  void check(const Child& child, uint64_t count, Outcome outcome) const;
  void check_skip(const Child& child, uint64_t count, bool is_skip) const;
  void member_lost(const InFlight& frame, int64_t cause, bool has_begun);

  Core& core_;
  Endings& endings_;
};

}  // namespace pto::hierarchy
