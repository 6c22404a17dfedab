// How the tasks of a run ended, for as long as somebody asks: the driver while it is the last run,
// and every handle of a task of it.
//
// The driver's role owns it; the counts of holders are the program's (under the GIL).
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "driver/records.hpp"
#include "engine/interface.hpp"

namespace pto::hierarchy {

// Why something failed: what the child said, or what the host gave with add_cause().
struct Cause {
  std::string data;
  int64_t task = kNone;
  int32_t child = static_cast<int32_t>(kNone);
  int32_t member = 0;
};

// A task that did not complete, with what its record said.
struct EndedTask {
  Result result = Result::kCompleted;
  int64_t cause = kNone;
  int64_t root = kNone;
  uint32_t callable = 0;
  uint32_t members = 0;
  uint32_t timeout_ms = 0;
  Place place;
};

struct RunOutcomes {
  int64_t first_task = 0;  // of the run
  std::atomic<bool> is_over{false};
  std::atomic<bool> is_stopped{false};           // it was open when the driver was
  std::unordered_map<int64_t, EndedTask> ended;  // those that did not complete
  std::unordered_map<int64_t, Cause> causes;     // of the failures of frames

  const Cause* cause(int64_t number) const {
    const auto found = causes.find(number);
    return found == causes.end() ? nullptr : &found->second;
  }
};

}  // namespace pto::hierarchy
