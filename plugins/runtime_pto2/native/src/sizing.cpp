#include "sizing.hpp"

#include "pto/engine/heap_ring.hpp"

namespace pto::ring_buffer {
namespace {

constexpr uint64_t kSlab = History::kSlabBytes;
// The search tries every heap size until it has processed this many events. After that, it uses
// bisection.
constexpr uint64_t kLinearEvents = uint64_t{1} << 24;

// Searches for the smallest heap size with which every ring in `mask` suffices.
class HeapSearch {
 public:
  HeapSearch(const History& history, uint32_t mask) : history_(history), mask_(mask) {}

  // Return a size that suffices, while the next smaller size does not. It is the smallest
  // sufficient size, unless the history is so long that not every size was tried.
  uint64_t smallest() {
    uint64_t most = 0;
    uint64_t largest = 0;
    uint64_t events = 1;
    for (uint32_t ring = 0; ring < kRings; ++ring) {
      if (!has(ring)) continue;
      most = history_.most_bytes(ring) > most ? history_.most_bytes(ring) : most;
      events += history_.count(ring);
      for (uint32_t index = 0; index < history_.count(ring); ++index) {
        const uint64_t bytes = history_.events(ring)[index] * kSlab;
        largest = bytes > largest ? bytes : largest;
      }
    }
    uint64_t size = most > kSlab ? most : kSlab;
    for (uint64_t seen = 0; seen < kLinearEvents; seen += events, size += kSlab) {
      if (is_enough(size)) return size;
    }
    return between(size - kSlab, size + largest);
  }

  bool is_enough(uint64_t size) const {
    for (uint32_t ring = 0; ring < kRings; ++ring) {
      if (has(ring) && !is_heap_enough(history_, ring, size)) return false;
    }
    return true;
  }

 private:
  bool has(uint32_t ring) const { return (mask_ >> ring & 1) != 0; }

  // Search between two sizes. `small` does not suffice. `large` does: between two releases, a ring
  // skips less than its largest reservation and holds the sum of all others.
  uint64_t between(uint64_t small, uint64_t large) const {
    while (large - small > kSlab) {
      const uint64_t middle = small + (large - small) / kSlab / 2 * kSlab;
      if (is_enough(middle)) {
        large = middle;
      } else {
        small = middle;
      }
    }
    return large;
  }

  const History& history_;
  uint32_t mask_;
};

uint64_t power_of_two(uint64_t atleast) {
  uint64_t value = Options::kMinWindow;
  while (value < atleast) value *= 2;
  return value;
}

bool is_shared(const uint64_t (&sizes)[kRings]) {
  return sizes[0] == sizes[1] && sizes[0] == sizes[2] && sizes[0] == sizes[3];
}

// Raise each size to the smallest sufficient size. If all rings have the same size, they keep a
// common size.
void raise(uint64_t (&sizes)[kRings], const uint64_t (&smallest)[kRings],
           bool (&is_short)[kRings]) {
  const bool shared = is_shared(sizes);
  uint64_t most = 0;
  for (uint32_t ring = 0; ring < kRings; ++ring) {
    is_short[ring] = smallest[ring] > sizes[ring];
    if (is_short[ring]) sizes[ring] = smallest[ring];
    most = sizes[ring] > most ? sizes[ring] : most;
  }
  if (!shared) return;
  for (uint64_t& size : sizes) size = most;
}

void size_heaps(Plan& plan, const History& history) {
  uint64_t (&heap)[kRings] = plan.sizes.options.heap;
  bool (&is_short)[kRings] = plan.is_short[static_cast<uint32_t>(Resource::kHeap)];
  const bool shared = is_shared(heap);
  for (uint32_t ring = 0; ring < kRings; ++ring) {
    is_short[ring] = !is_heap_enough(history, ring, heap[ring]);
    if (is_short[ring] && !history.is_complete(ring)) plan.is_lower_bound = true;
    if (is_short[ring] && !shared) heap[ring] = HeapSearch(history, 1u << ring).smallest();
  }
  if (!shared || !plan.is_any_short(Resource::kHeap)) return;
  const uint64_t smallest = HeapSearch(history, (1u << kRings) - 1).smallest();
  for (uint64_t& size : heap) size = smallest;
}

}  // namespace

bool is_heap_enough(const History& history, uint32_t ring, uint64_t bytes) {
  if (history.most_bytes(ring) > bytes) return false;
  const uint32_t* events = history.events(ring);
  const uint32_t count = history.count(ring);
  engine::HeapRing heap(bytes / kSlab);
  uint64_t tail = 0;
  for (uint32_t index = 0; index < count; ++index) {
    if (events[index] == History::kReleased) {
      tail = heap.head();
    } else if (!heap.try_reserve(events[index], tail).fits) {
      return false;
    }
  }
  return true;
}

Plan smallest_sizes(const Sizes& sizes, const Needs& needs, const History& history) {
  Plan plan{};
  plan.sizes = sizes;
  Options& options = plan.sizes.options;
  uint64_t window[kRings];
  uint64_t edges[kRings];
  for (uint32_t ring = 0; ring < kRings; ++ring) {
    window[ring] = power_of_two(needs.tasks[ring] + 1);
    edges[ring] = needs.edges[ring] + 1;
  }
  raise(options.task_window, window, plan.is_short[static_cast<uint32_t>(Resource::kWindow)]);
  raise(options.dep_pool, edges, plan.is_short[static_cast<uint32_t>(Resource::kEdges)]);
  size_heaps(plan, history);
  if (needs.tensor_map > options.tensor_map_pool) {
    options.tensor_map_pool = needs.tensor_map;
    plan.is_short[static_cast<uint32_t>(Resource::kTensorMap)][0] = true;
  }
  if (needs.clusters > sizes.blocks) {
    plan.sizes.blocks = needs.clusters;
    plan.is_short[static_cast<uint32_t>(Resource::kCluster)][0] = true;
  }
  return plan;
}

}  // namespace pto::ring_buffer
