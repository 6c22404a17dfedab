// The interface of orchestrations, for sources that include it by this name.
#ifndef PTO_RUNTIME_H
#define PTO_RUNTIME_H

#include "pto_orchestration_api.h"

#endif
