// The kernels on one open card. One thread at a time calls.
//
// A card runs linked code where the host uploaded it. After an upload the cores need a new stream,
// because an older one may run what their instruction caches contain; prepare_run() renews it. A
// page that has held code gets no other code while the card is open: a processor may still have the
// old instructions. The device process of the fake driver also loads shared libraries.
#pragma once

#include <map>
#include <vector>

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
  pto_status upload(const std::string& file, const pto_kernel_source& source, uint64_t* address,
                    pto_error* error);

  Card& card_;
  AicpuDevice& aicpu_;
  std::map<uint64_t, uint64_t> kernels_;  // entry -> handle of a shared library; 0: uploaded code
  std::vector<uint64_t> blocks_;          // of device memory with code, also of unloaded kernels
  bool has_new_code_ = false;
};

}  // namespace pto::a2a3
