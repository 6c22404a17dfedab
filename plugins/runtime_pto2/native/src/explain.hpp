// A text that describes a run, for messages about slow runs.
#pragma once

#include <cstddef>

#include "deadlock.hpp"
#include "options.hpp"
#include "rings.hpp"
#include "scheduler.hpp"
#include "space_wait.hpp"

namespace pto::ring_buffer {

struct RunView {
  const Rings& rings;
  const Scheduler& scheduler;
  const Options& options;
  const LongWait& long_wait;
  const Deadlock& deadlock;
};

// Write the text and return its length. Any thread may call this at any time; during a run, the
// numbers may be inconsistent with each other.
size_t explain(const RunView& view, char* out, size_t capacity);

}  // namespace pto::ring_buffer
