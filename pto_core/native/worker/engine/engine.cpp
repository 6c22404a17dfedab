#include "engine/engine.hpp"

#include <algorithm>
#include <string>

#include "engine/core.hpp"
#include "engine/dispatch.hpp"
#include "engine/endings.hpp"
#include "engine/submission.hpp"

namespace pto::worker {

struct Engine::Parts {
  Parts(const Configuration& configuration, Policy policy)
      : core(configuration),
        endings(core),
        submission(core, endings),
        dispatcher(core, endings, std::move(policy)),
        reports(core, endings) {}

  EngineState core;
  Endings endings;
  SubmissionPart submission;
  Dispatcher dispatcher;
  Reports reports;
  // the last submit if it was blocked, for the deadlock proof; otherwise `requested` is 0
  Submitted blocked;
};

namespace {

void check_open(const EngineState& core, const char* what) {
  if (core.is_running && !core.is_ending) return;
  throw Refusal(Refusal::Kind::kUsage,
                std::string(what) + " outside of a run; do it in the function or block of the run");
}

}  // namespace

Engine::Engine(const Configuration& configuration, Policy policy)
    : parts_(std::make_unique<Parts>(configuration, std::move(policy))) {}

Engine::~Engine() = default;

void Engine::run_begin(Hazards hazards, Instructions& out) {
  begin_event(out);
  EngineState& core = parts_->core;
  if (core.is_running) {
    throw Refusal(Refusal::Kind::kUsage,
                  "a run begins while another is under way; end the other run first");
  }
  core.restart(hazards);
  core.begin_scope();
  core.is_running = true;
}

void Engine::run_end(Instructions& out) {
  begin_event(out);
  EngineState& core = parts_->core;
  check_open(parts_->core, "the end of a run");
  if (core.depth() > 0) {
    throw Refusal(Refusal::Kind::kUsage,
                  "the run ends with " + std::to_string(core.depth()) + " scopes open");
  }
  core.is_ending = true;
  end_scope();
  end_event();
}

Submitted Engine::submit(const Submission& submission, Instructions& out) {
  begin_event(out);
  check_open(parts_->core, "submit");
  const Submitted submitted = parts_->submission.submit(submission);
  if (submitted.task == kNone) parts_->blocked = submitted;
  end_event();
  return submitted;
}

Submitted Engine::allocate(uint64_t bytes, uint64_t* address, Instructions& out) {
  begin_event(out);
  check_open(parts_->core, "alloc");
  const Submitted submitted = parts_->submission.allocate(bytes, address);
  if (submitted.task == kNone) parts_->blocked = submitted;
  return submitted;
}

void Engine::scope_begin() {
  parts_->blocked.requested = 0;
  check_open(parts_->core, "scope");
  parts_->core.begin_scope();
}

void Engine::scope_end(Instructions& out) {
  begin_event(out);
  check_open(parts_->core, "scope");
  if (parts_->core.depth() == 0) {
    throw Refusal(Refusal::Kind::kUsage, "no scope is open; the outermost scope ends with the run");
  }
  end_scope();
  end_event();
}

void Engine::dispatch(Instructions& out) {
  begin_event(out);
  parts_->dispatcher.dispatch();
  end_event();
}

void Engine::completion(int32_t child, uint64_t count, Outcome outcome, int64_t cause,
                        Instructions& out) {
  begin_event(out);
  parts_->reports.completed(child, count, outcome, cause);
  end_event();
}

void Engine::child_ready(int32_t child, Instructions& out) {
  begin_event(out);
  parts_->reports.ready(child);
}

void Engine::child_lost(int32_t child, int64_t cause, uint64_t started, bool returns,
                        Instructions& out) {
  begin_event(out);
  parts_->reports.lost(child, cause, started, returns);
  end_event();
}

void Engine::deadline(int32_t child, uint64_t count, int64_t cause, Instructions& out) {
  begin_event(out);
  parts_->reports.deadline(child, count, cause);
}

// End the READY and the delayed tasks now, which may end and consume other tasks. Other PENDING
// tasks end when their producers have ended.
void Engine::cancel(int64_t cause, Instructions& out) {
  begin_event(out);
  EngineState& core = parts_->core;
  if (!core.is_running || core.cancelled) return;
  core.cancelled = cause;
  std::vector<std::pair<int64_t, uint32_t>> ready;
  const auto is_ready = [](const Slot& slot) {
    return slot.state == TaskState::kReady ||
           (slot.state == TaskState::kPending && slot.is_delayed);
  };
  core.slots.numbers().for_each([&](uint32_t index) {
    Slot& slot = core.slots[index];
    if (core.queues.is_early(slot.list)) core.queues.remove(slot);
    if (is_ready(slot)) ready.emplace_back(slot.number, index);
  });
  for (const auto& [number, index] : ready) {
    const Slot& slot = core.slots[index];
    if (slot.number == number && is_ready(slot)) parts_->endings.poison(index);
  }
  end_event();
}

bool Engine::cancel_task(int64_t task, int64_t cause, Instructions& out) {
  begin_event(out);
  const uint32_t index = parts_->core.slots.numbers().slot(task);
  const bool is_cancelled = index != kNoSlot && parts_->endings.cancel(index, cause);
  end_event();
  return is_cancelled;
}

void Engine::delay(int64_t task, bool is_delayed, Instructions& out) {
  begin_event(out);
  const uint32_t index = parts_->core.slots.numbers().slot(task);
  if (index != kNoSlot) parts_->endings.delay(index, is_delayed);
}

void Engine::withdraw(int32_t child, uint64_t count, Instructions& out) {
  begin_event(out);
  parts_->reports.withdraw(child, count);
}

void Engine::withdrawn(int32_t child, uint64_t count, Instructions& out) {
  begin_event(out);
  parts_->reports.withdrawn(child, count);
  end_event();
}

bool Engine::can_tasks_move() const {
  return parts_->dispatcher.can_tasks_move();
}

bool Engine::may_move(int32_t child, uint64_t count) const {
  return parts_->reports.may_move(child, count);
}

bool Engine::is_quiescent() const {
  const EngineState& core = parts_->core;
  const auto& children = core.children.all();
  const bool in_flight =
      std::any_of(children.begin(), children.end(),
                  [](const EngineChild& child) { return child.in_flight() > 0; });
  return !in_flight && core.queues.singles() == 0 && core.queues.groups() == 0 &&
         core.queues.delayed() == 0;
}

bool Engine::deadlock(Deadlock* proof) const {
  const Submitted& blocked = parts_->blocked;
  if (blocked.requested == 0 || !is_quiescent()) return false;
  const EngineState& core = parts_->core;
  const Heap& ring = core.rings[blocked.ring];
  const uint32_t oldest = ring.oldest().slot;
  *proof = {blocked.ring, blocked.requested,         ring.held(),
            blocked.size, core.slots[oldest].number, static_cast<int32_t>(kNone)};
  for (uint32_t depth = 0; depth < core.scope_tasks.size(); ++depth) {
    uint32_t index = core.scope_tasks[depth].first;
    while (index != kNoSlot && index != oldest) index = core.slots[index].scope_next;
    if (index == oldest) proof->open_scope = static_cast<int32_t>(depth);
  }
  return true;
}

std::vector<std::pair<int64_t, int64_t>> Engine::failures() const {
  return parts_->core.failed;
}

std::vector<std::pair<int64_t, int64_t>> Engine::poisonings() const {
  return parts_->core.poisoned;
}

void Engine::report_found(std::vector<std::pair<int64_t, uint8_t>>* producers,
                          std::vector<int64_t>* owners) const {
  parts_->submission.report_found(producers, owners);
}

Snapshot Engine::snapshot() const {
  return snapshot_of(parts_->core);
}

void Engine::validate() const {
  worker::validate(parts_->core);
}

void Engine::set_tracer(Tracer* tracer) {
  parts_->core.tracer = tracer;
}

void Engine::begin_event(Instructions& out) {
  parts_->core.out = &out;
  parts_->core.freed_rings = 0;
  parts_->blocked.requested = 0;
}

void Engine::end_event() {
  EngineState& core = parts_->core;
  for (uint32_t rings = core.freed_rings; rings != 0; rings &= rings - 1) {
    Instruction freed = instruction(Instruction::What::kRoomFreed, kNone);
    freed.ring = static_cast<uint16_t>(__builtin_ctz(rings));
    core.out->push_back(freed);
    if (core.tracer) core.trace_ring(freed.ring);
  }
  if (!core.is_ending || core.slots.live() > 0) return;
  core.is_running = core.is_ending = false;
  const auto tasks = static_cast<int64_t>(core.tasks);
  core.out->push_back(instruction(Instruction::What::kRunFinished, tasks));
}

void Engine::end_scope() {
  EngineState& core = parts_->core;
  uint32_t index = core.scope_tasks.back().first;
  core.scope_tasks.pop_back();
  core.scopes.end();
  while (index != kNoSlot) {
    const uint32_t next = core.slots[index].scope_next;
    parts_->endings.leave_scope(index);
    index = next;
  }
}

}  // namespace pto::worker
