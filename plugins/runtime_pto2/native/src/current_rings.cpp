#include "current_rings.hpp"

namespace pto::ring_buffer {
namespace {

// A plan can use more slots than the windows of the run have.
constexpr uint64_t kPlannedWindow = 2 * static_cast<uint64_t>(Planner::kMaxTasks);

}  // namespace

Shortage CurrentRings::create() {
  Memory& memory = run_.context.memory;
  live_.heaps().create();
  if (!edges_.create(memory, run_.sizes.options.task_window)) {
    return {"a task's edges", "pto2.task_window"};
  }
  if (!history_.create(memory)) return {"the history of the heap rings"};
  return {};
}

void CurrentRings::destroy() {
  history_.destroy();
  edges_.destroy(run_.context.memory);
  live_.heaps().destroy();
}

void CurrentRings::begin() {
  edges_.clear();
  history_.begin();
  is_planning_ = false;
}

bool CurrentRings::enter_planning() {
  if (!deadlock_.is_proven()) return false;
  if (run_.context.platform->planning == 0) {
    deadlock_.complete(planned_.lower_bounds(deadlock_.proof()));
    run_.context.fail({PTO_ERROR_DEADLOCK}, "the run is in a deadlock");
    return false;
  }
  planned_.enter();
  is_planning_ = true;
  if (edges_.grow(run_.context.memory, kPlannedWindow)) return true;
  run_.context.fail({PTO_ERROR_MEMORY}, "no memory to search for sufficient sizes");
  return false;
}

void CurrentRings::finish(bool is_whole) {
  if (is_planning_) deadlock_.complete(planned_.finish(is_whole));
  is_planning_ = false;
}

}  // namespace pto::ring_buffer
