// The settings of one device, parsed from the options that open() receives.
#pragma once

#include <cstdint>

#include "pto/abi/arguments.h"
#include "pto/abi/platform.h"
#include "pto/abi/runtime.h"
#include "pto/abi/status.h"
#include "pto/abi/topology.h"
#include "pto/engine/core_mask.hpp"

namespace pto::sim {

enum class Mode { threads, deterministic };

constexpr uint32_t kMostWorkers = 62;

struct Options {
  Mode mode = Mode::threads;
  uint64_t seed = 0;
  bool check = false;
  bool gaps = false;
  uint64_t memory_bytes = 8ull << 30;
  // the value 0 in the options means one worker for each CPU of the affinity mask; parse_options()
  // replaces it by a number from 1 to kMostWorkers
  uint32_t workers = 0;
  uint32_t blocks = 24;
  bool timing = false;
  int activity_fd = -1;              // -1: the device makes an activity page
  int32_t log_level = PTO_LOG_WARN;  // messages of the runtime that are less severe are not shown
  bool log_json = false;             // whether messages of the runtime are written as JSON lines
};

// Returns PTO_ERROR_USAGE for an unknown key or a value out of range; the content of `options` is
// then unspecified.
pto_status parse_options(const pto_option* given, uint32_t count, Options& options,
                         pto_error* error);

// The shape of the device in one run: the number of blocks, and the cores of each scheduler.
struct SimRunShape {
  pto_topology topology;
  // Whether one AICPU thread both orchestrates and schedules, alternately.
  bool shares_thread;
};

// Returns the shape that `config` requests from a device with `blocks` blocks. A null `config`
// requests all blocks and three threads. Returns PTO_ERROR_USAGE if the device does not have them.
pto_status run_shape(const pto_call_config* config, uint32_t capabilities, uint32_t blocks,
                     SimRunShape& shape, pto_error* error) noexcept;

using engine::contains;
using engine::empty;
using engine::insert;
using engine::make_topology;
using engine::remove;
using engine::take_first;

}  // namespace pto::sim
