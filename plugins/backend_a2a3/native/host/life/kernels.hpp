// The kernels on one open card. One thread at a time calls.
//
// A card runs linked code where the host uploaded it. After an upload the cores need a new stream,
// because an older one may run what their instruction caches contain; prepare_run() renews it. The
// device process of the fake driver also loads shared libraries of this machine.
#pragma once

#include <map>

#include "life/aicpu_device.hpp"
#include "pto/abi/backend.h"

namespace pto::a2a3 {

class Kernels {
 public:
  Kernels(Card& card, AicpuDevice& aicpu) : card_(card), aicpu_(aicpu) {}

  pto_status load(const pto_kernel_source& source, uint64_t* address, pto_error* error);
  pto_status unload(uint64_t address);
  // To be called before each launch.
  pto_status prepare_run(pto_error* error);
  // Frees all uploaded code; on an unusable card it is forgotten. AicpuDevice::close() unloads the
  // libraries.
  void close();

 private:
  struct Kernel {
    uint64_t library;  // handle of a shared library, or 0
    uint64_t memory;   // address of the uploaded code, or 0
  };

  pto_status upload(const std::string& file, const pto_kernel_source& source, uint64_t* address,
                    pto_error* error);

  Card& card_;
  AicpuDevice& aicpu_;
  std::map<uint64_t, Kernel> kernels_;  // by the address of the entry
  bool has_new_code_ = false;
};

}  // namespace pto::a2a3
