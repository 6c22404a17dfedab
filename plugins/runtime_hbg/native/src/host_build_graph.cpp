// The host builds the whole graph, then the schedulers run it.
#include "variant.hpp"

#include "pto/abi/runtime.h"
#include "pto_build_graph_calls.h"

namespace pto::build_graph {

const Variant variant = {
    "host_build_graph",
    PTO_RUNTIME_HOST_ORCHESTRATION | PTO_RUNTIME_EXPLICIT_EDGES,
    false,
    false,
    PTO_HOST_BUILD_GRAPH_ORCHESTRATE,
};

}  // namespace pto::build_graph
