// The measured accesses of a run; see pto/abi/measurement.h.
#pragma once

#include <sys/uio.h>
#include <unistd.h>

#include <mutex>
#include <vector>

#include "pto/abi/measurement.h"

namespace pto::core {

// Collects the ranges that the backend reports. Any thread may add ranges during the run.
//
// With `keeps_bytes` it also copies the bytes of each range that a call wrote, which later calls
// may overwrite. The bytes of all these ranges follow each other in written(). It copies at most
// kMostBytes, in the order of the ranges.
class Measured {
 public:
  static constexpr size_t kMostBytes = size_t{1} << 30;

  explicit Measured(bool keeps_bytes) : keeps_bytes_(keeps_bytes) {}
  Measured(const Measured&) = delete;
  Measured& operator=(const Measured&) = delete;

  const pto_measurement* measurement() const { return &measurement_; }
  // Call it when the run has ended.
  const std::vector<pto_measured_range>& ranges() const { return ranges_; }
  const std::vector<char>& written() const { return written_; }
  static bool keeps_bytes(const pto_measurement& measurement) {
    return static_cast<const Measured*>(measurement.context)->keeps_bytes_;
  }

 private:
  static void add(void* context, const pto_measured_range* ranges, uint64_t count) {
    auto& self = *static_cast<Measured*>(context);
    const std::lock_guard lock(self.mutex_);
    self.ranges_.insert(self.ranges_.end(), ranges, ranges + count);
    if (!self.keeps_bytes_) return;
    for (const pto_measured_range* range = ranges; range != ranges + count; ++range) {
      if (range->kind == PTO_MEASURED_WRITE) self.keep(*range);
    }
  }

  // Copy by a system call, because a kernel that crashed reports addresses that do not exist. Bytes
  // that cannot be read count as zeros.
  void keep(const pto_measured_range& range) {
    const size_t bytes = range.end - range.begin;
    is_full_ = is_full_ || bytes > kMostBytes - written_.size();
    if (is_full_) return;
    written_.resize(written_.size() + bytes);
    const iovec to{written_.data() + written_.size() - bytes, bytes};
    const iovec from{reinterpret_cast<void*>(range.begin), bytes};
    process_vm_readv(getpid(), &to, 1, &from, 1, 0);
  }

  const bool keeps_bytes_;
  bool is_full_ = false;
  std::mutex mutex_;
  std::vector<pto_measured_range> ranges_;
  std::vector<char> written_;
  const pto_measurement measurement_{this, &Measured::add};
};

}  // namespace pto::core
