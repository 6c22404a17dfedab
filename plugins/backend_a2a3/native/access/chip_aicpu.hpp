// The access policy of the AICPU: AArch64, whose caches are not coherent with those of the cores
// and with copies of the host. Registers are device memory.
#pragma once

#include <cstdint>
#include <cstring>

#include "abi/chip.h"

namespace pto::a2a3 {

struct ChipAicpu {
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
  static void clean(const void* start, size_t bytes) {
    for_lines(start, bytes, [](uint64_t line) {
      __asm__ volatile("dc cvac, %0" ::"r"(line) : "memory");
    });
  }
  // Lines that this side has changed are written to memory first.
  static void invalidate(const void* start, size_t bytes) {
    for_lines(start, bytes, [](uint64_t line) {
      __asm__ volatile("dc civac, %0" ::"r"(line) : "memory");
    });
    __asm__ volatile("dsb sy" ::: "memory");
  }
  // A clean is complete only after a barrier for loads and stores.
  static void order_stores() { __asm__ volatile("dsb sy" ::: "memory"); }
  static void order_loads() { __asm__ volatile("dsb ld" ::: "memory"); }

  static uint32_t load_register(uint64_t address) {
    return *reinterpret_cast<const volatile uint32_t*>(address);
  }
  static void store_register(uint64_t address, uint32_t value) {
    *reinterpret_cast<volatile uint32_t*>(address) = value;
  }
  // Reads the system counter, which needs no call.
  static uint64_t now_ns() {
    uint64_t ticks, frequency;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    __asm__ volatile("mrs %0, cntfrq_el0" : "=r"(frequency));
    return pto_a2a3_nanoseconds(ticks, frequency);
  }
  // An AICPU thread has its processor for itself, so a poll needs no pause.
  static uint32_t changes() { return 0; }
  static void rest(uint32_t) {}
  static void changed() {}

 private:
  template <class Operation>
  static void for_lines(const void* start, size_t bytes, Operation operation) {
    const uint64_t first = reinterpret_cast<uint64_t>(start) / PTO_A2A3_LINE * PTO_A2A3_LINE;
    const uint64_t end = reinterpret_cast<uint64_t>(start) + bytes;
    for (uint64_t line = first; line < end; line += PTO_A2A3_LINE) operation(line);
  }
};

}  // namespace pto::a2a3
