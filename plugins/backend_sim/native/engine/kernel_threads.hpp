// The threads of kernels that may wait for each other (PTO_DISPATCH_TOGETHER): each has its own, so
// that all of them progress.
//
// The thread of a core starts when the core first runs such a kernel, and is parked between its
// kernels. So a device has at most as many of these threads as cores, and usually none.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

#include "activity.hpp"
#include "options.hpp"
#include "run/run.hpp"

namespace pto::sim {

class KernelThreads {
 public:
  // What the owner does when the first kernel begins, when a kernel has ended, and when the last
  // one has. The last two are called by the threads.
  struct Events {
    std::function<void()> busy;
    std::function<void(uint32_t scheduler)> ended;
    std::function<void()> idle;
  };

  // `first`: the number of the thread of core 0. Numbers select activity slots and tracks.
  KernelThreads(SimRun& run, ActivityPage& activity, uint32_t first, int32_t device, Events events)
      : run_(run), activity_(activity), first_(first), device_(device), events_(events) {}
  KernelThreads(const KernelThreads&) = delete;
  KernelThreads& operator=(const KernelThreads&) = delete;
  // Waits for the threads, none of which may be stuck, unless they were detached.
  ~KernelThreads();

  // Starts the kernels of these cores. If the system has no further threads, their tasks fail.
  void start(pto_core_mask cores) noexcept;
  // Runs acknowledged kernels to their ends. The caller's thread records them, in the order of the
  // cores.
  void run(pto_core_mask cores) noexcept;
  void detach() noexcept;

 private:
  static constexpr uint32_t kExit = UINT32_MAX;

  struct KernelThread {
    std::atomic<uint32_t> wanted{0};  // futex: number of kernels to run, or kExit
    std::thread thread;
  };

  bool prepare(pto_core_mask cores) noexcept;
  void work(uint32_t core) noexcept;
  void run_kernel(uint32_t core) noexcept;
  void end_peers(uint32_t core) noexcept;
  uint32_t track(uint32_t core) const noexcept;

  SimRun& run_;
  ActivityPage& activity_;
  const uint32_t first_;
  const int32_t device_;
  const Events events_;
  bool is_recorded_ = false;  // whether the caller of run() records the kernels
  std::mutex mutex_;
  std::atomic<uint32_t> running_{0};  // futex: number of kernels; changed with the mutex held
  KernelThread threads_[PTO_MAX_CORES];
};

}  // namespace pto::sim
