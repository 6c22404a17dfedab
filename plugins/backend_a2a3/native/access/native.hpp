// Access policies for threads of one process that play AICPU and cores.
//
// Memory is coherent, so cache maintenance does nothing, and the orders are those of the atomic
// registers and flags. A thread that polls may sleep: the functions silicon_* belong to the program
// that plays the silicon.
#pragma once

#include <time.h>

#include <cstdint>
#include <cstring>

#include "abi/launch.h"

extern "C" {
// AICPU: a register or a flag of an AICPU thread has changed; wakes threads that wait for it.
void silicon_changed(uint64_t address);
// AICPU: returns a number that changes when anything changes.
uint32_t silicon_changes(void);
// AICPU: returns when silicon_changes() differs from `seen`, and after at most 1 ms.
void silicon_rest(uint32_t seen);
// Core: returns when the doorbell differs from `seen`, and after at most 10 ms.
void silicon_wait(uint32_t seen);
// Core: the place of the calling thread.
uint32_t silicon_block(void);
uint32_t silicon_blocks(void);
uint32_t silicon_subblock(void);
uint32_t silicon_physical(void);
uint64_t silicon_page(void);
void silicon_set_flag_base(uint64_t address);
// Core: keeps the address of the texts of its kernels, and returns it, 0 on any other thread.
void silicon_set_texts(uint64_t address);
uint64_t silicon_texts(void);
// Core: calls a kernel. Returns 1, or 0 if the kernel has called silicon_leave_kernel().
int silicon_call(uint64_t kernel, uint64_t* arguments);
void silicon_leave_kernel(void);
}

namespace pto::a2a3 {

struct NativeMemory {
  template <class Value>
  static Value load(const Value* from) {
    return *from;
  }
  template <class Value>
  static void store(Value* to, Value value) {
    *to = value;
  }
  static void copy(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }
  template <class Value>
  static Value load_flag(const Value* from) {
    return __atomic_load_n(from, __ATOMIC_ACQUIRE);
  }
  template <class Value>
  static void store_flag(Value* to, Value value) {
    __atomic_store_n(to, value, __ATOMIC_RELEASE);
  }
  static void clean(const void*, size_t) {}
  static void invalidate(const void*, size_t) {}
  static void order_stores() {}
  static void order_loads() {}
};

struct NativeAicpu : NativeMemory {
  static uint32_t load_register(uint64_t address) {
    return __atomic_load_n(reinterpret_cast<const uint32_t*>(address), __ATOMIC_ACQUIRE);
  }
  static void store_register(uint64_t address, uint32_t value) {
    __atomic_store_n(reinterpret_cast<uint32_t*>(address), value, __ATOMIC_SEQ_CST);
    silicon_changed(address);
  }
  static uint64_t now_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
  }
  static uint32_t changes() { return silicon_changes(); }
  static void rest(uint32_t seen) { silicon_rest(seen); }
  static void changed() { silicon_changed(0); }
};

struct NativeCore : NativeMemory {
  static uint32_t block() { return silicon_block(); }
  static uint32_t blocks() { return silicon_blocks(); }
  static uint32_t subblock() { return silicon_subblock(); }
  static uint32_t physical() { return silicon_physical(); }
  static void set_flag_base(uint64_t address) { silicon_set_flag_base(address); }
  static uint32_t load_doorbell() {
    return NativeAicpu::load_register(silicon_page() + PTO_A2A3_DATA_MAIN_BASE);
  }
  static void store_cond(uint32_t value) {
    NativeAicpu::store_register(silicon_page() + PTO_A2A3_COND, value);
  }
  // No code is in the first page of the address space.
  static bool is_code(uint64_t address) { return address >= 4096; }
  static void invalidate_all() {}
  static void clean_all() {}
  static void set_texts(uint64_t address) { silicon_set_texts(address); }
  static bool call(uint64_t kernel, uint64_t* arguments) {
    return silicon_call(kernel, arguments) != 0;
  }
  static void wait(uint32_t seen) { silicon_wait(seen); }
};

struct NativeAic : NativeCore {
  static bool is_aic() { return true; }
};

struct NativeAiv : NativeCore {
  static bool is_aic() { return false; }
};

}  // namespace pto::a2a3
