// A runtime with tensors for tests of the core: one task after another, in the order of submits.
// This order respects the edges that any correct runtime finds. The runtime allocates outputs from
// device memory and frees nothing before the run ends. With the option "stuck=1", the third task
// makes the runtime report a deadlock; later submits run no kernels. With the option "slots=N", a
// submit waits while N tasks have not completed.

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "pto/abi/runtime.h"

namespace {

constexpr uint32_t kClusters = 4;

struct Packed {
  uint32_t core_type;
  std::vector<uint64_t> words;  // the payload of the task
};

struct Runtime {
  explicit Runtime(const pto_platform* table) : platform(table) {}

  const pto_platform* platform;
  uint32_t slots = 0;
  bool gets_stuck = false;

  const pto_run* run = nullptr;
  std::mutex mutex;
  std::vector<Packed> tasks;
  size_t dispatched = 0;
  bool in_flight = false;
  bool is_built = false;
  bool is_planning = false;
  std::atomic<uint32_t> completed{0};
  std::atomic<bool> has_error{false};
  pto_error error{};
  int depth = 0;
  uint32_t clusters_taken = 0;
  uint64_t keys = 0;
  uint64_t counts[4] = {};  // the statistics: tasks, edges, scopes, and hazards

  pto_status fail(pto_status status, const char* message) {
    const std::lock_guard lock(mutex);
    if (!has_error) {
      std::memset(&error, 0, sizeof error);
      error.status = status;
      error.func_id = error.core = error.line = -1;
      error.task = error.other_task = -1;
      std::snprintf(error.message, sizeof error.message, "%s", message);
      has_error = true;
    }
    return error.status;
  }

  bool allocate(pto_param& param) {
    if (param.tag == PTO_TAG_SCALAR || param.value.tensor->buffer.addr != 0) return true;
    pto_tensor_data& tensor = *param.value.tensor;
    tensor.owner = static_cast<int64_t>(tasks.size());
    if (tensor.is_pipe || tensor.buffer.size == 0) {
      tensor.buffer.addr = uint64_t{1} << 63 | ++keys;
      return true;
    }
    return platform->allocate(platform->self, tensor.buffer.size, &tensor.buffer.addr) == PTO_OK;
  }

  Packed pack(const pto_tensor_task& task, uint32_t block) {
    const uint32_t num_args = task.num_params + (task.block_dim ? 2 : 0);
    Packed packed{static_cast<uint32_t>(task.core_type), {}};
    const size_t head = sizeof(pto_payload) / 8 + num_args;
    packed.words.resize(head);
    for (uint32_t i = 0; i < task.num_params; ++i) {
      const pto_param& param = task.params[i];
      uint64_t value = param.value.scalar;
      if (param.tag != PTO_TAG_SCALAR) {
        const size_t at = packed.words.size();
        packed.words.resize(at + sizeof(pto_tensor_data) / 8);
        pto_tensor_data copy = *param.value.tensor;
        copy.tag = static_cast<uint8_t>(param.tag);
        std::memcpy(&packed.words[at], &copy, sizeof copy);
        value = at * 8;
      }
      packed.words[sizeof(pto_payload) / 8 + i] = value;
    }
    if (task.block_dim) {
      packed.words[head - 2] = task.block_dim;
      packed.words[head - 1] = block;
    }
    auto& payload = reinterpret_cast<pto_payload&>(packed.words[0]);
    payload.kernel = task.kernel;
    payload.cookie = task.cookie;
    payload.func_id = task.func_id;
    payload.num_args = num_args;
    for (uint32_t i = 0; i < task.num_params; ++i)
      if (task.params[i].tag != PTO_TAG_SCALAR) payload.relative_args |= uint64_t{1} << i;
    return packed;
  }

  uint64_t address_of(int32_t func_id) const {
    for (uint32_t i = 0; i < run->num_kernels; ++i)
      if (run->kernels[i].func_id == func_id) return run->kernels[i].address;
    return 0;
  }

  int64_t submit(pto_tensor_task& task) {
    if (has_error && !is_planning) return -1;
    for (uint32_t i = 0; i < task.num_params; ++i)
      if (!allocate(task.params[i])) return fail(PTO_ERROR_MEMORY, "no device memory"), -1;
    if (task.kernel == 0) task.kernel = address_of(task.func_id);
    if (!is_planning && !has_space(task)) return -1;
    const std::lock_guard lock(mutex);
    const auto id = static_cast<int64_t>(tasks.size());
    for (uint32_t block = 0; block < (task.block_dim ? task.block_dim : 1); ++block) {
      tasks.push_back(pack(task, block));
      reinterpret_cast<pto_payload&>(tasks.back().words[0]).task = tasks.size() - 1;
      ++counts[0];
    }
    if (!is_planning) platform->wake(platform->self, 0);
    return id;
  }

  bool has_space(const pto_tensor_task& task) {
    if (gets_stuck && tasks.size() == 2) {
      fail(PTO_ERROR_DEADLOCK, "deadlock: the task ring is full; --set x.window=8, or so");
      error.value = 8;
      error.other_task = PTO_RESOURCE_TASK_RING;
      error.core = 0;
      error.limit = 4;
      is_planning = true;
      std::snprintf(error.file, sizeof error.file, "%s", task.file);
      error.line = task.line;
      return true;
    }
    while (slots != 0) {
      const uint32_t seen = completed.load();
      if (tasks.size() - seen < slots) break;
      if (platform->wait(platform->self, reinterpret_cast<uint32_t*>(&completed), seen) != PTO_OK)
        return fail(PTO_ERROR_ABORTED, "aborted"), false;
    }
    return true;
  }

  uint32_t core_for(uint32_t type) const {
    const pto_topology& topology = *platform->topology;
    uint32_t core = 0;
    while (topology.core_type[core] != type) ++core;
    return core;
  }

  int32_t step(uint32_t thread) {
    if (has_error) return is_planning && !is_built ? PTO_STEP_IDLE : PTO_STEP_ERROR;
    if (thread != 0) return is_over() ? PTO_STEP_DONE : PTO_STEP_IDLE;
    pto_poll_result polled{};
    platform->poll(platform->self, 0, &polled);
    bool moved = false;
    if (polled.done.words[0] | polled.done.words[1]) {
      moved = true;
      if (polled.faulted.words[0] | polled.faulted.words[1]) return take_fault(polled.faulted);
      in_flight = false;
      completed.fetch_add(1);
      platform->notify(platform->self, reinterpret_cast<uint32_t*>(&completed));
    }
    const std::lock_guard lock(mutex);
    if (!in_flight && dispatched < tasks.size()) {
      const Packed& next = tasks[dispatched++];
      in_flight = moved = true;
      const pto_dispatch one{core_for(next.core_type), static_cast<uint16_t>(next.words.size() * 8),
                             0, reinterpret_cast<const pto_payload*>(next.words.data())};
      platform->dispatch(platform->self, 0, &one, 1);
    }
    if (is_built && !in_flight && dispatched == tasks.size()) return PTO_STEP_DONE;
    return moved ? PTO_STEP_PROGRESS : PTO_STEP_IDLE;
  }

  bool is_over() {
    const std::lock_guard lock(mutex);
    return is_built && completed == tasks.size();
  }

  int32_t take_fault(const pto_core_mask& mask) {
    uint32_t core = 0;
    while ((mask.words[core / 64] >> (core % 64) & 1) == 0) ++core;
    pto_error fault{};
    platform->fault(platform->self, core, &fault);
    fail(fault.status, "");
    error = fault;
    return PTO_STEP_ERROR;
  }

  pto_status begin(const pto_run* given) {
    run = given;
    tasks.clear();
    dispatched = 0;
    in_flight = is_built = is_planning = false;
    completed = 0;
    has_error = false;
    error = {};
    depth = 0;
    clusters_taken = 0;
    std::memset(counts, 0, sizeof counts);
    counts[3] = given->hazards;
    return PTO_OK;
  }

  void done(int32_t result) {
    {
      const std::lock_guard lock(mutex);
      is_built = true;
    }
    if (result != 0) fail(PTO_ERROR_ORCHESTRATION, "the orchestration failed");
    if (depth != 0) fail(PTO_ERROR_USAGE, "a scope was not ended");
    for (uint32_t thread = 0; thread < platform->topology->schedulers; ++thread)
      platform->wake(platform->self, thread);
  }
};

Runtime& self(void* runtime) {
  return *static_cast<Runtime*>(runtime);
}

pto_status create(const pto_platform* platform, const pto_option* options, uint32_t count,
                  void** runtime, pto_error*) {
  auto* made = new Runtime(platform);
  for (uint32_t i = 0; i < count; ++i) {
    const std::string key = options[i].key;
    if (key == "slots") made->slots = static_cast<uint32_t>(std::atoi(options[i].value));
    if (key == "stuck") made->gets_stuck = options[i].value[0] == '1';
  }
  *runtime = made;
  return PTO_OK;
}

uint32_t statistics(void* runtime, pto_statistic* out, uint32_t capacity) {
  const char* names[] = {"tasks", "edges", "scopes", "hazards"};
  constexpr uint32_t kMany = 100;
  for (uint32_t i = 0; i < kMany && i < capacity; ++i) {
    out[i] = {};
    if (i < 4) {
      std::snprintf(out[i].name, sizeof out[i].name, "%s", names[i]);
      out[i].value = self(runtime).counts[i];
    } else {
      std::snprintf(out[i].name, sizeof out[i].name, "ring%u_counter_%u", i % 4, i / 4);
    }
  }
  return kMany;
}

void fill_scopes_and_clusters(pto_runtime_api& api) {
  api.scope_begin = [](void* runtime, const char*, int32_t) {
    ++self(runtime).depth;
    ++self(runtime).counts[2];
    return pto_status{PTO_OK};
  };
  api.scope_end = [](void* runtime) {
    if (self(runtime).depth-- == 0) return self(runtime).fail(PTO_ERROR_USAGE, "no scope is open");
    return pto_status{PTO_OK};
  };
  api.allocate_cluster = [](void* runtime, const char*, int32_t line) {
    Runtime& one = self(runtime);
    if (line < 1) return one.fail(PTO_ERROR_USAGE, "no line"), int32_t{-1};
    for (uint32_t i = 0; i < kClusters; ++i) {
      if ((one.clusters_taken >> i & 1) != 0) continue;
      one.clusters_taken |= 1u << i;
      return static_cast<int32_t>(i);
    }
    return one.fail(PTO_ERROR_DEADLOCK, "no cluster is free"), int32_t{-1};
  };
  api.free_cluster = [](void* runtime, int32_t cluster) {
    Runtime& one = self(runtime);
    if (cluster >= static_cast<int32_t>(kClusters) || (one.clusters_taken >> cluster & 1) == 0)
      return one.fail(PTO_ERROR_USAGE, "that cluster is not taken");
    one.clusters_taken &= ~(1u << cluster);
    return pto_status{PTO_OK};
  };
}

pto_runtime_api make_table() {
  pto_runtime_api api{};
  api.abi_version = PTO_ABI_VERSION;
  api.struct_size = sizeof api;
  api.variant = "in_order";
  api.capabilities = PTO_RUNTIME_CONCURRENT_BUILD | PTO_RUNTIME_SCOPES |
                     PTO_RUNTIME_BLOCKING_SUBMIT | PTO_RUNTIME_TENSORS | PTO_RUNTIME_CLUSTERS;
  api.max_args = PTO_MAX_KERNEL_ARGS;
  api.create = create;
  api.destroy = [](void* runtime) { delete &self(runtime); };
  api.begin = [](void* runtime, const pto_run* run) { return self(runtime).begin(run); };
  api.orchestrate = [](void*) { return pto_status{PTO_ERROR_UNSUPPORTED}; };
  api.orchestration_done = [](void* runtime, int32_t result) { self(runtime).done(result); };
  api.submit_tensors = [](void* runtime, pto_tensor_task* task) {
    return self(runtime).submit(*task);
  };
  api.add_edge = [](void* runtime, int64_t from, int64_t to) {
    Runtime& one = self(runtime);
    if (from >= to) return one.fail(PTO_ERROR_USAGE, "an edge from a later task");
    ++one.counts[1];
    return pto_status{PTO_OK};
  };
  api.publish = [](void*, int64_t) { return pto_status{PTO_ERROR_UNSUPPORTED}; };
  fill_scopes_and_clusters(api);
  api.schedule_step = [](void* runtime, uint32_t thread) { return self(runtime).step(thread); };
  api.stalled = [](void* runtime) {
    self(runtime).fail(PTO_ERROR_DEADLOCK, "nothing can go on");
    return int32_t{PTO_STEP_ERROR};
  };
  api.finalise = [](void*) { return pto_status{PTO_OK}; };
  api.end = [](void* runtime) { self(runtime).tasks.clear(); };
  api.abort = [](void* runtime, const pto_error*) {
    self(runtime).fail(PTO_ERROR_ABORTED, "aborted");
  };
  api.last_error = [](void* runtime, pto_error* out) {
    if (out != nullptr && self(runtime).error.status != PTO_OK) *out = self(runtime).error;
    return self(runtime).error.status;
  };
  api.statistics = statistics;
  api.explain = [](void*, char*, size_t) { return size_t{0}; };
  return api;
}

}  // namespace

PTO_ABI_EXPORT const pto_runtime_api* pto_runtime_entry(const char* variant) {
  static const pto_runtime_api api = make_table();
  return std::strcmp(variant, api.variant) == 0 ? &api : nullptr;
}
