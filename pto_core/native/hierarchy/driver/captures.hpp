// The current capture and the current replay of a Worker. There is at most one of each. Call with
// the GIL held.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "arguments/task_args.hpp"
#include "callable/callable_handle.hpp"
#include "driver/capture.hpp"
#include "driver/child_memory.hpp"
#include "driver/child_places.hpp"
#include "driver/submit_request.hpp"

namespace pto::hierarchy {

// The result of Worker.capture: the submits of a graph, and references to its objects.
struct CapturedObject {
  std::shared_ptr<CapturedGraph> graph;
  Identity worker;
  std::vector<CallableHandle> handles;               // references to the callables
  std::unordered_map<PyObject*, nb::object> owners;  // references to the owners of the memory
};

class Captures {
 public:
  Captures(const Configuration& engine, const WorkerSettings& settings, ChildMemory& memory,
           const ChildPlaces& children)
      : engine_(engine), settings_(settings), memory_(memory), children_(children) {}

  // Return the current capture, or null.
  Capture* capture() const { return capture_.get(); }
  std::unique_ptr<Capture> make(Hazards hazards, TaskArgs* args);
  void begin(std::unique_ptr<Capture> capture);
  CapturedObject end();
  void abandon();

  // Called by submits during a capture, to keep references. keep_owner() returns whether a capture
  // is open.
  void keep_handle(PyObject* handle);
  bool keep_owner(PyObject* owner);
  // Refuse tensors that a capture allocated, because they have no memory.
  static void check_origins(std::span<TaskArgs* const> all);

  void check_replay(const CapturedObject& captured, TaskArgs* args) const;
  // Called when the run of the replay has begun. `first`: the number of its first task.
  void begin_replay(const CapturedObject& captured, TaskArgs* args, int64_t first,
                    int64_t oldest_live);
  void end_replay() { replayed_.reset(); }
  const std::shared_ptr<CapturedGraph>& replayed() const { return replayed_; }
  // Return whether the arguments of the replay are disjoint; see CapturedGraph::lie_apart().
  bool lies_apart() const { return lies_apart_; }

 private:
  void check_children(const CapturedGraph& graph) const;
  void check_argument(const TaskArgs& args, uint32_t index, const ArgumentUse& use) const;

  const Configuration& engine_;
  const WorkerSettings& settings_;
  ChildMemory& memory_;
  const ChildPlaces& children_;
  std::unique_ptr<Capture> capture_;
  std::unique_ptr<CapturedObject> captured_;  // recorded submits of the capture
  uint64_t captures_ = 0;
  std::shared_ptr<CapturedGraph> replayed_;  // set until all submits of the replay have been made
  bool lies_apart_ = false;
};

// Return a TaskArgs, or null for None. Throws for any other object.
TaskArgs* given_args(nb::handle args);

}  // namespace pto::hierarchy
