// The loop of a child process. It receives frames, runs their callables, updates the progress table
// and answers.
//
// The thread holds the GIL except while it waits. Any exception of a callable, even SystemExit and
// KeyboardInterrupt, fails only its task. The loop ignores Ctrl-C during a wait: the parent
// receives the signal too, and decides how to react.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "arguments/task_args.hpp"
#include "child/answers.hpp"
#include "child/callable_table.hpp"
#include "child/child_end.hpp"
#include "progress_table.hpp"
#include "trace/child_ring.hpp"

namespace pto::hierarchy {

namespace nb = nanobind;

class ChildLoop {
 public:
  // `largest_answer`: the maximum number of data bytes in one answer.
  ChildLoop(const ProgressTable& progress, int32_t child, std::unique_ptr<ChildEnd> end,
            uint32_t largest_answer);
  ~ChildLoop();

  void add(const Digest& digest, KnownCallable known) { table_.add(digest, std::move(known)); }
  bool forget(const Digest& digest) { return table_.forget(digest); }
  uint32_t largest_answer() const { return largest_answer_; }

  // Run until stop() is called (returns true), or until the parent closes (returns false). Call it
  // once. It closes the end, even after an exception. `control(bytes) -> bytes` answers control
  // frames; its exceptions end the loop. `invoke(callable, view or None, config)` runs tasks. If
  // `invoke` is None, callables are called directly, with a view of the arguments, which may be
  // empty. A callable that accepts no arguments is called without a view.
  bool run(nb::object control, nb::object invoke);
  // End the loop after the current frame. Called inside `control`.
  void stop() { is_stopping_ = true; }

 private:
  static constexpr int32_t kBatch = 64;

  void serve();
  void wait_for_frames();
  void end_idle();
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

  const ProgressTable progress_;
  const int32_t child_;
  std::unique_ptr<ChildEnd> end_;
  const uint32_t largest_answer_;
  Answers answers_;
  ChildTrace trace_;
  CallableTable table_;
  uint64_t base_ = 0;   // number of frames that the progress table counted before this connection
  uint64_t count_ = 0;  // number of task frames of this connection that have begun
  uint64_t idle_since_ = 0;  // trace clock at the begin of a traced wait for frames; 0: none
  nb::object control_;
  nb::object invoke_;             // invalid if callables are called directly
  nb::object failure_type_;       // pto_core.hierarchy.failures.Failure
  TaskArgsView* view_ = nullptr;  // the view of the last task; reused if no callable has kept it
  bool is_stopping_ = false;
};

}  // namespace pto::hierarchy
