#include "device/run.hpp"

#include <sched.h>

namespace pto::a2a3 {
namespace {

using engine::OrchestratorState;

constexpr uint32_t kStepsBetweenTends = 1000;
constexpr uint64_t kTendNs = 5'000'000;
constexpr uint64_t kAttendNs = 50'000'000;
// Idle steps between attempts to prove a stall, each of which stops all other schedulers.
constexpr uint32_t kIdleSteps = 16;

}  // namespace

void CardRun::Pause::operator()() noexcept {
  sched_yield();
}

void CardRun::open(const pto_a2a3_device& config, Log& log) {
  config_ = &config;
  log_ = &log;
  control_ = reinterpret_cast<pto_a2a3_control*>(config.control);
  progress_ = reinterpret_cast<pto_a2a3_progress*>(config.progress);
  cores_.open(config);
}

void CardRun::attach(const pto_runtime_api* api, void* runtime) noexcept {
  api_ = api;
  runtime_ = runtime;
}

void CardRun::prepare(const CardRunShape& shape, uint64_t sequence) noexcept {
  shape_ = shape;
  sequence_ = sequence;
  is_abandoned_ = is_aborted_ = false;
  tended_ns_ = attended_ns_ = Aicpu::now_ns();
  started_ns_ = tended_ns_;
  built_ns_ = ended_ns_ = tended_ns_;
  const bool is_concurrent = (api_->capabilities & PTO_RUNTIME_CONCURRENT_BUILD) != 0;
  prepare_drive(
      {shape.topology.schedulers, shape.shares_thread, is_concurrent, shape.has_orchestrator});
  if (!shape.has_orchestrator) end_build();
  state_.store(kRunning, std::memory_order_seq_cst);
}

void CardRun::take_part(uint32_t role) noexcept {
  const bool orchestrates =
      shape_.has_orchestrator && (shape_.shares_thread || role == shape_.topology.schedulers);
  if (orchestrates) orchestrate();
  if (role < shape_.topology.schedulers) schedule(role, nullptr, 0);
}

void CardRun::orchestrate() noexcept {
  begin_build();
  if (api_->orchestrate(runtime_) != PTO_OK) end_run(false);
  built_ns_ = Aicpu::now_ns();
  end_build();
  wake_all();
  Aicpu::changed();
}

void CardRun::end_run(bool is_success) noexcept {
  uint32_t running = kRunning;
  if (state_.compare_exchange_strong(running, is_success ? kSucceeded : kFailed)) {
    ended_ns_ = Aicpu::now_ns();
  }
  Aicpu::changed();
}

// Steps a scheduler until the run has ended, or the word has changed.
void CardRun::schedule(uint32_t thread, const uint32_t* word, uint32_t expected) noexcept {
  uint32_t idle = 0, steps = 0;
  while (running() && !(word != nullptr && OrchestratorState::changed(word, expected))) {
    const uint32_t seen = Aicpu::changes();
    const bool has_progress = try_step(thread);
    if (thread == 0) tend(++steps % kStepsBetweenTends == 0);
    if (has_progress) {
      idle = 0;
      continue;
    }
    if (++idle % kIdleSteps == 0 && check_stall()) idle = 0;
    if (idle != 0) Aicpu::rest(seen);
  }
}

// Returns whether the scheduler had work.
bool CardRun::try_step(uint32_t thread) noexcept {
  engine::SchedulerState& state = scheduler(thread);
  if (!may_step() || !state.try_lock()) return false;
  bool has_progress = false;
  if (steppable(thread) && running()) {
    state.take_wake();
    has_progress = step(thread) == PTO_STEP_PROGRESS;
  }
  state.unlock();
  return has_progress;
}

pto_status CardRun::wait(const uint32_t* word, uint32_t expected) noexcept {
  begin_wait(word, expected);
  wake_all();
  Aicpu::changed();
  if (shares_thread()) {
    schedule(0, word, expected);
  } else {
    while (running() && !OrchestratorState::changed(word, expected)) {
      const uint32_t seen = Aicpu::changes();
      if (running() && !OrchestratorState::changed(word, expected)) Aicpu::rest(seen);
    }
  }
  end_wait();
  if (OrchestratorState::changed(word, expected)) return PTO_OK;
  const bool is_stuck = api_->last_error(runtime_, nullptr) == PTO_ERROR_DEADLOCK;
  return is_stuck ? PTO_ERROR_DEADLOCK : PTO_ERROR_ABORTED;
}

void CardRun::dispatch(uint32_t thread, const pto_dispatch* batch, uint32_t count) noexcept {
  for (uint32_t i = 0; i < count; ++i) {
    cores_.dispatch(batch[i]);
    engine::insert(scheduler(thread).in_flight, batch[i].core);
  }
}

void CardRun::poll(uint32_t thread, pto_poll_result* result) noexcept {
  *result = {};
  cores_.poll(scheduler(thread).in_flight, *result);
}

void CardRun::tend(bool is_due) noexcept {
  const uint64_t now = Aicpu::now_ns();
  if (tending_.exchange(true, std::memory_order_acquire)) return;
  if (is_due || now - tended_ns_ >= kTendNs) {
    tended_ns_ = now;
    read_control();
    Aicpu::store_flag(&progress_->tasks, cores_.tasks());
    Aicpu::store_flag(&progress_->heartbeat, progress_->heartbeat + 1);
    Aicpu::clean(progress_, PTO_A2A3_LINE);
    cores_.clean_progress();
    const bool is_waiting = orchestrator().state() == OrchestratorState::waiting;
    if (is_waiting && api_->attend != nullptr && now - attended_ns_ >= kAttendNs) {
      attended_ns_ = now;
      api_->attend(runtime_);
    }
  }
  tending_.store(false, std::memory_order_release);
}

void CardRun::read_control() noexcept {
  Aicpu::invalidate(control_, sizeof *control_);
  log_->set_read(Aicpu::load_flag(&control_->log_read));
  const uint64_t request = Aicpu::load_flag(&control_->explain);
  if (request != progress_->explained) explain(request);
  const bool is_aborted = Aicpu::load_flag(&control_->abort) == sequence_;
  if (Aicpu::load_flag(&control_->abandon) == sequence_) is_abandoned_ = true;
  if (!is_aborted || is_aborted_ || !running()) return;
  is_aborted_ = true;
  const pto_error cause = Aicpu::load(&control_->cause);
  api_->abort(runtime_, cause.status != PTO_OK ? &cause : nullptr);
  end_run(false);
}

void CardRun::explain(uint64_t request) noexcept {
  const size_t length =
      api_->explain(runtime_, progress_->explanation, sizeof progress_->explanation);
  Aicpu::clean(progress_->explanation, length + 1);
  Aicpu::order_stores();
  Aicpu::store_flag(&progress_->explanation_bytes, uint64_t{length});
  Aicpu::store_flag(&progress_->explained, request);
  Aicpu::clean(progress_, PTO_A2A3_LINE);
}

void CardRun::set_phase(uint32_t phase) noexcept {
  Aicpu::store_flag(&progress_->sequence, sequence_);
  Aicpu::store_flag(&progress_->threads, shape_.threads());
  Aicpu::store_flag(&progress_->phase, phase);
  Aicpu::store_flag(&progress_->tasks, cores_.tasks());
  Aicpu::clean(progress_, PTO_A2A3_LINE);
  Aicpu::order_stores();
}

void CardRun::fill(pto_run_report& report) const noexcept {
  cores_.fill(report);
  report.build_ns = shape_.has_orchestrator ? built_ns_ - started_ns_ : 0;
  report.run_ns = ended_ns_ - started_ns_;
}

}  // namespace pto::a2a3
