// The functions of the table that an orchestration library receives.
#include "instance.hpp"

namespace pto::ring_buffer {
namespace {

Instance& self(void* runtime) {
  return *static_cast<Instance*>(runtime);
}

int64_t submit(void* runtime, pto_tensor_task* task) {
  return self(runtime).orchestrator().submit(*task);
}

void add_dep(void* runtime, int64_t from, int64_t to, const char* file, int32_t line) {
  self(runtime).orchestrator().add_dep(from, to, {file, line});
}

void scope_begin(void* runtime, const char* file, int32_t line) {
  self(runtime).orchestrator().scope_begin(file, line);
}

void scope_end(void* runtime, const char* file, int32_t line) {
  self(runtime).orchestrator().scope_end({file, line});
}

int32_t allocate_cluster(void* runtime, const char* file, int32_t line) {
  return self(runtime).orchestrator().allocate_cluster(file, line);
}

void free_cluster(void* runtime, int32_t cluster, const char* file, int32_t line) {
  self(runtime).orchestrator().free_cluster(cluster, {file, line});
}

void orchestration_done(void* runtime, const char* file, int32_t line) {
  self(runtime).orchestrator().close({file, line});
}

void log(void* runtime, int32_t level, const char* function, const char* message) {
  const pto_platform* platform = self(runtime).context().platform;
  char line[2048];
  Text(line, sizeof line).add(function, ": ", message);
  const bool is_known = level >= PTO_LOG_ALWAYS && level <= PTO_LOG_DEBUG;
  platform->log(platform->self, is_known ? level : PTO_LOG_ALWAYS, line);
}

void range_begin(void* runtime, const char* name) {
  pto_record_range_begin(self(runtime).context().platform, PTO_TRACK_ORCHESTRATOR, name);
}

void range_end(void* runtime) {
  pto_record_range_end(self(runtime).context().platform, PTO_TRACK_ORCHESTRATOR);
}

// An error with a source position is a usage error. An error without one is an exception of the
// orchestration.
void fail(void* runtime, const char* what, const char* file, int32_t line) {
  const pto_status status = file != nullptr ? PTO_ERROR_USAGE : PTO_ERROR_ORCHESTRATION;
  self(runtime).orchestrator().fail(status, what, file, line);
}

}  // namespace

pto2_calls orchestration_calls() {
  pto2_calls calls{};
  calls.version = PTO2_CALLS_VERSION;
  calls.submit = submit;
  calls.add_dep = add_dep;
  calls.scope_begin = scope_begin;
  calls.scope_end = scope_end;
  calls.allocate_cluster = allocate_cluster;
  calls.free_cluster = free_cluster;
  calls.orchestration_done = orchestration_done;
  calls.log = log;
  calls.range_begin = range_begin;
  calls.range_end = range_end;
  calls.fail = fail;
  return calls;
}

}  // namespace pto::ring_buffer
