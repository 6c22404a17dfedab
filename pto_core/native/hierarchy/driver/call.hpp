// The arguments of a submit to the driver, and the exceptions of a submit.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "driver/outcomes.hpp"
#include "engine/interface.hpp"
#include "pto/abi/arguments.h"

namespace pto::hierarchy {

struct MemberCall {
  std::span<const pto_tensor> tensors;
  std::span<Tensor> keys;  // keys of the tensors; the engine writes the allocated addresses
  std::span<const uint64_t> scalars;
};

struct Call {
  const RunOutcomes* run = nullptr;  // the run of the task; null: the open run
  Kind kind = Kind::kNextLevel;
  bool has_arguments = true;
  bool is_hint = false;
  int32_t retries = 0;
  uint32_t callable = 0;
  uint32_t config = 0;
  uint32_t timeout_ms = 0;
  Place place;
  std::span<const MemberCall> members;
  std::span<const int32_t> pins;
  std::span<const int64_t> after;  // explicit dependencies: earlier tasks of the run
};

// Return the value of pto_tensor.use. `is_allocated`: the submit of the task allocates the memory.
inline std::byte use_of(Tag tag, bool is_allocated) {
  return static_cast<std::byte>((static_cast<int>(tag) + 1) |
                                (is_allocated ? PTO_USE_ALLOCATED : 0));
}

// Convert a call to a submission of the engine. `members` owns the data to which the submission
// refers.
Submission submission_of(const Call& call, std::vector<Member>& members);

// The exception for a submit that can never succeed.
struct DeadlockFound {
  Deadlock proof;
};

// The range of task numbers that one thread has submitted. Tasks of other threads may have numbers
// in this range too.
struct TaskRange {
  int64_t first = kNone;
  int64_t last = kNone;

  void add(int64_t task) {
    if (first == kNone) first = task;
    last = task;
  }
};

}  // namespace pto::hierarchy
