// Memory that behaves as badly as the contract permits, and access policies over it.
//
// Each side (the AICPU, or one core) has a cache without limit: a line is read from memory when the
// side has dropped it, and reaches memory only through clean() followed by order_stores(). So a
// missing call is not hidden by luck. Registers are seen at once. Every access is made under one
// lock; a thread that polls gives way.
#pragma once

#include <sched.h>

#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "abi/launch.h"

namespace worst {

using Line = std::vector<char>;

struct Side {
  std::map<uint64_t, Line> cache;
  std::map<uint64_t, Line> cleaned;  // reaches memory at the next order_stores()
};

struct Machine {
  std::mutex mutex;
  Side aicpu, core;
  std::map<uint64_t, uint32_t> registers;  // by address
  uint64_t page = 0;                       // of the core
  uint64_t calls = 0;
  uint64_t flag_base = 0;          // of the core
  uint32_t doorbell_at_close = 0;  // when the AICPU gave up the registers

  static uint64_t line_of(uint64_t address) { return address / PTO_A2A3_LINE * PTO_A2A3_LINE; }

  static Line& cached(Side& side, uint64_t line) {
    const auto found = side.cache.find(line);
    if (found != side.cache.end()) return found->second;
    const char* memory = reinterpret_cast<const char*>(line);
    return side.cache.emplace(line, Line(memory, memory + PTO_A2A3_LINE)).first->second;
  }

  static void read(Side& side, void* to, uint64_t from, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) {
      const uint64_t at = from + i;
      static_cast<char*>(to)[i] = cached(side, line_of(at))[at % PTO_A2A3_LINE];
    }
  }

  static void write(Side& side, uint64_t to, const void* from, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) {
      const uint64_t at = to + i;
      cached(side, line_of(at))[at % PTO_A2A3_LINE] = static_cast<const char*>(from)[i];
    }
  }

  static void clean(Side& side, uint64_t start, size_t bytes) {
    for (uint64_t line = line_of(start); line < start + bytes; line += PTO_A2A3_LINE) {
      const auto found = side.cache.find(line);
      if (found != side.cache.end()) side.cleaned[line] = found->second;
    }
  }

  static void order_stores(Side& side) {
    for (const auto& [line, bytes] : side.cleaned) {
      std::memcpy(reinterpret_cast<void*>(line), bytes.data(), bytes.size());
    }
    side.cleaned.clear();
  }
};

inline Machine* machine = nullptr;

// `side()` of `Derived` is the side whose accesses these are.
template <class Derived>
struct Access {
  template <class Value>
  static Value load(const Value* from) {
    const std::lock_guard lock(machine->mutex);
    Value value;
    Machine::read(Derived::side(), &value, reinterpret_cast<uint64_t>(from), sizeof value);
    return value;
  }
  template <class Value>
  static void store(Value* to, Value value) {
    const std::lock_guard lock(machine->mutex);
    Machine::write(Derived::side(), reinterpret_cast<uint64_t>(to), &value, sizeof value);
  }
  // One of the two ranges is private: it has no cache line of the shared blocks.
  static void copy(void* to, const void* from, size_t bytes) {
    const std::lock_guard lock(machine->mutex);
    if (Derived::is_shared(to)) {
      Machine::write(Derived::side(), reinterpret_cast<uint64_t>(to), from, bytes);
    } else {
      Machine::read(Derived::side(), to, reinterpret_cast<uint64_t>(from), bytes);
    }
  }
  template <class Value>
  static Value load_flag(const Value* from) {
    return load(from);
  }
  template <class Value>
  static void store_flag(Value* to, Value value) {
    store(to, value);
  }
  static void clean(const void* start, size_t bytes) {
    const std::lock_guard lock(machine->mutex);
    Machine::clean(Derived::side(), reinterpret_cast<uint64_t>(start), bytes);
  }
  static void invalidate(const void* start, size_t bytes) {
    const std::lock_guard lock(machine->mutex);
    const uint64_t first = Machine::line_of(reinterpret_cast<uint64_t>(start));
    for (uint64_t line = first; line < reinterpret_cast<uint64_t>(start) + bytes;
         line += PTO_A2A3_LINE) {
      Derived::side().cache.erase(line);
    }
  }
  static void order_stores() {
    const std::lock_guard lock(machine->mutex);
    Machine::order_stores(Derived::side());
  }
  static void order_loads() {}
  static uint32_t load_register(uint64_t address) {
    sched_yield();
    const std::lock_guard lock(machine->mutex);
    return machine->registers[address];
  }
  static void store_register(uint64_t address, uint32_t value) {
    const std::lock_guard lock(machine->mutex);
    machine->registers[address] = value;
    if (address == machine->page + PTO_A2A3_FAST_PATH_ENABLE && value == PTO_A2A3_FAST_PATH_CLOSE) {
      machine->doorbell_at_close = machine->registers[machine->page + PTO_A2A3_DATA_MAIN_BASE];
    }
  }
  static bool is_shared(const void* address) {
    const auto* first = reinterpret_cast<const char*>(Derived::shared());
    const auto* at = static_cast<const char*>(address);
    return at >= first && at < first + sizeof(pto_a2a3_cores);
  }
};

inline pto_a2a3_cores* shared_cores = nullptr;

struct Aicpu : Access<Aicpu> {
  static Side& side() { return machine->aicpu; }
  static const void* shared() { return shared_cores; }
};

// The only core: AIV 1 of block 0, in a launch of two blocks.
struct Core : Access<Core> {
  static Side& side() { return machine->core; }
  static const void* shared() { return shared_cores; }
  static bool is_aic() { return false; }
  static uint32_t block() { return 0; }
  static uint32_t blocks() { return 2; }
  static uint32_t subblock() { return 1; }
  static uint32_t physical() { return 42; }
  static void set_flag_base(uint64_t address) { machine->flag_base = address; }
  static void set_texts(uint64_t) {}
  static uint32_t load_doorbell() { return load_register(machine->page + PTO_A2A3_DATA_MAIN_BASE); }
  static void store_cond(uint32_t value) { store_register(machine->page + PTO_A2A3_COND, value); }
  static void wait(uint32_t) { sched_yield(); }
  static bool is_code(uint64_t address) { return address >= 4096; }
  static void invalidate_all() {
    const std::lock_guard lock(machine->mutex);
    side().cache.clear();
  }
  static void clean_all() {
    const std::lock_guard lock(machine->mutex);
    for (const auto& [line, bytes] : side().cache) side().cleaned[line] = bytes;
  }
  static bool call(uint64_t kernel, uint64_t* arguments) {
    ++machine->calls;
    reinterpret_cast<void (*)(uint64_t*)>(kernel)(arguments);
    return true;
  }
};

}  // namespace worst
