// Records how long the phases of a scheduling step take, if the trace of the run contains phases.
#pragma once

#include "pto/abi/platform.h"

namespace pto::engine {

class PhaseClock {
 public:
  PhaseClock(const pto_platform* platform, uint32_t thread)
      : platform_((platform->tracing & PTO_TRACE_PHASES) != 0 ? platform : nullptr),
        track_(PTO_TRACK_SCHEDULER + thread),
        began_(platform_ != nullptr ? pto_clock(platform) : 0) {}

  // Ends the current phase and begins the next one. A phase that did nothing is not recorded.
  void end(uint32_t event, uint64_t tasks) {
    if (platform_ == nullptr) return;
    if (tasks > 0) pto_record(platform_, track_, event, began_, tasks);
    began_ = pto_clock(platform_);
  }

 private:
  const pto_platform* const platform_;
  const uint32_t track_;
  uint64_t began_;
};

}  // namespace pto::engine
