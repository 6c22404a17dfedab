#include "run/run.hpp"

#include "waiting/futex.hpp"

namespace pto::sim {

void Run::attach(const pto_runtime_api* api, void* runtime, const pto_topology& topology) noexcept {
  topology_ = topology;
  api_ = api;
  runtime_ = runtime;
  cores_.set_capabilities(api->capabilities);
}

void Run::prepare(const RunShape& shape, bool with_library) noexcept {
  topology_ = shape.topology;
  shares_thread_.store(shape.shares_thread, std::memory_order_relaxed);
  cores_.reset(topology_);
  tracer_.order().reset();
  orchestrator_.reset();
  for (Scheduler& scheduler : schedulers_) scheduler.reset();
  const bool concurrent = (api_->capabilities & PTO_RUNTIME_CONCURRENT_BUILD) != 0;
  gate_open_.store(concurrent, std::memory_order_relaxed);
  if (concurrent) wake_all();  // otherwise a scheduler is woken only after it has reported idle
  // If the run has a library, the thread that runs the orchestration takes this lock.
  if (shape.shares_thread && !with_library) schedulers_[0].try_lock();
  ending_.store(Ending::none, std::memory_order_relaxed);
  done_count_.store(0, std::memory_order_relaxed);
  first_step_ns_.store(0, std::memory_order_relaxed);
  built_ns_.store(0, std::memory_order_relaxed);
  ended_ns_.store(0, std::memory_order_relaxed);
  started_ns_ = clock_ns();
  tracer_.begin_build();
}

void Run::end(Ending ending) noexcept {
  Ending none = Ending::none;
  if (!ending_.compare_exchange_strong(none, ending, std::memory_order_acq_rel)) return;
  ended_ns_.store(clock_ns(), std::memory_order_relaxed);
  const Number run = number();
  uint64_t running = run | bits(Phase::running);
  state_.compare_exchange_strong(running, run | bits(Phase::ending));
}

bool Run::close(Number number) noexcept {
  uint64_t ending = number | bits(Phase::ending);
  return state_.compare_exchange_strong(ending, number | bits(Phase::over));
}

void Run::orchestrate() noexcept {
  tracer_.begin_build();
  if (api_->orchestrate(runtime_) != PTO_OK) end(Ending::failure);
  built_ns_.store(clock_ns(), std::memory_order_relaxed);
  tracer_.end_build();
  gate_open_.store(true, std::memory_order_seq_cst);
  orchestrator_.finish();
}

void Run::orchestration_done(int32_t result) noexcept {
  api_->orchestration_done(runtime_, result);
  built_ns_.store(clock_ns(), std::memory_order_relaxed);
  tracer_.end_build();
  gate_open_.store(true, std::memory_order_seq_cst);
  orchestrator_.finish();
}

int32_t Run::step(uint32_t thread) noexcept {
  if (first_step_ns_.load(std::memory_order_relaxed) == 0) {
    uint64_t unset = 0;
    first_step_ns_.compare_exchange_strong(unset, clock_ns(), std::memory_order_relaxed);
  }
  const int32_t result = api_->schedule_step(runtime_, thread);
  if (deterministic_)
    tracer_.order().add(BackendEvent::step, thread, static_cast<uint64_t>(result));
  if (result == PTO_STEP_ERROR) end(Ending::failure);
  if (result != PTO_STEP_DONE) return result;
  schedulers_[thread].done = true;
  const uint32_t done = done_count_.fetch_add(1, std::memory_order_acq_rel) + 1;
  if (done == topology_.schedulers) end(Ending::success);
  if (done == 1) wake_all();
  return result;
}

void Run::wake_all() noexcept {
  for (uint32_t thread = 0; thread < topology_.schedulers; ++thread) {
    schedulers_[thread].wake.store(1, std::memory_order_seq_cst);
  }
}

bool Run::wake_pending() const noexcept {
  for (const Scheduler& scheduler : schedulers_) {
    if (scheduler.wake.load(std::memory_order_seq_cst) != 0) return true;
  }
  return false;
}

Stall Run::resolve_stall() noexcept {
  const uint64_t before = orchestrator_.snapshot();
  if (!running() || !orchestrator_blocked() || !nothing_in_flight()) return Stall::not_stalled;
  if (gate_open_.load(std::memory_order_acquire) && !all_idle()) return Stall::moved;
  if (!running()) return Stall::moved;
  if (!orchestrator_.enter_wait(before)) return Stall::not_stalled;
  if (!orchestrator_blocked()) {
    orchestrator_.leave_wait();
    return Stall::not_stalled;
  }
  const int32_t result = api_->stalled(runtime_);
  orchestrator_.leave_wait();
  if (deterministic_) tracer_.order().add(BackendEvent::stalled, static_cast<uint64_t>(result));
  if (result != PTO_STEP_PROGRESS) end(Ending::failure);
  wake_all();
  return Stall::moved;
}

void Run::dispatch(uint32_t thread, const pto_dispatch* batch, uint32_t count) noexcept {
  Scheduler& scheduler = schedulers_[thread];
  if (tracer_.has_tasks()) tracer_.record_dispatches(thread, batch, count);
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t core = batch[i].core;
    cores_.dispatch(batch[i]);
    insert(scheduler.in_flight, core);
    insert(scheduler.dispatched, core);
    if (deterministic_) tracer_.order().add(BackendEvent::dispatch, core, batch[i].payload->task);
  }
}

void Run::poll(uint32_t thread, pto_poll_result* result) noexcept {
  *result = {};
  Scheduler& scheduler = schedulers_[thread];
  for (pto_core_mask rest = scheduler.in_flight; !empty(rest);) {
    const uint32_t core = take_first(rest);
    if (!cores_.finished(core)) continue;
    insert(result->done, core);
    if (cores_.faulted(core)) insert(result->faulted, core);
    remove(scheduler.in_flight, core);
    if (deterministic_) tracer_.order().add(BackendEvent::poll, core, thread);
  }
}

uint64_t Run::build_ns() const noexcept {
  const uint64_t built = built_ns_.load(std::memory_order_relaxed);
  return built == 0 ? 0 : built - started_ns_;
}

uint64_t Run::run_ns() const noexcept {
  const uint64_t first = first_step_ns_.load(std::memory_order_relaxed);
  const uint64_t ended = ended_ns_.load(std::memory_order_relaxed);
  return first == 0 || ended < first ? 0 : ended - first;
}

bool Run::orchestrator_blocked() const noexcept {
  const Orchestrator::State state = orchestrator_.state();
  if (state == Orchestrator::waiting) return !orchestrator_.satisfied();
  return state == Orchestrator::done;
}

bool Run::nothing_in_flight() const noexcept {
  for (uint32_t thread = 0; thread < topology_.schedulers; ++thread) {
    if (!empty(schedulers_[thread].in_flight)) return false;
  }
  return true;
}

// Takes one step of each scheduler. Returns true if each step reported idle, and no scheduler was
// woken since the first of these steps.
bool Run::all_idle() noexcept {
  for (uint32_t thread = 0; thread < topology_.schedulers; ++thread) {
    if (!schedulers_[thread].done) schedulers_[thread].take_wake();
  }
  bool idle = true;
  for (uint32_t thread = 0; thread < topology_.schedulers && running(); ++thread) {
    if (schedulers_[thread].done) continue;
    const bool progress = step(thread) != PTO_STEP_IDLE || !empty(schedulers_[thread].in_flight);
    idle = idle && !progress;
    if (progress) schedulers_[thread].wake.store(1, std::memory_order_seq_cst);
  }
  for (uint32_t thread = 0; thread < topology_.schedulers; ++thread) {
    const Scheduler& scheduler = schedulers_[thread];
    if (!scheduler.done && scheduler.wake.load(std::memory_order_seq_cst) != 0) idle = false;
  }
  return idle;
}

}  // namespace pto::sim
