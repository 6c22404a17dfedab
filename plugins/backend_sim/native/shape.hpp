// The shape of the device in one run: the number of blocks, and the cores of each scheduler.
#pragma once

#include "pto/abi/arguments.h"
#include "pto/abi/runtime.h"
#include "pto/abi/topology.h"
#include "pto/engine/core_mask.hpp"

namespace pto::sim {

// Assigns the clusters round robin: cluster i belongs to scheduler i % schedulers.
pto_topology make_topology(uint32_t blocks, uint32_t schedulers) noexcept;

struct RunShape {
  pto_topology topology;
  // Whether one AICPU thread both orchestrates and schedules, alternately.
  bool shares_thread;
};

// Returns the shape that `config` requests from a device with `blocks` blocks. A null `config`
// requests all blocks and three threads. Returns PTO_ERROR_USAGE if the device does not have them.
pto_status run_shape(const pto_call_config* config, uint32_t capabilities, uint32_t blocks,
                     RunShape& shape, pto_error* error) noexcept;

using engine::contains;
using engine::empty;
using engine::insert;
using engine::remove;
using engine::take_first;

}  // namespace pto::sim
