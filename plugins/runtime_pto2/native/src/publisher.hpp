// The newest submit, from its last step until it is published.
//
// Schedulers may start a task as soon as it is in the stream. So the newest submit is held back
// until the next call, which may be add_dep(); its edges stay in a list until then. Decision record
// 0005 compares this with the alternatives.
//
// Called by the orchestrator only.
#pragma once

#include <cstdint>

#include "current_rings.hpp"
#include "draft.hpp"
#include "run_state.hpp"

namespace pto::ring_buffer {

class Publisher {
 public:
  Publisher(RunState& run, CurrentRings& current) : run_(run), current_(current) {}

  void begin() {
    held_ = {};
    last_id_ = kNoTask;
  }

  void hold(const Draft& draft) {
    held_ = {draft.ring, draft.count, draft.number};
    last_id_ = draft.id;
  }

  // Append the task that is held back, if any, to the stream. If this fails, the run has failed.
  void append() {
    if (held_.count == 0) return;
    current_.take([this](auto& rings) { return rings.publish(held_, current_.edges()); });
    held_.count = 0;
  }
  // Append the task that is held back, and announce the stream to the schedulers.
  void publish() {
    append();
    run_.stream.announce();
  }

  // Add an edge to the task that is held back, which must be `to`. Return false after an error.
  bool add_dep(int64_t from, int64_t to, Place at);

 private:
  bool check_dep(int64_t from, int64_t to, Place at);

  RunState& run_;
  CurrentRings& current_;
  HeldTask held_ = {};
  int64_t last_id_ = kNoTask;
};

}  // namespace pto::ring_buffer
