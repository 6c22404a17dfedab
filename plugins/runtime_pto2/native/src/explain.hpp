// A run in words, for whoever has to say why it takes so long.
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

// Any thread, at any time; beside a run that moves it is a moment's picture. Gives the length
// written.
size_t explain(const RunView& view, char* out, size_t capacity);

}  // namespace pto::ring_buffer
