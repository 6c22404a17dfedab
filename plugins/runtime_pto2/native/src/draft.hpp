// The data of a submit while its steps run, and of the newest submit until it is published.
#pragma once

#include <cstdint>

#include "pto/abi/tensor.h"
#include "pto/engine/context.hpp"
#include "pto/engine/tensor_region.hpp"
#include "pto2_calls.h"
#include "task.hpp"
#include "tensor_map.hpp"

namespace pto::ring_buffer {

struct Draft {
  // `space` has one Access for each parameter.
  Draft(pto_tensor_task& submitted, Access* space)
      : task(submitted),
        accesses(space),
        access_tags(PTO_TAG_NO_DEP + uint32_t{submitted.api != PTO_API_2026_03}) {}

  bool is_block_task() const { return task.block_dim != 0; }
  // Return whether a parameter with this tag has an Access. In 2026-08, NO_DEP has an edge to the
  // owner of the buffer, so it has one.
  bool has_access(uint32_t tag) const { return tag < access_tags; }
  // For 2026-08: return whether the record of a graph knows all edges of a parameter. Then its
  // Access has only an owner.
  bool is_known(uint32_t parameter) const {
    constexpr uint32_t kKnown = PTO2_NO_LOOK_UP | PTO2_NO_ENTRY;
    return (task.params[parameter].is_manual & kKnown) == kKnown;
  }
  bool is_fresh(uint32_t parameter) const { return (fresh >> parameter & 1) != 0; }

  // Members without an initial value are set in check() or in their step.
  pto_tensor_task& task;
  Access* accesses;      // accesses of the parameters with has_access(), in their order
  uint32_t access_tags;  // number of tags for which has_access() is true
  uint64_t kernel;
  uint64_t lane_kernels[PTO_LANES];
  uint32_t traits;  // bits of Trait without kIsBlock and the cluster
  uint32_t ring;
  uint32_t count = 1;  // number of slots
  int64_t id;          // task id of the first slot; known before the slots are taken
  int64_t number;      // task number of the first slot in its ring

  uint32_t tensors = 0;
  uint32_t scalars = 0;
  uint32_t ordering = 0;      // number of parameters with has_access()
  uint32_t entries = 0;       // maximum number of entries that the submit adds to the tensor map
  uint64_t fresh = 0;         // bit i: parameter i gets its address from this submit
  uint64_t output_bytes = 0;  // total size of the submit's outputs, in whole slabs

  uint64_t heap_address = 0;
  uint32_t gap_shift = 0;  // determines the addresses of the outputs; see live_rings.hpp
  uint64_t heap_begin;     // virtual offset in the heap ring
  uint64_t heap_end;
  struct {
    pto_payload* memory = nullptr;
    uint32_t length = 0;
    uint32_t size_class = 0;
    uint32_t block_id_at = 0;  // see TaskDescriptor
  } payload;
};

// The newest submit, until it is published.
struct HeldTask {
  uint32_t ring;
  uint32_t count;  // number of slots; 0 if there is no such submit
  int64_t number;
};

// Fail the run because of a submit. The message names the task that the submit would have created.
template <class... Parts>
[[gnu::cold, gnu::noinline]] bool reject(Context& context, const Draft& draft,
                                         const ErrorFacts& given, Parts... parts) {
  ErrorFacts facts = given;
  facts.task = draft.id;
  facts.func_id = draft.task.func_id;
  context.fail_at(draft.task.file, draft.task.line, facts, parts...);
  return false;
}

}  // namespace pto::ring_buffer
