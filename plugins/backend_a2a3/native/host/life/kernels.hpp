// The kernels on one open card. One thread at a time calls.
//
// A card runs linked code where the host uploaded it. After an upload the cores need a new stream,
// because an older one may run what their instruction caches contain; prepare_run() renews it. A
// page that has held code gets no other code while the card is open: a processor may still have the
// old instructions. The device process of the fake driver also loads shared libraries.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "life/aicpu_device.hpp"
#include "pto/abi/backend.h"
#include "pto/abi/status.h"

namespace pto::a2a3 {

// The code of a kernel in the ELF file that the recipe of a kernel links at address 0.
//
// Only the code is uploaded, and it runs at any address. So a file is refused if its code needs
// anything else: a relocation that the linker did not apply, or data in another section.
struct LinkedCode {
  std::string_view bytes;  // in the file
  uint64_t alignment = 0;
  uint64_t entry = 0;  // offset of the entry in `bytes`
};

// Returns whether the file is a shared library, which only a native device loads.
bool is_shared_library(std::string_view file);

// Finds the code and its entry. `kernel` names the kernel in messages. On error `code` is
// unchanged.
pto_status read_linked_code(std::string_view file, const char* kernel, std::string_view entry,
                            LinkedCode* code, pto_error* error);

class Kernels {
 public:
  Kernels(Card& card, AicpuDevice& aicpu) : card_(card), aicpu_(aicpu) {}

  pto_status load(const pto_kernel_source& source, uint64_t* address, pto_error* error);
  pto_status unload(uint64_t address);
  // To be called before each launch.
  pto_status prepare_run(pto_error* error);
  struct Kernel {
    uint64_t library;  // handle of a shared library; 0: uploaded code
    std::string name;
    std::string path;
  };
  // By the address that load() returned.
  const std::map<uint64_t, Kernel>& all() const noexcept { return kernels_; }
  // Frees all uploaded code; on an unusable card it is forgotten. AicpuDevice::close() unloads the
  // libraries.
  void close();

 private:
  pto_status upload(const std::string& file, const pto_kernel_source& source, uint64_t* address,
                    pto_error* error);

  Card& card_;
  AicpuDevice& aicpu_;
  std::map<uint64_t, Kernel> kernels_;
  std::vector<uint64_t> blocks_;  // of device memory with code, also of unloaded kernels
  bool has_new_code_ = false;
};

}  // namespace pto::a2a3
