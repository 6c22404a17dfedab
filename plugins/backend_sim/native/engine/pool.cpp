#include "engine/pool.hpp"

#include <pthread.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "engine/signals.hpp"

namespace pto::sim {
namespace {

constexpr uint64_t kVisitor = uint64_t{1} << 63;
// How often a waiting caller checks whether callbacks wait behind a long callback.
constexpr int64_t kCheckNs = 10'000'000;

constexpr uint64_t bit(uint32_t index) noexcept {
  return uint64_t{1} << index;
}

// The pool to which the calling thread belongs as a worker, if any.
__thread const Pool* pool_of_thread __attribute__((tls_model("initial-exec"))) = nullptr;

}  // namespace

Pool::Pool(Run& run, ActivityPage& activity, uint32_t workers, int32_t device)
    : run_(run),
      activity_(activity),
      all_(bit(workers) - 1),
      workers_(std::make_unique<Worker[]>(workers)) {
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
    if (run_.running() && !until.reached()) park(word_signal_, signal, Run::kAttendNs);
    word_parked_.store(0, std::memory_order_relaxed);
    if (clock_ns() - attended_ns < static_cast<uint64_t>(Run::kAttendNs)) continue;
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
  const Run::Number run = run_.number();
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

}  // namespace pto::sim
