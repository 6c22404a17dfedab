// One call of a submit method, and the settings for all submits of a Worker.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <vector>

#include "callable/live_callables.hpp"
#include "engine/interface.hpp"

namespace pto::hierarchy {

namespace nb = nanobind;

class VisibleMemory;
struct RunObject;
struct TaskArgs;

// A submit, from the arguments that the program passed to the Submission that the driver receives.
struct SubmitCall {
  SubmitCall(RunObject& run, Kind kind, bool is_group) : run(run), is_group(is_group) {
    submission.kind = kind;
  }
  SubmitCall(const SubmitCall&) = delete;
  SubmitCall& operator=(const SubmitCall&) = delete;

  Kind kind() const { return submission.kind; }

 private:
  // The lists of a small submit lie here, so that it allocates no memory.
  std::byte buffer_[1024];
  std::pmr::monotonic_buffer_resource memory_{buffer_, sizeof buffer_};

 public:
  RunObject& run;  // the run or capture of the orchestrator that was called
  const bool is_group;

  // The arguments as the binding receives them, before any check. Null: not passed.
  PyObject* handle = nullptr;
  PyObject* args = nullptr;
  PyObject* config = nullptr;
  PyObject* workers = nullptr;
  PyObject* retries = nullptr;
  PyObject* timeout_s = nullptr;
  PyObject* hint = nullptr;
  PyObject* after = nullptr;

  nb::object group;  // the members of `args`, a tuple that keeps them alive

  // The checked submit, and the lists to which it refers.
  Submission submission;
  std::pmr::vector<TaskArgs*> all_args{&memory_};  // one for each member
  std::pmr::vector<Tensor> tensors{&memory_};      // those of all members
  std::pmr::vector<Member> members{&memory_};
  std::pmr::vector<int32_t> pins{&memory_};
  std::pmr::vector<int64_t> producers{&memory_};
  // the children that have the callable, if the callable is for Workers on other hosts
  std::vector<int32_t> known_workers;
  // a copy of the callable, if its signature declares types of scalars; then `scalars` has the
  // converted scalars of all members
  std::unique_ptr<const CallableHandle> declaring;
  std::pmr::vector<uint64_t> scalars{&memory_};
  bool has_child_memory = false;
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
