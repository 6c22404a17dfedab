#include "engine/stepper.hpp"

#include <bit>

#include "shape/shape.hpp"
#include "waiting/futex.hpp"

namespace pto::sim {
namespace {

constexpr uint32_t kStepsBetweenClocks = 64;
constexpr uint32_t kMostStepsAtYield = 3;

uint32_t count(const pto_core_mask& mask) noexcept {
  return static_cast<uint32_t>(std::popcount(mask.words[0]) + std::popcount(mask.words[1]));
}

}  // namespace

Stepper::Stepper(Run& run, ActivityPage& activity, uint64_t seed, int32_t device) noexcept
    : run_(run),
      activity_(activity),
      seed_(seed),
      note_{&activity.slot(0), device, &run.topology().blocks},
      random_(seed) {}

void Stepper::start(bool with_library) {
  random_ = Random(seed_);
  orchestration_pending_ = with_library;
  dispatched_ = {};
  acknowledged_ = {};
  run_.begin();
}

void Stepper::orchestration_done(int32_t result) {
  run_.orchestration_done(result);
  if (run_.shares_thread()) run_.scheduler(0).unlock();
  run_.wake_all();
}

bool Stepper::wait(int64_t timeout_ns) {
  if (orchestration_pending_) orchestrate();
  const uint64_t start_ns = clock_ns();
  for (uint32_t steps = 1; run_.running(); ++steps) {
    if (!advance()) return false;
    if (steps % kStepsBetweenClocks != 0 || timeout_ns < 0) continue;
    if (clock_ns() - start_ns >= static_cast<uint64_t>(timeout_ns)) break;
  }
  if (run_.running()) return false;
  run_.close();
  return run_.phase() == Phase::over;
}

void Stepper::wake(uint32_t thread) {
  run_.scheduler(thread).wake.store(1, std::memory_order_relaxed);
}

void Stepper::wait_for_word(const uint32_t* word, uint32_t expected) {
  run_.orchestrator().begin_wait(word, expected);
  if (run_.shares_thread()) run_.scheduler(0).unlock();
  while (run_.running() && !Orchestrator::changed(word, expected)) {
    if (!advance()) break;
  }
  if (run_.shares_thread()) run_.scheduler(0).try_lock();
  run_.orchestrator().end_wait();
}

void Stepper::yield(uint32_t point) {
  if (!run_.running()) return;
  const uint32_t wanted = random_.below(kMostStepsAtYield + 1);
  uint32_t stepped = 0;
  while (stepped < wanted && run_.running() && step_one()) ++stepped;
  run_.trace().add(BackendEvent::yield, point, stepped);
}

// One step of anybody, or the proof that there is none; false when only the orchestrator can go on.
bool Stepper::advance() noexcept {
  return step_one() || run_.resolve_stall() == Stall::moved;
}

bool Stepper::step_one() noexcept {
  Candidates choice = candidates();
  const uint32_t schedulers = static_cast<uint32_t>(std::popcount(choice.schedulers));
  const uint32_t total = schedulers + count(choice.cores);
  if (total == 0) return false;
  uint32_t chosen = random_.below(total);
  if (chosen < schedulers) {
    while (chosen-- > 0) choice.schedulers &= choice.schedulers - 1;
    step_scheduler(static_cast<uint32_t>(std::countr_zero(choice.schedulers)));
    return true;
  }
  for (chosen -= schedulers; chosen > 0; --chosen) take_first(choice.cores);
  step_core(take_first(choice.cores));
  return true;
}

Stepper::Candidates Stepper::candidates() noexcept {
  Candidates found;
  for (uint32_t thread = 0; thread < run_.schedulers(); ++thread) {
    Scheduler& scheduler = run_.scheduler(thread);
    dispatched_.words[0] |= scheduler.dispatched.words[0];
    dispatched_.words[1] |= scheduler.dispatched.words[1];
    scheduler.dispatched = {};
    const bool due =
        scheduler.wake.load(std::memory_order_relaxed) != 0 || !empty(scheduler.in_flight);
    const bool inside = scheduler.locked.load(std::memory_order_relaxed) != 0;
    if (due && !inside && run_.steppable(thread)) found.schedulers |= 1u << thread;
  }
  found.cores.words[0] = dispatched_.words[0] | acknowledged_.words[0];
  found.cores.words[1] = dispatched_.words[1] | acknowledged_.words[1];
  return found;
}

void Stepper::step_scheduler(uint32_t thread) noexcept {
  Scheduler& scheduler = run_.scheduler(thread);
  scheduler.try_lock();
  scheduler.take_wake();
  if (run_.step(thread) == PTO_STEP_PROGRESS) wake(thread);
  scheduler.unlock();
}

void Stepper::step_core(uint32_t core) noexcept {
  Cores& cores = run_.cores();
  if (contains(dispatched_, core)) {
    remove(dispatched_, core);
    insert(acknowledged_, core);
    run_.trace().add(BackendEvent::acknowledge, core, cores.task(core));
    cores.acknowledge(core);
    return;
  }
  remove(acknowledged_, core);
  run_.trace().add(BackendEvent::finish, core, cores.task(core));
  const CrashNote* before = crash_note();
  set_crash_note(&note_);
  cores.execute(core, activity_.slot(0));
  set_crash_note(before);
}

void Stepper::orchestrate() noexcept {
  orchestration_pending_ = false;
  if (run_.shares_thread()) run_.scheduler(0).try_lock();
  run_.orchestrate();
  if (run_.shares_thread()) run_.scheduler(0).unlock();
  run_.wake_all();
}

}  // namespace pto::sim
