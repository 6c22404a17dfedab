// An AICPU thread builds the graph. Published tasks run during the build unless build_mode is 0.
#include "variant.hpp"

#include "pto/abi/runtime.h"
#include "pto_build_graph_calls.h"

namespace pto::build_graph {

const Variant variant = {
    "aicpu_build_graph",
    PTO_RUNTIME_CONCURRENT_BUILD | PTO_RUNTIME_EXPLICIT_EDGES | PTO_RUNTIME_PUBLISH,
    true,
    true,
    PTO_AICPU_BUILD_GRAPH_ORCHESTRATE,
};

}  // namespace pto::build_graph
