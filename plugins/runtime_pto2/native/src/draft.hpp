// One submit while it goes through its steps.
#pragma once

#include <cstdint>

#include "pto/abi/tensor.h"
#include "task.hpp"
#include "tensor_map.hpp"

namespace pto::ring_buffer {

// A key orders tasks by its address and covers no bytes.
inline bool is_key(const pto_tensor_data& tensor) {
  if (tensor.is_pipe != 0) return true;
  for (uint32_t dim = 0; dim < tensor.ndims; ++dim) {
    if (tensor.shapes[dim] == 0) return true;
  }
  return false;
}

struct Draft {
  Draft(pto_tensor_task& submitted, Access* room) : task(submitted), accesses(room) {}

  bool is_block_task() const { return task.block_dim != 0; }
  bool is_fresh(uint32_t parameter) const { return (fresh >> parameter & 1) != 0; }

  pto_tensor_task& task;
  Access* accesses;  // of the tensors that order tasks, in their order
  uint64_t kernel = 0;
  uint32_t core_type = 0;
  uint32_t ring = 0;
  uint32_t count = 1;  // slots
  int64_t id = kNoTask;
  int64_t number = 0;  // in the ring; of the first slot

  uint32_t tensors = 0;
  uint32_t scalars = 0;
  uint32_t ordering = 0;      // tensors that order tasks
  uint32_t entries = 0;       // most that it adds to the tensor map
  uint64_t fresh = 0;         // bit i: parameter i gets its address from this submit
  uint64_t output_bytes = 0;  // of all that is allocated, in whole slabs

  uint64_t heap_address = 0;
  uint64_t heap_begin = 0;  // virtual
  uint64_t heap_end = 0;
  pto_payload* payload = nullptr;
  uint32_t payload_length = 0;
  uint32_t payload_class = 0;
};

}  // namespace pto::ring_buffer
