// The compiler includes this file after the source of an orchestration, in the only translation
// unit of its library. PTO_ORCHESTRATION_ENTRY is the name of the orchestration's entry. This file
// exports the function that the runtime library calls.
#ifndef PTO_ENTRY_WRAPPER_HPP
#define PTO_ENTRY_WRAPPER_HPP

#include <cstdio>
#include <functional>
#include <memory>
#include <type_traits>

#include "pto/engine/orchestration_entry.hpp"
#include "pto_orchestration_api.h"

#ifndef PTO_ORCHESTRATION_ENTRY
#error "define PTO_ORCHESTRATION_ENTRY as the name of the orchestration's entry"
#endif

// Called if the source has no config function. A config function of the source is no template, so
// it has priority.
namespace pto_orchestration_without_config {
struct NoConfig {};
template <class Args>
NoConfig aicpu_orchestration_config(const Args&) {
  return {};
}
}  // namespace pto_orchestration_without_config
using namespace pto_orchestration_without_config;

namespace pto_orchestration {

// Binds a run to the calls of this library.
class BoundRun {
 public:
  explicit BoundRun(Run& run) {
    current_run = &run;
    current_graphs = &graphs_;
    report_error = [](const char* what, Location at) {
      if (!current_run->has_failed()) current_run->fail(PTO2_ERROR_INVALID_ARGS, what, at);
    };
  }
  BoundRun(const BoundRun&) = delete;
  BoundRun& operator=(const BoundRun&) = delete;
  ~BoundRun() {
    current_run = nullptr;
    current_graphs = nullptr;
    report_error = nullptr;
  }

 private:
  Graphs graphs_;
};

using pto_orchestration_without_config::NoConfig;

inline bool is_count_expected(Run&, const NoConfig&, int) {
  return true;
}

template <class Config>
bool is_count_expected(Run& run, const Config& config, int count) {
  if (config.expected_arg_count == count) return true;
  char text[256];
  std::snprintf(text, sizeof text,
                "the orchestration expects %d arguments (expected_arg_count of "
                "aicpu_orchestration_config) but was given %d; each tensor and each scalar is one "
                "argument",
                static_cast<int>(config.expected_arg_count), count);
  run.calls().fail(run.runtime(), text, "", 0);
  return false;
}

}  // namespace pto_orchestration

extern "C" __attribute__((visibility("default"))) int32_t
pto2_orchestrate(const pto2_calls* calls, void* runtime, uint64_t*, int32_t num_args,
                 const pto_tensor* arguments) {
  using namespace pto_orchestration;
  if (calls->version != PTO2_CALLS_VERSION) return -1;
  using Entry = decltype(&::PTO_ORCHESTRATION_ENTRY);
  static_assert(std::is_invocable_v<Entry, const ChipTaskArgs&>,
                "the entry of an orchestration of August 2026 must be callable as "
                "void entry(const ChipTaskArgs& args)");
  Run run(calls, runtime);
  const BoundRun bound(run);
  const auto fail = [&](const char* what) { calls->fail(runtime, what, nullptr, 0); };
  return catch_exceptions(
      [&] {
        const std::unique_ptr<ChipTaskArgs> args(new ChipTaskArgs);
        if (arguments == nullptr || !args->assign(arguments, num_args)) {
          fail(arguments == nullptr ? "the shapes of the orchestration's arguments are not known"
                                    : "the orchestration has more than 256 tensors or 128 scalars");
          return int32_t{-1};
        }
        if (!is_count_expected(run, aicpu_orchestration_config(*args), num_args)) {
          return int32_t{-1};
        }
        const ChipTaskArgs& given = *args;
        const int32_t result = call_entry(&::PTO_ORCHESTRATION_ENTRY, std::cref(given));
        run.end(
            "the orchestration returned in this scope; each rt_scope_begin needs its rt_scope_end");
        return result;
      },
      [&](const char* what) {
        char text[512];
        std::snprintf(text, sizeof text, "the orchestration threw an exception: %s", what);
        fail(text);
      });
}

#endif
