// The loop of a child process: receive frames, run what they name, mark the board, answer.
//
// Its thread holds the GIL but while it waits. Whatever a callable raises, SystemExit and
// KeyboardInterrupt too, fails its task and nothing else. A Ctrl-C that arrives while the loop
// waits is not its business: the parent gets it as well and decides.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "arguments/task_args.hpp"
#include "board.hpp"
#include "child/answers.hpp"
#include "child/callable_table.hpp"
#include "child/child_end.hpp"

namespace pto::hierarchy {

namespace nb = nanobind;

class ChildLoop {
 public:
  // `largest_answer`: bytes of the data of one.
  ChildLoop(const Board& board, int32_t child, std::unique_ptr<ChildEnd> end,
            uint32_t largest_answer);
  ~ChildLoop();

  void add(const Digest& digest, KnownCallable known) { table_.add(digest, std::move(known)); }
  bool forget(const Digest& digest) { return table_.forget(digest); }
  uint32_t largest_answer() const { return largest_answer_; }

  // Until stop(): true; or until the parent closed: false. Once; the end is closed then, and after
  // an exception. `control(bytes) -> bytes` answers control frames, and what it raises ends the
  // loop. `invoke(callable, view or None, config)` runs tasks; None: callables are called, with a
  // view, which is empty for a task without arguments, or with nothing if they take no arguments.
  bool run(nb::object control, nb::object invoke);
  // From inside `control`: no frame is begun after this one.
  void stop() { is_stopping_ = true; }

 private:
  static constexpr int32_t kBatch = 64;

  void serve();
  void wait_for_frames();
  void handle(const pto_frame_view& view);
  void run_control(const pto_frame_view& view);
  void run_task(const pto_frame_view& view);
  Requirement requirement_of(const pto_frame& frame, uint64_t count);
  void check_requirement(const pto_frame& frame) const;
  bool call(const pto_frame_view& view);
  PyObject* point_view_at(const pto_frame_view& view);
  void release_view();
  nb::object describe_failure() const;
  void leave(Ending ending);

  const Board board_;
  const int32_t child_;
  std::unique_ptr<ChildEnd> end_;
  const uint32_t largest_answer_;
  Answers answers_;
  CallableTable table_;
  uint64_t base_ = 0;   // frames that the board had counted before this connection
  uint64_t count_ = 0;  // task frames of this connection that have begun
  nb::object control_;
  nb::object invoke_;             // invalid: callables are called themselves
  nb::object failure_type_;       // pto_core.hierarchy.failures.Failure
  TaskArgsView* view_ = nullptr;  // used again as long as no callable keeps it
  bool is_stopping_ = false;
};

}  // namespace pto::hierarchy
