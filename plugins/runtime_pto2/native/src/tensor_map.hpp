// Which live tasks wrote, and under full hazards read, which memory.
//
// The orchestrator alone calls this. For one submit, in this order: locate() each parameter once;
// find_*() for all of them; then, when has_room(), insert_*() for all of them. What a lookup visits
// is alive as far as saw() told: its task and the task that allocated its buffer have not retired.
//
// An entry goes when (1) a lookup meets it after its task or the owner of its buffer has retired,
// (2) retire() is called for its task, or (3) a later writer covers all of it. The entries of a
// task hang on TaskRecord::first_entry, which is 0 when the task's slot is taken; retire() must
// have been called for a task before its record is used again.
#pragma once

#include <cstdint>

#include "pto/abi/tensor.h"
#include "pto/engine/memory.hpp"
#include "pto/engine/region_index.hpp"
#include "rings.hpp"

namespace pto::ring_buffer {

// Where the view of a parameter lies.
struct Access {
  engine::Region region;
  int64_t owner;  // task whose submit allocated the buffer, kNoTask: outlives the run
};

enum class CleanedBy : uint32_t { kBatch, kBackPressure };

class TensorMap {
 public:
  struct Statistics {
    uint64_t lookups;
    uint64_t nodes_visited;       // by lookups: entries and cells looked at
    uint64_t conservative_edges;  // found by byte hull alone
    uint64_t cleaned_by_lookup;
    uint64_t cleaned_by_batch;
    uint64_t cleaned_by_back_pressure;
    uint64_t covered;  // removed by a later writer
    uint64_t live;
    uint64_t peak;
  };

  // `capacity`: entries, of writers and of readers each. False when memory is exhausted.
  bool create(engine::Memory& memory, uint32_t capacity);
  void destroy();
  // Forgets everything; costs nothing however much there was.
  void begin(const Rings& rings, bool full_hazards);

  // Tasks of `ring` before `watermark` have retired.
  void saw(uint32_t ring, int64_t watermark);

  // The tensor has its final address. Its view must lie inside its raw shape.
  static Access locate(const pto_tensor_data& tensor);

  // Calls visit(int64_t task, bool conservative) for each live writer that overlaps.
  template <class Visit>
  void find_writers(const Access& access, Visit&& visit);

  // The same for each live reader; there are none under raw hazards.
  template <class Visit>
  void find_readers(const Access& access, Visit&& visit);

  // Room for `entries` more insertions of each kind.
  bool has_room(uint32_t entries) const;

  // Makes `task` the writer; what the region wholly covers is forgotten. `is_fresh`: this submit
  // allocated the memory, so that nothing alive can overlap it.
  void insert_writer(const Access& access, int64_t task, bool is_fresh);
  // Nothing under raw hazards.
  void insert_reader(const Access& access, int64_t task);

  // Frees the entries of a task that has retired.
  void retire(TaskRecord& record, CleanedBy reason);

  const Statistics& statistics() const;
};

}  // namespace pto::ring_buffer
