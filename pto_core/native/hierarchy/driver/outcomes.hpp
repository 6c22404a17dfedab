// The outcomes of the tasks of a run. The driver keeps the outcomes of the last run, and each task
// handle keeps those of its run.
//
// Only the thread that has the driver role uses the data. The GIL protects the reference counts.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "driver/records.hpp"
#include "engine/interface.hpp"

namespace pto::hierarchy {

// The cause of a failure: data from the child, or data that the host passed to add_cause().
struct Cause {
  std::string data;
  int64_t task = kNone;
  int32_t child = static_cast<int32_t>(kNone);
  int32_t member = 0;
};

// A task that did not complete, with the data from its record.
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
  int64_t first_task = 0;  // number of the first task of the run
  std::atomic<bool> is_over{false};
  std::atomic<bool> is_stopped{false};      // whether the run was open when the driver was stopped
  std::atomic<bool> is_interrupted{false};  // whether the wait for its end must cancel the run
  std::unordered_map<int64_t, EndedTask> ended;  // tasks that did not complete
  std::unordered_map<int64_t, Cause> causes;     // causes of failed frames

  const Cause* cause(int64_t number) const {
    const auto found = causes.find(number);
    return found == causes.end() ? nullptr : &found->second;
  }
};

}  // namespace pto::hierarchy
