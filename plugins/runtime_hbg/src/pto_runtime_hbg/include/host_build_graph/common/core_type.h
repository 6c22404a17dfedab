// The type of core on which a task runs.
#ifndef PTO_HOST_BUILD_GRAPH_CORE_TYPE_H
#define PTO_HOST_BUILD_GRAPH_CORE_TYPE_H

#include <cstdint>

enum class CoreType : int32_t { AIC = 0, AIV = 1 };

#endif
