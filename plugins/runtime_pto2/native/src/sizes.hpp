// The sizes that a run has, and the resources that they are sizes of.
#pragma once

#include <cstdint>

#include "task.hpp"

namespace pto::ring_buffer {

// What a submit, or an allocation of a cluster, may have to wait for.
enum class Resource : uint32_t { kTasks, kHeap, kDependencies, kTensorMap, kClusters };
constexpr uint32_t kResources = 5;

struct Sizes {
  uint64_t window[kRings];        // slots, a power of two, at least 4
  uint64_t heap[kRings];          // bytes, a multiple of 1024
  uint64_t dependencies[kRings];  // entries of the dependency pool, entry 0 included
  uint64_t tensor_map;            // entries
  uint64_t clusters;              // blocks of the device
};

}  // namespace pto::ring_buffer
