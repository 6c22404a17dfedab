// The child's end of a connection, for the child loop: the function table of the transport, the
// end, and the waits.
//
// Only one thread uses this object. If the end is written in Python, each call needs the GIL. A
// wait for frames then only reads the doorbell, because the parent of a Python end always rings it.
#pragma once

#include <cstdint>
#include <string>

#include "engine/interface.hpp"
#include "progress_table.hpp"
#include "pto/abi/endpoint.h"
#include "pto/engine/bell.hpp"

namespace pto::worker {

// Thrown when the parent has closed the connection; this is not an error.
struct ParentClosed {};

class ChildEnd {
 public:
  // Take ownership of the end.
  ChildEnd(const pto_transport_api& api, pto_child_end* end, const ProgressTable& progress,
           int32_t child, bool is_python)
      : api_(api),
        end_(end),
        bell_(&progress.child(child).bell),
        waiter_(bell_, progress.spin_places(), ProgressTable::spinner(child)),
        sleeper_(bell_, nullptr, ProgressTable::spinner(child),
                 {0, 0, engine::WaitPolicy().longest_ns}),
        is_python_(is_python) {}
  ~ChildEnd() { close(); }
  ChildEnd(const ChildEnd&) = delete;
  ChildEnd& operator=(const ChildEnd&) = delete;

  // Return the next frames. Throws Refusal (protocol), or ParentClosed.
  int32_t receive(pto_frame_view* frames, int32_t most) {
    if (is_python_) seen_ = rung();
    return checked(api_.receive(end_, frames, most));
  }
  void take(int32_t count) { api_.take(end_, count); }

  // Return false if there is no free space. Throws the same exceptions as receive().
  bool try_answer(const pto_answer& answer) { return checked(api_.answer(end_, &answer)) != 0; }

  // Wait until receive() may return a frame, or until the doorbell rings. Return false after 50 ms
  // or a signal. Call without the GIL. If a wait ends without a frame, the next wait sleeps at
  // once, because spinning every 50 ms would cause most of the cost of an idle Worker.
  bool wait_for_frames() {
    if (!is_python_) seen_ = rung();
    pto_frame_view frame;
    const auto has_come = [&] {
      return rung() != seen_ || (!is_python_ && api_.receive(end_, &frame, 1) != 0);
    };
    const bool came = (is_idle_ ? sleeper_ : waiter_).wait(has_come);
    is_idle_ = !came;
    return came;
  }

  // Send an answer like try_answer(), but wait up to 50 ms for free space. Call without the GIL.
  bool wait_to_answer(const pto_answer& answer) {
    int32_t result = 0;
    waiter_.wait([&] { return (result = api_.answer(end_, &answer)) != 0; });
    return checked(result) != 0;
  }

  template <class Ready, class Announce>
  bool wait(Ready ready, Announce announce) {
    return waiter_.wait(ready, announce);
  }

  bool is_open() const { return end_ != nullptr; }
  void close() {
    if (end_) api_.close_child(end_);
    end_ = nullptr;
  }

 private:
  uint32_t rung() const { return __atomic_load_n(&bell_->rung, __ATOMIC_SEQ_CST); }

  int32_t checked(int32_t result) const {
    if (result >= 0) return result;
    if (result == PTO_ENDPOINT_CLOSED) throw ParentClosed();
    const std::string message = api_.child_error(end_);
    throw Refusal(Refusal::Kind::kProtocol, "transport " + std::string(api_.name) + ": " + message);
  }

  const pto_transport_api& api_;
  pto_child_end* end_;
  pto_bell* bell_;
  engine::Waiter waiter_;
  engine::Waiter sleeper_;
  bool is_idle_ = false;  // whether the last wait for frames ended without a frame
  uint32_t seen_ = 0;     // count of the doorbell before the last receive() or wait
  const bool is_python_;
};

}  // namespace pto::worker
