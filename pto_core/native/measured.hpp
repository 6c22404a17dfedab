// The measured accesses of a run; see pto/abi/measurement.h.
#pragma once

#include <mutex>
#include <vector>

#include "pto/abi/measurement.h"

namespace pto::core {

// Collects the ranges that the backend reports. Any thread may add ranges during the run.
class Measured {
 public:
  Measured() = default;
  Measured(const Measured&) = delete;
  Measured& operator=(const Measured&) = delete;

  const pto_measurement* measurement() const { return &measurement_; }
  // Call it when the run has ended.
  const std::vector<pto_measured_range>& ranges() const { return ranges_; }

 private:
  static void add(void* context, const pto_measured_range* ranges, uint64_t count) {
    auto& self = *static_cast<Measured*>(context);
    const std::lock_guard lock(self.mutex_);
    self.ranges_.insert(self.ranges_.end(), ranges, ranges + count);
  }

  std::mutex mutex_;
  std::vector<pto_measured_range> ranges_;
  const pto_measurement measurement_{this, &Measured::add};
};

}  // namespace pto::core
