// Copies of the regions that a task changes in place, to restore them before a retry. They are kept
// while the task may run again.
//
// The total memory is limited: a task reserves memory for its copies at the submit and frees it at
// its end. Only the thread that has the driver role uses this class.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace pto::hierarchy {

struct SavedRange {
  uint64_t address;
  uint64_t bytes;
};

class SavedRegions {
 public:
  explicit SavedRegions(uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // fits(): return whether `bytes` more bytes can be reserved now. fits_ever(): return whether they
  // can be reserved when all copies have been freed.
  bool fits(uint64_t bytes) const { return bytes <= limit_bytes_ - reserved_bytes_; }
  bool fits_ever(uint64_t bytes) const { return bytes <= limit_bytes_; }

  void reserve(int64_t task, std::vector<SavedRange> ranges, uint64_t bytes);
  void save(int64_t task);
  void restore(int64_t task);
  void drop(int64_t task);
  // Free the copies, because the task has ended or was never sent.
  void end(int64_t task);

  uint64_t limit_bytes() const { return limit_bytes_; }
  uint64_t reserved_bytes() const { return reserved_bytes_; }
  uint64_t saved_bytes() const { return saved_bytes_; }
  uint64_t most_saved_bytes() const { return most_saved_bytes_; }
  bool is_empty() const { return kept_.empty(); }

 private:
  struct Kept {
    std::vector<SavedRange> ranges;
    uint64_t bytes;
    std::unique_ptr<std::byte[]> copy;  // null until the task is sent
  };

  std::unordered_map<int64_t, Kept> kept_;
  uint64_t limit_bytes_;
  uint64_t reserved_bytes_ = 0;
  uint64_t saved_bytes_ = 0;
  uint64_t most_saved_bytes_ = 0;
};

}  // namespace pto::hierarchy
