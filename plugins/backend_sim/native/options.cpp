#include "options.hpp"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <cstring>
#include <string_view>

#include "error.hpp"
#include "pto/abi/activity.h"
#include "pto/abi/topology.h"
#include "pto/host/backend_table.hpp"

namespace pto::sim {
namespace {

constexpr uint64_t kLeastMemoryBytes = 1ull << 20;
constexpr uint64_t kMostMemoryBytes = 1ull << 42;
constexpr const char* kKnownKeys =
    "mode, seed, check, gaps, memory_bytes, workers, blocks, timing, activity_fd, log_level, "
    "log_format";
constexpr const char* kLogLevels[] = {"error", "warn", "info",
                                      "debug"};  // in the order of PTO_LOG_*

uint32_t available_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return static_cast<uint32_t>(std::clamp<int>(CPU_COUNT(&set), 1, kMostWorkers));
}

pto_status parse_number(const pto_option& option, uint64_t least, uint64_t most, uint64_t& value,
                        pto_error* error) {
  const char* end = option.value + std::strlen(option.value);
  const auto [stop, failure] = std::from_chars(option.value, end, value);
  if (failure == std::errc() && stop == end && value >= least && value <= most) return PTO_OK;
  return fail(error, PTO_ERROR_USAGE,
              "simulator option %s is \"%s\"; expected a whole number from %" PRIu64 " to %" PRIu64,
              option.key, option.value, least, most);
}

pto_status parse_switch(const pto_option& option, bool& value, pto_error* error) {
  const std::string_view text = option.value;
  value = text == "1" || text == "true";
  if (value || text == "0" || text == "false") return PTO_OK;
  return fail(error, PTO_ERROR_USAGE, "simulator option %s is \"%s\"; expected 0 or 1", option.key,
              option.value);
}

pto_status parse_mode(const pto_option& option, Mode& mode, pto_error* error) {
  const std::string_view text = option.value;
  mode = text == "deterministic" ? Mode::deterministic : Mode::threads;
  if (mode == Mode::deterministic || text == "threads") return PTO_OK;
  return fail(error, PTO_ERROR_USAGE,
              "simulator option mode is \"%s\"; expected threads or deterministic", option.value);
}

pto_status parse_log_level(const pto_option& option, int32_t& level, pto_error* error) {
  level = PTO_LOG_ERROR;
  for (const char* name : kLogLevels) {
    if (std::strcmp(option.value, name) == 0) return PTO_OK;
    ++level;
  }
  return fail(error, PTO_ERROR_USAGE,
              "simulator option log_level is \"%s\"; expected error, warn, info or debug",
              option.value);
}

pto_status parse_log_format(const pto_option& option, bool& as_json, pto_error* error) {
  const std::string_view text = option.value;
  as_json = text == "json";
  if (as_json || text == "text") return PTO_OK;
  return fail(error, PTO_ERROR_USAGE,
              "simulator option log_format is \"%s\"; expected text or json", option.value);
}

template <typename Integer>
pto_status parse_into(const pto_option& option, uint64_t least, uint64_t most, Integer& target,
                      pto_error* error) {
  uint64_t value = 0;
  const pto_status status = parse_number(option, least, most, value, error);
  if (status == PTO_OK) target = static_cast<Integer>(value);
  return status;
}

pto_status parse_option(const pto_option& option, Options& options, pto_error* error) {
  const std::string_view key = option.key;
  if (key == "mode") return parse_mode(option, options.mode, error);
  if (key == "seed") return parse_into(option, 0, UINT64_MAX, options.seed, error);
  if (key == "check") return parse_switch(option, options.check, error);
  if (key == "gaps") return parse_switch(option, options.gaps, error);
  if (key == "memory_bytes") {
    return parse_into(option, kLeastMemoryBytes, kMostMemoryBytes, options.memory_bytes, error);
  }
  if (key == "workers") return parse_into(option, 0, kMostWorkers, options.workers, error);
  if (key == "blocks") return parse_into(option, 1, PTO_MAX_BLOCKS, options.blocks, error);
  if (key == "timing") return parse_switch(option, options.timing, error);
  if (key == "activity_fd") return parse_into(option, 0, INT32_MAX, options.activity_fd, error);
  if (key == "log_level") return parse_log_level(option, options.log_level, error);
  if (key == "log_format") return parse_log_format(option, options.log_json, error);
  return fail(error, PTO_ERROR_USAGE, "the simulator has no option \"%s\"; it knows %s", option.key,
              kKnownKeys);
}

}  // namespace

pto_status parse_options(const pto_option* given, uint32_t count, Options& options,
                         pto_error* error) {
  for (uint32_t i = 0; i < count; ++i) {
    const pto_status status = parse_option(given[i], options, error);
    if (status != PTO_OK) return status;
  }
  if (options.workers == 0) options.workers = available_cpus();
  return PTO_OK;
}

namespace {

constexpr int32_t kDefaultThreads = 3;

}  // namespace

pto_status run_shape(const pto_call_config* config, uint32_t capabilities, uint32_t blocks,
                     SimRunShape& shape, pto_error* error) noexcept {
  uint32_t used = 0;
  const pto_status status =
      host::find_blocks(config, blocks, &used, error, ", or open it with a larger sim.blocks");
  if (status != PTO_OK) return status;
  const int32_t threads = config != nullptr ? config->aicpu_thread_num : kDefaultThreads;
  const bool on_host = (capabilities & PTO_RUNTIME_HOST_ORCHESTRATION) != 0;
  shape.shares_thread = threads == 1 && !on_host;
  const int32_t schedulers = on_host || threads == 1 ? threads : threads - 1;
  shape.topology = make_topology(used, static_cast<uint32_t>(schedulers));
  return PTO_OK;
}

}  // namespace pto::sim
