// The kernels of a run by function id.
#pragma once

#include <cstdint>

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

  // 0 when nothing is registered under `func_id`.
  uint64_t address(int32_t func_id) const {
    return is_id(func_id) ? kernels_->address[func_id] : 0;
  }

  // -1 when the kernel came without one.
  int32_t core_type(int32_t func_id) const {
    return address(func_id) != 0 ? kernels_->core_type[func_id] : -1;
  }

  void set(int32_t func_id, uint64_t address, int32_t core_type) {
    kernels_->address[func_id] = address;
    kernels_->core_type[func_id] = static_cast<int8_t>(core_type);
    if (func_id >= end_) end_ = func_id + 1;
  }

  // All addresses, kMaxFunctions of them, 0 where there is no kernel.
  const uint64_t* addresses() const { return kernels_->address; }

  // One more than the largest registered id.
  int32_t end() const { return end_; }

  void clear() {
    for (int32_t func_id = 0; func_id < end_; ++func_id) kernels_->address[func_id] = 0;
    end_ = 0;
  }

 private:
  struct Kernels {
    uint64_t address[kMaxFunctions];
    int8_t core_type[kMaxFunctions];
  };

  Memory* memory_ = nullptr;
  Kernels* kernels_ = nullptr;
  int32_t end_ = 0;
};

}  // namespace pto::engine
