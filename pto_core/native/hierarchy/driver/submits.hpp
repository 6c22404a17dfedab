// The submits of a Worker. Converts Python objects to calls of the driver, or of the current
// capture. Any thread may call it with the GIL held.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "driver/call_numbers.hpp"
#include "driver/captures.hpp"
#include "driver/child_places.hpp"
#include "driver/source_places.hpp"
#include "driver/submit_request.hpp"

namespace pto::hierarchy {

class WorkerDriver;
struct RunObject;
struct TaskHandle;

class Submits {
 public:
  Submits(WorkerDriver& worker, Driver& driver, const WorkerSettings& settings, ChildMemory& memory,
          ChildPlaces& children, Captures& captures);
  ~Submits() { drop_kept(INT64_MAX); }
  Submits(const Submits&) = delete;
  Submits& operator=(const Submits&) = delete;

  // Return a new TaskHandle.
  PyObject* submit(const SubmitRequest& request);
  // Submit tasks. Task i gets the i-th part of each tensor of `request.args` along its first
  // dimension, and row i of `scalars` after its own scalars. Return the range of task numbers.
  nb::object submit_many(const SubmitRequest& request, PyObject* scalars);
  nb::object allocate(const RunObject& run, nb::handle shape, nb::handle dtype);
  void scope_begin(const RunObject& run);
  void scope_end(const RunObject& run);

  // Drop the owners of memory that only tasks before number `before` use.
  void drop_kept(int64_t before);
  const SourcePlaces& places() const { return places_; }
  ChildPlaces& children() { return children_; }
  uint32_t config_number(nb::handle config) {
    return config.is_none() ? 0 : numbers_.config(config.ptr());
  }

 private:
  struct Kept {
    int64_t task;
    PyObject* owner;  // an owned reference
  };

  // The checked parts of a submit. The vectors are reused, so that a submit allocates no memory.
  struct Draft {
    std::vector<TaskArgs*> args;
    std::vector<Tensor> keys;
    std::vector<MemberCall> members;
    std::vector<int32_t> pins;
    std::vector<int64_t> after;
    // the children that have the callable, if the callable is for Workers on other hosts
    std::vector<int32_t> workers;
    bool has_child_memory = false;
  };
  class DraftLoan;

  // Raise UsageError unless this run or capture is open. Return the capture, or null for a run.
  Capture* check_open(const RunObject& run) const;
  Call begin_call(const SubmitRequest& request, Draft& draft);
  void read_workers(const SubmitRequest& request, std::vector<int32_t>& pins) const;
  int32_t child_of(PyObject* worker, Kind kind) const;
  void check_present(Kind kind, size_t members) const;
  void read_producers(const SubmitRequest& request, Draft& draft) const;
  int64_t producer_of(const RunObject& run, PyObject* object, const char* text) const;
  static void check_run(const TaskHandle& handle, const RunObject& run);
  void place_by_memory(const SubmitRequest& request, Draft& draft, Call* call) const;
  void place_by_callable(const SubmitRequest& request, Draft& draft, Call* call) const;
  // Return the memory that is mapped in all children on which the task may run.
  VisibleMemory& memory_for(const Call& call) const {
    return settings_.attached ? memory_among(call) : *settings_.memory;
  }
  VisibleMemory& memory_among(const Call& call) const;
  int64_t submit_call(const RunObject& run, const Call& call);
  void submit_each(const RunObject& run, const Call& call, int64_t count,
                   const std::function<void(int64_t)>& prepare, TaskRange& made);
  void learn_addresses(const Draft& draft, int64_t task);
  void keep(PyObject* owner, int64_t task);

  WorkerDriver& worker_;
  Driver& driver_;
  const WorkerSettings& settings_;
  ChildMemory& memory_;
  ChildPlaces& children_;
  Captures& captures_;
  SourcePlaces places_;
  CallNumbers numbers_;
  std::deque<Kept> kept_;  // owners of the memory of live tasks, ascending by task
  // A thread that waits in a submit keeps its draft, so other threads need other drafts.
  std::vector<std::unique_ptr<Draft>> drafts_;
};

}  // namespace pto::hierarchy
