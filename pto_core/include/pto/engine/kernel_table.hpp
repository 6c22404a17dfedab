// The kernels of a run by function id.
#pragma once

#include <cstdint>

#include "pto/abi/runtime.h"
#include "pto/engine/latch.hpp"
#include "pto/engine/memory.hpp"

namespace pto::engine {

class KernelTable {
 public:
  static constexpr int32_t kMaxFunctions = 4096;

  bool create(Memory& memory) {
    memory_ = &memory;
    kernels_ = static_cast<Kernels*>(memory.reserve(sizeof(Kernels)));
    return kernels_ != nullptr;
  }

  void destroy() {
    if (memory_ != nullptr) memory_->release(kernels_, sizeof(Kernels));
  }

  static bool is_id(int32_t func_id) { return func_id >= 0 && func_id < kMaxFunctions; }

  // Return the address of kernel `func_id`, or 0 if none is registered.
  uint64_t address(int32_t func_id) const {
    return is_id(func_id) ? kernels_->address[func_id] : 0;
  }

  // Return the core type of the kernel, or -1 if the caller did not state it.
  int32_t core_type(int32_t func_id) const {
    return address(func_id) != 0 ? kernels_->core_type[func_id] : -1;
  }

  // Return the signature that submits must fit, or null.
  const pto_signature* signature(int32_t func_id) const {
    return is_id(func_id) ? kernels_->signature[func_id] : nullptr;
  }

  void set(int32_t func_id, uint64_t address, int32_t core_type,
           const pto_signature* signature = nullptr) {
    kernels_->address[func_id] = address;
    kernels_->signature[func_id] = signature;
    kernels_->core_type[func_id] = static_cast<int8_t>(core_type);
    if (func_id >= end_) end_ = func_id + 1;
  }

  // Register a kernel of a run. Latch an error for invalid arguments. Return the status of the run.
  pto_status add(const pto_kernel_entry& kernel, ErrorLatch& latch) {
    const int32_t func_id = kernel.func_id;
    ErrorFacts facts{PTO_ERROR_USAGE, -1, -1, func_id};
    if (!is_id(func_id)) {
      facts.status = PTO_ERROR_CAPACITY;
      facts.limit = kMaxFunctions - 1;
      latch.latch(facts, "kernel function id ", func_id, " is out of range; use 0 to ",
                  kMaxFunctions - 1);
    } else if (address(func_id) != 0) {
      latch.latch(facts, "two kernels have the function id ", func_id,
                  "; use a different number for each");
    } else if (kernel.address == 0) {
      latch.latch(facts, "the kernel with function id ", func_id,
                  " has no address; load it before the run");
    } else {
      set(func_id, kernel.address, kernel.core_type, kernel.signature);
    }
    return latch.status();
  }

  // Return an array of kMaxFunctions addresses, which are 0 where no kernel is registered.
  const uint64_t* addresses() const { return kernels_->address; }

  // Return the largest registered id plus one.
  int32_t end() const { return end_; }

  void clear() {
    for (int32_t func_id = 0; func_id < end_; ++func_id) set(func_id, 0, 0);
    end_ = 0;
  }

 private:
  struct Kernels {
    uint64_t address[kMaxFunctions];
    const pto_signature* signature[kMaxFunctions];
    int8_t core_type[kMaxFunctions];
  };

  Memory* memory_ = nullptr;
  Kernels* kernels_ = nullptr;
  int32_t end_ = 0;
};

}  // namespace pto::engine
