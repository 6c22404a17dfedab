// The type of core on which a task can run.
#ifndef PTO2_CORE_TYPE_H
#define PTO2_CORE_TYPE_H

#include <cstdint>

enum class CoreType : int32_t { AIC = 0, AIV = 1 };

#endif
