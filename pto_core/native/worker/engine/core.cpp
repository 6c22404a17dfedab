#include "engine/core.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <new>

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
      regions(slots),
      scope_platform_{},
      scope_memory_(&scope_platform_) {
  scope_platform_.reserve = [](void*, size_t bytes) { return std::calloc(bytes, 1); };
  scope_platform_.release = [](void*, void* memory, size_t) { std::free(memory); };
  for (uint32_t ring = 0; ring < kRings; ++ring)
    rings.emplace_back(ring, configuration.rings[ring]);
  for (const RingConfiguration& ring : configuration.rings) {
    heap.begin = std::min(heap.begin, ring.address);
    heap.end = std::max(heap.end, ring.address + ring.size);
  }
  if (!scopes.create(scope_memory_)) throw std::bad_alloc();
  restart(Hazards::kRaw);
}

EngineState::~EngineState() {
  scopes.destroy();
}

void EngineState::restart(Hazards run_hazards) {
  hazards = run_hazards;
  regions.restart(hazards == Hazards::kFull);
  slots.restart();
  scopes.restart();
  scope_tasks.clear();
  for (Heap& ring : rings) ring.restart();
  is_ending = false;
  cancelled.reset();
  tasks = key_count = conservative_edges = 0;
  roots.clear();
  failed.clear();
  poisoned.clear();
}

void EngineState::begin_scope() {
  if (!scopes.begin(nullptr, 0)) throw std::bad_alloc();
  scope_tasks.emplace_back();
}

void EngineState::trace_ring(uint32_t ring) const {
  if (!tracer->records(PTO_TRACE_PHASES)) return;
  tracer->add(kSchedulerTrack, PTO_TRACE_RING, uint64_t{rings[ring].slabs()} | uint64_t{ring} << 56,
              rings[ring].used());
}

}  // namespace pto::worker
