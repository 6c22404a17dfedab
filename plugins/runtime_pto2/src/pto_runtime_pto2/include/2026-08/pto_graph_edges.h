// The edges between the tasks of a recorded graph.
//
// The tensors of the arguments share no memory, so an access of a task meets only those of earlier
// tasks to the same tensor of the arguments, or to the same output. These edges are found once,
// when the graph is recorded. Look-ups remain for edges to tasks outside of the graph:
// - An access needs none if an earlier task has read and written all of its memory: that task waits
//   for the tasks outside. The memory of an output is unknown to them.
// - A write needs no entry in the tensor map if a later task of the graph overwrites all of its
//   memory, or if it is to an output, which only tasks of the graph use.
#ifndef PTO_GRAPH_EDGES_H
#define PTO_GRAPH_EDGES_H

#include <cstdint>
#include <utility>
#include <vector>

#include "pto/abi/tensor.h"
#include "pto/engine/tensor_region.hpp"
#include "pto2_calls.h"
#include "tensor.h"

namespace pto_orchestration {

// The first byte of a tensor, and the end of its last one.
inline uint64_t begin_of(const ChipTensor& tensor) {
  return tensor.buffer.addr + tensor.start_offset * get_element_size(tensor.dtype);
}
inline uint64_t end_of(const ChipTensor& tensor) {
  return begin_of(tensor) + tensor.extent_elem_cache * get_element_size(tensor.dtype);
}

// Return whether no two tensors share memory. Only a few tensors are compared.
inline bool are_apart(const ChipTensor* const* tensors, uint32_t count) {
  constexpr uint32_t kMostCompared = 16;
  bool are = count <= kMostCompared;
  for (uint32_t i = 0; i < count && are; ++i) {
    are = tensors[i]->extent_elem_cache != 0;
    for (uint32_t k = 0; k < i && are; ++k) {
      are = begin_of(*tensors[i]) >= end_of(*tensors[k]) ||
            begin_of(*tensors[k]) >= end_of(*tensors[i]);
    }
  }
  return are;
}

class GraphEdges {
 public:
  struct Access {
    uint32_t of;     // a number of the tensor of the arguments, or of the output
    bool is_output;  // an output of a task of the graph
    uint32_t tag;
    bool is_manual;       // has no edges except to the owner
    uint64_t begin, end;  // the memory of the tensor or output
    const pto_tensor_data* memory;
    uint32_t* known;  // receives PTO2_NO_LOOK_UP and PTO2_NO_ENTRY
  };

  // Add the next task, and return the numbers of the earlier tasks for which it waits. The flags of
  // earlier accesses change.
  std::vector<uint32_t> add(uint32_t task, const std::vector<Access>& accesses) {
    std::vector<uint32_t> producers;
    std::vector<Write> made;
    for (const Access& access : accesses) {
      *access.known = PTO2_NO_LOOK_UP | PTO2_NO_ENTRY;
      if (access.is_manual || access.tag == PTO_TAG_NO_DEP) continue;
      Write write{access, task, {}};
      pto::engine::locate_region(*access.memory, write.region);
      is_valid_ &= !write.region.is_key() && write.region.begin >= access.begin &&
                   write.region.end <= access.end;
      if (access.tag == PTO_TAG_INPUT || access.tag == PTO_TAG_INOUT) look_up(write, producers);
      if (access.tag != PTO_TAG_INPUT) made.push_back(write);
    }
    for (const Write& write : made) insert(write);
    return producers;
  }

  // Return whether the edges are right: no access exceeds the memory of its tensor.
  bool is_valid() const { return is_valid_; }

 private:
  struct Write {
    Access access;
    uint32_t task;
    pto::engine::Region region;

    // Return whether all memory of the other write is part of this one.
    bool covers(const Write& other) const {
      const pto::engine::Region& inner = other.region;
      const bool are_ranges = region.dims == 0 && inner.dims == 0;
      if (are_ranges || is_same_frame(region, inner)) {
        return pto::engine::box_lies_in(inner.low, inner.high, region.low, region.high,
                                        are_ranges ? 1 : region.dims);
      }
      return region.contiguous && inner.begin >= region.begin && inner.end <= region.end;
    }
  };

  void look_up(const Write& here, std::vector<uint32_t>& producers) const {
    bool is_covered = here.access.is_output;
    for (const Write& write : writes_) {
      if (write.access.of != here.access.of || !is_overlap(write.region, here.region)) continue;
      bool is_new = true;
      for (const uint32_t producer : producers) is_new &= producer != write.task;
      if (is_new) producers.push_back(write.task);
      is_covered |= write.access.tag == PTO_TAG_INOUT && write.covers(here);
    }
    if (!is_covered) *here.access.known &= ~uint32_t{PTO2_NO_LOOK_UP};
  }

  void insert(const Write& here) {
    size_t kept = 0;
    for (Write& write : writes_) {
      if (write.access.of == here.access.of && here.covers(write)) {
        *write.access.known |= PTO2_NO_ENTRY;
      } else {
        writes_[kept++] = write;
      }
    }
    writes_.resize(kept);
    writes_.push_back(here);
    if (!here.access.is_output) *here.access.known &= ~uint32_t{PTO2_NO_ENTRY};
  }

  std::vector<Write> writes_;  // none covers another
  bool is_valid_ = true;
};

}  // namespace pto_orchestration

#endif
