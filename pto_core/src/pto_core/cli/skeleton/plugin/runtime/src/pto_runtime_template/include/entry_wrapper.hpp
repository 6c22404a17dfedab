// Included after the source of an orchestration in its only translation unit, where
// PTO_ORCHESTRATION_ENTRY is the name of its entry. Exports the function that the runtime library
// calls.
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
