#include "engine/core.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "trace/tracer.hpp"

namespace pto::worker {
namespace {

const Configuration& checked(const Configuration& configuration) {
  if (configuration.children.size() > std::numeric_limits<uint16_t>::max() / 4) {
    refuse_usage(std::to_string(configuration.children.size()) + " children; pass 16,383 at most");
  }
  for (const RingConfiguration& ring : configuration.rings) {
    if (ring.size < kSlabBytes || ring.size % kSlabBytes || ring.address % kSlabBytes) {
      refuse_usage("a heap ring of " + std::to_string(ring.size) +
                   " bytes; heap_ring_size must be a multiple of 1024, at least 1024");
    }
  }
  for (const ChildConfiguration& child : configuration.children) {
    if (child.window < 1) refuse_usage("a window of 0 frames; pass at least 1");
  }
  return configuration;
}

}  // namespace

EngineState::EngineState(const Configuration& given)
    : configuration(checked(given)),
      children(configuration.children),
      members(children.size()),
      queues(slots, children.size()),
      regions(slots) {
  for (uint32_t ring = 0; ring < kRings; ++ring)
    rings.emplace_back(ring, configuration.rings[ring]);
  for (const RingConfiguration& ring : configuration.rings) {
    heap.begin = std::min(heap.begin, ring.address);
    heap.end = std::max(heap.end, ring.address + ring.size);
  }
  restart(Hazards::kRaw);
}

void EngineState::restart(Hazards run_hazards) {
  hazards = run_hazards;
  regions.restart(hazards == Hazards::kFull);
  slots.restart();
  for (Heap& ring : rings) ring.restart();
  if (!runs.empty()) spare_scopes = std::move(runs[0].scopes);
  runs.clear();
  first_task = slots.next_number();
  key_count = conservative_edges = 0;
  roots.clear();
}

void EngineState::trace_ring(uint32_t ring) const {
  if (!tracer->records(PTO_TRACE_PHASES)) return;
  tracer->add(kSchedulerTrack, PTO_TRACE_RING, uint64_t{rings[ring].slabs()} | uint64_t{ring} << 56,
              rings[ring].used());
}

}  // namespace pto::worker
