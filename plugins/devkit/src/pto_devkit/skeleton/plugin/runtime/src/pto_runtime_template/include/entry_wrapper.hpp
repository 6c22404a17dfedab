// Wraps the entry function of an orchestration in the function that the runtime library calls. The
// build compiles the source of the orchestration and this file as one translation unit, and defines
// PTO_ORCHESTRATION_ENTRY as the name of the entry function.
#pragma once

#include "pto/engine/latch.hpp"
#include "pto/engine/orchestration_entry.hpp"
#include "runtime.h"

// Returns the result of the entry function, or -1 if it threw an exception.
PTO_ABI_EXPORT int32_t pto_template_orchestrate(const pto_runtime_api* api, void* instance,
                                                const pto_platform* platform, const pto_run* run) {
  Runtime runtime(api, instance, platform, run);
  return pto_orchestration::catch_exceptions(
      [&] { return pto_orchestration::call_entry(&PTO_ORCHESTRATION_ENTRY, &runtime); },
      [&](const char* what) {
        pto::engine::ErrorLatch latch;
        latch.latch({PTO_ERROR_ORCHESTRATION}, "the orchestration threw: ", what);
        api->abort(instance, latch.error());
      });
}
