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
};

namespace {

// Return the run with this number, to which tasks can be added. Its last submit is no longer
// blocked.
EngineRun& open_run(EngineState& core, uint32_t number, const char* what) {
  if (number < core.runs.size()) {
    EngineRun& run = core.runs[number];
    run.blocked.requested = 0;
    if (run.is_open && !run.is_ending) return run;
  }
  throw Refusal(Refusal::Kind::kUsage,
                std::string(what) + " outside of a run; do it in the function or block of the run");
}

// Let the failed tasks of a finished run poison no later task.
void forget_failures(EngineState& core, const EngineRun& run) {
  for (const auto* tasks : {&run.failed, &run.poisoned}) {
    for (const auto& [number, ignored] : *tasks) {
      core.roots.erase(number);
      const uint32_t index = core.slots.numbers().slot(number);
      if (index != kNoSlot) core.slots[index].has_root = false;
    }
  }
  if (!run.failed.empty() || !run.poisoned.empty()) core.regions.keep_roots(core.roots);
}

void finish_runs(EngineState& core) {
  for (uint32_t number = 0; number < core.runs.size(); ++number) {
    EngineRun& run = core.runs[number];
    if (!run.is_open || !run.is_ending || run.unfinished > 0) continue;
    run.is_open = false;
    core.ending_runs -= 1;
    forget_failures(core, run);
    const auto tasks = static_cast<int64_t>(run.tasks);
    Instruction finished = instruction(Instruction::What::kRunFinished, tasks);
    finished.count = number;
    core.out->push_back(finished);
  }
}

void end_scope(const EngineState& core, Endings& endings, EngineRun& run) {
  uint32_t index = run.scopes.back().first;
  run.scopes.pop_back();
  while (index != kNoSlot) {
    const uint32_t next = core.slots[index].scope_next;
    endings.leave_scope(index);
    index = next;
  }
}

}  // namespace

Engine::Engine(const Configuration& configuration, Policy policy)
    : parts_(std::make_unique<Parts>(configuration, std::move(policy))) {}

Engine::~Engine() = default;

uint32_t Engine::run_begin(Hazards hazards, Instructions& out) {
  begin_event(out);
  EngineState& core = parts_->core;
  const auto is_open = [](const EngineRun& run) { return run.is_open; };
  if (std::none_of(core.runs.begin(), core.runs.end(), is_open)) core.restart(hazards);
  if (core.hazards != hazards) {
    throw Refusal(Refusal::Kind::kUsage,
                  "a run begins while another with other hazards is under way; end the other run "
                  "first");
  }
  const auto place = std::find_if_not(core.runs.begin(), core.runs.end(), is_open);
  const auto number = static_cast<uint32_t>(place - core.runs.begin());
  if (number == kMaxRuns) {
    throw Refusal(Refusal::Kind::kUsage,
                  std::to_string(kMaxRuns) + " runs are under way; end one of them first");
  }
  EngineRun begun;
  begun.scopes = std::move(core.spare_scopes);
  begun.scopes.emplace_back();
  if (number < core.runs.size())
    core.runs[number] = std::move(begun);
  else
    core.runs.push_back(std::move(begun));
  return number;
}

void Engine::run_end(Instructions& out, uint32_t number) {
  begin_event(out);
  EngineState& core = parts_->core;
  EngineRun& run = open_run(core, number, "the end of a run");
  if (run.depth() > 0) {
    throw Refusal(Refusal::Kind::kUsage,
                  "the run ends with " + std::to_string(run.depth()) + " scopes open");
  }
  run.is_ending = true;
  core.ending_runs += 1;
  end_scope(core, parts_->endings, run);
  end_event();
}

Submitted Engine::submit(const Submission& submission, Instructions& out) {
  begin_event(out);
  EngineRun& run = open_run(parts_->core, submission.run, "submit");
  const Submitted submitted = parts_->submission.submit(submission);
  if (submitted.task == kNone) run.blocked = submitted;
  end_event();
  return submitted;
}

Submitted Engine::allocate(uint64_t bytes, uint64_t* address, Instructions& out, uint32_t number) {
  begin_event(out);
  EngineRun& run = open_run(parts_->core, number, "alloc");
  const Submitted submitted = parts_->submission.allocate(bytes, address, number);
  if (submitted.task == kNone) run.blocked = submitted;
  return submitted;
}

void Engine::give_up(uint32_t run) {
  if (run < parts_->core.runs.size()) parts_->core.runs[run].blocked.requested = 0;
}

void Engine::scope_begin(uint32_t number) {
  open_run(parts_->core, number, "scope").scopes.emplace_back();
}

void Engine::scope_end(Instructions& out, uint32_t number) {
  begin_event(out);
  EngineState& core = parts_->core;
  EngineRun& run = open_run(core, number, "scope");
  if (run.depth() == 0) {
    throw Refusal(Refusal::Kind::kUsage, "no scope is open; the outermost scope ends with the run");
  }
  end_scope(core, parts_->endings, run);
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
void Engine::cancel(int64_t cause, Instructions& out, uint32_t number) {
  begin_event(out);
  EngineState& core = parts_->core;
  if (number >= core.runs.size()) return;
  EngineRun& run = core.runs[number];
  if (!run.is_open || run.cancelled) return;
  run.cancelled = cause;
  std::vector<std::pair<int64_t, uint32_t>> ready;
  const auto is_ready = [](const Slot& slot) {
    return slot.state == TaskState::kReady ||
           (slot.state == TaskState::kPending && slot.is_delayed);
  };
  core.slots.numbers().for_each([&](uint32_t index) {
    Slot& slot = core.slots[index];
    if (!slot.is_unfinished || slot.run != number) return;
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

bool Engine::deadlock(Deadlock* proof, uint32_t number) const {
  const EngineState& core = parts_->core;
  const auto can_continue = [](const EngineRun& run) {
    return run.is_open && !run.is_ending && run.blocked.requested == 0;
  };
  if (number >= core.runs.size() || core.runs[number].blocked.requested == 0) return false;
  if (std::any_of(core.runs.begin(), core.runs.end(), can_continue) || !is_quiescent())
    return false;
  const Submitted& blocked = core.runs[number].blocked;
  const Heap& ring = core.rings[blocked.ring];
  const uint32_t oldest = ring.oldest().slot;
  *proof = {blocked.ring, blocked.requested,         ring.held(),
            blocked.size, core.slots[oldest].number, static_cast<int32_t>(kNone)};
  for (const EngineRun& run : core.runs) {
    for (uint32_t depth = 0; depth < run.scopes.size(); ++depth) {
      uint32_t index = run.scopes[depth].first;
      while (index != kNoSlot && index != oldest) index = core.slots[index].scope_next;
      if (index == oldest) proof->open_scope = static_cast<int32_t>(depth);
    }
  }
  return true;
}

std::vector<std::pair<int64_t, int64_t>> Engine::failures(uint32_t run) const {
  return parts_->core.runs[run].failed;
}

std::vector<std::pair<int64_t, int64_t>> Engine::poisonings(uint32_t run) const {
  return parts_->core.runs[run].poisoned;
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
}

void Engine::end_event() {
  EngineState& core = parts_->core;
  for (uint32_t rings = core.freed_rings; rings != 0; rings &= rings - 1) {
    Instruction freed = instruction(Instruction::What::kRoomFreed, kNone);
    freed.ring = static_cast<uint16_t>(__builtin_ctz(rings));
    core.out->push_back(freed);
    if (core.tracer) core.trace_ring(freed.ring);
  }
  if (core.freed_rings != 0)
    for (EngineRun& run : core.runs) run.blocked.requested = 0;
  if (core.ending_runs > 0) finish_runs(core);
}

}  // namespace pto::worker
