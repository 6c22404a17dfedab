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
  uint32_t workers = 0;  // 0: one per CPU of the affinity mask; 1 to PTO_ACTIVITY_SLOTS after
                         // filled by parse_options
  uint32_t blocks = 24;
  bool timing = false;
  int activity_fd = -1;              // -1: the activity page is private memory
  int32_t log_level = PTO_LOG_WARN;  // least severe message of the runtime that is shown
  bool log_json = false;             // messages of the runtime are JSON lines
};

// Returns PTO_ERROR_USAGE for an unknown key or a value out of range; `options` is unspecified
// then.
pto_status parse_options(const pto_option* given, uint32_t count, Options& options,
                         pto_error* error);

}  // namespace pto::sim
