#include "rings.hpp"

#include "options.hpp"

namespace pto::ring_buffer {
namespace {

template <class Element>
bool reserve(Memory& memory, Element*& array, uint64_t count) {
  array = static_cast<Element*>(memory.reserve(count * sizeof(Element)));
  return array != nullptr;
}

template <class Element>
void release(Memory& memory, Element*& array, uint64_t count) {
  memory.release(array, count * sizeof(Element));
  array = nullptr;
}

uint64_t power_of_two_from(uint64_t value) {
  uint64_t power = 1;
  while (power < value) power <<= 1;
  return power;
}

}  // namespace

Shortage Rings::create(Memory& memory, const Options& options) {
  uint64_t slots = 0;
  for (uint32_t index = 0; index < kRings; ++index) {
    TaskRing& each = ring[index];
    each.window = static_cast<uint32_t>(options.task_window[index]);
    each.edge_capacity = static_cast<uint32_t>(options.dep_pool[index]);
    slots += each.window;
    if (!reserve(memory, each.descriptors, each.window) ||
        !reserve(memory, each.states, each.window) || !reserve(memory, each.records, each.window)) {
      return {"the task rings", "pto2.task_window"};
    }
    if (!reserve(memory, each.edges, each.edge_capacity)) {
      return {"the dependency pools", "pto2.dep_pool"};
    }
  }
  log_size = power_of_two_from(slots);
  if (!reserve(memory, log, log_size)) return {"the stream of tasks", "pto2.task_window"};
  return {};
}

void Rings::destroy(Memory& memory) {
  for (TaskRing& each : ring) {
    release(memory, each.descriptors, each.window);
    release(memory, each.states, each.window);
    release(memory, each.records, each.window);
    release(memory, each.edges, each.edge_capacity);
  }
  release(memory, log, log_size);
}

void Rings::begin() {
  for (TaskRing& each : ring) {
    each.next = 0;
    each.scope_released.store(0, std::memory_order_relaxed);
  }
  submitted.store(0, std::memory_order_relaxed);
  logged.store(0, std::memory_order_relaxed);
  waiting.store(0, std::memory_order_relaxed);
}

void Rings::clear_phases(bool is_deadlocked) {
  for (TaskRing& each : ring) {
    const int64_t retired = each.watermark.load(std::memory_order_relaxed);
    if (retired == each.next && !is_deadlocked) continue;
    const int64_t used = each.next < each.window ? each.next : each.window;
    for (int64_t slot = 0; slot < used; ++slot) {
      each.states[slot].phase.store(kFree, std::memory_order_relaxed);
    }
  }
}

}  // namespace pto::ring_buffer
