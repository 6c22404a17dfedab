// The sizes of the rings and pools, parsed from the options that an instance receives as text.
#pragma once

#include <cstdint>

#include "pto/abi/arguments.h"
#include "pto/abi/status.h"
#include "pto/engine/runtime_table.hpp"
#include "task.hpp"

namespace pto::ring_buffer {

using engine::Shortage;

struct Options {
  static constexpr uint64_t kMinWindow = 4;
  static constexpr uint64_t kMaxWindow = uint64_t{1} << 24;
  static constexpr uint64_t kMinHeap = 1024;
  static constexpr uint64_t kMaxHeap = uint64_t{1} << 46;
  static constexpr uint64_t kMinEdges = 16;
  // The limit is 2^30 - 1: with 2^30 entries, the last entry of ring 3 would have the value of
  // kClosed.
  static constexpr uint64_t kMaxEdges = 1073741823;
  static constexpr uint64_t kMaxShards = 16;
  static constexpr uint64_t kMinMapEntries = 16;
  static constexpr uint64_t kMaxMapEntries = uint64_t{1} << 28;

  uint64_t task_window[kRings] = {65536, 65536, 65536, 65536};  // number of slots, powers of two
  uint64_t heap[kRings] = {uint64_t{1} << 30, uint64_t{1} << 30, uint64_t{1} << 30,
                           uint64_t{1} << 30};  // sizes in bytes, multiples of 1024
  // number of entries; entry 0 is never used
  uint64_t dep_pool[kRings] = {65536, 65536, 65536, 65536};
  uint64_t ready_queue_shards = 3;
  uint64_t tensor_map_pool = 65536;  // number of entries

  // Read the options. Return PTO_ERROR_USAGE for an unknown key or a value out of range; `error`
  // then explains it.
  pto_status read(const pto_option* options, uint32_t count, pto_error* error);
};

}  // namespace pto::ring_buffer
