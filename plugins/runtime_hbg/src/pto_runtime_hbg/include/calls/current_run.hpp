// The run of the calling thread. Published functions and macros that have no context argument use
// it.
#ifndef PTO_BUILD_GRAPH_CURRENT_RUN_HPP
#define PTO_BUILD_GRAPH_CURRENT_RUN_HPP

#include "pto_build_graph_calls.h"

namespace pto_orchestration {

struct CurrentRun {
  const pto_build_graph_calls* calls = nullptr;
  void* graph = nullptr;
};
inline thread_local CurrentRun current_run;

}  // namespace pto_orchestration

#endif
