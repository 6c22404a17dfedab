// The settings of one device, parsed from the text that open() receives.
#pragma once

#include <cstdint>

#include "pto/abi/arguments.h"
#include "pto/abi/platform.h"
#include "pto/abi/status.h"

namespace pto::sim {

enum class Mode { threads, deterministic };

struct Options {
  Mode mode = Mode::threads;
  uint64_t seed = 0;
  bool check = false;
  uint64_t memory_bytes = 8ull << 30;
  // 0 in the text means one worker for each CPU of the affinity mask; parse_options replaces it by
  // 1 to PTO_ACTIVITY_SLOTS
  uint32_t workers = 0;
  uint32_t blocks = 24;
  bool timing = false;
  int activity_fd = -1;              // -1: the activity page is private memory
  int32_t log_level = PTO_LOG_WARN;  // the least severe messages of the runtime that are shown
  bool log_json = false;             // messages of the runtime are JSON lines
};

// Returns PTO_ERROR_USAGE for an unknown key or a value out of range; `options` is unspecified
// then.
pto_status parse_options(const pto_option* given, uint32_t count, Options& options,
                         pto_error* error);

}  // namespace pto::sim
