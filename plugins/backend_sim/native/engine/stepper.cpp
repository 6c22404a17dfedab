#include "engine/stepper.hpp"

#include <algorithm>
#include <bit>

#include "engine/engine.hpp"
#include "options.hpp"
#include "waiting.hpp"

namespace pto::sim {
namespace {

constexpr uint32_t kMostStepsAtYield = 3;
constexpr int64_t kLostCheckNs = 50'000'000;  // how often a parked caller checks for a lost device
constexpr uint32_t kOneInLags = 4;  // on average, one of this many dispatched tasks is delayed
// relative weight of an agent in the random choice; a delayed core has weight 1
constexpr uint32_t kPromptWeight = 16;

uint32_t count(const pto_core_mask& mask) noexcept {
  return static_cast<uint32_t>(std::popcount(mask.words[0]) + std::popcount(mask.words[1]));
}

}  // namespace

Stepper::Stepper(SimRun& run, ActivityPage& activity, uint64_t seed, int32_t device)
    : run_(run),
      activity_(activity),
      seed_(seed),
      note_{activity.page(), &activity.slot(0), device, &run.topology().blocks,
            activity.is_shared()},
      random_(seed),
      threads_(run, activity, 1, device, {}) {
  const SignalsBlocked blocked;
  driver_ = std::thread([this] { drive(); });
}

Stepper::~Stepper() {
  turn_.store(unowned, std::memory_order_release);
  unpark(turn_);
  driver_.join();
}

void Stepper::start(bool with_library) {
  random_ = Random(seed_);
  orchestration_pending_ = with_library;
  dispatched_ = {};
  acknowledged_ = {};
  lagging_ = {};
  run_.begin();
}

void Stepper::orchestration_done(int32_t result) {
  take_turn();
  run_.orchestration_done(result);
  run_.wake_all();
}

bool Stepper::wait(int64_t timeout_ns) {
  const uint64_t start_ns = clock_ns();
  if (!lost_.load() && turn_.load(std::memory_order_acquire) == callers) give_turn();
  Backoff backoff;
  while (turn_.load(std::memory_order_acquire) == drivers && !lost_.load()) {
    if (timeout_ns == 0) return false;
    if (backoff.again()) continue;
    int64_t left_ns = kLostCheckNs;
    if (timeout_ns > 0) left_ns = timeout_ns - static_cast<int64_t>(clock_ns() - start_ns);
    if (left_ns <= 0) return false;
    run_.attend_to_wait();
    park(turn_, drivers, std::min(left_ns, kLostCheckNs));
  }
  return run_.phase() == Phase::over;
}

void Stepper::abandon() {
  lost_.store(true);
  run_.force_over();
  unpark(turn_);
}

bool Stepper::stuck() const {
  return lost_.load() && turn_.load(std::memory_order_acquire) == drivers;
}

// The driver may still be taking its last steps, if wait() timed out and the caller then submits.
void Stepper::take_turn() noexcept {
  if (std::this_thread::get_id() == driver_.get_id()) return;
  for (Backoff backoff; turn_.load(std::memory_order_acquire) == drivers && !lost_.load();) {
    if (!backoff.again()) backoff.reset();
  }
}

void Stepper::drive() noexcept {
  const AlternateStack stack;
  Backoff backoff;
  while (true) {
    const uint32_t turn = turn_.load(std::memory_order_acquire);
    if (turn == unowned) return;
    if (turn == callers) {
      if (!backoff.again()) park(turn_, callers);
      continue;
    }
    if (orchestration_pending_) orchestrate();
    const bool for_caller = run_.orchestrator().state() == OrchestratorState::waiting;
    while (run_.running() && !(for_caller && run_.orchestrator().satisfied()) && advance()) {
    }
    if (!run_.running() && !for_caller) run_.close(run_.number());
    uint32_t mine = drivers;
    turn_.compare_exchange_strong(mine, callers, std::memory_order_acq_rel);
    unpark(turn_);
    backoff.reset();
  }
}

void Stepper::wake(uint32_t thread) {
  run_.wake(thread);
}

void Stepper::wait_for_word(const uint32_t* word, uint32_t expected) {
  take_turn();
  run_.begin_wait(word, expected);
  if (std::this_thread::get_id() == driver_.get_id()) {
    while (run_.running() && !run_.orchestrator().satisfied() && advance()) {
    }
  } else {
    wait_on_caller();
  }
  if (!lost_.load()) run_.end_wait();  // otherwise the driver may hold the lock forever
}

// The driver thread takes the steps, so that a kernel that never returns does not block the caller.
void Stepper::wait_on_caller() noexcept {
  if (lost_.load()) return;
  give_turn();
  uint64_t attended_ns = clock_ns();
  for (Backoff backoff; turn_.load(std::memory_order_acquire) == drivers && !lost_.load();) {
    if (backoff.again()) continue;
    park(turn_, drivers, SimRun::kAttendNs);
    if (clock_ns() - attended_ns < static_cast<uint64_t>(SimRun::kAttendNs)) continue;
    run_.attend();
    attended_ns = clock_ns();
  }
}

void Stepper::give_turn() noexcept {
  turn_.store(drivers, std::memory_order_release);
  unpark(turn_);
}

void Stepper::order(uint32_t event, uint64_t a, uint64_t b) {
  take_turn();
  run_.tracer().order().add(event, a, b);
}

void Stepper::yield(uint32_t point) {
  take_turn();
  if (!run_.running()) return;
  const uint32_t wanted = random_.below(kMostStepsAtYield + 1);
  uint32_t stepped = 0;
  while (stepped < wanted && run_.running() && step_one()) ++stepped;
  run_.tracer().order().add(BackendEvent::yield, point, stepped);
}

// Takes one step of any agent, or proves that no agent can take one. Returns false if only the
// orchestrator can continue.
bool Stepper::advance() noexcept {
  return step_one() || run_.check_stall();
}

bool Stepper::step_one() noexcept {
  Candidates choice = candidates();
  const uint32_t schedulers = static_cast<uint32_t>(std::popcount(choice.schedulers));
  const uint32_t prompt = (schedulers + count(choice.prompt)) * kPromptWeight;
  const uint32_t total = prompt + count(choice.lagging);
  if (total == 0) return false;
  run_.tracer().count_step();
  uint32_t chosen = random_.below(total);
  const bool is_lagging = chosen >= prompt;
  chosen = is_lagging ? chosen - prompt : chosen / kPromptWeight;
  if (!is_lagging && chosen < schedulers) {
    while (chosen-- > 0) choice.schedulers &= choice.schedulers - 1;
    step_scheduler(static_cast<uint32_t>(std::countr_zero(choice.schedulers)));
    return true;
  }
  pto_core_mask& cores = is_lagging ? choice.lagging : choice.prompt;
  if (!is_lagging) chosen -= schedulers;
  for (; chosen > 0; --chosen) take_first(cores);
  step_core(take_first(cores));
  return true;
}

Stepper::Candidates Stepper::candidates() noexcept {
  Candidates found;
  for (uint32_t thread = 0; thread < run_.schedulers(); ++thread) {
    Scheduler& scheduler = run_.scheduler(thread);
    notice_dispatched(scheduler);
    const bool due =
        scheduler.wake.load(std::memory_order_relaxed) != 0 || !empty(scheduler.in_flight);
    const bool inside = scheduler.locked.load(std::memory_order_relaxed) != 0;
    if (due && !inside && run_.steppable(thread)) found.schedulers |= 1u << thread;
  }
  for (uint32_t i = 0; i < 2; ++i) {
    const uint64_t cores = dispatched_.words[i] | acknowledged_.words[i];
    found.prompt.words[i] = cores & ~lagging_.words[i];
    found.lagging.words[i] = cores & lagging_.words[i];
  }
  return found;
}

void Stepper::notice_dispatched(Scheduler& scheduler) noexcept {
  while (!empty(scheduler.dispatched)) {
    const uint32_t core = take_first(scheduler.dispatched);
    insert(dispatched_, core);
    remove(lagging_, core);
    group_[core] = {};
    if (random_.below(kOneInLags) == 0) insert(lagging_, core);
  }
  const pto_core_mask group = scheduler.together;
  while (!empty(scheduler.together)) {
    const uint32_t core = take_first(scheduler.together);
    insert(dispatched_, core);
    remove(lagging_, core);
    group_[core] = group;
  }
}

void Stepper::step_scheduler(uint32_t thread) noexcept {
  Scheduler& scheduler = run_.scheduler(thread);
  scheduler.try_lock();
  scheduler.take_wake();
  if (run_.step(thread) == PTO_STEP_PROGRESS) wake(thread);
  scheduler.unlock();
}

void Stepper::step_core(uint32_t chosen) noexcept {
  Cores& cores = run_.cores();
  const auto acknowledge = [&](uint32_t core) {
    remove(dispatched_, core);
    insert(acknowledged_, core);
    run_.tracer().order().add(BackendEvent::acknowledge, core, cores.payload(core).task);
    cores.acknowledge(core);
  };
  if (contains(dispatched_, chosen)) return acknowledge(chosen);
  pto_core_mask group = group_[chosen];
  const bool is_alone = empty(group);
  if (is_alone) insert(group, chosen);
  for (pto_core_mask rest = group; !empty(rest);) {
    const uint32_t core = take_first(rest);
    if (contains(dispatched_, core)) acknowledge(core);
    remove(acknowledged_, core);
    run_.tracer().order().add(BackendEvent::finish, core, cores.payload(core).task);
  }
  if (!is_alone) return threads_.run(group);
  const CrashNote* before = crash_note();
  set_crash_note(&note_);
  cores.execute(chosen, activity_.slot(0), 0);
  set_crash_note(before);
}

void Stepper::orchestrate() noexcept {
  orchestration_pending_ = false;
  const CrashNote* before = crash_note();
  set_crash_note(&note_);
  note(activity_.slot(0).orchestrates, uint64_t{1});
  run_.orchestrate();
  note(activity_.slot(0).orchestrates, uint64_t{0});
  set_crash_note(before);
  run_.wake_all();
}

}  // namespace pto::sim
