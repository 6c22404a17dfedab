#include "engine/kernel_threads.hpp"

#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <system_error>

#include "engine/engine.hpp"
#include "waiting.hpp"

namespace pto::sim {

KernelThreads::~KernelThreads() {
  for (KernelThread& one : threads_) {
    if (!one.thread.joinable()) continue;
    one.wanted.store(kExit, std::memory_order_release);
    unpark(one.wanted);
    one.thread.join();
  }
}

void KernelThreads::start(pto_core_mask cores) noexcept {
  const std::lock_guard lock(mutex_);
  const bool has_threads = prepare(cores);
  while (!empty(cores)) {
    const uint32_t core = take_first(cores);
    if (!has_threads) {
      run_.cores().fail_to_start(core);
      continue;
    }
    if (running_.fetch_add(1, std::memory_order_relaxed) == 0 && events_.busy) events_.busy();
    threads_[core].wanted.fetch_add(1, std::memory_order_release);
    unpark(threads_[core].wanted);
  }
}

void KernelThreads::run(pto_core_mask cores) noexcept {
  Tracer& tracer = run_.tracer();
  is_recorded_ = true;
  for (pto_core_mask rest = cores; !empty(rest);) {
    const uint32_t core = take_first(rest);
    tracer.start_kernel(track(core), run_.cores().payload(core), core);
  }
  start(cores);
  for (uint32_t left; (left = running_.load(std::memory_order_acquire)) != 0;) park(running_, left);
  for (pto_core_mask rest = cores; !empty(rest);) {
    const uint32_t core = take_first(rest);
    tracer.end_kernel(track(core), run_.cores().payload(core), core, 0);
  }
}

void KernelThreads::detach() noexcept {
  for (KernelThread& one : threads_) {
    if (one.thread.joinable()) one.thread.detach();
  }
}

// Starts the threads that these cores do not have yet. Returns false if the system has no further
// threads.
bool KernelThreads::prepare(pto_core_mask cores) noexcept try {
  while (!empty(cores)) {
    const uint32_t core = take_first(cores);
    if (threads_[core].thread.joinable()) continue;
    const SignalsBlocked blocked;
    threads_[core].thread = std::thread([this, core] { work(core); });
    pthread_setname_np(threads_[core].thread.native_handle(), "pto-sim");
  }
  return true;
} catch (const std::system_error&) {
  return false;
}

void KernelThreads::work(uint32_t core) noexcept {
  const AlternateStack stack;
  KernelThread& one = threads_[core];
  for (uint32_t done = 0;;) {
    const uint32_t wanted = one.wanted.load(std::memory_order_acquire);
    if (wanted == kExit) return;
    if (wanted == done) {
      park(one.wanted, wanted);
      continue;
    }
    run_kernel(core);
    ++done;
  }
}

void KernelThreads::run_kernel(uint32_t core) noexcept {
  Cores& cores = run_.cores();
  static_assert(kMostWorkers + PTO_MAX_CORES <= PTO_ACTIVITY_SLOTS);
  pto_activity_slot& slot = activity_.slot(first_ + core);
  const CrashNote note = {activity_.page(), &slot, device_, &run_.topology().blocks,
                          activity_.is_shared()};
  set_crash_note(&note);
  const uint32_t scheduler = cores.scheduler(core);
  if (!is_recorded_) cores.acknowledge(core);
  cores.execute(core, slot, is_recorded_ ? Cores::kUntraced : track(core));
  set_crash_note(nullptr);
  if (cores.faulted(core)) end_peers(core);
  if (events_.ended) events_.ended(scheduler);
  const std::lock_guard lock(mutex_);
  if (running_.fetch_sub(1, std::memory_order_release) != 1) return;
  unpark(running_);
  if (events_.idle) events_.idle();
}

// Ends the other kernels on these threads after one has failed: those that wait for it would never
// return. Kernels that end by themselves soon are left alone.
void KernelThreads::end_peers(uint32_t core) noexcept {
  constexpr int kMostWaits = 500;
  for (int waits = 0; waits <= kMostWaits; ++waits) {
    std::unique_lock lock(mutex_);
    bool is_alone = true;
    for (uint32_t other = 0; other < run_.topology().cores; ++other) {
      if (other == core || !threads_[other].thread.joinable()) continue;
      if (run_.cores().finished(other)) continue;
      is_alone = false;
      if (waits == kMostWaits) send_leave(threads_[other].thread.native_handle());
    }
    if (is_alone) return;
    lock.unlock();
    const timespec millisecond{0, 1'000'000};
    nanosleep(&millisecond, nullptr);
  }
}

// Threads for which no track is left share the last one.
uint32_t KernelThreads::track(uint32_t core) const noexcept {
  return std::min<uint32_t>(first_ + core, kMostWorkers - 1);
}

}  // namespace pto::sim
