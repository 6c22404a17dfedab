// The compiler includes this file after the source of an orchestration, in the only translation
// unit of its library. PTO_ORCHESTRATION_ENTRY is the name of the orchestration's entry. This file
// exports the functions that the runtime library calls.
#ifndef PTO2_ENTRY_WRAPPER_HPP
#define PTO2_ENTRY_WRAPPER_HPP

#include <cstdio>
#include <type_traits>

#include "pto/engine/orchestration_entry.hpp"
#include "pto_orchestration_api.h"

#ifndef PTO_ORCHESTRATION_ENTRY
#error "define PTO_ORCHESTRATION_ENTRY as the name of the orchestration's entry"
#endif

// Called if the source has no config function. A config function of the source is a better match,
// so it has priority.
namespace pto_orchestration_without_config {
struct NoConfig {};
inline NoConfig aicpu_orchestration_config(...) {
  return {};
}
}  // namespace pto_orchestration_without_config
using namespace pto_orchestration_without_config;

namespace pto_orchestration {

// The tensor pool of a run. It exists while the orchestration runs.
class PoolOfRun {
 public:
  explicit PoolOfRun(PTO2Runtime& runtime) {
    current_pool = TensorPool::create(
        [](void* context, const char* what, const char* file, int32_t line) {
          PTO2Runtime* rt = static_cast<PTO2Runtime*>(context);
          rt->calls->fail(rt->instance, what, file, line);
        },
        &runtime);
  }
  PoolOfRun(const PoolOfRun&) = delete;
  PoolOfRun& operator=(const PoolOfRun&) = delete;
  ~PoolOfRun() {
    if (current_pool != nullptr) current_pool->end();
    current_pool = nullptr;
  }
};

using pto_orchestration_without_config::NoConfig;

inline bool is_count_expected(PTO2Runtime&, const NoConfig&, int) {
  return true;
}

template <class Config>
bool is_count_expected(PTO2Runtime& runtime, const Config& config, int num_args) {
  if (config.expected_arg_count == num_args) return true;
  char text[256];
  std::snprintf(
      text, sizeof text,
      "the orchestration expects %d arguments (expected_arg_count of "
      "aicpu_orchestration_config) but was given %d; each tensor and each scalar in the list of "
      "the case is one argument",
      static_cast<int>(config.expected_arg_count), num_args);
  runtime.calls->fail(runtime.instance, text, "", 0);
  return false;
}

inline void report_exception(PTO2Runtime& runtime, const char* what) {
  char text[512];
  std::snprintf(text, sizeof text, "the orchestration threw an exception: %s", what);
  runtime.calls->fail(runtime.instance, text, nullptr, 0);
}

}  // namespace pto_orchestration

extern "C" __attribute__((visibility("default"))) int32_t pto2_orchestrate(
    const pto2_calls* calls, void* instance, uint64_t* args, int32_t num_args, const pto_tensor*) {
  using namespace pto_orchestration;
  if (calls->version != PTO2_CALLS_VERSION) return -1;
  PTO2Runtime runtime{calls, instance};
  const PoolOfRun pool(runtime);
  using Entry = decltype(&::PTO_ORCHESTRATION_ENTRY);
  static_assert(std::is_invocable_v<Entry, PTO2Runtime*, uint64_t*, int>,
                "the entry of a tensormap_and_ringbuffer orchestration must be callable as "
                "void entry(PTO2Runtime* rt, uint64_t* args, int arg_count)");
  return catch_exceptions(
      [&] {
        if (!is_count_expected(runtime, aicpu_orchestration_config(args, num_args), num_args)) {
          return int32_t{-1};
        }
        return call_entry(&::PTO_ORCHESTRATION_ENTRY, &runtime, args, num_args);
      },
      [&](const char* what) { report_exception(runtime, what); });
}

#endif
