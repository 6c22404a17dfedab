// Chooses the AICPU threads of a run from those that were launched.
//
// The host launches on all usable AICPU processors and cannot choose them exactly: threads start in
// any order, and two may be on one processor. The first thread that arrives is the leader of the
// launch. It opens the gate for a number of threads, waits for their reports, and assigns roles:
// first to one thread for each preferred processor, in the order of the host's list, then to the
// others in the order of their reports. A thread without a role returns at once; the leader always
// stays.
#pragma once

#include <atomic>
#include <cstdint>

#include "device/access.hpp"

namespace pto::a2a3 {

class Gate {
 public:
  static constexpr uint32_t kMaxThreads = 64;
  static constexpr int32_t kNoRole = -1;

  // Every thread calls this first. Returns true to the leader. `sequence` numbers the launches.
  bool enter(uint64_t sequence) {
    uint64_t current = claimed_.load(std::memory_order_acquire);
    return current < sequence &&
           claimed_.compare_exchange_strong(current, sequence, std::memory_order_acq_rel);
  }

  // Leader: opens the gate. Only then may wait_for_role() report.
  void open(uint64_t sequence) {
    reports_.store(0, std::memory_order_relaxed);
    for (auto& processor : processor_) processor.store(kUnknown, std::memory_order_relaxed);
    decided_.store(0, std::memory_order_relaxed);
    opened_.store(sequence, std::memory_order_release);
  }

  // Reports the calling thread. Returns its number, kMaxThreads if there are too many.
  uint32_t report(int32_t processor) {
    const uint32_t number = reports_.fetch_add(1, std::memory_order_acq_rel);
    if (number >= kMaxThreads) return kMaxThreads;
    processor_[number].store(processor, std::memory_order_release);
    Aicpu::changed();
    return number;
  }

  // Called by the leader. Waits until the first `needed` of the preferred processors have reported;
  // after `patience_ns`, any `needed` of them suffice. The wait also ends when all launched threads
  // have reported, and after `timeout_ns`. Then assigns `needed` roles. Returns the number of
  // threads that reported.
  uint32_t decide(uint64_t sequence, uint32_t needed, uint32_t launched, const uint16_t* preferred,
                  uint32_t num_preferred, uint64_t patience_ns, uint64_t timeout_ns) {
    const uint64_t start = Aicpu::now_ns(), end = start + timeout_ns;
    const uint32_t num_best = needed < num_preferred ? needed : num_preferred;
    uint32_t reported;
    while (true) {
      const uint32_t seen = Aicpu::changes();
      reported = num_reported();
      if (reported >= launched || Aicpu::now_ns() >= end) break;
      const bool is_patient = Aicpu::now_ns() - start < patience_ns;
      const uint32_t accepted = is_patient ? num_best : num_preferred;
      if (give_roles(needed, reported, preferred, accepted, false) == needed) break;
      Aicpu::rest(seen);
    }
    const bool suffices = give_roles(needed, reported, preferred, num_preferred, true) == needed;
    decided_.store(suffices ? sequence : kRefused, std::memory_order_release);
    Aicpu::changed();
    return reported;
  }

  // Waits for the leader's decision, which comes in bounded time, and returns the role.
  int32_t wait_for_role(uint64_t sequence, uint32_t number) const {
    if (number >= kMaxThreads) return kNoRole;
    while (true) {
      const uint32_t seen = Aicpu::changes();
      const uint64_t decided = decided_.load(std::memory_order_acquire);
      if (decided == sequence) return role_[number];
      if (decided == kRefused) return kNoRole;
      Aicpu::rest(seen);
    }
  }

  // Called by the other threads: waits until the gate is open. Returns false if the leader abandons
  // the launch.
  bool wait_until_open(uint64_t sequence) const {
    while (true) {
      const uint32_t seen = Aicpu::changes();
      const uint64_t opened = opened_.load(std::memory_order_acquire);
      if (opened >= sequence) return opened == sequence;
      if (refused_.load(std::memory_order_acquire) >= sequence) return false;
      Aicpu::rest(seen);
    }
  }

  // Leader: the launch ends before the gate was opened.
  void refuse(uint64_t sequence) {
    refused_.store(sequence, std::memory_order_release);
    Aicpu::changed();
  }

 private:
  static constexpr uint64_t kRefused = ~uint64_t{0};
  static constexpr int32_t kUnknown = -2;  // sched_getcpu() returns -1 if it fails

  // The threads that have reported completely, without a gap.
  uint32_t num_reported() const {
    const uint32_t count = reports_.load(std::memory_order_acquire);
    uint32_t complete = 0;
    while (complete < count && complete < kMaxThreads &&
           processor_[complete].load(std::memory_order_acquire) != kUnknown) {
      ++complete;
    }
    return complete;
  }

  uint32_t give_roles(uint32_t needed, uint32_t reported, const uint16_t* preferred,
                      uint32_t num_preferred, bool fill) {
    for (int32_t& role : role_) role = kNoRole;
    uint32_t given = 0;
    for (uint32_t i = 0; i < num_preferred && given < needed; ++i) {
      uint32_t number = 0;
      while (number < reported &&
             processor_[number].load(std::memory_order_relaxed) != preferred[i])
        ++number;
      if (number < reported) role_[number] = static_cast<int32_t>(given++);
    }
    for (uint32_t number = 0; fill && number < reported && given < needed; ++number) {
      if (role_[number] == kNoRole) role_[number] = static_cast<int32_t>(given++);
    }
    return given;
  }

  std::atomic<uint64_t> claimed_{0};
  std::atomic<uint64_t> opened_{0};
  std::atomic<uint64_t> refused_{0};
  std::atomic<uint64_t> decided_{0};
  std::atomic<uint32_t> reports_{0};
  std::atomic<int32_t> processor_[kMaxThreads];
  int32_t role_[kMaxThreads];  // by number of the report; complete once decided_ is set
};

}  // namespace pto::a2a3
