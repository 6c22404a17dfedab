// The run of this library, for published functions and macros without a context argument.
//
// Each device loads its own copy of an orchestration's library and has one run at a time. So a
// plain variable is enough, and the library needs no thread-local storage, which an AICPU does not
// have.
#ifndef PTO_BUILD_GRAPH_CURRENT_RUN_HPP
#define PTO_BUILD_GRAPH_CURRENT_RUN_HPP

#include "pto_build_graph_calls.h"

namespace pto_orchestration {

struct CurrentRun {
  const pto_build_graph_calls* calls = nullptr;
  void* graph = nullptr;
};
inline CurrentRun current_run;

}  // namespace pto_orchestration

#endif
