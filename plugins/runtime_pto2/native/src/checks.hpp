// The checks of a submit. A check that fails reports the violated rule and returns false; the first
// error ends the run.
//
// Called by the orchestrator only.
#pragma once

#include <cstdint>

#include "current_rings.hpp"
#include "draft.hpp"
#include "pto/engine/kernel_table.hpp"
#include "run_state.hpp"

namespace pto::ring_buffer {

class SubmitChecks {
 public:
  SubmitChecks(RunState& run, const KernelTable& kernels, CurrentRings& current)
      : run_(run), kernels_(kernels), current_(current) {}

  // Check the submit and fill in the data for its later steps: kernel, ring, id, counts, accesses.
  // Not inlined, because inlining would take registers from these steps and make them 2 % slower.
  [[gnu::noinline]] bool check(Draft& draft);

 private:
  bool check_kernel(Draft& draft);
  bool check_clusters(const Draft& draft);
  bool check_parameters(Draft& draft);
  bool check_signature(const Draft& draft, const pto_signature& signature);
  bool check_tensor(Draft& draft, uint32_t index);
  bool check_new_output(Draft& draft, uint32_t index);
  bool check_address(const Draft& draft, uint32_t index);
  bool locate(const Draft& draft, uint32_t index, Access* access);
  bool is_scope_open(int64_t id) const;
  bool is_output_of(int64_t id, uint64_t address);

  [[gnu::cold]] bool reject_kernel(const Draft& draft);
  [[gnu::cold]] bool reject_core_type(const Draft& draft);
  [[gnu::cold]] bool reject_parameters(const Draft& draft);
  [[gnu::cold]] bool reject_scalars(const Draft& draft);
  [[gnu::cold]] bool reject_tensors(const Draft& draft);
  [[gnu::cold]] bool reject_view(const Draft& draft, uint32_t index);
  [[gnu::cold]] bool reject_owner(const Draft& draft, uint32_t index, int64_t owner);
  [[gnu::cold]] bool reject_other_run(const Draft& draft, uint32_t index);
  template <class... Parts>
  [[gnu::cold, gnu::noinline]] bool reject_parameter(const Draft& draft, uint32_t index,
                                                     Parts... run);

  RunState& run_;
  const KernelTable& kernels_;
  CurrentRings& current_;
};

}  // namespace pto::ring_buffer
