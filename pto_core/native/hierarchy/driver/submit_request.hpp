// The values from the Python side for a submit, and for all submits of a Worker.
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

// The arguments of a submit as the binding receives them, before any check; null: not passed.
struct SubmitRequest {
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
  std::shared_ptr<VisibleMemory> memory;    // of forked children
  std::shared_ptr<VisibleMemory> attached;  // of spawned children; null if there are none
  std::vector<bool> spawned;                // of each child
  CallableSpace next_level_space = CallableSpace::kLocalChip;
  uint32_t task_timeout_ms = 0;  // for tasks without a time limit of their own
};

inline const char* call_of(Kind kind) {
  return kind == Kind::kSub ? "submit_sub" : "submit_next_level";
}

}  // namespace pto::hierarchy
