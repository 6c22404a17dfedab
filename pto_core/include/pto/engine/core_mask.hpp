// Functions for sets of cores (pto_core_mask).
#pragma once

#include <cstdint>

#include "pto/abi/topology.h"

namespace pto::engine {

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

// The topology of a run: the AIC cores come first, then the two AIV cores of each block. Cluster i
// belongs to scheduler i % schedulers.
inline pto_topology make_topology(uint32_t blocks, uint32_t schedulers) noexcept {
  pto_topology topology{};
  topology.blocks = blocks;
  topology.cores = 3 * blocks;
  topology.schedulers = schedulers;
  for (uint32_t core = 0; core < topology.cores; ++core) {
    topology.core_type[core] = core < blocks ? PTO_CORE_AIC : PTO_CORE_AIV;
    const uint32_t cluster = core < blocks ? core : (core - blocks) / 2;
    insert(topology.thread_cores[cluster % schedulers], core);
  }
  return topology;
}

}  // namespace pto::engine
