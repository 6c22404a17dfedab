// Runs the entry of a build-graph orchestration; used by the entry_wrapper.hpp of both variants.
#ifndef PTO_BUILD_GRAPH_ENTRY_HPP
#define PTO_BUILD_GRAPH_ENTRY_HPP

#include <vector>

#include "current_run.hpp"
#include "pto/engine/orchestration_entry.hpp"

namespace pto_orchestration {

// Calls `body` with a copy of the arguments, because the orchestration may modify them.
template <class Body>
int32_t run_entry(const CurrentRun& run, const uint64_t* args, int32_t num_args, Body body) {
  if (run.calls->version != PTO_BUILD_GRAPH_CALLS_VERSION) return -1;
  current_run = run;
  const int32_t result = catch_exceptions(
      [&] {
        std::vector<uint64_t> own_args(args, args + num_args);
        return body(own_args.data());
      },
      [&](const char* what) { run.calls->fail(run.graph, what); });
  current_run = {};
  return result;
}

}  // namespace pto_orchestration

#endif
