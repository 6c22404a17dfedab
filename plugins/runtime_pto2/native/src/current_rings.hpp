// The rings that submits use: those of the run or, after a proven deadlock, those of a plan.
//
// Called by the orchestrator only.
#pragma once

#include <cstdint>

#include "deadlock.hpp"
#include "edges.hpp"
#include "history.hpp"
#include "live_rings.hpp"
#include "planned_rings.hpp"
#include "run_state.hpp"
#include "space_wait.hpp"

namespace pto::ring_buffer {

class CurrentRings {
 public:
  CurrentRings(RunState& run, SpaceWait& wait, Deadlock& deadlock)
      : run_(run), deadlock_(deadlock), live_(run, wait, history_), planned_(run, history_) {}

  Shortage create();
  void destroy();
  void begin();
  // Called at the end of the orchestration. If a deadlock was proven, add the sufficient sizes to
  // its error; see PlannedRings::finish().
  void finish(bool is_whole);
  // Called between runs.
  void end() { planned_.end(); }

  bool is_planning() const { return is_planning_; }

  // Call step(rings). If it returns false because a deadlock has been proven, call step again with
  // the planned rings. Return the result of the last call.
  template <class Step>
  bool take(Step step) {
    if (!is_planning_) {
      if (step(live_)) return true;
      if (!enter_planning()) return false;
    }
    return step(planned_);
  }

  // Call step(rings) once. Only for steps that never wait.
  template <class Step>
  auto call(Step step) {
    return is_planning_ ? step(planned_) : step(live_);
  }

  HeapMemory& heaps() { return live_.heaps(); }
  History& history() { return history_; }
  // The edges of the newest submit.
  EdgeList& edges() { return edges_; }

 private:
  [[gnu::cold, gnu::noinline]] bool enter_planning();

  RunState& run_;
  Deadlock& deadlock_;
  History history_;
  EdgeList edges_;
  LiveRings live_;
  PlannedRings planned_;
  bool is_planning_ = false;
};

}  // namespace pto::ring_buffer
