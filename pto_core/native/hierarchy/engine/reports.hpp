// What children report: completions, and their own end.
#pragma once

#include <cstdint>

#include "engine/core.hpp"
#include "engine/endings.hpp"

namespace pto::hierarchy {

class Reports {
 public:
  Reports(Core& core, Endings& endings) : core_(core), endings_(endings) {}

  // Ends what has completed, or throws and changes nothing.
  void completed(int32_t child, uint64_t count, Outcome outcome, int64_t cause);
  // Lets the child have frames.
  void ready(int32_t child);
  // Ends or repeats what was in flight, oldest first; frames up to `started` had begun. Throws and
  // changes nothing where that cannot be.
  void lost(int32_t child, int64_t cause, uint64_t started, bool returns);
  // Asks for the end of the child if that frame is still in flight.
  void deadline(int32_t child, uint64_t count, int64_t cause);

 private:
  void check(const Child& child, uint64_t count, Outcome outcome) const;
  void check_skip(const Child& child, uint64_t count, bool is_skip) const;
  void member_lost(const InFlight& frame, int64_t cause, bool has_begun);

  Core& core_;
  Endings& endings_;
};

}  // namespace pto::hierarchy
