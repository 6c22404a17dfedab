// CoreTaskArgsWithDeps, for sources that include it by this name.
#ifndef PTO_ARG_WITH_DEPS_H
#define PTO_ARG_WITH_DEPS_H

#include "pto_task_args.h"

#endif
