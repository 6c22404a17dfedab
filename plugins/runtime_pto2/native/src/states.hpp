// The states of a task and their transitions. docs/states.md is generated from these tables.
//
// Every change of TaskState::phase uses move(). If PTO_CHECK_STATES is defined, move() traps when
// the table has no entry for the state and the event. Otherwise it is a plain store.
#pragma once

#include <atomic>
#include <cstdint>

#include "task.hpp"

namespace pto::ring_buffer {

enum class Event : uint32_t {
  kWire,      // the scheduler has read the task from the stream
  kSatisfy,   // its last producer has completed
  kDispatch,  // the task is dispatched to a core
  kFinish,    // its kernel has returned
  kRelease,   // its consumers, and the producers that it held, were notified
  kRetire,    // its scope has ended and no consumer holds it
  kFail       // its kernel has failed
};
constexpr uint32_t kEvents = 7;
constexpr uint32_t kPhases = 8;

struct StateText {
  const char* name;
  const char* meaning;
};

constexpr StateText kStateTexts[kPhases] = {
    {"FREE", "the slot has never held a task"},
    {"PENDING", "waits for producers that have not completed"},
    {"READY", "waits for a core of its type, or of its cluster"},
    {"RUNNING", "on a core"},
    {"COMPLETED", "the kernel has returned; consumers are being notified"},
    {"DONE",
     "consumers and producers were notified; lives until its scope has ended and its last "
     "consumer has completed"},
    {"CONSUMED", "retired: slot, slab and edges may be used again"},
    {"FAILED", "the kernel failed; the run ends with its error"},
};

constexpr StateText kEventTexts[kEvents] = {
    {"WIRE", "a scheduler reads the task from the stream of submits"},
    {"SATISFY", "the last producer that it waited for has completed"},
    {"DISPATCH", "a scheduler dispatches it to a free core"},
    {"FINISH", "its kernel has returned (of a block task: this block's)"},
    {"RELEASE", "its consumers, and the producers that it held, were notified"},
    {"RETIRE", "it is the oldest of its ring, its scope has ended, no task holds it"},
    {"FAIL", "its kernel has failed"},
};

struct Transition {
  Phase from;
  Event event;
  Phase to;
};

constexpr Transition kTransitions[] = {
    {kFree, Event::kWire, kPending},        {kConsumed, Event::kWire, kPending},
    {kPending, Event::kSatisfy, kReady},    {kReady, Event::kDispatch, kRunning},
    {kRunning, Event::kFinish, kCompleted}, {kRunning, Event::kFail, kFailed},
    {kCompleted, Event::kRelease, kDone},   {kDone, Event::kRetire, kConsumed},
};

constexpr bool may_follow(uint32_t phase, Event event) {
  for (const Transition& transition : kTransitions) {
    if (transition.from == phase && transition.event == event) return true;
  }
  return false;
}

// Return the state that follows `event`. Each event always leads to the same state.
constexpr Phase target(Event event) {
  for (const Transition& transition : kTransitions) {
    if (transition.event == event) return transition.to;
  }
  return kFree;
}

// Change the state. Called by the thread that currently owns the task.
template <Event kEvent>
inline void move(std::atomic<uint32_t>& phase,
                 std::memory_order order = std::memory_order_relaxed) {
#ifdef PTO_CHECK_STATES
  if (!may_follow(phase.load(std::memory_order_relaxed), kEvent)) __builtin_trap();
#endif
  constexpr Phase to = target(kEvent);
  phase.store(to, order);
}

}  // namespace pto::ring_buffer
