// The states of a task and their transitions.
//
// Generated from pto_core/worker/states.py by python -m pto_core.worker.states_header; a
// test compares this file with it.
#pragma once

#include <cstdint>

namespace pto::worker {

enum class TaskState : uint8_t {
  kFree = 0,
  kPending = 1,
  kReady = 2,
  kRunning = 3,
  kCompleted = 4,
  kFailed = 5,
  kConsumed = 6
};
constexpr uint32_t kStates = 7;
constexpr uint8_t kNotAState = 255;

enum class TaskEvent : uint8_t {
  kSubmit = 0,
  kAllocate = 1,
  kSatisfy = 2,
  kDispatch = 3,
  kDispatchEarly = 4,
  kFinish = 5,
  kRepeat = 6,
  kFail = 7,
  kPoison = 8,
  kRelease = 9,
  kRecycle = 10
};
constexpr uint32_t kStateEvents = 11;

// clang-format off
constexpr const char* kStateNames[] = {
    "FREE",
    "PENDING",
    "READY",
    "RUNNING",
    "COMPLETED",
    "FAILED",
    "CONSUMED",
};
constexpr const char* kStateEventNames[] = {
    "SUBMIT",
    "ALLOCATE",
    "SATISFY",
    "DISPATCH",
    "DISPATCH_EARLY",
    "FINISH",
    "REPEAT",
    "FAIL",
    "POISON",
    "RELEASE",
    "RECYCLE",
};

// `next[state][event]`: the next state, or kNotAState.
struct Transitions {
  uint8_t next[kStates][kStateEvents];
};

constexpr Transitions kTransitions = {{
    {1, 4, 255, 255, 255, 255, 255, 255, 255, 255, 255},  // FREE
    {255, 255, 2, 255, 3, 255, 255, 255, 5, 255, 255},  // PENDING
    {255, 255, 255, 3, 255, 255, 255, 5, 5, 255, 255},  // READY
    {255, 255, 255, 255, 255, 4, 1, 5, 5, 255, 255},  // RUNNING
    {255, 255, 255, 255, 255, 255, 255, 255, 255, 6, 255},  // COMPLETED
    {255, 255, 255, 255, 255, 255, 255, 255, 255, 6, 255},  // FAILED
    {255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 0},  // CONSUMED
}};
// clang-format on

}  // namespace pto::worker
