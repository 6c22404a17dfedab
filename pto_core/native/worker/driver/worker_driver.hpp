// The Python side of a Driver: converts objects to numbers, and errors to exceptions.
//
// Any thread may call it with the GIL held.
#pragma once

#include <nanobind/nanobind.h>
#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <semaphore>
#include <string>
#include <utility>
#include <vector>

#include "driver/captures.hpp"
#include "driver/child_memory.hpp"
#include "driver/driver.hpp"
#include "driver/host.hpp"
#include "driver/submits.hpp"
#include "driver/submitter.hpp"
#include "interrupts.hpp"
#include "processes/current_process.hpp"
#include "refusal.hpp"

namespace pto::worker {

namespace nb = nanobind;

[[noreturn]] void raise_deadlock(const Deadlock& proof);

// Run `call`. Convert the exceptions of the driver to Python exceptions of the error tree.
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

// The Host of a Worker: it manages the GIL and signals, and calls hooks in Python.
//
// `hooks` has poll(), note_state(), note_interrupt(error), end_child(child, cause),
// child_broken(child, message) and grant(ring, nbytes) -> int. Call give_up() with the GIL held.
// The hooks are called with the GIL held.
class PythonHost : public Host {
 public:
  explicit PythonHost(nb::object hooks) : hooks_(std::move(hooks)) {}

  void give_up() override;
  void take() override;
  void leave() override;
  bool hold_interrupts() override { return core::interrupts::hold(); }
  void release_interrupts() noexcept override { core::interrupts::release(); }
  void attend(bool is_callers) override;
  void note_state() override { hooks_.attr("note_state")(); }
  void end_child(int32_t child, int64_t cause) override;
  void child_broken(int32_t child, const std::string& message) override;
  uint64_t grant(uint32_t ring, uint64_t bytes) override;

  nb::object& hooks() { return hooks_; }

 private:
  nb::object hooks_;
};

// The use of a turn: the hazards of a run that shares it with other runs with the same hazards, or
// none for a capture or a replay, which needs the turn alone.
using TurnUse = std::optional<Hazards>;

// The turns of a Worker: the right to have a run or a capture open.
//
// Several threads, and several runs of one thread, can have a turn at once if they can share it.
// Other threads wait, and receive a turn in the order in which they ask for it, but a run that can
// share the current turns never waits. A run has its turn from before its start until its outcome
// has been read.
//
// Call the methods with the GIL held: it protects the fields.
class Turns {
 public:
  explicit Turns(Host& host) : host_(host), process_(current_process()) {}
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  // Take a turn for `thread` if it is free now. Return whether it was taken.
  bool try_take(uint64_t thread, TurnUse use);
  // Wait for a turn without the GIL, and take it for `thread`. `check(waited_ns)` is called at
  // least every 50 ms; an exception of it ends the wait.
  void take(uint64_t thread, TurnUse use, const std::function<void(uint64_t waited_ns)>& check);
  // Release a turn of `thread`, and pass turns to the threads that have waited longest.
  void release(uint64_t thread);
  // Let each waiting thread call `check`.
  void wake_all();

  // The thread that has had a turn for the longest time, or 0.
  uint64_t owner() const { return owners_.empty() ? 0 : owners_.front(); }
  size_t count() const { return owners_.size(); }
  // Return whether the thread has a turn or waits for one.
  bool has(uint64_t thread) const;

 private:
  struct Waiting {
    const uint64_t thread;
    const TurnUse use;
    std::counting_semaphore<> woken{0};
    bool has_turn = false;
  };

  Host& host_;
  const pid_t process_;
  TurnUse use_;                   // of the owners
  std::vector<uint64_t> owners_;  // threads; one that has several turns occurs several times
  std::deque<Waiting*> waiting_;
};

// Owns a turn and releases it.
class Turn {
 public:
  Turn() = default;
  Turn(Turns& turns, uint64_t thread) : turns_(&turns), thread_(thread) {}
  Turn(Turn&& other) noexcept
      : turns_(std::exchange(other.turns_, nullptr)), thread_(other.thread_) {}
  Turn& operator=(Turn&& other) noexcept {
    std::swap(turns_, other.turns_);
    std::swap(thread_, other.thread_);
    return *this;
  }
  ~Turn() { end(); }

  void end() {
    if (turns_) std::exchange(turns_, nullptr)->release(thread_);
  }
  explicit operator bool() const { return turns_ != nullptr; }

 private:
  Turns* turns_ = nullptr;
  uint64_t thread_ = 0;
};

struct RunObject;

class WorkerDriver {
 public:
  WorkerDriver(const DriverConfiguration& configuration, std::unique_ptr<Engine> engine,
               nb::object hooks, const SubmitSettings& settings);
  ~WorkerDriver();

  // Return the driver. Raise UsageError in a forked process, which does not have the threads of the
  // driver.
  Driver& driver() {
    if (process_ != current_process()) refuse_fork();
    return *driver_;
  }
  nb::object& hooks() { return host_->hooks(); }
  ChildMemory& child_memory() { return child_memory_; }
  Captures& captures() { return captures_; }
  Submits& submits() { return submits_; }

  // Take a turn for `thread`, and wait for it if `waits`. Return whether it was taken. Raise
  // UsageError if it is not free and the thread has another turn or waits for one, and when
  // `is_interrupted` becomes true. `what`: the call, for messages.
  bool take_turn(uint64_t thread, TurnUse use, const char* what, bool waits,
                 const bool* is_interrupted);
  Turns& turns() { return turns_; }

  // The caller of these methods has a turn. The begin returns the open run, a RunObject.
  nb::object run_begin(nb::object self, Hazards hazards, nb::handle config);
  // Return whether this run or capture is open.
  bool is_open(const RunObject& run) const;
  // Drop the objects that only runs and captures that are over use.
  void forget_run();
  // Return whether a run is open that its owner can still end.
  bool is_running() { return driver().flags().open_runs > abandoned_.size(); }
  // Cancel an open run because its owner no longer exists. The next run waits until the cancelled
  // run has ended.
  void abandon(std::shared_ptr<RunOutcomes> run) noexcept;
  void end_runs_without_owner();
  // Cancel an open run and end it, even if signal handlers raise exceptions during the call.
  void end_abandoned(const std::shared_ptr<RunOutcomes>& run) noexcept;

  // Begin a capture, until captures() ends it: submits are recorded and no task runs. `args`: the
  // TaskArgs of the graph.
  nb::object capture_begin(nb::object self, Hazards hazards, nb::handle config, TaskArgs* args);
  // Begin a run of the graph on the tensors of `args`; replay() and run_end() follow.
  nb::object replay_begin(nb::object self, const CapturedObject& captured, TaskArgs* args);
  // Submit all tasks of the graph. A replay has no orchestrator, so no other task comes between
  // them: the captured edges are distances between task numbers.
  void replay();

  void stop(int64_t cause);
  void close();
  // Raise UsageError on a thread that is inside a call of the driver.
  void refuse_inside() const;

 private:
  [[noreturn]] void refuse_fork() const;
  nb::object make_run(const nb::object& self, std::shared_ptr<RunOutcomes> outcomes,
                      uint32_t config);
  void leave_to_own_thread();
  void close_driver() noexcept;

  std::unique_ptr<PythonHost> host_;
  std::unique_ptr<Driver> driver_;
  const SubmitSettings settings_;
  const pid_t process_;
  nb::object captured_;  // the RunObject of the capture, until forget_run()
  // the open runs that no Python object owns
  std::vector<std::shared_ptr<RunOutcomes>> abandoned_;
  ChildMemory child_memory_;
  ChildPlaces child_places_;
  Captures captures_;
  Turns turns_;
  Submits submits_;
};

}  // namespace pto::worker
