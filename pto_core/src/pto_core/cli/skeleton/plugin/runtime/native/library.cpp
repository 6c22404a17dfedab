// Defines the runtime table, through which a backend drives the runtime. The library exports one
// function, which returns the table.
#include <cstring>
#include <exception>
#include <new>

#include "runtime.hpp"

namespace pto_runtime_template {
namespace {

extern const pto_runtime_api table;

Runtime& self(void* runtime) {
  return *static_cast<Runtime*>(runtime);
}

// Calls `call`. If it throws, ends the run with an error and returns `otherwise`, so that no
// exception leaves the library.
auto guarded(void* runtime, auto otherwise, auto call) noexcept -> decltype(call()) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    self(runtime).fail({PTO_ERROR_MEMORY}, "no memory for the graph; submit fewer tasks");
  } catch (const std::exception& exception) {
    self(runtime).fail({PTO_ERROR_INTERNAL}, "the runtime template failed: ", exception.what());
  }
  return otherwise;
}

pto_status create(const pto_platform* platform, const pto_option* options, uint32_t num_options,
                  void** runtime, pto_error* error) {
  pto::engine::ErrorLatch refusal;
  if (num_options > 0) {
    refusal.latch({PTO_ERROR_USAGE}, "the runtime template has no option \"", options[0].key,
                  "\"; it has no options");
  } else if ((*runtime = new (std::nothrow) Runtime(*platform)) == nullptr) {
    refusal.latch({PTO_ERROR_MEMORY}, "no memory for the runtime template");
  }
  if (error != nullptr) *error = *refusal.error();
  return refusal.status();
}

void destroy(void* runtime) {
  delete &self(runtime);
}

pto_status begin(void* runtime, const pto_run* run) {
  return guarded(runtime, pto_status{PTO_ERROR_MEMORY}, [&] { return self(runtime).begin(*run); });
}

pto_status orchestrate(void* runtime) {
  return guarded(runtime, pto_status{PTO_ERROR_MEMORY},
                 [&] { return self(runtime).orchestrate(table); });
}

void orchestration_done(void* runtime, int32_t result) {
  guarded(runtime, 0, [&] { return self(runtime).orchestration_done(result), 0; });
}

int64_t submit(void* runtime, const pto_task* task) {
  return guarded(runtime, int64_t{-1}, [&] { return self(runtime).submit(*task); });
}

pto_status add_edge(void* runtime, int64_t from, int64_t to) {
  return guarded(runtime, pto_status{PTO_ERROR_MEMORY},
                 [&] { return self(runtime).add_edge(from, to); });
}

// This call exists for programs that also run on other variants. Here every task runs, whether it
// was published or not.
pto_status publish(void* runtime, int64_t) {
  return self(runtime).last_error()->status;
}

int32_t schedule_step(void* runtime, uint32_t thread) {
  return guarded(runtime, int32_t{PTO_STEP_ERROR},
                 [&] { return self(runtime).schedule_step(thread); });
}

int32_t stalled(void* runtime) {
  return guarded(runtime, int32_t{PTO_STEP_ERROR}, [&] { return self(runtime).stalled(); });
}

pto_status finalise(void*) {
  return PTO_OK;  // results are in device memory, from which the core copies them
}

void end(void* runtime) {
  self(runtime).end();
}

void abort(void* runtime, const pto_error* cause) {
  self(runtime).abort(cause);
}

const pto_error* last_error(void* runtime) {
  return self(runtime).last_error();
}

uint32_t statistics(void* runtime, pto_statistic* out, uint32_t capacity) {
  return self(runtime).statistics(out, capacity);
}

size_t explain(void* runtime, char* out, size_t capacity) {
  pto::engine::Text text(out, capacity);
  return text.add(self(runtime).explain().c_str()).length();
}

// Calls that only runtimes with other capabilities support end in this error.
pto_status refuse(void* runtime, const char* what) {
  return self(runtime).fail({PTO_ERROR_UNSUPPORTED}, "the runtime template has no ", what);
}

int64_t submit_tensors(void* runtime, pto_tensor_task*) {
  return refuse(runtime, "dependencies found from tensors; use add_task and add_edge"), -1;
}

pto_status scope_begin(void* runtime, const char*, int32_t) {
  return refuse(runtime, "scopes");
}

pto_status scope_end(void* runtime) {
  return refuse(runtime, "scopes");
}

int32_t allocate_cluster(void* runtime, const char*, int32_t) {
  return refuse(runtime, "clusters"), -1;
}

pto_status free_cluster(void* runtime, int32_t) {
  return refuse(runtime, "clusters");
}

const pto_runtime_api table = {
    PTO_ABI_VERSION,
    sizeof(pto_runtime_api),
    "template",
    PTO_RUNTIME_EXPLICIT_EDGES,
    PTO_MAX_KERNEL_ARGS,
    0,  // limited by memory only
    create,
    destroy,
    begin,
    orchestrate,
    orchestration_done,
    submit,
    submit_tensors,
    add_edge,
    publish,
    scope_begin,
    scope_end,
    allocate_cluster,
    free_cluster,
    schedule_step,
    stalled,
    nullptr,  // attend: not needed, because this runtime never waits
    finalise,
    end,
    abort,
    last_error,
    statistics,
    explain,
};

}  // namespace
}  // namespace pto_runtime_template

PTO_ABI_EXPORT const pto_runtime_api* pto_runtime_entry(const char* variant) {
  return std::strcmp(variant, "template") == 0 ? &pto_runtime_template::table : nullptr;
}
