// The shape of the device in one run: how many blocks, and which scheduler has which cores.
#pragma once

#include "pto/abi/arguments.h"
#include "pto/abi/runtime.h"
#include "pto/abi/topology.h"

namespace pto::sim {

// Clusters are dealt round: cluster i belongs to scheduler i % schedulers.
pto_topology make_topology(uint32_t blocks, uint32_t schedulers) noexcept;

struct RunShape {
  pto_topology topology;
  // One AICPU thread both orchestrates and schedules, and never does both at once.
  bool shares_thread;
};

// The shape that `config` asks of a device with `blocks` blocks. A null `config` asks for all
// blocks and three threads. PTO_ERROR_USAGE when the device cannot give it.
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

// Takes the lowest core out of a mask that is not empty.
inline uint32_t take_first(pto_core_mask& mask) noexcept {
  uint64_t& word = mask.words[0] != 0 ? mask.words[0] : mask.words[1];
  const uint32_t bit = static_cast<uint32_t>(__builtin_ctzll(word));
  word &= word - 1;
  return bit + (&word == mask.words ? 0 : 64);
}

}  // namespace pto::sim
