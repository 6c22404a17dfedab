// Record the device memory that a kernel reads and writes: by pages for kernels that were given as
// binaries (PageGuard), by bytes for kernels that were built for measurement (Recorder).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "pto/abi/measurement.h"

namespace pto::sim {

// Records which pages of device memory a kernel reads and writes, without the kernel's help.
//
// For kernels that were given as binaries. While a kernel runs, its device memory is protected. The
// first access to a page causes a fault, whose handler records the page and permits reads. The
// first write causes another fault, which permits everything. Use it in deterministic mode only,
// because no other thread may use the memory meanwhile.
class PageGuard {
 public:
  // The memory begins at a page.
  PageGuard(uint64_t base, size_t bytes);
  PageGuard(const PageGuard&) = delete;
  PageGuard& operator=(const PageGuard&) = delete;
  ~PageGuard();

  // Protect the memory for the calling thread. Returns false if the system refuses.
  bool begin();
  // Permit all accesses again. Append a range for each page, by address: PTO_MEASURED_WRITE if the
  // kernel wrote to it, otherwise PTO_MEASURED_READ.
  void end(int64_t task, uint32_t core, std::vector<pto_measured_range>& ranges);

 private:
  friend struct FaultHandler;
  // Called by the handler of faults. Returns false if the fault has another reason.
  bool permit(uint64_t address) noexcept;

  const uint64_t base_;
  const size_t bytes_;
  const size_t page_bytes_;
  uint8_t* states_ = nullptr;    // a sparse array with a state for each page
  uint32_t* touched_ = nullptr;  // a sparse array of the pages of this call
  size_t count_ = 0;
};

// Call a kernel. If it causes a fault, abandon it and return the number of the signal; otherwise
// return 0. Destructors of the abandoned kernel do not run.
int call_until_fault(void (*function)(int64_t*), int64_t* args) noexcept;

// Records which bytes of device memory a kernel reads and writes.
//
// A kernel that was built for measurement calls record_access() for each access. The recorder of
// the calling thread keeps two bits for each byte of the pages that the kernel touches, so repeated
// accesses cost no memory. A byte counts as read only if the kernel has not written it before.
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
