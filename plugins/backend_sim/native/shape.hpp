// The shape of the device in one run: the number of blocks, and the cores of each scheduler.
#pragma once

#include "pto/abi/arguments.h"
#include "pto/abi/runtime.h"
#include "pto/abi/topology.h"

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

inline bool contains(const pto_core_mask& mask, uint32_t core) noexcept {
  return (mask.words[core / 64] >> (core % 64) & 1) != 0;
}

inline void insert(pto_core_mask& mask, uint32_t core) noexcept {
  mask.words[core / 64] |= uint64_t{1} << (core % 64);
}

inline void remove(pto_core_mask& mask, uint32_t core) noexcept {
  mask.words[core / 64] &= ~(uint64_t{1} << (core % 64));
}

inline bool empty(const pto_core_mask& mask) noexcept {
  return (mask.words[0] | mask.words[1]) == 0;
}

// Removes the lowest core from a non-empty mask and returns it.
inline uint32_t take_first(pto_core_mask& mask) noexcept {
  uint64_t& word = mask.words[0] != 0 ? mask.words[0] : mask.words[1];
  const uint32_t bit = static_cast<uint32_t>(__builtin_ctzll(word));
  word &= word - 1;
  return bit + (&word == mask.words ? 0 : 64);
}

}  // namespace pto::sim
