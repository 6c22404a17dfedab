// A Driver as Python has it: objects turned into numbers, numbers into exceptions.
//
// Used with the GIL, by any thread.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <deque>
#include <memory>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "arguments/task_args.hpp"
#include "callable/callable_handle.hpp"
#include "callable/live_callables.hpp"
#include "driver/child_memory.hpp"
#include "driver/driver.hpp"
#include "driver/python_host.hpp"
#include "processes/current_process.hpp"
#include "refusal.hpp"

namespace pto::hierarchy {

class Capture;
class WorkerDriver;

// What the handles of a run's tasks share.
struct RunObject;
struct TaskHandle;

// What Worker.capture gives: the submits of a graph, and what they need to stay as it is.
struct CapturedObject {
  std::shared_ptr<CapturedGraph> graph;
  Identity worker;
  std::vector<CallableHandle> handles;               // of the callables
  std::unordered_map<PyObject*, nb::object> owners;  // of the memory
};

// The arguments of a submit as the binding receives them, before any check; null: not passed.
struct SubmitWords {
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
  std::shared_ptr<VisibleMemory> memory;
  CallableSpace next_level_space = CallableSpace::kLocalChip;
  uint32_t task_timeout_ms = 0;  // of tasks without their own
};

class WorkerDriver {
 public:
  WorkerDriver(const DriverConfiguration& configuration, std::unique_ptr<Engine> engine,
               nb::object hooks, const WorkerSettings& settings);
  ~WorkerDriver();

  // Raises in a fork of the program: nobody drives it there.
  Driver& driver() {
    if (process_ != current_process()) refuse_fork();
    return *driver_;
  }
  nb::object& hooks() { return host_->hooks(); }
  ChildMemory& child_memory() { return child_memory_; }

  void run_begin(nb::object self, Hazards hazards, nb::handle config);
  void run_end(bool is_interrupted);
  // Of the run that has begun.
  const std::shared_ptr<RunOutcomes>& outcomes() const;
  // Whether the run with those outcomes is open.
  bool is_open(const RunOutcomes& outcomes) const;
  // Whether a run is open that somebody can still end.
  bool is_running() { return driver().flags().is_running && !is_abandoned_; }
  // The owner of the open run is gone: cancels it, at the latest when the next run begins and waits
  // for its end.
  void abandon() noexcept;
  void end_run_without_owner();
  // Cancels the open run and ends it, whatever handlers of signals raise meanwhile.
  void end_abandoned() noexcept;
  nb::tuple outcome() const;

  // A new TaskHandle.
  PyObject* submit(const SubmitWords& words);
  // Task i gets the i-th part of each tensor of `words.args` along its first dimension, and row i
  // of `scalars` after its scalars. Gives the range of the tasks' numbers.
  nb::object submit_many(const SubmitWords& words, PyObject* scalars);
  nb::object allocate(nb::handle shape, nb::handle dtype);

  void scope_begin();
  void scope_end();

  // Between the two submits are recorded and nothing runs. `args`: the TaskArgs of the graph.
  void capture_begin(nb::object self, Hazards hazards, nb::handle config, TaskArgs* args);
  CapturedObject capture_end();
  // Ends a capture whose graph raised.
  void capture_abandon();
  bool is_capturing() const { return capture_ != nullptr; }
  // Begins a run for the graph, on the tensors of `args`; replay() and run_end() follow.
  void replay_begin(nb::object self, const CapturedObject& captured, TaskArgs* args);
  // All submits of the graph. Nobody else adds to the run before it is over: edges are distances.
  void replay();

  // (file, line) of where a task was submitted.
  nb::object place_of(const Place& place) const;
  void stop(int64_t cause);
  void close();
  // Raises UsageError on a thread that is in a call of the driver, by which it came here.
  void refuse_inside() const;

 private:
  // What check_handle() found for one object, as long as no registration has ended since.
  struct KnownHandle {
    nb::object handle;
    uint64_t version = 0;
    CallableSpace space = CallableSpace::kLocalChip;
    uint32_t number = 0;
  };
  struct Kept {
    int64_t task;
    PyObject* owner;  // a reference
  };

  // The checked parts of a submit. Its vectors are reused, so a submit allocates no memory.
  struct Draft {
    std::vector<TaskArgs*> args;
    std::vector<Tensor> keys;
    std::vector<MemberCall> members;
    std::vector<int32_t> pins;
    std::vector<int64_t> after;
    bool has_child_memory = false;
  };
  class DraftLoan;

  [[noreturn]] void refuse_fork() const;
  uint32_t callable_number(PyObject* handle, Kind kind);
  const CallableHandle& check_handle(PyObject* handle, Kind kind) const;
  CallableSpace space_of(Kind kind) const {
    return kind == Kind::kSub ? CallableSpace::kLocalPython : settings_.next_level_space;
  }
  void read_workers(const SubmitWords& words, std::vector<int32_t>& pins) const;
  void read_producers(const SubmitWords& words, Draft& draft) const;
  int64_t producer_of(PyObject* object, const char* text) const;
  int32_t child_of(PyObject* worker, Kind kind) const;
  uint32_t config_number(PyObject* config);
  uint32_t intern_config(nb::handle config);
  Place place_of_caller();
  uint32_t code_number(PyObject* code);
  void learn_addresses(const Draft& draft, int64_t task);
  void keep(PyObject* owner, int64_t task);
  Call begin_call(const SubmitWords& words, Draft& draft);
  void place_by_memory(const SubmitWords& words, Draft& draft, Call* call) const;
  void capture_each(const Call& call, int64_t count, const std::function<void(int64_t)>& prepare,
                    TaskRange& made);
  void check_origins(const Draft& draft) const;
  int64_t submit_call(const Call& call);
  void keep_handle(PyObject* handle);
  void check_run(const TaskHandle& handle) const;
  void check_replay(const CapturedObject& captured, TaskArgs* args) const;
  void check_no_replay() const;
  void check_no_capture() const;
  void drop_kept(int64_t before);
  void leave_to_own_thread();
  void close_driver() noexcept;

  std::unique_ptr<PythonHost> host_;
  std::unique_ptr<Driver> driver_;
  const WorkerSettings settings_;
  std::array<std::vector<int32_t>, 2> children_;  // by kind, as the program counts them
  const pid_t process_;
  const std::string own_folder_;  // of this package
  RunObject* run_ = nullptr;      // a reference, while there is one

  std::array<KnownHandle, 64> known_handles_;
  nb::object last_config_, last_version_;
  uint32_t last_config_number_ = 0;
  uint32_t run_config_ = 0;
  std::unordered_map<std::string, uint32_t> config_numbers_;
  std::vector<nb::object> codes_{nb::object()};           // of the program; number 0 is none
  std::unordered_map<PyObject*, uint32_t> code_numbers_;  // 0: of this package
  std::vector<nb::object> own_codes_;                     // those of this package
  PyObject* last_code_ = nullptr;
  uint32_t last_code_number_ = 0;
  std::deque<Kept> kept_;  // what owns the memory of live tasks' tensors, ascending by task

  ChildMemory child_memory_;

  std::unique_ptr<Capture> capture_;          // under way
  std::unique_ptr<CapturedObject> captured_;  // what it has found so far
  uint64_t captures_ = 0;
  bool is_abandoned_ = false;                // the run; its owner is gone
  std::shared_ptr<CapturedGraph> replayed_;  // from replay_begin() to the end of replay()
  bool lies_apart_ = false;                  // see lie_apart(); of `replayed_`

  // A thread that waits in a submit keeps its draft while others submit.
  std::vector<std::unique_ptr<Draft>> drafts_;
};

// A TaskArgs, or null for None; throws for anything else.
TaskArgs* given_args(nb::handle args);

[[noreturn]] void raise_deadlock(const Deadlock& proof);

// Runs `call` and raises what the driver throws as an exception of the tree.
template <class Call>
auto or_error(Call call) {
  try {
    return call();
  } catch (const Refusal& refusal) {
    raise_refusal(refusal);
  } catch (const DeadlockFound& found) {
    raise_deadlock(found.proof);
  }
}

}  // namespace pto::hierarchy
