// The Python class Driver, which connects the engine of a Worker with the children.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

#include "bindings.hpp"
#include "driver/run_scope.hpp"
#include "driver/task_handle.hpp"
#include "driver/worker_driver.hpp"
#include "errors.hpp"
#include "refusal.hpp"
#include "text.hpp"

namespace pto::worker {
namespace {

using ChildTuples = std::vector<std::tuple<int, uint32_t, bool, bool>>;
using Rings = std::vector<std::pair<uint64_t, uint64_t>>;
using Mappings = Rings;

template <class T>
T* pointer(uint64_t address) {
  return reinterpret_cast<T*>(static_cast<uintptr_t>(address));
}

uint64_t nanoseconds_of(nb::handle seconds) {
  if (seconds.is_none()) return UINT64_MAX;
  const double value = nb::cast<double>(seconds);
  if (!(value >= 0))
    core::raise_usage("the timeout is negative or not a number; pass 0 or more seconds, or None");
  return value > 1e9 ? UINT64_MAX : static_cast<uint64_t>(value * 1e9);
}

bool is_in_python(const nb::object& policy) {
  return !policy.is_none() && !nb::isinstance<NearInputs>(policy);
}

void set_memory(SubmitSettings& settings, const ChildTuples& children, const Mappings& attached) {
  settings.memory = std::make_shared<VisibleMemory>(std::nullopt);
  bool is_any_spawned = false;
  for (const auto& child : children) {
    settings.spawned.push_back(std::get<3>(child));
    is_any_spawned |= std::get<3>(child);
  }
  if (!is_any_spawned) return;
  std::vector<AddressSpan> spans;
  for (const auto& [address, bytes] : attached) spans.push_back({address, address + bytes});
  settings.attached = std::make_shared<VisibleMemory>(std::move(spans));
}

void make(WorkerDriver* self, nb::object hooks, const ChildTuples& children, const Rings& rings,
          uint64_t progress, const std::pair<uint64_t, uint64_t>& trace,
          const SubmitSettings& settings, bool repeats_lost, const nb::object& policy,
          const nb::object& inputs, uint64_t snapshot_limit, double patience_s) {
  DriverConfiguration configuration;
  for (const auto& [kind, window, receives_use, _] : children) {
    if (window < 1 || window > kLargestWindow)
      core::raise_usage("a window of " + std::to_string(window) +
                        " frames is not supported; pass 1 to 256");
    configuration.engine.children.push_back({static_cast<Kind>(kind), window, receives_use});
  }
  if (rings.size() != kRings) core::raise_usage("the number of heap rings is not 4; pass 4 rings");
  for (size_t i = 0; i < kRings; ++i)
    configuration.engine.rings[i] = {rings[i].first, rings[i].second};
  configuration.progress = pointer<void>(progress);
  configuration.trace = {pointer<void>(trace.first), ring_bytes(trace.second), trace.second};
  configuration.snapshot_limit_bytes = snapshot_limit;
  configuration.patience_ns = static_cast<uint64_t>(patience_s * 1e9);
  or_error([&] {
    configuration.calls_python = is_in_python(policy);
    configuration.engine.repeats_lost = repeats_lost;
    if (!inputs.is_none()) {
      configuration.near_inputs = nb::cast<std::shared_ptr<NearInputs>>(inputs);
      configuration.engine.places_by_inputs = true;
    }
    auto engine = std::make_unique<Engine>(configuration.engine, policy_of(policy));
    new (self) WorkerDriver(configuration, std::move(engine), std::move(hooks), settings);
  });
}

void attach(WorkerDriver& self, int32_t child, uint64_t table, uint64_t end,
            uint32_t largest_frame_bytes, bool is_python) {
  self.driver().children().attach(child, pointer<const pto_transport_api>(table),
                                  pointer<pto_parent_end>(end), largest_frame_bytes, is_python);
}

int watch_descriptor(WorkerDriver& self) {
  const int descriptor = self.driver().ask()->core.watches.descriptor();
  if (descriptor >= 0) return descriptor;
  throw std::system_error(errno, std::generic_category(), "a wait for tasks cannot begin");
}

nb::object reply(WorkerDriver& self, uint64_t number, nb::handle timeout) {
  std::string data;
  const uint64_t limit = nanoseconds_of(timeout);
  const auto state = or_error([&] { return self.driver().children().reply(number, limit, &data); });
  if (state == ReplyState::kGiven) return nb::bytes(data.data(), data.size());
  if (state == ReplyState::kLost) return nb::none();
  PyErr_SetString(PyExc_TimeoutError, "the child did not reply within the timeout");
  throw nb::python_error();
}

// Return the run of a handle or of a RunScope, or null for None.
std::shared_ptr<RunOutcomes> outcomes_of(nb::handle of) {
  if (nb::isinstance<RunScope>(of)) return nb::inst_ptr<RunScope>(of)->outcomes();
  const TaskHandle* found = task_handle_of(of.ptr());
  return found ? found->run->outcomes : nullptr;
}

nb::object task(WorkerDriver& self, int64_t number, nb::handle of) {
  int32_t child = -1;
  std::optional<EndedTask> found;
  std::string name;
  const std::shared_ptr<RunOutcomes> run = outcomes_of(of);
  {
    const Role role = self.driver().ask();
    found = role->core.book.ended(number, run.get(), &child);
    if (!found) found = describe_live(role->core, number, &child);
    if (found) name = role->core.catalogue.name(found->callable);
  }
  if (!found) return nb::none();
  const nb::object place = self.submits().places().file_and_line(found->place);
  nb::dict result;
  result["callable"] = name;
  result["members"] = found->members;
  result["child"] = child;
  result["file"] = place[0];
  result["line"] = place[1];
  result["result"] = found->result == Result::kCompleted ? -1 : static_cast<int>(found->result);
  result["cause"] = found->cause;
  result["root"] = found->root;
  result["timeout_s"] = found->timeout_ms > 0 ? nb::cast(found->timeout_ms / 1e3) : nb::none();
  return result;
}

nb::object cause(WorkerDriver& self, int64_t number, nb::handle of) {
  const auto found = self.driver().ask()->core.book.cause(number, outcomes_of(of).get());
  if (!found) return nb::none();
  nb::dict result;
  result["data"] = nb::bytes(found->data.data(), found->data.size());
  result["task"] = found->task;
  result["child"] = found->child;
  result["member"] = found->member;
  return result;
}

// The run is over, so its failures no longer change.
nb::tuple outcome(WorkerDriver&, const RunScope& scope) {
  const std::shared_ptr<RunOutcomes> run = scope.outcomes();
  nb::list failed, poisoned;
  for (const auto& [task, cause] : run->failed) failed.append(nb::make_tuple(task, cause));
  for (const auto& [task, root] : run->poisoned) poisoned.append(nb::make_tuple(task, root));
  return nb::make_tuple(failed, poisoned);
}

nb::dict statistics(WorkerDriver& self, nb::handle scope) {
  const std::shared_ptr<RunOutcomes> run = outcomes_of(scope);
  DriverStatistics now;
  {
    const Role role = self.driver().ask();
    now = statistics_of(role->core);
    if (run) now.tasks = run->counts;
  }
  nb::dict result;
  result["submitted"] = now.tasks.submitted;
  result["finished"] = now.tasks.finished;
  result["failed"] = now.tasks.failed;
  result["poisoned"] = now.tasks.poisoned;
  result["waiting"] = now.waiting;
  result["in_flight"] = now.in_flight;
  result["snapshot_bytes"] = now.saved_bytes;
  result["snapshot_peak_bytes"] = now.most_saved_bytes;
  return result;
}

void copy_text(std::string_view text, char* to, size_t bytes) {
  const std::string_view end = text.substr(text.size() - std::min(text.size(), bytes - 1));
  std::memcpy(to, end.data(), end.size());
  to[end.size()] = 0;
}

// A task that has been running in a child since an earlier call of note_state().
struct LongTask {
  int32_t child;
  int64_t task;
  std::string callable;
  SubmitPosition place;
};

// Update the frames that run, and return the tasks that are new in the table. `last_ns`: the time
// of the last look, before which a frame that is new did not start.
std::vector<LongTask> note_frames(DriverCore& core, uint64_t last_ns, uint64_t now_ns) {
  std::vector<LongTask> found;
  for (size_t i = 0; i < core.links.size(); ++i) {
    const auto child = static_cast<int32_t>(i);
    const ChildLink& link = *core.links[i];
    const ChildRecord& record = core.progress.child(child);
    LiveChild& state = state_of(core.progress, child);
    state.sent = link.sent();
    state.presence = link.presence.is_ready ? 1 : link.presence.is_lost ? 2 : 0;
    const uint64_t completed = record.completed.load();
    const uint64_t started = record.started.load();
    const bool is_running = started > completed && started > link.completed();
    if (!is_running || started != state.count) {
      state.count = is_running ? started : 0;
      const uint64_t started_ns = record.started_ns.load();  // of an earlier frame without a clock
      state.since_ns =
          record.wants_clock.load() != 0 && started_ns >= last_ns ? started_ns : now_ns;
      state.callable[0] = state.file[0] = 0;
    } else if (state.callable[0] == 0) {
      const int64_t task = link.frame(started).task;
      const SentTask* sent = core.book.records.find(task);
      if (sent) found.push_back({child, task, core.catalogue.name(sent->callable), sent->place});
    }
  }
  return found;
}

// Write what the Worker does to the progress table; see LiveWorker. The GIL is held from the begin
// to the end of a change, so only one thread changes it.
void note_state(WorkerDriver& self) {
  constexpr uint64_t kLeastNs = 20'000'000;
  const uint64_t now_ns = engine::monotonic_ns();
  Driver& driver = self.driver();
  const Role role = driver.ask();
  DriverCore& core = role->core;
  LiveWorker& state = state_of(core.progress);
  if (driver.flags().is_closed || now_ns - state.time_ns < kLeastNs) return;
  const DriverStatistics counts = statistics_of(core);
  state.sequence.fetch_or(1, std::memory_order_acq_rel);
  const uint64_t last_ns = std::exchange(state.time_ns, now_ns);
  state.submitted = counts.tasks.submitted;
  state.finished = counts.tasks.finished;
  state.failed = counts.tasks.failed;
  state.poisoned = counts.tasks.poisoned;
  state.waiting = counts.waiting;
  state.in_flight = counts.in_flight;
  for (const LongTask& each : note_frames(core, last_ns, now_ns)) {
    LiveChild& child = state_of(core.progress, each.child);
    child.task = each.task;
    std::string file;
    child.line = 0;
    self.submits().places().find(each.place, &file, &child.line);
    copy_text(file, child.file, sizeof child.file);
    copy_text(each.callable, child.callable, sizeof child.callable);
  }
  state.sequence.fetch_add(1, std::memory_order_release);
}

// Convert a Refusal to its Python exception. Every call, including a query, may throw one; see
// Role.
void translate_refusal(const std::exception_ptr& error, void*) {
  try {
    std::rethrow_exception(error);
  } catch (const Refusal& refusal) {
    try {
      raise_refusal(refusal);
    } catch (nb::python_error& raised) {
      raised.restore();
    }
  }
}

void bind_runs(nb::class_<WorkerDriver>& bound) {
  bound
      .def(
          "run_end",
          [](WorkerDriver& self, const RunScope& scope, bool interrupted) {
            or_error([&] { self.driver().run_end(interrupted, scope.outcomes()); });
          },
          nb::arg("scope"), nb::arg("interrupted") = false,
          "Wait until every task of a run has ended. An exception of the hook poll() or of a "
          "signal "
          "handler cancels the run: running tasks have a short time to end; then their children "
          "are killed, and the exception is raised. `interrupted`: such an exception was raised "
          "before this call.")
      .def("outcome", &outcome, nb::arg("scope"),
           nb::sig("def outcome(self, scope: RunScope) -> tuple[list[tuple[int, int]], "
                   "list[tuple[int, int]]]"),
           "Return, for a run that is over, (task, cause) of its failed tasks, the first failure "
           "first, and (task, root) of its poisoned tasks.")
      .def(
          "is_open",
          [](WorkerDriver&, const RunScope& scope) {
            const std::shared_ptr<RunOutcomes> run = scope.outcomes();
            return run && !run->is_over;
          },
          nb::arg("scope"), "Return whether a run has not ended.")
      .def_prop_ro(
          "turns", [](WorkerDriver& self) { return self.turns().count(); },
          "The number of runs and captures that have a turn; see RunScope.")
      .def_prop_ro(
          "is_running", [](WorkerDriver& self) { return self.is_running(); },
          "Whether a run is open, from its start until its last task has ended. Runs without an "
          "owner do not count.");
}

void bind_causes(nb::class_<WorkerDriver>& bound) {
  bound
      .def(
          "cancel",
          [](WorkerDriver& self, int64_t cause, nb::handle scope) {
            const std::shared_ptr<RunOutcomes> run = outcomes_of(scope);
            or_error([&] { self.driver().cancel(cause, run.get()); });
          },
          nb::arg("cause"), nb::arg("scope").none() = nb::none(),
          nb::sig("def cancel(self, cause: int, scope: RunScope | None = None) -> None"),
          "Cancel a run, or all open runs: tasks that have not begun do not run.")
      .def(
          "cancel_task",
          [](WorkerDriver& self, int64_t task, int64_t cause) {
            return or_error([&] { return self.driver().ask()->withdrawals.cancel(task, cause); });
          },
          nb::arg("task"), nb::arg("cause"),
          "Cancel a task: it fails with this cause when its last producer has ended. Return False "
          "if it "
          "may have begun, and then it gets no further attempt, or has ended.")
      .def(
          "add_cause",
          [](WorkerDriver& self, const nb::bytes& data) {
            return self.driver().add_cause(std::string(data.c_str(), data.size()));
          },
          nb::arg("data"),
          "Store the data of a cause, which cause() will return. Return its "
          "number.")
      .def(
          "cause", &cause, nb::arg("cause"), nb::arg("of").none() = nb::none(),
          nb::sig("def cause(self, cause: int, of: TaskHandle | RunScope | None = None) -> "
                  "dict[str, typing.Any] | None"),
          "Return the facts about a cause of the run of a handle or scope; by default, of the open "
          "runs and the last run: data (from the child or from add_cause(); empty for a time limit "
          "or an interruption), and task, "
          "child and member, each -1 if it does not apply.")
      .def(
          "explain",
          [](WorkerDriver& self, int64_t cause, const nb::bytes& data) {
            self.driver().ask()->core.book.explain(cause, std::string(data.c_str(), data.size()));
          },
          nb::arg("cause"), nb::arg("data"),
          "Set the data of a cause that has none "
          "yet.")
      .def("task", &task, nb::arg("task"), nb::arg("of").none() = nb::none(),
           nb::sig("def task(self, task: int, of: TaskHandle | RunScope | None = None) -> "
                   "dict[str, typing.Any] | None"),
           "Return the facts about a task that is live, or that did not complete in the run of a "
           "handle or scope, by default in an open run or the last run: callable, members, child, "
           "file, line, result (-1: not ended), "
           "cause, root, timeout_s. None for any other task.")
      .def("note_state", &note_state,
           "Write what the Worker does to the progress table, for other processes; see read_state. "
           "Does nothing if the last call was less than 20 ms ago, or after stop().")
      .def("statistics", &statistics, nb::arg("scope").none() = nb::none(),
           nb::sig("def statistics(self, scope: RunScope | None = None) -> dict[str, int]"),
           "Return the counters. Those of tasks are of one run, or of all runs since no run was "
           "open.");
}

void bind_child_memory(nb::class_<WorkerDriver>& bound) {
  bound
      .def(
          "add_child_memory",
          [](WorkerDriver& self, int32_t child, uint64_t address, uint64_t nbytes) {
            self.child_memory().add(child, address, nbytes);
          },
          nb::arg("child"), nb::arg("address"), nb::arg("nbytes"),
          "Register memory that the child has allocated, so that tasks can use it until it is "
          "removed or the child is lost. A task that uses it runs on this child.")
      .def(
          "remove_child_memory",
          [](WorkerDriver& self, int32_t child, uint64_t address) {
            self.child_memory().remove(child, address);
          },
          nb::arg("child"), nb::arg("address"))
      .def(
          "has_child_memory",
          [](WorkerDriver& self, int32_t child, uint64_t address) {
            return self.child_memory().holds(child, address, 1);
          },
          nb::arg("child"), nb::arg("address"),
          "Return whether memory of the child is registered at this address. False after the "
          "loss of the child.")
      .def(
          "child_memory_user",
          [](WorkerDriver& self, int32_t child, uint64_t address) {
            return self.child_memory().user(child, address, self.driver());
          },
          nb::arg("child"), nb::arg("address"),
          "Return a task that uses this memory and has not ended, or -1.");
}

void bind_children(nb::class_<WorkerDriver>& bound) {
  bound
      .def("attach", &attach, nb::arg("child"), nb::arg("table"), nb::arg("end"),
           nb::arg("largest_frame_bytes"), nb::arg("is_python"),
           "Take ownership of the parent's end of a connection (see open_parent, "
           "open_python_parent). It is closed when the child is lost, or by close().")
      .def(
          "child_ready",
          [](WorkerDriver& self, int32_t child) {
            or_error([&] { self.driver().children().set_ready(child); });
          },
          nb::arg("child"), "Report that the child accepts frames from now on.")
      .def(
          "child_lost",
          [](WorkerDriver& self, int32_t child, int64_t cause, bool returns) {
            self.child_memory().remove_all(child);
            or_error([&] { self.driver().children().lose(child, cause, returns); });
          },
          nb::arg("child"), nb::arg("cause"), nb::arg("returns") = false,
          "Report that the process of the child has exited. `returns`: attach() and child_ready() "
          "will follow.")
      .def(
          "set_present",
          [](WorkerDriver& self, int32_t child, bool is_present) {
            self.submits().children().set_present(child, is_present);
          },
          nb::arg("child"), nb::arg("is_present"),
          "State whether a place has a child. Submits that need the child of an empty place are "
          "refused. At first every place has a child.")
      .def(
          "control",
          [](WorkerDriver& self, int32_t child, const nb::bytes& data) {
            return or_error([&] {
              return self.driver().children().control(child,
                                                      std::string(data.c_str(), data.size()));
            });
          },
          nb::arg("child"), nb::arg("data"),
          "Send a control frame; return the number of its "
          "reply.")
      .def("reply", &reply, nb::arg("number"), nb::arg("timeout").none() = nb::none(),
           nb::sig("def reply(self, number: int, timeout: float | None = None) -> bytes | None"),
           "Wait for a reply and return it; only once for each reply. Return None if the child is "
           "lost. Raises TimeoutError.")
      .def(
          "park", [](WorkerDriver& self) { or_error([&] { self.driver().park(); }); },
          "Park the driver's own thread until unpark(), for a fork.")
      .def("unpark", [](WorkerDriver& self) { self.driver().own_thread().unpark(); })
      .def("stop", &WorkerDriver::stop, nb::arg("cause"),
           "End an open run; its frames in flight are lost, with this cause. Each later submit and "
           "wait raises WorkerClosedError. When this returns, no thread uses the progress table.")
      .def("refuse_inside", &WorkerDriver::refuse_inside,
           "Raise UsageError if this thread is already inside a call of the driver.")
      .def("close", &WorkerDriver::close, "Close all connections. A second call does nothing.");
}

void bind_watches(nb::class_<WorkerDriver>& bound) {
  bound
      .def(
          "watch",
          [](WorkerDriver& self, int64_t task) {
            return or_error([&] { return self.driver().watch(task); });
          },
          nb::arg("task"),
          "Return True if the task has ended. Otherwise watch its end; see watch_descriptor().")
      .def("watch_descriptor", &watch_descriptor,
           "Return a descriptor that is readable while take_watched() has tasks to return.")
      .def(
          "take_watched",
          [](WorkerDriver& self) { return self.driver().ask()->core.watches.take(); },
          "Return the watched tasks that have ended, each once. If the driver failed or stopped, "
          "tasks that have not ended are returned too; watch them again.")
      .def(
          "stop_watching", [](WorkerDriver& self) { self.driver().ask()->core.watches.stop(); },
          "Close the descriptor and drop all watched tasks.");
}

}  // namespace

void bind_driver(nb::module_& module) {
  core::interrupts::prepare();
  nb::register_exception_translator(translate_refusal);
  core::translate_system_errors();
  bind_task_handle(module);
  bind_run_scope(module);
  nb::class_<WorkerDriver> bound(
      module, "Driver", nb::is_weak_referenceable(),
      "The engine of a Worker, and the driver that connects the engine with the "
      "children.");
  bound
      .def(
          "__init__",
          [](WorkerDriver* self, nb::object hooks, const ChildTuples& children, const Rings& rings,
             uint64_t progress, const std::pair<uint64_t, uint64_t>& trace,
             std::shared_ptr<LiveCallables> callables, CallableSpace next_level_space,
             const Mappings& attached, bool repeats_lost, nb::object policy, nb::object inputs,
             uint64_t snapshot_limit, uint32_t task_timeout_ms, double patience_s) {
            SubmitSettings settings;
            settings.callables = std::move(callables);
            set_memory(settings, children, attached);
            settings.next_level_space = next_level_space;
            settings.task_timeout_ms = task_timeout_ms;
            make(self, std::move(hooks), children, rings, progress, trace, settings, repeats_lost,
                 policy, inputs, snapshot_limit, patience_s);
          },
          nb::arg("hooks"), nb::kw_only(), nb::arg("children"), nb::arg("rings"),
          nb::arg("progress"), nb::arg("trace"), nb::arg("callables"), nb::arg("next_level_space"),
          nb::arg("attached"), nb::arg("repeats_lost"), nb::arg("policy").none() = nb::none(),
          nb::arg("inputs").none() = nb::none(), nb::arg("snapshot_limit") = uint64_t{1} << 30,
          nb::arg("task_timeout_ms") = 0, nb::arg("patience_s") = 2.0,
          "`hooks` has poll(), note_state(), note_interrupt(error), end_child(child, cause), "
          "child_broken(child, words) and "
          "grant(ring, nbytes) -> int, and must not keep the Driver alive. `children`: (kind, "
          "window, receives_use, is_spawned) of each child. `rings`: (address, size) of the four "
          "heap rings. `trace`: the address of trace_bytes() bytes, and the number of "
          "records of each ring, a power of two. `callables`: the live "
          "registrations, to check handles. `repeats_lost`: whether tasks of a lost child run "
          "again: one that had started only if it has retries left. `policy`: has pick(candidates, "
          "preferred, task), which returns a child, or is a NearInputs; None selects least_loaded. "
          "`inputs`: a NearInputs that follows the inputs of tasks. `attached`: "
          "(address, size) of the mappings that spawned children attach; "
          "forked children inherit the memory that is shared now.")
      .def_prop_ro(
          "hooks", [](WorkerDriver& self) { return self.hooks(); },
          nb::for_getter(nb::sig("def hooks(self) -> typing.Any")),
          "The object that the constructor "
          "received.");
  bind_runs(bound);
  bind_causes(bound);
  bind_children(bound);
  bind_watches(bound);
  bind_child_memory(bound);
  bind_capture(module, bound);
  bind_trace(module, bound);
}

}  // namespace pto::worker
