// Comes after the source of an orchestration in its one translation unit, where
// PTO_ORCHESTRATION_ENTRY is the name of its entry; exports what the runtime library calls.
#pragma once

#include <cstdio>
#include <exception>

#include "runtime.h"

// What the entry returned, or -1 when it threw.
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
