#include "run/run.hpp"

#include <bit>

namespace pto::sim {

void SimRun::attach(const pto_runtime_api* api, void* runtime,
                    const pto_topology& topology) noexcept {
  topology_ = topology;
  api_ = api;
  runtime_ = runtime;
  cores_.set_capabilities(api->capabilities);
}

void SimRun::prepare(const SimRunShape& shape, bool with_library) noexcept {
  topology_ = shape.topology;
  cores_.reset(topology_);
  tracer_.order().reset();
  const bool is_concurrent = (api_->capabilities & PTO_RUNTIME_CONCURRENT_BUILD) != 0;
  prepare_drive({topology_.schedulers, shape.shares_thread, is_concurrent, with_library});
  ending_.store(Ending::none, std::memory_order_relaxed);
  first_step_ns_.store(0, std::memory_order_relaxed);
  built_ns_.store(0, std::memory_order_relaxed);
  ended_ns_.store(0, std::memory_order_relaxed);
  started_ns_ = clock_ns();
  tracer_.begin_build();
}

void SimRun::end(Ending ending) noexcept {
  Ending none = Ending::none;
  if (!ending_.compare_exchange_strong(none, ending, std::memory_order_acq_rel)) return;
  ended_ns_.store(clock_ns(), std::memory_order_relaxed);
  const Number run = number();
  uint64_t running = run | bits(Phase::running);
  state_.compare_exchange_strong(running, run | bits(Phase::ending));
}

bool SimRun::close(Number number) noexcept {
  uint64_t ending = number | bits(Phase::ending);
  return state_.compare_exchange_strong(ending, number | bits(Phase::over));
}

void SimRun::orchestrate() noexcept {
  begin_build();
  tracer_.begin_build();
  if (api_->orchestrate(runtime_) != PTO_OK) end(Ending::failure);
  built_ns_.store(clock_ns(), std::memory_order_relaxed);
  tracer_.end_build();
  end_build();
}

void SimRun::orchestration_done(int32_t result) noexcept {
  api_->orchestration_done(runtime_, result);
  built_ns_.store(clock_ns(), std::memory_order_relaxed);
  tracer_.end_build();
  end_build();
}

int32_t SimRun::call_step(uint32_t thread) noexcept {
  if (first_step_ns_.load(std::memory_order_relaxed) == 0) {
    uint64_t unset = 0;
    first_step_ns_.compare_exchange_strong(unset, clock_ns(), std::memory_order_relaxed);
  }
  const int32_t result = api_->schedule_step(runtime_, thread);
  if (deterministic_)
    tracer_.order().add(BackendEvent::step, thread, static_cast<uint64_t>(result));
  return result;
}

int32_t SimRun::call_stalled() noexcept {
  const int32_t result = api_->stalled(runtime_);
  if (deterministic_) tracer_.order().add(BackendEvent::stalled, static_cast<uint64_t>(result));
  return result;
}

void SimRun::dispatch(uint32_t thread, const pto_dispatch* batch, uint32_t count) noexcept {
  if (tracer_.has_tasks()) tracer_.record_dispatches(thread, batch, count);
  pto_core_mask dispatched{};
  pto_core_mask together{};
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t core = batch[i].core;
    cores_.dispatch(batch[i], thread);
    insert((batch[i].flags & PTO_DISPATCH_TOGETHER) == 0 ? dispatched : together, core);
    if (deterministic_) tracer_.order().add(BackendEvent::dispatch, core, batch[i].payload->task);
  }
  Scheduler& scheduler = this->scheduler(thread);
  for (uint32_t word = 0; word < 2; ++word) {
    scheduler.in_flight.words[word] |= dispatched.words[word] | together.words[word];
    scheduler.dispatched.words[word] |= dispatched.words[word];
    scheduler.together.words[word] |= together.words[word];
  }
}

void SimRun::poll(uint32_t thread, pto_poll_result* result) noexcept {
  Scheduler& scheduler = this->scheduler(thread);
  for (uint32_t word = 0; word < 2; ++word) {
    uint64_t done = 0;
    uint64_t faulted = 0;
    for (uint64_t rest = scheduler.in_flight.words[word]; rest != 0; rest &= rest - 1) {
      const uint32_t core = word * 64 + static_cast<uint32_t>(std::countr_zero(rest));
      if (!cores_.finished(core)) continue;
      const uint64_t bit = rest & (~rest + 1);
      done |= bit;
      if (cores_.faulted(core)) faulted |= bit;
      if (deterministic_) tracer_.order().add(BackendEvent::poll, core, thread);
    }
    scheduler.in_flight.words[word] &= ~done;
    result->done.words[word] = done;
    result->faulted.words[word] = faulted;
  }
}

uint64_t SimRun::build_ns() const noexcept {
  const uint64_t built = built_ns_.load(std::memory_order_relaxed);
  return built == 0 ? 0 : built - started_ns_;
}

uint64_t SimRun::run_ns() const noexcept {
  const uint64_t first = first_step_ns_.load(std::memory_order_relaxed);
  const uint64_t ended = ended_ns_.load(std::memory_order_relaxed);
  return first == 0 || ended < first ? 0 : ended - first;
}

}  // namespace pto::sim
