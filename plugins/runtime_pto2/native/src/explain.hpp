// A textual description of a run, for messages about a slow run.
#pragma once

#include <cstddef>

#include "deadlock.hpp"
#include "long_wait.hpp"
#include "options.hpp"
#include "rings.hpp"
#include "scheduler.hpp"

namespace pto::ring_buffer {

struct RunView {
  const Rings& rings;
  const Scheduler& scheduler;
  const Options& options;
  const LongWait& long_wait;
  const Deadlock& deadlock;
};

// Any thread may call it at any time; during a run the result is a snapshot. Return the written
// length.
size_t explain(const RunView& view, char* out, size_t capacity);

}  // namespace pto::ring_buffer
