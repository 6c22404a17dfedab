// One round of a worker: it steps schedulers, runs some cores, and leaves other cores to other
// workers.
#include <algorithm>
#include <bit>

#include "engine/pool.hpp"
#include "shape.hpp"
#include "waiting/ticks.hpp"

namespace pto::sim {
namespace {

// Kernels are long if their average time reaches this limit: the cost of moving a core to another
// worker is then small compared to the gain. The limit for callbacks is higher. They usually need a
// lock, such as Python's, so short callbacks are slower on two workers than on one. But a callback
// may wait for an outside event, so other workers can always take the cores behind it.
constexpr uint64_t kLongTicks = kTicksPerUs;
constexpr uint64_t kLongCallbackTicks = 50 * kTicksPerUs;
// the batch time after which the worker checks whether to share the rest
constexpr uint64_t kShareAfterTicks = 2 * kTicksPerUs;
constexpr uint32_t kTasksBetweenChecks = 4;
constexpr uint32_t kRoundsBetweenCalls = 32;
constexpr uint32_t kShortBatches = 2;

}  // namespace

bool Pool::round(Worker& worker) noexcept {
  bool progress = false;
  if (run_.may_step()) progress = step_own(worker);
  if (empty(worker.batch) && !progress) {
    claim(worker);
    if (empty(worker.batch) && run_.may_step()) progress = step_others(worker);
  }
  if (!empty(worker.lent)) take_back(worker);
  if (empty(worker.batch)) return progress;
  run_batch(worker);
  if (++worker.rounds % kRoundsBetweenCalls == 0) wake_home_workers(worker);
  return true;
}

bool Pool::step_own(Worker& worker) noexcept {
  bool progress = false;
  for (uint32_t thread = 0; thread < run_.schedulers(); ++thread) {
    const uint32_t mark = 1u << thread;
    std::atomic<uint32_t>& wake = run_.scheduler(thread).wake;
    if ((worker.again & mark) == 0 && wake.load(std::memory_order_acquire) == 0) continue;
    if (home(thread) == worker.index) {
      progress = step(worker, thread) || progress;
    } else if ((worker.again & mark) != 0) {
      worker.again &= ~mark;
      wake.store(1, std::memory_order_seq_cst);
    }
  }
  return progress;
}

// Steps schedulers whose home worker is inside a kernel.
bool Pool::step_others(Worker& worker) noexcept {
  bool progress = false;
  for (uint32_t thread = 0; thread < run_.schedulers(); ++thread) {
    if (run_.scheduler(thread).wake.load(std::memory_order_acquire) == 0) continue;
    const uint32_t owner = home(thread);
    if (owner != worker.index && in_kernel(activity_.slot(owner))) {
      progress = step(worker, thread) || progress;
    }
  }
  return progress;
}

bool Pool::step(Worker& worker, uint32_t thread) noexcept {
  Scheduler& scheduler = run_.scheduler(thread);
  if (!scheduler.try_lock()) return false;
  const uint32_t mark = 1u << thread;
  worker.again &= ~mark;
  if (scheduler.done || !run_.steppable(thread) || !run_.running()) {
    if (scheduler.done) scheduler.take_wake();
    scheduler.unlock();
    return false;
  }
  scheduler.take_wake();
  const int32_t result = run_.step(thread);
  const pto_core_mask dispatched = scheduler.dispatched;
  scheduler.dispatched = {};
  scheduler.unlock();
  worker.batch.words[0] |= dispatched.words[0];
  worker.batch.words[1] |= dispatched.words[1];
  const bool progress = result == PTO_STEP_PROGRESS || !empty(dispatched);
  if (progress) worker.again |= mark;
  return progress;
}

void Pool::run_batch(Worker& worker) noexcept {
  pto_core_mask rest = worker.batch;
  worker.calls_back = run_.cores().calls_back(take_first(rest));
  if (!worker.long_kernels && !worker.calls_back && empty(rest) && empty(worker.lent)) {
    if (run_.running()) run_core(worker, take_first(worker.batch));
    worker.batch = {};
    return;
  }
  const uint64_t long_ticks = worker.calls_back ? kLongCallbackTicks : kLongTicks;
  const uint64_t start = ticks();
  uint32_t ran = 0;
  if (worker.long_kernels || worker.calls_back) share(worker);
  while (!empty(worker.batch)) {
    if (!run_.running()) {
      worker.batch = {};
      return;
    }
    share_before_callback(worker);
    run_core(worker, take_first(worker.batch));
    ++ran;
    if (empty(worker.batch)) continue;
    const bool has_idle_worker = parked_.load(std::memory_order_relaxed) != 0;
    if (!has_idle_worker && ran != 1 && ran % kTasksBetweenChecks != 0) continue;
    if (ticks() - start > std::max(kShareAfterTicks, ran * long_ticks)) {
      worker.long_kernels = true;
      share(worker);
    }
  }
  const uint64_t each = (ticks() - start) / ran;
  if (worker.long_kernels ? each < long_ticks / 2 : each > long_ticks) {
    worker.long_kernels = !worker.long_kernels;
  }
  worker.short_batches = worker.long_kernels ? 0 : worker.short_batches + 1;
}

void Pool::run_core(Worker& worker, uint32_t core) noexcept {
  Cores& cores = run_.cores();
  cores.acknowledge(core);
  cores.execute(core, activity_.slot(worker.index), worker.index);
  if (!worker.long_kernels && !worker.calls_back) return;
  // Let an idle worker complete the task, because the next round of this worker may start much
  // later.
  run_.wake(cores.scheduler(core));
}

// Before the first callback of a batch, let other workers take the rest of the batch, because a
// callback may take long.
void Pool::share_before_callback(Worker& worker) noexcept {
  if (worker.calls_back) return;
  pto_core_mask rest = worker.batch;
  if (!run_.cores().calls_back(take_first(rest))) return;
  worker.calls_back = true;
  share(worker);
}

// Keeps one core of the batch. Publishes its other cores, and the schedulers that must still be
// stepped.
void Pool::share(Worker& worker) noexcept {
  hand_over(worker);
  pto_core_mask rest = worker.batch;
  const uint32_t kept = take_first(rest);
  worker.batch = {};
  insert(worker.batch, kept);
  if (empty(rest)) return;
  for (size_t i = 0; i < 2; ++i) {
    if (rest.words[i] != 0) shared_[i].fetch_or(rest.words[i], std::memory_order_seq_cst);
    if (!worker.calls_back) worker.lent.words[i] |= rest.words[i];
  }
  if (worker.long_kernels) wake_one();
}

// Takes one shared core. Workers share only batches whose kernels ran long, so this kernel is
// assumed to run long too, unless it is a callback.
bool Pool::claim(Worker& worker) noexcept {
  for (uint32_t i = 0; i < 2; ++i) {
    uint64_t word = shared_[i].load(std::memory_order_relaxed);
    while (word != 0) {
      const uint64_t lowest = word & (~word + 1);
      word = shared_[i].fetch_and(~lowest, std::memory_order_seq_cst);
      if ((word & lowest) == 0) continue;
      worker.batch.words[i] |= lowest;
      pto_core_mask taken = worker.batch;
      if (!run_.cores().calls_back(take_first(taken))) worker.long_kernels = true;
      if (worker.long_kernels && parked_.load(std::memory_order_relaxed) != 0) wake_if_shared();
      return true;
    }
  }
  return false;
}

// A single delay of the machine can make a batch look long. If its cores stayed shared, they would
// finish one by one, and each later task would need a step of its own. The worker takes back only
// the cores of schedulers that it steps in its next round: no other worker is notified when a core
// of its batch finishes. It does so only after a second short batch: the first one says little
// about the kernels of the shared cores.
void Pool::take_back(Worker& worker) noexcept {
  if (worker.short_batches < kShortBatches || worker.calls_back) return;
  for (uint32_t thread = 0; thread < run_.schedulers(); ++thread) {
    if ((worker.again >> thread & 1) == 0) continue;
    for (size_t i = 0; i < 2; ++i) {
      const uint64_t mine = worker.lent.words[i] & run_.topology().thread_cores[thread].words[i];
      if (mine == 0) continue;
      worker.lent.words[i] &= ~mine;
      worker.batch.words[i] |= shared_[i].fetch_and(~mine, std::memory_order_seq_cst) & mine;
    }
  }
}

void Pool::hand_over(Worker& worker) noexcept {
  for (uint32_t thread = 0; thread < run_.schedulers(); ++thread) {
    if ((worker.again >> thread & 1) == 0) continue;
    run_.wake(thread);
  }
  worker.again = 0;
}

// Kernels are short, but several schedulers have had work for a while. Wake their home workers,
// which take them over.
void Pool::wake_home_workers(Worker& worker) noexcept {
  const bool several = (worker.again & (worker.again - 1)) != 0;
  if (!several || worker.calls_back || parked_.load(std::memory_order_relaxed) == 0) return;
  for (uint32_t thread = 0; thread < run_.schedulers(); ++thread) {
    const bool busy = (worker.again >> thread & 1) != 0;
    if (busy && home_of_[thread] != worker.index && wake_worker(home_of_[thread])) return;
  }
}

uint32_t Pool::home(uint32_t thread) const noexcept {
  const uint64_t serving = active_.load(std::memory_order_relaxed) &
                           ~orchestrating_.load(std::memory_order_relaxed) & all_;
  const uint32_t own = home_of_[thread];
  if (serving == 0 || (serving >> own & 1) != 0) return own;
  return static_cast<uint32_t>(std::countr_zero(serving));
}

void Pool::wake_if_shared() noexcept {
  if (!shared_empty()) wake_one();
}

// Wakes workers for callbacks that wait behind a long callback, and for schedulers whose worker is
// inside a kernel.
void Pool::check_stuck_work() noexcept {
  if (parked_.load(std::memory_order_relaxed) == 0) return;
  for (uint32_t i = 0; i < started_; ++i) {
    if (!in_kernel(activity_.slot(i))) continue;
    run_.wake_all();
    wake_one();
    return;
  }
  wake_if_shared();
}

bool Pool::shared_empty() const noexcept {
  return (shared_[0].load(std::memory_order_seq_cst) |
          shared_[1].load(std::memory_order_seq_cst)) == 0;
}

}  // namespace pto::sim
