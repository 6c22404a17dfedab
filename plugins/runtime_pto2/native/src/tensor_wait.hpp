// The wait of the orchestrator for the tasks that use the memory of a tensor.
//
// Called by the orchestrator only.
#pragma once

#include "edges.hpp"
#include "run_state.hpp"
#include "space_wait.hpp"

namespace pto::ring_buffer {

class TensorWait {
 public:
  // `users`: a list that no submit uses now.
  TensorWait(RunState& run, EdgeList& users, SpaceWait& wait)
      : run_(run), users_(users), wait_(wait) {}

  // Wait until the writers of the memory have completed, and, if `for_write` is set, its readers.
  // All tasks have been published. Return false if the run has failed.
  bool wait(const pto_tensor_data& tensor, bool for_write, CallSite at);

 private:
  void find_users(const pto_tensor_data& tensor);
  bool is_free(SlotRef owner, bool for_write) const;
  bool is_done(SlotRef task) const;
  bool is_all_done() const;

  RunState& run_;
  EdgeList& users_;
  SpaceWait& wait_;
};

}  // namespace pto::ring_buffer
