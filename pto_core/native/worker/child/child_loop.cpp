#include "child/child_loop.hpp"

#include <nanobind/nanobind.h>

#include <unistd.h>
#include <string>
#include <string_view>

#include "errors.hpp"
#include "gil.hpp"
#include "user_call.hpp"

namespace pto::worker {

void run_signal_handlers() {
  try {
    if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
  } catch (nanobind::python_error& error) {
    if (!error.matches(PyExc_KeyboardInterrupt)) throw;
  }
}

void Answers::send(const pto_answer& answer) {
  bool is_given = end_.try_answer(answer);
  while (!is_given) {
    {
      const core::ReleasedGil released;
      is_given = end_.wait_to_answer(answer);
    }
    run_signal_handlers();
  }
}

namespace {

// The answer if a failure cannot be described: a constant pickle with the same form as
// Failure.pack().
constexpr std::string_view kUndescribed =
    "(VException\nVthe child could not describe what was raised\nV\nNt.";

[[noreturn]] void break_off(const std::string& message) {
  throw Refusal(Refusal::Kind::kProtocol, message);
}

std::string hex(const uint8_t* digest) {
  constexpr int kShownBytes = 8;
  std::string text;
  for (int i = 0; i < kShownBytes; ++i) {
    text += "0123456789abcdef"[digest[i] >> 4];
    text += "0123456789abcdef"[digest[i] & 15];
  }
  return text;
}

bool has_arguments(const pto_frame& frame) {
  return (frame.flags & PTO_FRAME_HAS_ARGUMENTS) != 0;
}

void check_head(const pto_frame& frame) {
  if (frame.kind > PTO_FRAME_CONTROL)
    break_off("a frame has the kind " + std::to_string(frame.kind));
  if (frame.flags > (PTO_FRAME_HAS_ARGUMENTS | PTO_FRAME_HAS_KINDS) ||
      frame.flags == PTO_FRAME_HAS_KINDS)
    break_off("a frame has the flags " + std::to_string(frame.flags));
  if (frame.kind == PTO_FRAME_TASK && !has_arguments(frame) && frame.bytes != 0)
    break_off("a task without arguments has " + std::to_string(frame.bytes) +
              " bytes of arguments");
}

void set_unknown_callable(const pto_frame& frame) {
  nb::object type = nb::module_::import_("pto_core.errors").attr("ProtocolError");
  PyErr_Format(type.ptr(), "the callable with the digest %s... is not known in this child",
               hex(frame.callable).c_str());
}

// Return false, with an exception set, if the callable has returned in a forked process too, or if
// its body did not run. Only an object that can be iterated or awaited may be such a body.
bool is_acceptable(const nb::object& callable, const nb::object& result, bool is_copied) {
  const PyTypeObject* type = Py_TYPE(result.ptr());
  if (!is_copied && !type->tp_iternext && !type->tp_as_async) return true;
  try {
    nb::object checks = nb::module_::import_("pto_core.errors.plain_functions");
    if (is_copied) checks.attr("refuse_copy")("task", callable);
    checks.attr("require_executed")("task", callable, result);
    return true;
  } catch (nb::python_error& error) {
    error.restore();
    return false;
  }
}

}  // namespace

ChildLoop::ChildLoop(const ProgressTable& progress, int32_t child, std::unique_ptr<ChildEnd> end,
                     uint32_t largest_answer)
    : progress_(progress),
      child_(child),
      end_(std::move(end)),
      largest_answer_(largest_answer),
      answers_(*end_, progress_),
      trace_(progress_, child),
      failure_type_(nb::module_::import_("pto_core.worker.failures").attr("Failure")),
      take_retry_wait_(nb::module_::import_("pto_core.worker.retries").attr("take_wait_ms")) {}

ChildLoop::~ChildLoop() {
  const nb::error_scope keep_exception;  // close() may call Python
  end_->close();
  Py_XDECREF(reinterpret_cast<PyObject*>(view_));
}

bool ChildLoop::run(nb::object control, nb::object invoke) {
  if (!end_->is_open()) core::raise_usage("this child loop has already run; create another one");
  core::UserCall::forget_inherited();
  control_ = std::move(control);
  if (!invoke.is_none()) invoke_ = std::move(invoke);
  ChildRecord& record = progress_.child(child_);
  base_ = record.completed.load(std::memory_order_relaxed);
  record.pid.store(static_cast<uint32_t>(getpid()), std::memory_order_release);
  try {
    serve();
    answers_.flush_blocking();
    leave(Ending::kClosed);
    return true;
  } catch (const ParentClosed&) {
    leave(Ending::kClosed);
    return false;
  } catch (const Refusal& refusal) {
    leave(Ending::kProtocol);
    core::raise_error("ProtocolError", refusal.what());
  } catch (...) {
    leave(Ending::kError);
    throw;
  }
}

void ChildLoop::leave(Ending ending) {
  answers_.flush_at_exit();
  progress_.child(child_).ending.store(static_cast<uint32_t>(ending), std::memory_order_release);
  end_->close();
  control_.reset();
  invoke_.reset();
}

void ChildLoop::serve() {
  pto_frame_view frames[kBatch];
  while (!is_stopping_) {
    const int32_t count = end_->receive(frames, kBatch);
    if (count == 0) {
      wait_for_frames();
      continue;
    }
    if (idle_since_ != 0) end_idle();
    int32_t done = 0;
    while (done < count && !is_stopping_) handle(frames[done++]);
    end_->take(done);
  }
}

void ChildLoop::wait_for_frames() {
  answers_.flush_blocking();
  if (idle_since_ == 0 && (trace_.groups() & PTO_TRACE_WAITS) != 0) idle_since_ = trace_clock();
  {
    const core::ReleasedGil released;
    end_->wait_for_frames();
  }
  run_signal_handlers();
}

// Record the wait that ended with a frame.
void ChildLoop::end_idle() {
  if (trace_.groups() != 0) trace_.lasted(PTO_TRACE_PARK, idle_since_, 0);
  idle_since_ = 0;
}

void ChildLoop::handle(const pto_frame_view& view) {
  check_head(*view.frame);
  if (view.frame->kind == PTO_FRAME_TASK)
    run_task(view);
  else
    run_control(view);
}

void ChildLoop::run_control(const pto_frame_view& view) {
  ChildRecord& record = progress_.child(child_);
  record.control.store(view.frame->number + 1, std::memory_order_relaxed);
  const nb::bytes given(static_cast<const char*>(view.data), view.frame->bytes);
  const nb::object reply = control_(given);
  if (!PyBytes_Check(reply.ptr()) || nb::len(reply) > largest_answer_)
    core::raise_usage("control frame " + std::to_string(view.frame->number) + " got the answer " +
                      core::shown(reply) +
                      ", which is not a bytes object or too long; return at most " +
                      std::to_string(largest_answer_) + " bytes");
  record.control.store(0, std::memory_order_relaxed);
  answers_.reply(view.frame->number, PyBytes_AS_STRING(reply.ptr()),
                 static_cast<uint32_t>(PyBytes_GET_SIZE(reply.ptr())));
}

void ChildLoop::run_task(const pto_frame_view& view) {
  const pto_frame& frame = *view.frame;
  const uint64_t count = ++count_;
  const bool has_failed =
      frame.required_count != 0 && requirement_of(frame, base_ + count) == Requirement::kFailed;
  if (has_failed || !progress_.start(child_)) {
    progress_.complete(child_, false);
    answers_.ended(count, PTO_OUTCOME_SKIPPED, nullptr, 0);
    return;
  }
  const uint32_t traced = trace_.groups();
  // A chip and a nested Worker run tasks in other threads and processes, so they are not measured.
  const bool is_measured = (traced & PTO_TRACE_WAITS) != 0 && !invoke_.is_valid();
  const uint64_t used_before = is_measured ? processor_time_ns() : 0;
  if (traced != 0) trace_.start(frame.number, base_ + count);
  const bool has_succeeded = call(view);
  if (traced != 0)
    trace_.end(frame.number, base_ + count,
               has_succeeded ? PTO_OUTCOME_SUCCEEDED : PTO_OUTCOME_FAILED);
  const uint64_t used = is_measured ? processor_time_ns() : 0;
  // a copy of this process, which the call may have forked, has another clock
  if (is_measured && used >= used_before) trace_.processor_time(used - used_before, base_ + count);
  if (has_succeeded) {
    release_view();
    progress_.complete(child_, true);
    answers_.succeeded(count);
    return;
  }
  const nb::object why = describe_failure();
  release_view();
  progress_.complete(child_, false, retry_wait_ms());
  answers_.ended(count, PTO_OUTCOME_FAILED, PyBytes_AS_STRING(why.ptr()),
                 static_cast<uint32_t>(PyBytes_GET_SIZE(why.ptr())));
}

void ChildLoop::check_requirement(const pto_frame& frame) const {
  const int32_t required = frame.required_child;
  const auto children = static_cast<int32_t>(progress_.children());
  if (required < 0 || required >= children)
    break_off("a task requires a frame of child " + std::to_string(required) + " of " +
              std::to_string(children));
  if (required == child_ &&
      frame.required_count > progress_.child(child_).completed.load(std::memory_order_relaxed))
    break_off("a task requires frame " + std::to_string(frame.required_count) +
              " of its own child, which is not an earlier frame");
}

// Wait without the GIL until the requirement of a frame is met or has failed. `count`: the number
// of the frame in the progress table.
Requirement ChildLoop::requirement_of(const pto_frame& frame, uint64_t count) {
  check_requirement(frame);
  const auto judge = [&] {
    return progress_.requirement(child_, count, frame.required_child, frame.required_count);
  };
  Requirement found = judge();
  if (found != Requirement::kPending) return found;
  const bool is_traced = (trace_.groups() & PTO_TRACE_WAITS) != 0;
  const uint64_t begin = is_traced ? trace_clock() : 0;
  while (found == Requirement::kPending) {
    {
      const core::ReleasedGil released;
      // Before the thread sleeps, send the successes to the parent, and request a ring.
      end_->wait([&] { return (found = judge()) != Requirement::kPending; },
                 [&] {
                   answers_.flush();
                   progress_.want_ring(child_, frame.required_child);
                 });
    }
    run_signal_handlers();
  }
  if (is_traced) trace_.lasted(kTraceRequire, begin, static_cast<uint64_t>(frame.required_child));
  return found;
}

// Return false, with the exception set, if the call raised one.
bool ChildLoop::call(const pto_frame_view& view) {
  const pto_frame& frame = *view.frame;
  PyObject* arguments = has_arguments(frame) ? point_view_at(view) : nullptr;
  const KnownCallable* known = table_.find(frame.callable);
  if (!known) {
    set_unknown_callable(frame);
    return false;
  }
  const nb::object callable = known->callable;
  nb::object result;
  core::UserCall user_call;
  if (invoke_.is_valid()) {
    const nb::object config = nb::int_(frame.config);
    PyObject* given[] = {nullptr, callable.ptr(), arguments ? arguments : Py_None, config.ptr()};
    result = nb::steal(
        PyObject_Vectorcall(invoke_.ptr(), given + 1, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
  } else {
    const size_t count = known->takes_arguments ? 1 : 0;
    if (count && !arguments) arguments = point_view_at(view);
    PyObject* given[] = {nullptr, arguments};
    result = nb::steal(PyObject_Vectorcall(callable.ptr(), given + 1,
                                           count | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
  }
  const bool is_copied = user_call.has_returned_twice();
  return result.is_valid() && is_acceptable(callable, result, is_copied);
}

// Return the view for the arguments of a frame, as a borrowed reference.
PyObject* ChildLoop::point_view_at(const pto_frame_view& view) {
  const pto_frame& frame = *view.frame;
  const Blob blob = has_arguments(frame)
                        ? decode_blob({static_cast<const std::byte*>(view.data), frame.bytes})
                        : Blob{};
  if (!view_) view_ = make_view();
  view_->point_at(blob, (frame.flags & PTO_FRAME_HAS_KINDS) != 0);
  return reinterpret_cast<PyObject*>(view_);
}

// The memory of the frame is about to be reused. If a callable has kept the view, copy the
// arguments.
void ChildLoop::release_view() {
  if (!view_) return;
  auto* object = reinterpret_cast<PyObject*>(view_);
  if (Py_REFCNT(object) == 1) {
    view_->point_at({}, false);
    return;
  }
  if (!view_->detach()) PyErr_Clear();
  view_ = nullptr;
  Py_DECREF(object);
}

// Return the current exception as a packed Failure, and clear it.
nb::object ChildLoop::describe_failure() const {
  try {
    const nb::object exception = core::take_exception();
    nb::object packed = failure_type_.attr("of")(exception).attr("pack")(largest_answer_);
    if (PyBytes_Check(packed.ptr()) && nb::len(packed) <= largest_answer_) return packed;
  } catch (nb::python_error& error) {
    error.discard_as_unraisable("describing the failure of a task");
  }
  return nb::bytes(kUndescribed.data(), kUndescribed.size());
}

// Return the wait that the task that has just failed stated, and forget it.
uint32_t ChildLoop::retry_wait_ms() const {
  try {
    return nb::cast<uint32_t>(take_retry_wait_());
  } catch (nb::python_error& error) {
    error.discard_as_unraisable("reading the wait before the next attempt of a task");
    return 0;
  }
}

}  // namespace pto::worker
