// Records which bytes of device memory a kernel reads and writes.
//
// A kernel that was built for measurement calls record_access() for each access. The recorder of
// the calling thread keeps two bits for each byte of the pages that the kernel touches, so repeated
// accesses cost no memory. A byte counts as read only if the kernel has not written it before.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "pto/abi/measurement.h"

namespace pto::sim {

class Recorder {
 public:
  // Start a call. Only accesses to the `bytes` bytes at `base` count.
  void begin(uint64_t base, uint64_t bytes);
  void add(uint64_t address, uint64_t bytes, bool is_write);
  struct Access {
    uint64_t address = 0;
    uint64_t bytes = 0;
    bool is_write = false;
  };
  // The last access of the call, also outside of device memory; no bytes if there is none.
  const Access& last() const noexcept { return last_; }
  // Append the ranges of the call to `ranges`: those of reads, then those of writes, by address.
  void end(int64_t task, uint32_t core, std::vector<pto_measured_range>& ranges);

 private:
  static constexpr uint64_t kPageBytes = 4096;
  static constexpr uint64_t kWords = kPageBytes / 64;
  struct Page {
    uint64_t number = 0;
    std::array<uint64_t, kWords> read{};
    std::array<uint64_t, kWords> written{};
  };

  Page& page_at(uint64_t number);
  void add_in_page(Page& page, uint64_t first, uint64_t end, bool is_write);

  uint64_t base_ = 0;
  uint64_t bytes_ = 0;
  Access last_;
  std::deque<Page> pages_;
  size_t used_ = 0;  // pages of this call
  std::unordered_map<uint64_t, Page*> by_number_;
  std::array<Page*, 64> recent_{};  // by the lower bits of the number
};

// The recorder that the accesses of this thread reach; NULL outside of a measured kernel.
void set_recorder(Recorder* recorder) noexcept;
// The listener of a kernel library; see measured_kernel.hpp.
void record_access(uint64_t address, uint64_t bytes, int32_t is_write);

}  // namespace pto::sim
