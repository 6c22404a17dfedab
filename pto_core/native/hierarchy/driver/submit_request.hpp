// The values that the Python side passes for one submit, and for all submits of a Worker.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "callable/live_callables.hpp"
#include "engine/interface.hpp"

namespace pto::hierarchy {

namespace nb = nanobind;

class VisibleMemory;
struct RunObject;

// The arguments of a submit as the binding receives them, before any check. Null means that an
// argument was not passed.
struct SubmitRequest {
  RunObject* run = nullptr;  // the run or capture of the orchestrator that was called
  Kind kind = Kind::kNextLevel;
  bool is_group = false;
  PyObject* handle = nullptr;
  PyObject* args = nullptr;
  PyObject* config = nullptr;
  PyObject* workers = nullptr;
  PyObject* retries = nullptr;
  PyObject* timeout_s = nullptr;
  PyObject* hint = nullptr;
  PyObject* after = nullptr;
};

struct WorkerSettings {
  std::shared_ptr<const LiveCallables> callables;
  std::shared_ptr<VisibleMemory> memory;    // for forked children
  std::shared_ptr<VisibleMemory> attached;  // the memory that spawned children attach; null without
                                            // spawned children
  std::vector<bool> spawned;                // for each child: whether it was spawned
  CallableSpace next_level_space = CallableSpace::kLocalChip;
  uint32_t task_timeout_ms = 0;  // the time limit of tasks that are submitted without one
};

inline const char* call_of(Kind kind) {
  return kind == Kind::kSub ? "submit_sub" : "submit_next_level";
}

}  // namespace pto::hierarchy
