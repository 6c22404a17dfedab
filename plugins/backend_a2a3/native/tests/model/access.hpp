// The access policies of AICPU and cores over the modelled memory.
//
// Agent 0 of a scenario is the host, agent 1 the AICPU, agents 2 and 3 are cores 0 and 1. Shared
// addresses are numbers only: each access to them is a step of the enumeration.
#pragma once

#include <cstring>
#include <string>

#include "abi/launch.h"
#include "scenario.hpp"

namespace model {

constexpr uint64_t kBase = 0x40000000;
constexpr uint64_t kBytes = 0x1000000;
constexpr uint64_t kPages = 0x10000000;
constexpr uint64_t kPageBytes = 0x100000;
constexpr int kFirstCore = 2;
constexpr uint32_t kFirstPhysical = 10;

[[noreturn]] inline void stop(const Op& op) {
  perform(op);
  std::abort();  // the log of an agent ends before such a step
}

inline void check(bool is_right, const char* text) {
  if (is_right) return;
  Op op;
  op.kind = Op::violation;
  op.text = text;
  stop(op);
}

inline void retry_from(size_t step) {
  Op op;
  op.kind = Op::retry;
  op.value = step;
  stop(op);
}

// Repeats the condition until it holds. It must not change the state of the agent before.
template <class Condition>
void until(Condition holds) {
  const size_t head = replay->next;
  if (!holds()) retry_from(head);
}

inline uint64_t address_of(const volatile void* place) {
  return reinterpret_cast<uint64_t>(place);
}
inline bool is_shared(const void* place) {
  return address_of(place) - kBase < kBytes;
}

inline Op access(Op::Kind kind, uint64_t address, size_t bytes) {
  const Scenario& scenario = *replay->scenario;
  Op op;
  op.kind = kind;
  op.line = scenario.line(address);
  op.word = static_cast<int>(address % kLineBytes / 4);
  op.size = static_cast<int>(bytes);
  const uint64_t end = address + bytes;
  for (uint64_t at = address / kLineBytes * kLineBytes; at < end; at += kLineBytes) {
    op.lines |= 1u << scenario.line(at);
  }
  if ((op.lines & ~scenario.agents[static_cast<size_t>(replay->agent)].lines) != 0) {
    std::fprintf(stderr, "agent %d may not touch line %d\n", replay->agent, op.line);
    std::abort();
  }
  return op;
}

inline Op change(Op::Kind kind, uint64_t address, const void* from, size_t bytes) {
  Op op = access(kind, address, bytes);
  std::memcpy(&op.data[static_cast<size_t>(op.word)], from, bytes);
  op.mask = ((1u << bytes / 4) - 1) << op.word;
  return op;
}

inline Op act(Op::Kind kind) {
  Op op;
  op.kind = kind;
  return op;
}

struct Memory {
  template <class Value>
  static Value load(const Value* from) {
    static_assert(sizeof(Value) == 4 || sizeof(Value) == 8);
    return static_cast<Value>(perform(access(Op::load, address_of(from), sizeof(Value))));
  }
  template <class Value>
  static void store(Value* to, Value value) {
    perform(change(Op::store, address_of(to), &value, sizeof value));
  }
  // One of the two ranges is private.
  static void copy(void* to, const void* from, size_t bytes) {
    auto* target = static_cast<char*>(to);
    const auto* source = static_cast<const char*>(from);
    while (bytes != 0) {
      const uint64_t rest = kLineBytes - address_of(target) % kLineBytes;
      const size_t part = !is_shared(to) ? 8 : bytes < rest ? bytes : rest;
      if (is_shared(to)) {
        perform(change(Op::store, address_of(target), source, part));
      } else {
        const uint64_t value = load(reinterpret_cast<const uint64_t*>(source));
        std::memcpy(target, &value, part);
      }
      target += part;
      source += part;
      bytes -= part;
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
    perform(access(Op::clean, address_of(start), bytes));
  }
  static void invalidate(const void* start, size_t bytes) {
    perform(access(Op::invalidate, address_of(start), bytes));
  }
  static void order_stores() { perform(act(Op::order_stores)); }
  static void order_loads() { perform(act(Op::order_loads)); }

  static uint32_t load_register(uint64_t address) {
    Op op = act(Op::load_register);
    op.line = replay->scenario->find_register(address);
    return static_cast<uint32_t>(perform(op));
  }
  static void store_register(uint64_t address, uint32_t value) {
    Op op = act(Op::store_register);
    op.line = replay->scenario->find_register(address);
    op.value = value;
    perform(op);
  }
};

// The kernel whose address is `kernel`.
inline void (*call_kernel)(uint64_t kernel, uint64_t* arguments) = nullptr;

struct Aicpu : Memory {};

struct Core : Memory {
  static uint32_t block() { return static_cast<uint32_t>(replay->agent - kFirstCore); }
  static uint32_t blocks() { return 2; }
  static uint32_t subblock() { return 0; }
  static uint32_t physical() { return kFirstPhysical + block(); }
  static bool is_aic() { return true; }
  static void set_flag_base(uint64_t) {}
  static void set_texts(uint64_t) {}
  static uint64_t page() { return kPages + block() * kPageBytes; }
  static uint32_t load_doorbell() {
    if (replay->scenario->is_closed) return poll_closed();
    return load_register(page() + PTO_A2A3_DATA_MAIN_BASE);
  }
  static void store_cond(uint32_t value) { store_register(page() + PTO_A2A3_COND, value); }
  // Repeats the load of the doorbell, which is the step before.
  static void wait(uint32_t) {
    if (!replay->scenario->is_closed) retry_from(replay->next - 1);
  }
  static bool is_code(uint64_t address) { return address >= 4096; }
  static void invalidate_all() { whole(Op::invalidate); }
  static void clean_all() { whole(Op::clean); }
  static bool call(uint64_t kernel, uint64_t* arguments) {
    call_kernel(kernel, arguments);
    return true;
  }

 private:
  static constexpr uint32_t kPolls = 1000;  // Executor::kPollsBetweenChecks

  // The doorbell stays 0. After a check that the launch is closed the core is as before the polls.
  static uint32_t poll_closed() {
    if (replay->polls == 0) replay->head = replay->next;
    if (replay->polls++ == kPolls) retry_from(replay->head);
    return 0;
  }
  static void whole(Op::Kind kind) {
    Op op = act(kind);
    op.lines = replay->scenario->agents[static_cast<size_t>(replay->agent)].lines;
    perform(op);
  }
};

}  // namespace model
