#include "explain.hpp"

#include "pto/engine/text.hpp"
#include "report.hpp"

namespace pto::ring_buffer {

using engine::Text;

namespace {

constexpr uint32_t kListedTasks = 3;

// List the first few tasks in `phase`. A run may be in progress, so only atomic members can be
// read. The windows are those of the options, because a plan changes the windows of the rings.
void add_tasks(Text& text, const RunView& view, Phase phase, const char* heading) {
  uint32_t listed = 0;
  for (uint32_t index = 0; index < kRings; ++index) {
    const TaskRing& ring = view.rings.ring[index];
    const auto window = static_cast<int64_t>(view.options.task_window[index]);
    const int64_t first = ring.watermark.load(std::memory_order_acquire);
    for (int64_t number = first; number < first + window; ++number) {
      const RingTaskState& state = ring.states[number & (window - 1)];
      if (state.phase.load(std::memory_order_acquire) != phase) continue;
      if (listed == kListedTasks) {
        text.add(", ...");
        return;
      }
      text.add(listed++ == 0 ? heading : ", ");
      text.add(RingTaskName{TaskId{index, number}.value()});
      if (phase != kPending) continue;
      text.add(" waits for ", state.waits.load(std::memory_order_relaxed), " producers");
    }
  }
}

void add_orchestrator(Text& text, const RunView& view) {
  if (view.scheduler.is_build_done()) {
    text.add("; the orchestration has ended");
    return;
  }
  text.add("; the orchestration has not ended");
  const Blocked blocked = view.long_wait.look().blocked;
  if (blocked.what == Resource::kNone) return;
  text.add(" and waits for ", blocked.needed, " ", unit_of(blocked.what, blocked.needed), " of ");
  add_resource(text, blocked.what, blocked.ring);
  text.add(" at ");
  add_place(text, {blocked.file, blocked.line});
}

// Return how many tasks of the ring have not retired and are known to the schedulers.
int64_t tasks_in(const TaskRing& ring, int64_t first, int64_t window) {
  int64_t count = 0;
  for (int64_t number = first; number < first + window; ++number) {
    const uint32_t phase = ring.states[number & (window - 1)].phase.load(std::memory_order_relaxed);
    if (phase != kFree && phase != kConsumed) ++count;
  }
  return count;
}

void add_rings(Text& text, const RunView& view) {
  for (uint32_t index = 0; index < kRings; ++index) {
    const TaskRing& ring = view.rings.ring[index];
    const int64_t retired = ring.watermark.load(std::memory_order_acquire);
    const int64_t released = ring.scope_released.load(std::memory_order_acquire);
    if (retired == 0 && released == 0 && ring.states[0].phase.load() == kFree) continue;
    const auto window = static_cast<int64_t>(view.options.task_window[index]);
    text.add("; ring ", index, ": ", tasks_in(ring, retired, window), " tasks in a window of ",
             window, ", ", retired, " retired, ", released, " in ended scopes");
  }
}

}  // namespace

size_t explain(const RunView& view, char* out, size_t capacity) {
  Text text(out, capacity);
  const Progress progress = view.scheduler.progress();
  text.add("tensormap_and_ringbuffer: ", view.rings.submitted.load(std::memory_order_acquire),
           " submits; ", progress.wired, " tasks known to the schedulers, ", progress.completed,
           " completed, ", progress.dispatched - progress.completed, " on cores, ",
           progress.wired - progress.dispatched, " waiting");
  add_orchestrator(text, view);
  add_rings(text, view);
  add_tasks(text, view, kRunning, "; on cores: ");
  add_tasks(text, view, kPending, "; ");
  if (view.deadlock.is_proven())
    text.add("; ", static_cast<const char*>(view.deadlock.error()->message));
  return text.add(view.deadlock.is_proven() ? "" : ".").length();
}

}  // namespace pto::ring_buffer
