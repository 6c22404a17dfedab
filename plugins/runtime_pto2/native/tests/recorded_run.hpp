// Runs an orchestration without a runtime: the functions of its table record the calls. The
// complete wrapper is used. Outputs without an address get one, in steps of 1024 bytes.
#pragma once

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "pto_orchestration_api.h"

struct RecordedTask {
  pto_tensor_task task;
  std::vector<uint32_t> tags;
  std::vector<uint64_t> scalars;         // 0 for tensors
  std::vector<pto_tensor_data> tensors;  // the tensors after the submit
  std::vector<int32_t> clusters;
};

struct RecordedRun {
  std::vector<RecordedTask> tasks;
  std::vector<std::string> events;  // for all calls except submits
  std::vector<std::string> errors;
  std::vector<std::string> files;  // the file of each error; "" if it has none
  std::vector<int> lines;
  std::vector<int> scope_lines;
  uint64_t next_address = 0x100000;
  int64_t next_id = 0;
  bool keeps_tasks = true;
};

namespace recorded_run {

inline RecordedRun& self(void* run) {
  return *static_cast<RecordedRun*>(run);
}

inline int64_t submit(void* instance, pto_tensor_task* task) {
  RecordedRun& run = self(instance);
  if (task->num_params > 64) {  // the wrapper passes no parameters on if there are too many
    run.errors.push_back(std::to_string(task->num_params) + " parameters");
    run.files.push_back(task->file == nullptr ? "" : task->file);
    run.lines.push_back(task->line);
    return -1;
  }
  const int64_t id = run.next_id++;
  RecordedTask record{*task, {}, {}, {}, {}};
  for (uint32_t i = 0; i < task->num_params; ++i) {
    pto_param& param = task->params[i];
    if (param.tag == PTO_TAG_OUTPUT && param.value.tensor->buffer.addr == 0) {
      param.value.tensor->buffer.addr = run.next_address;
      param.value.tensor->owner = id;
      run.next_address += 1024;
    }
    if (!run.keeps_tasks) continue;
    const bool is_scalar = param.tag == PTO_TAG_SCALAR;
    record.tags.push_back(param.tag);
    record.scalars.push_back(is_scalar ? param.value.scalar : 0);
    if (!is_scalar) record.tensors.push_back(*param.value.tensor);
  }
  const uint32_t count = task->clusters == nullptr ? 0 : task->block_dim == 0 ? 1 : task->block_dim;
  for (uint32_t i = 0; i < count; ++i) record.clusters.push_back(task->clusters[i]);
  if (run.keeps_tasks) run.tasks.push_back(record);
  return id;
}

inline pto2_calls table() {
  pto2_calls calls{};
  calls.version = PTO2_CALLS_VERSION;
  calls.submit = submit;
  calls.add_dep = [](void* run, int64_t from, int64_t to, const char*, int32_t) {
    self(run).events.push_back("dep " + std::to_string(from) + " " + std::to_string(to));
  };
  calls.scope_begin = [](void* run, const char*, int32_t line) {
    self(run).events.push_back("begin");
    self(run).scope_lines.push_back(line);
  };
  calls.scope_end = [](void* run, const char*, int32_t) { self(run).events.push_back("end"); };
  calls.allocate_cluster = [](void* run, const char*, int32_t) {
    self(run).events.push_back("allocate");
    return int32_t{7};
  };
  calls.free_cluster = [](void* run, int32_t cluster, const char*, int32_t) {
    self(run).events.push_back("free " + std::to_string(cluster));
  };
  calls.orchestration_done = [](void* run, const char*, int32_t) {
    self(run).events.push_back("done");
  };
  calls.log = [](void* run, int32_t level, const char* function, const char* message) {
    self(run).events.push_back("log " + std::to_string(level) + " " + function + ": " + message);
  };
  calls.fail = [](void* run, const char* what, const char* file, int32_t line) {
    self(run).errors.push_back(what);
    self(run).files.push_back(file == nullptr ? "" : file);
    self(run).lines.push_back(line);
  };
  return calls;
}

using Body = std::function<void(PTO2Runtime*)>;
inline const Body* current = nullptr;
inline int32_t result = 0;

}  // namespace recorded_run

static int recorded_entry(PTO2Runtime* rt, uint64_t*, int) {
  (*recorded_run::current)(rt);
  return 0;
}
static PTO2OrchestrationConfig aicpu_orchestration_config(uint64_t*, int) {
  return PTO2OrchestrationConfig{2};
}

#define PTO_ORCHESTRATION_ENTRY recorded_entry
#include "entry_wrapper.hpp"

// Run `body` as an orchestration and return its record. A `num_args` other than 2 simulates a wrong
// number of arguments.
inline RecordedRun record(const recorded_run::Body& body, int32_t num_args = 2,
                          bool keeps_tasks = true) {
  RecordedRun run;
  run.keeps_tasks = keeps_tasks;
  const pto2_calls calls = recorded_run::table();
  uint64_t args[2] = {0, 0};
  recorded_run::current = &body;
  recorded_run::result = pto2_orchestrate(&calls, &run, args, num_args, nullptr);
  return run;
}
