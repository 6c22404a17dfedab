// The current capture and the current replay of a Worker. There is at most one of each. Call with
// the GIL held.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "arguments/task_args.hpp"
#include "callable/callable_handle.hpp"
#include "driver/captured_graph.hpp"
#include "driver/child_memory.hpp"
#include "driver/driver.hpp"
#include "driver/records.hpp"
#include "driver/submit_call.hpp"
#include "engine/engine.hpp"

namespace pto::worker {

class SourcePlaces;

// A recording of a graph: its submits are recorded with their edges, and no task runs.
//
// A separate engine derives the edges. None of its children is ready, so no task ends. Its heap
// rings have addresses without memory and are never full. A tensor is recorded as an offset in an
// argument of the graph, in an allocation of the capture, or in other memory.
class Capture {
 public:
  // `number` is different for each capture, so that two captures never use the same addresses.
  // Throws Refusal if arguments overlap or have no memory.
  Capture(const Configuration& configuration, Hazards hazards, uint64_t number,
          std::span<const pto_tensor> arguments, std::span<const uint64_t> scalars);

  // Counterparts of the methods of Driver with the same names. They throw Refusal and change
  // nothing.
  int64_t submit(const Submission& submission);
  int64_t allocate(uint64_t bytes, uint64_t* address);
  void scope_begin();
  void scope_end();

  // Return the graph. Throws Refusal if a scope is open.
  std::shared_ptr<CapturedGraph> finish();

  // Return whether a capture allocated the memory at this address.
  static constexpr bool is_captured(uint64_t address) { return address >> 62 == 1; }

 private:
  struct Base {
    uint64_t end;
    uint32_t number;
  };
  struct Origin {
    uint32_t base;
    uint64_t offset;
  };

  void check(const Submission& submission) const;
  Origin origin_of(const TensorAccess& key) const;
  const std::pair<const uint64_t, Base>* base_at(uint64_t address) const;
  uint32_t add_base(uint64_t address, uint64_t bytes);
  void keep_keys(const Submission& submission, CapturedTask* task);
  void keep_uses(const Member& member);
  void keep_known(int64_t number, CapturedTask* task);
  void sort_patches();
  void merge_constants();

  const Configuration configuration_;
  std::unique_ptr<Engine> engine_;
  Instructions out_;
  std::shared_ptr<CapturedGraph> graph_;
  std::map<uint64_t, Base> bases_;                                  // key: the address
  std::vector<std::pair<uint32_t, CapturedGraph::Patch>> patches_;  // base, patch
  uint32_t depth_ = 0;
};

// Return whether the captured edges hold for a replay with `arguments`: the arguments and the
// allocations must not overlap each other or other memory of the graph.
bool lie_apart(const CapturedGraph& graph, std::span<const pto_tensor> arguments);

// Return the byte range that orders the tasks of a tensor. It has at least 1 byte.
AddressRange range_of(const pto_tensor& tensor);

// The result of Worker.capture: the submits of a graph, and references to its objects.
struct CapturedObject {
  std::shared_ptr<CapturedGraph> graph;
  Identity worker;
  std::vector<CallableHandle> handles;               // references to the callables
  std::unordered_map<PyObject*, nb::object> owners;  // references to the owners of the memory
};

class Captures {
 public:
  Captures(const Configuration& engine, const SubmitSettings& settings, ChildMemory& memory,
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
  const SubmitSettings& settings_;
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

// The access log of a captured graph; see pto/abi/access_log.h and pto_insight.graphs.log.
//
// Return the fields of AccessLog. A group is one task. Call with the GIL held and the driver role.
nb::dict captured_log(const CapturedObject& captured, const Catalogue& catalogue,
                      const SourcePlaces& places);

// Return the edges that the capture found, as pairs of indices of tasks: by second, then by first.
std::vector<std::pair<uint32_t, uint32_t>> captured_edges(const CapturedGraph& graph);

}  // namespace pto::worker
