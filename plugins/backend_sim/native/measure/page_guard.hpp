// Records which pages of device memory a kernel reads and writes, without the kernel's help.
//
// For kernels that were given as binaries. While a kernel runs, its device memory is protected. The
// first access to a page causes a fault, whose handler records the page and permits reads. The
// first write causes another fault, which permits everything. Use it in deterministic mode only,
// because no other thread may use the memory meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "pto/abi/measurement.h"

namespace pto::sim {

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

}  // namespace pto::sim
