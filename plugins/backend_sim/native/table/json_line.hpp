// A log message as one line of JSON, with the same keys as the log of the core.
#pragma once

#include <cstdint>

namespace pto::sim {

// Write `message` to standard error. `level` is PTO_LOG_*.
void write_json_line(int32_t level, const char* message) noexcept;

}  // namespace pto::sim
