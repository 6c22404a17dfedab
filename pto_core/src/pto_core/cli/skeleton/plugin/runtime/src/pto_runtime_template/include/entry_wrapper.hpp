// Wraps the entry function of an orchestration in the function that the runtime library calls. The
// build compiles the source of the orchestration and this file as one translation unit, and defines
// PTO_ORCHESTRATION_ENTRY as the name of the entry function.
#pragma once

#include <cstdio>
#include <exception>

#include "runtime.h"

// Returns the result of the entry function, or -1 if it threw an exception.
PTO_ABI_EXPORT int32_t pto_template_orchestrate(const pto_runtime_api* api, void* instance,
                                                const pto_platform* platform, const pto_run* run) {
  Runtime runtime(api, instance, platform, run);
  try {
    return PTO_ORCHESTRATION_ENTRY(&runtime);
  } catch (const std::exception& exception) {
    pto_error error{};
    error.status = PTO_ERROR_ORCHESTRATION;
    error.task = error.other_task = -1;
    error.func_id = error.core = error.line = -1;
    std::snprintf(error.message, sizeof error.message, "the orchestration threw: %s",
                  exception.what());
    api->abort(instance, &error);
  } catch (...) {
  }
  return -1;
}
