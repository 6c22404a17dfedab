#include "engine/pool.hpp"

#include <pthread.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "engine/engine.hpp"
#include "options.hpp"
#include "waiting.hpp"

namespace pto::sim {
namespace {

constexpr uint64_t kVisitor = uint64_t{1} << 63;
constexpr uint64_t kTogether = uint64_t{1} << 62;
static_assert(kMostWorkers <= 62, "the lower bits are those of the workers");
// How often a waiting caller checks whether callbacks wait behind a long callback.
constexpr int64_t kCheckNs = 10'000'000;

constexpr uint64_t bit(uint32_t index) noexcept {
  return uint64_t{1} << index;
}

// The pool to which the calling thread belongs as a worker, if any.
__thread const Pool* pool_of_thread __attribute__((tls_model("initial-exec"))) = nullptr;

}  // namespace

Pool::Pool(SimRun& run, ActivityPage& activity, uint32_t workers, int32_t device)
    : run_(run),
      activity_(activity),
      all_(bit(workers) - 1),
      workers_(std::make_unique<Worker[]>(workers)),
      threads_(run, activity, workers, device,
               {[this] { enter(kTogether); }, [this](uint32_t scheduler) { wake(scheduler); },
                [this] { leave(kTogether); }}) {
  for (uint32_t thread = 0; thread < PTO_MAX_AICPU_THREADS; ++thread) {
    home_of_[thread] = thread % workers;
  }
  const SignalsBlocked blocked;
  try {
    while (started_ < workers) start_worker(device);
  } catch (...) {
    stop_workers();
    throw;
  }
}

Pool::~Pool() {
  stop_workers();
}

void Pool::start_worker(int32_t device) {
  Worker& worker = workers_[started_];
  worker.index = started_;
  worker.note = {activity_.page(), &activity_.slot(started_), device, &run_.topology().blocks,
                 activity_.is_shared()};
  worker.thread = std::thread([this, &worker] { work(worker); });
  pthread_setname_np(worker.thread.native_handle(), "pto-sim");
  ++started_;
}

void Pool::stop_workers() noexcept {
  closing_.store(true, std::memory_order_seq_cst);
  while (wake_one()) {
  }
  for (uint32_t i = 0; i < started_; ++i) workers_[i].thread.join();
}

void Pool::start(bool with_library) {
  over_.store(0, std::memory_order_relaxed);
  for (auto& word : shared_) word.store(0, std::memory_order_relaxed);
  orchestrating_worker_.store(0, std::memory_order_relaxed);
  orchestration_pending_.store(with_library, std::memory_order_relaxed);
  run_.begin();
  wake_if_all_parked();
  // the woken worker runs the orchestration
  if (with_library && run_.may_step()) wake_one();
}

void Pool::orchestration_done(int32_t result) {
  run_.orchestration_done(result);
  run_.wake_all();
  wake_if_all_parked();
}

bool Pool::wait(int64_t timeout_ns) {
  const uint64_t start_ns = clock_ns();
  for (Backoff backoff; over_.load(std::memory_order_acquire) == 0;) {
    if (timeout_ns == 0) return false;
    if (backoff.again()) continue;
    int64_t left_ns = kCheckNs;
    if (timeout_ns > 0) left_ns = timeout_ns - static_cast<int64_t>(clock_ns() - start_ns);
    if (left_ns <= 0) return false;
    check_stuck_work();
    run_.attend_to_wait();
    caller_parked_.store(1, std::memory_order_seq_cst);
    if (over_.load(std::memory_order_seq_cst) == 0) park(over_, 0, std::min(left_ns, kCheckNs));
    caller_parked_.store(0, std::memory_order_relaxed);
  }
  return true;
}

void Pool::ended() {
  enter(kVisitor);
  leave(kVisitor);
}

void Pool::abandon() {
  lost_.store(true, std::memory_order_seq_cst);
  closing_.store(true, std::memory_order_seq_cst);
  run_.force_over();
  notify();
  signal_over();
  while (wake_one()) {  // each thread that is not inside a kernel ends now
  }
}

void Pool::detach_threads() {
  for (uint32_t i = 0; i < started_; ++i) workers_[i].thread.detach();
  threads_.detach();
}

bool Pool::stuck() const {
  return lost_.load(std::memory_order_seq_cst) && active_.load(std::memory_order_seq_cst) != 0;
}

void Pool::wake(uint32_t thread) {
  run_.wake(thread);
  const uint64_t parked = parked_.load(std::memory_order_seq_cst);
  if (parked == 0) return;
  const bool no_worker_polls = (parked | orchestrating_.load(std::memory_order_seq_cst)) == all_;
  if (no_worker_polls || in_kernel(activity_.slot(home(thread)))) wake_one();
}

void Pool::wait_for_word(const uint32_t* word, uint32_t expected) {
  const Until until{word, expected};
  if (until.reached()) return;
  run_.begin_wait(word, expected);
  if (pool_of_thread == this) {
    wait_on_worker(workers_[orchestrating_worker_.load(std::memory_order_relaxed) - 1], until);
  } else {
    wait_on_caller(until);
  }
  run_.end_wait();
}

void Pool::notify() {
  word_signal_.fetch_add(1, std::memory_order_seq_cst);
  const uint32_t worker = orchestrating_worker_.load(std::memory_order_seq_cst);
  if (worker != 0) {
    wake_worker(worker - 1);
  } else if (word_parked_.load(std::memory_order_seq_cst) != 0) {
    unpark(word_signal_);
  }
}

// While the orchestrator waits, its worker serves the other agents: on a machine with one
// processor, no other thread can do so.
void Pool::wait_on_worker(Worker& worker, const Until& until) noexcept {
  orchestrating_.fetch_and(~bit(worker.index), std::memory_order_seq_cst);
  while (run_.running() && !until.reached()) {
    serve(worker, until);
    if (!run_.running() || until.reached()) break;
    orchestrating_.fetch_or(bit(worker.index), std::memory_order_seq_cst);
    sleep(worker, until);
    orchestrating_.fetch_and(~bit(worker.index), std::memory_order_seq_cst);
  }
  orchestrating_.fetch_or(bit(worker.index), std::memory_order_seq_cst);
  hand_over(worker);
  if (has_work({})) wake_if_all_parked();
}

// Wakes a thread that checks whether this wait can ever end. The workers may be about to park,
// because they saw the orchestrator running.
void Pool::wait_on_caller(const Until& until) noexcept {
  run_.wake_all();
  wake_if_all_parked();
  uint64_t attended_ns = clock_ns();
  for (Backoff backoff; run_.running() && !until.reached();) {
    if (backoff.again()) continue;
    const uint32_t signal = word_signal_.load(std::memory_order_seq_cst);
    word_parked_.store(1, std::memory_order_seq_cst);
    if (run_.running() && !until.reached()) park(word_signal_, signal, SimRun::kAttendNs);
    word_parked_.store(0, std::memory_order_relaxed);
    if (clock_ns() - attended_ns < static_cast<uint64_t>(SimRun::kAttendNs)) continue;
    check_stuck_work();
    run_.attend();
    attended_ns = clock_ns();
  }
}

void Pool::work(Worker& worker) noexcept {
  const AlternateStack stack;
  set_crash_note(&worker.note);
  pool_of_thread = this;
  Backoff backoff;
  while (!closing_.load(std::memory_order_acquire)) {
    if (run_.running()) {
      enter(bit(worker.index));
      if (worker.parked_at != 0 && run_.running()) {
        run_.tracer().record_park(worker.index, std::exchange(worker.parked_at, 0));
      }
      serve(worker, {});
      leave(bit(worker.index));
      backoff.reset();
      if (run_.running()) sleep(worker, {});
    } else if (!backoff.again()) {
      sleep(worker, {});
      backoff.reset();
    }
  }
}

// Returns when the run ends, when `until` is reached, or when no work is left.
void Pool::serve(Worker& worker, const Until& until) noexcept {
  worker.rounds = 0;
  for (Backoff backoff; run_.running() && !until.reached();) {
    if (until.word == nullptr && orchestration_pending_.load(std::memory_order_relaxed) &&
        orchestration_pending_.exchange(false, std::memory_order_acq_rel)) {
      orchestrate(worker);
      backoff.reset();
      continue;
    }
    if (round(worker)) {
      backoff.reset();
      continue;
    }
    const bool alone = active_.load(std::memory_order_relaxed) == bit(worker.index);
    if (alone && worker.again == 0 && run_.check_stall()) continue;
    if (backoff.again()) continue;
    backoff.reset();
    if (worker.again == 0 && !run_.check_stall()) break;
  }
  if (!run_.running()) worker.batch = worker.lent = {};
  if (!run_.running()) worker.again = 0;
}

void Pool::orchestrate(Worker& worker) noexcept {
  orchestrating_worker_.store(worker.index + 1, std::memory_order_seq_cst);
  orchestrating_.fetch_or(bit(worker.index), std::memory_order_seq_cst);
  note(activity_.slot(worker.index).orchestrates, uint64_t{1});
  run_.orchestrate();
  note(activity_.slot(worker.index).orchestrates, uint64_t{0});
  orchestrating_.fetch_and(~bit(worker.index), std::memory_order_seq_cst);
  run_.wake_all();
}

void Pool::enter(uint64_t bit) noexcept {
  active_.fetch_or(bit, std::memory_order_seq_cst);
}

void Pool::leave(uint64_t bit) noexcept {
  if (run_.phase() == Phase::ending) notify();
  const SimRun::Number run = run_.number();
  const uint64_t before = active_.fetch_and(~bit, std::memory_order_seq_cst);
  if (before == bit && run_.close(run)) signal_over();
}

void Pool::signal_over() noexcept {
  over_.store(1, std::memory_order_seq_cst);
  if (caller_parked_.load(std::memory_order_seq_cst) != 0) unpark(over_);
}

void Pool::sleep(Worker& worker, const Until& until) noexcept {
  worker.sleeping.store(1, std::memory_order_relaxed);
  const uint64_t own = bit(worker.index);
  parked_.fetch_or(own, std::memory_order_seq_cst);
  if (has_work(until) && (parked_.fetch_and(~own, std::memory_order_seq_cst) & own) != 0) {
    worker.sleeping.store(0, std::memory_order_relaxed);
    return;
  }
  worker.parked_at = run_.tracer().clock();
  // The waking thread clears this worker's bit in parked_, and then this word.
  while (worker.sleeping.load(std::memory_order_acquire) == 1) park(worker.sleeping, 1);
}

bool Pool::has_work(const Until& until) noexcept {
  if (closing_.load(std::memory_order_seq_cst)) return true;
  // Pairs with notify(): if the thread in notify() did not see this worker's bit in parked_, it had
  // already incremented the signal, so this load sees its changes.
  word_signal_.load(std::memory_order_seq_cst);
  if (!run_.running()) return until.word != nullptr;
  if (until.reached()) return true;
  if (until.word == nullptr && orchestration_pending_.load(std::memory_order_seq_cst)) return true;
  if (!shared_empty()) return true;
  return run_.may_step() && run_.wake_pending();
}

bool Pool::wake_worker(uint32_t index) noexcept {
  const uint64_t one = bit(index);
  if ((parked_.load(std::memory_order_seq_cst) & one) == 0) return false;
  if ((parked_.fetch_and(~one, std::memory_order_seq_cst) & one) == 0) return false;
  workers_[index].sleeping.store(0, std::memory_order_release);
  unpark(workers_[index].sleeping);
  return true;
}

bool Pool::wake_one() noexcept {
  for (;;) {
    const uint64_t parked = parked_.load(std::memory_order_seq_cst);
    if (parked == 0) return false;
    if (wake_worker(static_cast<uint32_t>(std::countr_zero(parked)))) return true;
  }
}

void Pool::wake_if_all_parked() noexcept {
  const uint64_t parked = parked_.load(std::memory_order_seq_cst);
  if ((parked | orchestrating_.load(std::memory_order_seq_cst)) == all_) wake_one();
}

// One round of a worker: it steps schedulers, runs some cores, and leaves other cores to other
// workers.

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
  const pto_core_mask together = scheduler.together;
  scheduler.dispatched = scheduler.together = {};
  scheduler.unlock();
  // Also if the run has ended. It is not over, because this worker is active.
  if (!empty(together)) threads_.start(together);
  worker.batch.words[0] |= dispatched.words[0];
  worker.batch.words[1] |= dispatched.words[1];
  const bool progress = result == PTO_STEP_PROGRESS || !empty(dispatched) || !empty(together);
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
  const uint32_t scheduler = cores.scheduler(core);
  cores.acknowledge(core);
  cores.execute(core, activity_.slot(worker.index), worker.index);
  if (!worker.long_kernels && !worker.calls_back) return;
  // Let an idle worker complete the task, because the next round of this worker may start much
  // later.
  run_.wake(scheduler);
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
// of its batch finishes. It does so only after a second short batch: the first short batch says
// little about the kernels of the shared cores.
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
